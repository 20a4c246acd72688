# make demo   set up, then compare the strategies on the embedded data and write a report page
# make test   set up, then run all tests
# make federation  train on real Flower daemons: a SuperLink and 4 SuperNodes on this machine
# make lint   formatting, lint, types, and which package may import which
# make bench  ours against baselines, side by side, on this machine; prints the ratios

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo federation test lint format bench clean

help:
	@sed -n 's/^# //p' Makefile

$(VENV)/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "fedfa needs Python 3.11 or newer; point to one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Creating the virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed: $(VENV)/created pyproject.toml constraints.txt
	@echo "Installing fedfa (a few minutes on the first time) ..."
	@$(PIP) -e .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed reproduction/pyproject.toml
	@echo "Installing the tools for tests ..."
	@$(PIP) -e '.[dev,nlp,ray,flower]' -e ./reproduction
	@touch $@

$(VENV)/installed-flower: $(VENV)/installed
	@echo "Installing Flower ..."
	@$(PIP) -e '.[flower]'
	@touch $@

demo: $(VENV)/installed
	$(BIN)/fedfa compare

federation: $(VENV)/installed-flower
	$(BIN)/fedfa deploy try examples/flower-digits --nodes 4

test: $(VENV)/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

lint: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

format: $(VENV)/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/installed
	$(BIN)/fedfa bench

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
