"""The models that judge diagnoses and match requests where tables of names give no answer."""

from __future__ import annotations

from .section import Section, key

TABLES = "tables"
DECIDING = ("judge.model", "matcher.model")
"""Their verdicts count in training and in evaluations; those of a second judge only in evaluations."""
SECOND = ("judge.second",)
ASKERS = {"judge": "judge.model", "second_judge": "judge.second", "matcher": "matcher.model"}
"""Name of each judge in recordings and bills, and the setting that names its model."""


class Judge(Section):
    model: str | None = key(None, paper="Diagnosis correctness is judged by an LLM-as-a-Judge", decision="D18")
    """The language model that judges diagnoses which tables of names do not find right, in training as in evaluations:
    an entry of `workflow/models.yaml`, or a Hugging Face folder; empty: the tables alone judge."""
    second: str | None = key(None, decision="D18")
    """Another judge of every evaluated diagnosis, for `snakemake judge_agreement`: a model, which is asked about all of
    them, or `tables`. Its verdicts count nowhere else."""


class Matcher(Section):
    model: str | None = key(None, paper="regex matching and LLM-based semantic matching", decision="D17")
    """The language model that is asked which examination a request names where tables of names find none; named as
    `judge.model`."""
