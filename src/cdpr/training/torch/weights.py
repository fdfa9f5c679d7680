"""Loading and saving of the trained model, checkpoints, and fast linear layers on a CPU."""

import logging
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ...files import file_digest, replacing, write_text
from ...llm.transformer import ONEDNN_LINEAR, padded, read_folder
from .decoder import Decoder

_log = logging.getLogger(__name__)


def load_model(folder: Path, device: str = "cpu", tiny: bool = False) -> torch.nn.Module:
    """Load the causal language model in a Hugging Face folder, in single precision, onto ``device``. If ``tiny``, it is
    the tiny policy, which needs torch alone; other models are loaded by transformers. Raises SettingsError for a folder
    without a usable model (:func:`cdpr.llm.transformer.read_folder`)."""
    read_folder(folder)
    if tiny:
        return use_onednn(Decoder.load(folder).to(device))
    # For assisted generation, which we do not use, transformers imports sklearn. That takes seconds, so the import is
    # blocked (by None in its place) while transformers is imported.
    sys.modules.setdefault("sklearn", None)  # type: ignore[arg-type]
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    if sys.modules["sklearn"] is None:
        del sys.modules["sklearn"]
    disable_progress_bar()
    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False)
    return use_onednn(model.to(torch.device(device)))


def save_policy(model, init_policy: Path, out_dir: Path) -> None:
    """Write the model to the Hugging Face folder ``out_dir``, with the tokenizer files of the folder
    ``init_policy``."""
    model.save_pretrained(out_dir)
    copy_tokenizer(init_policy, out_dir)


def copy_tokenizer(policy: Path, folder: Path) -> None:
    """Copy the tokenizer files that exist in the folder ``policy`` to another ``folder``."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"):
        if (policy / name).exists():
            shutil.copyfile(policy / name, folder / name)


def save_checkpoint(path: Path, state: Mapping[Any, Any]) -> None:
    """Write the checkpoint ``state`` to ``path``, and keep the one that was there as ``PATH.before``. A kill at any
    moment leaves at least one of the two whole. A third file, ``PATH.sha256``, has the digests of both, by which
    :func:`load_checkpoint` detects damage."""
    previous, digests = _sibling_files(path)
    known_digests = _read_digests(digests)
    old_digest = file_digest(path) if path.exists() else ""
    old_is_whole = old_digest in known_digests
    # One known digest may be that of a checkpoint which never came to ``path``, because its saving was killed.
    kept_digests = [old_digest] if old_is_whole else known_digests
    with replacing(path) as partial:
        # The new checkpoint is on disk before the file of digests names it, and is moved to ``path`` at the end.
        with partial.open("wb") as file:
            torch.save(dict(state), file)
            file.flush()
            os.fsync(file.fileno())
        write_text(digests, "\n".join([file_digest(partial), *kept_digests]) + "\n")
        if old_is_whole:  # a damaged file must not replace the previous one
            os.replace(path, previous)


def load_checkpoint(path: Path) -> dict[Any, Any] | None:
    """Load the newest whole checkpoint: the file ``path``, or the previous checkpoint beside it if ``path`` is damaged
    or missing. Returns its content; None where neither is whole. Logs a warning about a damaged file. Only tensors and
    plain values are read; torch refuses a file with code."""
    previous, digests = _sibling_files(path)
    whole_digests = _read_digests(digests)
    files = [file for file in (path, previous) if file.exists()]
    for file in files:
        if file_digest(file) in whole_digests:
            return torch.load(file, map_location="cpu", weights_only=True)
        _log.warning("%s is damaged: it is not what was written; continuing from the one before it, if any", file)
    if files:
        _log.warning("%s: no checkpoint is whole: starting again from the first step", path.parent)
    return None


def _read_digests(path: Path) -> list[str]:
    """Read the digests in the file ``path``, one a line, the newest first; an empty list where the file is missing."""
    return path.read_text(encoding="utf-8", errors="replace").split() if path.is_file() else []


def _sibling_files(path: Path) -> tuple[Path, Path]:
    """Return the two files beside the checkpoint ``path``: the previous checkpoint, and the digests of whole
    checkpoints."""
    return path.with_name(f"{path.name}.before"), path.with_name(f"{path.name}.sha256")


# Linear layers on a CPU


class _OneDnnProduct(torch.autograd.Function):
    """The differentiable product ``x @ weight.T``, computed by oneDNN: ``x`` [..., in], ``weight`` [out, in]."""

    @staticmethod
    def forward(ctx, x, weight):
        """Compute the product of ``x`` [..., in] and the transpose of ``weight`` [out, in]; returns [..., out]."""
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight)

    @staticmethod
    def backward(ctx, gradient):
        """Compute the gradients of ``x`` and of ``weight`` from ``gradient``, that of the product [..., out]; None for
        one that is not needed."""
        (x, weight), (needs_x, needs_weight) = ctx.saved_tensors, ctx.needs_input_grad
        flat = gradient.reshape(-1, gradient.shape[-1])
        return (
            _multiply(flat, weight.t().contiguous()).view_as(x) if needs_x else None,
            flat.t() @ x.reshape(-1, x.shape[-1]) if needs_weight else None,
        )


class _OneDnnLinear(torch.nn.Linear):
    """A linear layer without bias in float32 on a CPU, computed by oneDNN."""

    def forward(self, x):
        """Apply the layer to ``x`` [..., in]; returns [..., out]."""
        return _OneDnnProduct.apply(x, self.weight)


def _multiply(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Compute ``x @ weight.T`` by oneDNN, without gradients."""
    return ONEDNN_LINEAR(x, weight, None, "none", [], "")  # no bias, and no function applied to the product


def use_onednn(model: torch.nn.Module) -> torch.nn.Module:
    """Make the float32 linear layers without bias of a model on a CPU compute by oneDNN, where torch has it; returns
    the model. Torch itself uses MKL, which leaves half of an AMD processor idle (see ``llm/transformer.py``)."""
    layers = [layer for layer in model.modules() if type(layer) is torch.nn.Linear and layer.bias is None]
    for layer in layers:
        if ONEDNN_LINEAR is not None and layer.weight.dtype == torch.float32 and layer.weight.device.type == "cpu":
            layer.__class__ = _OneDnnLinear
    return model


def padded_width(model: torch.nn.Module, longest: int) -> int:
    """Return the number of tokens to which a batch is padded whose longest sequence has ``longest`` tokens. It is
    rounded up where the model uses oneDNN, which compiles a kernel for every width."""
    return padded(longest) if any(type(layer) is _OneDnnLinear for layer in model.modules()) else longest
