"""The unified record (paper, appendix "Unified data format") that every room below reads."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

PHYSICAL_SUFFIX = " (Physical Examination)"
SECTIONS = (  # of a case summary, in order
    "Patient Information",
    "Chief Complaint",
    "History of Present Illness",
    "Past Medical History",
    "Personal History",
    "Family History",
    "Allergy History",
)


def is_physical(exam_key: str) -> bool:
    """Whether an examination key is an item of the physical examination (always free of charge)."""
    return exam_key.endswith(PHYSICAL_SUFFIX)


class CaseRecord(BaseModel):
    """One patient case.

    The first six fields carry the paper's names (appendix, sample record). Prices are empty until the
    cost map is attached: ``exam_cost_map`` gives US dollars per examination key and
    ``exam_billing_group`` the parent that is charged once per case, for keys that share one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    note_id: str = Field(min_length=1)
    case_summary: str = Field(min_length=1)
    key_pertinent_results_dict: dict[str, str]
    final_diagnosis: str
    diagnosis_results: str = Field(min_length=1)
    exam_cost_map: dict[str, float] = Field(default_factory=dict)
    exam_billing_group: dict[str, str] = Field(default_factory=dict)

    dataset: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    split: Literal["train", "validation", "test"]
    language: Literal["en", "zh"] = "en"
    subject_key: str = Field(min_length=1)
    credentialed: bool

    @property
    def called(self) -> str:
        """The case as errors may name it: a credentialed one has no name there."""
        return "a credentialed case" if self.credentialed else f"case {self.note_id}"

    @field_validator("exam_cost_map")
    @classmethod
    def _prices_are_amounts(cls, prices: dict[str, float]) -> dict[str, float]:
        for exam, price in prices.items():
            if not 0 <= price < 1e6:
                raise ValueError(f"price of {exam!r} is {price!r}; expected US dollars, 0 or more")
        return prices

    @model_validator(mode="after")
    def _prices_cover_the_results(self) -> Self:
        if self.exam_cost_map and set(self.exam_cost_map) != set(self.key_pertinent_results_dict):
            odd = sorted(set(self.exam_cost_map) ^ set(self.key_pertinent_results_dict))
            raise ValueError(f"exam_cost_map and key_pertinent_results_dict differ in {odd[:3]}")
        return self
