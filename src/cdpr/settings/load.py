"""Reading settings, and the digests that identify what a stage depends on."""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from .agents import shipped_agents
from .experiments import shipped_experiments
from .models import shipped_models
from .schema import Settings
from .section import SettingsError
from .shipped import parse_yaml


def load_settings(*paths: str | Path) -> Settings:
    """Settings from YAML files, later files overriding earlier ones key by key, all of them over the project's
    files of experiments, agents and models; a resolved file (``.json``) stands alone. Raises SettingsError."""
    import yaml

    merged: dict[str, Any] = {}
    for path in paths:
        try:
            data = parse_yaml(Path(path).read_text(encoding="utf-8")) or {}
        except FileNotFoundError as error:
            problem = "no such file; go to the folder of the project, or name your settings (--settings FILE)"
            raise SettingsError(f"{path}: {problem}") from error
        except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: no UTF-8, or a date that is none
            raise SettingsError(f"{path}: cannot be read as YAML: {error}") from error
        if not isinstance(data, dict):
            raise SettingsError(f"{path}: expected keys and values, found {type(data).__name__}")
        merged = merge(merged, data)
    if not paths or Path(paths[0]).suffix != ".json":
        agents, models = (
            {name: entry.model_dump() for name, entry in registry.items()}
            for registry in (shipped_agents(), shipped_models())
        )
        shipped = {"agents": agents, "models": models, "experiments": shipped_experiments().model_dump()}
        merged = merge(shipped, merged)
    return parse_settings(merged, " + ".join(map(str, paths)) or "configuration")


def parse_settings(data: Mapping[str, Any], source: str = "configuration") -> Settings:
    """Validate a plain dictionary. Raises SettingsError naming the first bad key and the nearest valid one."""
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        # A misspelt key is also a missing one: the misspelling is reported.
        problem = min(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
        raise SettingsError(f"{source}: {_explain(problem)}") from error


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


def _explain(problem: Mapping[str, Any]) -> str:
    path = [str(part) for part in problem["loc"]]
    dotted = ".".join(path)
    if problem["type"] != "extra_forbidden":
        return f"key {dotted!r}: {problem['msg']} (got {problem['input']!r})"
    return unknown_key(path)


def unknown_key(path: Sequence[str]) -> str:
    """The message for a key that does not exist, with the nearest key that does."""
    near = _nearest(path)
    hint = f"; did you mean {near!r}?" if near else "; see config/README.md for all keys"
    return f"unknown key {'.'.join(path)!r}{hint}"


def _nearest(path: Sequence[str]) -> str | None:
    everywhere = known_keys(Settings)
    siblings = [k for k in everywhere if k.split(".")[:-1] == list(path[:-1])]
    for among, cutoff in ((siblings, 0.5), (everywhere, 0.75)):
        names = {k.rpartition(".")[2]: k for k in among}
        if close := difflib.get_close_matches(path[-1], names, n=1, cutoff=cutoff):
            return names[close[0]]
    return None


@functools.cache
def known_keys(model: type[BaseModel], prefix: str = "") -> tuple[str, ...]:
    """Dotted names of all keys, sections included."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        keys.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys += known_keys(field.annotation, f"{prefix}{name}.")
    return tuple(keys)
