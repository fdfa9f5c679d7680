"""What each data set is and is called, under which licence it stands, and what that asks of a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..settings import Settings
from .methods import synthetic


@dataclass(frozen=True)
class Source:
    """Where cases come from: a sentence, the licence and its conditions, where to read more.

    ``open`` tells whether anyone may see the cases; of others, a card names nothing that few patients have.
    ``credentialed`` tells whether the licence asks for ``data.<data set>.credentialed``.
    """

    label: str
    what: str
    licence: str
    conditions: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    open: bool = False
    credentialed: bool = False


_KEPT_HERE = (
    "Records, checkpoints and everything else that holds or has learned their text are kept as the data themselves are."
)
SOURCES: Mapping[str, Source] = {
    "mimic_iv": Source(
        "MIMIC-IV",
        "Hospital admissions with discharge notes, and the laboratory, microbiology and radiology events before them, "
        "of the Beth Israel Deaconess Medical Center, de-identified.",
        "PhysioNet Credentialed Health Data License 1.5.0 and its data use agreement",
        ("Only credentialed users may see the cases; they are passed on to nobody, and nobody tries to identify a "
         "patient.",
         "Their text goes to no service outside, unless an agreement allows it (`governance.remote_agreement`).",
         _KEPT_HERE),
        ("https://physionet.org/content/mimiciv/", "https://physionet.org/content/mimic-iv-note/"),
        credentialed=True,
    ),
    "clinicalbench": Source(
        "ClinicalBench",
        "Clinical cases of many departments, the evaluation benchmark of ClinicalLab (arXiv:2406.13890).",
        "ClinicalLab's data agreement: evaluation only, for licensees, not commercial",
        ("Nothing is trained or tuned on the cases.",
         "Neither they nor anything made from them is passed on, in whole or in part.",
         "Every report says: Evaluated using ClinicalBench."),
        ("https://github.com/WeixiangYAN/ClinicalLab", "https://arxiv.org/abs/2406.13890"),
    ),
    "private": Source(
        "Private hospital",
        "Cases of a hospital's own, in the documented private format.",
        "The hospital's own",
        ("The hospital decides who may see the cases and what may be reported.", _KEPT_HERE),
        credentialed=True,
    ),
    "agentclinic": Source(
        "AgentClinic (MedQA)",
        "Structured examination cases that a language model built from the questions of a medical licensing "
        "examination; no patient stands behind them.",
        "MIT",
        ("The licence and its copyright notice go along with the cases.",),
        ("https://github.com/SamuelSchmidgall/AgentClinic", "https://arxiv.org/abs/2405.07960"),
        open=True,
    ),
}  # fmt: skip


_CONTROLLED = "_controlled"


def controlled_name(dataset: str) -> str:
    """Name of a benchmark's leak-controlled variant."""
    return dataset + _CONTROLLED


def benchmark_of(dataset: str) -> str:
    """The benchmark that a data set is, or is the leak-controlled variant of."""
    return dataset.removesuffix(_CONTROLLED)


def source_of(settings: Settings, dataset: str) -> Source:
    """The source of a data set under these settings: the synthetic hospital where it has no path of its own."""
    real = SOURCES[dataset]
    if not synthetic(settings, dataset):
        return real
    return Source(
        f"{real.label} format, synthetic hospital",
        f"Synthetic: cases of a probability model, written in the file format of {real.label} and read from it like "
        "any others. No patient stands behind them.",
        "Apache-2.0, as this project",
        (f"Figures on these cases say nothing about {real.label} itself.",),
        open=True,
    )


def notices(settings: Settings) -> list[str]:
    """Sentences that licences ask to stand below figures on the data sets of these settings."""
    if synthetic(settings, "clinicalbench"):
        return []
    repository, paper = SOURCES["clinicalbench"].links
    return [f"Evaluated using ClinicalBench (ClinicalLab, {repository}, {paper})."]
