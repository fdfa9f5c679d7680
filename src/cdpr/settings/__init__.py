"""Typed, closed configuration; canonical form; digests; variants of an experiment."""

# ruff: noqa: F401

from .agents import AgentEntry, Look
from .experiments import Experiments, Sweep, Variant
from .judging import judging_models
from .load import SettingsError, digest, load_settings, merge, parse_settings
from .models import ModelEntry, model_of, why_not_run
from .schema import Settings
from .shipped import project_folder
from .variants import job_of, resolve_variant, seeds_of, shown, sweeps, value_at, variants
