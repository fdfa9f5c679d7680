"""verl's checkpoints: which one is whole, which ones are removed, and the policy that is merged from the last.

verl removes the previous checkpoint before it names the next one the latest, so a kill in between leaves a name without
a checkpoint. Here verl removes none: a checkpoint is marked when all of it is written, and older ones go after that. A
checkpoint of a 4B model takes 48 GB, the policy 8, so the last checkpoint goes once the policy is there.
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
"""The file in which verl looks up the step to continue from."""
_STEP, _MARK = "global_step_", "whole"


def folder_of(checkpoints: Path, step: int) -> Path:
    """Where verl keeps the checkpoint of a step."""
    return checkpoints / f"{_STEP}{step}"


def keep_only(checkpoints: Path, step: int) -> None:
    """Mark the checkpoint of ``step`` as whole and remove all others."""
    write_text(folder_of(checkpoints, step) / _MARK, "")
    _remove(checkpoints, folder_of(checkpoints, step))


def fall_back(checkpoints: Path) -> int | None:
    """Make verl resume from the newest whole checkpoint, whatever a killed run left; returns its step, if any."""
    whole = [int(mark.parent.name.removeprefix(_STEP)) for mark in checkpoints.glob(f"{_STEP}*/{_MARK}")]
    if not whole:
        _remove(checkpoints)
        (checkpoints / LATEST).unlink(missing_ok=True)
        return None
    _remove(checkpoints, folder_of(checkpoints, max(whole)))
    write_text(checkpoints / LATEST, str(max(whole)))
    return max(whole)


def _remove(checkpoints: Path, but: Path | None = None) -> None:
    for folder in checkpoints.glob(f"{_STEP}*"):
        if folder != but:
            shutil.rmtree(folder)


def merge_shards(checkpoints: Path, init_policy: Path, policy: Path, lora_rank: int) -> None:
    """Merge the shards of the last checkpoint with verl's merger, fold a LoRA adapter in, add the tokenizer. Atomic."""
    step = int((checkpoints / LATEST).read_text())
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    command += ["--local_dir", str(folder_of(checkpoints, step) / "actor")]
    partial = policy.with_name(policy.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    subprocess.run([*command, "--target_dir", str(partial)], check=True)
    if lora_rank:
        fold_adapter(partial, lora_rank)
    copy_tokenizer(init_policy, partial)
    os.replace(partial, policy)


def hand_over(policy: Path, out_dir: Path) -> None:
    """Put the merged policy into ``out_dir``, without a second copy of its files where the file system can link."""
    try:
        shutil.copytree(policy, out_dir, copy_function=os.link)
    except OSError:
        shutil.copytree(policy, out_dir, dirs_exist_ok=True)


def fold_adapter(folder: Path, rank: int) -> None:
    """Add the adapter that the merger leaves beside the initial weights to them, with a scale equal to its rank.
    Computed in float32, saved in bfloat16 as by the merger. Raises FileNotFoundError without an adapter."""
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
