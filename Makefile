# Every command works from a clean clone: the environment is made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: run test check bench format clean

run: $(VENV)/installed
	@$(BIN)/cookhouse run supervised $(ARGS)

test: $(VENV)/installed-dev
	$(BIN)/pytest $(ARGS)

check: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/installed-bench
	$(BIN)/python -m bench.supervised $(ARGS)

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# torch goes first and pinned: left to a resolver it brings gigabytes of CUDA libraries.
$(VENV)/installed: pyproject.toml constraints.txt
	@echo "Installing cookhouse into $(VENV) (once; a few minutes on a slow network)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip
	@$(PIP) torch
	@$(PIP) --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	@$(PIP) --editable ".[dev]"
	@touch $@

$(VENV)/installed-bench: $(VENV)/installed
	@$(PIP) --editable ".[bench]"
	@touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
