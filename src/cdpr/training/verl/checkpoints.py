"""Checkpoints of verl: marks whole ones, removes old ones, and merges the shards of the last one to a policy.

verl itself removes the previous checkpoint before it records the next one as the latest, so a kill in between leaves
none. Here verl removes nothing: a checkpoint is marked as whole when all of it is written, and only then older ones are
removed. A checkpoint of a 4B model takes 48 GB, the policy 8 GB, so the last one is removed once the policy is written.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ...files import write_text
from ..torch.weights import copy_tokenizer

#: The file in which verl records the step of the latest checkpoint.
LATEST = "latest_checkpointed_iteration.txt"
_STEP, _MARK = "global_step_", "whole"  # how a checkpoint's folder begins; the file that marks it as whole


def checkpoint_folder(checkpoints: Path, step: int) -> Path:
    """Return the folder to which verl writes the checkpoint of ``step``, in the folder ``checkpoints``."""
    return checkpoints / f"{_STEP}{step}"


def keep_only(checkpoints: Path, step: int) -> None:
    """Mark the checkpoint of ``step`` as whole by an empty file in its folder, and remove all other checkpoints."""
    folder = checkpoint_folder(checkpoints, step)
    write_text(folder / _MARK, "")
    _remove(checkpoints, keep=folder)


def prepare_resume(checkpoints: Path) -> int | None:
    """Remove all checkpoints but the newest whole one, and tell verl to resume from it. Returns its step; None where no
    checkpoint is whole, so that verl starts at step 0."""
    whole_steps = [int(mark.parent.name.removeprefix(_STEP)) for mark in checkpoints.glob(f"{_STEP}*/{_MARK}")]
    if not whole_steps:
        _remove(checkpoints)
        (checkpoints / LATEST).unlink(missing_ok=True)
        return None
    _remove(checkpoints, keep=checkpoint_folder(checkpoints, max(whole_steps)))
    write_text(checkpoints / LATEST, str(max(whole_steps)))
    return max(whole_steps)


def _remove(checkpoints: Path, keep: Path | None = None) -> None:
    """Remove the folders of all checkpoints in ``checkpoints``, except the folder ``keep``."""
    for folder in checkpoints.glob(f"{_STEP}*"):
        if folder != keep:
            shutil.rmtree(folder)


def merge_shards(checkpoints: Path, init_policy: Path, policy: Path, lora_rank: int) -> None:
    """Write the policy of the last checkpoint to the Hugging Face folder ``policy``, whole or not at all. verl's merger
    joins the shards of the weights; a LoRA adapter (if ``lora_rank`` is above 0) is added to the weights; the tokenizer
    files are copied from the folder ``init_policy``."""
    step = int((checkpoints / LATEST).read_text())
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    command += ["--local_dir", str(checkpoint_folder(checkpoints, step) / "actor")]
    partial = policy.with_name(policy.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    subprocess.run([*command, "--target_dir", str(partial)], check=True)
    if lora_rank:
        fold_adapter(partial, lora_rank)
    copy_tokenizer(init_policy, partial)
    os.replace(partial, policy)


def link_policy(policy: Path, out_dir: Path) -> None:
    """Copy the folder ``policy`` to ``out_dir``, by hard links where the file system supports them. Files are copied
    where it does not, for example because the two folders are on different disks."""

    def link(source: str, target: str) -> None:
        """Link one file, or copy it."""
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    shutil.copytree(policy, out_dir, copy_function=link)


def fold_adapter(folder: Path, rank: int) -> None:
    """Add the LoRA adapter in the Hugging Face folder ``folder`` to the model's weights, and delete the adapter. Its
    ``lora_alpha`` equals its ``rank``, so it is added with the factor 1. Computed in float32 and saved in bfloat16, as
    verl's merger does. Raises FileNotFoundError without an adapter."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    adapter = folder / "lora_adapter"
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    config |= {"r": rank, "lora_alpha": rank}  # verl's merger writes 0: a checkpoint does not have these numbers
    (adapter / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False)
    model = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    model.to(torch.bfloat16).save_pretrained(folder)
    shutil.rmtree(adapter)
