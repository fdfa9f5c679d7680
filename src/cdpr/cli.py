"""The ``cdpr`` command: one subcommand per stage, with the stage's name, and a few for the house itself."""

from __future__ import annotations

import argparse
import functools
import json
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .workflow.plan import Plan
    from .workflow.stage import Stage

_ABOUT = """\
Cost-aware sequential diagnosis: raw clinical files become priced cases, an agent works a case up one
examination at a time, counterfactual credit turns work-ups into rewards, a policy is trained on them, and
every agent is judged on the same benchmarks.

Snakemake calls these subcommands in the right order; `snakemake --cores all` makes everything. Called by
hand, each does one step on the files that it is given."""

_EXAMPLES = """\
examples:
  snakemake --cores all reproduce_paper             everything, from raw files to the main table
  snakemake main_table --configfile config/ci.yaml  the same in miniature
  cdpr ingest_dataset --help                        what one stage reads and writes
  cdpr check_export my_data                         what is wrong with an export of your own hospital
  cdpr config --explain credit.beta                 what a setting does, its value, its source in the paper
  cdpr plan_training --settings config.yaml config/paper.yaml   what verl is told, and whether it fits
  cdpr systems --configfile mine.yaml               what every row of Table 1 lacks to be run here
  cdpr check_ratings returned/                      what is wrong with forms of the expert study
  cdpr spend --plan main_table --configfile config/paper.yaml   what the paper's Table 1 would cost
  cdpr recordings export table1.zip                 the answers behind a table, so that others redo it for nothing
  cdpr export --inspect cdpr-seed0 run.eval         every case of an evaluation as a log of Inspect
  cdpr why results/tables/main_results.run.json     what has changed since a result was made
"""

_SETTINGS_FILE = "config.yaml"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command in this process: 0 when all went well, 2 for a problem that the user can solve (one clear message).
    The entry point is :func:`cdpr.command.main`."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if not hasattr(args, "call"):
        parser.print_help()
        return 0
    if getattr(args, "settings", ()) is None:
        args.settings = os.environ.get("CDPR_SETTINGS", _SETTINGS_FILE).split(os.pathsep)
    if overlays := getattr(args, "configfile", None):
        args.settings += overlays
    speak_plainly()
    try:
        return args.call(args) or 0
    except BrokenPipeError:
        return 141
    except Exception as error:
        message = explain(error)
        if message is None and not getattr(args, "credentialed", False):
            raise
        message = message or _without_text(error)
        print(f"cdpr {args.command}: {message}", file=sys.stderr)
        return 2


def speak_plainly() -> None:
    """Whole lines as they are ready, and no bars or banners of libraries in what may be a log."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
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
    """The whole command line; stages come from the catalogue."""
    from .workflow.stages import STAGES

    parser = argparse.ArgumentParser("cdpr", description=_ABOUT, epilog=_EXAMPLES, formatter_class=_Plain)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="stages and commands")
    for stage in STAGES.values():
        _add_stage(commands, stage)
    for name, (call, summary, arguments) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary, formatter_class=_Plain)
        command.set_defaults(call=call)
        for flags, options in arguments:
            command.add_argument(*flags, **options)
    return parser


class _Plain(argparse.RawDescriptionHelpFormatter):
    """Descriptions as written, wide enough for the longest stage name."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=30, width=110)


def _plan(args: argparse.Namespace) -> Plan:
    from .workflow.running import planned

    return planned(args.settings)


def _plan_training(args: argparse.Namespace) -> None:
    from .training.verl.configuration import report
    from .training.verl.duration import target_line
    from .workflow.plan import trainings

    plan = _plan(args)
    settings, _ = plan.settings_of("train_policy", {"run": args.run})
    if settings.training.engine != "verl":
        print("training.engine is torch: it trains in this process and takes what memory it needs; nothing to plan")
        return
    state = Path(plan.state) / "RUN_KEY"
    print(report(settings, state / "session.json", Path(args.init_policy or settings.policy.model), state))
    if not settings.training.verl.without_gpu:
        runs = trainings(plan.evidence("write_claims"))
        print("\n# the whole target\n" + target_line([plan.settings_of("train_policy", {"run": r})[0] for r in runs]))


def _check_export(args: argparse.Namespace) -> int:
    from .ingest.check import LAYOUT, check
    from .ingest.template import write_template
    from .settings import load_settings

    if args.template:
        print("\n".join(f"wrote {path}" for path in write_template(args.template)))
        return 0
    # An export can be checked where no project is: the shipped settings are those that a project begins with.
    outside = args.settings == [_SETTINGS_FILE] and not Path(_SETTINGS_FILE).exists()
    settings = load_settings(*([] if outside else args.settings))
    folder = args.folder or settings.data.private.path
    if not folder:
        print(LAYOUT)
        return 0
    report = check(settings, folder)
    print(report.text(args.show_values))
    return 0 if report.ok else 1


_SETTINGS = (
    ("--settings",),
    {"nargs": "+", "metavar": "FILE",
     "help": "settings, later files over earlier ones (default: $CDPR_SETTINGS, or config.yaml)"},
)  # fmt: skip
_OVERLAY = (
    ("--configfile",),
    {"nargs": "+", "metavar": "FILE", "help": "settings over those of --settings, as for snakemake"},
)


def _add_stage(commands: Any, stage: Stage) -> None:
    about = f"{stage.summary}\n\nreads the settings: {', '.join(stage.reads) or 'none'}"
    example = f"example:\n  cdpr {stage.name}" + "".join(f" --{name} {_EXAMPLE[name]}" for name in stage.options)
    command = commands.add_parser(stage.name, help=stage.summary, description=about, epilog=example,
                                  formatter_class=_Plain)  # fmt: skip
    which = command.add_argument_group("which job") if stage.options else command
    for name, text in stage.options.items():
        which.add_argument(f"--{name}", required=True, metavar="NAME", help=text)
    reads = command.add_argument_group("reads (default: where the workflow has it)")
    for name in stage.needs:
        reads.add_argument(f"--{name}", metavar="PATH", help=stage.about.get(name, name.replace("_", " ")))
    reads.add_argument("--results", metavar="PATH", help="results folder (default: paths.results)")
    writes = command.add_argument_group("writes (default: where the workflow has it)")
    for name, output in stage.outputs.items():
        writes.add_argument(f"--{name}", metavar="PATH", help=output.about)
    writes.add_argument("--record", metavar="PATH", help="run.json of the job (default: beside the first output)")
    command.add_argument(*_SETTINGS[0], **_SETTINGS[1])
    command.add_argument("--key", help="run key (default: computed)")
    command.set_defaults(call=_run_stage)


def _run_stage(args: argparse.Namespace) -> None:
    from .workflow.running import run_stage
    from .workflow.stages import STAGES

    stage, plan = STAGES[args.command], _plan(args)
    args.credentialed = plan.settings.data.credentialed
    run_stage(plan, stage, {name: vars(args)[name] for name in stage.options}, vars(args))


def _check_ratings(args: argparse.Namespace) -> int:
    from .study.blinding import Items
    from .study.ratings import check_ratings
    from .study.records import StudyError

    plan = _plan(args)
    path = Path(args.cards or plan.resolved(str(plan.place(plan.source("analyse_study", "cards", {})))))
    if not path.exists():
        raise StudyError(f"{path}: missing: make the forms first, or name the cards.json of the study in --cards")
    ratings, problems = check_ratings(map(Path, args.files), Items.model_validate_json(path.read_text("utf-8")))
    print(
        "\n".join(problems) or f"complete: {len(ratings.scores)} raters; set study.ratings to the folder of these files"
    )
    return 1 if problems else 0


def _evaluate_served(args: argparse.Namespace) -> None:
    from .workflow.served import evaluate_served

    plan = _plan(args)
    args.credentialed = plan.settings.data.credentialed
    evaluate_served(plan, args.name)


def _config(args: argparse.Namespace) -> int:
    from .settings import SettingsError, load_settings
    from .settings.generate import check, explain, write

    if args.explain:
        print(explain(args.explain, load_settings(*args.settings)))
        return 0
    if not (Path(args.root) / "workflow").is_dir():
        where = Path(args.root).resolve()
        raise SettingsError(f"{where}: no project here; go to the folder that holds config.yaml and workflow/, or name "
                            "it: --root FOLDER")  # fmt: skip
    if args.write:
        for path in write(Path(args.root)):
            print(f"wrote {path}")
        return 0
    stale = check(Path(args.root))
    for path in stale:
        print(f"{path} differs from src/cdpr/settings; run `cdpr config --write`")
    return 1 if stale else 0


def _rebuild_tracking(args: argparse.Namespace) -> None:
    from .settings import load_settings
    from .tracking.mlflow_index import rebuild_tracking, tracking_uri

    settings = load_settings(*args.settings)
    if not settings.tracking.mlflow:
        print("tracking.mlflow is off: nothing to index")
        return
    count = rebuild_tracking(settings)
    print(f"{tracking_uri(settings)}: {count['records']} runs, {count['new']} new, {count['superseded']} superseded")


def _log_traces(args: argparse.Namespace) -> None:
    from .settings import load_settings
    from .tracking.mlflow_index import tracking_uri
    from .tracking.traces import log_traces

    settings = load_settings(*args.settings)
    if not settings.tracking.mlflow or not settings.tracking.traces:
        print("tracking.mlflow is off, or tracking.traces is 0: nothing to log")
        return
    count = log_traces(settings)
    print(f"{tracking_uri(settings)}: {count['traces']} workups of {count['evaluations']} evaluations"
          + (f"; {count['credentialed']} evaluations passed over: their cases are credentialed, and the store is not "
             "declared fit for them (tracking.credentialed)" if count["credentialed"] else ""))  # fmt: skip


def _clean_state(args: argparse.Namespace) -> None:
    from .workflow.housekeeping import clean_state

    removed, kept = clean_state(_plan(args))
    print(f"removed {len(removed)} state folders of other configurations, kept {len(kept)}")


def _systems(args: argparse.Namespace) -> None:
    from .workflow.systems import render, systems

    rows = systems(_plan(args))
    print(json.dumps([system.as_json() for system in rows], indent=2) if args.json else render(rows))


def _recordings(args: argparse.Namespace) -> None:
    from .settings import load_settings
    from .workflow import recordings

    settings = load_settings(*args.settings)
    if args.action == "export":
        print(recordings.export(settings, args.file, args.system))
    else:
        print(recordings.import_(settings, args.file))


def _export(args: argparse.Namespace) -> None:
    from .settings import SettingsError
    from .settings.datasets import IN_DOMAIN
    from .workflow.export import export

    if args.inspect == args.every_eval_ever:
        raise SettingsError("in which format? name one: --inspect or --every-eval-ever")
    plan, to = _plan(args), "inspect" if args.inspect else "every-eval-ever"
    args.credentialed = plan.settings.data.credentialed
    print(export(plan, to, args.run, args.dataset or IN_DOMAIN, args.file, args.organization))


def _spend(args: argparse.Namespace) -> None:
    from .workflow.spend import plan_spending, render_plan, render_spent

    plan = _plan(args)
    settings = plan.settings
    if args.plan:
        print(render_plan(settings, plan_spending(plan, args.plan)))
    else:
        print(render_spent(plan.state, settings.calls.budget_usd))


def _why(args: argparse.Namespace) -> None:
    from .workflow.housekeeping import differences

    lines = differences(_plan(args), Path(args.record))
    print("\n".join(lines) or "nothing has changed: this result is current")


_EXAMPLE = {"dataset": "private", "run": "cdpr-seed0"}
_COMMANDS = {
    "check_export": (_check_export, "List everything that is wrong with a folder of your own cases; writes nothing.", [
        (("folder",), {"nargs": "?", "metavar": "FOLDER",
                       "help": "cases in the layout of docs/reference/private-format.md (default: data.private.path)"}),
        (("--show-values",), {"action": "store_true", "help": "quote the values of credentialed cases"}),
        (("--template",), {"metavar": "NEW_FOLDER", "help": "write example files into a new folder instead"}),
        _SETTINGS]),
    "check_ratings": (_check_ratings, "List everything that is wrong with forms that raters sent back.", [
        (("files",), {"nargs": "+", "metavar": "FILE", "help": "forms (JSON, CSV, XLSX, JSONL), or folders of them"}),
        (("--cards",), {"metavar": "PATH", "help": "cards.json of the study (default: where the workflow has it)"}),
        _OVERLAY, _SETTINGS]),
    "plan_training": (_plan_training, "Show how a variant would be trained with verl, and whether it fits.", [
        (("--run",), {"default": "cdpr-seed0", "metavar": "NAME", "help": "VARIANT-seedN (default: cdpr-seed0)"}),
        (("--init_policy",), {"metavar": "PATH", "help": "policy to start from (default: policy.model)"}),
        _SETTINGS]),
    "rebuild_tracking": (_rebuild_tracking, "Bring the MLflow index up to date with all run.json files.",
                         [_SETTINGS]),
    "log_traces": (_log_traces, "Show workups of the inspector as traces in MLflow, each evaluation's once.",
                   [_SETTINGS]),
    "clean_state": (_clean_state, "Remove checkpoints and caches that belong to no job of this configuration.",
                    [_SETTINGS]),
    "recordings": (_recordings, "Hand recorded answers about open cases to others, or take theirs.", [
        (("action",), {"choices": ["export", "import"], "help": "write the archive, or read it"}),
        (("file",), {"metavar": "FILE", "help": "the archive (.zip)"}),
        (("--system",), {"action": "append", "default": [], "metavar": "NAME",
                         "help": "export what this agent asks, and no other (may be repeated)"}),
        _OVERLAY, _SETTINGS]),
    "evaluate_served": (_evaluate_served, "Start a server of a model, let all its agents be evaluated, end it.", [
        (("name",), {"metavar": "JOB", "help": "a job of `serving` (config.yaml): the name of a model, a run, ..."}),
        _SETTINGS]),
    "export": (_export, "Write an evaluation in the format of another tool.", [
        (("--inspect",), {"action": "store_true", "help": "a log of Inspect (.eval), case by case: open cases only"}),
        (("--every-eval-ever",), {"action": "store_true", "help": "a record of Every Eval Ever (.json): means alone"}),
        (("run",), {"metavar": "RUN", "help": "an evaluated run, such as cdpr-seed0 or an agent"}),
        (("file",), {"metavar": "FILE", "help": "what to write"}),
        (("--dataset",), {"metavar": "NAME", "help": "the data set (default: the in-domain one)"}),
        (("--organization",), {"default": "unknown", "metavar": "NAME",
                               "help": "who answers for a record of Every Eval Ever"}),
        _OVERLAY, _SETTINGS]),
    "spend": (_spend, "Tell what was spent on language models, or what a target would cost.", [
        (("--plan",), {"metavar": "TARGET", "help": "a table or figure, such as main_table: tell what it would cost"}),
        _OVERLAY, _SETTINGS]),
    "systems": (_systems, "List every row of the main table, what it takes, and what it lacks to be run here.",
                [(("--json",), {"action": "store_true", "help": "for programs"}), _OVERLAY, _SETTINGS]),
    "why": (_why, "Say which part of a result's run key has changed since it was made.",
            [(("record",), {"metavar": "RUN_JSON", "help": "a run.json"}), _OVERLAY, _SETTINGS]),
    "config": (_config, "Explain settings; write or check their schema and config/README.md.",
               [(("--explain",), {"metavar": "KEY", "help": "what a setting does, or all settings of a section"}),
                (("--write",), {"action": "store_true", "help": "write the files (default: check them)"}),
                (("--check",), {"action": "store_true", "help": "check only: exit code 1 when a file is stale"}),
                (("--root",), {"default": ".", "metavar": "FOLDER", "help": "the project's folder"}),
                _OVERLAY, _SETTINGS]),
}  # fmt: skip


def explain(error: Exception) -> str | None:
    """One message for problems that the user can solve; None for a fault of the program."""
    if type(error).__module__.split(".")[0] == "cdpr":
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return None


def _without_text(error: Exception) -> str:
    """Where a fault of the program arose, without its message, which may quote a credentialed case."""
    places = "".join(traceback.format_tb(error.__traceback__))
    return f"a fault of the program\n{places}{type(error).__name__} (its message is withheld: cases are credentialed)"


if __name__ == "__main__":
    sys.exit(main())
