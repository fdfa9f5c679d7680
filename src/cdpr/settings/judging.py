"""Settings of the language models that judge diagnoses and match requests with examinations. The judge and the matcher
are asked only where the tables of names have no answer; a second judge is asked about every diagnosis."""

from .section import Section, key

TABLES = "tables"  # as the setting judge.second: the tables of names are the second judge, instead of a model
DECIDING = ("judge.model", "matcher.model")
"""Settings that name the models whose answers decide, in training and in evaluations."""
SECOND = ("judge.second",)  # names the second judge, which only judges evaluated diagnoses and decides nothing
ASKERS = {"judge": "judge.model", "second_judge": "judge.second", "matcher": "matcher.model"}
"""The names of the judges and of the matcher in recordings and bills, and for each the setting that names its model."""


UNREADABLE = 0.05
"""Share of unreadable answers above which logs and tables warn of a judge or matcher."""


class Judge(Section):
    """Settings of the models that judge whether a diagnosis is right."""

    #: Language model that judges diagnoses which the tables of names do not find right: an entry of
    #: `workflow/models.yaml`, or a Hugging Face folder.
    model: str | None = key(None, paper="Diagnosis correctness is judged by an LLM-as-a-Judge", decision="D18")
    #: Second judge of every evaluated diagnosis, for `snakemake judge_agreement`: a model, or `tables`.
    second: str | None = key(None, decision="D18")


class Matcher(Section):
    """Settings of the model that finds the examination which a request of the agent names."""

    #: Language model for requests that the tables of names do not match, named as in `judge.model`.
    model: str | None = key(None, paper="regex matching and LLM-based semantic matching", decision="D17")


def unreadable_warning(asker: str, unreadable: int, answers: int) -> str:
    """Write a warning where more than one in twenty of a model's answers could not be read (:data:`UNREADABLE`);
    otherwise the text is empty. Tables of names decide in place of an unreadable answer.

    ``asker`` names the task of the model: ``judge``, ``second judge`` or ``matcher``. ``answers`` is the number of its
    answers, ``unreadable`` the number of those that could not be read.
    """
    if unreadable <= UNREADABLE * answers:
        return ""
    return (
        f"{unreadable:,} of {answers:,} answers of the {asker} were unreadable, and tables of names decided in their "
        "place: give it more tokens (sampling.max_tokens of its entry), switch its thinking off, or take another model"
    )
