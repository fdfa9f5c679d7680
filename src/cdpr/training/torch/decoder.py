"""The tiny policy as a torch module: a small Qwen3 without the library transformers, whose import takes seconds. It has
the same parameters, does the same arithmetic, and reads and writes the same Hugging Face folders, to the bit.

Source: Qwen3 of transformers 5 (``modeling_qwen3.py``) with its attention by ``scaled_dot_product_attention``.
"""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class _Layer(nn.Module):
    """One layer of the decoder: grouped-query attention with rotary positions, then a gated feed-forward block
    (SwiGLU). Each reads its input through an RMS norm and adds its output to the residual stream."""

    def __init__(self, config: dict[str, Any]):
        """Create the projections and norms. ``config`` is the content of ``config.json`` of a Qwen3 model."""
        super().__init__()
        width, inner, self.size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
        # Heads of queries; heads of keys and values, each of which several query heads share.
        heads, shared = config["num_attention_heads"], config["num_key_value_heads"]
        self.repeats = heads // shared
        # The inputs and outputs of each projection.
        attention = {
            "q_proj": (width, heads * self.size),
            "k_proj": (width, shared * self.size),
            "v_proj": (width, shared * self.size),
            "o_proj": (heads * self.size, width),
        }
        feed_forward = {"gate_proj": (width, inner), "up_proj": (width, inner), "down_proj": (inner, width)}
        self.self_attn, self.mlp = (
            nn.ModuleDict({name: nn.Linear(*sides, bias=False) for name, sides in projections.items()})
            for projections in (attention, feed_forward)
        )
        epsilon = config["rms_norm_eps"]
        self.self_attn.update({name: nn.RMSNorm(self.size, epsilon) for name in ("q_norm", "k_norm")})
        self.input_layernorm = nn.RMSNorm(width, epsilon)
        self.post_attention_layernorm = nn.RMSNorm(width, epsilon)

    def forward(self, x: Tensor, *attention_inputs: Any) -> Tensor:
        """Apply the layer to ``x`` [B, T, width]; returns the same shape. ``attention_inputs`` are the further
        arguments of :meth:`_attend`: ``cos``, ``sin``, ``mask``, ``cached``."""
        x = x + self._attend(self.input_layernorm(x), *attention_inputs)
        normed, mlp = self.post_attention_layernorm(x), self.mlp
        return x + mlp["down_proj"](F.silu(mlp["gate_proj"](normed)) * mlp["up_proj"](normed))

    def _attend(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, cached: list[Tensor] | None) -> Tensor:
        """Compute the attention of ``x`` [B, T, width]; returns the same shape. ``cos`` and ``sin`` are those of the
        rotary angles, [B or 1, 1, T, head_dim]. ``mask`` [B, 1, T, past + T] is True where a token attends to another.
        Without a mask (None) each token attends to itself and all tokens before it; this needs T = 1, or no earlier
        tokens.

        ``cached`` is a list [keys, values] of earlier tokens, empty where there are none; the keys and values of ``x``
        are added to it, in place. None: nothing is cached."""
        own, shape = self.self_attn, (*x.shape[:-1], -1, self.size)
        query = _rotate(own["q_norm"](own["q_proj"](x).view(shape)).transpose(1, 2), cos, sin)
        key = _rotate(own["k_norm"](own["k_proj"](x).view(shape)).transpose(1, 2), cos, sin)
        value = own["v_proj"](x).view(shape).transpose(1, 2)
        if cached is not None:
            if cached:  # earlier tokens come first
                earlier_key, earlier_value = cached
                key, value = torch.cat((earlier_key, key), dim=-2), torch.cat((earlier_value, value), dim=-2)
            cached[:] = [key, value]
        # Several query heads share a key head. Without a mask torch repeats the key heads itself (``enable_gqa``).
        if mask is not None:
            key, value = (states.repeat_interleave(self.repeats, dim=1) for states in (key, value))
        attended = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=self.size**-0.5, is_causal=mask is None and query.shape[2] > 1,
            enable_gqa=mask is None,
        )  # fmt: skip
        return own["o_proj"](attended.transpose(1, 2).contiguous().reshape(*x.shape[:-1], -1).contiguous())


class _Cache:
    """The key-value cache of a batch. ``layers`` has for each layer a list of two tensors, the keys and the values of
    earlier tokens, [B, heads, tokens, head_dim]. The list is empty where nothing is cached yet."""

    def __init__(self, layers: list[list[Tensor]]):
        """Keep the keys and values of each layer."""
        self.layers = layers

    def __len__(self) -> int:
        """The number of cached tokens of each sequence."""
        return self.layers[0][0].shape[-2] if self.layers[0] else 0  # rows of the first layer's keys

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence of the batch ``repeats`` times, in place: sequences a, b become a, a, b, b. The name is
        that of transformers, whose caches are used in the same way."""
        self.layers = [[states.repeat_interleave(repeats, dim=0) for states in layer] for layer in self.layers]


class _Body(nn.Module):
    """The decoder without its output layer: turns tokens into hidden states."""

    frequencies: Tensor

    def __init__(self, config: dict[str, Any]):
        """Create embedding, layers, last norm, and the frequencies of the rotary positions. ``config`` is the content
        of ``config.json`` of a Qwen3 model."""
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"], config["pad_token_id"])
        self.layers = nn.ModuleList([_Layer(config) for _ in range(config["num_hidden_layers"])])
        self.norm = nn.RMSNorm(config["hidden_size"], config["rms_norm_eps"])
        exponents = torch.arange(0, config["head_dim"], 2, dtype=torch.int64).float() / config["head_dim"]
        frequencies = 1.0 / (config["rope_parameters"]["rope_theta"] ** exponents)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None,
        past_key_values: _Cache | None = None, use_cache: bool = False,
    ) -> SimpleNamespace:  # fmt: skip
        """Compute the hidden states of ``input_ids`` [B, T]. Returns an object with ``last_hidden_state`` [B, T, width]
        and ``past_key_values``, the cache of keys and values with those of these tokens added; None without a cache.

        ``past_key_values`` is the cache of earlier tokens, which is extended in place; without one, ``use_cache``
        creates a new one. ``attention_mask`` is True for tokens that are no padding, [B, past + T], or for the tokens
        to which each token attends, [B, 1, T, past + T]. It may be None where there is no padding, and no more than one
        new token or no earlier one. ``position_ids`` [B, T] are by default the positions after the earlier tokens."""
        cache = _Cache([[] for _ in self.layers]) if use_cache and past_key_values is None else past_key_values
        past, width = len(cache) if cache else 0, input_ids.shape[1]
        if position_ids is None:
            position_ids = torch.arange(past, past + width, device=input_ids.device)[None]
        # Rotary angles, [B, T, head_dim]: each position times each frequency, as the matrix product of transformers.
        with torch.no_grad():
            frequencies = self.frequencies[None, :, None].expand(len(position_ids), -1, 1)
            angles = (frequencies @ position_ids[:, None, :].float()).transpose(1, 2)
            angles = torch.cat((angles, angles), dim=-1)
            cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        mask, hidden = _attention_mask(attention_mask, width, past), self.embed_tokens(input_ids)
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, cos, sin, mask, None if cache is None else cache.layers[index])
        return SimpleNamespace(last_hidden_state=self.norm(hidden), past_key_values=cache)


class Decoder(nn.Module):
    """A causal language model with the attributes that transformers gives one: ``model`` turns tokens into hidden
    states, ``lm_head`` hidden states into logits. The embedding and ``lm_head`` share one matrix."""

    def __init__(self, config: dict[str, Any], folder: Path):
        """Create the model without its weights, which are loaded afterwards. ``config`` is the content of
        ``config.json`` in ``folder``, the folder of the model."""
        super().__init__()
        self.folder, self.config = folder, SimpleNamespace(to_dict=lambda: dict(config))  # as transformers has it
        self.model = _Body(config)
        # "meta": without memory for a matrix of its own, since the next line replaces it.
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False, device="meta")
        self.lm_head.weight = self.model.embed_tokens.weight

    @classmethod
    def untrained(cls, folder: Path) -> Self:
        """Create a model with the configuration in ``folder`` and random weights: the same weights as transformers with
        seed 0."""
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        with torch.random.fork_rng(devices=[]):  # the caller's random state is left as it was
            torch.manual_seed(0)
            model = cls(config, folder)
            for module in model.model.modules():
                if isinstance(module, nn.Linear | nn.Embedding):
                    nn.init.normal_(module.weight, 0.0, config["initializer_range"])
            with torch.no_grad():  # the embedding of padding is 0, as in transformers
                model.lm_head.weight[config["pad_token_id"]].zero_()
        return model

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load configuration and weights from a Hugging Face folder, in single precision; the model is in evaluation
        mode."""
        from safetensors.torch import load_file

        model = cls(json.loads((folder / "config.json").read_text(encoding="utf-8")), folder)
        weights = load_file(folder / "model.safetensors")
        model.load_state_dict(weights | {"lm_head.weight": weights["model.embed_tokens.weight"]})
        return model.eval()

    def save_pretrained(self, folder: Path) -> None:
        """Write the weights and the configuration to a Hugging Face folder, in the files that transformers writes."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: parameter.detach().contiguous().cpu() for name, parameter in self.named_parameters()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        if folder != self.folder:
            for name in ("config.json", "generation_config.json"):
                shutil.copyfile(self.folder / name, folder / name)


def _attention_mask(mask: Tensor | None, width: int, past: int) -> Tensor | None:
    """Turn the caller's mask into the mask of attention, [B, 1, T, past + T], which is True where a token attends to
    another. Returns None where torch needs no mask, because every token attends to itself and to all before it.

    ``width`` is T, the number of new tokens, ``past`` that of earlier ones. ``mask`` [B, past + T] is True for tokens
    and False for padding. A mask of four dimensions is a mask of attention already, and returned unchanged; so is None,
    by which the caller says that torch needs no mask: it must not be None for several new tokens behind earlier ones.
    """
    if mask is None or mask.ndim == 4:
        return mask
    # Without padding a single new token attends to everything, and several without earlier ones attend as torch's own
    # causal mask says. With earlier ones that mask would be wrong: it lets the first new token see only the first key.
    only_padding_needs_mask = width == 1 or past == 0
    if only_padding_needs_mask and bool(mask.all()):
        return None
    causal = torch.ones(width, past + width, dtype=torch.bool, device=mask.device).tril(past)
    return causal & mask[:, None, None, :]


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary position embeddings to ``x`` [B, heads, T, head_dim]; ``cos`` and ``sin`` are those of the
    angles. Features k and k + head_dim / 2 are rotated as a pair."""
    half = x.shape[-1] // 2
    # In this order: the gradients of ``x`` are summed in the order of its uses, which has to be that of transformers.
    return (x * cos) + (torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin)
