"""Forward pass of Qwen3- and Llama-family decoders over Hugging Face weights.

Only what sampling needs: RMSNorm, rotary positions (default and llama3 scaling), grouped-query attention, optional
query/key norms and biases, tied embeddings. It reads a dictionary of tensors, so that it can share the weights of a
model in training. An :class:`Attention` stores keys and values.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor

FAMILIES = ("qwen3", "qwen2", "llama")

# In float32 torch multiplies with MKL, which leaves half of an AMD processor idle; oneDNN does not, here or elsewhere.
# The operator is torch's own (its compiler emits it) and has no gradient. Where it is absent, F.linear serves.
ONEDNN_LINEAR = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
_ONEDNN_WORTH = 2**20  # multiplications from which a call of it pays


def padded(tokens: int) -> int:
    """``tokens`` rounded up: oneDNN compiles a kernel for every shape; eight sizes an octave keep these few."""
    step = max(8, 2 ** (tokens.bit_length() - 4))
    return -(-tokens // step) * step


@dataclass(frozen=True)
class DecoderConfig:
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
    def from_config(cls, config: Mapping[str, Any], where: str = "config.json") -> Self:
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


class Attention(Protocol):
    """Stores keys and values, and attends: the part of a forward pass that knows the sequences."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """``query`` ``[N, heads * head_dim]``, scaled, of the tokens whose output is needed; ``key`` and ``value``
        ``[T, kv_heads * head_dim]`` of all new tokens. Returns ``[N, heads * head_dim]``."""
        ...


class Transformer:
    """A decoder; ``weights`` maps Hugging Face parameter names to tensors on one device and of one type."""

    def __init__(self, architecture: DecoderConfig, weights: Mapping[str, Tensor]) -> None:
        self.architecture = architecture
        self.weights = weights
        self.embedding = weights["model.embed_tokens.weight"]
        self.head = weights.get("lm_head.weight", self.embedding)
        self.device, self.dtype = self.embedding.device, self.embedding.dtype
        self._onednn = ONEDNN_LINEAR is not None and self.device.type == "cpu" and self.dtype == torch.float32
        self._layers = [_layer(weights, index) for index in range(architecture.layers)]
        self._frequencies = _rope_frequencies(architecture).to(self.device)
        self._cos, self._sin = self._rope_table(256)

    @classmethod
    def load(cls, folder: str | Path, device: str | torch.device = "cpu", dtype: torch.dtype | None = None) -> Self:
        """Weights of a Hugging Face folder (``config.json`` and safetensors). ``dtype`` None keeps the stored type.

        Raises :class:`FileNotFoundError` or :class:`ValueError` naming the file and what is wrong with it.
        """
        from safetensors.torch import load_file

        folder = Path(folder)
        config_path = folder / "config.json"
        if not config_path.is_file():
            raise FileNotFoundError(f"{config_path} is missing: {folder} is not a Hugging Face model folder")
        architecture = DecoderConfig.from_config(json.loads(config_path.read_text()), str(config_path))
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise FileNotFoundError(f"{folder} holds no *.safetensors: save the model with save_pretrained")
        weights: dict[str, Tensor] = {}
        for path in files:
            for name, tensor in load_file(path, device=str(device)).items():
                weights[name] = tensor if dtype is None else tensor.to(dtype)
        return cls(architecture, weights)

    @classmethod
    def from_model(cls, model: Any) -> Self:
        """The parameters of a transformers model, shared with it: the sampler reads what the optimiser writes."""
        weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
        return cls(DecoderConfig.from_config(model.config.to_dict(), type(model).__name__), weights)

    def padded(self, tokens: int) -> int:
        """The number of tokens, at least ``tokens``, to which a forward pass is best padded."""
        return padded(tokens) if self._onednn else tokens

    def forward(self, tokens: Tensor, positions: Tensor, attention: Attention, last: Tensor | None = None) -> Tensor:
        """Logits, float32 ``[N, vocab_size]``, behind the new tokens ``last`` (int64 ``[N]``, None: behind all).

        ``tokens`` and ``positions`` are int64 ``[T]``. The last layer computes only keys and values of others.
        """
        arch = self.architecture
        cos, sin = self._cos[positions, None], self._sin[positions, None]  # [T, 1, head_dim]
        hidden = F.embedding(tokens, self.embedding)
        for index, layer in enumerate(self._layers):
            normed = self._norm(hidden, layer["input_layernorm.weight"])
            key = self._head_norm(layer, "self_attn.k", self._linear(layer, "self_attn.k_proj", normed))
            key = _rotate(key, cos, sin).flatten(1)
            value = self._linear(layer, "self_attn.v_proj", normed)
            if last is not None and index == arch.layers - 1:
                hidden, normed, cos, sin = (t.index_select(0, last) for t in (hidden, normed, cos, sin))
            query = self._head_norm(layer, "self_attn.q", self._linear(layer, "self_attn.q_proj", normed))
            query = _rotate(query, cos, sin).mul_(arch.head_dim**-0.5).flatten(1)
            attended = attention.attend(index, query, key, value)
            hidden = self._linear(layer, "self_attn.o_proj", attended).add_(hidden)
            normed = self._norm(hidden, layer["post_attention_layernorm.weight"])
            gated = F.silu(self._linear(layer, "mlp.gate_proj", normed), inplace=True)
            gated.mul_(self._linear(layer, "mlp.up_proj", normed))
            hidden = self._linear(layer, "mlp.down_proj", gated).add_(hidden)
        return self._project(self._norm(hidden, self.weights["model.norm.weight"]), self.head, None).float()

    def _linear(self, layer: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
        return self._project(x, layer[name + ".weight"], layer.get(name + ".bias"))

    def _project(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self._onednn and x.shape[0] * weight.numel() >= _ONEDNN_WORTH:
            return ONEDNN_LINEAR(x, weight, bias, "none", [], "")
        return F.linear(x, weight, bias)

    def _head_norm(self, layer: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
        """``[T, heads * head_dim]`` -> ``[T, heads, head_dim]``, normalised where the family does so."""
        x = x.view(len(x), -1, self.architecture.head_dim)
        weight = layer.get(name + "_norm.weight")
        return x if weight is None else self._norm(x, weight)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        if x.dtype == torch.float32:
            return F.rms_norm(x, weight.shape, weight, self.architecture.epsilon)
        wide = x.float()  # as Hugging Face: normalised in float32, scaled in the model's type
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.architecture.epsilon)
        return weight * (wide * scale).to(x.dtype)

    def reserve(self, length: int) -> None:
        """Prepare positions below ``length``: the rotary table grows by doubling."""
        if length > len(self._cos):
            self._cos, self._sin = self._rope_table(2 ** math.ceil(math.log2(length)))

    def _rope_table(self, length: int) -> tuple[Tensor, Tensor]:
        angles = torch.arange(length, device=self.device, dtype=torch.float32)[:, None] * self._frequencies
        cos, sin = angles.cos().to(self.dtype), angles.sin().to(self.dtype)
        return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


def _layer(weights: Mapping[str, Tensor], index: int) -> dict[str, Tensor]:
    prefix = f"model.layers.{index}."
    layer = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
    if not layer:
        raise ValueError(f"the weights hold no layer {index} ({prefix}*), although config.json counts it")
    return layer


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``sin`` carries the sign of the rotation, so that the halves need only be swapped."""
    half = x.shape[-1] // 2
    return (x * cos).addcmul_(torch.cat([x[..., half:], x[..., :half]], -1), sin)


def _rope_frequencies(arch: DecoderConfig) -> Tensor:
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
