"""verl's checkpoints: marking whole ones, removing old ones, and merging the last one to a policy.

verl removes the previous checkpoint before it records the next one as the latest, so that a kill in between leaves
none. Here verl removes nothing: a checkpoint is marked when all of it is written, and older ones are removed after
that. A checkpoint of a 4B model takes 48 GB, the policy 8, so the last one is removed once the policy is written.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ...files import write_text
from ..torch.weights import copy_tokenizer

LATEST = "latest_checkpointed_iteration.txt"
"""The file in which verl records the step of the latest checkpoint."""
_STEP, _MARK = "global_step_", "whole"


def checkpoint_folder(checkpoints: Path, step: int) -> Path:
    """Return the folder in ``checkpoints`` to which verl writes the checkpoint of a step."""
    return checkpoints / f"{_STEP}{step}"


def keep_only(checkpoints: Path, step: int) -> None:
    """Mark the checkpoint of ``step`` as whole and remove all others."""
    folder = checkpoint_folder(checkpoints, step)
    write_text(folder / _MARK, "")
    _remove(checkpoints, keep=folder)


def prepare_resume(checkpoints: Path) -> int | None:
    """Prepare to resume: verl will continue from the newest whole checkpoint, all others are removed. Returns the step
    of that checkpoint; None where none is whole, so that verl starts at step 0."""
    whole_steps = [int(mark.parent.name.removeprefix(_STEP)) for mark in checkpoints.glob(f"{_STEP}*/{_MARK}")]
    if not whole_steps:
        _remove(checkpoints)
        (checkpoints / LATEST).unlink(missing_ok=True)
        return None
    _remove(checkpoints, keep=checkpoint_folder(checkpoints, max(whole_steps)))
    write_text(checkpoints / LATEST, str(max(whole_steps)))
    return max(whole_steps)


def _remove(checkpoints: Path, keep: Path | None = None) -> None:
    """Remove the folders of all checkpoints, except ``keep``."""
    for folder in checkpoints.glob(f"{_STEP}*"):
        if folder != keep:
            shutil.rmtree(folder)


def merge_shards(checkpoints: Path, init_policy: Path, policy: Path, lora_rank: int) -> None:
    """Write the policy of the last checkpoint to the Hugging Face folder ``policy``, whole or not at all: verl's merger
    joins the shards, a LoRA adapter (``lora_rank`` above 0) is added to the weights, and the tokenizer files of
    ``init_policy`` are copied."""
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
    """Copy the merged policy to ``out_dir``, by hard links where the file system has them."""
    try:
        shutil.copytree(policy, out_dir, copy_function=os.link)
    except OSError:
        shutil.copytree(policy, out_dir, dirs_exist_ok=True)


def fold_adapter(folder: Path, rank: int) -> None:
    """Add the LoRA adapter in a merged folder to its weights, and remove it; its ``lora_alpha`` is its rank. Computed
    in float32 and saved in bfloat16, as by the merger. Raises FileNotFoundError without an adapter."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    adapter = folder / "lora_adapter"
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    config |= {"r": rank, "lora_alpha": rank}  # the merger writes 0, which the checkpoint does not hold
    (adapter / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False)
    model = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    model.to(torch.bfloat16).save_pretrained(folder)
    shutil.rmtree(adapter)
