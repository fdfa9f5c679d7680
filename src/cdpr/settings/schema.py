"""The settings of the whole pipeline, with types, defaults and descriptions. An unknown key is an error.

The description of a setting says what it does; ``paper`` quotes the sentence of the paper that it comes from,
``decision`` names the open question of ``docs/deviations.md`` that it answers. The JSON schema and ``config/README.md``
are generated from here (``cdpr config --write``). ``config.yaml`` sets what the demo changes.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic.types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from .algorithms import check_algorithm
from .credit import Comparators, Credit
from .datasets import Data, Governance
from .experiments import AGENTS_FILE, FILE, AgentEntry, Experiments, Frameworks
from .judging import Judge, Matcher
from .models import MODELS_FILE, Calls, ModelEntry, Serving
from .runs import check_name
from .section import Section, key, weight

MOST_METHODS = 8  # that the expert study can compare


class Paths(Section):
    """The folders to which the pipeline writes."""

    results: str = key("results", "All results.")
    state: str = key("state", "Unfinished work: checkpoints and caches.")


class HospitalSettings(Section):
    """Settings of the synthetic hospital, which replaces real data: the seed and the numbers of its cases."""

    seed: int = key(11, "Seed of its patients; the demo was tuned on those of seed 7.")
    mimic_patients: PositiveInt = key(7300, "Patients behind the MIMIC-format files; some have several admissions.")
    textbook_cases: PositiveInt = key(18000, "Cases of the textbook that the tiny policy reads before it is trained.")
    clinicalbench_cases: PositiveInt = key(600, "Cases in ClinicalBench format.", paper="Datasets: 1,500 real cases")
    private_cases: PositiveInt = key(500, "Cases in the private-hospital format.", paper="952 inpatient cases")


class Costs(Section):
    """Settings of how examinations are priced, in US dollars."""

    #: `corrected`: the shipped catalogue; `paper_prices`: first those of the paper's sample record.
    price_map: Literal["corrected", "paper_prices"] = key("corrected", paper="appendix, Unified examination cost")
    #: Where procedures are done: in a hospital's outpatient department (OPPS), or in a physician's office (PFS,
    #: non-facility) where that has a rate.
    place_of_service: Literal["outpatient", "office"] = key("outpatient", decision="D15b")
    #: Price of an examination without code and class.
    fallback_usd: float = key(5.0, ge=0, lt=1e6, paper="sample record: unmapped items cost 5.00")
    #: Whether an examination without a code has the median price of its class (a biopsy that of biopsies); `false`: the
    #: fallback price.
    class_rates: bool = key(True, decision="D15a")
    #: Price of a billing group whose members differ: the highest, the sum, or the first.
    group_price: Literal["max", "sum", "first"] = key("max", decision="D15")


class Prompt(Section):
    """Settings of how the state of a case is written as a prompt for the policy."""

    #: `full`: the paper's prompt; `compact`: the same grammar in few tokens.
    style: Literal["compact", "full"] = key("compact", paper="appendix, Prompt Templates")
    differential: NonNegativeInt = key(0, "Diagnoses that a compact reply lists with their shares, before its order.")
    common_diagnoses: bool = key(True, "Whether the full prompt lists 17 common diagnoses.", decision="D19")
    max_observation_chars: PositiveInt = key(4000, "Longer results are cut in the middle, and counted.")


class Tests(Section):
    """Settings of which examinations the utility counts, each at a price."""

    #: What N_tests counts: examinations that gave a result, or every parsed request.
    count: Literal["available", "issued"] = key("available", decision="D13")
    count_physical: bool = key(False, "Whether items of the (free) physical examination count too.", decision="D13")


class Environment(Section):
    """The rules of an episode, in which a policy requests examinations of a patient and ends with a diagnosis."""

    #: Assistant turns before a diagnosis is forced.
    max_turns: PositiveInt = key(8, paper="multi-turn rollouts capped at 8 assistant turns per trajectory")
    #: Whether the forced diagnosis is the last of `max_turns` or comes after them.
    forced_turn: Literal["within", "extra"] = key("within", decision="D16")
    #: Most that a workup may cost; empty: no limit. A request beyond it is refused and a diagnosis forced.
    budget_usd: float | None = key(None, paper="the cumulative monetary budget is strictly enforced", decision="D14")
    #: Similarity (0 to 100) from which a misspelt examination matches; 100: never.
    fuzzy_cutoff: float = key(92.0, decision="D17", ge=0, le=100)
    prompt: Prompt = Field(default_factory=Prompt, description="How a state is shown to the policy.")
    tests: Tests = Field(default_factory=Tests, description="What counts as an examination.")


class TinyModel(Section):
    """The size of the tiny policy, a decoder that the demo trains from scratch on a laptop."""

    hidden_size: PositiveInt = key(128, "Width.")
    layers: PositiveInt = key(2, "Transformer blocks.")
    heads: PositiveInt = key(4, "Query heads.")
    kv_heads: ClassVar[int] = 1  # for all queries: the cache of keys and values takes more memory than the weights
    intermediate_size: PositiveInt = key(384, "Width of the feed-forward layer.")
    vocab_size: int = key(2400, "Tokens of the byte-level BPE trained on the corpus.", gt=300)


class Policy(Section):
    """Settings of the policy that is trained, and of the lengths of its prompts and replies."""

    #: `tiny`: built here from a configuration; otherwise a Hugging Face folder.
    model: str = key("tiny", paper="initialized from Qwen3-4B-Instruct-2507", is_path=True)
    #: Arguments of its chat template: `{enable_thinking: false}` for Qwen3, which otherwise thinks for longer than a
    #: turn. Models of `workflow/models.yaml` have their own in `extra`.
    chat_template_kwargs: dict[str, Any] = key({})
    tiny: TinyModel = Field(default_factory=TinyModel, description="The embedded policy.")
    #: Whether the model of a folder imitates simulated clinicians first, as `tiny` always does; only on synthetic
    #: cases.
    warm_start: bool = key(False)
    #: Where the torch trainer and evaluation compute; `auto`: a real model on the GPU if there is one, `tiny` on the
    #: CPU.
    device: Literal["auto", "cpu", "cuda"] = key("auto")
    max_prompt_tokens: PositiveInt = key(2048, "Longest initial prompt.", paper="maximum prompt length of 2048 tokens")
    #: Tokens of all turns and observations; a diagnosis is forced while a whole turn is left.
    max_response_tokens: PositiveInt = key(4096, paper="a maximum response length of 4096 tokens", decision="D16b")
    max_turn_tokens: PositiveInt = key(16, "Tokens of one assistant turn.")

    @property
    def warm_started(self) -> bool:
        """Whether reinforcement learning starts from a policy that has imitated clinicians (stage
        ``warm_start_policy``), instead of from the model itself."""
        return self.model == "tiny" or self.warm_start

    @model_validator(mode="after")
    def _check_room(self) -> Self:
        """Return the settings unchanged. Raises ValueError where a response has no room for a request and a
        diagnosis."""
        if self.max_response_tokens < 2 * self.max_turn_tokens:
            response = f"max_response_tokens ({self.max_response_tokens})"
            turn = f"max_turn_tokens ({self.max_turn_tokens})"
            raise ValueError(f"{response} holds fewer than two turns of {turn}: no examination could be requested")
        return self


class WarmStart(Section):
    """Settings of the supervised training before reinforcement learning, in which the policy imitates simulated
    clinicians."""

    cases: NonNegativeInt = key(6000, "Training cases with demonstrations; the others are for reinforcement learning.")
    #: Whether the policy also learns from textbook cases, and the likeliest diagnosis at every state; empty: only
    #: `tiny` does.
    textbook: bool | None = key(None)
    #: Share of demonstrations that show the whole record at once.
    static_share: float = key(0.03, decision="D20", ge=0, le=1)
    names: Literal["likeliest", "true"] = key("likeliest", "Which disease the diagnoses of demonstrations name.")
    epochs: PositiveInt = key(3, "Passes over the demonstrations.")
    threads: PositiveInt = key(2, "Torch threads.")
    batch_size: PositiveInt = key(16, "Demonstrations a step.")


class Utility(Section):
    """The weights of the utility of an episode: correctness of the diagnosis minus weighted counts of examinations,
    costs and failed requests. Each weight declares its term."""

    #: Price of one examination.
    lambda_test: NonNegativeFloat = weight(0.05, "tests", paper="lambda_test = 0.05")
    #: Price of one cost unit.
    lambda_cost: NonNegativeFloat = weight(
        0.02, "cost_usd", symbol="cost", unit="cost_unit_usd", paper="lambda_cost = 0.02"
    )
    #: Price of one unavailable or unparsable request.
    lambda_na: NonNegativeFloat = weight(0.10, "infeasible", symbol="N_na", paper="lambda_na = 0.10")
    #: US dollars in one cost unit; at 1 the optimum is never to test (docs/deviations.md).
    cost_unit_usd: PositiveFloat = key(1.0, decision="D10")


class FrozenServer(Section):
    """Settings of the server of the frozen initial policy, which samples the continuations of counterfactual actions
    when verl trains."""

    #: Start vLLM with the run on the training GPUs of its first machine, with the share `memory` of each.
    beside: bool = key(False, paper="co-located on the same two devices via separate GPU memory budget")
    command: str = key("vllm", "How `beside` calls vLLM; a path if it is in another environment.")
    #: OpenAI-compatible server of the frozen policy (`http://HOST:PORT/v1`, `unix:/PATH`) that takes token prompts, as
    #: vLLM does; empty: `beside`, or verl starts one on a further GPU.
    url: str | None = key(None, paper="hosted by a separate vLLM server ... and frozen for the entire run")
    name: str | None = key(None, "Its name on that server; empty: `policy.model`.")
    memory: float = key(0.2, "Share of every training GPU's memory that it takes; 0: it runs elsewhere.", ge=0, lt=1)
    at_once: PositiveInt = key(256, "Most simultaneous requests to this server.")
    #: Replicas behind `url` (`--data-parallel-size` of vLLM); all requests of a case go to one of them. `beside` has
    #: one on every GPU.
    replicas: PositiveInt = key(1)


class Verl(Section):
    """Settings of the training engine verl: machines, memory, servers, and how it trains and samples."""

    nodes: PositiveInt = key(1, "Machines.")
    gpus_per_node: PositiveInt = key(2, "GPUs of each.", paper="on 2 NVIDIA H20 GPUs")
    #: Memory of one GPU in GB, for the plan, which takes the speed of the card nearest in size: RTX 4090, A100 (40 GB),
    #: H100 (80 GB), H20 (96 GB).
    gpu_memory_gb: PositiveFloat = key(96.0, paper="NVIDIA H20 GPUs")
    #: Attention of the trained model.
    attention: Literal["flash_attention_2", "sdpa"] = key("flash_attention_2", paper="FlashAttention-2")
    offload: bool = key(False, "Keep weights and optimiser state in main memory during rollouts.")
    lora_rank: NonNegativeInt = key(0, "Rank and scale of LoRA adapters; 0: all weights are trained.")
    #: Server of the trained policy. Without a GPU: `cpu`, our own sampler, or `vllm_cpu`.
    rollout: Literal["vllm", "sglang", "cpu", "vllm_cpu"] = key("sglang", paper="Rollouts are served by SGLang")
    rollout_memory: float = key(0.4, "Share of a GPU's memory for the rollout server.", gt=0, lt=1)
    tensor_parallel: PositiveInt = key(2, "GPUs of one rollout server.", paper="a tensor-parallel size of 2")
    #: Number format of rollouts.
    quantization: Literal["none", "fp8"] = key("fp8", paper="SGLang with FP8 quantization")
    #: Truncated importance sampling between rollout server and trainer, per token or sequence.
    correction: Literal["off", "token", "sequence"] = key("token", decision="D25")
    frozen: FrozenServer = Field(default_factory=FrozenServer, description="Who continues counterfactual workups.")

    @property
    def without_gpu(self) -> bool:
        """Whether trainer and rollout server run on CPUs."""
        return self.rollout in ("cpu", "vllm_cpu")

    @property
    def gpus_of_node(self) -> int:
        """The number of GPUs of one machine: those that train, and one more if verl starts the server of the frozen
        policy."""
        verl_starts_server = not (self.frozen.url or self.frozen.beside)
        return self.gpus_per_node + (1 if verl_starts_server else 0)

    @property
    def server(self) -> str:
        """The name of the rollout server in verl's own configuration."""
        return self.rollout.removesuffix("_cpu")


class Training(Section):
    """Settings of reinforcement learning: algorithm, batches, optimiser and engine."""

    #: How episodes become advantages: a file in `cdpr/training/algorithms`, or an import path (`my_package.my_rule`).
    algorithm: Annotated[str, AfterValidator(check_algorithm)] = key("cdpr")
    options: dict[str, Any] = key({}, "Settings of this algorithm alone.")
    group_size: PositiveInt = key(4, "n: trajectories per case.", paper="n=4 rollouts per prompt")
    prompts_per_batch: PositiveInt = key(16, "Cases per iteration.", paper="a global training batch of 16 prompts")
    steps: int | None = key(100, "Optimiser iterations; empty: as many as `epochs` gives.", gt=0)
    epochs: PositiveInt = key(3, "Passes over the training cases when `steps` is empty.", paper="We run 3 epochs")
    learning_rate: PositiveFloat = key(5e-6, "Learning rate of the actor.", paper="learning rate 5e-6")
    schedule: Literal["constant", "cosine"] = key("constant", "The learning rate over the run; `cosine` falls to 0.")
    #: Adam's epsilon, for all models that learn. With a small one, tokens that no training case has move as others do.
    adam_epsilon: PositiveFloat = key(1e-8, decision="epsilon of Adam")
    mini_batch_prompts: PositiveInt = key(16, "Cases per optimiser step.", paper="a PPO mini-batch of 16")
    #: Trajectories of one forward and backward pass; for memory and speed only.
    micro_batch: PositiveInt = key(8, paper="a per-GPU PPO micro-batch of 8")
    inner_epochs: PositiveInt = key(1, "Passes over a batch.", paper="a single PPO inner epoch")
    #: `token_mean`: verl's default; `sequence_sum`: the sum over t of the paper's equation.
    loss_aggregation: Literal["token_mean", "sequence_sum"] = key("token_mean", decision="loss aggregation")
    #: Entropy bonus: how much a nat of the policy's mean entropy lowers the loss.
    entropy_weight: NonNegativeFloat = key(0.0, decision="entropy bonus")
    temperature: PositiveFloat = key(1.0, "Sampling temperature of rollouts.")
    #: What the group-centred score is divided by.
    normalise: Literal["group_std", "none"] = key("group_std", paper="Group-relative Advantage")
    save_every: PositiveInt = key(200, "Iterations between checkpoints.", paper="every 200 optimizer steps")
    validate_every: PositiveInt = key(200, "Iterations between validations.", paper="every 200 optimizer steps")
    threads: PositiveInt = key(1, "Torch threads of each training process on a CPU.")
    #: `torch` trains in this process, `verl` on GPUs with rollout servers (docs/design/verl.md).
    engine: Literal["torch", "verl"] = key("torch", paper="We base our implementation on the verl framework")
    verl: Verl = Field(default_factory=Verl, description="The engine `verl`.")


class OpenCases(Section):
    """Settings of the evaluation on openly licensed data sets (role ``further``), which have a table of their own."""

    cases: PositiveInt | None = key(20, "Cases of each data set; empty: all.")
    trained: bool = key(False, "Whether trained policies are evaluated too.")


class Evaluation(Section):
    """Settings of how agents are evaluated on the benchmarks."""

    #: Decodings that are evaluated; the main table shows the first.
    decodings: list[Literal["greedy", "sampled"]] = key(["greedy", "sampled"], decision="D16a", min_length=1)
    #: Tokens of one turn of a model of `workflow/models.yaml`, unless its entry sets more.
    max_turn_tokens: PositiveInt = key(512, decision="D29")
    partial: bool = key(False, "Make tables and figures from the results that exist, and label what is missing.")
    bootstrap: PositiveInt = key(2000, "Resamples of every bootstrap interval.")
    seed: int = key(0, "Seed of sampled decoding and of resampling.")
    open_cases: OpenCases = Field(default_factory=OpenCases, description="Target `open_cases`.")


class Tracking(Section):
    """The setting of the index of all runs in MLflow."""

    #: Index runs in MLflow: in `mlflow.db` under the results, not at all, or at the address of a server.
    mlflow: bool | str = key(True)


class Analysis(Section):
    """Settings of the measurement of credit quality: how close the advantages of an algorithm come to the true ones."""

    cases: PositiveInt = key(12, "Validation cases, one group of episodes each.")
    truth: int = key(256, "Whole continuations of every state for the true advantage.", gt=1)
    replicates: int = key(4, "Repetitions of every estimate.", gt=1)


class Inspector(Section):
    """Settings of the inspector, a page that shows single decisions of chosen runs."""

    #: Its runs: `VARIANT-seedN`, or an agent of `workflow/agents.yaml`; decisions of our own policies are credited.
    runs: list[str] = key(
        ["cdpr-seed0", "grpo-seed0", "utility_grpo-seed0", "warm_start", "value_of_information"], min_length=1
    )
    cases: PositiveInt = key(40, "Test cases of each data set whose decisions are credited, spread over the diseases.")
    credentialed: bool = key(False, "Whether texts of credentialed cases are shown instead of pseudonyms.")


def _check_pseudonym(name: str) -> str:
    """Return the pseudonym of a rater unchanged. Raises ValueError where it is not safe as the name of a file."""
    if not (name.isascii() and name.isalnum()):
        raise ValueError(f"{name!r} is no pseudonym: letters and digits alone, for it becomes a file's name")
    return name


Pseudonym = Annotated[str, AfterValidator(_check_pseudonym)]


class Study(Section):
    """Settings of the study in which physicians rate single decisions of several agents."""

    #: Decision states sampled from each test set, stratified by turn.
    states: PositiveInt = key(100, paper="we randomly sampled 100 intermediate decision states")
    source: str = key("warm_start", "Whose workups the states come from: a variant or an agent.", decision="D35")
    #: Whose decisions are rated, ours first: variants (their first seed) and agents. Tables say which could not be run.
    methods: list[str] = key(
        ["cdpr", "gpt_5_4", "qwen3_32b", "med_gemma_27b", "mdagent"],
        paper="all five compared methods (CDPR, GPT-5.4, Qwen3-32B, Med-Gemma-27B, MDAgent)",
        min_length=1,
        max_length=MOST_METHODS,
    )
    #: Pseudonyms of the raters, one form each.
    raters: list[Pseudonym] = key(["R1", "R2", "R3"], paper="three board-certified physicians", min_length=1)
    merge_identical: bool = key(True, "Rate equal proposals at a state once, for all methods.", decision="D36")
    seed: int = key(0, "Seed of sample, orders and codes. With physicians set a number that none of them knows.")
    #: Folder with the returned forms; empty: simulated raters for synthetic cases.
    ratings: str | None = key(None, is_path=True)
    #: Copy of `results/study` from when the forms were handed out; the analysis reads states, forms and key there.
    kept: str | None = key(None, is_path=True)
    allow_missing: bool = key(False, "Analyse although ratings are missing; tables say how many.")
    permutations: NonNegativeInt = key(5000, "Sign flips of the permutation test.")

    @field_validator("methods", "raters")
    @classmethod
    def _check_unique(cls, names: list[str]) -> list[str]:
        """Return the names of the compared methods, or of the raters, unchanged. Raises ValueError where one occurs
        twice."""
        if len(set(names)) < len(names):
            raise ValueError("a name occurs twice")
        return names


REGISTRIES = {"experiments": FILE, "agents": AGENTS_FILE, "models": MODELS_FILE}
"""Sections with a file of their own in a checkout (:func:`cdpr.settings.load.parse_settings` reads it)."""


class Settings(Section):
    """All settings of the pipeline."""

    # By identity, which is fast: planning asks caches for the same variants of the same settings hundreds of times.
    __hash__ = object.__hash__

    #: Scale of the run, printed in every figure and table.
    tier: Literal["demo", "miniature", "small_gpu", "paper"] = key("demo")
    seeds: list[int] = key([0, 1, 2, 3, 4], "Training seeds; a variant may train with the first few.", min_length=1)
    paths: Paths = Field(default_factory=Paths, description="Where results go.")
    data: Data = Field(default_factory=Data, description="Where cases and prices come from.")
    governance: Governance = Field(default_factory=Governance, description="What may leave the machine.")
    hospital: HospitalSettings = Field(default_factory=HospitalSettings, description="The synthetic hospital.")
    costs: Costs = Field(default_factory=Costs, description="Prices.")
    environment: Environment = Field(default_factory=Environment, description="The decision process.")
    judge: Judge = Field(default_factory=Judge, description="Who judges diagnoses.")
    matcher: Matcher = Field(default_factory=Matcher, description="Who finds the examination that a request names.")
    policy: Policy = Field(default_factory=Policy, description="The acting model.")
    warm_start: WarmStart = Field(default_factory=WarmStart, description="Supervised start of the policy.")
    utility: Utility = Field(default_factory=Utility, description="U, equation 'utility'.")
    training: Training = Field(default_factory=Training, description="GRPO.")
    credit: Credit = Field(default_factory=Credit, description="The counterfactual process reward.")
    comparators: Comparators = Field(default_factory=Comparators, description="Other ways to assign credit.")
    evaluation: Evaluation = Field(default_factory=Evaluation, description="Benchmarks.")
    #: What is trained, with which seeds, and the table or figure that shows it.
    experiments: Experiments = Field(default_factory=Experiments)
    #: Who is compared beside what is trained.
    agents: dict[Annotated[str, AfterValidator(check_name)], AgentEntry] = Field(default_factory=dict)
    models: dict[str, ModelEntry] = Field(default_factory=dict, description="Language models that agents act by.")
    serving: Serving = Field(default_factory=Serving, description="Servers that jobs start for language models.")
    calls: Calls = Field(default_factory=Calls, description="Calls of language models that are not trained here.")
    frameworks: Frameworks = Field(default_factory=Frameworks, description="Published agents of several calls.")
    analysis: Analysis = Field(default_factory=Analysis, description="Target `credit_quality`.")
    inspector: Inspector = Field(default_factory=Inspector, description="Target `inspector`.")
    study: Study = Field(default_factory=Study, description="The expert study of single decisions.")
    tracking: Tracking = Field(default_factory=Tracking, description="MLflow.")

    @property
    def key_names(self) -> set[str]:
        """The environment variables that may hold the API key of any model in ``workflow/models.yaml``."""
        return {name for entry in self.models.values() for name in entry.key_names}
