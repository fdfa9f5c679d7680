"""Stage records, metrics that survive kills, and the index over them."""

import contextlib
import gc
import json
import multiprocessing
import time

import pytest

from cdpr.files import TableError
from cdpr.metrics_log import MetricsLog, read_metrics
from cdpr.pipeline.cli import main
from cdpr.pipeline.frame import StageError, describe_files, stage
from cdpr.pipeline.mlflow_index import COMPARISON, CURRENT_TAG, MlflowIndex, live_run, load, rebuild_tracking
from cdpr.records import RunRecord
from cdpr.settings import merge, parse_settings


def run_stage(folder, key="0" * 16, work=None, name="train", parameters=None, **more):
    """One small stage with an input, a file and a folder as outputs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "input.txt").write_text("in")
    about = {"options": {"run": "cdpr-seed0"}, "tags": {"variant": "cdpr"}, "experiment": "cdpr/training"} | more
    parameters = {"training": {"steps": 2}} | (parameters or {})
    outputs = {"policy": folder / "policy", "metrics": folder / "metrics.jsonl"}
    inputs = {"cases": folder / "input.txt"}
    begun = RunRecord(stage=name, run_key=key, seed=0, parameters=parameters, inputs=describe_files(inputs), **about)
    with stage(begun, inputs, outputs, folder / "run.json", folder / "state") as job:
        job.out["policy"].mkdir()
        (job.out["policy"] / "weights").write_text(key)
        log = MetricsLog(job.out["metrics"])
        for step in range(3):
            log({"step": step, "seconds": step / 2, "train/accuracy": step / 10, "validation/decoding": "greedy"})
        if work:
            work(job)
        job.metrics["accuracy"] = 0.2
    return folder


def test_outputs_appear_whole_with_their_record(tmp_path):
    run_stage(tmp_path)
    run_stage(tmp_path, key="1" * 16)
    record = json.loads((tmp_path / "run.json").read_text())
    assert (tmp_path / "policy" / "weights").read_text() == "1" * 16
    assert record["run_key"] == "1" * 16 and record["metrics"] == {"accuracy": 0.2}
    assert record["wall_seconds"] >= 0 and record["peak_memory_mb"] > 1 and record["versions"]["python"]
    assert len(record["inputs"]["cases"]["sha256"]) == 64
    assert not list(tmp_path.glob(".partial*"))


def test_a_failing_stage_leaves_what_stood_there(tmp_path):
    run_stage(tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert len(before) == 5  # input, weights, metrics, record, lock

    def fail(job):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        run_stage(tmp_path, key="1" * 16, work=fail)
    with pytest.raises(StageError, match="metrics"):
        run_stage(tmp_path, key="1" * 16, work=lambda job: job.out["metrics"].unlink())
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_missing_input_is_named(tmp_path):
    with (
        pytest.raises(StageError, match=r"cases.*nothing\.jsonl"),
        stage(RunRecord(), {"cases": tmp_path / "nothing.jsonl"}, {}, tmp_path / "run.json", tmp_path),
    ):
        pass


def test_metrics_continue_after_a_kill(tmp_path):
    path = tmp_path / "metrics.jsonl"
    first = MetricsLog(path)
    for step in range(5):
        first({"step": step, "x": step})
    with path.open("a") as out:
        out.write('{"step": 5, "x"')  # cut short by the kill
    resumed = MetricsLog(path)
    resumed({"step": 3, "x": 30})
    resumed({"step": 4, "x": 40})
    assert read_metrics(path) == [*({"step": s, "x": s} for s in range(3)), {"step": 3, "x": 30}, {"step": 4, "x": 40}]
    with pytest.raises(ValueError, match="at least 5"):
        resumed({"step": 4})
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(ValueError, match=r"rows of steps 2 to 4 are gone, but the checkpoint .* remove"):
        MetricsLog(path)({"step": 5})


def test_a_damaged_index_is_named_with_its_remedy(tmp_path, capsys, monkeypatch):
    """At once: MLflow, which would try it for two minutes, does not see it."""
    monkeypatch.setattr("mlflow.tracking.MlflowClient", lambda **address: pytest.fail("asked"))
    (tmp_path / "mine.yaml").write_text(f"paths: {{results: {tmp_path}}}\n")
    (tmp_path / "mlflow.db").write_bytes(b"SQLite format 3\0" + b"noise" * 999)
    assert main(["rebuild_tracking", "--settings", str(tmp_path / "mine.yaml")]) == 2
    error = capsys.readouterr().err
    assert "mlflow.db: no usable MLflow index" in error and "remove it" in error and "Traceback" not in error


def test_an_index_whose_creation_was_killed_is_created_again(tmp_path):
    """MLflow's migrations are no transaction: half a database could be neither used nor finished."""
    load()
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    for size in range(12_000, 400_000, 24_000):
        creation = multiprocessing.get_context("fork").Process(target=MlflowIndex, args=(uri,))
        creation.start()
        with contextlib.suppress(FileNotFoundError):  # it is being renamed
            while creation.is_alive() and sum(path.stat().st_size for path in tmp_path.glob("mlflow.db*")) < size:
                time.sleep(0.001)
        creation.kill()
        creation.join()
    assert list(MlflowIndex(uri).runs()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"mlflow.db", "mlflow.db.lock"}


def index_one(uri: str, key: str) -> None:
    MlflowIndex(uri).create(RunRecord(run_key=key))


def test_jobs_side_by_side_may_create_the_index(tmp_path):
    load()
    uri, fork = f"sqlite:///{tmp_path}/mlflow.db", multiprocessing.get_context("fork")
    jobs = [fork.Process(target=index_one, args=(uri, f"key {number}")) for number in range(3)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0, 0, 0] and len(MlflowIndex(uri).runs()) == 3


@pytest.mark.parametrize(
    "line", [b"nonsense", b'{"step": "\xff"}', b"[" * 5000, b"[0]", b'{"loss": 1}', b'{"step": "1"}']
)
def test_a_broken_line_is_named(tmp_path, line):
    (tmp_path / "m.jsonl").write_bytes(b'{"step": 0}\n' + line + b'\n{"step": 1}\n')
    with pytest.raises(TableError, match=r"m\.jsonl:2"):
        read_metrics(tmp_path / "m.jsonl")


@contextlib.contextmanager
def follow(settings, state):
    """Live tracking of a training that ends after the thread has started."""
    record = RunRecord(stage="train", experiment="cdpr/training", run_key="a" * 16, options={"run": "cdpr-seed0"},
                       tags={"variant": "cdpr"})  # fmt: skip
    with live_run(settings, record, state, patience=0, every=0.1):
        yield
        time.sleep(0.5)


def test_mlflow_can_be_rebuilt_without_doubles(tmp_path):
    """One test for the whole index: importing MLflow and creating its database takes seconds."""
    from cdpr.pipeline.mlflow_index import MlflowIndex, rebuild_tracking, tracking_uri

    paths = {"paths": {"results": str(tmp_path / "results"), "state": str(tmp_path / "state")}}
    settings = parse_settings(merge(parse_settings({}).model_dump(), paths))
    run_stage(tmp_path / "results" / "training" / "cdpr-seed0", key="a" * 16)
    run_stage(tmp_path / "results" / "training" / "grpo-seed0", key="b" * 16, options={"run": "grpo-seed0"},
              tags={"variant": "grpo"})  # fmt: skip
    rows = [{"step": 0, "train/accuracy": 0.0}, {"step": 1, "train/accuracy": 0.1}]
    frozen = gc.get_freeze_count()
    with follow(settings, tmp_path / "state" / "job"):
        for row in rows:
            MetricsLog(tmp_path / "state" / "job" / "metrics.jsonl")(row)
    assert gc.get_freeze_count() > frozen  # garbage collections of the job leave MLflow out
    assert rebuild_tracking(settings) == {"records": 2, "new": 2, "superseded": 0}
    assert rebuild_tracking(settings) == {"records": 2, "new": 0, "superseded": 0}
    registry = {"agents": {"doctor": {"label": "Doctor", "group": "open"}, "other": {"label": "λ"}}}
    many = {f"setting_{number}": number for number in range(250)}  # more than MLflow stores at once
    run_stage(tmp_path / "results" / "training" / "grpo-seed0", key="c" * 16, options={"run": "grpo-seed0"},
              parameters=registry | {"many": many})  # fmt: skip
    assert rebuild_tracking(settings) == {"records": 2, "new": 1, "superseded": 1}

    index = MlflowIndex(tracking_uri(settings))
    about = index.client.get_experiment_by_name("cdpr/evaluation").tags["mlflow.note.content"]
    assert "utility, the objective" in about
    runs = {r.data.tags["cdpr.run_key"]: r for r in index.client.search_runs([index.experiment("cdpr/training")])}
    assert set(runs) == {"a" * 16, "b" * 16, "c" * 16}
    assert runs["b" * 16].data.tags["cdpr.current"] == "false"
    cdpr = runs["a" * 16]
    record = json.loads((tmp_path / "results" / "training" / "grpo-seed0" / "run.json").read_text())
    indexed = runs["c" * 16].info
    assert indexed.end_time - indexed.start_time == int(record["wall_seconds"] * 1000)  # not when it was indexed
    params = runs["c" * 16].data.params  # without the registry
    assert params == {"training.steps": "2"} | {f"many.{name}": str(value) for name, value in many.items()}
    assert runs["c" * 16].data.metrics["final/accuracy"] == 0.2
    assert sorted(run.info.run_id for run in index.runs()) == sorted(run.info.run_id for run in runs.values())
    history = index.client.get_metric_history(cdpr.info.run_id, "train/accuracy")
    assert [(m.step, m.value) for m in history] == [(0, 0.0), (1, 0.1), (2, 0.2)]
    assert cdpr.info.status == "FINISHED" and cdpr.data.params["training.steps"] == "2"
    assert cdpr.data.tags["variant"] == "cdpr" and cdpr.data.tags["seed"] == "0"


def test_every_method_of_the_main_table_is_one_run_with_its_mean_and_interval(tmp_path):
    heads = [f"{name}{end}" for name in ("utility", "accuracy", "aec", "aen") for end in ("", "_low", "_high")]
    lines = [",".join(["decoding", "dataset", "label", *heads])]
    for decoding, label, dataset, numbers in (
        ("greedy", "CDPR (ours)", "mimic_iv", range(12)), ("greedy", "CDPR (ours)", "private", range(12)),
        ("greedy", "CDPR (ours)", "average", range(1, 13)), ("sampled", "CDPR (ours)", "mimic_iv", range(12)),
        ("greedy", "GPT-5.4", "mimic_iv", [""] * 12),
    ):  # fmt: skip
        lines.append(",".join([decoding, dataset, label, *map(str, numbers)]))
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/main_results.csv").write_text("\n".join(lines))
    record = RunRecord(stage="write_main_table", outputs={"csv": {"path": "main_results.csv", "sha256": "a" * 64}})
    (tmp_path / "tables/main_results.run.json").write_text(record.model_dump_json())
    settings = parse_settings({"paths": {"results": str(tmp_path)}})
    for _ in range(2):
        rebuild_tracking(settings)
        [run] = MlflowIndex(f"sqlite:///{tmp_path}/mlflow.db").runs("", [COMPARISON])
    assert run.info.run_name == "CDPR (ours)" and run.data.tags[CURRENT_TAG] == "true"
    assert [run.data.metrics[f"mimic_iv/1 utility{end}"] for end in ("", "_low", "_high")] == [0, 1, 2]
    assert run.data.metrics["average/2 accuracy_high"] == 6 and len(run.data.metrics) == 24


def test_a_tracking_problem_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("no folder")
    settings = parse_settings({"tracking": {"mlflow": f"sqlite:///{tmp_path}/file/mlflow.db"}})
    with pytest.warns(UserWarning, match="live tracking stopped"), follow(settings, tmp_path):
        pass


def test_a_job_removes_what_a_killed_save_left_and_keeps_the_checkpoint(tmp_path):
    state = tmp_path / "state" / "key"
    state.mkdir(parents=True)
    for name in ("checkpoint.pt", "checkpoint.pt.4547.partial"):
        (state / name).write_text("weights")
    (state / "policy.partial").mkdir()
    (state / "policy.partial/model.safetensors").write_text("weights")
    begun = RunRecord(stage="train_policy", run_key="key")
    with stage(begun, {}, {"o": tmp_path / "o"}, tmp_path / "run.json", tmp_path / "state") as job:
        assert [path.name for path in job.state.iterdir()] == ["checkpoint.pt"]
        job.out["o"].write_text("made")


def test_a_job_waits_for_one_that_a_killed_workflow_left_behind(tmp_path):
    import subprocess
    import sys

    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\n"
        "from cdpr.records import RunRecord\n"
        "from cdpr.pipeline.frame import stage\n"
        "here = Path(sys.argv[1])\n"
        "with stage(RunRecord(stage='s'), {}, {'o': here / 'o'}, here / 'run.json', here / 'state') as job:\n"
        "    print('in', flush=True); sys.stdin.read(); job.out['o'].write_text(sys.argv[3])\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path), "src"]
    first = subprocess.Popen([*command, "first"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "in\n"
    second = subprocess.Popen([*command, "second"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert "waiting for its end" in second.stdout.readline()
    first.communicate()
    second.communicate()
    assert (first.returncode, second.returncode) == (0, 0)
    assert (tmp_path / "o").read_text() == "second"
