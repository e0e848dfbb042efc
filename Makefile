# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCK := $(VENV)/tools/bin/uv pip compile pyproject.toml packaging/build.in --universal --generate-hashes --no-header \
	--no-annotate --quiet

.PHONY: help demo test lint types imports licences unit coverage mutants peers field audit fuzz lock docs docs-pictures pictures format bench clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
		{ echo "Bristle needs Python 3.11, 3.12 or 3.13; name one, e.g.: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "Creating a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml packaging/lock-core.txt | $(BIN)/python
	@echo "Installing Bristle (a minute the first time) ..."
	@$(PIP) --no-deps --only-binary :all: --require-hashes --requirement packaging/lock-core.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml packaging/lock-dev.txt packaging/torch.txt | $(BIN)/python
	@echo "Installing Bristle with its development tools (some minutes the first time) ..."
	@$(PIP) --no-deps --only-binary :all: --require-hashes --requirement packaging/lock-dev.txt
	@$(PIP) --requirement packaging/torch.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.core

$(VENV)/.tools: packaging/tools.txt | $(BIN)/python
	@$(PYTHON) -m venv $(VENV)/tools
	@$(VENV)/tools/bin/python -m pip install --quiet --disable-pip-version-check --requirement packaging/tools.txt
	@touch $@

demo: $(VENV)/.core  ## run the demo; DEMO=--quick for a small one
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

# Two processes with one BLAS thread each; an idle one takes tests from the other.
unit: $(VENV)/.dev peers
	@command -v chromium chromium-browser google-chrome >/dev/null || \
		echo "Chromium is not installed: skipping the browser tests of the live page (apt-get install chromium)." >&2
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist worksteal

coverage: $(VENV)/.dev  ## branch coverage of rules, wire, p2p and peer; fails below 95 %
	@mkdir -p out/coverage
	$(BIN)/pytest tests/rules tests/wire tests/p2p tests/peer --cov --cov-report=json:out/coverage/report.json
	$(BIN)/python benchmarks/branches.py out/coverage/report.json --least 95

mutants: $(VENV)/.dev  ## mutation testing of rules and wire format (an hour; resumes where it stopped)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/mutants.py --out docs/mutants.jsonl

peers: $(VENV)/.peers  ## install ByzFL and ByzPy in .peers, to compare with

# Without their dependencies, which are gigabytes, and outside the virtual environment.
$(VENV)/.peers: benchmarks/peers.txt $(VENV)/.dev
	@echo "Installing ByzFL and ByzPy in .peers to compare with ..."
	@rm -rf .peers
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target .peers --requirement benchmarks/peers.txt
	@touch $@

docs: $(VENV)/.dev  ## build the documentation into site/; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-pictures: $(VENV)/.dev  ## redraw the documentation's pictures
	OMP_NUM_THREADS=1 $(BIN)/python docs/make_figures.py

field: $(VENV)/.field  ## install Flower and p2pfl in separate environments, to compare with

$(VENV)/.field: benchmarks/flower.txt benchmarks/p2pfl.txt $(VENV)/.dev
	@rm -rf .field
	@for name in flower p2pfl; do \
		echo "Installing $$name in .field/$$name to compare with ..."; \
		$(BIN)/python -m venv .field/$$name && \
		.field/$$name/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement benchmarks/$$name.txt || \
		{ echo "$$name could not be installed and is left out" >&2; rm -rf .field/$$name; }; \
	done
	@touch $@

bench: peers field  ## compare with other libraries, in ten minutes; writes docs/benchmarks.md
	$(BIN)/python benchmarks/suite.py --page docs/benchmarks.md

pictures: $(VENV)/.dev  ## take the pictures of the live page for docs/; needs Chromium
	OMP_NUM_THREADS=1 $(BIN)/python docs/make_pictures.py

audit: $(VENV)/.tools  ## check pinned versions for known vulnerabilities, if the database can be reached
	@$(VENV)/tools/bin/python packaging/audit.py

fuzz: $(VENV)/.dev  ## fuzz every interface for some minutes; see docs/fuzzing.md
	$(BIN)/python fuzz/run.py all --inputs 100000

lock: $(VENV)/.tools  ## after a change of dependencies; UPGRADE=--upgrade for newer versions of everything
	$(LOCK) --python-version 3.11 --extra plots --output-file packaging/lock-core.txt $(UPGRADE)
	$(LOCK) --python-version 3.11.5 --extra dev --output-file packaging/lock-dev.txt $(UPGRADE) \
		--constraint packaging/lock-core.txt --constraint packaging/torch.txt --no-emit-package torch --excludes packaging/lock-excludes.txt

format: $(VENV)/.dev  ## format the sources
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

clean:  ## remove everything that the other targets made
	rm -rf $(VENV) .peers .field .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist site
