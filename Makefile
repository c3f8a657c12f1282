# make demo   install into .venv, train on the embedded sample, show entities, write report.html
# make test   install and run every check
# make test-long   the tests that take minutes
# make test-gpu   the tests that need a GPU
# make docs   build the site into build/docs
# make fuzz   a million files that are nearly right, with sanitizers
# make sanitize-threads   the thread sanitizer over all that runs on several threads
# make dist   the sdist and the wheels, audited
# make test-matrix   the wheels with the oldest and the newest dependencies, on every Python here
# make bench  measure, side by side with other libraries

PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
# pip reads its constraints from here, also while it builds
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export CRFKIT_DATA ?= $(abspath $(CURDIR)/../shared/data)

.PHONY: demo test test-long test-gpu test-matrix fuzz sanitize-threads lint bench install install-dev browser docs site figures dist clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q "pip>=24"

install: $(BIN)/python
	$(BIN)/python -m pip install -q .

demo: install
	$(BIN)/crfkit demo --report report.html

# Warnings of the compiler are errors here. The build folder is kept, and so is what it builds with (pip's own build
# environments have a new path each time), so that a second run compiles only what has changed. seqeval has no wheel and
# needs a build environment of its own.
install-dev: $(BIN)/python
	$(BIN)/python -m pip install -q scikit-build-core nanobind cmake ninja seqeval
	PATH=$(BIN):$$PATH $(BIN)/python -m pip install -q ".[dev]" --no-build-isolation --config-settings=build-dir=build/dev \
	    --config-settings=cmake.define.CRFKIT_WERROR=ON

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	find src/core -name '*.[ch]pp' | xargs $(BIN)/clang-format --dry-run -Werror
	$(BIN)/mypy
	$(BIN)/python tools/floor_plan.py

# For the tests of the annotation page
browser: install-dev
	$(BIN)/python tools/find_chromium.py

# The tests run outside of the source tree, against the installed package, two at a time.
test: lint site browser
	mkdir -p build/tests
	cd build/tests && $(BIN)/python -m pytest $(CURDIR)/tests --rootdir=$(CURDIR) -c $(CURDIR)/pyproject.toml -p no:cacheprovider -n 2 --dist worksteal

test-long: install-dev browser
	mkdir -p build/tests
	cd build/tests && $(BIN)/python -m pytest $(CURDIR)/tests --rootdir=$(CURDIR) -c $(CURDIR)/pyproject.toml -p no:cacheprovider -m long

test-gpu: install-dev
	mkdir -p build/tests
	cd build/tests && $(BIN)/python -m pytest $(CURDIR)/tests/test_gpu.py --rootdir=$(CURDIR) -c $(CURDIR)/pyproject.toml -p no:cacheprovider

INPUTS ?= 1000000
WORKERS ?= 2
fuzz: install-dev
	PATH=$(BIN):$$PATH $(BIN)/python tools/sanitize.py address,undefined -- \
	    python tools/fuzz.py --inputs $(INPUTS) --workers $(WORKERS) --folder build/findings

sanitize-threads: install-dev
	PATH=$(BIN):$$PATH $(BIN)/python tools/sanitize.py thread -- python tools/threads.py

bench: $(BIN)/python
	$(BIN)/python -m pip install -q ".[bench]"
	$(BIN)/python benchmarks/conll2000.py

# From the numbers that experiments wrote
figures: install-dev
	$(BIN)/python experiments/figures.py

docs: install-dev
	$(BIN)/python tools/cli_page.py
	$(MAKE) site

# The site, offline; warnings (a dead link, anchor or image, a broken docstring) are errors.
site: install-dev
	rm -rf build/docs docs/api/generated
	$(BIN)/python -m sphinx -q -n -W --keep-going -j auto docs build/docs
	$(BIN)/python tools/site_links.py build/docs
	@echo "the site is in build/docs/index.html"

# The tools of the extra "release", without the package itself
dist: $(BIN)/python
	$(BIN)/python -c "import tomllib; \
	    print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['release'], sep='\n')" \
	    | $(BIN)/python -m pip install -q -r /dev/stdin
	PATH=$(BIN):$$PATH $(BIN)/python tools/release.py dist

test-matrix: dist
	PATH=$(BIN):$$PATH $(BIN)/python tools/release.py matrix

clean:
	rm -rf $(VENV) build dist
