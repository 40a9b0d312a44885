# Start with `make demo` or `make test`. `make help` lists the rest.
SHELL  := /bin/bash
KNOWN  := import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))
PYTHON ?= $(shell for p in python3 python3.12 python3.11; do $$p -c '$(KNOWN)' 2>/dev/null && echo $$p && break; done)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PEER   := .venv-peer
TORCH  := .venv-torch
RUNTIMES := .venv-runtimes
ENGINES := .venv-engines
OLDEST := .venv-oldest
NEWEST := .venv-newest
DOCS   := .venv-docs
# What shows that a set of versions works: everything fast, and a build, follows and searches.
RANGES := tests/unit tests/contract/test_stores.py tests/integration/test_follow.py tests/integration/test_spark_page.py
FAST   := tests/unit/ tests/property/ tests/contract/
# Each worker has its own Spark session and keeps about one core busy.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS)

# A company's proxy has its certificates in the system's store, not in uv's.
export UV_SYSTEM_CERTS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup browser demo test check soak matrix mutants bench docs clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

setup: $(STAMP)  ## install everything, once
	@$(BIN)/python -m compileall -q src
	@$(BIN)/lakewake setup

demo: setup  ## write a table, build an index, change a row and watch the index follow
	@$(BIN)/lakewake demo

test: check browser  ## everything in check, then the tests with real Spark, Hudi and Lance
	@echo "tests: Spark, Hudi and Lance"
	@$(PYTEST) --durations=30 $(filter-out $(FAST),$(wildcard tests/*/))

check: setup  ## lint, type check, layers and the fast tests (about two minutes)
	@echo "check: ruff, mypy, import-linter"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@echo "check: fast tests"
	@$(PYTEST) $(FAST)

# For the tests of the page. Without Chromium they are reported as skipped.
browser:
	@command -v chromium >/dev/null || { echo "setup: installing Chromium for the tests of the page"; \
	  { test "$$(id -u)" = 0 && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
	    --no-install-recommends chromium fonts-liberation; } >/dev/null 2>&1 \
	  || echo "setup: Chromium cannot be installed here; the tests of the page are skipped"; }

soak: setup  ## run the long tests: hundreds of random histories, watchers for minutes (hours)
	@$(BIN)/python -m pytest tests -m soak -s

matrix: setup $(TORCH)/.installed $(OLDEST)/.installed $(NEWEST)/.installed  ## test every Hudi scenario on default settings, older Hudi versions, a Spark cluster, S3 and the bars (an hour)
	@$(BIN)/python -m pytest tests -m matrix --ignore tests/objectstore
	@$(BIN)/python -m pytest tests/objectstore -m matrix
	@$(TORCH)/bin/python -m pytest tests/unit/embed/test_sentence.py tests/unit/embed/test_card.py tests/unit/rerank
	@for versions in $(OLDEST) $(NEWEST); do echo "matrix: the ranges of pyproject.toml, $$versions"; \
	  PATH=$(CURDIR)/$(BIN):$$PATH $$versions/bin/python -m pytest $(RANGES) || exit 1; done

mutants: setup  ## break one rule at a time and show the test that fails (about five minutes)
	@$(BIN)/python tests/mutants.py

bench: setup $(PEER)/.installed $(RUNTIMES)/.installed $(ENGINES)/.installed  ## measure every bar beside what people use today (two hours); BARS=4,5 measures two
	@$(BIN)/python -m bench --peer $(PEER)/bin/python $(if $(BARS),--bars $(BARS)) $(if $(SIZE),--size $(SIZE))

docs: setup $(DOCS)/.installed  ## build the site of docs/ into site/, with the reference generated from the code
	@$(BIN)/python docs/generate.py
	@$(DOCS)/bin/zensical build --clean --strict

clean:  ## remove what make created here; downloaded models and jars stay in your cache
	rm -rf $(VENV) $(PEER) $(TORCH) $(RUNTIMES) $(ENGINES) $(OLDEST) $(NEWEST) $(DOCS) build dist site src/*.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# Runs again when the pinned versions change; a failed install leaves no stamp. It compiles bytecode:
# if Python may not write it later, every start compiles what it imports (0.7 s of 1.6 s).
$(STAMP): pyproject.toml constraints.txt
	@$(or $(PYTHON),false) -c '$(KNOWN)' || { echo "setup: Python 3.11 or 3.12 is needed; name one with make PYTHON=…" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "setup: creating $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; }
	@echo "setup: installing pinned packages (about 1 GB, 1 to 2 minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.7
	@$(BIN)/uv pip install --compile-bytecode --python $(BIN)/python --constraint constraints.txt --editable '.[dev,bench]'
	@touch $@

# The packages of the hand-written scripts, with torch, in an environment of their own (6 GB).
$(PEER)/.installed: bench/constraints.txt | setup
	@echo "bench: installing the peers' packages (6 GB, a few minutes the first time)"
	@rm -rf $(PEER) && $(BIN)/uv venv --quiet --python $(BIN)/python $(PEER)
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(PEER)/bin/python --constraint bench/constraints.txt sentence-transformers lancedb pyspark pandas
	@touch $@

# Other runtimes for models on the processor, for bar 42.
$(RUNTIMES)/.installed: bench/runtimes.txt | setup
	@echo "bench: installing other runtimes (300 MB)"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(RUNTIMES)
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(RUNTIMES)/bin/python --requirements bench/runtimes.txt
	@touch $@

# Engines that search vectors, and a Postgres with pgvector, for bars 33 and 34.
$(ENGINES)/.installed: bench/engines.txt | setup
	@echo "bench: installing other engines (600 MB)"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(ENGINES)
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(ENGINES)/bin/python --requirements bench/engines.txt
	@touch $@

# Lakewake beside torch, for the parts that run sentence-transformers; the versions are those of the peers.
$(TORCH)/.installed: pyproject.toml constraints.txt bench/constraints.txt | setup
	@echo "matrix: installing torch (6 GB, a few minutes the first time)"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(TORCH)
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(TORCH)/bin/python --constraint constraints.txt \
	  $$(grep -E '^(torch|transformers|sentence-transformers)==' bench/constraints.txt) --editable '.[dev]'
	@touch $@

# The oldest and the newest versions in the ranges of pyproject.toml. The lock is neither.
$(OLDEST)/.installed: pyproject.toml | setup
	@echo "matrix: installing the oldest versions"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(OLDEST)
	@$(BIN)/uv pip compile --quiet --resolution lowest-direct --python $(BIN)/python \
	  $(foreach extra,lake langchain mcp qdrant serve spark tokens,--extra $(extra)) \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml --output-file $(OLDEST)/versions.txt >/dev/null
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(OLDEST)/bin/python --constraint $(OLDEST)/versions.txt --editable '.[dev]'
	@touch $@

$(NEWEST)/.installed: pyproject.toml | setup
	@echo "matrix: installing the newest versions"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(NEWEST)
	@$(BIN)/uv pip install --quiet --upgrade --compile-bytecode --python $(NEWEST)/bin/python --editable '.[dev]'
	@touch $@

$(DOCS)/.installed: pyproject.toml constraints.txt | setup
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(DOCS)
	@$(BIN)/uv pip install --quiet --python $(DOCS)/bin/python --constraint constraints.txt zensical
	@touch $@
