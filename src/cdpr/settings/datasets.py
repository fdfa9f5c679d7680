"""The data sets: their registry, and the settings of each.

An entry of ``datasets.yaml`` defines a data set. Its section in the settings ``data``, its importer, its jobs, its
column in tables and its data card follow from the entry.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, create_model, field_serializer, model_validator
from pydantic.dataclasses import dataclass
from pydantic.types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from ..files import parse_yaml, shipped_text
from .section import Section, key

ADDRESSES = ("http://", "https://", "unix:", "anthropic")  # a model whose name begins so is a server, else a folder


class Source(Section):
    """Settings of a data set: where its cases are. Subclasses set ``under_agreement`` where the licence is a data use
    agreement, which forbids that the text leaves the machine."""

    path: str | None = key(None, "Folder or file with the real data; empty: synthetic cases.", is_path=True)

    under_agreement: ClassVar[bool] = False


class FileSource(Source):
    """Settings of a data set that anyone may see, in one file."""

    path: str | None = key(None, "File with the cases; empty: left out.", is_path=True)
    credentialed: ClassVar[bool] = False


class LicensedSource(Source):
    """Settings of a data set whose cases may be credentialed, so that their text must not leave the machine. The
    licence decides whether they are where the user does not."""

    credentialed: bool | None = key(None, "Whether the text must never leave the machine; empty: as the licence says.")

    @model_validator(mode="after")
    def _follow_licence(self) -> Self:
        """Fill ``credentialed`` where the user gave no value: true if the licence is a data use agreement and the data
        are real (``path`` is set). The field still counts as not set by the user, as :meth:`_write_as_set` needs."""
        if self.credentialed is None:
            # By __dict__, because sections are frozen.
            self.__dict__["credentialed"] = self.under_agreement and self.path is not None
            self.model_fields_set.discard("credentialed")  # it is in this set where the user wrote null
        return self

    @field_serializer("credentialed")
    def _write_as_set(self, value: bool | None) -> bool | None:
        """Serialise ``credentialed`` as the user set it: None without a value of the user. So the licence and the path
        decide again when the settings are read back."""
        return value if "credentialed" in self.model_fields_set else None


class AgreementSource(LicensedSource):
    """Settings of a data set under a data use agreement: the text of real cases must not leave the machine, unless the
    user says otherwise."""

    under_agreement = True


class MimicSource(AgreementSource):
    """Settings of MIMIC-IV: which events and specimens around an admission belong to its case."""

    #: Hours before admission whose events belong to the case.
    hours_before_admission: PositiveFloat = key(24.0, decision="D22")
    #: Hours after admission whose events belong to the case.
    hours_after_admission: NonNegativeFloat = key(0.0, decision="D22")
    #: Whether tubes held for later and sample indices are examinations, as in the paper's sample record.
    held_specimens: Literal["keep", "drop"] = key("keep", decision="D24")


class ClinicalBenchSource(LicensedSource):
    """Settings of the benchmark ClinicalBench: its file, and the language of its cases."""

    language: Literal["en", "zh", "both"] = key("en", "Language of the cases; each has both.", decision="D19b")


class PrivateSource(AgreementSource):
    """Settings of the CSV tables of a user's own hospital (docs/reference/private-format.md): their folder, and how
    decimals are written."""

    #: How decimals are written. Empty: numbers with a comma are refused, because 1,250 may be either.
    decimal_mark: Literal["point", "comma"] | None = key(None)


class FhirSource(AgreementSource):
    """Settings of a hospital's export in FHIR R4: its files, and which results and diagnoses belong to a case."""

    #: Bundle (JSON), NDJSON file, or folder of them, also compressed; empty: left out.
    path: str | None = key(None, is_path=True)
    #: Hours after the start of the encounter whose results belong to the case; empty: all.
    hours_after_start: PositiveFloat | None = key(None)
    #: For exports without notes, such as Synthea's: an encounter without a diagnosis gets a condition that began in it,
    #: one without a complaint its own kind.
    diagnosis_by_onset: bool = key(False)


@dataclass(frozen=True)
class DataSet:
    """An entry of ``datasets.yaml``: a data set with its role, its importer and its licence.

    - ``label``: its name in reports; ``description``: the text about its section in the settings.
    - ``role``: what its cases are for.

      - ``in_domain``: training, validation and test, split by patient; in the main table.
      - ``out_of_domain``: only testing; in the main table.
      - ``lessons``: synthetic cases from which the tiny policy learns before reinforcement learning. Such a data set
        has no section of settings.
      - ``further``: only testing, if a path is set; in a table of their own (`open_cases`).

    - ``importer``: the function, as ``module:function``, that reads the data (a :data:`cdpr.ingest.draft.Importer`).
    - ``writer``: for a data set without a path, the function, as ``module:function``, that writes files of the
      synthetic hospital (a :data:`cdpr.hospital.raw_files.Writer`). ``size``: the setting of the section ``hospital``
      with the number of its cases.
    - ``settings``: the class of its section in ``data``.
    - ``what``, ``licence``, ``conditions``, ``links``: texts of its data card.
    - ``open``: the cases are public. The data card of any other data set names nothing that only few patients have.
    - ``averaged``: the data set enters the average in Table 1.
    - ``short``: the label in tables, where it differs from ``label``.
    """

    label: str
    role: Literal["in_domain", "out_of_domain", "lessons", "further"]
    importer: str
    description: str
    what: str
    licence: str
    conditions: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    open: bool = False
    averaged: bool = False
    writer: str = ""
    size: str = ""
    short: str = ""
    settings: type[Source] = LicensedSource

    @property
    def column(self) -> str:
        """The label of the data set in tables and figures: the short one, if it has one."""
        return self.short or self.label

    @property
    def credentialed(self) -> bool:
        """Whether the licence forbids that the text of real cases leaves the machine."""
        return self.settings.under_agreement


# The classes that ``datasets.yaml`` can name.
_SOURCES = {kind.__name__: kind for kind in (MimicSource, ClinicalBenchSource, PrivateSource, FileSource, FhirSource)}
DATASETS: Mapping[str, DataSet] = {
    name: DataSet(**entry | {"settings": _SOURCES[entry["settings"]]})
    for name, entry in parse_yaml(shipped_text(__package__, "datasets.yaml")).items()
    if not name.startswith("x-")  # texts that several entries of the file share
}


def datasets_of(role: str) -> tuple[str, ...]:
    """The names of the data sets with this role (:attr:`DataSet.role`), in the order of the registry."""
    return tuple(name for name, entry in DATASETS.items() if entry.role == role)


(IN_DOMAIN,) = datasets_of("in_domain")  # exactly one data set has this role
LESSONS = (IN_DOMAIN, *datasets_of("lessons"))  # what the warm start can read: training cases, and lessons
BENCHMARKS = (IN_DOMAIN, *datasets_of("out_of_domain"))  # the data sets of Table 1
FURTHER = datasets_of("further")  # columns of the table of open cases
AVERAGED = tuple(name for name, entry in DATASETS.items() if entry.averaged)  # in the average of Table 1

_CONTROLLED_ENDING = "_controlled"


def controlled_name(dataset: str) -> str:
    """The name of the leak-controlled variant of the benchmark ``dataset``, such as ``mimic_iv_controlled``: the same
    cases without texts that give the diagnosis away."""
    return dataset + _CONTROLLED_ENDING


def benchmark_of(dataset: str) -> str:
    """The name of the benchmark to which ``dataset`` belongs: ``mimic_iv`` for ``mimic_iv_controlled``, the
    leak-controlled variant, and for ``mimic_iv`` itself."""
    return dataset.removesuffix(_CONTROLLED_ENDING)


# Where cases and prices come from, and which text is allowed to leave the machine.


class Leaks(Section):
    """Settings of what is done with texts of a case that give its diagnosis away, such as a history that names it."""

    #: A case whose past or personal history has the diagnosis: left out, the name blanked, or kept.
    pre_established: Literal["drop", "mask", "keep"] = key("drop", decision="D23")
    #: The case's diagnosis in a relative, wherever the summary says so: case left out, name blanked, or kept.
    family_history: Literal["drop", "mask", "keep"] = key("mask", decision="D23")
    #: A complaint or present illness with the diagnosis: case left out, name blanked, or kept.
    diagnosis_in_summary: Literal["drop", "mask", "keep"] = key("drop", decision="D23")
    #: `emergency`: the present illness ends where the emergency department's findings begin; `all`: every sentence with
    #: a result goes.
    results_in_history: Literal["keep", "emergency", "all"] = key("emergency", decision="D23")
    #: A result that names the diagnosis: left out, the name blanked, or kept.
    diagnosis_in_results: Literal["drop", "mask", "keep"] = key("keep", decision="D23")
    #: The impression of a report: left out, the diagnosis blanked, or kept (as in the paper's sample).
    impression: Literal["drop", "mask", "keep"] = key("keep", decision="D23")
    #: Names of the diagnosis; `loose`: also reordered, shortened and abbreviated ones.
    names: Literal["known", "loose"] = key("known", decision="D23")


class FeeSchedules(Section):
    """Files of the Medicare fee schedules that replace the shipped catalogue of prices, for another year or
    locality."""

    #: Clinical Laboratory Fee Schedule, CSV.
    clfs: str | None = key(None, paper="Laboratory tests are priced using", is_path=True)
    #: Relative value file of the Physician Fee Schedule (PPRRVU), CSV.
    pfs: str | None = key(None, paper="imaging, electrocardiography, ", is_path=True)
    gpci: str | None = key(None, "Geographic practice cost indices (GPCI), CSV; needed for a locality.", is_path=True)
    #: Addendum B of the Outpatient Prospective Payment System, xlsx.
    opps: str | None = key(None, paper="facility-heavy outpatient procedures", is_path=True)
    locality: str = key("national", "`national`, or contractor-locality of the Physician Fee Schedule (`10112-00`).")
    conversion_factor: float | None = key(None, "US dollars per relative value unit; empty: as in the file.", gt=0)

    @property
    def files(self) -> dict[str, str]:
        """The paths of the fee schedules that are set, by the name of their setting."""
        return {name: path for name in ("clfs", "pfs", "gpci", "opps") if (path := getattr(self, name))}


class _Data(Section):
    """Settings of cases and prices that are not those of a single data set. The class :data:`Data` adds a section for
    each data set of the registry."""

    leaks: Leaks = Field(default_factory=Leaks, description="What may give the diagnosis away.")
    #: Your own year or locality of the Medicare fee schedules; empty: the shipped catalogue.
    fee_schedules: FeeSchedules = Field(default_factory=FeeSchedules)
    #: CSV of your own prices (`examination,price_usd,billing_group`), which come before all others.
    price_overrides: str | None = key(None, is_path=True)
    train_cases: PositiveInt = key(6512, "Cases of the training split.", paper="Datasets: 23,377 cases from MIMIC-IV")
    validation_cases: NonNegativeInt = key(200, "Cases held out for learning curves; the paper gives no size.")
    test_cases: PositiveInt = key(1000, "In-domain test cases.", paper="Datasets: 750 additional MIMIC-IV cases")

    def source(self, dataset: str) -> Any:
        """The settings of a data set, a :class:`Source`. A leak-controlled variant has those of its benchmark;
        synthetic lessons, which have no section, get the defaults."""
        name = benchmark_of(dataset)
        return DATASETS[name].settings() if DATASETS[name].role == "lessons" else getattr(self, name)

    @property
    def credentialed(self) -> bool:
        """Whether the text of the cases of at least one data set must not leave the machine."""
        return any(self.source(name).credentialed for name in DATASETS)


Data: Any = create_model(
    "Data",
    __base__=_Data,
    **{
        name: (entry.settings, Field(default_factory=entry.settings, description=entry.description))
        for name, entry in DATASETS.items()
        if entry.role != "lessons"
    },  # type: ignore[call-overload]
)


class Governance(Section):
    """The setting that allows text of credentialed cases to leave the machine."""

    #: Name of the agreement that allows credentialed text to be sent to a model elsewhere; empty: refused.
    remote_agreement: str | None = key(None)
