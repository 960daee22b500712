# All tasks of the project. Each task installs what it needs; only make and Python 3.11 or later are required.
PYTHON ?= python3
FEED ?= $(or $(MARKET_INDEX_FEED),sample:)
BIN := .venv/bin
# If the environment sets this, each test worker compiles all tests again: 4 of the 7 seconds before its first test.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help help-all serve ledger browser test test-all coverage test-faults test-matrix fuzz nightly mutants seeded check docs wheel lock release npm openapi bench clean
.DELETE_ON_ERROR:

help: # show the tasks of a user
	@awk -F ':.* ## ' '/^[a-z-]+:.* ## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo 'make help-all     show all tasks'

help-all: # show this list
	@awk -F ':.* ##? ' '/^[a-z-]+:.* ##? /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python must be 3.11 or later, got $$($(PYTHON) --version); select one with: make PYTHON=python3.13" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

.venv/serve.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[server]'
	@touch $@

.venv/check.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[server,hypothesis,ledger,nats]' --group check
	@touch $@ .venv/serve.installed

serve: .venv/serve.installed ## serve sample order books that change, on http://127.0.0.1:8000 (FEED=market.db for your own)
	@exec $(BIN)/market-index serve '$(FEED)'

.venv/ledger.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[server,ledger]'
	@touch $@ .venv/serve.installed

ledger: .venv/ledger.installed ## serve order books of a made-up market of the ledger, on http://127.0.0.1:8000 (MARKET_INDEX_PORT=9000 for another port)
	@exec $(BIN)/python -m tests.feeds.ledger.stand_in $(BIN)/market-index serve

AXE := axe-core@4.14.1

live: .venv/ledger.installed ## serve the orders of the ledger from Koios, a free public index, on http://127.0.0.1:8000
	@exec $(BIN)/market-index serve koios:

browser: # install Chromium, node and axe-core on Debian, for the tests of page and clients; without them these tests are skipped
	@{ command -v chromium && command -v node; } >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || \
	  { export DEBIAN_FRONTEND=noninteractive; install='apt-get install -qq -y --no-install-recommends chromium nodejs'; \
	    $$install || { apt-get update -qq && $$install; }; } >/dev/null 2>&1 || true
	@test -e .venv/npm/node_modules/axe-core || ! command -v npm >/dev/null || \
	  npm install --silent --no-audit --no-fund --prefix .venv/npm $(AXE) >/dev/null 2>&1 || true

# More workers than cores, because tests mostly wait for servers and processes.
PYTEST_WORKERS := -n 5 --dist worksteal

test: .venv/check.installed browser ## run the tests in two minutes (PYTEST='-k prices' selects some)
	$(BIN)/python -m pytest $(PYTEST_WORKERS) $(PYTEST)

SEED ?= $(shell $(PYTHON) -c 'import secrets; print(secrets.randbits(32))')

test-all: .venv/check.installed browser # run all tests with random examples, in a random order (SEED=… repeats another run)
	seed=$(SEED); echo "random seed: $$seed"; HYPOTHESIS_PROFILE=thorough MARKET_INDEX_TEST_ORDER=$$seed \
	  $(BIN)/python -m pytest $(PYTEST_WORKERS) -m '' --hypothesis-seed=$$seed $(PYTEST)

coverage: .venv/check.installed browser # report the lines that no quick test runs; no figure of it is a gate
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(PYTEST_WORKERS) $(PYTEST)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

test-faults: .venv/check.installed # kill a publisher, a relay and a recorder 200 times, and run the other faults
	MARKET_INDEX_KILLS=200 $(BIN)/python -m pytest -m '' -o faulthandler_timeout=3600 tests/faults $(PYTEST)

.venv/nox.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --group matrix
	@touch $@

test-matrix: .venv/nox.installed browser # run the tests on each Python from 3.11 that is installed, and with the lowest versions of all dependencies
	$(BIN)/nox $(NOX) -- $(PYTEST_WORKERS) $(PYTEST)

.venv/fuzz.installed: pyproject.toml .venv/check.installed
	@$(BIN)/python -m pip install --quiet --only-binary atheris --group fuzz || \
	  { echo "make fuzz needs atheris, which has wheels only for CPython on Linux (x86-64)" >&2; exit 1; }
	@touch $@

FUZZ_SECONDS ?= 600

fuzz: .venv/fuzz.installed # search inputs that break a property, guided by coverage, for ten minutes (FUZZ_SECONDS=60 for one)
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(TARGET)

NIGHTLY := test-all test-matrix fuzz test-faults seeded mutants

nightly: # run the tasks that take too long for each change: test-all, test-matrix, fuzz, test-faults, seeded, mutants
	@failed=; for task in $(NIGHTLY); do \
	  start=$$(date +%s); $(MAKE) $$task FAULT=--whole MUTATE=--whole || failed="$$failed $$task"; \
	  echo "nightly: $$task took $$(($$(date +%s) - start)) s"; \
	done; test -z "$$failed" || { echo "nightly: failed:$$failed" >&2; exit 1; }

check: .venv/check.installed ## check types, style and formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

.venv/docs.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable . --group docs
	@touch $@

docs: .venv/docs.installed ## build the documentation site, build/site/index.html; warnings are errors
	rm -rf build/site
	$(BIN)/sphinx-build --quiet --fresh-env --doctree-dir build/doctrees --fail-on-warning --keep-going docs build/site
	@echo build/site/index.html

wheel: .venv/check.installed # build the wheel, install it in new environments, and use it there
	$(BIN)/python tests/wheel/use_the_wheel.py

npm: # copy the JavaScript client into dist/npm, as a package that `npm publish` would take; nothing is published
	mkdir -p dist/npm
	cp npm/package.json LICENSE market_index_cli/page/static/client.js market_index_cli/page/static/client.d.ts dist/npm

.venv/release.installed: pyproject.toml .venv/check.installed
	$(BIN)/python -m pip install --quiet --group release
	@touch $@

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --upgrade --custom-compile-command 'make lock'

lock: .venv/release.installed # lock the packages of the image, with their hashes, in docs/deploy/requirements.txt and build-requirements.txt
	$(LOCK) --extra server --extra ledger --extra nats pyproject.toml -o docs/deploy/requirements.txt
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' | \
	  $(LOCK) - -o docs/deploy/build-requirements.txt

release: .venv/release.installed browser # build sdist, wheel and SBOM into dist/, and check them: contents, use on the oldest and newest Python, tests of the sdist (PYTEST='-k prices' selects some)
	$(BIN)/python tests/wheel/use_the_wheel.py dist

openapi: .venv/check.installed # generate the /openapi.json of the server from docs/openapi.yaml
	$(BIN)/python -m tests.openapi

.venv/bench.installed: pyproject.toml .venv/check.installed
	$(BIN)/python -m pip install --quiet --group bench
	@touch $@

bench: .venv/bench.installed ## measure against named peers, and write benchmarks/RESULTS.md (QUICK=1: fewer rounds; ONLY='indexes path': some parts); wrk is used if it is installed
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

.venv/mutants.installed: pyproject.toml .venv/check.installed
	$(BIN)/python -m pip install --quiet --group mutants
	@touch $@

mutants: .venv/mutants.installed # mutation testing: list the changes that no test detects, in hours (MUTATE='prices wire/decode feed' for some modules)
	$(BIN)/python -m tests.mutants $(MUTATE)

seeded: .venv/check.installed # check that each seeded fault of tests/mutants/seeded turns one or two test files red (FAULT=cip14 for one)
	$(BIN)/python -m tests.mutants.faults $(FAULT)

clean: # remove all files that the other tasks create
	rm -rf .venv build dist .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache .schemathesis
