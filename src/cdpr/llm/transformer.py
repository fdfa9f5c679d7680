"""Forward pass of Qwen3- and Llama-family decoders over Hugging Face weights, with an explicit key-value cache.

Only what sampling needs: RMSNorm, rotary positions (default and llama3 scaling), grouped-query attention, optional
query/key norms and biases, tied embeddings. Functional over a dictionary of tensors, so that the weights of a model
that is being trained can be read in place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

FAMILIES = ("qwen3", "qwen2", "llama")


@dataclass(frozen=True)
class Architecture:
    """The numbers of ``config.json`` that shape the forward pass."""

    vocab_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    epsilon: float
    rope: Mapping[str, Any]
    max_positions: int

    @classmethod
    def from_config(cls, config: Mapping[str, Any], where: str = "config.json") -> Architecture:
        """Raises :class:`ValueError`, naming the key, on anything this forward pass does not compute."""
        family = config.get("model_type")
        if family not in FAMILIES:
            raise ValueError(f"{where}: model_type {family!r} is not supported; use one of {', '.join(FAMILIES)}")
        if config.get("use_sliding_window"):
            raise ValueError(f"{where}: use_sliding_window is not supported")
        if config.get("hidden_act", "silu") != "silu":
            raise ValueError(f"{where}: hidden_act {config['hidden_act']!r} is not supported; only silu")
        heads = config["num_attention_heads"]
        rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
        rope.setdefault("rope_theta", config.get("rope_theta") or 10000.0)
        rope["rope_type"] = rope.get("rope_type") or rope.get("type") or "default"
        if rope["rope_type"] not in ("default", "llama3"):
            raise ValueError(f"{where}: rope_type {rope['rope_type']!r} is not supported; only default and llama3")
        return cls(
            vocab_size=config["vocab_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            epsilon=config.get("rms_norm_eps", 1e-6),
            rope=rope,
            max_positions=config.get("max_position_embeddings", 2048),
        )


class Cache:
    """Keys and values of ``rows`` sequences, each ``capacity`` positions long and zero where nothing is written.

    ``keys[layer]`` and ``values[layer]`` have shape ``[rows, capacity, kv_heads * head_dim]``.
    """

    def __init__(self, keys: list[Tensor], values: list[Tensor]) -> None:
        self.keys, self.values = keys, values

    @property
    def capacity(self) -> int:
        return self.keys[0].shape[1]

    def span(self, start: int, stop: int) -> Cache:
        """Rows ``start`` to ``stop``, sharing memory."""
        return Cache([k[start:stop] for k in self.keys], [v[start:stop] for v in self.values])

    def select(self, rows: Tensor) -> Cache:
        """A cache of the given rows, copied."""
        return Cache([k.index_select(0, rows) for k in self.keys], [v.index_select(0, rows) for v in self.values])


class Transformer:
    """A decoder; ``weights`` maps Hugging Face parameter names to tensors on one device and of one type."""

    def __init__(self, architecture: Architecture, weights: Mapping[str, Tensor]) -> None:
        self.architecture = architecture
        self.weights = weights
        self.embedding = weights["model.embed_tokens.weight"]
        self.head = weights.get("lm_head.weight", self.embedding)
        self.device, self.dtype = self.embedding.device, self.embedding.dtype
        self._layers = [_layer(weights, index) for index in range(architecture.layers)]
        self._frequencies = _rope_frequencies(architecture).to(self.device)
        self._cos, self._sin = self._rope_table(256)

    @classmethod
    def load(
        cls, folder: str | Path, device: str | torch.device = "cpu", dtype: torch.dtype | None = None
    ) -> Transformer:
        """Weights of a Hugging Face folder (``config.json`` and safetensors). ``dtype`` None keeps the stored type.

        Raises :class:`FileNotFoundError` or :class:`ValueError` naming the file and what is wrong with it.
        """
        from safetensors.torch import load_file

        folder = Path(folder)
        config_path = folder / "config.json"
        if not config_path.is_file():
            raise FileNotFoundError(f"{config_path} is missing: {folder} is not a Hugging Face model folder")
        architecture = Architecture.from_config(json.loads(config_path.read_text()), str(config_path))
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise FileNotFoundError(f"{folder} holds no *.safetensors: save the model with save_pretrained")
        weights: dict[str, Tensor] = {}
        for path in files:
            for name, tensor in load_file(path, device=str(device)).items():
                weights[name] = tensor if dtype is None else tensor.to(dtype)
        return cls(architecture, weights)

    @classmethod
    def from_model(cls, model: Any) -> Transformer:
        """The parameters of a transformers model, shared: what the optimiser writes is what is sampled from."""
        weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
        return cls(Architecture.from_config(model.config.to_dict(), type(model).__name__), weights)

    def empty_cache(self, rows: int, capacity: int) -> Cache:
        """A cache of zeros."""
        shape = (rows, capacity, self.architecture.kv_heads * self.architecture.head_dim)
        make = [torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in range(2 * self.architecture.layers)]
        return Cache(make[: self.architecture.layers], make[self.architecture.layers :])

    def extend(self, cache: Cache, tokens: Tensor, rows: Tensor, positions: Tensor, last: Tensor) -> Tensor:
        """Run new tokens of several rows, of any lengths, through the model; fills ``cache`` in place.

        ``tokens``, ``rows`` and ``positions`` (int64 ``[T]``) are packed row by row: token, cache row and position of
        each; a row's positions are consecutive and everything before them is in the cache. ``last`` (int64 ``[R]``)
        indexes the packed tokens whose logits are wanted. Returns float32 logits ``[R, vocab_size]``.
        """
        count = torch.bincount(rows, minlength=cache.keys[0].shape[0])
        width = int(count.max())
        first = torch.cumsum(count, 0) - count
        column = torch.arange(len(tokens), device=self.device) - first[rows]
        length = int(positions.max()) + 1
        query_position = torch.full((len(count), width), -1, device=self.device)
        query_position[rows, column] = positions
        # Padding queries see key 0, so that no softmax is over nothing.
        mask = torch.arange(length, device=self.device) <= query_position.clamp_min(0)[:, :, None]
        write = rows * cache.capacity + positions
        arch = self.architecture

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            keys, values = cache.keys[layer], cache.values[layer]
            keys.view(-1, keys.shape[-1]).index_copy_(0, write, key)
            values.view(-1, values.shape[-1]).index_copy_(0, write, value)
            padded = query.new_zeros(len(count), width, query.shape[-1])
            padded[rows, column] = query
            out = F.scaled_dot_product_attention(
                padded.view(len(count), width, arch.heads, arch.head_dim).transpose(1, 2),
                self._split(keys, length),
                self._split(values, length),
                attn_mask=mask[:, None],
                enable_gqa=arch.heads != arch.kv_heads,
            )
            return out.transpose(1, 2)[rows, column].flatten(1)

        hidden = self._blocks(tokens, self._rope(positions, length), attend)
        return self._logits(hidden.index_select(0, last))

    def step(self, cache: Cache, tokens: Tensor, positions: Tensor, bias: Tensor) -> Tensor:
        """One new token for every row of ``cache``; fills it in place.

        ``tokens`` and ``positions`` are int64 ``[B]``; ``bias`` ``[B, L]`` is 0 at the positions a row sees, the new
        one included, and -inf elsewhere. Returns float32 logits ``[B, vocab_size]``.
        """
        arch = self.architecture
        length = bias.shape[1]
        write = torch.arange(len(tokens), device=self.device) * cache.capacity + positions
        mask = bias[:, None, None]

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            keys, values = cache.keys[layer], cache.values[layer]
            keys.view(-1, keys.shape[-1]).index_copy_(0, write, key)
            values.view(-1, values.shape[-1]).index_copy_(0, write, value)
            # The query heads of one key head stand where the query positions usually do: no key is repeated.
            grouped = query.view(len(query), arch.kv_heads, -1, arch.head_dim)
            out = F.scaled_dot_product_attention(
                grouped, self._split(keys, length), self._split(values, length), attn_mask=mask
            )
            return out.flatten(1)

        return self._logits(self._blocks(tokens, self._rope(positions, length), attend))

    def _split(self, cached: Tensor, length: int) -> Tensor:
        """``[rows, capacity, kv_heads * head_dim]`` -> view ``[rows, kv_heads, length, head_dim]``."""
        arch = self.architecture
        return cached[:, :length].view(len(cached), length, arch.kv_heads, arch.head_dim).transpose(1, 2)

    def _blocks(self, tokens: Tensor, rope: tuple[Tensor, Tensor], attend) -> Tensor:
        arch = self.architecture
        cos, sin = rope
        hidden = F.embedding(tokens, self.embedding)
        for index, layer in enumerate(self._layers):
            normed = self._norm(hidden, layer["input_layernorm.weight"])
            query = _linear(layer, "self_attn.q_proj", normed).view(len(tokens), -1, arch.head_dim)
            key = _linear(layer, "self_attn.k_proj", normed).view(len(tokens), -1, arch.head_dim)
            value = _linear(layer, "self_attn.v_proj", normed)
            if "self_attn.q_norm.weight" in layer:
                query = self._norm(query, layer["self_attn.q_norm.weight"])
                key = self._norm(key, layer["self_attn.k_norm.weight"])
            query, key = _rotate(query, cos, sin), _rotate(key, cos, sin)
            attended = attend(index, query.flatten(1), key.flatten(1), value)
            hidden = hidden + _linear(layer, "self_attn.o_proj", attended)
            normed = self._norm(hidden, layer["post_attention_layernorm.weight"])
            gated = F.silu(_linear(layer, "mlp.gate_proj", normed)) * _linear(layer, "mlp.up_proj", normed)
            hidden = hidden + _linear(layer, "mlp.down_proj", gated)
        return hidden

    def _logits(self, hidden: Tensor) -> Tensor:
        return F.linear(self._norm(hidden, self.weights["model.norm.weight"]), self.head).float()

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        if x.dtype == torch.float32:
            return F.rms_norm(x, weight.shape, weight, self.architecture.epsilon)
        wide = x.float()  # as Hugging Face: normalised in float32, scaled in the model's type
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.architecture.epsilon)
        return weight * (wide * scale).to(x.dtype)

    def _rope(self, positions: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines ``[T, 1, head_dim]`` at positions below ``length``; the table grows by doubling."""
        if length > len(self._cos):
            self._cos, self._sin = self._rope_table(2 ** math.ceil(math.log2(length)))
        return self._cos[positions, None], self._sin[positions, None]

    def _rope_table(self, length: int) -> tuple[Tensor, Tensor]:
        angles = torch.arange(length, device=self.device, dtype=torch.float32)[:, None] * self._frequencies
        angles = torch.cat([angles, angles], -1)
        return angles.cos().to(self.dtype), angles.sin().to(self.dtype)


def _layer(weights: Mapping[str, Tensor], index: int) -> dict[str, Tensor]:
    prefix = f"model.layers.{index}."
    found = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
    if not found:
        raise ValueError(f"the weights hold no layer {index} ({prefix}*), although config.json counts it")
    return found


def _linear(layer: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    return F.linear(x, layer[name + ".weight"], layer.get(name + ".bias"))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def _rope_frequencies(arch: Architecture) -> Tensor:
    """Inverse frequencies ``[head_dim / 2]``, float32; llama3 stretches the long wavelengths."""
    exponent = torch.arange(0, arch.head_dim, 2, dtype=torch.int64).float() / arch.head_dim
    frequencies = 1.0 / (arch.rope["rope_theta"] ** exponent)
    if arch.rope["rope_type"] == "default":
        return frequencies
    factor, old = arch.rope["factor"], arch.rope["original_max_position_embeddings"]
    low, high = arch.rope["low_freq_factor"], arch.rope["high_freq_factor"]
    turns = old * frequencies / (2 * math.pi)  # full turns within the original context
    smooth = ((turns - low) / (high - low)).clamp(0, 1)  # 0: stretch by the factor, 1: leave
    return frequencies * (smooth + (1 - smooth) / factor)
