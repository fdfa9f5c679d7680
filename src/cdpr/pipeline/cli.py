"""Cost-aware sequential diagnosis: raw clinical files become priced cases, an agent diagnoses a case one
examination at a time, counterfactual credit turns workups into rewards, a policy is trained on them, and
every agent is evaluated on the same benchmarks.

Snakemake calls these subcommands in the right order; `snakemake --cores all` makes everything. Called by
hand, each one does one step on the given files.

examples (all commands: docs/reference/commands.md):
  snakemake --cores all reproduce_paper             everything, from raw files to the main table
  snakemake main_table --configfile config/ci.yaml  the same in miniature
  cdpr ingest_dataset --help                        what one stage reads and writes
  cdpr config --explain credit.beta                 what a setting does, its value, its source in the paper
  cdpr systems --configfile mine.yaml               what each row of Table 1 still needs to run here
  cdpr why results/tables/main_results.md           what has changed since a result was made
"""
# This text is the head of `cdpr --help`. Each stage is a subcommand of its name.

import argparse
import atexit
import difflib
import functools
import gc
import logging
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

# Only modules that load in milliseconds: every job starts here.
from .. import __version__
from ..escape import EscapingStream, terminal
from ..files import parse_yaml, shipped_text
from ..problems import explain
from ..settings import Settings, SettingsError, generate, is_trained, load_settings
from ..settings.variants import changed_settings
from . import housekeeping, mlflow_index, systems
from .experiment import Experiment
from .running import evaluate_served, run_jobs
from .stages import STAGES

_SETTINGS_FILE = "config.yaml"
_STAGE_EXAMPLE = "example: what its rule runs\n  snakemake --dry-run --printshellcmds FILE"
# Variants whose time `plan_training` compares, with the titles of their columns. K is the number of continuations of a
# candidate action, H their decisions before a diagnosis is forced.
_COMPARED = {"grpo": "GRPO", "cdpr": "CDPR as set", "cdpr_short": "CDPR, H 0, K 16",
             "belief_gain": "Belief gain", "record_critic": "Record critic"}  # fmt: skip
_ARGUMENTS = parse_yaml(shipped_text(__package__, "commands.yaml"))
_COMMANDS: dict[str, dict[str, dict[str, Any]]] = _ARGUMENTS["commands"]
"""The arguments of each command that is no stage, with their options for argparse's ``add_argument``."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command in this process. ``argv`` are its words, by default those of the command line. Returns the exit
    code: 0 on success, 1 where a check finds something, 2 for a problem that the user can solve, after one message, and
    141 where nobody reads the output. Other errors are raised; with credentialed cases they are printed without their
    message (2)."""
    # Python's search for unused objects also visits the thousands that modules define, which are always in use. To
    # search more rarely saves a tenth of the start; to skip them at the end (freeze) saves a fifth of a second.
    gc.set_threshold(50_000, 20, 50)
    atexit.register(gc.freeze)
    parser, words = build_parser(), list(sys.argv[1:] if argv is None else argv)
    names = {*STAGES, *_COMMANDS}
    if words and not words[0].startswith("-") and words[0] not in names:
        # At most three, most similar first; a similarity of 0 means nothing in common, 1 means equal.
        similar = " or ".join(f"`cdpr {name}`" for name in difflib.get_close_matches(words[0], names, cutoff=0.5))
        question = f": did you mean {similar}?" if similar else ""
        parser.error(f"there is no command {words[0]!r}{question} (cdpr --help lists all)")
    args = parser.parse_args(words)
    if not hasattr(args, "call"):
        parser.print_help()
        return 0
    # --settings, else the environment variable CDPR_SETTINGS, else config.yaml; then --configfile over them.
    files = args.settings or os.environ.get("CDPR_SETTINGS", _SETTINGS_FILE).split(os.pathsep)
    args.settings = [*files, *(args.configfile or ())]
    configure_output()
    try:
        return args.call(args) or 0
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        return 141  # 128 + SIGPIPE, as of any program that ends so
    except Exception as error:
        message = explain(error, args.settings)
        if message is None and not args.credentialed:
            raise
        if message is None:  # the stack alone: the message may quote a credentialed case
            stack = "".join(traceback.format_tb(error.__traceback__))
            fault = f"{type(error).__name__} (its message is withheld: cases are credentialed)"
            message = f"a fault of the program\n{stack}{fault}"
        print(terminal(f"cdpr {args.command}: {message}"), file=sys.stderr)
        return 2


def configure_output() -> None:
    """Print whole lines at once, and keep progress bars and banners of libraries out of logs."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    if not isinstance(sys.stdout, EscapingStream):
        sys.stdout = EscapingStream(sys.stdout)
    log = logging.getLogger("cdpr")
    log.setLevel(logging.INFO)
    if not log.handlers:
        log.addHandler(logging.StreamHandler(sys.stdout))
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")


@functools.cache
def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the whole command line: a subcommand for each stage, and for each of :data:`_COMMANDS`."""
    # Wide enough for the longest stage name.
    layout = functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=30, width=110)
    parser = argparse.ArgumentParser("cdpr", description=__doc__, formatter_class=layout)
    parser.add_argument("--version", action="version", version=f"cdpr {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="stages and commands")

    def add(name: str, call: Callable, summary: str | None, arguments: dict[str, dict], **more: Any) -> None:
        """Add a subcommand that calls ``call``. ``summary`` is its line in the list of commands, ``arguments`` are its
        own; ``more`` are further options of its parser, such as a longer ``description``."""
        command = commands.add_parser(name, help=summary, formatter_class=layout, **{"description": summary, **more})
        command.set_defaults(call=call, credentialed=False)  # `_load_experiment` sets it to True for credentialed data
        for flag, options in (_ARGUMENTS["every"] | arguments).items():
            command.add_argument(flag, **options)

    for name, stage in STAGES.items():
        # Which function trains depends on the settings.
        target = stage.call if isinstance(stage.call, str) else "by training.engine"
        about = f"stage {name}: {target}\n\nreads the settings: {', '.join(stage.reads) or 'none'}"
        options = {f"--{option}": _ARGUMENTS["options"][option] for option in stage.options}
        add(name, _run_stage, target, options | _ARGUMENTS["stage"], description=about, epilog=_STAGE_EXAMPLE)
    for name, arguments in _COMMANDS.items():
        call = globals()[f"_{name}"]  # a function of this module
        add(name, call, call.__doc__, arguments)
    return parser


def _load_experiment(args: argparse.Namespace) -> Experiment:
    """Load the experiment of the command's settings files. Where its data are credentialed, files are written for their
    owner alone, and messages of errors are withheld from now on."""
    experiment = Experiment(load_settings(*args.settings))
    args.credentialed = experiment.settings.data.credentialed
    experiment.keep_private()
    return experiment


def _run_stage(args: argparse.Namespace) -> None:
    """Run the jobs of a stage, one for each combination of the values of its options: with the runs a and b and the
    data set c these are the jobs (a, c) and (b, c)."""
    names = STAGES[args.command].options
    jobs = [dict(zip(names, values, strict=True)) for values in product(*(getattr(args, name) for name in names))]
    inputs, outputs = _read_paths("--input", args.input), _read_paths("--output", args.output)
    run_jobs(_load_experiment(args), args.command, jobs, inputs, outputs, args.key)


def _read_paths(flag: str, words: Sequence[str]) -> dict[str, list[str]]:
    """Read the words ``NAME=PATH`` after ``flag``; returns the paths by name. Raises SettingsError for a word of
    another form."""
    paths: dict[str, list[str]] = {}
    for word in words:
        name, _, path = word.partition("=")
        if not (name and path):
            raise SettingsError(f"{flag} {word}: write NAME=PATH, with the names of the rule")
        paths.setdefault(name, []).append(path)
    return paths


def _check_export(args: argparse.Namespace) -> int:
    """List everything that is wrong with a folder of your own cases; writes nothing."""
    from ..ingest.check import LAYOUT, check, write_template

    if args.template:
        print("\n".join(f"wrote {path}" for path in write_template(args.template)))
        return 0
    # An export can also be checked outside a project, with the settings that are part of the package.
    outside = args.settings == [_SETTINGS_FILE] and not Path(_SETTINGS_FILE).exists()
    settings = Settings() if outside else load_settings(*args.settings)
    folder = args.folder or settings.data.private.path
    if not folder:
        print(LAYOUT)
        return 0
    report = check(settings, folder)
    print(report.text(args.show_values))
    return 0 if report.ok else 1


def _check_ratings(args: argparse.Namespace) -> None:
    """List everything that is wrong with forms that raters sent back."""
    from ..study.ratings import confirm_returned

    experiment = _load_experiment(args)
    study = experiment.settings.study
    folder = Path(study.kept or f"{experiment.results}/study")
    print(confirm_returned(map(Path, args.files), folder, study.allow_missing))


def _plan_training(args: argparse.Namespace) -> None:
    """Show how a variant would be trained with verl, and whether it fits."""
    from ..training.verl.plan import write_plan

    experiment = _load_experiment(args)
    settings = experiment.settings_of("train_policy", {"run": args.run})
    if settings.training.engine != "verl":
        print("training.engine is torch, for which there is no plan; name settings of the engine verl, for example "
              "--configfile config/paper.yaml (docs/how-to/train-at-scale.md)")  # fmt: skip
        return
    # All trainings behind the claims of the paper: the plan says how long they take together.
    trainings = filter(is_trained, experiment.evidence("write_claims").runs)
    runs = [experiment.settings_of("train_policy", {"run": run}) for run in trainings]
    variant, _, _ = args.run.rpartition("-seed")
    names = dict.fromkeys([*_COMPARED, variant])
    # The settings of each variant, by the title of its column. Unlike `settings_of`, `changed_settings` accepts a
    # variant that verl cannot train: its column is a forecast.
    columns = {_COMPARED.get(name, name): changed_settings(experiment.settings, name) for name in names}
    policy = Path(args.init_policy or settings.policy.model)
    # The folder of unfinished work. A real training has its run key in place of "RUN_KEY".
    print(write_plan(settings, policy, Path(experiment.state) / "RUN_KEY", columns, runs), end="")


def _rebuild_tracking(args: argparse.Namespace) -> None:
    """Bring the MLflow index up to date with all run.json files."""
    settings = _load_experiment(args).settings
    if not settings.tracking.mlflow:
        print("tracking.mlflow is off: nothing to do")
        return
    counts = ", ".join(f"{count} {name}" for name, count in mlflow_index.rebuild_tracking(settings).items())
    print(f"{mlflow_index.tracking_uri(settings)}: {counts}")


def _clean_state(args: argparse.Namespace) -> None:
    """Remove checkpoints and caches that belong to no job of this configuration."""
    experiment = _load_experiment(args)
    experiment.lock()
    removed, remaining = housekeeping.clean_state(experiment)
    print(f"removed {len(removed)} state folders of other configurations, kept {len(remaining)}")


def _recordings(args: argparse.Namespace) -> None:
    """Give recorded answers about open cases to others, or read theirs."""
    from ..llm.archive import run_export, run_import

    settings = load_settings(*args.settings)
    print(run_export(settings, args.file, args.system) if args.action == "export" else run_import(settings, args.file))


def _evaluate_served(args: argparse.Namespace) -> None:
    """Start the server of a model, run the episodes of all agents that use it, end the server."""
    evaluate_served(_load_experiment(args), args.name)


def _spend(args: argparse.Namespace) -> None:
    """Show what was spent on language models."""
    from ..llm.spending import render_spent

    experiment = _load_experiment(args)
    print(render_spent(experiment.state, experiment.settings.calls.budget_usd))


def _systems(args: argparse.Namespace) -> None:
    """List every row of the main table, what it takes, and what it still needs to run here."""
    print(systems.render(systems.systems(_load_experiment(args))))


def _verify(args: argparse.Namespace) -> int:
    """Compare all results with the digests in their run.json: exit code 1 when one was edited or damaged."""
    results = Path(load_settings(*args.settings).paths.results)
    altered = housekeeping.find_altered(results)
    for path, fault in altered.items():
        print(f"{path}: {fault}; {shlex.join(['snakemake', '--cores', 'all', '-f', str(path)])}")
    print(f"{results}: {len(altered)} altered" if altered else f"{results}: every result is what was written")
    return 1 if altered else 0


def _why(args: argparse.Namespace) -> None:
    """Say which part of a result's run key has changed since it was made."""
    experiment = _load_experiment(args)
    record = housekeeping.record_of(experiment, Path(args.result))
    print("\n".join(housekeeping.list_differences(experiment, record)) or "nothing has changed: this result is current")


def _config(args: argparse.Namespace) -> int:
    """Explain settings; write or check their schema and config/README.md."""
    outdated: list[str] = []
    if args.explain:
        print(generate.explain_key(args.explain, load_settings(*args.settings)))
    elif not Path("workflow").is_dir():
        raise SettingsError(f"{Path.cwd()}: no project here; go to the folder with config.yaml and workflow/")
    elif args.write:
        print("\n".join(f"wrote {path}" for path in generate.write_files(Path())))
    else:
        outdated = generate.outdated_files(Path())
        for path in outdated:
            print(f"{path} differs from src/cdpr/settings; run `cdpr config --write`")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
