"""A Hugging Face folder of weights, checked before anything of it is loaded.

What transformers would refuse, invent, ignore or run is refused here by name: missing files and tensors, files left
over from another save, quantised weights, adapters, and Python code. Only configurations and the headers of safetensors
files are read.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..settings import SettingsError

_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_FLOATS = ("F16", "BF16", "F32", "F64")
# Keys of config.json, and files beside it, in which a quantisation describes itself.
_QUANTISED_KEYS = ("quantization_config", "compression_config")
_QUANTISED_FILES = ("quantize_config.json", "quant_config.json", "hf_quant_config.json")
_REMEDY = "download or save the model again into an empty folder"


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a folder: its file, its type as safetensors spells it (``BF16``), and its shape."""

    file: Path
    dtype: str
    shape: tuple[int, ...]


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file; empty where the file is missing. Raises SettingsError, naming the file, for any
    other content."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise SettingsError(f"{path}:{error.lineno}: not JSON ({error.msg}); {_REMEDY}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{path}: not JSON ({type(error).__name__}); {_REMEDY}") from error
    if not isinstance(content, dict):
        raise SettingsError(f"{path}: not a JSON object; {_REMEDY}")
    return content


def refuse_code(folder: Path) -> None:
    """Raise SettingsError for a folder whose configuration names Python code of its own (``auto_map``)."""
    for path in sorted(folder.glob("*.json")):
        if path.name.endswith("config.json") and (code := read_json(path).get("auto_map")):
            raise SettingsError(
                f"{path}: auto_map names code of the model's own ({json.dumps(code)[:200]}), and no code of a model is "
                "ever run; use a model whose architecture transformers knows, and remove auto_map from this file"
            )


def read_config(folder: str | Path) -> dict[str, Any]:
    """Read the ``config.json`` of a folder. Raises SettingsError where it is missing, and for a folder with Python
    code, quantised weights, or an adapter."""
    folder = Path(folder)
    path = folder / "config.json"
    if not path.is_file():
        raise SettingsError(
            f"{folder}: no Hugging Face folder (config.json is missing); name the folder of an instruct model, or a "
            "server as http://HOST:PORT/v1"
        )
    refuse_code(folder)
    config = read_json(path)
    described = {f"{path}: {key}": config[key] for key in _QUANTISED_KEYS if config.get(key)}
    described |= {f"{folder / name}": read_json(folder / name) for name in _QUANTISED_FILES if (folder / name).exists()}
    for where, quantisation in described.items():
        method = quantisation.get("quant_method") if isinstance(quantisation, dict) else quantisation
        raise SettingsError(
            f"{where}: the weights are quantised ({method or 'method not named'}), and a model in this process is not: "
            "name the folder of the unquantised model, or serve this one (vLLM) and name the server's address"
        )
    if config.get("transformers_weights"):
        raise SettingsError(
            f"{path}: transformers_weights names another file than {_WHOLE}; rename the file and remove this key"
        )
    if adapter := next((path for path in sorted(folder.glob("adapter_*")) if path.is_file()), None):
        raise SettingsError(
            f"{adapter}: an adapter (LoRA) in the folder of a model; merge it (merge_and_unload of peft) and save the "
            "result into a folder of its own, or remove the adapter's files to use the model without it"
        )
    return config


def check_folder(folder: str | Path) -> None:
    """Check the files of a folder, as far as that does not depend on the model's architecture. Raises as
    :func:`read_config` and :func:`stored_tensors`."""
    read_config(folder)
    stored_tensors(folder)


def stored_tensors(folder: str | Path) -> dict[str, StoredTensor]:
    """List all tensors of a folder by name: those of ``model.safetensors``, or of the shards that its index lists.

    Raises SettingsError for a file or tensor that the index lists and that is missing; for a file or tensor beside
    those of the index, or a file of an unfinished save; for a damaged file; and for a tensor of integers or of 8-bit
    numbers.
    """
    folder = Path(folder)
    index = folder / _INDEX
    if index.is_file():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise SettingsError(f"{index}: no weight_map from tensors to files; {_REMEDY}")
        files = sorted(set(weight_map.values()))
    else:
        weight_map, files = None, [_WHOLE]
    present = {path.name for path in folder.glob("*.safetensors*")} - {_INDEX}
    if missing := [name for name in files if name not in present]:
        other = f"; it has {', '.join(sorted(present)[:3])}" if present else ""
        reason = f", which {_INDEX} lists" if weight_map else f", and there is no {_INDEX}"
        pickled = " (.bin files are not read: save the model with save_pretrained)" * any(folder.glob("*.bin"))
        raise SettingsError(f"{folder}: {missing[0]} is missing{reason}{other}; {_REMEDY}{pickled}")
    if further := sorted(present - {*files}):
        raise SettingsError(
            f"{folder / further[0]}: not a file of these weights ({index.name if weight_map else _WHOLE} does not list "
            "it): an earlier or unfinished save left it over. Remove it if the rest is whole, else " + _REMEDY
        )
    tensors: dict[str, StoredTensor] = {}
    for name in files:
        header = _header(folder / name)
        if twice := sorted(tensors.keys() & header.keys()):
            raise SettingsError(f"{folder / name}: {twice[0]} is also in {tensors[twice[0]].file.name}; {_REMEDY}")
        tensors |= header
    for name, file in (weight_map or {}).items():
        if name not in tensors or tensors[name].file.name != file:
            raise SettingsError(f"{folder / file}: {name} is missing, which {_INDEX} lists there; {_REMEDY}")
    if weight_map and (further := sorted(tensors.keys() - weight_map.keys())):
        raise SettingsError(f"{tensors[further[0]].file}: {further[0]} is not listed in {_INDEX}; {_REMEDY}")
    for name, tensor in tensors.items():
        if tensor.dtype not in _FLOATS:
            raise SettingsError(
                f"{tensor.file}: {name} has the type {tensor.dtype}: the weights are quantised, or not those of a "
                "language model; name the folder of the unquantised model"
            )
    return tensors


def _header(path: Path) -> dict[str, StoredTensor]:
    """Read the names, types and shapes of the tensors of a safetensors file from its header. Raises SettingsError for a
    damaged file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            slices = {name: file.get_slice(name) for name in file.offset_keys()}
            return {name: StoredTensor(path, s.get_dtype(), tuple(s.get_shape())) for name, s in slices.items()}
    except (SafetensorError, OSError) as error:
        raise SettingsError(f"{path}: no whole safetensors file ({error}); {_REMEDY}") from error
