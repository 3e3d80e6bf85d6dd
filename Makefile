# make demo | demo-sites | test | test-carriers | test-spark | audit-replay | nightly | bench | figures | docs | release-check | image-check | lint: each makes what it needs on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
DEV := $(VENV)/.dev
SITES := $(VENV)/.sites
PAPERS := $(VENV)/.papers
OLDER := 2.6.2 2.7.2 2.8.0
DOCS := $(VENV)/.docs

# the tests start hundreds of processes: each would compile the package anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-sites test test-carriers test-spark audit-replay nightly bench figures docs release-check image-check lint format clean
.DEFAULT_GOAL := demo

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed; say: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

LOOPS := hatch_build.py src/eigenveil/moments/_loops.c

$(CORE): $(BIN)/python pyproject.toml $(LOOPS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(DEV): $(BIN)/python $(LOOPS) pyproject.toml papers/pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' --editable ./papers
	touch $@ $(CORE) $(PAPERS)

$(PAPERS): $(BIN)/python pyproject.toml papers/pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --editable ./papers
	touch $@ $(CORE)

$(SITES): $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[sites]'
	touch $@ $(CORE)

$(DOCS): $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@ $(CORE)

demo: $(CORE)  ## private PCA of patients' visits that three sites keep to themselves
	$(BIN)/eigenveil demo demo
	@command -v eigenveil > /dev/null || echo "To type eigenveil yourself, first: . $(BIN)/activate"

demo-sites: $(SITES) $(if $(filter flare,$(CARRIER)),$(DEV) .venv-flare-2.9.0/.done) $(if $(filter flower,$(CARRIER)),$(DEV) .venv-flower/.done)  ## three sites, an aggregator and a lead as processes; CARRIER=https, folder, flare or flower
	$(BIN)/python examples/sites_demo.py $(if $(CARRIER),--carrier $(CARRIER))

test: $(DEV) lint  ## formatting, lint, types, import rules, tests
	$(BIN)/python -m pytest -n auto --dist worksteal

# networks that relays move mail through: each pins libraries that the package does not
.venv-flare-%/.done:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check nvflare==$*
	touch $@

.venv-flower/.done:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check flwr==1.41.0
	touch $@

# Spark, beside the environment that it is tried with; Java 17 is the machine's own
.venv-spark/.done: $(DEV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
		--target $(@D) 'pyspark>=4.0,<5' py4j==0.10.9.9
	touch $@

test-spark: .venv-spark/.done  ## Spark's partitions, in a cluster of two executors here
	PYTHONPATH=$(CURDIR)/.venv-spark $(BIN)/python -m pytest -n 0 tests/spark

test-carriers: $(DEV) .venv-flare-2.9.0/.done .venv-flower/.done  ## studies through real FLARE and Flower networks
	$(BIN)/python -m pytest tests/carriers

audit-replay: $(DEV)  ## every fit replayed on neighbouring tables: what depends on rows but the noised sums? PARTS="study stream": these
	$(BIN)/python tests/frozen/replay_cases.py $(PARTS)

nightly: $(DEV) $(OLDER:%=.venv-flare-%/.done) .venv-flare-2.9.0/.done .venv-flower/.done .venv-spark/.done  ## every test in full, new examples, margins, into docs/nightly.md; hours; PARTS="noise carriers": these
	$(BIN)/python tests/nightly.py $(PARTS)

lint: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache > /dev/null || $(BIN)/lint-imports --no-cache
	$(BIN)/python tests/house/house.py

format: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(DEV)  ## measured numbers: utility, time against the limit, memory
	$(BIN)/python -m benchmarks

figures: $(PAPERS)  ## everything in docs/ that is measured and drawn; make figures FAST=1: smaller
	$(BIN)/python examples/error_page.py docs/errors.md
	$(BIN)/python examples/diagrams.py docs/images
	$(BIN)/python examples/figures.py docs $(if $(FAST),--fast)
	$(BIN)/eigenveil reproduce all $(if $(FAST),--fast) --out docs/images/reproduction \
		--page docs/reproduction.md

docs: $(DOCS) $(PAPERS)  ## the documentation site in docs/_build/html; what it prints runs, its links and pages are checked
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	EIGENVEIL_SITE=docs/_build/html PYTHONPATH=tests $(BIN)/python -m pytest -q -rs -p browser_tools \
		--noconftest -n 2 --dist loadfile tests/site

release-check: $(BIN)/python  ## wheel and sdist, built twice to the same bytes, tried in a bare environment of each Python that is here
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	$(BIN)/python packaging/release_check.py dist

image-check: $(DEV)  ## the container image is built, and compose.yaml's services run a study in it; root, Linux
	$(BIN)/python packaging/image_check.py $(IMAGE_OPTIONS)

clean:
	rm -rf $(VENV) demo
