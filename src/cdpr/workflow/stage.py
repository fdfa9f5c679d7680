"""What a stage is: the settings that it reads, the files that it needs and writes, and the function that does it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Self

from ..job import PageEntry
from ..records import PIPELINE
from ..settings import Settings
from ..settings.load import restrict, without
from .experiment import Experiment, Options, Product, Source

_RUNTIME = ("tier", "paths", "tracking")
# Settings that several stages read: what decides an action and its worth; who judges and matches; who acts.
DECISIONS = ("environment", "policy", "utility")
JUDGED = ("judge", "matcher", "models", "governance", "calls")  # the column `also` keys what decides of them
ACTING = ("tier", "evaluation.seed", "evaluation.max_turn_tokens", "costs", *DECISIONS)
RUN = "who acts: a trained run such as cdpr-seed0, or an agent of workflow/agents.yaml such as warm_start"


Need = str | Product | Callable[[Experiment, Options], Source]


@dataclass(frozen=True)
class Output:
    """A file (or ``folder``) that a stage writes."""

    path: str
    about: str
    folder: bool = False


@dataclass(frozen=True)
class Evidence:
    """What a table or figure reads below the results folder: evaluations, as (run, data set), and training runs."""

    evaluations: tuple[tuple[str, str], ...] = ()
    training: tuple[str, ...] = ()

    def __or__(self, other: Self) -> Self:
        pairs = zip((self.evaluations, self.training), (other.evaluations, other.training), strict=True)
        return Evidence(*(tuple(dict.fromkeys((*mine, *theirs))) for mine, theirs in pairs))


@dataclass(frozen=True)
class Stage:
    """One stage; its name is that of its rule and of its command.

    ``call`` (``module:function``) takes the settings and a :class:`~cdpr.job.Job`. It sees only the settings named in
    ``reads``, which enter the run key, and ``runtime``, which do not (where files lie, how often to save); reading any
    other setting is an error, so a key can never miss a dependency. ``options`` say which job of the stage is meant;
    placeholders in ``reads`` and in paths are filled with them.

    ``needs`` are its input files: ``"stage.output"`` of the job with the same options, or a function of experiment and
    options, or a certain product. ``evidence`` (evaluations, trainings) and ``follows`` (other outputs) are what its
    function finds by itself below the results folder. ``record`` is its run.json, by default beside the first output.

    What else decides its outputs: ``also`` (values, and digests of files that are no inputs) and ``more_code`` (modules
    that it imports by name). ``experiment`` is where MLflow lists it. ``tensors``: torch works in it; ``live``: MLflow
    follows its metrics as they come; ``page``: its place on the results page and in the ledger.
    """

    name: str
    summary: str
    call: str | Callable[[Settings], str]
    reads: tuple[str, ...] = ()
    runtime: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    needs: Mapping[str, Need] = field(default_factory=dict)
    evidence: Callable[[Experiment], Evidence] = lambda experiment: Evidence()
    follows: Callable[[Experiment], list[Product]] = lambda experiment: []
    outputs: Mapping[str, Output] = field(default_factory=dict)
    record: str = ""
    also: Callable[[Experiment, Options], Mapping[str, Any]] = lambda experiment, options: {}
    more_code: Callable[[Experiment, Options], list[str]] = lambda experiment, options: []
    experiment: str = PIPELINE
    tensors: bool = False
    live: bool = False
    page: PageEntry | None = None

    def help_of(self, need: str) -> str:
        """What an input is: in the words of the stage that makes it, or of the function that finds it."""
        source = self.needs[need]
        if callable(source):
            return (source.__doc__ or need.replace("_", " ")).replace("``", "`")
        return f"what `{source.stage if isinstance(source, Product) else source.partition('.')[0]}` writes"

    def target(self, settings: Settings) -> str:
        """``module:function`` of the job with these settings."""
        return self.call if isinstance(self.call, str) else self.call(settings)

    def parameters(self, settings: Settings, options: Options) -> dict[str, Any]:
        """The slice of the settings that decides the outputs, as JSON."""
        return restrict(settings, self._keyed(options)).model_dump(mode="json")

    def view(self, settings: Settings, options: Options) -> Settings:
        """The settings as the stage sees them."""
        runtime = [name.format(**options) for name in (*_RUNTIME, *self.runtime)]
        return restrict(settings, self._keyed(options) | without(runtime, ()))

    def path(self, output: str, options: Options) -> str:
        """Where an output of a job lies, ``<results>`` standing for the results folder; ``record`` is its run.json."""
        beside = str(PurePath(next(iter(self.outputs.values())).path).with_suffix(".run.json"))
        pattern = self.record or beside if output == "record" else self.outputs[output].path
        return pattern.format(**{name: "{" + name + "}" for name in self.options} | options)

    def _keyed(self, options: Options) -> set[str]:
        return without(
            [name.format(**options) for name in self.reads], [name.format(**options) for name in self.runtime]
        )
