# `make run` and `make test` set up everything they need in .venv; a second call reuses it. What only developers need is
# installed when they first ask for it.
VENV := .venv
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
WORKERS ?= 2

.PHONY: run test soak lint format coverage docs notebooks docs-results hashes

run: $(VENV)/.ready
	$(VENV)/bin/engram demo

test: $(VENV)/.developing
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -q -n $(WORKERS)

# The tests, and the share of lines in engram/ that they reach, also in processes they start.
coverage: $(VENV)/.developing
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -q -n $(WORKERS) --cov=engram --cov-report=term:skip-covered

# Faults at length: 220 kills, 25,000 malformed inputs, 100,000 batches. About two hours.
soak: $(VENV)/.developing
	ENGRAM_SOAK=1 OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -q -n $(WORKERS) tests/faults tests/serve tests/persistence tests/streams/test_bombs.py tests/test_devices.py

lint: $(VENV)/.developing
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# The documentation site, in site/. A warning or a broken link is an error.
docs: $(VENV)/.documenting
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict --quiet

# The notebooks with their outputs, made again.
notebooks: $(VENV)/.documenting
	OMP_NUM_THREADS=1 $(VENV)/bin/python docs/run_notebooks.py

# The measured figures of README and docs, from results/.
docs-results: $(VENV)/.ready
	$(VENV)/bin/python docs/generate.py
	$(VENV)/bin/python docs/figures.py

# requirements.txt with checksums, from constraints.txt. OWN names wheels to take instead of the index's: torch's CPU build.
hashes: $(VENV)/.ready
	$(VENV)/bin/python .ci/hashes.py $(OWN)

format: $(VENV)/.developing
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

$(VENV)/.ready: pyproject.toml constraints.txt
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "engram needs Python 3.11 or newer; python3 is " + sys.version.split()[0])'
	@echo "Setting up $(VENV) (once, a minute or two)"
	python3 -m venv $(VENV)
	$(PIP) hatchling editables
	$(PIP) --no-build-isolation -e .
	@touch $@

$(VENV)/.documenting: $(VENV)/.ready
	$(PIP) --no-build-isolation -e '.[docs]'
	@touch $@

$(VENV)/.developing: $(VENV)/.ready
	$(PIP) --no-build-isolation -e '.[dev]'
	@touch $@
