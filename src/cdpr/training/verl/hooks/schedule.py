"""The order of cases as a data set: verl's loader reads it from front to back, once."""

from __future__ import annotations

from typing import Any

import torch

from ..session import read_session

LOOP = "cdpr"
_NO_TEXT = ({"role": "user", "content": ""},)


class Schedule(torch.utils.data.Dataset):
    """Row j names the case that comes j-th and the iteration it belongs to; verl's ``data.custom_cls``.

    ``data_files`` is ``train`` or ``validation``, ``config.cdpr_session`` the file of the run. The prompt is left
    empty: the episode makes it, and no text of a case passes through verl's queues before it is tokens.
    """

    def __init__(self, data_files: Any, tokenizer: Any = None, processor: Any = None, config: Any = None,
                 max_samples: int = -1):  # fmt: skip
        session = read_session(config["cdpr_session"])
        self.part = str(data_files)
        self.size = session.settings.training.prompts_per_batch
        self.order = session.run.order() if self.part == "train" else list(range(len(session.run.validation)))

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, j: int) -> dict[str, Any]:
        return {
            "raw_prompt": list(_NO_TEXT),
            "dummy_tensor": torch.zeros(1, dtype=torch.uint8),
            "index": j,
            "agent_name": LOOP,
            "data_source": LOOP,
            "part": self.part,
            "place": self.order[j],
            "iteration": j // self.size,
        }
