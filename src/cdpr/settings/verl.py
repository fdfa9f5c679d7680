"""Settings of the engine for models that outgrow the torch trainer: verl, its rollout servers, and the frozen server
beside them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from .section import Section, Share, key


class FrozenServer(Section):
    beside: bool = key(False, paper="co-located on the same two devices via separate GPU memory budget")
    """Start vLLM with the run and end it with the run, on the training GPUs of the machine where the run starts; it
    takes the share `memory` of each."""
    command: str = key("vllm")
    """How `beside` calls vLLM; a path where it is installed in another environment (as with SGLang rollouts)."""
    url: str | None = key(
        None,
        paper="hosted by a separate vLLM server initialized from the same Qwen3-4B-Instruct-2507 weights and frozen "
        "for the entire run",
    )
    """OpenAI-compatible server of the frozen initial policy (`http://HOST:PORT/v1` or `unix:/PATH`) that answers token
    prompts, as vLLM does; empty: as `beside` says, or verl starts one on `gpus` GPUs of its own."""
    name: str | None = key(None, "Name of the model on that server; empty: the folder `policy.model`.")
    gpus: PositiveInt = key(1, "GPUs of a frozen server that verl starts; used with neither `url` nor `beside`.")
    memory: float = key(0.2, ge=0, lt=1)
    """Share of every training GPU's memory that a server at `url` or `beside` takes there; 0: it runs elsewhere."""
    tensor_parallel: PositiveInt = key(1)
    """GPUs over which a server beside the trainer spreads its weights; the GPUs of the machine hold as many copies as
    that allows (data parallelism)."""
    retries: NonNegativeInt = key(10)
    """Further tries of a request that a server at `url` or `beside` did not answer, after 1, 2, 4 ... 30 seconds."""
    at_once: PositiveInt = key(256, "Requests that are open at a server at `url` or `beside` at the same time.")


class Verl(Section):
    device: Literal["gpu", "cpu"] = key("gpu")
    """Where the policy is trained and served; `cpu`: small proofs without a GPU. `rollout: cpu` is one in any case."""
    nodes: PositiveInt = key(1, "Machines.")
    gpus_per_node: PositiveInt = key(2, "GPUs of each.", paper="on 2 NVIDIA H20 GPUs")
    gpu_memory_gb: PositiveFloat = key(96.0, paper="NVIDIA H20 GPUs")
    """Memory of one GPU in GB (an H20 has 96); the plan is held against it."""
    gpu_tflops: PositiveFloat = key(148.0, paper="NVIDIA H20 GPUs")
    """Dense bfloat16 arithmetic of one GPU in TFLOP/s, from its data sheet (H20 148, A100 312, H100 989); for the
    estimate of time only."""
    gpu_bandwidth_gb_s: PositiveFloat = key(4000.0, paper="NVIDIA H20 GPUs")
    """Memory bandwidth of one GPU in GB/s, from its data sheet (H20 4000, A100 2039, H100 3350); for the estimate of
    time only."""
    strategy: Literal["fsdp", "fsdp2"] = key("fsdp", paper="bfloat16 parameters with FSDP")
    """How the trained model is spread over GPUs."""
    gradient_checkpointing: bool = key(True, paper="gradient checkpointing")
    """Recompute activations in the backward pass."""
    attention: Literal["flash_attention_2", "sdpa"] = key("flash_attention_2", paper="FlashAttention-2")
    """Attention of the trained model."""
    chunked_logits: bool = key(True)
    """Project on the vocabulary in chunks of 512 tokens, so that a micro-batch never holds all of its logits. Equal but
    for the last digits in float32; in bfloat16 the gradient of the embedding is summed chunk by chunk, with a relative
    error of 0.7% where the whole sum has 0.3%."""
    offload: bool = key(False, "Keep weights and optimiser state in main memory while the GPU serves rollouts.")
    lora_rank: NonNegativeInt = key(0, "Rank of LoRA adapters; 0: all weights are trained.")
    lora_alpha: PositiveInt = key(32, "Scale of LoRA adapters.")
    rollout: Literal["vllm", "sglang", "cpu"] = key(
        "sglang", paper="Rollouts are served by SGLang ..., asynchronous mode"
    )
    """Server of the trained policy; `cpu`: our own sampler, for small proofs without a GPU."""
    rollout_memory: float = key(0.4, "Share of a GPU's memory that the rollout server takes.", gt=0, lt=1)
    tensor_parallel: PositiveInt = key(2, "GPUs of one rollout server.", paper="a tensor-parallel size of 2")
    quantization: Literal["none", "fp8"] = key("fp8", paper="SGLang with FP8 quantization")
    """Number format of rollouts; training is never quantised."""
    correction: Literal["off", "token", "sequence"] = key("token", decision="D25")
    """Truncated importance sampling between the rollout server's probabilities and the trainer's: per token, per
    sequence, or off. Without it accuracy suffers under FP8."""
    correction_limit: float = key(2.0, "Largest importance weight.", decision="D25", gt=1)
    timeout_s: PositiveFloat = key(600.0, "Seconds that one call of a model may take before its episode fails.")
    max_failed: Share = key(0.1)
    """Share of failed episodes or continuations in a step from which the run stops, its state saved."""
    frozen: FrozenServer = Field(default_factory=FrozenServer, description="Who continues counterfactual workups.")

    @property
    def without_gpu(self) -> bool:
        return self.device == "cpu" or self.rollout == "cpu"
