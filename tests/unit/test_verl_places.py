"""Where verl's parts run: a frozen server beside the trainer, and Ray over several machines."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import subprocess
import sys
import time

import psutil
import pytest
import torch

from cdpr.llm import ModelSpec, ModelUnavailable, Sampling, open_model
from cdpr.llm.own_server import OwnServer
from cdpr.llm.sampler import InProcessSampler
from cdpr.seeding import derive_seed
from cdpr.settings import Serving, SettingsError, merge, parse_settings
from cdpr.training.torch.tiny import build_tiny_policy
from cdpr.training.torch.weights import load_model
from cdpr.training.verl.checkpoints import LATEST, checkpoint_folder, keep_only, link_policy, prepare_resume
from cdpr.training.verl.configuration import check_settings, hydra_arguments, translate_settings
from cdpr.training.verl.launch import frozen_server, ray_cluster
from cdpr.training.verl.memory import cpus_of_ray

# What `vllm serve FOLDER --host H --port P --served-model-name NAME ...` does, with our own sampler.
VLLM = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from cdpr.llm.sampler import InProcessSampler
from cdpr.llm.types import Request, Sampling
assert sys.argv[1] == "serve"
options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
sampler = InProcessSampler.from_folder(sys.argv[2])

async def complete(request):
    body = await request.json()
    assert body["model"] == options["--served-model-name"]
    asked = Request(tuple(body["prompt"]), (0,), Sampling(body["max_tokens"], body["temperature"]), body["seed"])
    [drawn] = sampler.sample_batch([asked])[0]
    choice = {"text": drawn.text, "finish_reason": drawn.finish_reason, "token_ids": drawn.token_ids}
    return JSONResponse({"choices": [choice]})

async def models(request):
    return JSONResponse({"data": [{"id": options["--served-model-name"]}]})

app = Starlette(routes=[Route("/v1/completions", complete, methods=["POST"]), Route("/v1/models", models)])
uvicorn.run(app, host=options["--host"], port=int(options["--port"]), log_level="error")
"""


def settings_with(command: str, **frozen):
    place = {"beside": True, "command": command, "memory": 0.1} | frozen
    small = {"hidden_size": 32, "layers": 1, "heads": 2, "intermediate_size": 64, "vocab_size": 330}
    return parse_settings({"policy": {"tiny": small}, "training": {"verl": {"frozen": place}}})


def test_a_frozen_server_beside_the_trainer_comes_back_and_ends_with_the_run(tmp_path):
    (tmp_path / "vllm.py").write_text(VLLM)
    settings = settings_with(f"{sys.executable} {tmp_path / 'vllm.py'}")
    policy = tmp_path / "policy"
    build_tiny_policy(policy, settings.policy.tiny, ["30 year old male with pain", "order blood count"])
    sampler = InProcessSampler.from_folder(policy)
    prompt, sampling = sampler.tokenizer.encode_conversation([{"role": "user", "content": "30 year old"}]), Sampling(6)
    [expected] = asyncio.run(sampler.sample(prompt, (0,), sampling, derive_seed(3, 0)))

    def servers() -> list[psutil.Process]:
        return [p for p in psutil.Process().children(recursive=True) if p.cmdline()[1:2] == [str(tmp_path / "vllm.py")]]

    with frozen_server(settings, policy, tmp_path, patience=60) as beside:
        beside.ensure_ready()
        spec = ModelSpec(where=beside.address, name="frozen", credentialed=True, retries=8, pause=0.5)
        server = open_model(spec, tokenizer=sampler.tokenizer)
        for _ in range(2):
            [drawn] = asyncio.run(server.sample(prompt, (0,), sampling, 3))
            assert drawn.token_ids == expected.token_ids
            [process] = servers()
            process.kill()  # the next request waits until it is back
            process.wait()
        assert "starting it again" in beside.log.read_text()
    assert not servers()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("no-such-vllm", "no-such-vllm: cannot be started"),
        ("false", "exit status 1 before it was ready(?s:.*)starting it again"),
        (f"{sys.executable} -c 'import time; time.sleep(60)'", "was not ready within 2 seconds"),
    ],
)
def test_a_frozen_server_that_cannot_be_used_stops_the_run(tmp_path, command, says):
    start = time.monotonic()
    server = frozen_server(settings_with(command), tmp_path, tmp_path, patience=2)
    with server, pytest.raises(ModelUnavailable, match=says):
        server.ensure_ready()
    assert time.monotonic() - start < 30


WITHOUT_TOOLKIT = {"VLLM_USE_FLASHINFER_SAMPLER=0", "VLLM_USE_DEEP_GEMM=0", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1"}


def test_vllm_of_a_job_compiles_nothing_at_its_start(tmp_path, monkeypatch):
    """Beside the trainer and for evaluations: the driver alone is there, no CUDA toolkit. What you export counts."""
    monkeypatch.delenv("VLLM_USE_DEEP_GEMM", raising=False)
    frozen = frozen_server(settings_with("sh -c env"), tmp_path, tmp_path)
    serving = Serving(program="vllm", command="sh -c env {port}")
    for server in (frozen, OwnServer(serving, "weights", "model", tmp_path / "evaluation.log")):
        with server, pytest.raises(ModelUnavailable):
            server.ensure_ready()
        assert set(server.log.read_text().splitlines()) >= WITHOUT_TOOLKIT
    monkeypatch.setenv("VLLM_USE_DEEP_GEMM", "1")
    with OwnServer(serving, "weights", "model", tmp_path / "own.log") as server, pytest.raises(ModelUnavailable):
        server.ensure_ready()
    assert "VLLM_USE_DEEP_GEMM=1" in server.log.read_text().splitlines()


# As verl starts Ray, on a cluster that runs already: its processes do not inherit the variables of this one.
ACTOR = """
import os, sys, ray
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
with initialize_config_module("verl.trainer.config", version_base=None):
    config = compose("ppo_trainer", overrides=sys.argv[2:])
started = OmegaConf.to_container(config.ray_kwargs.ray_init)
ray.init(sys.argv[1], runtime_env=started["runtime_env"], log_to_driver=False)
class Server:
    def environment(self):
        return [f"{name}={value}" for name, value in os.environ.items()]
actor = ray.remote(Server).options(runtime_env={"env_vars": {"OF_THE_ACTOR": "1"}}).remote()
print("\\n".join(ray.get(actor.environment.remote(), timeout=60)))
"""


@pytest.mark.verl
def test_every_process_of_verl_has_the_environment_of_the_run(tmp_path):
    settings = parse_settings({"training": {"verl": {"rollout": "cpu", "gpus_per_node": 1, "tensor_parallel": 1}}})
    arguments = hydra_arguments(translate_settings(settings, tmp_path, tmp_path))
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "VERL_"))}
    plain |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    port = str(20_000 + os.getpid() % 10_000)
    head = ["ray", "start", "--head", "--block", "--num-cpus=4", f"--port={port}", "--include-dashboard=false"]
    head[0] = os.path.join(os.path.dirname(sys.executable), "ray")
    with (tmp_path / "ray.log").open("w") as log:
        cluster = subprocess.Popen(head, stdout=log, stderr=log, env=plain)
        try:
            command = [sys.executable, "-W", "ignore", "-c", ACTOR, f"127.0.0.1:{port}", *arguments]
            made = subprocess.run(command, capture_output=True, text=True, env=plain, timeout=240)
        finally:
            cluster.terminate()
            cluster.wait()
    held = set(made.stdout.splitlines())
    expected = {"VERL_PLATFORM=cpu", "HF_HUB_OFFLINE=1", "OF_THE_ACTOR=1", "RAY_USAGE_STATS_ENABLED=0"}
    assert held >= WITHOUT_TOOLKIT | expected, made.stderr[-3000:]


def test_vllm_is_told_what_the_plan_was_made_with(tmp_path):
    settings = settings_with("/opt/vllm/bin/vllm", at_once=64)
    with frozen_server(settings, tmp_path, tmp_path) as server:
        command = server.command
    assert command[:3] == ["/opt/vllm/bin/vllm", "serve", str(tmp_path)]
    pairs = dict(itertools.pairwise(command))
    assert pairs["--host"] == "127.0.0.1" and pairs["--gpu-memory-utilization"] == "0.1"
    assert pairs["--max-num-seqs"] == "64" and int(pairs["--max-model-len"]) > settings.policy.max_prompt_tokens
    both = merge(settings.model_dump(), {"training": {"verl": {"frozen": {"url": "http://127.0.0.1:1/v1"}}}})
    with pytest.raises(SettingsError, match="chooses its address"):
        check_settings(parse_settings(both))


@pytest.mark.verl
def test_an_adapter_becomes_part_of_the_weights(tmp_path):
    """As verl's merger leaves it: initial weights, the adapter beside them, its scale untold."""
    import peft

    from cdpr.training.verl.checkpoints import fold_adapter

    tiny = settings_with("vllm").policy.tiny
    folder = build_tiny_policy(tmp_path / "policy", tiny, ["30 year old male with pain"])
    model = load_model(folder)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=4, target_modules=["q_proj", "down_proj"]))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.1)
    ids = torch.tensor([[5, 6, 7, 8]])
    expected = adapted(ids).logits
    adapted.save_pretrained(folder / "lora_adapter")
    config = folder / "lora_adapter" / "adapter_config.json"
    config.write_text(config.read_text().replace('"lora_alpha": 4', '"lora_alpha": 0'))
    fold_adapter(folder, 4)
    merged = load_model(folder)
    assert not (folder / "lora_adapter").exists()
    assert torch.allclose(merged(ids).logits, expected, atol=0.05)
    changed = {n for n, p in merged.named_parameters() if not torch.allclose(p, before[n], atol=5e-3)}
    assert {name.split(".")[-2] for name in changed} == {"q_proj", "down_proj"}


# Three starts: on too few CPUs, one that Ray has no room for, and one that has started.
STARTS = """
import pathlib, ray, sys, time
from cdpr.settings import SettingsError
from cdpr.training.verl.launch import time_to_start
from cdpr.training.verl.session import START
ray.init(address="local", num_cpus=4, num_gpus=1, include_dashboard=False, log_to_driver=False)
state = pathlib.Path(sys.argv[1])
for cpus, patience, waits in ((5, 60, True), (4, 3, True), (4, 3, False)):
    try:
        with time_to_start(state, cpus, patience):
            group = ray.util.placement_group([{"CPU": 8, "GPU": 1}])
            (state / START).write_text("the training processes" if waits else "")
            ray.get(group.ready(), timeout=90 if waits else 5)
    except SettingsError as error:
        print(error)
    except ray.exceptions.GetTimeoutError:
        print("nothing stopped it")
"""


@pytest.mark.verl
def test_a_start_ends_where_ray_would_wait_for_ever(tmp_path):
    made = subprocess.run([sys.executable, "-W", "ignore", "-c", STARTS, str(tmp_path)], capture_output=True, text=True)
    few, late, started = made.stdout.splitlines()
    assert few == "training.verl: Ray has 4 CPUs, and the run takes 5: use a machine with more"
    assert "within 3 seconds; it waits for the training processes: Ray has no room for 8 CPUs and 1 GPUs" in late
    assert started == "nothing stopped it", made.stderr


@pytest.mark.parametrize(
    ("verl", "cpus"),
    [({"gpus_per_node": 1}, 5), ({"gpus_per_node": 8, "nodes": 2}, 50), ({"gpus_per_node": 2, "frozen": {}}, 10)],
)
def test_ray_takes_two_cpus_and_three_a_gpu(verl, cpus):
    beside = {"frozen": {"beside": True, "memory": 0.1}}
    settings = parse_settings({"training": {"verl": beside | {"tensor_parallel": 1} | verl}})
    assert cpus_of_ray(settings) == cpus


# `srun` on one machine: the same command twice, as machine 0 and machine 1.
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
trap 'kill $(jobs -p); wait; exit' TERM
SLURM_NODEID=0 "$@" & SLURM_NODEID=1 "$@" & wait
"""


# A process of its own: Ray reads how machines know each other when it is imported. A stranger lacks the secret.
TWO = """
import os, pathlib, subprocess, sys
from cdpr.training.verl.launch import ray_cluster
with ray_cluster(2, pathlib.Path(sys.argv[1]), patience=120):
    import ray
    from cdpr.training.verl.agent_loop import ray_options
    ray.init(log_to_driver=False)
    print(sum(node["Alive"] for node in ray.nodes()), "alive")
    known = {node["NodeManagerAddress"] for node in ray.nodes()}
    host = os.environ["RAY_ADDRESS"].split(":")[0]
    print("found by", "its own address" if host in known else host)
    head = ray.get_runtime_context().get_node_id()
    [other] = {node["NodeID"] for node in ray.nodes()} - {head}
    class Asking:
        def node(self):
            return ray.get_runtime_context().get_node_id()

    for url, soft in (("http://127.0.0.1:8000/v1", True), ("http://192.0.2.9:8000/v1", False)):  # verl asks softly
        chosen = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(other, soft=soft)
        actor = ray.remote(**ray_options(url))(Asking).options(name=url, scheduling_strategy=chosen).remote()
        print(url, "is asked", "where the run started" if ray.get(actor.node.remote()) == head else "elsewhere")
    outside = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    entered = subprocess.run([sys.executable, "-c", "import ray; ray.init()"], env=outside, capture_output=True)
    print("a stranger is", "in" if entered.returncode == 0 else "refused")
    ray.shutdown()
print("no address is left" if "RAY_ADDRESS" not in os.environ else os.environ["RAY_ADDRESS"])
"""


@pytest.mark.verl
def test_machines_of_a_slurm_job_become_one_ray_cluster(tmp_path, monkeypatch):
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "squeue").write_text("#!/bin/sh\necho 2\n")
    for name in ("srun", "squeue"):
        (tmp_path / name).chmod(0o755)
    beside = os.path.dirname(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path}:{beside}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", str(os.getpid()))
    for name in ("SLURM_JOB_NUM_NODES", "RAY_ADDRESS"):  # a job of Snakemake's plugin knows its number only
        monkeypatch.delenv(name, raising=False)
    made = subprocess.run([sys.executable, "-W", "ignore", "-c", TWO, str(tmp_path / "ray.log")],
                          capture_output=True, text=True)  # fmt: skip
    assert made.stdout.splitlines()[-6:] == [
        "2 alive",
        "found by its own address",
        "http://127.0.0.1:8000/v1 is asked where the run started",
        "http://192.0.2.9:8000/v1 is asked elsewhere",
        "a stranger is refused",
        "no address is left",
    ], made.stderr
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path / "srun") in (p.info["cmdline"] or [])]


@pytest.mark.verl
def test_the_worker_asks_a_local_frozen_server_from_the_first_machine(tmp_path):
    from omegaconf import OmegaConf

    from cdpr.training.verl.agent_loop import GroupManager
    from cdpr.training.verl.session import Session

    for k, url in enumerate(["http://127.0.0.1:8000/v1", "unix:/run/frozen", "http://192.0.2.9:8000/v1", None]):
        settings = parse_settings({"training": {"verl": {"frozen": {"url": url}}}})
        path = tmp_path / f"{k}.json"
        Session(settings, tmp_path, tmp_path, tmp_path, 0).write(path)
        config = {"actor_rollout_ref": {"rollout": {}, "model": {}}, "data": {"cdpr_session": str(path)}}
        needs = GroupManager(OmegaConf.create(config), None).agent_loop_workers_class._default_options["resources"]
        assert list(needs) == (["node:__internal_head__"] if k < 2 else []), url
        assert all(100 * share <= 1 for share in needs.values()), url  # of the machine's one unit, by many workers


def test_a_killed_run_falls_back_to_its_newest_whole_checkpoint(tmp_path):
    """Whatever verl named the latest; nothing whole means a start from the beginning."""
    for step in (200, 400, 600):
        (checkpoint_folder(tmp_path, step) / "actor").mkdir(parents=True)
    (tmp_path / LATEST).write_text("600")
    assert prepare_resume(tmp_path) is None and not list(tmp_path.iterdir())
    checkpoint_folder(tmp_path, 200).mkdir()
    keep_only(tmp_path, 200)
    checkpoint_folder(tmp_path, 1000).mkdir()  # half written, and named
    (tmp_path / LATEST).write_text("1000")
    assert prepare_resume(tmp_path) == 200 and (tmp_path / LATEST).read_text() == "200"
    checkpoint_folder(tmp_path, 1000).mkdir()
    keep_only(tmp_path, 1000)
    assert [path.name for path in tmp_path.glob("global_step_*")] == ["global_step_1000"]


def test_a_run_says_what_it_lacks(monkeypatch):
    from cdpr.training.verl import launch

    settings = parse_settings({}).training.verl.model_copy(update={"rollout": "vllm"})
    there = {"verl": False, "vllm": False, "flash_attn": False, "cdpr_verl_cpu": False}
    monkeypatch.setattr(launch, "find_spec", lambda name: name if there[name] else None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: there["vllm"] == "with a GPU")
    monkeypatch.setenv("CC", "cc")
    for name, state, says in [("verl", False, "make gpu-env"), ("verl", True, "vllm is not installed"),
                              ("vllm", True, "finds no GPU"), ("vllm", "with a GPU", "attention: sdpa")]:  # fmt: skip
        there[name] = state
        with pytest.raises(SettingsError, match=says):
            launch._check_installed(settings)
    sdpa = settings.model_copy(update={"attention": "sdpa"})
    launch._check_installed(sdpa)
    with monkeypatch.context() as bare:
        bare.delenv("CC")
        bare.setattr(launch.shutil, "which", lambda name: None)
        with pytest.raises(SettingsError, match="install gcc"):
            launch._check_installed(sdpa)
    there["vllm"], without_gpu = False, settings.model_copy(update={"rollout": "cpu"})
    with pytest.raises(SettingsError, match="tests/verl_cpu"):
        launch._check_installed(without_gpu)
    there["cdpr_verl_cpu"] = True
    launch._check_installed(without_gpu)


def test_several_machines_without_a_cluster_are_refused(tmp_path, monkeypatch):
    def refused(message: str, error: type[Exception] = SettingsError) -> None:
        with pytest.raises(error, match=message), ray_cluster(2, tmp_path / "ray.log"):
            raise AssertionError("it went on")

    for name in ("RAY_ADDRESS", "SLURM_JOB_ID", "SLURM_JOB_NUM_NODES"):
        monkeypatch.delenv(name, raising=False)
    refused("profiles/slurm")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    refused("this Slurm job has 1")
    monkeypatch.delenv("SLURM_JOB_NUM_NODES")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("PATH", str(tmp_path))
    refused("job 17 has")
    (tmp_path / "squeue").write_text("#!/bin/sh\necho Invalid job id specified >&2; exit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    refused("Invalid job id")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    monkeypatch.setitem(sys.modules, "ray", None)
    refused("before Ray", RuntimeError)
    with ray_cluster(1, tmp_path / "ray.log"):
        assert "RAY_ADDRESS" not in os.environ


def test_a_policy_is_whole_where_only_some_of_its_files_can_be_linked(tmp_path, monkeypatch):
    link, policy = os.link, tmp_path / "policy"
    policy.mkdir()
    for name in ("a.safetensors", "b.safetensors", "config.json"):
        (policy / name).write_text(name)

    def link_configuration_alone(source, target):
        if source.endswith(".safetensors"):
            raise OSError("too many links")
        link(source, target)

    monkeypatch.setattr(os, "link", link_configuration_alone)
    link_policy(policy, tmp_path / "out")
    assert {file.name: file.read_text() for file in (tmp_path / "out").iterdir()} == {
        file.name: file.name for file in policy.iterdir()
    }
    assert (tmp_path / "out/config.json").samefile(policy / "config.json")
