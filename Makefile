# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Wheels that serve every system are installed by hash first; the rest then by exact version.
HASHED := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes

.PHONY: help demo test lint types imports licences unit coverage mutants peers field audit fuzz lock docs docs-pictures pictures format bench clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
		{ echo "Bristle needs Python 3.11, 3.12 or 3.13; name one, e.g.: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "Creating a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt packaging/hashed-core.txt | $(BIN)/python
	@echo "Installing Bristle (a minute the first time) ..."
	@$(HASHED) --requirement packaging/hashed-core.txt
	@$(PIP) --editable '.[plots]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt packaging/hashed-core.txt packaging/hashed-dev.txt | $(BIN)/python
	@echo "Installing Bristle with its development tools (some minutes the first time) ..."
	@$(HASHED) --requirement packaging/hashed-core.txt --requirement packaging/hashed-dev.txt
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.core $(VENV)/.docs

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing Bristle with what its documentation is made with ..."
	@$(PIP) --editable '.[docs,plots]'
	@touch $@ $(VENV)/.core

demo: $(VENV)/.core  ## see Bristle at work (the main job); DEMO=--quick for a small one
	@$(BIN)/bristle demo $(DEMO)

test: lint types imports licences unit  ## everything that CI checks

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports

licences: $(VENV)/.dev
	@$(BIN)/python packaging/licences.py

# Two processes, each with one thread for arithmetic; whoever is done takes from the other.
unit: $(VENV)/.dev peers
	@command -v chromium chromium-browser google-chrome >/dev/null || \
		echo "There is no Chromium: the tests of the live page in a browser are left out (apt-get install chromium)." >&2
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist worksteal

coverage: $(VENV)/.dev  ## branches of rules, wire, p2p and peer that their tests take; fails under 95 %
	@mkdir -p out/coverage
	$(BIN)/pytest tests/rules tests/wire tests/p2p tests/peer --cov --cov-report=json:out/coverage/report.json
	$(BIN)/python benchmarks/branches.py out/coverage/report.json --least 95

mutants: $(VENV)/.dev  ## change one thing at a time and see whether a test notices (an hour; goes on where it stopped)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/mutants.py --out docs/mutants.jsonl

peers: $(VENV)/.peers  ## ByzFL and ByzPy beside the project, to compare with

# Without their dependencies, which pull gigabytes, and apart from the virtual environment.
$(VENV)/.peers: benchmarks/peers.txt $(VENV)/.dev
	@echo "Installing ByzFL and ByzPy in .peers to compare with ..."
	@rm -rf .peers
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target .peers --requirement benchmarks/peers.txt
	@touch $@

docs: $(VENV)/.docs  ## build the documentation into site/; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-pictures: $(VENV)/.docs  ## draw the documentation's pictures anew
	OMP_NUM_THREADS=1 $(BIN)/python docs/make_figures.py

field: $(VENV)/.field  ## Flower and p2pfl in environments of their own, to compare with

$(VENV)/.field: benchmarks/flower.txt benchmarks/p2pfl.txt $(VENV)/.dev
	@rm -rf .field
	@for name in flower p2pfl; do \
		echo "Installing $$name in .field/$$name to compare with ..."; \
		$(BIN)/python -m venv .field/$$name && \
		.field/$$name/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement benchmarks/$$name.txt || \
		{ echo "$$name could not be installed and is left out" >&2; rm -rf .field/$$name; }; \
	done
	@touch $@

bench: peers field  ## ours beside the field, in ten minutes; writes docs/benchmarks.md
	$(BIN)/python benchmarks/suite.py --page docs/benchmarks.md

pictures: $(VENV)/.dev  ## of the live page, for docs/; needs Chromium
	OMP_NUM_THREADS=1 $(BIN)/python docs/make_pictures.py

audit: | $(BIN)/python  ## known vulnerabilities of what is pinned, where their database can be reached
	@test -x $(VENV)/audit/bin/pip-audit || { $(PYTHON) -m venv $(VENV)/audit && \
		$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check --requirement packaging/audit.txt; }
	@$(VENV)/audit/bin/python packaging/audit.py

fuzz: $(VENV)/.dev  ## hostile inputs for every surface, some minutes; see docs/fuzzing.md
	$(BIN)/python fuzz/run.py all --inputs 100000

lock: $(VENV)/.dev  ## after a change of constraints.txt: the hashes of what is the same for everybody
	$(BIN)/python packaging/lock.py

format: $(VENV)/.dev  ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

clean:  ## remove what the other targets made
	rm -rf $(VENV) .peers .field .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist site
