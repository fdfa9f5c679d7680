"""The forward pass of decoders of the Qwen2, Qwen3 and Llama families with Hugging Face weights.

It has only the parts that sampling needs: RMSNorm, rotary positions (default and llama3 scaling), grouped-query
attention, optional query/key norms and biases, tied embeddings. The weights are a dictionary of tensors, which may be
the parameters of a model in training. Keys and values are stored by an :class:`Attention`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from ..files import parse_yaml, shipped_text
from ..settings import refuse
from .model_folder import StoredTensor, read_config, stored_tensors

_DECODERS = parse_yaml(shipped_text(__package__, "decoders.yaml"))
FAMILIES: Mapping[str, Mapping[str, Any]] = _DECODERS["families"]
"""The families of decoders by their ``model_type``, with the defaults and the weights of each."""
# The keys of config.json that must be there and are sizes.
_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
          "max_position_embeddings")  # fmt: skip
_OUTPUT_WEIGHT = "lm_head.weight"  # the matrix of the output head, by its name in Hugging Face folders
# Types of weights by their names in config.json.
_TYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.bfloat16, torch.float16)}

# In float32 torch multiplies with MKL, which leaves half of an AMD processor idle; oneDNN uses all of any processor.
# This operator of torch, which its compiler emits too, has no gradient. Where it is absent, F.linear takes its place.
_MKLDNN: Any = torch.ops.mkldnn if torch.backends.mkldnn.is_available() else None
ONEDNN_LINEAR: Any = getattr(_MKLDNN, "_linear_pointwise", None)
_ONEDNN_LEAST = 2**20  # multiplications from which a call of oneDNN is faster


def padded(tokens: int) -> int:
    """Round a number of tokens up to one of the eight sizes between two powers of two: 100 to 104, 1000 to 1024. oneDNN
    compiles a kernel for every new shape, so few shapes save time."""
    step = max(8, 2 ** (tokens.bit_length() - 4))  # an eighth of the largest power of two up to ``tokens``
    return (tokens + step - 1) // step * step  # the next multiple of the step


@dataclass(frozen=True)
class DecoderConfig:
    """The fields of ``config.json`` that the forward pass depends on.

    - ``rope``: the parameters of the rotary positions.
    - ``shapes``: the shape of every weight of the decoder, by the name that transformers gives it. The output head has
      none of its own where it uses the weights of the embedding.
    - ``dtype``: the type of the weights; None where the file names none.
    """

    vocab_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    epsilon: float
    rope: Mapping[str, Any]
    max_positions: int
    shapes: Mapping[str, tuple[int, ...]]
    dtype: torch.dtype | None

    @classmethod
    def from_config(cls, config: Mapping[str, Any], where: str = "config.json") -> Self:
        """Read the content of a ``config.json``; missing keys get the defaults of transformers. Raises
        :class:`SettingsError`, which begins with ``where`` and names the key, for anything that this forward pass does
        not compute."""
        model_type = str(config.get("model_type"))
        refuse(__package__, "family", {"where": where, "family": model_type, "families": FAMILIES})
        family = FAMILIES[model_type]
        config = {**_DECODERS["defaults"], **family["defaults"], **config}
        # The parameters of the rotary positions, whose keys have older and newer names.
        rope = {
            "rope_theta": config.get("rope_theta") or 10000.0,
            "original_max_position_embeddings": config["max_position_embeddings"],
            "partial_rotary_factor": config["partial_rotary_factor"],
            **(config["rope_scaling"] or config["rope_parameters"] or {}),
        }
        rope["rope_type"] = rope.get("rope_type") or rope.get("type") or "default"
        wrong_sizes = [name for name in _SIZES if type(config.get(name)) is not int or config[name] < 1]
        refuse(__package__, "decoder", {"where": where, "config": config, "rope": rope, "wrong_sizes": wrong_sizes})
        vocab_size, hidden, inner, layers, heads, max_positions = (config[name] for name in _SIZES)
        kv_heads = config["num_key_value_heads"] or heads
        head_dim = config["head_dim"] or hidden // heads
        # The weights by their names: those of each layer, then the others.
        layer = _DECODERS["layer"] | family["layer"]
        for option in family["options"]:
            layer |= _DECODERS[option] if config[option] else {}
        axes = {f"model.layers.{k}.{name}": names for k in range(layers) for name, names in layer.items()}
        axes |= _DECODERS["model"] | ({} if config["tie_word_embeddings"] else _DECODERS["untied"])
        sizes = {"vocabulary": vocab_size, "hidden": hidden, "inner": inner, "head": head_dim}
        sizes |= {"query": heads * head_dim, "key": kv_heads * head_dim}
        shapes = {name: tuple(sizes[axis] for axis in names) for name, names in axes.items()}
        epsilon = config["rms_norm_eps"]
        dtype = _TYPES.get(str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch."))
        return cls(vocab_size, layers, heads, kv_heads, head_dim, epsilon, rope, max_positions, shapes, dtype)


def read_folder(folder: str | Path) -> tuple[DecoderConfig, dict[str, StoredTensor]]:
    """Read the configuration of a Hugging Face folder, and the names, types and shapes of its tensors. Checks that
    these are exactly the weights of the configured decoder, before any weight is loaded.

    An output head that is stored although the embedding is tied is allowed and used, as in transformers. Raises
    :class:`SettingsError`, naming the file, where a tensor is missing, has another shape, or does not belong to the
    model.
    """
    architecture = DecoderConfig.from_config(read_config(folder), str(Path(folder) / "config.json"))
    # Old checkpoints hold the rotary frequencies, which follow from the configuration.
    stored = {name: t for name, t in stored_tensors(folder).items() if not name.endswith("rotary_emb.inv_freq")}
    shapes = dict(architecture.shapes)
    if _OUTPUT_WEIGHT in stored:  # also where the embedding is tied
        shapes[_OUTPUT_WEIGHT] = shapes["model.embed_tokens.weight"]
    faults = {
        "missing": sorted(shapes.keys() - stored.keys()),
        "further": sorted(stored.keys() - shapes.keys()),
        "unlike": [name for name, shape in shapes.items() if name in stored and stored[name].shape != shape],
    }
    refuse(__package__, "tensors", {"folder": folder, "stored": stored, "shapes": shapes, **faults})
    return architecture, stored


class Attention(Protocol):
    """The part of a forward pass that depends on the sequences: it stores keys and values, and computes attention. The
    implementations are in :mod:`.attention`."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Store the new keys and values of a layer, and compute its attention.

        ``query`` ``[N, heads * head_dim]``, already scaled, has a row for each token whose output is needed. ``key``
        and ``value`` ``[T, kv_heads * head_dim]`` have a row for each new token. Returns the attended values, ``[N,
        heads * head_dim]``.
        """
        ...


class Transformer:
    """A decoder for sampling. ``weights`` are its tensors by the names of transformers, on one device and of one
    type."""

    def __init__(self, architecture: DecoderConfig, weights: Mapping[str, Tensor]) -> None:
        """Make a decoder of this architecture. ``weights`` are its tensors by the names of transformers, on one device
        and of one type; they are used, not copied."""
        self.architecture = architecture
        self.weights = weights
        self.embedding = weights["model.embed_tokens.weight"]
        self.head = weights.get(_OUTPUT_WEIGHT, self.embedding)
        self.device, self.dtype = self.embedding.device, self.embedding.dtype
        self._onednn = ONEDNN_LINEAR is not None and self.device.type == "cpu" and self.dtype == torch.float32
        self._layers = [_select_layer(weights, index) for index in range(architecture.layers)]
        self._frequencies = _rope_frequencies(architecture).to(self.device)
        self._cos, self._sin = self._rope_table(256)  # for the first positions; extend_positions adds more

    @classmethod
    def load(cls, folder: str | Path, device: str | torch.device = "cpu", dtype: torch.dtype | None = None) -> Self:
        """Load the decoder in a Hugging Face folder. ``dtype`` is by default the type in ``config.json``, else that of
        the stored embedding. Raises SettingsError as :func:`read_folder`."""
        from safetensors import safe_open

        architecture, stored = read_folder(folder)
        weights: dict[str, Tensor] = {}
        for path in sorted({tensor.file for tensor in stored.values()}):
            with safe_open(path, "pt", device=str(device)) as file:
                weights |= {name: file.get_tensor(name) for name, tensor in stored.items() if tensor.file == path}
        dtype = dtype or architecture.dtype or weights["model.embed_tokens.weight"].dtype
        return cls(architecture, {name: tensor.to(dtype) for name, tensor in weights.items()})

    @classmethod
    def from_model(cls, model: Any) -> Self:
        """Make a decoder that shares the parameters of a transformers model, so that it samples with them also after an
        optimiser has changed them. Raises SettingsError as :meth:`DecoderConfig.from_config`."""
        weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
        return cls(DecoderConfig.from_config(model.config.to_dict(), type(model).__name__), weights)

    def padded(self, tokens: int) -> int:
        """The number of rows to which the caller should pad a forward pass over ``tokens`` tokens. Where oneDNN
        computes, which compiles a kernel for every new shape, it is rounded up to one of few sizes; otherwise it is
        ``tokens``."""
        return padded(tokens) if self._onednn else tokens

    def forward(self, tokens: Tensor, positions: Tensor, attention: Attention, last: Tensor | None = None) -> Tensor:
        """Compute the logits of the next tokens, float32 ``[N, vocab_size]``.

        ``tokens`` and ``positions`` (each in its own sequence) are int64 ``[T]``; the tokens can be of many sequences.
        ``last`` int64 ``[N]`` are the indices in ``tokens`` behind which logits are needed (None: all, N = T).
        ``attention`` stores the keys and values of all tokens, and knows to which sequence each belongs. In the last
        layer only the ``last`` tokens have queries, which saves time.
        """
        arch = self.architecture
        cos, sin = self._cos[positions, None], self._sin[positions, None]  # [T, 1, head_dim]
        hidden = F.embedding(tokens, self.embedding)
        for index, layer in enumerate(self._layers):
            normed = self._norm(hidden, layer["input_layernorm.weight"])
            key = self._head_norm(layer, "self_attn.k", self._linear(layer, "self_attn.k_proj", normed))
            key = _rotate(key, cos, sin).flatten(1)
            value = self._linear(layer, "self_attn.v_proj", normed)
            if last is not None and index == arch.layers - 1:  # from here on only the ``last`` tokens are needed
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
        """Apply the linear map ``name`` of a layer, with its bias if it has one, to ``x`` ``[T, in]``; returns ``[T,
        out]``."""
        return self._project(x, layer[name + ".weight"], layer.get(name + ".bias"))

    def _project(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Compute ``x @ weight.T + bias``, with oneDNN where that is faster. Shapes: ``x`` ``[T, in]``, ``weight``
        ``[out, in]``, ``bias`` ``[out]`` or None."""
        if self._onednn and x.shape[0] * weight.numel() >= _ONEDNN_LEAST:
            return ONEDNN_LINEAR(x, weight, bias, "none", [], "")  # no activation function behind it
        return F.linear(x, weight, bias)

    def _head_norm(self, layer: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
        """Reshape ``x`` ``[T, heads * head_dim]`` to ``[T, heads, head_dim]``, and normalise each head if the layer has
        the norm ``name`` (Qwen3)."""
        by_head = x.view(len(x), -1, self.architecture.head_dim)
        weight = layer.get(name + "_norm.weight")
        return by_head if weight is None else self._norm(by_head, weight)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Apply the RMS norm over the last dimension of ``x``, scaled by ``weight``; returns the shape of ``x``."""
        if x.dtype == torch.float32:
            return F.rms_norm(x, weight.shape, weight, self.architecture.epsilon)
        wide = x.float()  # as Hugging Face: normalised in float32, scaled in the model's type
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.architecture.epsilon)
        return weight * (wide * scale).to(x.dtype)

    def extend_positions(self, length: int) -> None:
        """Extend the tables of rotary positions to at least ``length`` positions. The caller does this before a forward
        pass over longer sequences."""
        if length > len(self._cos):
            self._cos, self._sin = self._rope_table(2 ** math.ceil(math.log2(length)))

    def _rope_table(self, length: int) -> tuple[Tensor, Tensor]:
        """Compute the cosines and signed sines of the rotary angles of the positions 0 to ``length`` - 1, each
        ``[length, head_dim]``, for :func:`_rotate`."""
        angles = torch.arange(length, device=self.device, dtype=torch.float32)[:, None] * self._frequencies
        cos, sin = angles.cos().to(self.dtype), angles.sin().to(self.dtype)
        return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


def _select_layer(weights: Mapping[str, Tensor], index: int) -> dict[str, Tensor]:
    """The weights of the layer ``index``, by their names within the layer (``mlp.up_proj.weight``)."""
    prefix = f"model.layers.{index}."
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions to ``x`` ``[T, heads, head_dim]``; returns the same shape. ``cos`` and ``sin`` are ``[T,
    1, head_dim]``. The first half of ``sin`` is negated beforehand, so that swapping the halves of ``x`` is enough."""
    half = x.shape[-1] // 2
    return (x * cos).addcmul_(torch.cat([x[..., half:], x[..., :half]], -1), sin)


def _rope_frequencies(arch: DecoderConfig) -> Tensor:
    """Compute the rotary frequencies (radians per position), float32 ``[head_dim / 2]``. llama3 scaling lowers the low
    frequencies, for contexts longer than the original one."""
    exponent = torch.arange(0, arch.head_dim, 2, dtype=torch.int64).float() / arch.head_dim
    frequencies = 1.0 / (arch.rope["rope_theta"] ** exponent)
    if arch.rope["rope_type"] == "default":
        return frequencies
    # From here on llama3 scaling; ``old`` is the length of the original context.
    factor, old = arch.rope["factor"], arch.rope["original_max_position_embeddings"]
    low, high = arch.rope["low_freq_factor"], arch.rope["high_freq_factor"]
    turns = old * frequencies / (2 * math.pi)  # full turns within the original context
    # The share of each frequency that stays; the rest is divided by the factor.
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies * (smooth + (1 - smooth) / factor)
