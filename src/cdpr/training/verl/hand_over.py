"""From verl's last checkpoint to a Hugging Face folder that evaluation takes as it takes any policy.

A checkpoint of a 4B model takes 48 GB, the policy 8: so the checkpoint is removed once the policy is there. The policy
stays beside the run's state, from where a job that is repeated takes it without training again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ...settings.verl import Verl
from ..torch.model import copy_tokenizer, replacing_folder
from .checkpoints import LATEST, folder_of


def merge_shards(checkpoints: Path, init_policy: Path, policy: Path, verl: Verl) -> None:
    """Merge the shards of the last checkpoint with verl's merger, fold a LoRA adapter into the weights, and add the
    tokenizer files of the initial policy. Atomic."""
    step = int((checkpoints / LATEST).read_text())
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    command += ["--local_dir", str(folder_of(checkpoints, step) / "actor")]
    with replacing_folder(policy) as partial:
        subprocess.run([*command, "--target_dir", str(partial)], check=True)
        if verl.lora_rank:
            fold_adapter(partial, verl.lora_rank, verl.lora_alpha)
        copy_tokenizer(init_policy, partial)


def hand_over(policy: Path, out_dir: Path) -> None:
    """Put the merged policy into ``out_dir``, without a second copy of its files where the file system can link."""
    shutil.copytree(policy, out_dir, copy_function=_link)


def _link(source: str, target: str) -> None:
    with contextlib.suppress(OSError):
        os.link(source, target)
        return
    shutil.copyfile(source, target)


def fold_adapter(folder: Path, rank: int, alpha: int) -> None:
    """Add the adapter that the merger leaves beside the initial weights to these. Computed in float32, kept in bfloat16
    as the merger keeps everything. Raises FileNotFoundError where there is no adapter."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    adapter = folder / "lora_adapter"
    told = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    told |= {"r": rank, "lora_alpha": alpha}  # the merger writes 0 where the checkpoint does not tell
    (adapter / "adapter_config.json").write_text(json.dumps(told), encoding="utf-8")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    model.to(torch.bfloat16).save_pretrained(folder)
    shutil.rmtree(adapter)
