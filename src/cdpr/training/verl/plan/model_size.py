"""What a model weighs, from its configuration alone: the weights need not be there yet."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ....settings import Settings, SettingsError


@dataclass(frozen=True)
class ModelSize:
    """A decoder of the usual kind: grouped-query attention and a gated feed-forward layer in every block."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    positions: int

    @property
    def linear(self) -> int:
        """Weights of the matrices of one block."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate

    @property
    def parameters(self) -> int:
        """Weights of the whole model, norms left out."""
        return self.layers * self.linear + self.hidden * self.vocab * (1 if self.tied else 2)

    def adapters(self, rank: int) -> int:
        """Weights of LoRA adapters of this rank on every matrix of every block."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        ends = 2 * (self.hidden + q) + 2 * (self.hidden + kv) + 3 * (self.hidden + self.intermediate)
        return self.layers * rank * ends

    def cache_bytes(self, servers_gpus: int = 1) -> int:
        """Keys and values of one token in bfloat16 over all GPUs of a server: heads that cannot be split further are
        kept on each of them."""
        return 2 * 2 * self.layers * max(self.kv_heads, servers_gpus) * self.head_dim


def model_size(settings: Settings) -> ModelSize:
    """Of the acting model. Raises SettingsError where its ``config.json`` is missing or of another kind."""
    if settings.policy.model == "tiny":
        tiny, room = settings.policy.tiny, settings.policy.max_prompt_tokens + settings.policy.max_response_tokens
        head_dim = tiny.hidden_size // tiny.heads
        sizes = tiny.hidden_size, tiny.layers, tiny.heads, tiny.kv_heads, head_dim, tiny.intermediate_size
        return ModelSize(*sizes, tiny.vocab_size, True, room)
    path = Path(settings.policy.model) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        heads = config["num_attention_heads"]
        return ModelSize(
            config["hidden_size"],
            config["num_hidden_layers"],
            heads,
            config.get("num_key_value_heads", heads),
            config.get("head_dim") or config["hidden_size"] // heads,
            config["intermediate_size"],
            config["vocab_size"],
            bool(config.get("tie_word_embeddings", False)),
            config["max_position_embeddings"],
        )
    except OSError as error:
        raise SettingsError(
            f"{path}: {error.strerror}; policy.model must name a Hugging Face folder (config.json is enough to plan)"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{path}: no configuration of a decoder that can be planned ({error!r})") from error
