"""``run.json``, the record of a finished job: every stage writes one; tables, the report page and MLflow's index read
it."""

from collections.abc import Container, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from .files import DigestCache

# Names in MLflow: the tag with the run key, and the experiment of most stages.
KEY_TAG = "cdpr.run_key"
PIPELINE = "cdpr/pipeline"
_DIGESTS = DigestCache(None)  # in memory, for many tables check the same files


class ProvenanceError(ValueError):
    """Results that do not belong together, or a file that was changed after it was written. The message names the
    files, what differs, and what to do."""


class UnreadableRecord(ProvenanceError):
    """A file is no valid ``run.json``; the message names it and says how to make it again."""


class FileDigest(BaseModel):
    """A file or folder and the SHA-256 of its contents."""

    path: str = ""
    sha256: str = ""


class RunRecord(BaseModel):
    """A ``run.json``: how a job made its outputs. Fields that are missing in an older record are empty; a missing
    ``started`` is 1970.

    - ``stage``, ``options``, ``seed``: the job, such as ``train_policy`` with ``{"run": "cdpr-seed0"}``.
    - ``run_key``: the digest of everything that decided the outputs; ``code_digest``: that of the code alone.
    - ``parameters``: the settings that decided them, by section, and other such values.
    - ``inputs``, ``outputs``: files and folders, each by its name in the rule.
    - ``metrics``, ``tags``: numbers and texts that the stage reported.
    - ``experiment``: the MLflow experiment that lists the job.
    - ``tier``: the scale of the run, as in the settings.
    - ``versions``, ``commit``: the versions of Python and of packages, and the git commit of the checkout.
    """

    # Errors quote no value of a file. A metric without a value is written as NaN, not as null.
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True, ser_json_inf_nan="constants")

    schema_version: int = 2
    stage: str = ""
    experiment: str = PIPELINE
    run_key: str = ""
    tier: str | None = None
    seed: int | None = None
    options: dict[str, str] = {}
    tags: dict[str, str] = {}
    parameters: dict[str, Any] = {}
    metrics: dict[str, float] = {}
    code_digest: str = ""
    inputs: dict[str, FileDigest] = {}
    outputs: dict[str, FileDigest] = {}
    started: datetime = datetime.fromtimestamp(0, UTC)
    wall_seconds: FiniteFloat = 0.0
    cpu_seconds: float = 0.0
    peak_memory_mb: float = 0.0
    versions: dict[str, str] = {}
    commit: str | None = None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the record in a file. Raises UnreadableRecord for a file that is no ``run.json``, and FileNotFoundError
        where there is no file."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))  # empty where the file is no JSON at all
            problem = f"field {field!r}: {first['msg']}" if field else first["msg"]
            again = f"remove it and run snakemake again: {path.parent} is then made again"
            raise UnreadableRecord(f"{path}: no run.json ({problem}); {again}") from error

    def input_digest(self, name: str) -> str | None:
        """The SHA-256 of the input ``name``; None where the stage had no such input."""
        return self.inputs[name].sha256 if name in self.inputs else None

    def altered_outputs(self, record: Path, names: Container[str] | None = None) -> list[Path]:
        """List the outputs that are missing or differ from their recorded digest. ``record`` is the path of this
        record; ``names`` are the names of the files to check (None: all). A file is read again only when its size or
        modification time has changed."""
        digests = self.output_digests(record)
        checked = [path for path in digests if names is None or path.name in names]
        return [path for path in checked if _DIGESTS.digest(path) != digests[path]]

    def output_digests(self, record: Path) -> dict[Path, str]:
        """The recorded digest of each output, by the output's path. ``record`` is the path of this record. An output is
        first looked for beside the record, since results may have been moved, and then at its recorded path."""
        digests: dict[Path, str] = {}
        for output in self.outputs.values():
            path = Path(output.path)
            if output.sha256 and path.name:
                beside = record.with_name(path.name)
                digests[beside if beside.exists() else path] = output.sha256
        return digests

    def describe_exchange(self, record: Path) -> str:
        """Check that this record, the file ``record``, is in the folder of its own job. Returns a message where it is
        in that of another job, because files were exchanged; otherwise an empty text.

        Of the recorded path of each output the folders are compared, from the first one that is named after an option
        of the job (a run, a data set). Those above it are not, so that results can be moved as a whole. Nothing is
        compared where no folder is named after an option.
        """
        for output in self.outputs.values():
            folders = Path(output.path).parent.parts
            of_options = [index for index, folder in enumerate(folders) if folder in self.options.values()]
            # For the option run = cdpr-seed0: of ("results", "training", "cdpr-seed0") the last one alone.
            own_folders = folders[of_options[0] :] if of_options else ()
            if own_folders and record.parent.parts[-len(own_folders) :] != own_folders:
                job = job_name(self.stage, self.options)
                return f"the record of {job}: files were moved or exchanged, put them back"
        return ""

    @property
    def name(self) -> str:
        """The name of the run in MLflow, unique in its experiment: ``cdpr-seed0`` for a training,
        ``cdpr-seed0/private`` for an evaluation, ``ingest_dataset/private`` for any other stage."""
        parts = [self.options[name] for name in ("run", "dataset") if name in self.options]
        # The experiment PIPELINE has jobs of many stages; every other experiment has those of one stage.
        needs_stage = self.experiment == PIPELINE or not parts
        return "/".join([self.stage, *parts] if needs_stage else parts)


def job_name(stage: str, options: Mapping[str, str]) -> str:
    """The name of a job in messages: its stage and the values of its options, ``evaluate_agent cdpr-seed0/private``."""
    return " ".join([stage, "/".join(options.values())]).strip()


def record_files(results: Path) -> list[Path]:
    """Find all records (``run.json``, ``NAME.run.json``) in a results folder; returns their paths, sorted.

    Left out are the records of other results inside the folder, such as ``results/ci``: a file ``.lock`` marks the
    folder of results. Left out are also folders whose name ends like that of a record: running jobs write into them.
    """
    others = {path.parent for path in results.rglob(".lock")} - {results}
    return sorted(path for path in results.rglob("*run.json") if path.is_file() and others.isdisjoint(path.parents))
