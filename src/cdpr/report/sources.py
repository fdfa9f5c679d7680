"""Where the cases of each data set come from, and the sentences that licences require in a report."""

from dataclasses import replace

from ..settings import Settings
from ..settings.datasets import DATASETS, DataSet, Source
from .methods import is_synthetic


def source_of(settings: Settings, dataset: str) -> DataSet:
    """Return the description of the cases of a data set (label, licence, conditions, links): that of the real data set,
    or that of the synthetic hospital where the settings give no path to real files."""
    real = DATASETS[dataset]
    if not is_synthetic(settings, dataset):
        return real
    return replace(
        real,
        label=f"{real.label} format, synthetic hospital",
        what=f"Synthetic: cases of a probability model, written in the file format of {real.label} and read from it "
        "like any others. They describe no patient.",
        licence="Apache-2.0, as this project",
        conditions=(f"Figures on these cases say nothing about {real.label} itself.",),
        links=(),
        open=True,
        settings=Source,  # not those of data under an agreement
    )


def notices(settings: Settings) -> list[str]:
    """Return the sentences that licences require below results on the user's own data sets; an empty list where there
    are none."""
    if is_synthetic(settings, "clinicalbench"):
        return []
    repository, paper = DATASETS["clinicalbench"].links
    return [f"Evaluated using ClinicalBench (ClinicalLab, {repository}, {paper})."]
