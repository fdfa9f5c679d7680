"""Checks a Hugging Face folder of weights before anything of it is loaded.

transformers would fail late on such folders, fill in random weights, ignore files, or run code. Here they are refused
with a message that names the file: missing files and tensors, files left over from another save, quantised weights,
adapters, and Python code. Only configurations and the headers of safetensors files are read.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..settings import SettingsError, refuse

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"  # of a model in one file, and in several
_FLOATS = ("F16", "BF16", "F32", "F64")  # the types of weights that are not quantised, as safetensors spells them
# Keys of config.json, and files beside it, in which a quantisation describes itself.
_QUANTISED_KEYS = ("quantization_config", "compression_config")
_QUANTISED_FILES = ("quantize_config.json", "quant_config.json", "hf_quant_config.json")
_REMEDY = "download or save the model again into an empty folder"


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a folder, known from the header of its ``file``: its type as safetensors spells it (``BF16``), and
    its shape. Its values are not loaded."""

    file: Path
    dtype: str
    shape: tuple[int, ...]


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file; an empty dictionary where the file is missing. Raises SettingsError, naming the
    file, for any other content."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, or too deep
        raise SettingsError(f"{path}: not JSON ({error}); {_REMEDY}") from error
    if not isinstance(content, dict):
        raise SettingsError(f"{path}: not a JSON object; {_REMEDY}")
    return content


def refuse_code(folder: Path) -> None:
    """Raise SettingsError for a folder whose configuration names Python code of the model's own (``auto_map``), since
    no code of a model is ever run."""
    for path in sorted(folder.glob("*config.json")):
        refuse(__package__, "code", {"path": path, "code": read_json(path).get("auto_map")})


def read_config(folder: str | Path) -> dict[str, Any]:
    """Read the ``config.json`` of a folder. Raises SettingsError where it is missing or names a file of weights other
    than ``model.safetensors``, and for a folder with Python code, quantised weights, or an adapter (LoRA)."""
    folder = Path(folder)
    path = folder / "config.json"
    refuse_code(folder)
    config = read_json(path)
    # What describes a quantisation, by where it is written: a key of config.json, or a file of its own.
    descriptions = {f"{path}: {key}": config[key] for key in _QUANTISED_KEYS if config.get(key)}
    descriptions |= {str(file): read_json(file) for name in _QUANTISED_FILES if (file := folder / name).is_file()}
    methods = [
        (where, content.get("quant_method") if isinstance(content, dict) else content)
        for where, content in descriptions.items()
    ]
    values = {"path": path, "is_there": path.is_file(), "config": config, "quantisations": methods}
    refuse(__package__, "folder", values | {"adapters": sorted(folder.glob("adapter_*"))})
    return config


def check_folder(folder: str | Path) -> None:
    """Check the files of a folder, except whether its tensors are those of the architecture in ``config.json``
    (:func:`~.transformer.read_folder` checks this). Raises SettingsError as :func:`read_config` and
    :func:`stored_tensors`."""
    read_config(folder)
    stored_tensors(folder)


def stored_tensors(folder: str | Path) -> dict[str, StoredTensor]:
    """List all tensors of a folder by name: those of ``model.safetensors``, or of the files (shards) that
    ``model.safetensors.index.json`` lists. Their values are not loaded.

    Raises SettingsError for a missing or damaged file, for a safetensors file that does not belong to the weights, for
    a tensor that is in two files or in another file than the index says, and for a tensor of integers or of 8-bit
    numbers.
    """
    folder = Path(folder)
    index = _read_index(folder / _INDEX)
    listed = {_WEIGHTS} if index is None else {*index.values()}
    present = {path.name for path in folder.glob("*.safetensors*")} - {_INDEX}  # also unfinished: "*.safetensors.part"
    values = {"folder": folder, "indexed": index is not None, "pickled": any(folder.glob("*.bin"))}
    files = {"missing": sorted(listed - present), "further": sorted(present - listed)}
    refuse(__package__, "files", values | files)
    headers = {file: _read_header(folder / file) for file in sorted(listed)}
    tensors = {name: tensor for header in headers.values() for name, tensor in header.items()}
    places = {(name, file) for file, header in headers.items() for name in header}
    expected = places if index is None else {*index.items()}
    integers = [(name, tensor) for name, tensor in tensors.items() if tensor.dtype not in _FLOATS]
    holders: dict[str, list[str]] = {}  # the files that hold each tensor
    for name, file in sorted(places):
        holders.setdefault(name, []).append(file)
    twice = [(name, *files) for name, files in holders.items() if len(files) > 1]
    values = {"folder": folder, "twice": twice, "integers": integers, "misplaced": sorted(places ^ expected)}
    refuse(__package__, "weights", values)
    return tensors


def _read_index(path: Path) -> dict[str, str] | None:
    """Read the index of a sharded model: for each tensor the name of its file. Returns None where the folder has no
    index. Raises SettingsError for a damaged one."""
    if not path.is_file():
        return None
    files = read_json(path).get("weight_map")
    refuse(__package__, "index", {"path": path, "files": files})
    return files


def _read_header(path: Path) -> dict[str, StoredTensor]:
    """Read the names, types and shapes of the tensors of a safetensors file. Raises SettingsError for a damaged
    file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            tensors = {name: file.get_slice(name) for name in file.offset_keys()}
            return {name: StoredTensor(path, t.get_dtype(), tuple(t.get_shape())) for name, t in tensors.items()}
    except (SafetensorError, OSError) as error:
        raise SettingsError(f"{path}: no whole safetensors file ({error}); {_REMEDY}") from error
