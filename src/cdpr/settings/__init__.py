"""The settings of the pipeline: their types and defaults, how they are read from YAML files, the variants of an
experiment that change them, and digests that identify them."""

# ruff: noqa: F401

from .algorithms import algorithm_class, algorithm_module, algorithm_options
from .credit import Credit
from .datasets import BENCHMARKS, DATASETS, FURTHER, IN_DOMAIN, LESSONS, FeeSchedules, Governance, controlled_name
from .experiments import POLICY, AgentEntry, Experiments, Look, Sweep, Variant
from .judging import ASKERS, DECIDING, SECOND, TABLES, unreadable_warning
from .load import digest, expand_keys, flatten, load_settings, merge, nest, parse_settings, restrict
from .models import PROVIDERS, Calls, Machine, ModelEntry, Prices, Serving
from .queries import check_settings, is_served, judging_models, model_of, user_files, why_not_run
from .runs import TrainedRun, is_trained, seeds_of_runs
from .schema import REGISTRIES, Costs, HospitalSettings, Policy, Prompt, Settings, Study, Tests, Training, Utility, Verl
from .section import Section, SettingsError, key, project_folder
from .tables import add_quantities, evaluate, read_table, refuse
from .variants import job_of, labels_of, resolve_variant, restrict_to_algorithm, seeds_of, sweeps, value_at, variants
