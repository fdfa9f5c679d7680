"""What comes into a running project: answers of models, archives of recordings, checkpoints, and results of earlier
jobs. Damage is refused by a message that `cdpr` prints, or it changes nothing.
"""

import asyncio
import functools
import json
import logging
import tempfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from target import Outcome, Target

from cdpr.evaluation.metrics import read_evaluation
from cdpr.evaluation.row import EvaluationRow
from cdpr.files import file_digest
from cdpr.llm import Completion, ModelSpec, Sampling, open_model
from cdpr.llm.archive import run_export, run_import
from cdpr.llm.recording import Recordings, canonical_json, read_answer
from cdpr.llm.types import Usage
from cdpr.metrics_log import read_metrics
from cdpr.pipeline.cli import explain
from cdpr.records import RunRecord
from cdpr.report.curves import read_curves
from cdpr.report.methods import Method
from cdpr.report.provenance import check_provenance, check_training
from cdpr.settings import ModelEntry, parse_settings
from cdpr.settings.models import Calls

ASK = [{"role": "user", "content": "Abdominal pain since yesterday."}]
ANSWER = {
    "id": "a1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Acute colitis"}}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150},
}  # fmt: skip


class Explained(Exception):
    """An error whose message `cdpr` prints without a traceback."""


def _explained(read: Callable[[Path], Outcome]) -> Callable[[Path], Outcome]:
    """The reader, with errors as the command shows them."""

    @functools.wraps(read)
    def explained(folder: Path) -> Outcome:
        try:
            return read(folder)
        except Exception as error:
            if (message := explain(error)) is None:
                raise
            raise Explained(message) from error

    return explained


# Answers of models


class _Replies(BaseHTTPRequestHandler):
    """Answers every request with the bytes of a file."""

    place = Path()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = self.place.read_bytes() if self.place.is_file() else b""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@functools.cache
def _server() -> str:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Replies)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"


def _spec(state: Path, url: str) -> ModelSpec:
    entry = ModelEntry(id="m", at=url)
    return ModelSpec(where=url, name="m", entry=entry, state=str(state), calls=Calls(), retries=0, credentialed=False)


def _chat(state: Path) -> Completion:
    [answer] = asyncio.run(open_model(_spec(state, _server())).chat(ASK, (0,), Sampling(64, 0.0), 0))
    return answer


def _write_answer(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "answer.json").write_text(json.dumps(ANSWER))


def _answer(folder: Path) -> Outcome:
    _Replies.place = folder / "answer.json"
    with tempfile.TemporaryDirectory() as state:
        answer = _chat(Path(state))
        _check(answer)
        [(kept,)] = Recordings(state, credentialed=False).journal.read("SELECT answer FROM answers")
        assert read_answer(kept) == answer, "another answer was recorded"
    return Outcome((), answer.text)


def _check(answer: Completion) -> None:
    """An answer that every later step can use: as text of a file, and as a bill."""
    f"{answer.text}{answer.model}".encode()
    usage = answer.usage
    assert usage is None or Usage.from_counts(usage.prompt_tokens, usage.completion_tokens) == usage, usage


# Recordings


@functools.cache
def _archive() -> bytes:
    """An archive of eight answers."""
    with tempfile.TemporaryDirectory() as state:
        recordings = Recordings(state, credentialed=False)
        for number in range(8):
            request = canonical_json(
                {"model": "m", "messages": ASK, "sample": number, "sampling": {"temperature": 0.0}}
            )
            answer = Completion(f"Acute colitis {number}", (), (), "stop", Usage(100, 50), "m")
            recordings.record("m", request, answer, "doctor")
        run_export(parse_settings({"paths": {"state": state}}), Path(state) / "a.jsonl")
        return (Path(state) / "a.jsonl").read_bytes()


def _write_archive(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "answers.jsonl").write_bytes(_archive())


def _imported(folder: Path) -> Outcome:
    with tempfile.TemporaryDirectory() as state:
        message = run_import(parse_settings({"paths": {"state": state}}), folder / "answers.jsonl")
        answers = Recordings(state, credentialed=False).journal.read("SELECT answer FROM answers")
        for (answer,) in answers:
            _check(read_answer(answer))
    return Outcome((len(answers),), message.partition("(")[0])


# Checkpoints


def _state(step: int) -> dict:
    import torch

    return {"step": step, "model": {"weight": torch.full((4, 4), float(step))}}


def _write_checkpoints(folder: Path) -> None:
    from cdpr.training.torch.weights import save_checkpoint

    for step in (1, 2):
        save_checkpoint(folder / "checkpoint.pt", _state(step))


def _checkpoint(folder: Path) -> Outcome:
    """A damaged checkpoint is passed over with a warning; another is exactly what was written."""
    import torch

    from cdpr.training.torch import weights

    warnings: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    weights._log.addHandler(handler)
    weights._log.propagate = False
    try:
        state = weights.load_checkpoint(folder / "checkpoint.pt")
        if state is not None:
            assert torch.equal(state["model"]["weight"], _state(state["step"])["model"]["weight"])
        weights.save_checkpoint(folder / "checkpoint.pt", _state(3))
        assert weights.load_checkpoint(folder / "checkpoint.pt")["step"] == 3
    finally:
        weights._log.removeHandler(handler)
    if warnings:
        raise Explained(" ".join(warnings))
    return Outcome((), str(state and state["step"]))


# Results


def _write_results(folder: Path) -> None:
    evaluation, training = folder / "evaluations/grpo-seed0/private.jsonl", folder / "training/grpo-seed0/metrics.jsonl"
    for path in (evaluation, training):
        path.parent.mkdir(parents=True)
    evaluation.write_text("".join(_row(number).line() for number in range(4)))
    rows = [{"step": step, "seconds": step, "tokens": step, "validation/utility": 0.5} for step in range(4)]
    training.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = {"run": "grpo-seed0"}
    for path, record, stage, options in (
        (evaluation, evaluation.with_suffix(".run.json"), "evaluate_agent", run | {"dataset": "private"}),
        (training, training.with_name("run.json"), "train_policy", run),
    ):
        outputs = {"file": {"path": str(path), "sha256": file_digest(path)}}
        record.write_text(json.dumps({"stage": stage, "options": options, "tier": "demo", "outputs": outputs}))


def _row(number: int) -> EvaluationRow:
    counts = ("issued", "available", "unavailable", "invalid", "repeated", "physical", "tests", "na")
    return EvaluationRow(
        note_id=f"T-{number}", decoding="greedy", correct=number % 2 == 0, diagnosis="Colitis", gold="Acute colitis",
        turns=1, cost_usd=1.5, utility=0.5, forced=False, calls=1, prompt_tokens=100, completion_tokens=50, unmarked=0,
        silent=0, too_long=0, obtained=(), replies=("Colitis",), **dict.fromkeys([f"n_{name}" for name in counts], 0),
    )  # fmt: skip


def _results(folder: Path) -> Outcome:
    settings, evaluation = parse_settings({}), folder / "evaluations/grpo-seed0/private.jsonl"
    check_provenance(settings, [evaluation])
    check_training(settings, folder, ["grpo-seed0"])
    read = read_evaluation(evaluation)
    rows = len(read_metrics(folder / "training/grpo-seed0/metrics.jsonl"))
    read_curves(folder, Method("grpo", "GRPO", "trained", ("grpo-seed0",)), ["utility"])
    records = [RunRecord.read(path) for path in folder.rglob("*run.json")]
    text = f"{len(read)} cases, {read.correct.sum():g} correct, {rows} steps, {len(records)} records"
    return Outcome((len(read), rows), text)


INCOMING = [
    Target("answers", _write_answer, _explained(_answer), "json"),
    Target("recordings", _write_archive, _explained(_imported), "json"),
    Target("checkpoints", _write_checkpoints, _explained(_checkpoint), "binary"),
    Target("results", _write_results, _explained(_results), "json"),
]
