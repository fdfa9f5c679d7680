"""Common ground: settings are checked and written once, every job gets its run key.

Reads  `config` (config.yaml and overlays).
Writes `<state>/resolved-<digest>.json`, which every job reads.
Offers `plan` (jobs and keys, see src/cdpr/workflow.py) and the pattern of evaluation files.

A rule's `params.key` digests the settings, code and data that its job depends on: an edit reruns exactly the jobs that
it concerns, a `touch` none. Rules hold no logic; a stage is the `cdpr` subcommand of the same name.
"""

import os
import shlex
import sys

try:
    from cdpr.settings import SettingsError
    from cdpr.stages.catalogue import DATASETS, REAL_DATASET
    from cdpr.workflow import (
        ENGINES,
        EVALUATION,
        FIGURES,
        PAPER_TABLES,
        SWEPT,
        TABLES,
        Plan,
    )
except ImportError as error:
    raise WorkflowError(
        f"{error}. Install the package first: `make env`, or `pip install -e .`"
    )

try:
    plan = Plan(config)
    plan.check_prices()
except SettingsError as error:
    raise WorkflowError(str(error))


# A data set itself, not its leak-controlled variant.
BENCHMARK = "|".join((*DATASETS, REAL_DATASET))

# Every job reads the resolved settings. Without an activated environment the `cdpr` beside this Python serves; that of
# a conda environment comes first. Tensors of megabytes come and go in every training step: glibc shall keep their
# memory, and not give it back to the kernel each time (a quarter of an update's time).
shell.prefix(
    f"set -euo pipefail; export CDPR_SETTINGS={shlex.quote(plan.write_settings())}; "
    "export MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=1073741824; "
    f'export PATH="$PATH:{os.path.dirname(sys.executable)}"; '
)


pathvars:
    results=plan.results,
    logs=f"{plan.results}/logs",
    benchmarks=f"{plan.results}/timings",


wildcard_constraints:
    dataset="[a-z_]+",
    run=r"[a-z][a-z0-9_.]*(-seed\d+)?",
