"""The settings of the pipeline: their types and defaults, how they are read from YAML files, the variants of an
experiment that change them, and digests that identify them."""

# ruff: noqa: F401

from .experiments import AgentEntry, Experiments, Look, Sweep, Variant
from .load import SettingsError, digest, load_settings, merge, parse_settings
from .models import Machine, ModelEntry, Serving
from .queries import check_settings, is_served, judging_models, model_of, why_not_run
from .runs import TrainedRun, is_trained, seeds_of_runs
from .schema import Settings
from .section import project_folder
from .variants import job_of, labels_of, resolve_variant, seeds_of, sweeps, value_at, variants
