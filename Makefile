# make sweep | test | lab | lint | bench. Needs only Python 3.11+; everything else goes into .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile
# A GPU machine says which CuPy it wants: make sweep EXTRAS=cuda13
EXTRAS ?=
comma  := ,
# Packages are compiled when first imported, not all at set-up: so Python must be let to store that.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup sweep test lab lint bench clean

help:
	@echo "make sweep   set up .venv, run the width-gate sweep, print table, figure, data, notebook"
	@echo "make test    set up .venv, run every test"
	@echo "make lab     open JupyterLab on notebooks/"
	@echo "make lint    ruff, format check, types, notebooks stored clean"
	@echo "make bench   benchmarks, printed as ratios"
	@echo "A GPU: add EXTRAS=cuda12 or EXTRAS=cuda13 to the first call."

# While pip works .busy holds make's process number: what a killed set-up left is made anew, what
# another make is busy with is not. A pip that fails leaves nothing half-done.
INSTALL = echo $$PPID >$(VENV)/.busy; $(PIP) -e $(1); code=$$?; rm -f $(VENV)/.busy; exit $$code
USABLE  = $(BIN)/python -m pip --version >/dev/null 2>&1 && \
  { test ! -e $(VENV)/.busy || kill -0 $$(cat $(VENV)/.busy) 2>/dev/null; }

$(VENV)/.runtime$(EXTRAS): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "verifylab needs Python 3.11 or newer, found %d.%d: make PYTHON=python3.12 ..." % sys.version_info[:2])'
	@echo "setting up $(VENV) (once) ..."
	@{ $(USABLE); } || $(PYTHON) -m venv --clear $(VENV)
	@$(call INSTALL,'.$(if $(EXTRAS),[$(EXTRAS)])')
	@touch $@

$(VENV)/.dev$(EXTRAS): $(VENV)/.runtime$(EXTRAS)
	@echo "adding the test tools to $(VENV) (once) ..."
	@$(call INSTALL,'.[dev$(comma)cluster$(if $(EXTRAS),$(comma)$(EXTRAS))]')
	@touch $@

setup: $(VENV)/.runtime$(EXTRAS)
	@:

sweep: setup
	@$(BIN)/python -m verifylab sweep data/sweeps/width_gate.toml

test: $(VENV)/.dev$(EXTRAS)
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lab: setup
	@$(BIN)/python -m jupyterlab $(if $(filter 0,$(shell id -u)),--allow-root) notebooks

lint: $(VENV)/.dev$(EXTRAS)
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m mypy
	@$(BIN)/python scripts/notebooks_clean.py --check

bench: $(VENV)/.dev$(EXTRAS)
	@for b in benchmarks/bench_*.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done

clean:
	rm -rf $(VENV) build dist *.egg-info
