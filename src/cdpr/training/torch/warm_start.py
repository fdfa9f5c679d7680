"""Warm start of a policy by imitation: it learns the grammar of actions, medicine, and the habits of simulated
clinicians.

A policy with random weights never writes a valid action, and a small instruction-tuned model does so unreliably, so
reinforcement learning could not start from them. The paper starts from a model that writes valid actions.
"""

import itertools
import math
import random
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch

from ...agents.reference import Clinician
from ...cases import CaseRecord, iterate_records
from ...credit.belief import true_names
from ...environment import DiagnosticEnvironment, PromptBuilder, State, Trajectory, Turn, run_episode
from ...environment.prompt import observation_text, opening_messages, opening_text
from ...environment.state import FinalDiagnosis, Observation, RequestTest, Step, parse_action, render_action
from ...job import Job
from ...llm import device_of, run_async
from ...llm.tokenizer import ChatTokenizer
from ...metrics_log import MetricsLog
from ...seeding import derive_seed
from ...settings import IN_DOMAIN, LESSONS, Settings
from ..training_run import MAX_GRAD_NORM, METRICS, Log
from .optimisers import MuonAndAdamW, warmup_and_cosine
from .tiny import build_tiny_policy
from .update import Segment, token_logprobs
from .weights import load_checkpoint, load_model, save_checkpoint, save_policy

_SEED, _WARMUP = 0, 50  # the seed of the order of batches; the number of steps in which the learning rate rises
_MUON_RATE = 0.02  # peak learning rate of the tiny policy's hidden matrices
# Peak learning rates of the tiny policy's other weights, and of all weights of a policy from a folder.
_TINY_ADAM_RATE, _FOLDER_ADAM_RATE = 5e-3, 2e-4


#: A row for :func:`token_logprobs`: a conversation, and the diagnoses that branch off from it.
Demonstration = Sequence[Segment]


@dataclass(frozen=True)
class DemonstratedEpisode:
    """An episode that a simulated clinician ran. ``diagnoses`` has for each of its states the reply with the diagnosis
    that the clinician would give if it had to decide there; empty where such replies were not requested.
    ``differentials`` has for each of its replies the first line, which lists the likeliest diagnoses
    (:func:`~cdpr.environment.state.render_differential`)."""

    trajectory: Trajectory
    diagnoses: tuple[Turn, ...]
    differentials: tuple[str, ...]


class Lessons(NamedTuple):
    """What a policy imitates: ``episodes`` of simulated clinicians, and ``whole_records``, pairs of a case and the
    reply in which a clinician who saw all results of its record gave the diagnosis."""

    episodes: Sequence[DemonstratedEpisode]
    whole_records: Sequence[tuple[CaseRecord, Turn]]


def warm_start_policy(settings: Settings, job: Job) -> None:
    """Stage ``warm_start_policy``: train a policy to imitate simulated clinicians on in-domain cases, and write it as a
    Hugging Face folder. With ``warm_start.textbook`` (default: for the tiny policy only) it also learns from a
    textbook: synthetic cases in the names and layouts of all hospitals. The tiny policy and its tokenizer are built
    first; any other policy is read from a folder.

    A killed run resumes after its last finished epoch. The metrics have a row per epoch with the loss, and in each row
    the clinicians' accuracy for comparison.
    """
    torch.set_num_threads(settings.warm_start.threads)
    lessons = gather_lessons(settings, job.inputs)
    _teach(settings, lessons, job.inputs.get("model"), job.out["policy"], job.state)
    shutil.copyfile(job.state / METRICS, job.out["metrics"])


def warm_start(cases: Iterable[CaseRecord], folder: Path, settings: Settings | None = None) -> Path:
    """Train a policy to imitate simulated clinicians on all of ``cases``, which are of the synthetic hospital; writes
    it to ``folder`` as a Hugging Face folder, and returns ``folder``. Unfinished work is in FOLDER.state, from which
    the same call resumes after a kill.

    The policy is the tiny one unless ``policy.model`` names a folder. Without ``settings`` the defaults are used.
    Raises KeyError for cases of another hospital, whose diseases the clinicians do not know. Source:
    docs/deviations.md, D20.
    """
    settings = settings or Settings()
    by_dataset: dict[str, list[CaseRecord]] = defaultdict(list)
    for case in cases:
        by_dataset[case.dataset].append(case)
    state = folder.with_name(f"{folder.name}.state")
    _teach(settings, _demonstrate_datasets(settings, by_dataset), Path(settings.policy.model), folder, state)
    return folder


def _teach(settings: Settings, lessons: Lessons, model: Path | None, folder: Path, state: Path) -> None:
    """Train a policy on ``lessons`` and write it to ``folder``. The policy is a new tiny one if ``policy.model`` is
    ``tiny`` or ``model`` is None, else the one in the folder ``model``. ``state`` is the folder of unfinished work."""
    tiny = settings.policy.model == "tiny"
    if tiny or model is None:
        corpus = tokenizer_corpus(settings, lessons)  # texts for its tokenizer
        initial = build_tiny_policy(state / "initial", settings.policy.tiny, corpus)
    else:
        initial = Path(model)
    demonstrations = encode_lessons(settings, initial, lessons)
    trained = load_model(initial, device_of(settings.policy), tiny)
    accuracy = sum(episode.trajectory.correct for episode in lessons.episodes) / len(lessons.episodes)
    append_to_file = MetricsLog(state / METRICS)

    def log(row: Mapping[str, Any]) -> None:
        """Append a row of metrics to the file, with the clinicians' accuracy added, and print it."""
        row = {**row, "clinician/accuracy": accuracy}
        append_to_file(row)
        print("  ".join(f"{name.rpartition('/')[2]} {value:.4g}" for name, value in row.items()))  # "loss 0.1"

    imitate(trained, demonstrations, settings, state, log)
    save_policy(trained, initial, folder)


def gather_lessons(settings: Settings, case_files: Mapping[str, Path]) -> Lessons:
    """Let simulated clinicians demonstrate training cases: the first ``warm_start.cases`` cases of the in-domain data
    set. If :func:`_uses_textbook`, also all cases of the synthetic textbook, which cover the names and layouts of all
    hospitals. ``case_files`` has the file of cases of each data set by name."""
    by_dataset = {}
    for dataset in LESSONS if _uses_textbook(settings) else (IN_DOMAIN,):
        limit = settings.warm_start.cases if dataset == IN_DOMAIN else None
        by_dataset[dataset] = list(itertools.islice(iterate_records(case_files[dataset], "train"), limit))
    return _demonstrate_datasets(settings, by_dataset)


def _demonstrate_datasets(settings: Settings, by_dataset: Mapping[str, Sequence[CaseRecord]]) -> Lessons:
    """Let a simulated clinician demonstrate the cases of each data set, given by its name; returns the lessons of all.
    The first ``warm_start.static_share`` of the cases of a data set are also diagnosed from the whole record."""
    episodes: list[DemonstratedEpisode] = []
    whole_records: list[tuple[CaseRecord, Turn]] = []
    for dataset, cases in by_dataset.items():
        environment, clinician = DiagnosticEnvironment(settings.environment), Clinician(settings, dataset)
        demonstrated = run_async(demonstrate(environment, clinician, cases, _uses_textbook(settings)))
        # ``names: true``: the policy learns the true diagnosis, not the one that the clinician gave.
        episodes += map(name_truth, demonstrated) if settings.warm_start.names == "true" else demonstrated
        first_cases = cases[: round(settings.warm_start.static_share * len(cases))]
        whole_records += run_async(diagnose_whole_records(environment, clinician, first_cases))
    return Lessons(episodes, whole_records)


def _uses_textbook(settings: Settings) -> bool:
    """Whether the policy also learns from textbook cases and, at every state, the likeliest diagnosis: the setting
    ``warm_start.textbook``, by default True only for the tiny policy. Textbook cases are synthetic cases in the names,
    labels and layouts of all hospitals."""
    textbook = settings.warm_start.textbook
    return settings.policy.model == "tiny" if textbook is None else textbook


def encode_lessons(settings: Settings, policy: Path, lessons: Lessons) -> list[Demonstration]:
    """Encode the lessons as tokens of the policy in the folder ``policy``. Returns one row of segments for each
    episode, then one for each diagnosis from a whole record."""
    tokenizer = ChatTokenizer(policy, settings.policy.chat_template_kwargs)
    prompts = PromptBuilder(settings.environment.prompt, tokenizer, settings.policy.max_prompt_tokens)
    rows = [encode_episode(prompts, episode) for episode in lessons.episodes]
    return rows + [encode_whole_record(prompts, case, turn) for case, turn in lessons.whole_records]


async def demonstrate(
    environment: DiagnosticEnvironment, clinician: Clinician, cases: Sequence[CaseRecord], with_diagnoses: bool
) -> list[DemonstratedEpisode]:
    """Let the clinician run an episode of each case; returns the episodes. If ``with_diagnoses``, the clinician also
    names the likeliest diagnosis at each state of the episode."""
    episodes = []
    for case in cases:
        trajectory = await run_episode(environment, clinician, case, seed=0)
        states = trajectory.states if with_diagnoses else []
        diagnoses = [await clinician.act(state, forced=True, seed=0) for state in states]
        differentials = tuple(map(clinician.differential, trajectory.states))
        episodes.append(DemonstratedEpisode(trajectory, tuple(diagnoses), differentials))
    return episodes


def name_truth(episode: DemonstratedEpisode) -> DemonstratedEpisode:
    """Return an episode with every diagnosis replaced by the true one. A clinician always names the likeliest disease;
    but of all cases with the same findings, each disease is the true one as often as it is probable. So a policy learns
    how probable each disease is, not only which is likeliest."""
    *requests, last = episode.trajectory.steps  # the last step is the diagnosis
    turn = Turn(render_action(FinalDiagnosis(true_names(episode.trajectory.case)[0]), "full"))  # the canonical name
    steps = (*requests, replace(last, turn=turn, action=parse_action(turn.text)))
    diagnoses = (turn,) * len(episode.diagnoses)
    return replace(episode, trajectory=replace(episode.trajectory, steps=steps), diagnoses=diagnoses)


async def diagnose_whole_records(
    environment: DiagnosticEnvironment, clinician: Clinician, cases: Sequence[CaseRecord]
) -> list[tuple[CaseRecord, Turn]]:
    """Let the clinician diagnose each case after all examinations of its record were requested. Returns pairs of the
    case and the clinician's reply."""
    diagnoses = []
    for case in cases:
        state = State(case)
        for key in case.key_pertinent_results_dict:
            state = state.after(environment.step(state, Turn(render_action(RequestTest(key), "full"))))
        diagnoses.append((case, await clinician.act(state, forced=True, seed=0)))
    return diagnoses


def tokenizer_corpus(settings: Settings, lessons: Lessons) -> list[str]:
    """List all texts that a policy reads or writes in the lessons: prompts, replies and observations. Its tokenizer is
    trained on them."""
    prompt = settings.environment.prompt
    texts = []
    for episode in lessons.episodes:
        opening = opening_text(prompt, episode.trajectory.case)
        texts += [message["content"] for message in opening_messages(prompt, opening)]
        for step, first_line in zip(episode.trajectory.steps, episode.differentials, strict=True):
            observation = observation_text(prompt, step, forced=False)
            texts += [first_line + render_action(step.action, prompt.style), observation]
    return texts + [opening_text(prompt, case, whole=True) for case, _ in lessons.whole_records]


def encode_episode(prompts: PromptBuilder, episode: DemonstratedEpisode) -> Demonstration:
    """Encode an episode as a row of segments. The first segment is the conversation, in which the clinician's replies
    have a loss. If the episode has ``diagnoses``, each is a further segment that branches off at its state.

    In such a branch only the name of the disease has a loss, not the words before it."""
    pairs = zip(episode.trajectory.steps, episode.differentials, strict=True)
    steps = [_in_style(prompts, step, first_line) for step, first_line in pairs]
    conversation: tuple[int, ...] = ()
    scored: list[int] = []  # positions in the conversation
    branches: list[Segment] = []
    for t, step in enumerate(steps):
        context, reply = prompts.context_ids(State(episode.trajectory.case, tuple(steps[:t]))), prompts.reply_ids(step)
        start, conversation = len(context), (*context, *reply)  # the conversation up to this reply
        scored += range(start, len(conversation))
        if episode.diagnoses:
            diagnosis = _diagnosis_ids(prompts, episode.diagnoses[t])[:-1]  # without the end-of-turn token
            name_start = start + len(prompts.forced_prefix_ids)
            branches.append(Segment(start, diagnosis, range(name_start, start + len(diagnosis))))
    return [Segment(0, conversation, scored), *branches]


def encode_whole_record(prompts: PromptBuilder, case: CaseRecord, turn: Turn) -> Demonstration:
    """Encode a diagnosis from the whole record as one segment: the prompt with all results, then the reply ``turn``.
    Only the name of the disease and the end-of-turn token have a loss."""
    prompt_ids = prompts.prompt_ids(State(case), forced=True, whole=True)  # ends with the words of a forced diagnosis
    context = prompt_ids[: len(prompt_ids) - len(prompts.forced_prefix_ids)]
    ids = (*context, *_diagnosis_ids(prompts, turn))
    return [Segment(0, ids, range(len(prompt_ids), len(ids)))]


def _in_style(prompts: PromptBuilder, step: Step, first_line: str = "") -> Step:
    """Return the step with its reply written in the grammar that the policy shall learn, ``prompts.settings.style``
    (``full`` or ``compact``). Clinicians write ``full`` replies; the action stays the same. A compact
    reply begins with ``first_line``."""
    style = prompts.settings.style
    return step if style == "full" else replace(step, turn=Turn(first_line + render_action(step.action, style)))


def _diagnosis_ids(prompts: PromptBuilder, turn: Turn) -> tuple[int, ...]:
    """Return the token ids of the reply ``turn``, a diagnosis, rewritten in the style of the prompts; the last is the
    end-of-turn token."""
    return prompts.reply_ids(_in_style(prompts, Step(turn, parse_action(turn.text), Observation("end"))))


def imitate(model, demonstrations: Sequence[Demonstration], settings: Settings, state_dir: Path, log: Log) -> None:
    """Train the model on demonstrations: minimise the cross-entropy of their scored tokens. The learning rate rises
    linearly over the first steps and decays as a cosine. Muon trains the hidden matrices of the tiny policy, AdamW all
    other weights. A checkpoint is saved in ``state_dir`` after every epoch, and resumed from; ``log`` is called with a
    row of metrics per epoch."""
    size, epochs = settings.warm_start.batch_size, settings.warm_start.epochs
    per_epoch = math.ceil(len(demonstrations) / size)
    steps = epochs * per_epoch
    if settings.policy.model == "tiny":
        optimiser, warmup = MuonAndAdamW(model, _MUON_RATE, _TINY_ADAM_RATE), _WARMUP
    else:
        optimiser = MuonAndAdamW(None, 0.0, _FOLDER_ADAM_RATE, further=model.parameters())
        warmup = min(_WARMUP, math.ceil(steps / 10))  # a few demonstrations may take fewer steps than that
    path, start = state_dir / "warm_start.pt", 0
    if (saved := load_checkpoint(path)) and "optimiser" in saved:  # not one of an earlier version
        start = saved["epoch"]
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
    model.train()
    for epoch in range(start, epochs):
        losses = []
        for step, batch in enumerate(_batches(demonstrations, size, derive_seed(_SEED, "epoch", epoch))):
            loss = -token_logprobs(model, batch).mean()
            model.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
            optimiser.step(warmup_and_cosine(epoch * per_epoch + step, steps, warmup))
            losses.append(float(loss.detach()))
        save_checkpoint(path, {"epoch": epoch + 1, "model": model.state_dict(), "optimiser": optimiser.state_dict()})
        log({"step": epoch + 1, "warm_start/loss": fmean(losses), "warm_start/of": epochs})


def _batches(demonstrations: Sequence[Demonstration], size: int, seed: int) -> list[list[Demonstration]]:
    """Divide demonstrations into batches of ``size`` (fewer in the last one) in an order that depends on ``seed``.
    Within random blocks of 32 batches they are sorted by length, so that those of a batch need little padding."""
    rng, order, batches = random.Random(seed), list(demonstrations), []
    rng.shuffle(order)
    block_size = size * 32
    for start in range(0, len(order), block_size):
        block = sorted(order[start : start + block_size], key=lambda row: sum(len(segment.ids) for segment in row))
        batches += [block[k : k + size] for k in range(0, len(block), size)]
    rng.shuffle(batches)  # not from short ones to long ones
    return batches
