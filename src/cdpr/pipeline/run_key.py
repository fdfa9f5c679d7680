"""The code part of a run key: the digest of all that a stage can reach."""

import ast
import functools
import hashlib
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import cdpr

from .. import PUBLIC
from ..files import DigestCache, file_digest

PACKAGE = "cdpr"

# Modules that decide when and where stages run, or record that they ran, but not what they compute.
BOOKKEEPING = ("cdpr.pipeline.",)
# Values of settings, and what reports print of data sets, enter a key separately: of the settings only the code counts.
SETTINGS = "cdpr.settings"


def code_digest(roots: Sequence[str], source: Path | None = None, cache: DigestCache | None = None) -> str:
    """Digest of all code and package data that the modules ``roots`` can reach.

    Comments, docstrings and layout do not count. Of the modules outside this package those of the user count, and the
    files in their ``FILES``; not those of installed packages, unless a root is in one. Raises ModuleNotFoundError for a
    root that does not exist.
    """
    source, cache = source or package_folder(), cache or DigestCache(None)
    digest = hashlib.sha256()
    modules = import_closure(roots, source, cache)
    for name in modules:
        digest.update(f"{name}={_module(name, source, cache)[0]}\n".encode())
    own = [name for name in modules if not _is_ours(name)]
    for file in sorted({file for name in own for file in files_of(name)}):
        digest.update(f"{file.name}={cache.digest(file)}\n".encode())
    # Files other than Python in the packages of these modules.
    ours = [name for name in modules if name not in own and not name.startswith(SETTINGS)]
    for folder in sorted({path.parent for name in ours if (path := file_of(name, source))} - {source}):
        for file, content in _data_of(folder):
            digest.update(f"{file.relative_to(source).as_posix()}={content}\n".encode())
    cache.save()
    return digest.hexdigest()[:16]


def import_closure(roots: Sequence[str], source: Path | None = None, cache: DigestCache | None = None) -> list[str]:
    """Names of the modules, of the package or of the user, that the roots import, directly or not, also inside
    functions."""
    source, cache = source or package_folder(), cache or DigestCache(None)
    for root in roots:
        if file_of(root, source) is None:
            raise ModuleNotFoundError(f"{root}: no such module; correct the name, or put its folder on PYTHONPATH")
    installed = {root.split(".")[0] for root in roots}  # a root may be in an installed package
    waiting, names = list(roots), set()
    while waiting:
        name = waiting.pop()
        if name in ("", PACKAGE) or name in names or f"{name}.".startswith(BOOKKEEPING):
            continue
        path = file_of(name, source)
        if path is None or (name.split(".")[0] not in installed and not _is_ours(name) and is_installed(path)):
            continue
        names.add(name)
        waiting += [name.rpartition(".")[0], *_module(name, source, cache)[1]]
    return sorted(names)


def _is_ours(name: str) -> bool:
    return name.split(".")[0] == PACKAGE


@functools.cache
def is_installed(path: Path) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    folders = [folder for name, folder in sysconfig.get_paths().items() if name.endswith(("lib", "stdlib"))]
    return any(path.resolve().is_relative_to(Path(folder).resolve()) for folder in folders)


def files_of(name: str) -> list[Path]:
    """Data files and folders that a module of the user lists in ``FILES = (...)``, below the folder of the module."""
    path = file_of(name, package_folder())
    if path is None:
        return []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and "FILES" in [getattr(target, "id", "") for target in node.targets]:
            return [path.parent / file for file in ast.literal_eval(node.value)]
    return []


def package_folder() -> Path:
    """Folder of the installed package."""
    return Path(cdpr.__file__).parent


# The caches below last as long as the process: one planning asks for the same file many times.


@functools.cache
def file_of(name: str, source: Path) -> Path | None:
    top, *rest = name.split(".")
    bases = [source] if top == PACKAGE else [Path(folder or ".") / top for folder in sys.path]
    paths = ((base.joinpath(*rest, "__init__.py"), base.joinpath(*rest).with_suffix(".py")) for base in bases)
    return next((path for pair in paths for path in pair if path.is_file()), None)


@functools.cache
def _module(name: str, source: Path, cache: DigestCache) -> tuple[str, list[str]]:
    """Digest of a module, and all names that it may import; some of them are no modules."""
    path = file_of(name, source)
    assert path  # of a name that has a file
    stamp = [[f.stat().st_size, f.stat().st_mtime_ns] for f in (path, Path(__file__))]
    return cache.remember(f"module {path.resolve()}", stamp, lambda: _read_module(path, name))


def _read_module(path: Path, name: str) -> tuple[str, list[str]]:
    ours = _is_ours(name)
    tree = _WhatRuns().visit(ast.parse(path.read_text(encoding="utf-8"), filename=str(path)))
    package, names = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1], set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
            names |= set(PUBLIC) if any(alias.name == PACKAGE and alias.asname for alias in node.names) else set()
        elif isinstance(node, ast.ImportFrom):
            parent = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*parent, *([node.module] if node.module else [])])
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == PACKAGE:
            names.add(f"{PACKAGE}.{node.attr}")
    # The package imports its public names when they are used.
    names |= {module for module, public in PUBLIC.items() if names & {f"{PACKAGE}.{name}" for name in public}}
    imports = sorted(name for name in names if _is_ours(name) or not ours)
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), imports


class _WhatRuns(ast.NodeTransformer):
    """Leaves out docstrings and other loose strings, what is below ``if TYPE_CHECKING:``, and declarations of settings
    (``name: type = key(...)``)."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        declares = isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") in ("key", "Field")
        return None if declares else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        loose = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if loose else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return node.orelse if "TYPE_CHECKING" in ast.dump(node.test) else node


@functools.cache
def _data_of(folder: Path) -> list[tuple[Path, str]]:
    """Path and digest of the files other than Python in a package, without its sub-packages."""
    files = []
    for path in sorted(folder.rglob("*")):
        packages = [p for p in path.relative_to(folder).parents if (folder / p / "__init__.py").exists()]
        if packages == [Path(".")] and path.is_file() and path.suffix not in (".py", ".pyc"):
            files.append((path, file_digest(path)))
    return files
