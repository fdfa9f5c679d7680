"""Models that judge diagnoses and match requests for which the tables of names have no answer."""

from .section import Section, key

TABLES = "tables"
DECIDING = ("judge.model", "matcher.model")
"""Their verdicts count in training and in evaluations; those of a second judge only in evaluations."""
SECOND = ("judge.second",)
ASKERS = {"judge": "judge.model", "second_judge": "judge.second", "matcher": "matcher.model"}
"""Name of each judge in recordings and bills, and the setting that names its model."""


UNREADABLE = 0.05
"""Share of unreadable answers above which a judge or matcher fails."""


class Judge(Section):
    """The models that judge diagnoses."""

    model: str | None = key(None, paper="Diagnosis correctness is judged by an LLM-as-a-Judge", decision="D18")
    """Language model that judges diagnoses which the tables of names do not find right: an entry of
    `workflow/models.yaml`, or a Hugging Face folder."""
    second: str | None = key(None, decision="D18")
    """Second judge of every evaluated diagnosis, for `snakemake judge_agreement`: a model, or `tables`."""


class Matcher(Section):
    """The model that matches requests with examinations."""

    model: str | None = key(None, paper="regex matching and LLM-based semantic matching", decision="D17")
    """Language model for requests that the tables of names do not match, named as in `judge.model`."""


def failing(asker: str, unreadable: int, answers: int) -> str:
    """Write a warning where more than one in twenty answers of a model was ``unreadable``; empty where fewer were.

    ``asker`` is ``judge`` or ``matcher``, ``answers`` the number of all answers of its model.
    """
    if unreadable <= UNREADABLE * answers:
        return ""
    return (
        f"{unreadable:,} of {answers:,} answers of the {asker} were unreadable, and tables of names decided in their "
        "place: give it more tokens (sampling.max_tokens of its entry), switch its thinking off, or take another model"
    )
