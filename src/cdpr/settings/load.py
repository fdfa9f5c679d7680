"""Reads settings from files, computes digests of them, and restricts them to the part that one job can read."""

import contextlib
import difflib
import functools
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ..files import parse_yaml
from .schema import REGISTRIES, Settings
from .section import RESTRICTED, NoProject, SettingsError, read_shipped, walk


def load_settings(*paths: str | Path) -> Settings:
    """Read the settings from YAML files, of which later ones override earlier ones key by key. Keys that no file sets
    have their defaults, which follow the paper; without files all keys do. Experiments, agents and models come from the
    checkout (:func:`registries`). config/README.md lists every key.

    If the first file is ``.json``, it has all settings and the checkout is not read. A single file
    ``resolved-DIGEST.json``, which a run writes for its jobs, must have this digest. Raises SettingsError for a missing
    file, for one that is not YAML, and for an unknown key or an invalid value; the message names the key and the
    nearest valid one.
    """
    first = Path(paths[0] if paths else "")
    if len(paths) == 1 and (resolved := re.fullmatch(r"resolved-([0-9a-f]{16})\.json", first.name)):
        return _read_resolved(first, expected=resolved[1])
    merged = {} if first.suffix == ".json" else registries()
    for path in paths:
        merged = merge(merged, _read_yaml(path))
    return parse_settings(merged, " + ".join(map(str, paths)) or "configuration")


def registries() -> dict[str, Any]:
    """Read the sections ``experiments``, ``agents`` and ``models`` of the settings, each from its file in the folder
    ``workflow`` of the checkout. Empty outside of a checkout, where the library works without them."""
    try:
        return {name: read_shipped(file)[name] for name, file in REGISTRIES.items()}
    except NoProject:
        return {}


def _read_resolved(path: Path, expected: str) -> Settings:
    """Read settings from the file ``resolved-DIGEST.json``, which the main process of a run wrote for its jobs. Raises
    SettingsError where the digest of its settings is not ``expected``, the DIGEST in its name."""
    with contextlib.suppress(ValueError):
        settings = Settings.model_validate_json(path.read_bytes())
        if digest(settings) == expected:
            return settings
    raise SettingsError(f"{path}: damaged or edited; start the same snakemake command again, which writes it again")


def _read_yaml(path: str | Path) -> dict[str, Any]:
    """Read the keys and values of a YAML file; an empty file has none. Raises SettingsError where the file is missing,
    is not YAML, or holds something other than keys and values."""
    import yaml

    try:
        data = parse_yaml(Path(path).read_text(encoding="utf-8")) or {}
    except FileNotFoundError as error:
        problem = "no such file; go to the folder of the project, or name your settings (--settings FILE)"
        raise SettingsError(f"{path}: {problem}") from error
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: no UTF-8, or a date that is none
        raise SettingsError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(data, dict):
        raise SettingsError(f"{path}: expected keys and values, found {type(data).__name__}")
    return data


def parse_settings(data: Mapping[str, Any], source: str = "configuration") -> Settings:
    """Check a nested dictionary of settings and return it as :class:`Settings`. The sections ``experiments``,
    ``agents`` and ``models`` of the checkout are added, unless ``data`` has others. Raises SettingsError, which begins
    with ``source`` and names the first bad key and the nearest valid one."""
    try:  # the files of the registries are read only if `data` lacks one of them
        return Settings.model_validate(data if data.keys() >= REGISTRIES.keys() else {**registries(), **data})
    except ValidationError as error:
        # A misspelt key may also be reported as missing, so misspellings come before all other problems.
        misspelt = [problem for problem in error.errors() if problem["type"] == "extra_forbidden"]
        problem = [*misspelt, *error.errors()][0]
        path = [str(part) for part in problem["loc"]]
        if problem["type"] == "extra_forbidden":
            message = unknown_key(path)
        elif "change" in path and isinstance(problem["input"], dict):
            # A variant's `change` nests settings. The last part of the path is a type that pydantic tried, no key.
            message = f"key {'.'.join(path[:-1])!r}: name each setting with dots, as {path[-2]}.KEY: VALUE"
        else:
            message = f"key {'.'.join(path)!r}: {problem['msg']} (got {problem['input']!r})"
        raise SettingsError(f"{source}: {message}") from error


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two nested dictionaries into a new one. Dictionaries are merged at every depth; any other value of ``over``
    replaces that of ``base``."""
    merged = dict(base)
    for name, value in over.items():
        both_nested = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = merge(merged[name], value) if both_nested else value
    return merged


def nest(key: str, value: Any) -> dict[str, Any]:
    """Nest a value below a dotted name: ``a.b`` and 1 become ``{"a": {"b": 1}}``."""
    first, _, rest = key.partition(".")
    return {first: nest(rest, value) if rest else value}


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a nested dictionary: ``{"a": {"b": 1}}`` becomes ``{"a.b": 1}``. ``prefix`` is put in front of each
    name."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def digest(value: Any, length: int = 16) -> str:
    """Compute the first ``length`` hexadecimal digits of the SHA-256 of a JSON value or pydantic model, written as JSON
    with sorted keys. Equal values have equal digests."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def unknown_key(path: Sequence[str]) -> str:
    """Write the error message about the key ``path`` (its parts between dots), which does not exist. It names the most
    similar key, if one is similar."""
    key = ".".join(path)

    def similarity(known: str) -> float:
        """Return a number from 0 to 2: how similar the last parts are, and how similar the whole keys."""
        pairs = ((path[-1], known.rpartition(".")[2]), (key, known))
        return sum(difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs)

    nearest = max(known_keys(), key=similarity)
    remedy = f"did you mean {nearest!r}?" if similarity(nearest) > 1.2 else "see config/README.md for all keys"
    return f"unknown key {key!r}; {remedy}"


@functools.cache
def known_keys() -> dict[str, FieldInfo]:
    """Collect all settings and sections by their dotted names, such as ``training`` and ``training.steps``."""
    return dict(walk(Settings))


def restrict(settings: Any, names: Collection[str], remedy: str = "declare KEY", prefix: str = "") -> Any:
    """Copy settings so that only the keys ``names`` can be read (dotted names; a section means all its keys). A job
    gets a copy with the settings that are in its run key, the digest that decides whether it runs again, and with those
    that change no result. So no other setting can change its result unnoticed.

    Reading any other key of the copy raises UndeclaredSetting with the text ``remedy``, in which KEY is replaced by
    that key. ``settings`` may also be a section; ``names`` are then relative to it, and ``prefix`` is its dotted name
    with a dot behind, for the message. Raises SettingsError for an unknown name in ``names``.
    """
    unknown = sorted(prefix + name for name in names if prefix + name not in known_keys())
    if unknown:
        raise SettingsError(f"`reads` names the settings {unknown}, which do not exist; see config/README.md")
    # For each section in this one, the names of its own keys: "verl.nodes" becomes "nodes" of "verl".
    names_in: dict[str, set[str]] = {}
    for name in names:
        first, _, rest = name.partition(".")
        names_in.setdefault(first, set()).add(rest)
    copy = settings.model_copy()
    for name in type(settings).model_fields.keys() - set(names):
        if name in names_in:
            copy.__dict__[name] = restrict(getattr(settings, name), names_in[name], remedy, f"{prefix}{name}.")
        else:
            copy.__dict__.pop(name, None)  # it is missing already where the section was a restricted copy itself
    copy.__dict__[RESTRICTED] = prefix, remedy  # read by Section.__getattr__ for its message
    return copy


def expand_keys(names: Iterable[str], excluded: Iterable[str] = ()) -> set[str]:
    """List the single settings that the keys ``names`` include, without those that the keys ``excluded`` include. A key
    is the dotted name of a setting, or of a section, which includes all settings in it: ``["utility"]`` without
    ``["utility.lambda_na"]`` gives the other settings of ``utility``."""
    names, excluded = set(names), set(excluded)
    return {key for key, ancestors in _list_ancestors().items() if ancestors & names and not ancestors & excluded}


@functools.cache
def _list_ancestors() -> dict[str, set[str]]:
    """For every single setting the keys that include it: for ``training.verl.nodes`` itself, ``training.verl`` and
    ``training``."""
    sections = {key.rpartition(".")[0] for key in known_keys()}
    parts_of = {key: key.split(".") for key in known_keys() if key not in sections}
    return {key: {".".join(parts[:n]) for n in range(1, len(parts) + 1)} for key, parts in parts_of.items()}
