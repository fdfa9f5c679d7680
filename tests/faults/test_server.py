"""Servers that answer wrongly: an evaluation ends with a clear error, or its rows show what was wrong. Once the server
is well, the same command goes on to the bytes that it would have written without the fault."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import test_recording as recording
from served import free_port

from cdpr.cases import write_records
from cdpr.evaluation.row import read_rows
from cdpr.llm import ModelFailure, ModelSpec
from cdpr.pipeline.cli import explain
from cdpr.settings import Settings

STUB = Path(recording.__file__).with_name("stub_server.py")
ERRORS = {  # by fault
    "reset": r"no connection \(ReadError\)", "half": "no connection", "nothing": "no JSON",
    "page": "no JSON", "busy": "status 429", "tomorrow": "asks to wait 86400 seconds",
    "broken": "status 500", "drip": "no answer within 1 seconds", "dies": "no connection",
}  # fmt: skip
PASSING = ("soon", "hiccup")
VISIBLE = {  # in a row; such answers are answers, so they are kept
    "surrogate": lambda row: all("\N{REPLACEMENT CHARACTER}" in reply for reply in row.replies),
    "negative": lambda row: row.prompt_tokens is None and row.completion_tokens is None,
    "words": lambda row: row.prompt_tokens is None and row.completion_tokens is None,
    "imposter": lambda row: row.models == ("smaller-one",),
}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Address of a server whose fault is named by the file `ailment` of the folder."""
    port, ailment = free_port(), folder / "ailment"
    process = subprocess.Popen([sys.executable, STUB, "--port", str(port), "--ails", ailment, "--log", folder / "log"])
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                httpx2.get(f"http://127.0.0.1:{port}/v1/models")
                break
            except httpx2.TransportError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def cases(case, tmp_path) -> Path:
    made = [case.model_copy(update={"note_id": f"T-{k}", "split": "test", "case_summary": f"Case {k}"})
            for k in range(3)]  # fmt: skip
    write_records(tmp_path / "cases.jsonl", made)
    return tmp_path / "cases.jsonl"


@pytest.fixture
def patience(monkeypatch) -> None:
    """A second for an answer, and one more attempt at once."""
    for name, value in {"timeout": 1.0, "retries": 1, "pause": 0.0}.items():
        monkeypatch.setitem(ModelSpec.__init__.__kwdefaults__, name, value)


def evaluated(place: Path, url: str, cases: Path) -> bytes:
    settings: Settings = recording.settings_of(place, url, "m")
    return recording.evaluated(settings, cases, f"{place.name}.jsonl", f"{place.name}-job")


def questions(folder: Path) -> int:
    return len((folder / "log").read_text().splitlines())


@pytest.mark.parametrize("fault", [*ERRORS, *PASSING, *VISIBLE])
def test_a_fault_is_told_or_shown_and_leaves_no_trace(fault, cases, patience, monkeypatch, tmp_path):
    if fault in PASSING:
        monkeypatch.setitem(ModelSpec.__init__.__kwdefaults__, "retries", 8)
    with served(tmp_path) as url:
        whole = evaluated(tmp_path / "whole", url, cases)
    ailment, ill = tmp_path / "ailment", tmp_path / "ill"
    ailment.write_text(fault)
    with served(tmp_path) as url:
        if fault in ERRORS:
            with pytest.raises(ModelFailure, match=ERRORS[fault]) as caught:
                evaluated(ill, url, cases)
            assert "\n" not in explain(caught.value) and not cases.with_name("ill.jsonl").exists()
        else:
            first = evaluated(ill, url, cases)
            assert fault in VISIBLE or first == whole
            rows = list(read_rows(cases.with_name("ill.jsonl")))
            assert len(rows) == 6 and all(VISIBLE[fault](row) for row in rows if fault in VISIBLE)
    ailment.unlink()
    with served(tmp_path) as url:
        before = questions(tmp_path)
        assert evaluated(ill, url, cases) == (first if fault in VISIBLE else whole)
        assert fault in ERRORS or questions(tmp_path) == before, "an answer is paid for once"
