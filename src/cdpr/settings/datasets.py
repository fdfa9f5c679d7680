"""The registry of data sets: label, role, importer and licence of each.

An entry of ``datasets.yaml`` defines a data set: its settings in ``data``, its importer, its jobs, its column in tables
and its card follow from it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, create_model, field_serializer, model_validator
from pydantic.dataclasses import dataclass
from pydantic.types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from ..files import parse_yaml, shipped_text
from .section import Section, key

ADDRESSES = ("http://", "https://", "unix:", "anthropic")  # what begins so is a server; any other model is a folder


class Source(Section):
    """Where the cases of a data set are."""

    path: str | None = key(None, "Folder or file with the real data; empty: synthetic cases.", is_path=True)

    under_agreement: ClassVar[bool] = False


class FileSource(Source):
    """Cases that anyone may see."""

    path: str | None = key(None, "File with the cases; empty: left out.", is_path=True)
    credentialed: ClassVar[bool] = False


class LicensedSource(Source):
    """Cases that may be credentialed: their licence, or the user, says whether the text may leave the machine."""

    credentialed: bool | None = key(None, "Whether the text must never leave the machine; empty: as the licence says.")

    @model_validator(mode="after")
    def _follow_licence(self) -> Self:
        """Fill ``credentialed`` by the licence where the user gave no value. To pydantic the field stays unset, so that
        :meth:`_write_as_set` still knows this."""
        if self.credentialed is None:
            self.__dict__["credentialed"] = self.under_agreement and self.path is not None
            self.model_fields_set.discard("credentialed")
        return self

    @field_serializer("credentialed")
    def _write_as_set(self, value: bool | None) -> bool | None:
        """Serialise ``credentialed``: None where the user gave no value, so that the licence and the path decide it
        when the settings are read again."""
        return value if "credentialed" in self.model_fields_set else None


class AgreementSource(LicensedSource):
    """Cases whose licence does not allow their text to leave the machine."""

    under_agreement = True


class MimicSource(AgreementSource):
    """The tables and notes of MIMIC-IV."""

    hours_before_admission: PositiveFloat = key(24.0, decision="D22")
    """Hours before admission whose events belong to the case."""
    hours_after_admission: NonNegativeFloat = key(0.0, decision="D22")
    """Hours after admission whose events belong to the case."""
    held_specimens: Literal["keep", "drop"] = key("keep", decision="D24")
    """Tubes held for later and sample indices, which the paper's sample record has among the examinations."""


class ClinicalBenchSource(LicensedSource):
    """The file of ClinicalBench."""

    language: Literal["en", "zh", "both"] = key("en", decision="D19b")
    """Language of the cases; the benchmark has each in both."""


class PrivateSource(AgreementSource):
    """The CSV tables of a hospital of one's own (docs/reference/private-format.md)."""

    decimal_mark: Literal["point", "comma"] | None = key(None)
    """How decimals are written. Empty: numbers with a comma are refused, because 1,250 may be either."""


class FhirSource(AgreementSource):
    """A FHIR export."""

    path: str | None = key(None, is_path=True)
    """Bundle (JSON), NDJSON file, or folder of them, also compressed; empty: left out."""
    hours_after_start: PositiveFloat | None = key(None)
    """Hours after the start of the encounter whose results belong to the case; empty: all."""
    diagnosis_by_onset: bool = key(False)
    """For exports without notes, such as Synthea's: a condition that began within an encounter is its diagnosis, the
    kind of the encounter its complaint, where it names no other."""


@dataclass(frozen=True)
class DataSet:
    """An entry of ``datasets.yaml``: a data set with its role, its importer and its licence.

    ``role``: ``in_domain`` cases are split by patient for training, validation and test; an ``out_of_domain`` benchmark
    is only for testing; both are in the main table. ``lessons`` are synthetic cases for the warm start of the tiny
    policy, beside the in-domain cases; they have no settings. ``further`` cases are only for testing, if a path is set;
    they have their own table (`open_cases`), and are never in the main table. ``averaged`` data sets enter the average
    in Table 1.

    ``importer`` reads the data (a :data:`cdpr.ingest.draft.Importer`). For a data set without a path, ``writer`` writes
    files of the synthetic hospital (a :data:`cdpr.hospital.raw_files.Writer`), with the number of cases in the setting
    ``size`` of the section ``hospital``. Both are ``module:function``. ``settings`` is the class of its settings.

    ``what``, ``licence``, ``conditions`` and ``links`` are texts of its data card. ``open``: anyone may see the cases;
    the card of any other data set names nothing that only few patients have. ``short`` is the label in tables, where it
    differs from ``label``.
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
        """The label of the data set in tables and figures."""
        return self.short or self.label

    @property
    def credentialed(self) -> bool:
        """Whether the licence forbids that the text of the cases leaves the machine."""
        return self.settings.under_agreement


_SOURCES = {kind.__name__: kind for kind in (MimicSource, ClinicalBenchSource, PrivateSource, FileSource, FhirSource)}
DATASETS: Mapping[str, DataSet] = {
    name: DataSet(**entry | {"settings": _SOURCES[entry["settings"]]})
    for name, entry in parse_yaml(shipped_text(__package__, "datasets.yaml")).items()
    if not name.startswith("x-")
}


def datasets_of(role: str) -> tuple[str, ...]:
    """The names of the data sets with this role, in the order of the registry."""
    return tuple(name for name, entry in DATASETS.items() if entry.role == role)


(IN_DOMAIN,) = datasets_of("in_domain")
LESSONS = (IN_DOMAIN, *datasets_of("lessons"))  # what the warm start reads
BENCHMARKS = (IN_DOMAIN, *datasets_of("out_of_domain"))
FURTHER = datasets_of("further")  # columns of the table of open cases
AVERAGED = tuple(name for name, entry in DATASETS.items() if entry.averaged)

_CONTROLLED = "_controlled"


def controlled_name(dataset: str) -> str:
    """The name of the leak-controlled variant of the benchmark ``dataset``."""
    return dataset + _CONTROLLED


def benchmark_of(dataset: str) -> str:
    """The name of the benchmark to which ``dataset`` belongs: itself, or the one of which it is the leak-controlled
    variant."""
    return dataset.removesuffix(_CONTROLLED)


# Where cases and prices come from, and what may leave the machine.


class Leaks(Section):
    """What is done with texts that give the diagnosis away."""

    pre_established: Literal["drop", "mask", "keep"] = key("drop", decision="D23")
    """A case whose past or personal history has the diagnosis: left out, the name blanked, or kept."""
    family_history: Literal["drop", "mask", "keep"] = key("mask", decision="D23")
    """The same for a diagnosis that a relative has, wherever the summary says so."""
    diagnosis_in_summary: Literal["drop", "mask", "keep"] = key("drop", decision="D23")
    """The same for complaint and present illness."""
    results_in_history: Literal["keep", "emergency", "all"] = key("emergency", decision="D23")
    """`emergency`: the present illness ends where the emergency department's findings begin; `all`: every sentence with
    a result goes."""
    diagnosis_in_results: Literal["drop", "mask", "keep"] = key("keep", decision="D23")
    """A result that names the diagnosis: left out, the name blanked, or kept."""
    impression: Literal["drop", "mask", "keep"] = key("keep", decision="D23")
    """The impression of a report: left out, the diagnosis blanked, or kept (as in the paper's sample)."""
    names: Literal["known", "loose"] = key("known", decision="D23")
    """Names of the diagnosis; `loose`: also reordered, shortened and abbreviated ones."""


class FeeSchedules(Section):
    """Files of the Medicare fee schedules that replace the shipped catalogue of prices."""

    clfs: str | None = key(None, paper="Laboratory tests are priced using", is_path=True)
    """Clinical Laboratory Fee Schedule, CSV."""
    pfs: str | None = key(None, paper="imaging, electrocardiography, ", is_path=True)
    """Relative value file of the Physician Fee Schedule (PPRRVU), CSV."""
    gpci: str | None = key(None, "Geographic practice cost indices (GPCI), CSV; needed for a locality.", is_path=True)
    opps: str | None = key(None, paper="facility-heavy outpatient procedures", is_path=True)
    """Addendum B of the Outpatient Prospective Payment System, xlsx."""
    locality: str = key("national")
    """`national`, or contractor and locality of the Physician Fee Schedule (`10112-00`)."""
    conversion_factor: float | None = key(None, gt=0)
    """US dollars per relative value unit; empty: as printed in the file."""

    @property
    def files(self) -> dict[str, str]:
        """The paths of the files that are set, by their key."""
        return {name: path for name in ("clfs", "pfs", "gpci", "opps") if (path := getattr(self, name))}


class _Data(Section):
    """Where cases and prices come from; :data:`Data` has the settings of every data set besides."""

    leaks: Leaks = Field(default_factory=Leaks, description="What may give the diagnosis away.")
    fee_schedules: FeeSchedules = Field(default_factory=FeeSchedules)
    """Your own year or locality of the Medicare fee schedules; empty: the shipped catalogue."""
    price_overrides: str | None = key(None, is_path=True)
    """CSV of your own prices (`examination,price_usd,billing_group`), which come before all others."""
    train_cases: PositiveInt = key(6512, "Cases of the training split.", paper="Datasets: 23,377 cases from MIMIC-IV")
    validation_cases: NonNegativeInt = key(200, "Cases held out for learning curves; the paper gives no size.")
    test_cases: PositiveInt = key(1000, "In-domain test cases.", paper="Datasets: 750 additional MIMIC-IV cases")

    def source(self, dataset: str) -> Any:
        """The settings of a data set, a :class:`Source`; a leak-controlled variant has those of its benchmark."""
        name = benchmark_of(dataset)
        return DATASETS[name].settings() if DATASETS[name].role == "lessons" else getattr(self, name)

    @property
    def credentialed(self) -> bool:
        """Whether the text of any data set must not leave the machine."""
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
    """What may leave the machine."""

    remote_agreement: str | None = key(None)
    """Name of the agreement that allows credentialed text to be sent to a model elsewhere; empty: refused."""
