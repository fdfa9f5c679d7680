"""The code part of a run key: the digest of all code and package data that a stage can reach by ``import``."""

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
PACKAGE_FOLDER = Path(cdpr.__file__).parent

# Modules that decide when and where stages run, or record that they ran, but not what they compute.
BOOKKEEPING = ("cdpr.pipeline.",)
# The package of the settings. Its code counts, but not its data files: their values enter a run key separately.
SETTINGS = "cdpr.settings"


def code_digest(roots: Sequence[str], source: Path = PACKAGE_FOLDER, cache: DigestCache | None = None) -> str:
    """Digest all code and package data that the modules ``roots`` can reach; returns 16 hexadecimal digits.

    - Of this package, the reached modules count, and the data files in their folders.
    - Of the user, the reached modules count, and the files in their ``FILES``.
    - Installed packages do not count, except one to which a root belongs.

    Comments, docstrings and layout do not count. ``source`` is the folder of this package, ``cache`` keeps the digests
    of single files. Raises ModuleNotFoundError for a root that does not exist.
    """
    cache = cache or DigestCache(None)
    digest = hashlib.sha256()
    modules = import_closure(roots, source, cache)
    for name in modules:
        code, _ = _read_module(name, source, cache)
        digest.update(f"{name}={code}\n".encode())
    user_files = {file for name in modules if not _is_ours(name) for file in files_of(name)}
    for file in sorted(user_files):
        digest.update(f"{file.name}={cache.digest(file)}\n".encode())
    with_data = [name for name in modules if _is_ours(name) and not name.startswith(SETTINGS)]
    data_folders = {path.parent for name in with_data if (path := file_of(name, source))}
    for folder in sorted(data_folders - {source}):  # the package's own folder has no data files
        for file, content in _data_digests(folder):
            digest.update(f"{file.relative_to(source).as_posix()}={content}\n".encode())
    cache.save()
    return digest.hexdigest()[:16]


def import_closure(roots: Sequence[str], source: Path = PACKAGE_FOLDER, cache: DigestCache | None = None) -> list[str]:
    """List the modules, of the package or of the user, that the modules ``roots`` import, directly or not, also inside
    functions; sorted, with the roots. Raises ModuleNotFoundError for a root that does not exist."""
    cache = cache or DigestCache(None)
    for root in roots:
        if file_of(root, source) is None:
            raise ModuleNotFoundError(f"{root}: no such module; correct the name, or put its folder on PYTHONPATH")
    followed = {PACKAGE, *(root.split(".")[0] for root in roots)}  # packages that count even if they are installed
    waiting, names = list(roots), set[str]()
    while waiting:
        name = waiting.pop()
        # "" is the parent of a module without a package.
        if name in ("", PACKAGE) or name in names or f"{name}.".startswith(BOOKKEEPING):
            continue
        path = file_of(name, source)
        if path and (name.split(".")[0] in followed or not is_installed(path)):
            names.add(name)
            _, imports = _read_module(name, source, cache)
            waiting += [name.rpartition(".")[0], *imports]  # the package of a module is imported with it
    return sorted(names)


def _is_ours(name: str) -> bool:
    """Whether a module belongs to this package."""
    return name.split(".")[0] == PACKAGE


@functools.cache
def is_installed(path: Path) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    folders = [folder for name, folder in sysconfig.get_paths().items() if name.endswith(("lib", "stdlib"))]
    return any(path.resolve().is_relative_to(Path(folder).resolve()) for folder in folders)


def files_of(name: str) -> list[Path]:
    """List the data files and folders that a module of the user names in ``FILES = (...)``, relative to its folder."""
    if (path := file_of(name)) is None:
        return []
    # The module is parsed, not imported, so the value of its `FILES = ...` must be a literal.
    assignments = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.Assign)]
    values = [node.value for node in assignments if "FILES" in [getattr(target, "id", "") for target in node.targets]]
    return [path.parent / file for value in values for file in ast.literal_eval(value)]


# The caches below last as long as the process: one planning asks for the same file many times.


@functools.cache
def file_of(name: str, source: Path = PACKAGE_FOLDER) -> Path | None:
    """Find the file of a module, without importing it; None where there is none. ``source`` is the folder of this
    package; other modules are searched for on ``sys.path``."""
    top, *rest = name.split(".")
    # An empty entry of sys.path is the working directory.
    bases = [source] if top == PACKAGE else [Path(folder or ".") / top for folder in sys.path]
    stems = [base.joinpath(*rest) for base in bases]
    files = (path for stem in stems for path in (stem / "__init__.py", stem.with_suffix(".py")))
    return next(filter(Path.is_file, files), None)


@functools.cache
def _read_module(name: str, source: Path, cache: DigestCache) -> tuple[str, list[str]]:
    """The digest of a module's code, and all names that it may import. Some of these are no modules: of ``from a import
    b`` both ``a`` and ``a.b`` are listed."""
    path = file_of(name, source)
    assert path  # callers give only names of modules that have a file
    # The stamp also covers this file, because an edit of `_parse_module` may change the stored value.
    stamp = [[file.stat().st_size, file.stat().st_mtime_ns] for file in (path, Path(__file__))]
    return cache.remember(f"module {path.resolve()}", stamp, lambda: _parse_module(path, name))


def _parse_module(path: Path, name: str) -> tuple[str, list[str]]:
    """Compute the digest of the code in ``path``, the file of the module ``name``, and list the names that it may
    import, sorted. :func:`_read_module` keeps both in a cache."""
    tree = _CodeThatRuns().visit(ast.parse(path.read_text(encoding="utf-8"), filename=str(path)))
    # The package to which `from . import` refers, as the parts of its name.
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
            if any(alias.name == PACKAGE and alias.asname for alias in node.names):
                names |= set(PUBLIC.values())  # `import cdpr as c`: any public name may be used
        elif isinstance(node, ast.ImportFrom):
            # Each dot after the first goes up one package.
            parent = package[: len(package) - node.level + 1] if node.level else []
            # The module from which names are imported; in `from . import name` it is the parent itself.
            base = ".".join([*parent, *([node.module] if node.module else [])])
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == PACKAGE:
            names.add(f"{PACKAGE}.{node.attr}")
    # The package imports the module of a public name, such as `cdpr.train`, when that is used.
    names |= {module for public, module in PUBLIC.items() if f"{PACKAGE}.{public}" in names}
    # Modules of this package import no module of the user.
    imports = sorted(filter(_is_ours, names) if _is_ours(name) else names)
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), imports


class _CodeThatRuns(ast.NodeTransformer):
    """Removes from a syntax tree what changes no result: docstrings and other loose strings, the code below
    ``if TYPE_CHECKING:``, and declarations of settings (``name: type = key(...)``)."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """Remove the declaration of a setting: its value enters a run key by itself."""
        declares = isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") in ("key", "Field")
        return None if declares else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Remove a loose string."""
        loose = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if loose else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Replace ``if TYPE_CHECKING:`` by its ``else``."""
        self.generic_visit(node)
        return node.orelse if "TYPE_CHECKING" in ast.dump(node.test) else node


@functools.cache
def _data_digests(folder: Path) -> list[tuple[Path, str]]:
    """The path and SHA-256 of each file of the package in ``folder`` that is not Python code. Sub-folders are included,
    but not sub-packages."""
    files = [path for path in sorted(folder.rglob("*")) if path.suffix not in (".py", ".pyc") and path.is_file()]
    # The package of each file: the nearest folder above it with an __init__.py. It is `folder`, or a sub-package.
    packages = [next(parent for parent in path.parents if (parent / "__init__.py").exists()) for path in files]
    return [(path, file_digest(path)) for path, package in zip(files, packages, strict=True) if package == folder]
