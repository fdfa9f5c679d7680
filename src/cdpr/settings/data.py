"""Where cases and prices come from, and what may leave the machine."""

from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, create_model

from .datasets import DATASETS, benchmark_of
from .section import Section, key


class Leaks(Section):
    pre_established: Literal["drop", "mask", "keep"] = key("drop", decision="D23")
    """A case whose diagnosis stands in the past or personal history: left out, the name blanked, or kept."""
    family_history: Literal["drop", "mask", "keep"] = key("mask", decision="D23")
    """The same for a diagnosis that a relative has, wherever the summary says so."""
    diagnosis_in_summary: Literal["drop", "mask", "keep"] = key("drop", decision="D23")
    """The same for complaint and present illness."""
    results_in_history: Literal["keep", "emergency", "all"] = key("emergency", decision="D23")
    """`emergency`: the present illness ends where it turns to what the emergency department found; `all`: every
    sentence that reports a result goes."""
    diagnosis_in_results: Literal["drop", "mask", "keep"] = key("keep", decision="D23")
    """A result that names the diagnosis: left out, the name blanked, or kept."""
    impression: Literal["drop", "mask", "keep"] = key("keep", decision="D23")
    """The impression of a report: left out, the diagnosis blanked in it, or kept (as in the paper's sample)."""
    names: Literal["known", "loose"] = key("known", decision="D23")
    """Under which names the diagnosis is looked for: those known of it; `loose`: reordered, shortened and abbreviated
    ones as well."""


class FeeSchedules(Section):
    clfs: str | None = key(None, paper="Laboratory tests are priced using", place=True)
    """Clinical Laboratory Fee Schedule, CSV."""
    pfs: str | None = key(None, paper="imaging, electrocardiography, ", place=True)
    """Relative value file of the Physician Fee Schedule (PPRRVU), CSV."""
    gpci: str | None = key(None, "Geographic practice cost indices (GPCI), CSV; needed for a locality.", place=True)
    opps: str | None = key(None, paper="facility-heavy outpatient procedures", place=True)
    """Addendum B of the Outpatient Prospective Payment System, xlsx."""
    locality: str = key("national")
    """Where the Physician Fee Schedule is priced: `national`, or contractor and locality (`10112-00`)."""
    conversion_factor: float | None = key(None, gt=0)
    """US dollars per relative value unit; empty: the one printed in the file."""

    @property
    def files(self) -> dict[str, str]:
        """The files that are given, by their key."""
        paths = {name: getattr(self, name) for name in ("clfs", "pfs", "gpci", "opps")}
        return {name: path for name, path in paths.items() if path}


class _Data(Section):
    leaks: Leaks = Field(default_factory=Leaks, description="What may give the diagnosis away.")
    fee_schedules: FeeSchedules = Field(default_factory=FeeSchedules)
    """Your own year or locality of the Medicare fee schedules; empty: the shipped catalogue."""
    price_overrides: str | None = key(None, place=True)
    """CSV of your own prices (`examination,price_usd,billing_group`); they take precedence over all others."""
    train_cases: PositiveInt = key(6512, "Cases of the training split.", paper="Datasets: 23,377 cases from MIMIC-IV")
    validation_cases: NonNegativeInt = key(200)
    """Cases held out for learning curves; the paper names a validation split without a size."""
    test_cases: PositiveInt = key(1000, "In-domain test cases.", paper="Datasets: 750 additional MIMIC-IV cases")

    def source(self, dataset: str) -> Any:
        """Where the cases of a data set lie (those of a leak-controlled variant: the benchmark's)."""
        entry = DATASETS[benchmark_of(dataset)]
        return entry.settings() if entry.role == "lessons" else getattr(self, benchmark_of(dataset))

    @property
    def credentialed(self) -> bool:
        """Whether any of the data sets is under a data use agreement."""
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
    remote_agreement: str | None = key(None)
    """Name of the agreement that allows the text of credentialed cases to be sent to a model on another machine; empty:
    such a request is refused."""
