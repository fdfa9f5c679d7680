"""The lock, which `make env` installs without resolving anything."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"


def test_the_lock_names_everything_that_the_package_needs_in_versions_that_serve():
    lines = [line.partition("#")[0].strip() for line in LOCK.read_text().splitlines()]
    locked = {canonicalize_name(r.name): next(iter(r.specifier)).version for r in map(Requirement, filter(None, lines))}
    assert len(locked) > 100
    waiting, seen = [("cdpr", frozenset({"dev"}))], set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen or name == "torch":  # which is installed first, with what it needs
            continue
        seen.add((name, extras))
        for needed in map(Requirement, metadata.requires(name) or ()):
            if needed.marker and not any(needed.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
                continue
            key = canonicalize_name(needed.name)
            assert key in locked, f"{name} needs {needed}, which the lock does not name"
            assert needed.specifier.contains(locked[key], prereleases=True), f"{name} needs {needed}: {locked[key]}"
            waiting.append((key, frozenset(needed.extras)))
    assert len({name for name, _ in seen}) > 100, "the walk went somewhere"
