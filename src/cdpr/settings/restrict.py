"""The part of the settings that one stage may read."""

import functools
from collections.abc import Iterable
from typing import TypeVar

from .load import known_keys
from .schema import Settings
from .section import Section, SettingsError

S = TypeVar("S", bound=Section)


def restrict(settings: Settings, names: Iterable[str]) -> Settings:
    """Settings that hold only the keys ``names`` (dotted; a section stands for all its keys).

    Reading any other key raises AttributeError: a stage cannot depend on a setting that its run key leaves out.
    Raises SettingsError for a name that is no key.
    """
    names = set(names)
    unknown = sorted(names - set(known_keys()))
    if unknown:
        raise SettingsError(f"a stage declares the settings {unknown}, which do not exist; see config/README.md")
    return _keep(settings, names)


def without(names: Iterable[str], leaves: Iterable[str]) -> set[str]:
    """The keys of ``names``, spelled out to single settings, less ``leaves`` and everything below them."""
    names, leaves = set(names), set(leaves)
    return {key for key, above in _single().items() if above & names and not above & leaves}


@functools.cache
def _single() -> dict[str, set[str]]:
    """Every single setting, with all keys that stand for it: its sections and itself."""
    sections = {key.rpartition(".")[0] for key in known_keys()}
    above = {key: key.split(".") for key in known_keys() if key not in sections}
    return {key: {".".join(parts[: n + 1]) for n in range(len(parts))} for key, parts in above.items()}


def _keep(section: S, names: set[str]) -> S:
    copy = section.model_copy()
    for name in type(section).model_fields.keys() - names:
        below = {inner.removeprefix(f"{name}.") for inner in names if inner.startswith(f"{name}.")}
        if below:
            copy.__dict__[name] = _keep(getattr(section, name), below)
        else:
            del copy.__dict__[name]
    return copy
