"""Reading settings, the digests that identify what a stage depends on, and the part that one stage may read."""

import contextlib
import difflib
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ..files import parse_yaml
from .schema import REGISTRIES, Settings
from .section import RESTRICTED, NoProject, SettingsError, read_shipped, walk


def load_settings(*paths: str | Path) -> Settings:
    """Settings from YAML files: later files override earlier ones key by key, and all of them the registries of the
    checkout (:func:`registries`). A resolved file (``.json``) is read alone. Without a file: the defaults, which follow
    the paper.

    Raises SettingsError for a missing file, for one that is not YAML, and for an unknown key or an invalid value; the
    message names the key and the nearest valid one. Source: config/README.md lists every key.
    """
    alone = bool(paths) and Path(paths[0]).suffix == ".json"
    if alone and len(paths) == 1 and (name := re.fullmatch(r"resolved-([0-9a-f]{16})\.json", Path(paths[0]).name)):
        return _resolved(Path(paths[0]), name[1])
    merged = {} if alone else registries()
    for path in paths:
        merged = merge(merged, _read(path))
    return parse_settings(merged, " + ".join(map(str, paths)) or "configuration")


def registries() -> dict[str, Any]:
    """Experiments, agents and models of the checkout, as its files in ``workflow/`` have them; empty where there is no
    checkout. Only names of runs need them: the library works without."""
    try:
        return {name: read_shipped(file)[name] for name, file in REGISTRIES.items()}
    except NoProject:
        return {}


def _resolved(path: Path, expected: str) -> Settings:
    """The settings of a run, as its main process wrote them; the name of the file holds their digest."""
    with contextlib.suppress(ValueError):
        settings = Settings.model_validate_json(path.read_bytes())
        if digest(settings) == expected:
            return settings
    raise SettingsError(f"{path}: damaged or edited; start the same snakemake command again, which writes it again")


def _read(path: str | Path) -> dict[str, Any]:
    """The keys and values of a YAML file. Raises SettingsError."""
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
    """The settings of a plain dictionary, with :func:`registries` where it names none. Raises SettingsError naming the
    first bad key and the nearest valid one."""
    try:
        return Settings.model_validate({**registries(), **data})
    except ValidationError as error:
        # A misspelt key is also a missing one: the misspelling is reported.
        problem = min(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
        path = [str(part) for part in problem["loc"]]
        message = f"key {'.'.join(path)!r}: {problem['msg']} (got {problem['input']!r})"
        if "change" in path and isinstance(problem["input"], dict):  # of a variant
            message = f"key {'.'.join(path[:-1])!r}: name each setting with dots, as {path[-2]}.KEY: VALUE"
        message = unknown_key(path) if problem["type"] == "extra_forbidden" else message
        raise SettingsError(f"{source}: {message}") from error


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` laid on ``base``; nested sections are merged, everything else is replaced."""
    out = dict(base)
    for name, value in over.items():
        both = isinstance(value, Mapping) and isinstance(out.get(name), Mapping)
        out[name] = merge(out[name], value) if both else value
    return out


def digest(value: Any, length: int = 16) -> str:
    """Hexadecimal digest of a JSON-like value (models included) in canonical form."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def unknown_key(path: Sequence[str]) -> str:
    """The message for a key that does not exist, with the nearest key that does: in its section, or anywhere."""
    section, everywhere, key = ".".join(path[:-1]), known_keys(), ".".join(path)
    for among, cutoff in (([k for k in everywhere if k.rpartition(".")[0] == section], 0.5), (everywhere, 0.75)):
        names = dict.fromkeys(k.rpartition(".")[2] for k in among)
        if close := difflib.get_close_matches(path[-1], names, n=1, cutoff=cutoff):
            alike = [k for k in among if k.rpartition(".")[2] == close[0]]  # one name is in several sections
            return f"unknown key {key!r}; did you mean {difflib.get_close_matches(key, alike, n=1, cutoff=0)[0]!r}?"
    return f"unknown key {key!r}; see config/README.md for all keys"


@functools.cache
def known_keys() -> tuple[str, ...]:
    """Dotted names of all keys, sections included."""
    return tuple(name for name, _ in walk(Settings))


def restrict(settings: Settings, names: Iterable[str], remedy: str = "declare KEY") -> Settings:
    """Settings that hold only the keys ``names`` (dotted; a section means all its keys).

    Reading any other key raises UndeclaredSetting, with the ``remedy``, where KEY is replaced by its name: nothing can
    depend on a setting that its run key leaves out. Raises SettingsError for a name that is no key.
    """
    names = set(names)
    unknown = sorted(names - set(known_keys()))
    if unknown:
        raise SettingsError(f"`reads` names the settings {unknown}, which do not exist; see config/README.md")
    return _keep(settings, names, "", remedy)


def without(names: Iterable[str], leaves: Iterable[str]) -> set[str]:
    """The keys of ``names``, spelled out to single settings, less ``leaves`` and everything below them."""
    names, leaves = set(names), set(leaves)
    return {key for key, above in _single().items() if above & names and not above & leaves}


@functools.cache
def _single() -> dict[str, set[str]]:
    """Every single setting, with all keys that include it: its sections and itself."""
    sections = {key.rpartition(".")[0] for key in known_keys()}
    above = {key: key.split(".") for key in known_keys() if key not in sections}
    return {key: {".".join(parts[: n + 1]) for n in range(len(parts))} for key, parts in above.items()}


def _keep(section: Any, names: set[str], above: str, remedy: str) -> Any:
    """A copy of a section that has only the keys ``names``, below the dotted name ``above``."""
    below: dict[str, set[str]] = {}
    for name in names:
        first, _, rest = name.partition(".")
        below.setdefault(first, set()).add(rest)
    copy = section.model_copy()
    for name in type(section).model_fields.keys() - names:
        if name in below:
            copy.__dict__[name] = _keep(getattr(section, name), below[name], f"{above}{name}.", remedy)
        else:
            copy.__dict__.pop(name, None)  # of a copy of a copy
    copy.__dict__[RESTRICTED] = above, remedy
    return copy
