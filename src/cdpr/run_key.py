"""One key that says when a stage must run again, and names its interruptible work.

``run_key`` digests everything a stage's outputs depend on: the settings it reads, the code it can reach, its input
files, the keys of the stages before it, and its seed. Snakemake sees it as a rule parameter (an edit reruns, a
``touch`` does not), ``state/<run_key>/`` holds the stage's checkpoints, and MLflow runs are found by it.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .digests import DigestCache
from .files import file_digest

PACKAGE = "cdpr"

# Modules that decide when and where stages run, or write down that they ran, but never what they compute.
# The values of the settings enter a key by themselves, so their documentation may change freely.
BOOKKEEPING = (
    "cdpr.cli",
    "cdpr.job",
    "cdpr.records",
    "cdpr.run_key",
    "cdpr.settings",
    "cdpr.tracking",
    "cdpr.workflow",
)


def run_key(
    stage: str,
    options: Mapping[str, str],
    parameters: Mapping[str, Any],
    code: str,
    upstream: Mapping[str, str] | None = None,
    inputs: Mapping[str, str] | None = None,
    seed: int | None = None,
) -> str:
    """Key of one job: 16 hexadecimal digits.

    ``options`` say which of the stage's jobs it is, ``parameters`` is the JSON-like slice of the settings that the
    stage reads, ``code`` its :func:`code_digest`, ``upstream`` the keys of the jobs whose outputs it reads and
    ``inputs`` the digests of files from outside.
    """
    parts = {
        "stage": stage,
        "options": dict(options),
        "parameters": parameters,
        "code": code,
        "upstream": dict(upstream or {}),
        "inputs": dict(inputs or {}),
        "seed": seed,
    }
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def code_digest(roots: Sequence[str], source: Path | None = None, cache: DigestCache | None = None) -> str:
    """Digest of all code and package data that the ``roots`` (dotted module names) can reach.

    Comments, docstrings and layout do not count. Of a root outside this package (an algorithm of the user's own) its
    own file counts. Raises ModuleNotFoundError for a root that does not exist.
    """
    source, cache = source or package_folder(), cache or DigestCache(None)
    own = [root for root in roots if root.split(".")[0] == PACKAGE]
    modules = import_closure(own, source, cache)
    digest = hashlib.sha256()
    for root in sorted(set(roots) - set(own)):
        spec = importlib.util.find_spec(root)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"{root} cannot be imported; put its folder on PYTHONPATH")
        digest.update(f"{root}={file_digest(Path(spec.origin))}\n".encode())
    for name in modules:
        digest.update(f"{name}={_module(name, source, cache)[0]}\n".encode())
    for path in _data_files(modules, source, cache):
        value = cache.once(path, functools.partial(file_digest, path))
        digest.update(f"{path.relative_to(source).as_posix()}={value}\n".encode())
    cache.save()
    return digest.hexdigest()[:16]


def import_closure(roots: Sequence[str], source: Path | None = None, cache: DigestCache | None = None) -> list[str]:
    """Names of the package's modules that the roots import, directly or not, imports inside functions included."""
    source, cache = source or package_folder(), cache or DigestCache(None)
    waiting, seen = list(roots), set()
    for root in roots:
        if _file_of(root, source, cache) is None:
            raise ModuleNotFoundError(f"{root} is no module of {source}; a stage names it as the root of its code")
    while waiting:
        name = waiting.pop()
        if name in seen or name == PACKAGE or _is_bookkeeping(name):
            continue
        if _file_of(name, source, cache) is None:
            continue
        seen.add(name)
        waiting.append(name.rpartition(".")[0])
        waiting.extend(_module(name, source, cache)[1])
    return sorted(seen)


def package_folder() -> Path:
    """Folder of the installed package, found without importing it."""
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def _is_bookkeeping(name: str) -> bool:
    return any(name == module or name.startswith(module + ".") for module in BOOKKEEPING)


def _file_of(name: str, source: Path, cache: DigestCache) -> Path | None:
    def find() -> Path | None:
        base = source.joinpath(*name.split(".")[1:])
        return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)

    return cache.once(("file", source, name), find)


def _module(name: str, source: Path, cache: DigestCache) -> tuple[str, list[str]]:
    """Digest of a module, and everything that it may import; names that are no modules fall out later."""
    path = _file_of(name, source, cache)
    assert path is not None

    def look() -> tuple[str, list[str]]:
        stamp = [[f.stat().st_size, f.stat().st_mtime_ns] for f in (path, Path(__file__))]
        return cache.remember(f"module {path.resolve()}", stamp, lambda: _read_module(path, name))

    return cache.once(("module", path), look)


def _read_module(path: Path, name: str) -> tuple[str, list[str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    imported = _imported(tree, name.split(".") if path.name == "__init__.py" else name.split(".")[:-1])
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = [part for part in node.body if not _is_docstring(part)]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), imported


def _imported(tree: ast.Module, package: Sequence[str]) -> list[str]:
    found = []
    for node in _runtime_nodes(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parent = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*parent, *([node.module] if node.module else [])])
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return sorted({n for n in found if n.split(".")[0] == PACKAGE})


def _runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but the bodies of ``if TYPE_CHECKING:``."""
    for child in ast.iter_child_nodes(tree):
        typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
        yield child
        for node in child.orelse if typing_only else [child]:
            yield from _runtime_nodes(node)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _data_files(modules: Iterable[str], source: Path, cache: DigestCache) -> list[Path]:
    """Files that are no Python, in the packages of the modules (sub-packages count by themselves)."""
    folders = {path.parent for name in modules if (path := _file_of(name, source, cache))} - {source}
    found = (cache.once(("data", folder), functools.partial(_data_of, folder)) for folder in folders)
    return sorted(itertools.chain.from_iterable(found))


def _data_of(folder: Path) -> list[Path]:
    files = []
    for path in folder.rglob("*"):
        inner = [p for p in path.relative_to(folder).parents if (folder / p / "__init__.py").exists()]
        if inner == [Path(".")] and path.is_file() and path.suffix not in (".py", ".pyc"):
            files.append(path)
    return files
