"""From verl's last checkpoint to a Hugging Face folder that evaluation takes as it takes any policy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from ...settings.verl import Verl
from ..torch.model import copy_tokenizer, replacing_folder


def hand_over(checkpoints: Path, init_policy: Path, out_dir: Path, verl: Verl) -> None:
    """verl's merger, LoRA adapters folded into the weights, and the tokenizer files of the policy that training began
    with; atomic."""
    step = int((checkpoints / "latest_checkpointed_iteration.txt").read_text())
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    command += ["--local_dir", str(checkpoints / f"global_step_{step}" / "actor")]
    with replacing_folder(out_dir) as partial:
        subprocess.run([*command, "--target_dir", str(partial)], check=True)
        if verl.lora_rank:
            fold_adapter(partial, verl.lora_rank, verl.lora_alpha)
        copy_tokenizer(init_policy, partial)


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
