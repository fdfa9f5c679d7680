"""Typed, closed configuration; canonical form; digests; variants of an experiment."""

from .experiments import Experiments, Sweep, Variant, project_folder
from .load import SettingsError, digest, load_settings, merge, parse_settings
from .schema import Settings
from .variants import job_of, resolve_variant, seeds_of, shown, sweeps, value_at, variants

__all__ = [
    "Experiments",
    "Settings",
    "SettingsError",
    "Sweep",
    "Variant",
    "digest",
    "job_of",
    "load_settings",
    "merge",
    "parse_settings",
    "project_folder",
    "resolve_variant",
    "seeds_of",
    "shown",
    "sweeps",
    "value_at",
    "variants",
]
