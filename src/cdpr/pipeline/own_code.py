"""Notices files that modules of the user read: each is in the run key, or an error.

A module outside this package may be an algorithm, an agent or an importer. Its code and that of the user's modules that
it imports are in the run key (:mod:`cdpr.pipeline.run_key`), and so are the files in its ``FILES``. An audit hook of
Python notices other files. It sees what Python opens, not what a library opens in C++ or Rust.
"""

import functools
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..settings import DATASETS, Settings, SettingsError, algorithm_module, user_files, variants
from .run_key import PACKAGE, PACKAGE_FOLDER, file_of, files_of, import_closure, is_installed

_real_path = functools.lru_cache(4096)(os.path.realpath)
_OUR_FOLDER = _real_path(str(PACKAGE_FOLDER)) + os.sep
_FILES_MODULE = _OUR_FOLDER + "files.py"  # reads files for others
# Beginnings of paths whose files need not be declared.
_SYSTEM_FOLDERS = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/lib", "/opt/", _OUR_FOLDER)
_user_modules: dict[str, str] = {}  # names of the user's modules by file
_allowed: set[str] = set()  # files that these modules can read, and folders whose files they can read
_faults: list[str] = []  # messages about undeclared files that were read


class UndeclaredFile(SettingsError):
    """A file that a module of the user reads and does not declare."""


def watch(settings: Settings) -> None:
    """From now on, raise UndeclaredFile when a module of the user opens a file that is not declared, by the ``FILES``
    of the module or by a setting. The modules are those that the settings and ``datasets.yaml`` name as algorithms,
    agents or importers, and those that these import. Called before any of them is imported."""
    # Dictionaries of settings: the options of the algorithm, and what each variant changes. Both may name files.
    changes = [settings.training.options, *(variant.change for variant in variants(settings).values())]
    algorithms = [settings.training.algorithm, *(c["training.algorithm"] for c in changes if "training.algorithm" in c)]
    # Names of modules, or `module:function`. An algorithm of this package can also have a short name, such as `grpo`.
    named = [*map(algorithm_module, map(str, algorithms)), *(entry.acts for entry in settings.agents.values()),
             *(entry.importer for entry in DATASETS.values() if entry.importer)]  # fmt: skip
    roots = {name.partition(":")[0] for name in named if name.split(".")[0] != PACKAGE}
    roots = {root for root in roots if file_of(root)}  # a missing module is an error where it is loaded
    if not roots:
        return
    if not _user_modules:  # the first call: an audit hook cannot be removed, so all calls share one
        sys.addaudithook(_check_event)
    for name in import_closure(sorted(roots)):
        if name.split(".")[0] != PACKAGE:
            _user_modules[_real_path(str(file_of(name)))] = name
            allow(files_of(name))
    # The folder of the policy is an input of the jobs that act by it, which allow it.
    allow(path for name, path in user_files(settings) if name != "policy.model")
    allow(named_files(changes))


def named_files(value: Any) -> list[str]:
    """List the texts in a JSON-like value, at any depth, that are paths of existing files, or of existing folders if
    they have a slash (a single word may have the name of a folder by chance)."""
    if isinstance(value, str):
        return [value] if Path(value).is_file() or ("/" in value and Path(value).is_dir()) else []
    if isinstance(value, Mapping):
        value = list(value.values())
    entries = value if isinstance(value, (list, tuple)) else ()  # numbers and such name no file
    return [path for entry in entries for path in named_files(entry)]


def allow(paths: Iterable[str | Path]) -> None:
    """Let the user's modules read these files, and what is in these folders."""
    _allowed.update(_real_path(str(path)) for path in paths)


def check() -> None:
    """Raise UndeclaredFile for a file that was read although it is not declared, also where the module caught the error
    that :func:`_check_event` raised. The file is then forgotten."""
    if _faults:
        first = _faults[0]
        _faults.clear()
        raise UndeclaredFile(first)


def _check_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook of Python: raises UndeclaredFile when a module of the user opens a file that is not declared. From
    then on, a file that such a module has written counts as declared. ``arguments`` of the event ``open`` are path,
    mode and flags; the path is a number for a file that is open already."""
    if event != "open" or not isinstance(arguments[0], (str, os.PathLike)) or not (module := _user_module_at_work()):
        return
    # ``written``: the file was opened for writing alone.
    path, written = os.path.realpath(arguments[0]), arguments[2] & os.O_ACCMODE == os.O_WRONLY
    if path.endswith(".pyc"):  # what Python compiled from a .py file, which is the one that has to be declared
        path = importlib.util.source_from_cache(path) if "__pycache__" in path else path[:-1]
    if written:
        _allowed.add(path)
    elif os.path.isfile(path) and not _is_declared(path):
        name = os.path.relpath(path, os.path.dirname(module))
        remedy = f'import it by an `import` statement, or write `FILES = ("{name}",)` in {_user_modules[module]}'
        _faults.append(f"the module {_user_modules[module]} reads {path}, which its run key would miss: {remedy}")
        raise UndeclaredFile(_faults[-1])


def _user_module_at_work() -> str:
    """The file of the user's module that opens a file, directly or through a function of a library; empty where none
    does. It is also empty for what a library reads while it is imported, and for what this package reads, except by
    ``cdpr.files``, whose functions read files for their callers."""
    frame = sys._getframe(2)  # what opens the file: the caller of the audit hook, which called this function
    while (file := _real_path(frame.f_code.co_filename)) not in _user_modules:
        of_package = file.startswith(_OUR_FOLDER) and file != _FILES_MODULE
        if frame.f_code.co_name == "<module>" or of_package or frame.f_back is None:
            return ""
        frame = frame.f_back
    return file


def _is_declared(path: str) -> bool:
    """Whether a file is a module of the user, declared, or part of the system or of an installed package."""
    folders = set(map(str, Path(path).parents))
    return bool(path in _user_modules or {path, *folders} & _allowed or path.startswith(_SYSTEM_FOLDERS)
                or is_installed(Path(path)))  # fmt: skip
