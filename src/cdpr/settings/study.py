"""The expert study: which decisions are rated, whose, and by whom."""

from pydantic import NonNegativeInt, PositiveInt, field_validator

from .section import Section, key

MOST_METHODS = 8


class Study(Section):
    states: PositiveInt = key(100, paper="we randomly sampled 100 intermediate decision states")
    """Decision states sampled from each test set, stratified by turn; of small sets as many as there are."""
    source: str = key("warm_start", decision="D35")
    """Whose workups the states are taken from: a variant (its first seed) or an agent."""
    methods: list[str] = key(
        ["cdpr", "gpt_5_4", "qwen3_32b", "med_gemma_27b", "mdagent"],
        paper="all five compared methods (CDPR, GPT-5.4, Qwen3-32B, Med-Gemma-27B, MDAgent)",
        min_length=1,
        max_length=MOST_METHODS,
    )
    """Whose decisions are rated, ours first: variants (their first seed) and agents. What cannot be run is left out,
    and tables say why."""
    raters: list[str] = key(["R1", "R2", "R3"], paper="three board-certified physicians", min_length=1)
    """Pseudonyms of the raters, one form each."""
    merge_identical: bool = key(True, decision="D36")
    """Proposals of several methods that read alike at a state are shown once, and the rating counts for all of them."""
    seed: int = key(0)
    """Seed of the sample, of the raters' orders and of the codes. For a study with physicians set a number that none
    of them knows."""
    ratings: str | None = key(None, place=True)
    """Folder with the forms that came back; empty: simulated raters where all cases are synthetic, else none yet."""
    kept: str | None = key(None, place=True)
    """Copy of `results/study` from when the forms were handed out: states, forms and key of the analysis are taken from
    there, and nothing is made again, whatever changes in code or models meanwhile."""
    allow_missing: bool = key(False, "Analyse although ratings are missing; how many, every table then says.")
    model_rater: str | None = key(None)
    """A language model that rates the same forms, apart from the raters: an entry of `workflow/models.yaml`, or a
    Hugging Face folder."""
    permutations: NonNegativeInt = key(5000, "Sign flips of the permutation test.")

    @field_validator("methods", "raters")
    @classmethod
    def _each_once(cls, names: list[str]) -> list[str]:
        if len(set(names)) < len(names):
            raise ValueError("a name stands twice")
        return names

    @field_validator("raters")
    @classmethod
    def _are_file_names(cls, raters: list[str]) -> list[str]:
        for name in raters:
            if not (name.isascii() and name.isalnum()):
                raise ValueError(f"{name!r} is no pseudonym: letters and digits alone, for it becomes a file's name")
        return raters
