# make sweep | test | lab | lint | bench. Needs only Python 3.11+; everything else goes into .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile
# A GPU machine says which CuPy it wants: make sweep EXTRAS=cuda13
EXTRAS ?=
comma  := ,

.DEFAULT_GOAL := help
.PHONY: help setup sweep test lab lint bench clean

help:
	@echo "make sweep   set up .venv, run the width-gate sweep, print table, figure, data, notebook"
	@echo "make test    set up .venv, run every test"
	@echo "make lab     open JupyterLab on notebooks/"
	@echo "make lint    ruff, format check, types, notebooks stored clean"
	@echo "make bench   benchmarks, printed as ratios"
	@echo "A GPU: add EXTRAS=cuda12 or EXTRAS=cuda13 to the first call."

$(VENV)/.runtime$(EXTRAS): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "verifylab needs Python 3.11 or newer, found %d.%d: make PYTHON=python3.12 ..." % sys.version_info[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once) ..."
	@$(PIP) -e '.$(if $(EXTRAS),[$(EXTRAS)])'
	@touch $@

$(VENV)/.dev$(EXTRAS): $(VENV)/.runtime$(EXTRAS)
	@echo "adding the test tools to $(VENV) (once) ..."
	@$(PIP) -e '.[dev$(if $(EXTRAS),$(comma)$(EXTRAS))]'
	@touch $@

setup: $(VENV)/.runtime$(EXTRAS)

sweep: setup
	@$(BIN)/verifylab sweep data/sweeps/width_gate.toml

test: $(VENV)/.dev$(EXTRAS)
	@$(BIN)/python -m pytest -n 2 --dist loadfile

lab: setup
	@$(BIN)/jupyter lab notebooks

lint: $(VENV)/.dev$(EXTRAS)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python scripts/notebooks_clean.py --check

bench: $(VENV)/.dev$(EXTRAS)
	@for b in benchmarks/bench_*.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done

clean:
	rm -rf $(VENV) build dist *.egg-info
