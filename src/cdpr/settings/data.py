"""Where cases and prices come from, and what may leave the machine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .section import Section, key


class Source(Section):
    path: str | None = key(None, "Folder (or file) with the real data; empty: the synthetic hospital's raw files.")
    credentialed: bool = key(False, "Cases under a data use agreement: their text never leaves the machine.")


class Structurer(Section):
    model: str | None = key(
        None,
        "Language model that splits what regular expressions cannot: a Hugging Face folder, or the URL of an "
        "OpenAI-compatible server; empty: regular expressions alone. It may only copy from the note.",
    )
    name: str | None = key(None, "Name of the model on the server.")
    max_tokens: int = key(512, "Tokens of one answer.", gt=0)
    at_once: int = key(8, "Notes that a server is asked about at the same time.", gt=0)


class MimicSource(Source):
    hours_before_admission: float = key(
        24.0,
        "Events from this many hours before admission until admission are the initial workup.",
        decision="D22",
        gt=0,
    )
    hours_after_admission: float = key(
        0.0,
        "Events up to this many hours after admission count too; emergency workups often cross the moment of it.",
        decision="D22",
        ge=0,
    )
    held_specimens: Literal["keep", "drop"] = key(
        "keep",
        "Tubes held for later and sample indices stand among the laboratory items and, in the paper's sample record, "
        "among the examinations; `drop` leaves them out.",
        decision="D24",
    )
    structurer: Structurer = Field(default_factory=Structurer, description="Help for notes in free form.")
    memory_gb: float = key(4.0, "Memory of the table engine; what is larger goes to disk.", gt=0)
    threads: int = key(2, "Threads of the table engine; as many processes read notes.", gt=0)


class ClinicalBenchSource(Source):
    language: Literal["en", "zh", "both"] = key(
        "en", "Language of the cases; the benchmark tells each of them in both.", decision="D19b"
    )


class AgentClinicSource(Source):
    path: str | None = key(
        "../shared/data/agentclinic/agentclinic_medqa.jsonl",
        "File with the AgentClinic cases in JSONL; absent: `smoke_real` says 'not run'.",
    )


class Leaks(Section):
    pre_established: Literal["drop", "mask", "keep"] = key(
        "drop",
        "A case whose diagnosis stands in the past or personal history: left out, the name blanked, or kept.",
        decision="D23",
    )
    family_history: Literal["drop", "mask", "keep"] = key(
        "mask", "The same for a diagnosis that a relative has, wherever the summary says so.", decision="D23"
    )
    diagnosis_in_summary: Literal["drop", "mask", "keep"] = key(
        "drop", "The same for complaint and present illness.", decision="D23"
    )
    results_in_history: Literal["keep", "emergency", "all"] = key(
        "emergency",
        "`emergency`: the present illness ends where it turns to what the emergency department found; `all`: every "
        "sentence that reports a result goes.",
        decision="D23",
    )
    diagnosis_in_results: Literal["drop", "mask", "keep"] = key(
        "keep", "A result that names the diagnosis: left out, the name blanked, or kept.", decision="D23"
    )
    impression: Literal["drop", "mask", "keep"] = key(
        "keep",
        "The impression of a report: left out, the diagnosis blanked in it, or kept (as in the paper's sample).",
        decision="D23",
    )


class FeeSchedules(Section):
    clfs: str | None = key(None, "Clinical Laboratory Fee Schedule, CSV.", paper="Laboratory tests are priced using")
    pfs: str | None = key(
        None, "Relative value file of the Physician Fee Schedule (PPRRVU), CSV.", paper="imaging, electrocardiography, "
    )
    opps_cap: str | None = key(None, "Imaging caps of the Physician Fee Schedule (OPPSCAP), CSV.")
    gpci: str | None = key(None, "Geographic practice cost indices (GPCI), CSV; needed for a locality.")
    opps: str | None = key(None, "Addendum B of the Outpatient Prospective Payment System, xlsx.",
                           paper="facility-heavy outpatient procedures")  # fmt: skip
    locality: str = key(
        "national", "Where the Physician Fee Schedule is priced: `national`, or contractor and locality (`10112-00`)."
    )
    conversion_factor: float | None = key(
        None, "US dollars per relative value unit; empty: the one printed in the file.", gt=0
    )


class Data(Section):
    mimic_iv: MimicSource = Field(default_factory=MimicSource, description="In-domain cases.")
    clinicalbench: ClinicalBenchSource = Field(
        default_factory=ClinicalBenchSource, description="First out-of-domain benchmark."
    )
    private: Source = Field(default_factory=Source, description="Second out-of-domain benchmark.")
    agentclinic: AgentClinicSource = Field(
        default_factory=AgentClinicSource, description="Openly licensed real cases, used by `smoke_real`."
    )
    leaks: Leaks = Field(default_factory=Leaks, description="What may give the diagnosis away.")
    fee_schedules: FeeSchedules = Field(
        default_factory=FeeSchedules,
        description="Your own year or locality of the Medicare fee schedules; empty: the shipped catalogue.",
    )
    price_overrides: str | None = key(
        None, "CSV of your own prices (`examination,price_usd,billing_group`); they take precedence over all others."
    )
    train_cases: int = key(12512, "Cases of the training split.", paper="Datasets: 23,377 cases from MIMIC-IV", gt=0)
    validation_cases: int = key(
        200, "Cases held out for learning curves; the paper names a validation split without a size.", ge=0
    )
    test_cases: int = key(1000, "In-domain test cases.", paper="Datasets: 750 additional MIMIC-IV cases", gt=0)
    split_seed: int = key(0, "Seed of the split by patient.")

    @property
    def credentialed(self) -> bool:
        """Whether any of the data sets is under a data use agreement."""
        return any(s.credentialed for s in (self.mimic_iv, self.clinicalbench, self.private, self.agentclinic))


class Governance(Section):
    remote_agreement: str | None = key(
        None,
        "Name of the agreement that allows the text of credentialed cases to be sent to a model on another machine; "
        "empty: such a request is refused.",
    )
