"""Warm start of a policy by imitation: it learns the grammar of actions, medicine, and the habits of clinicians.

A policy with random weights never writes a valid action, and a small instruction-tuned model does so unreliably, so
that reinforcement learning could not start. The paper starts from a model that writes valid actions.
"""

import functools
import itertools
import math
import random
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from ...agents.reference import Clinician
from ...cases import CaseRecord, iterate_records
from ...environment import DiagnosticEnvironment, PromptBuilder, State, Trajectory, Turn, run_episode
from ...environment.once import run_async
from ...environment.prompt import observation_text, opening_messages, opening_text
from ...environment.state import Observation, RequestTest, Step, parse_action, render_action
from ...job import Job
from ...llm.spec import device_of
from ...llm.tokenizer import ChatTokenizer
from ...metrics_log import MetricsLog
from ...seeding import derive_seed
from ...settings import Settings
from ...settings.datasets import IN_DOMAIN, LESSONS
from ..training_run import METRICS, Log
from .muon import Muon, matrices_and_rest, rise_and_fall
from .tiny import build_tiny_policy
from .update import Piece, token_logprobs
from .weights import load_checkpoint, load_model, save_checkpoint, save_policy

_SEED = 0  # of the order of batches
_MUON_RATE = 0.02  # peak learning rate of the tiny policy's hidden matrices
_TINY_ADAM_RATE, _FOLDER_ADAM_RATE = 5e-3, 2e-4  # peak learning rates of all other weights, by policy


Demonstration = Sequence[Piece]
"""A row for :func:`token_logprobs`: the pieces of a conversation and of the diagnoses that branch off from it."""


@dataclass(frozen=True)
class DemonstratedEpisode:
    """The episode of a clinician; ``readings`` are replies with the likeliest diagnosis at each of its states."""

    trajectory: Trajectory
    readings: tuple[Turn, ...]


Lessons = tuple[list[DemonstratedEpisode], list[tuple[CaseRecord, Turn]]]
"""What is imitated: episodes, and cases with a diagnosis from the whole record."""


def warm_start_policy(settings: Settings, job: Job) -> None:
    """Stage ``warm_start_policy``: train a policy to imitate clinicians on in-domain and textbook cases, and write it
    as a Hugging Face folder. The tiny policy and its tokenizer are built first; any other policy is read from a folder.

    Resumes after the last finished epoch. Metrics have a row per epoch: the loss and the clinicians' accuracy.
    """
    torch.set_num_threads(settings.warm_start.threads)
    lessons = gather_lessons(settings, job.inputs)
    _teach(settings, lessons, job.inputs.get("model"), job.out["policy"], job.state)
    shutil.copyfile(job.state / METRICS, job.out["metrics"])


def warm_start(cases: Iterable[CaseRecord], folder: Path, settings: Settings | None = None) -> Path:
    """Train a policy to imitate clinicians on cases of the synthetic hospital; writes a Hugging Face ``folder`` and
    returns it. Unfinished work is in FOLDER.state, so a killed call resumes.

    The policy is the tiny one unless ``policy.model`` names a folder. Raises KeyError for cases of another hospital,
    whose diseases the clinicians do not know. Source: docs/deviations.md, D20.
    """
    settings, by_dataset = settings or Settings(), defaultdict[str, list[CaseRecord]](list)
    for case in cases:
        by_dataset[case.dataset].append(case)
    state = folder.with_name(f"{folder.name}.state")
    _teach(settings, _demonstrate_all(settings, by_dataset), Path(settings.policy.model), folder, state)
    return folder


def _teach(settings: Settings, lessons: Lessons, model: Path | None, folder: Path, state: Path) -> None:
    """Train a policy on the lessons and write it to ``folder``: the tiny one, which is built first, or that in the
    folder ``model``. ``state`` is the folder of unfinished work."""
    tiny, (episodes, static) = settings.policy.model == "tiny", lessons
    if tiny or model is None:
        initial = build_tiny_policy(state / "initial", settings.policy.tiny, corpus(settings, episodes, static))
    else:
        initial = Path(model)
    demonstrations = encode_lessons(settings, initial, episodes, static)
    trained = load_model(initial, device_of(settings.policy), tiny)
    accuracy = sum(episode.trajectory.correct for episode in episodes) / len(episodes)
    metrics = MetricsLog(state / METRICS)

    def log(row: Mapping[str, Any]) -> None:
        """Append a row of metrics with the clinicians' accuracy, and print it."""
        row = {**row, "clinician/accuracy": accuracy}
        metrics(row)
        print("  ".join(f"{k.rpartition('/')[2]} {v:.4g}" for k, v in row.items() if isinstance(v, (int, float))))

    imitate(trained, demonstrations, settings, state, log)
    save_policy(trained, initial, folder)


def gather_lessons(settings: Settings, cases: Mapping[str, Path]) -> Lessons:
    """Let clinicians demonstrate training cases; returns the lessons. ``cases`` are the files of the data sets by name;
    of the in-domain data set the first ``warm_start.cases`` cases are demonstrated."""
    datasets, limits = LESSONS if _reads_textbook(settings) else (IN_DOMAIN,), {IN_DOMAIN: settings.warm_start.cases}
    by_dataset = {name: itertools.islice(iterate_records(cases[name], "train"), limits.get(name)) for name in datasets}
    return _demonstrate_all(settings, {name: list(records) for name, records in by_dataset.items()})


def _demonstrate_all(settings: Settings, by_dataset: Mapping[str, Sequence[CaseRecord]]) -> Lessons:
    """Let a clinician of each data set demonstrate its cases; returns the lessons."""
    episodes: list[DemonstratedEpisode] = []
    static: list[tuple[CaseRecord, Turn]] = []
    for dataset, records in by_dataset.items():
        environment, clinician = DiagnosticEnvironment(settings.environment), Clinician(settings, dataset)
        episodes += run_async(demonstrate(environment, clinician, records, readings=_reads_textbook(settings)))
        static += run_async(_diagnose_statically(environment, clinician, records, settings.warm_start.static_share))
    return episodes, static


def _reads_textbook(settings: Settings) -> bool:
    """Whether textbook cases are among the lessons: by default for the tiny policy."""
    textbook = settings.warm_start.textbook
    return settings.policy.model == "tiny" if textbook is None else textbook


def encode_lessons(
    settings: Settings, policy: Path, episodes: Sequence[DemonstratedEpisode], static: Sequence[tuple[CaseRecord, Turn]]
) -> list[Demonstration]:
    """Encode the lessons in the tokens of the policy in the folder ``policy``; ``static`` are the cases with a
    diagnosis from the whole record."""
    tokenizer = ChatTokenizer(policy, settings.policy.chat_template_kwargs)
    prompts = PromptBuilder(settings.environment.prompt, tokenizer, settings.policy.max_prompt_tokens)
    demonstrations = [encode_episode(prompts, episode) for episode in episodes]
    return demonstrations + [_encode_static(prompts, case, turn) for case, turn in static]


async def demonstrate(
    environment: DiagnosticEnvironment, clinician: Clinician, cases: Sequence[CaseRecord], readings: bool
) -> list[DemonstratedEpisode]:
    """Let the clinician run an episode of each case; with ``readings`` also diagnose at each of its states."""
    episodes = []
    for case in cases:
        trajectory = await run_episode(environment, clinician, case, 0)
        states = trajectory.states if readings else []
        episodes.append(
            DemonstratedEpisode(trajectory, tuple([await clinician.act(state, True, 0) for state in states]))
        )
    return episodes


async def _diagnose_statically(
    environment: DiagnosticEnvironment, clinician: Clinician, cases: Sequence[CaseRecord], share: float
) -> list[tuple[CaseRecord, Turn]]:
    """Let the clinician diagnose the first ``share`` of the cases from the whole record; returns these cases, each with
    the reply."""
    diagnoses = []
    for case in cases[: round(share * len(cases))]:
        state = State(case)
        for key in case.key_pertinent_results_dict:
            state = state.after(environment.step(state, Turn(render_action(RequestTest(key), "full"))))
        diagnoses.append((case, await clinician.act(state, True, 0)))
    return diagnoses


def corpus(
    settings: Settings, episodes: Sequence[DemonstratedEpisode], static: Sequence[tuple[CaseRecord, Turn]]
) -> list[str]:
    """List all texts that a policy reads or writes in the lessons, as the corpus of its tokenizer. ``static`` are the
    cases with a diagnosis from the whole record."""
    prompt = settings.environment.prompt
    texts = []
    for episode in episodes:
        opening = opening_text(prompt, episode.trajectory.case)
        texts += [message["content"] for message in opening_messages(prompt, opening)]
        for step in episode.trajectory.steps:
            texts += [render_action(step.action, prompt.style), observation_text(prompt, step, False)]
    return texts + [opening_text(prompt, case, whole=True) for case, _ in static]


def encode_episode(prompts: PromptBuilder, episode: DemonstratedEpisode) -> Demonstration:
    """Encode an episode: one piece for the conversation, whose replies have a loss, and one piece for each reading (the
    likeliest diagnosis at a state), which branches off from the conversation at its state. A reading begins with the
    words of a forced diagnosis, which have no loss, and has no end-of-turn token."""
    steps = [_in_style(prompts, step) for step in episode.trajectory.steps]
    positions: list[int] = []
    readings: list[Piece] = []
    for t, step in enumerate(steps):
        context = prompts.context_ids(State(episode.trajectory.case, tuple(steps[:t])))
        start = len(context)  # of the reply
        positions += range(start, start + len(prompts.reply_ids(step)))
        if t < len(episode.readings):
            reply = _diagnosis_ids(prompts, episode.readings[t])[:-1]
            readings.append(Piece(start, reply, range(start + len(prompts.forced_prefix_ids), start + len(reply))))
    return [Piece(0, (*context, *prompts.reply_ids(steps[-1])), positions), *readings]


def _encode_static(prompts: PromptBuilder, case: CaseRecord, turn: Turn) -> Demonstration:
    """Encode a diagnosis from the whole record; only the name of the disease has a loss."""
    prefix = prompts.prompt_ids(State(case), True, whole=True)
    ids = (*prefix[: len(prefix) - len(prompts.forced_prefix_ids)], *_diagnosis_ids(prompts, turn))
    return [Piece(0, ids, range(len(prefix), len(ids)))]


def _in_style(prompts: PromptBuilder, step: Step) -> Step:
    """Return the step with its reply in the style that the policy is to write (``prompts.settings.style``). The
    simulated clinicians write ``full`` replies; the action stays the same."""
    style = prompts.settings.style
    return step if style == "full" else replace(step, turn=Turn(render_action(step.action, style)))


def _diagnosis_ids(prompts: PromptBuilder, turn: Turn) -> tuple[int, ...]:
    """The tokens of a reply that diagnoses, in the prompt's style, with the end-of-turn token."""
    return prompts.reply_ids(_in_style(prompts, Step(turn, parse_action(turn.text), Observation("end"))))


def imitate(model, demonstrations: Sequence[Demonstration], settings: Settings, state_dir: Path, log: Log) -> None:
    """Train the model on demonstrations: minimise the cross-entropy of their tokens, with a linear rise and a cosine
    decay of the learning rate. Muon trains the hidden matrices of the tiny policy, AdamW all other weights. Resumes
    from the checkpoint in ``state_dir``; ``log`` gets a row of metrics per epoch."""
    plan = settings.warm_start
    optimizers = _optimizers(model, settings)
    per_epoch = math.ceil(len(demonstrations) / plan.batch_size)
    total = plan.epochs * per_epoch
    rise = 50 if settings.policy.model == "tiny" else min(50, math.ceil(total / 10))
    share = functools.partial(rise_and_fall, steps=total, rise=rise)
    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, share) for optimizer in optimizers]
    path, start = state_dir / "warm_start.pt", 0
    parts: dict[Any, Any] = dict(enumerate((model, *optimizers, *schedules)))
    if saved := load_checkpoint(path):
        start = saved["epoch"]
        for name, part in parts.items():
            part.load_state_dict(saved[name])
    model.train()
    for epoch in range(start, plan.epochs):
        losses = []
        for batch in _batches(demonstrations, plan.batch_size, derive_seed(_SEED, "epoch", epoch)):
            loss = -token_logprobs(model, batch).mean()
            model.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for name, part in parts.items():
                if name:  # not the model
                    part.step()
            losses.append(float(loss.detach()))
        save_checkpoint(path, {"epoch": epoch + 1} | {name: part.state_dict() for name, part in parts.items()})
        log({"step": epoch + 1, "warm_start/loss": fmean(losses), "warm_start/of": plan.epochs})


def _optimizers(model, settings: Settings) -> list[torch.optim.Optimizer]:
    """Create the optimisers of the model: Muon and AdamW for the tiny policy, AdamW for any other."""
    adam = functools.partial(torch.optim.AdamW, weight_decay=0.01, fused=True)
    if settings.policy.model != "tiny":
        return [adam(model.parameters(), lr=_FOLDER_ADAM_RATE)]
    hidden, rest = matrices_and_rest(model)
    return [Muon(hidden, lr=_MUON_RATE, weight_decay=0.01), adam(rest, lr=_TINY_ADAM_RATE)]


def _batches(demonstrations: Sequence[Demonstration], size: int, seed: int) -> list[list[Demonstration]]:
    """Divide demonstrations into batches of ``size`` in random order. Within large random blocks they are sorted by
    length, which saves padding."""
    rng, order, batches = random.Random(seed), list(demonstrations), []
    rng.shuffle(order)
    block = size * 32
    for start in range(0, len(order), block):
        part = sorted(order[start : start + block], key=lambda row: sum(len(piece.ids) for piece in row))
        batches += [part[k : k + size] for k in range(0, len(part), size)]
    rng.shuffle(batches)
    return batches
