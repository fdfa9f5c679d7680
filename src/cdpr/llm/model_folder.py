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
_UNQUANTISED = "name the folder of the unquantised model, or serve this one (vLLM) and name the server's address"
# Keys of config.json that a model in this process must not have, and what to do about each.
_REFUSED_KEYS = {
    "quantization_config": _UNQUANTISED,
    "compression_config": _UNQUANTISED,
    "transformers_weights": f"rename the file that it names to {_WEIGHTS}, and remove this key",
}
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
    for key, remedy in _REFUSED_KEYS.items():
        if config.get(key):
            raise SettingsError(f"{path}: a model in this process must not have {key}; {remedy}")
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
    a tensor that is in two files, and for a tensor of integers or of 8-bit numbers.
    """
    from safetensors import SafetensorError, safe_open

    folder = Path(folder)
    file_of_tensor = read_json(folder / _INDEX).get("weight_map")
    files = {*map(str, file_of_tensor.values())} if isinstance(file_of_tensor, dict) else {_WEIGHTS}
    present = {path.name for path in folder.glob("*.safetensors*")} - {_INDEX}  # also unfinished: "*.safetensors.part"
    for name in sorted(files ^ present):  # the first one, if any, is reported
        problem = "is missing" if name in files else "is not one of the files of these weights (an unfinished save?)"
        raise SettingsError(f"{folder / name}: {problem}; only {_WEIGHTS} or all files in {_INDEX} are read; {_REMEDY}")
    tensors: dict[str, StoredTensor] = {}
    for path in sorted(folder / name for name in files):
        try:
            with safe_open(path, "numpy") as file:
                slices = {name: file.get_slice(name) for name in file.offset_keys()}
                stored = {name: StoredTensor(path, s.get_dtype(), tuple(s.get_shape())) for name, s in slices.items()}
        except (SafetensorError, OSError) as error:
            raise SettingsError(f"{path}: no whole safetensors file ({error}); {_REMEDY}") from error
        for name in sorted(tensors.keys() & stored.keys()):  # the first one, if any, is reported
            raise SettingsError(f"{path}: {name} is also in {tensors[name].file.name}; {_REMEDY}")
        tensors |= stored
    for name, tensor in tensors.items():
        if tensor.dtype not in _FLOATS:
            problem = "the weights are quantised, or not those of a language model"
            raise SettingsError(f"{tensor.file}: {name} has the type {tensor.dtype}: {problem}; {_UNQUANTISED}")
    return tensors
