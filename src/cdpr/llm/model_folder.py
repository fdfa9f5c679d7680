"""Checks a Hugging Face folder of weights before anything of it is loaded.

transformers would fail late on such folders, fill in random weights, ignore files, or run code. Here they are refused
with a message that names the file: missing files and tensors, files left over from another save, quantised weights,
adapters, and Python code. Only configurations and the headers of safetensors files are read.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..settings import SettingsError

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
        code = read_json(path).get("auto_map")
        if code:
            problem = f"auto_map names code of the model's own ({json.dumps(code)[:200]})"
            remedy = "use a model whose architecture transformers knows, and remove auto_map from this file"
            raise SettingsError(f"{path}: {problem}, and no code of a model is ever run; {remedy}")


def read_config(folder: str | Path) -> dict[str, Any]:
    """Read the ``config.json`` of a folder. Raises SettingsError where it is missing or names a file of weights other
    than ``model.safetensors``, and for a folder with Python code, quantised weights, or an adapter (LoRA)."""
    folder = Path(folder)
    path = folder / "config.json"
    if not path.is_file():
        remedy = "name the folder of an instruct model, or a server as http://HOST:PORT/v1"
        raise SettingsError(f"{folder}: no Hugging Face folder (config.json is missing); {remedy}")
    refuse_code(folder)
    config = read_json(path)
    # What describes a quantisation, by where it is written: a key of config.json, or a file of its own.
    quantisations = {f"{path}: {key}": config[key] for key in _QUANTISED_KEYS if config.get(key)}
    quantisations |= {str(file): read_json(file) for name in _QUANTISED_FILES if (file := folder / name).is_file()}
    for where, quantisation in quantisations.items():  # the first one, if any, is reported
        method = quantisation.get("quant_method") if isinstance(quantisation, dict) else quantisation
        problem = f"the weights are quantised ({method or 'method not named'}); a model in this process must not be"
        remedy = "name the folder of the unquantised model, or serve this one (vLLM) and name the server's address"
        raise SettingsError(f"{where}: {problem}: {remedy}")
    if config.get("transformers_weights"):
        problem = f"transformers_weights names another file than {_WEIGHTS}"
        raise SettingsError(f"{path}: {problem}; rename the file and remove this key")
    for adapter in sorted(folder.glob("adapter_*")):  # the first one, if any, is reported
        merge = "merge it (merge_and_unload of peft) and save the result into a folder of its own"
        remove = "remove the adapter's files to use the model without it"
        raise SettingsError(f"{adapter}: an adapter (LoRA) in the folder of a model; {merge}, or {remove}")
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
    files = [_WEIGHTS] if index is None else sorted(set(index.values()))
    _check_files(folder, files, listed_by=_WEIGHTS if index is None else _INDEX)
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        for name, tensor in _read_header(folder / file).items():
            if name in tensors:
                raise SettingsError(f"{folder / file}: {name} is also in {tensors[name].file.name}; {_REMEDY}")
            if tensor.dtype not in _FLOATS:
                problem = "the weights are quantised, or not those of a language model"
                remedy = "name the folder of the unquantised model"
                raise SettingsError(f"{tensor.file}: {name} has the type {tensor.dtype}: {problem}; {remedy}")
            tensors[name] = tensor
    files_by_name = {name: tensor.file.name for name, tensor in tensors.items()}
    expected = index or files_by_name  # without an index every tensor is where it should be
    for name in sorted(tensors.keys() | expected.keys()):
        if files_by_name.get(name) != expected.get(name):
            problem = f"{name} is not in the file that the index names, or not in the index"
            raise SettingsError(f"{folder / _INDEX}: {problem}; {_REMEDY}")
    return tensors


def _read_index(path: Path) -> dict[str, str] | None:
    """Read the index of a sharded model: for each tensor the name of its file. Returns None where the folder has no
    index. Raises SettingsError for a damaged one."""
    if not path.is_file():
        return None
    index = read_json(path).get("weight_map")
    if not isinstance(index, dict) or not all(isinstance(file, str) for file in index.values()):
        raise SettingsError(f"{path}: no weight_map from tensors to files; {_REMEDY}")
    return index


def _check_files(folder: Path, files: list[str], listed_by: str) -> None:
    """Raise SettingsError where one of ``files``, the files of the weights, is missing from the folder, or where the
    folder has further safetensors files. ``listed_by`` is the file that lists them, for the message: the index, or
    ``model.safetensors`` itself."""
    present = {path.name for path in folder.glob("*.safetensors*")} - {_INDEX}  # also unfinished: "*.safetensors.part"
    missing, further = sorted({*files} - present), sorted(present - {*files})
    if missing:
        reason = f"which {_INDEX} lists" if listed_by == _INDEX else f"and there is no {_INDEX}"
        pickled = " (.bin files are not read: save the model with save_pretrained)" if any(folder.glob("*.bin")) else ""
        raise SettingsError(f"{folder}: {missing[0]} is missing, {reason}; {_REMEDY}{pickled}")
    if further:
        problem = f"not a file of these weights ({listed_by} does not list it)"
        advice = f"an earlier or unfinished save left it over. Remove it if the rest is whole, else {_REMEDY}"
        raise SettingsError(f"{folder / further[0]}: {problem}: {advice}")


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
