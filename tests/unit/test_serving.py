"""Servers that a job starts for itself: they come up, they end with it however it ends, and what goes wrong is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from cdpr.agents.build import agent_entry, model_spec
from cdpr.agents.policy import ImmediateAgent, PolicyAgent, StaticAgent, longest_sequence
from cdpr.cases import write_records
from cdpr.environment import DiagnosticEnvironment, PromptBuilder, run_episode
from cdpr.evaluation.row import read_rows
from cdpr.llm import Completion, Model, Sampling, open_model
from cdpr.llm.own_server import OwnServer, server_command
from cdpr.llm.recording import Recordings
from cdpr.llm.types import ModelUnavailable
from cdpr.pipeline.experiment import Experiment
from cdpr.pipeline.machines import serving_machine
from cdpr.pipeline.running import evaluate_served, run_jobs
from cdpr.pipeline.served import key_of, machine_of, served_jobs, server_of
from cdpr.pipeline.systems import list_missing
from cdpr.settings import Machine, Serving, SettingsError, load_settings, parse_settings
from cdpr.settings.schema import TinyModel

STUB = Path(__file__).parent / "stub_server.py"
ASK = [{"role": "user", "content": "Case"}]


def serving(*flags: str, **more) -> Serving:
    command = f"{sys.executable} {STUB} --port {{port}} --name {{name}} {' '.join(flags)}"
    return Serving(program="vllm", command=command, **more)


def server(tmp_path: Path, *flags: str, patience: float = 30.0, private: bool = False, grace: float = 5.0) -> OwnServer:
    log = tmp_path / "servers" / "m.log"
    return OwnServer(serving(*flags), "weights", "m", log, private=private, grace=grace, patience=patience)


def alive(pid: int) -> bool:
    """Whether a process is there, and no zombie that waits for its parent."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def gone(*pids: int, within: float = 10.0) -> bool:
    until = time.monotonic() + within
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(alive, pids))


def pids_of(file: Path) -> list[int]:
    """The server and its child, once they have told."""
    until = time.monotonic() + 20
    while not (file.exists() and len(file.read_text().split()) == 2) and time.monotonic() < until:
        time.sleep(0.05)
    return [int(pid) for pid in file.read_text().split()]


def python_calls(work) -> int:
    """How many functions are called in this thread."""
    count = 0

    def counted(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


# One server


def test_it_starts_when_it_is_needed_and_ends_with_the_job(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("MY_LAB_KEY", "sk-of-ones-own")
    with server(tmp_path, "--late 1", f"--child {tmp_path / 'pids'}") as own:
        own.secrets = parse_settings({"models": {"lab": {"id": "m", "keys": ["MY_LAB_KEY"]}}}).key_names
        assert not own.log.exists(), "nothing runs before the first question"
        own.ensure_ready()
        pids = pids_of(tmp_path / "pids")
        assert all(map(alive, pids))
        own.ensure_ready()  # and is not started twice
    assert gone(*pids, within=1.0), "the server, and what it had started"
    assert own.log.read_text().count("has a key: False False") == 1 and stat.S_IMODE(own.log.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("flags", "patience", "says"),
    [
        (["--never"], 8, r"not ready within 8 seconds(?s:.*)ends:\n +stub: environment"),
        (["--fails"], 30, r"ended with exit status 1 before it was ready(?s:.*)no weights in that folder"),
        (["--name other"], 30, r"calls its models other(?s:.*)--served-model-name"),
    ],
)
def test_one_that_does_not_come_up_is_told_with_its_last_words(tmp_path, flags, patience, says):
    with server(tmp_path, f"--child {tmp_path / 'pids'}", *flags, patience=patience) as own:
        began = time.monotonic()
        with pytest.raises(ModelUnavailable, match=says) as first:
            own.ensure_ready()
        assert time.monotonic() - began < patience + 5
        with pytest.raises(ModelUnavailable) as second:
            own.ensure_ready()
        assert str(first.value) == str(second.value), "nobody waits for it again"
        assert flags == ["--fails"] or gone(*pids_of(tmp_path / "pids"))


def test_one_that_does_not_listen_is_killed_with_all_that_it_started(tmp_path):
    with server(tmp_path, "--stubborn", f"--child {tmp_path / 'pids'}", grace=0.5) as own:
        own.ensure_ready()
        pids = pids_of(tmp_path / "pids")
        began = time.monotonic()
    assert gone(*pids, within=0.5) and time.monotonic() - began < 5


def test_one_that_ends_is_told_and_not_waited_for(tmp_path):
    """What it said may hold the text of cases: of credentialed ones it is not quoted."""
    for private in (False, True):
        with server(tmp_path, f"--child {tmp_path / f'{private}'}", private=private) as own:
            own.ensure_ready()
            pids = pids_of(tmp_path / f"{private}")
            os.kill(pids[0], signal.SIGKILL)
            assert gone(*pids), "its child too"
            time.sleep(0.5)
            with pytest.raises(ModelUnavailable, match="ended by SIGKILL during a request; its log is") as caught:
                own.ensure_ready()
            assert ("stub:" in str(caught.value)) != private


JOB = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_serving import server
own = server(Path(sys.argv[2]), f"--stubborn --child {sys.argv[2]}/pids", grace=0.5)
own.ensure_ready()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_a_job_that_is_killed(tmp_path, number):
    """However little it listens; nobody is left to stop it."""
    job = subprocess.Popen([sys.executable, "-c", JOB, str(STUB.parent), str(tmp_path)], stdout=subprocess.PIPE)
    assert job.stdout is not None
    while b"ready" not in job.stdout.readline():
        assert job.poll() is None
    pids = pids_of(tmp_path / "pids")
    job.send_signal(number)
    job.wait()
    assert gone(*pids)


def test_it_ends_with_its_keeper(tmp_path):
    with server(tmp_path, f"--child {tmp_path / 'pids'}") as own:
        own.ensure_ready()
        served, child = pids_of(tmp_path / "pids")
        assert own._process is not None
        own._process.kill()
        assert gone(served)
        with pytest.raises(ModelUnavailable, match="ended by SIGKILL"):
            own.ensure_ready()
        os.kill(child, signal.SIGKILL)


def test_no_two_jobs_choose_one_port(tmp_path, monkeypatch):
    """As when the system offers the same one again before a server has taken it."""
    first = server(tmp_path)
    offered = iter([first.port, first.port])

    class Socket:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def bind(self, _):
            self.port = next(offered, 50_123)

        def getsockname(self):
            return "127.0.0.1", self.port

    with monkeypatch.context() as patched:
        patched.setattr("cdpr.llm.own_server.socket.socket", Socket)
        second = server(tmp_path)
    assert second.port == 50_123
    port = first.port
    first.stop()
    offered = iter([port])
    with monkeypatch.context() as patched:
        patched.setattr("cdpr.llm.own_server.socket.socket", Socket)
        assert server(tmp_path).port == port, "given back"


def test_how_each_program_is_started():
    def words(program, command=None):
        return server_command(Serving(program=program, command=command), "my weights", "org/m", 9, 2, ["--x", "y z"])

    vllm = words("vllm")
    assert vllm[:3] == ["vllm", "serve", "my weights"] and vllm[-2:] == ["--x", "y z"]
    assert vllm[vllm.index("--tensor-parallel-size") + 1] == "2"
    assert words("sglang")[-2:] == ["--x", "y z"] and words("llama_cpp")[:2] == ["llama-server", "--model"]
    assert words("vllm", "run '{weights} as {name}' {port}") == ["run", "my weights as org/m", "9"]
    for command, says in [("vllm serve", "name {port}"), ("vllm {port} {gpu}", "'gpu'"), ("a '{port}", "ValueError")]:
        with pytest.raises(SettingsError, match=says):
            parse_settings({"serving": {"command": command}})


# The jobs


def evaluate(plan: Experiment, name: str) -> None:
    """The job with a server, then those of its evaluations, as the workflow runs them."""
    evaluate_served(plan, name)
    [job] = [job for job in served_jobs(plan) if job.name == name]
    for run, dataset in job.evaluations:
        inputs, outputs = {"cases": [f"<results>/cases/{dataset}.jsonl"]}, {"evaluation": [written(run, dataset)]}
        run_jobs(plan, "evaluate_agent", [{"run": run, "dataset": dataset}], inputs, outputs, key=None)


def written(run: str, dataset: str, kind: str = "jsonl") -> str:
    return f"<results>/evaluations/{run}/{dataset}.{kind}"


@pytest.fixture
def project(tmp_path, case, monkeypatch):
    """Settings of a project whose priced cases are there, with a row of its own that a job's server acts for; the
    server misbehaves by ``flags``, which its command does not show."""

    def settings(*flags: str, models=("doctor",), **more):
        overlay = tmp_path / "mine.yaml"
        overlay.write_text(
            f"paths: {{results: {tmp_path}/results, state: {tmp_path}/state}}\n"
            "agents:\n  one: {label: One, model: doctor}\n"
            '  two: {label: Two, model: doctor, acts: "cdpr.agents.policy:StaticAgent"}\n'
            "models:\n  doctor: {id: org/doctor, machine: {gpus: 2, memory_gb: 100, cpus: 8, hours: 5}}\n"
            "evaluation: {decodings: [greedy]}\ntracking: {mlflow: false}\n"
        )
        found = load_settings(overlay)
        monkeypatch.setenv("STUB", " ".join(flags))
        return found.model_copy(update={"serving": serving(models=list(models))} | more)

    for dataset in ("mimic_iv", "clinicalbench", "private"):
        made = [case.model_copy(update={"note_id": f"T-{k}", "split": "test", "case_summary": f"{dataset} {k}"})
                for k in range(4)]  # fmt: skip
        path = tmp_path / "results" / "cases" / f"{dataset}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_records(path, made)
    return settings


def test_one_job_evaluates_all_that_a_model_acts_for(project, tmp_path):
    plan = Experiment(project("--log", str(tmp_path / "asked")))
    [job] = served_jobs(plan)
    assert job.name == "doctor" and job.runs == ("one", "two") and len(job.evaluations) == 6
    evaluate(plan, "doctor")
    outputs = [written(*pair, kind) for pair in job.evaluations for kind in ("jsonl", "run.json")]
    assert len(outputs) == 12 and all(Path(plan.resolve_path(path)).exists() for path in outputs)
    rows = [row for run, dataset in job.evaluations
            for row in read_rows(tmp_path / "results" / "evaluations" / run / f"{dataset}.jsonl")]  # fmt: skip
    assert len(rows) == 24 and all(row.correct for row in rows)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["org/doctor null"] * (4 * 3 * 3), "two turns of one, one of the other"
    assert (tmp_path / "state" / "servers" / "doctor.log").read_text().count("stub: environment") == 1
    assert not list((tmp_path / "state").glob("*/evaluation.jsonl"))
    before = {path: Path(plan.resolve_path(path)).read_bytes() for path in outputs if path.endswith(".jsonl")}
    evaluate(Experiment(project("--fails")), "doctor")  # all is recorded: no server is needed
    assert before == {path: Path(plan.resolve_path(path)).read_bytes() for path in before}
    otherwise = project("--fails").model_copy(update={"serving": serving("--slow 0", models=["doctor"])})
    with pytest.raises(ModelUnavailable, match="no weights in that folder"):
        evaluate_served(Experiment(otherwise), "doctor")  # what is served otherwise is asked again


def test_a_server_that_dies_ends_the_job_and_what_was_answered_is_kept(project, tmp_path):
    began = time.monotonic()
    with pytest.raises(ModelUnavailable, match=r"ended with exit status 1 during a request(?s:.*)out of memory"):
        evaluate_served(Experiment(project("--dies-after 14")), "doctor")
    assert time.monotonic() - began < 30, "nobody tries a dead server for minutes"
    [(kept,)] = Recordings(tmp_path / "state", False).journal.read("SELECT COUNT(*) FROM answers")
    assert 8 < kept <= 14, "some may have been on their way"
    kept_rows = [path.read_bytes() for path in (tmp_path / "state").glob("*/evaluation.jsonl")]
    evaluate(Experiment(project("--log", str(tmp_path / "asked"))), "doctor")
    assert (tmp_path / "results" / "evaluations" / "one" / "mimic_iv.jsonl").read_bytes() in kept_rows
    assert len((tmp_path / "asked").read_text().splitlines()) == 36 - kept, "nothing is asked twice"


def test_how_a_model_is_served_decides_its_results(project):
    """What a server of the user runs is unknown; a policy behind one draws otherwise than in this process."""
    own, options = Experiment(project()), {"run": "one", "dataset": "private"}
    at = own.settings.models["doctor"].model_copy(update={"at": "http://127.0.0.1:9/v1"})
    users = Experiment(own.settings.model_copy(update={"models": {**own.settings.models, "doctor": at}}))
    assert own.key("evaluate_agent", **options) != users.key("evaluate_agent", **options)
    assert not served_jobs(users), "who says where it is has it asked there"
    policies = Experiment(own.settings.model_copy(update={"serving": serving(policies=True)}))
    for run in ("warm_start", "cdpr-seed0"):
        keys = [plan.key("evaluate_agent", run=run, dataset="private") for plan in (own, policies)]
        assert keys[0] != keys[1]
    assert own.key("train_policy", run="cdpr-seed0") == policies.key("train_policy", run="cdpr-seed0")


def test_weights_that_lie_here_count_by_their_content(project, tmp_path):
    def key():
        plan = Experiment(project())
        entry = plan.settings.models["doctor"].model_copy(update={"weights": str(weights)})
        plan = Experiment(plan.settings.model_copy(update={"models": {**plan.settings.models, "doctor": entry}}))
        assert plan.acting_policy("one") == str(weights)
        return plan.key("evaluate_agent", run="one", dataset="private")

    weights = tmp_path / "m.gguf"
    weights.write_text("one")
    first = key()
    weights.write_text("another")
    assert key() != first


def test_each_policy_has_a_server_of_its_own_and_tables_of_their_own_jobs(project):
    plan = Experiment(project().model_copy(update={"serving": serving(policies=True)}))
    jobs = {job.name: job for job in served_jobs(plan)}
    assert jobs["policy"].runs == ("warm_start", "immediate", "static") and "doctor" not in jobs
    assert {dataset for _, dataset in jobs["cdpr-seed0"].evaluations} == {"mimic_iv", "clinicalbench", "private"}
    assert jobs["cdpr-seed0-leak_control"].evaluations[0] == ("cdpr-seed0", "mimic_iv_controlled")
    every = [pair for job in jobs.values() for pair in job.evaluations]
    assert len(every) == len(set(every)), "no evaluation is made by two rules"
    assert key_of(plan, jobs["cdpr-seed0"].evaluations) != key_of(plan, jobs["cdpr-seed1"].evaluations)


def test_what_a_job_asks_of_a_cluster(project):
    plan = Experiment(project())
    [job] = served_jobs(plan)
    expected = {"mem_mb": 100_000, "runtime": 300, "servers": 1, "gpu": 2}
    assert expected.items() <= serving_machine(machine_of(plan, job)).items()
    assert "gpu" not in serving_machine(Machine(gpus=0))


def test_a_policy_behind_a_server_is_asked_by_tokens(tmp_path, project):
    from cdpr.training.torch.tiny import build_tiny_policy

    tiny = TinyModel(hidden_size=32, layers=1, heads=2, intermediate_size=48, vocab_size=320)
    policy = build_tiny_policy(tmp_path / "tiny", tiny, ["fever cough pain in the flank"] * 20)
    with server(tmp_path, "--log", str(tmp_path / "asked")) as own:
        spec = model_spec(project(), agent_entry(project(), "cdpr-seed0"), policy, own)
        assert spec is not None and spec.where == own.address
        model = open_model(spec)
        [said] = asyncio.run(model.sample((7, 8, 9), (0,), Sampling(4), 0))
        assert said.token_ids == (7, 8) and (tmp_path / "asked").read_text() == "m [7, 8, 9]\n"
        calls = [python_calls(lambda n=n: asyncio.run(model.sample([5] * n, (0,), Sampling(4), 0)))
                 for n in (500, 500, 4000)]  # fmt: skip
        assert calls[2] < calls[1] + 500, "nothing is done for each token"
        assert len((tmp_path / "asked").read_text().splitlines()[-1].split(", ")) == 4000


def test_the_server_of_a_policy_reads_its_longest_sequence_and_no_more(tmp_path, project):
    """Its context is shorter than the model's, which may be 262,144 tokens, and every request fits in it."""
    from cdpr.training.torch.tiny import build_tiny_policy

    plan = Experiment(project(serving=serving(policies=True, gpus=2)))
    tiny = TinyModel(hidden_size=32, layers=1, heads=2, intermediate_size=48, vocab_size=320)
    folder = build_tiny_policy(tmp_path / "results" / "training" / "cdpr-seed0" / "policy", tiny, ["fever"] * 20)
    jobs = {job.name: job for job in served_jobs(plan)}
    with server_of(plan, jobs["cdpr-seed0"]) as own:
        assert own.gpus == 1 and tuple(own.flags) == (
            "--data-parallel-size", "2", "--max-model-len", str(longest_sequence(plan.settings)),
        )  # fmt: skip
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 512}))
    with server_of(plan, jobs["cdpr-seed0"]) as own:
        assert own.flags[-1] == "512", "vLLM starts with no more than the model has"


@pytest.mark.parametrize("turn", [64, 128, 512])
@pytest.mark.parametrize("result", [2400, 3850, 9000])
@pytest.mark.parametrize("kind", [PolicyAgent, ImmediateAgent, StaticAgent])
def test_no_request_of_a_policy_exceeds_its_longest_sequence(case, kind, result, turn):
    """Replies as long as a turn and long results, at two characters a token, as tables of laboratory values have."""
    tokenizer = SimpleNamespace(
        end_of_turn=1, eos_ids={1}, encode=lambda text: [3] * 9,
        encode_conversation=lambda messages: [2] * (len(str(messages)) // 2),
        encode_user_turn=lambda text: [4] * (8 + len(text) // 2),
    )  # fmt: skip
    longest = []

    class Talker(Model):
        async def sample(self, prompt_ids, samples, sampling, seed):
            longest.append(len(prompt_ids) + sampling.max_tokens)
            text = "AC"  # a turn of a few tokens asks for nothing
            if prompt_ids[-1] == 3:  # opened with the words of a diagnosis
                text = " Sepsis"
            elif sampling.max_tokens > 20:
                text = f"ACTION: REQUEST_TEST\nTest needed: Test {len(longest)}"
            return [Completion(text, (5,) * sampling.max_tokens, (), "length") for _ in samples]

    settings = parse_settings({"environment": {"prompt": {"style": "full"}}, "policy": {"max_turn_tokens": turn}})
    model, policy = Talker(), settings.policy
    model.tokenizer = tokenizer
    prompts = PromptBuilder(settings.environment.prompt, tokenizer, policy.max_prompt_tokens)
    agent = kind(model, prompts, policy, 0.0)
    results = {f"Test {k}": "x" * (9000 if k == 3 else result) for k in range(9)}
    long = case.model_copy(update={"key_pertinent_results_dict": results, "exam_cost_map": dict.fromkeys(results, 1.0),
                                    "case_summary": "y" * 9000})  # fmt: skip
    asyncio.run(run_episode(DiagnosticEnvironment(settings.environment), agent, long, 0))
    assert max(longest) <= longest_sequence(settings)


def test_what_serving_lacks_is_told_before_anything_runs(project, tmp_path):
    settings = project()
    for change, says in [
        ({"models": ["nobody"]}, "'nobody' is no entry"),
        ({"models": ["gpt_5_4"]}, "at its provider"),
        ({"program": "none"}, "say which server"),
        ({"program": "llama_cpp", "policies": True}, "no Hugging Face folders"),
    ]:
        with pytest.raises(SettingsError, match=says):
            Experiment(settings.model_copy(update={"serving": settings.serving.model_copy(update=change)}))
    absent = settings.serving.model_copy(update={"command": "no-such-program {port}"})
    plan = Experiment(settings.model_copy(update={"serving": absent}))
    assert "no program 'no-such-program'" in list_missing(plan, "one")[0]
    with pytest.raises(SettingsError, match="no program 'no-such-program'"):
        plan.begin(["one"])
    llama = settings.serving.model_copy(update={"program": "llama_cpp", "command": None})
    with_llama = Experiment(settings.model_copy(update={"serving": llama}))
    assert any("no file" in text for text in list_missing(with_llama, "one"))
    assert list_missing(Experiment(settings), "one") == []
    with pytest.raises(SettingsError, match=r"'other' is no job.*doctor"):
        evaluate_served(Experiment(settings), "other")
