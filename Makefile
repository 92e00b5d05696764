# Every target sets up what it needs; stamps skip what is done. `make` alone lists the targets.
# Settings come from the command line, then the environment, then .env (see .env.example), then the defaults below.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BUILD := .lockstep-build
VENV  := .venv
RUN   := $(VENV)/bin/python
LOCKSTEP := $(VENV)/bin/lockstep

# .env becomes a make file of defaults, so that the environment wins over it. What make would take for its own is text
# in it, and it is as private as .env: it may hold secrets.
HASH := \#
ifneq ($(wildcard .env),)
include $(BUILD)/env.mk
endif
$(BUILD)/env.mk: .env
	@mkdir -p $(@D)
	@(umask 077 && sed -nE -e 's/[$$]/&&/g; s/#/$$(HASH)/g' \
	  -e 's/^([A-Z_][A-Z0-9_]*)=(.*)$$/export \1 ?= $$()\2$$()/p' $< > $@)

# Absolute, because Airflow, Spark and dbt each start their processes in folders of their own.
override LOCKSTEP_HOME := $(abspath $(or $(LOCKSTEP_HOME),.lockstep))
override AIRFLOW_HOME  := $(abspath $(or $(AIRFLOW_HOME),.airflow))
export LOCKSTEP_HOME AIRFLOW_HOME

# The environment comes first on PATH: Spark asks PATH for its Python and finds its own scripts with it.
# What a shell happens to have on its Python path, or a user's own packages, must not change a result.
HOST_PATH := $(PATH):$(HOME)/.cargo/bin
export PATH := $(CURDIR)/$(VENV)/bin:$(HOST_PATH)
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PYTHONNOUSERSITE := 1
# Names of files are UTF-8 to all that reads and writes them, whatever the locale.
export PYTHONUTF8 := 1
# mkdocs-material prints an advertisement otherwise.
export NO_MKDOCS_2_WARNING := 1
# Without their bytecode kept, every process would compile all of its modules again.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

# The first Python on the machine that is new enough; else any, so that doctor can say what is wrong with it.
PYTHON ?= $(shell PATH="$(HOST_PATH)"; for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; exit; }; done; \
	command -v python3 || echo python3-not-found)

##@ Everyday
.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: setup ## run the whole regression and print its table; ARGS="..." goes to the run
	@$(LOCKSTEP) run $(ARGS)

.PHONY: ui
ui: setup $(BUILD)/.site ## start Airflow with the reports, on loopback, until Ctrl-C
	@$(LOCKSTEP) ui $(ARGS)

.PHONY: bench
bench: setup ## measure the engine beside the compiled sequential loop; ARGS="sl --threads 2" or ARGS="--suite tstream"
	@code=0; $(VENV)/bin/streaming-core bench $(ARGS) || code=$$?; \
	[ $$code -ge 2 ] || $(LOCKSTEP) publish >&2; exit $$code

##@ Setting up
.PHONY: doctor
doctor: ## say what this machine lacks, with the command that installs it
	@$(DOCTOR)

.PHONY: setup
setup: $(VENV)/.runtime $(LOCKSTEP) ## make the environment and build the runtime

# Before anything is installed: stop at the one line that says what is missing.
.PHONY: fit
fit:
	@$(DOCTOR) --quiet

DOCTOR = command -v "$(PYTHON)" >/dev/null || { \
	echo 'missing  python      not found  ->  apt-get install -y python3 python3-venv'; exit 1; }; \
	PATH="$(HOST_PATH)" "$(PYTHON)" infra/setup/doctor

# uv first, from the lock itself. It installs the rest several times faster than pip, but does not read pip's own
# settings (a mirror in pip.conf, say): where it fails, pip tries. The lock is complete, so nothing is resolved again
# (pip would also stumble over extras that the lock has merged into one line).
$(VENV)/.locked: requirements.lock | fit
	@echo "setup: installing the Python packages of requirements.lock (about a minute the first time)"
	@mkdir -p $(BUILD)
	@$(RUN) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || PATH="$(HOST_PATH)" "$(PYTHON)" -m venv --clear $(VENV)
	@awk '/^[a-z0-9]/ { uv = /^uv==/ } uv' requirements.lock > $(BUILD)/uv.lock
	@$(RUN) -m pip install -q --require-hashes -r $(BUILD)/uv.lock
	@UV_PYTHON_DOWNLOADS=never $(VENV)/bin/uv pip install -q --no-deps --require-hashes -r requirements.lock \
	  || { echo "setup: uv could not, trying pip"; $(RUN) -m pip install -q --no-deps --require-hashes -r requirements.lock; }
	@touch $@

# Installed in place: an edited Python file needs no build, an edited Rust file one `make setup`.
RUNTIME_SOURCES := $(shell find streaming_core/runtime -name '*.rs' -o -name Cargo.toml) Cargo.toml pyproject.toml
$(VENV)/.runtime: $(VENV)/.locked $(RUNTIME_SOURCES)
	@echo "setup: building the runtime"
	@$(VENV)/bin/maturin develop --release --uv --quiet
	@$(RUN) -c 'import streaming_core._runtime'
	@touch $@

# Order only: a link is as old as what it leads to.
$(LOCKSTEP): | $(VENV)/.locked
	@ln -sfn ../../infra/cli/lockstep $@

.PHONY: lock
lock: $(VENV)/.locked ## resolve requirements.in into requirements.lock; ARGS="--upgrade-package numba"
	@$(VENV)/bin/uv pip compile requirements.in -o requirements.lock --quiet --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(ARGS)

##@ Checking
# Tests write nothing into the history of real runs.
test test-full test-python test-python-full: export LOCKSTEP_HOME := $(CURDIR)/$(BUILD)/test/lockstep
test test-full test-python test-python-full: export AIRFLOW_HOME := $(CURDIR)/$(BUILD)/test/airflow

# A file is one worker's, in the order of the folders: the long ones are not left to the end. What belongs together, and
# what comes first, tests/conftest.py says.
IN_PARALLEL := -n $$(($$(nproc) + 1)) --dist loadfile --no-loadscope-reorder
# Slow tests may each take an hour.
PATIENT := -o faulthandler_timeout=3600

# Models and builds keep one core busy for minutes, and need no Python: the environment is made and Python's tests run
# beside them. The runtime's own tests are threads that wait for each other: beside others they take ten times as long.
# They are alone. An end-to-end run waits more than it works: one worker more than there are cores makes up for it.
BOTH = +@$(MAKE) --no-print-directory --output-sync=line -j2

.PHONY: test
test: fit ## run the tests
	$(BOTH) test-models test-python
	@$(CARGO_TEST)

.PHONY: test-full
test-full: fit ## run the tests, the slow ones too
	$(BOTH) test-models-full test-python-full
	@$(CARGO_TEST)
	@$(RUN) -m pytest $(PATIENT) -m e2e

.PHONY: test-python test-python-full
test-python: setup
	@$(RUN) -m pytest $(IN_PARALLEL) -m "not slow"

test-python-full: setup
	@$(RUN) -m pytest $(PATIENT) $(IN_PARALLEL) -m "not e2e"

# Models check the lock-free code under the interleavings loom finds with up to three preemptions, which is where such
# bugs are and takes seconds, not hours; in full, whole executors run under schedules that shuttle draws. A binary that
# hangs is ended and is red (cargo, were it ended instead, would leave it running); the test's name has been said a minute
# after it began. In the foreground, so that Ctrl-C reaches all of them. Cargo knows nothing of make's jobs.
LIMITED := MAKEFLAGS= cargo --config 'target."cfg(unix)".runner = ["timeout", "--foreground", "15m"]' test --quiet
CARGO_TEST := $(LIMITED) --workspace
LOOM := LOOM_MAX_PREEMPTIONS=3 $(LIMITED) --workspace --lib --features loom
.PHONY: test-runtime test-models test-models-full
test-runtime: | fit
	@$(CARGO_TEST)

test-models: | fit
	@$(LOOM)
	@$(CARGO_TEST) --no-run

test-models-full: test-models
	@$(LOOM) -- --ignored
	@$(LIMITED) --lib --features shuttle shuttle_

.PHONY: lint lint-python lint-rust
lint: setup ## check style, types, prose, spelling and links; silent when clean; ARGS=--shrink lowers the baseline
	$(BOTH) lint-python lint-rust

lint-python:
	@$(VENV)/bin/ruff format --check --quiet
	@$(RUN) -m infra.lint $(ARGS)

lint-rust:
	@cargo fmt --all --check
	@$(CLIPPY) --all-targets -- -D warnings
	@$(CLIPPY) --lib --tests --features loom -- -D warnings
CLIPPY := MAKEFLAGS= cargo clippy --quiet --workspace

.PHONY: docs
docs: setup ## write the generated files and build the documentation into .lockstep-build/site
	@$(RUN) -m infra.services.generated
	@$(MAKE) --no-print-directory $(BUILD)/.site

# The site appears whole or not at all: Airflow may be serving it.
$(BUILD)/.site: mkdocs.yml $(shell find docs infra/site -type f) $(VENV)/.locked
	@$(RUN) -m mkdocs build --quiet --site-dir $(BUILD)/site.new
	@rm -rf $(BUILD)/site && mv $(BUILD)/site.new $(BUILD)/site
	@touch $@

.PHONY: screenshots
screenshots: setup ## picture every page: light, dark, narrow and wide; ARGS="FOLDER"
	@$(RUN) -m tests.screenshots $(or $(ARGS),$(BUILD)/screenshots)

##@ Keeping house
# In the warehouse only raw/ is history; the metastore and the marts beside it are remade from it.
.PHONY: clean
clean: ## remove the environment, build outputs, metastore and marts; never history
	@rm -rf $(VENV) $(BUILD) target dbt/target dbt/logs .pytest_cache .ruff_cache .mypy_cache .hypothesis
	@rm -f streaming_core/_runtime*.so
	@find . -name __pycache__ -type d -not -path './.lockstep/*' -prune -exec rm -rf {} +
	@[ ! -d "$$LOCKSTEP_HOME/warehouse" ] \
	  || find "$$LOCKSTEP_HOME/warehouse" -mindepth 1 -maxdepth 1 -not -name raw -exec rm -rf {} +
