"""Settings of the engine verl: placement of the trainer, of its rollout servers, and of the frozen server."""

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from .section import Section, key


class FrozenServer(Section):
    beside: bool = key(False, paper="co-located on the same two devices via separate GPU memory budget")
    """Start vLLM with the run and end it with the run, on the training GPUs of the machine where the run starts; it
    takes the share `memory` of each."""
    command: str = key("vllm")
    """How `beside` calls vLLM; a path where it is installed in another environment (as with SGLang rollouts)."""
    url: str | None = key(None, paper="hosted by a separate vLLM server ... and frozen for the entire run")
    """OpenAI-compatible server of the frozen initial policy (`http://HOST:PORT/v1` or `unix:/PATH`) that answers token
    prompts, as vLLM does; empty: as `beside` says, or verl starts one on a further GPU."""
    name: str | None = key(None, "Name of the model on that server; empty: the folder `policy.model`.")
    memory: float = key(0.2, ge=0, lt=1)
    """Share of every training GPU's memory that a server at `url` or `beside` takes there; 0: it runs elsewhere."""
    at_once: PositiveInt = key(256, "Requests that are open at a server at `url` or `beside` at the same time.")


class Verl(Section):
    nodes: PositiveInt = key(1, "Machines.")
    gpus_per_node: PositiveInt = key(2, "GPUs of each.", paper="on 2 NVIDIA H20 GPUs")
    gpu_memory_gb: PositiveFloat = key(96.0, paper="NVIDIA H20 GPUs")
    """Memory of one GPU in GB (an H20 has 96), against which the plan is checked. The estimate of time takes the speed
    of the card nearest in size: RTX 4090, A100 (40 GB), H100 (80 GB), H20."""
    attention: Literal["flash_attention_2", "sdpa"] = key("flash_attention_2", paper="FlashAttention-2")
    """Attention of the trained model."""
    offload: bool = key(False, "Keep weights and optimiser state in main memory while the GPU serves rollouts.")
    lora_rank: NonNegativeInt = key(0, "Rank and scale of LoRA adapters; 0: all weights are trained.")
    rollout: Literal["vllm", "sglang", "cpu", "vllm_cpu"] = key("sglang", paper="Rollouts are served by SGLang")
    """Server of the trained policy. Without a GPU, for small proofs: `cpu`, our own sampler, or `vllm_cpu`."""
    rollout_memory: float = key(0.4, "Share of a GPU's memory that the rollout server takes.", gt=0, lt=1)
    tensor_parallel: PositiveInt = key(2, "GPUs of one rollout server.", paper="a tensor-parallel size of 2")
    quantization: Literal["none", "fp8"] = key("fp8", paper="SGLang with FP8 quantization")
    """Number format of rollouts; training is never quantised."""
    correction: Literal["off", "token", "sequence"] = key("token", decision="D25")
    """Truncated importance sampling between the rollout server's probabilities and the trainer's: per token, per
    sequence, or off. Without it accuracy suffers under FP8."""
    frozen: FrozenServer = Field(default_factory=FrozenServer, description="Who continues counterfactual workups.")

    @property
    def without_gpu(self) -> bool:
        """Whether trainer and servers run on CPUs."""
        return self.rollout in ("cpu", "vllm_cpu")

    @property
    def gpus_of_node(self) -> int:
        """GPUs of one machine: those that train, and that of a frozen server that verl starts."""
        return self.gpus_per_node + (0 if self.frozen.url or self.frozen.beside else 1)

    @property
    def server(self) -> str:
        """verl's name of the rollout server."""
        return self.rollout.removesuffix("_cpu")
