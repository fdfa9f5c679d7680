"""Typed, closed configuration; canonical form; digests; variants of an experiment."""

from .load import SettingsError, digest, load_settings, merge, parse_settings
from .schema import Settings
from .variants import VARIANTS, job_of, resolve_variant

__all__ = [
    "VARIANTS",
    "Settings",
    "SettingsError",
    "digest",
    "job_of",
    "load_settings",
    "merge",
    "parse_settings",
    "resolve_variant",
]
