"""Makes cases of the synthetic hospital without the workflow: for first steps, examples and environments."""

import tempfile

from ..cases import CaseRecord
from ..costs.price import price_case
from ..hospital.raw_files import write_hospital
from ..settings import Settings
from .run import ingest

_TEST_EVERY = 5  # one case in five is a test case


def synthetic_cases(count: int = 400, settings: Settings | None = None) -> list[CaseRecord]:
    """Make ``count`` priced cases of the synthetic hospital; the same settings give the same cases. Of each five in a
    row the first has the split ``test``, the other four ``train``.

    The cases are written and read in the format of a hospital's own export, which takes seconds. Of ``settings`` (None:
    the defaults) those of the hospital, of leak control and of prices are used. Raises ValueError where ``count`` is
    below 1. Source: docs/design/hospital.md.
    """
    settings = settings or Settings()
    hospital = type(settings.hospital)(**dict(settings.hospital) | {"private_cases": count})
    # What the settings say of a hospital's own export does not apply to these files.
    data = settings.data.model_copy(update={"private": Settings().data.private})
    with tempfile.TemporaryDirectory(prefix="cdpr-hospital-") as folder:
        write_hospital(hospital, folder, ["private"])
        records, _ = ingest("private", settings.model_copy(update={"data": data}), f"{folder}/private")
    splits = ("train" if number % _TEST_EVERY else "test" for number in range(len(records)))
    cases = [case.model_copy(update={"split": split}) for case, split in zip(records, splits, strict=True)]
    return [price_case(case, settings.costs) for case in cases]
