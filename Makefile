# Every target sets up what it needs; stamp files skip finished steps. `make` lists the targets.
# YES=1 installs missing Debian packages. Settings come from the command line, then the environment, then .env (see .env.example), then the defaults below.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BUILD := .lockstep-build
VENV  := .venv
RUN   := $(VENV)/bin/python
LOCKSTEP := $(VENV)/bin/lockstep

# .env becomes a make file of defaults, which the environment overrides. Characters that make would interpret are
# escaped. Like .env, the file is readable by its owner only, because it may hold secrets.
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

# .venv/bin comes first on PATH, because Spark looks there for its Python and its scripts.
# PYTHONPATH and packages in the user's home must not change a result.
HOST_PATH := $(PATH):$(HOME)/.cargo/bin
export PATH := $(CURDIR)/$(VENV)/bin:$(HOST_PATH)
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PYTHONNOUSERSITE := 1
# File names are UTF-8, in every locale.
export PYTHONUTF8 := 1
# Without cached bytecode, every process would compile its modules again.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

# The first Python that is new enough; otherwise any, so that doctor can report that it is too old.
PYTHON ?= $(shell PATH="$(HOST_PATH)"; for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; exit; }; done; \
	command -v python3 || echo python3-not-found)

##@ Every day
.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: setup ## run a regression and print its table; ARGS="--matrix smoke" passes options (ARGS="--help" lists them)
	@$(LOCKSTEP) run $(ARGS)

.PHONY: ui
ui: setup $(BUILD)/.site ## start Airflow and the Lockstep pages on localhost, until Ctrl-C; ARGS="--port 8081"
	@$(LOCKSTEP) ui $(ARGS)

.PHONY: bench
bench: setup ## measure speed against the compiled sequential loop; ARGS="sl --threads 2" or ARGS="--suite tstream"
	@code=0; $(VENV)/bin/streaming-core bench $(ARGS) || code=$$?; \
	[ $$code -ge 2 ] || $(LOCKSTEP) publish >&2; exit $$code

##@ Setting up
.PHONY: doctor
doctor: ## check this machine, and print the command that installs each missing requirement
	@$(DOCTOR)

.PHONY: setup
setup: $(VENV)/.runtime $(LOCKSTEP) ## install the Python packages into .venv and build the Rust runtime

# Runs before anything is installed, and stops if a requirement is missing. On Debian, YES=1 installs what is missing.
.PHONY: fit
fit:
	@$(DOCTOR) --quiet

# PYTHON is looked up anew in each recipe, so the recipes after this one use a Python that this one installed.
DOCTOR = PATH="$(HOST_PATH)"; { command -v "$(PYTHON)" >/dev/null || infra/setup/python $(YES); } && \
	"$$(command -v "$(PYTHON)" || echo python3)" infra/setup/doctor $(if $(YES),--yes)

# uv installs the packages several times faster than pip, but does not read pip's settings, such as a mirror in
# pip.conf. If uv fails, pip tries. The lock is complete, so --no-deps skips resolution (pip would also reject extras
# that the lock merges into one line).
$(VENV)/.locked: requirements.lock | fit
	@echo "setup: installing the Python packages of requirements.lock (about a minute)"
	@mkdir -p $(BUILD)
	@$(RUN) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || PATH="$(HOST_PATH)" "$(PYTHON)" -m venv --clear $(VENV)
	@awk '/^[a-z0-9]/ { uv = /^uv==/ } uv' requirements.lock > $(BUILD)/uv.lock
	@$(RUN) -m pip install -q --require-hashes -r $(BUILD)/uv.lock
	@UV_PYTHON_DOWNLOADS=never $(VENV)/bin/uv pip install -q --no-deps --require-hashes -r requirements.lock \
	  || { echo "setup: uv failed; trying pip"; $(RUN) -m pip install -q --no-deps --require-hashes -r requirements.lock; }
	@touch $@

# Installed in place: edited Python files count at once, and `make setup` builds edited Rust files.
RUNTIME_SOURCES := $(shell find streaming_core/runtime -name '*.rs' -o -name Cargo.toml) Cargo.toml pyproject.toml
$(VENV)/.runtime: $(VENV)/.locked $(RUNTIME_SOURCES)
	@echo "setup: building the Rust runtime (about a minute the first time)"
	@$(VENV)/bin/maturin develop --release --uv --quiet
	@$(RUN) -c 'import streaming_core._runtime'
	@touch $@

# Order-only, because a link has the modification time of its target.
$(LOCKSTEP): | $(VENV)/.locked
	@ln -sfn ../../infra/cli/lockstep $@

.PHONY: lock
lock: $(VENV)/.locked ## resolve requirements.in into requirements.lock; ARGS="--upgrade-package numba" upgrades one package
	@$(VENV)/bin/uv pip compile requirements.in -o requirements.lock --quiet --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(ARGS)

##@ Checking
# Tests have their own homes, so that they add nothing to the history of real runs.
test test-full test-python test-python-full: export LOCKSTEP_HOME := $(CURDIR)/$(BUILD)/test/lockstep
test test-full test-python test-python-full: export AIRFLOW_HOME := $(CURDIR)/$(BUILD)/test/airflow

# One worker runs all tests of a file. tests/conftest.py groups files and puts the long ones first.
IN_PARALLEL := -n $$(($$(nproc) + 1)) --dist loadfile --no-loadscope-reorder
# A slow test may take an hour.
PATIENT := -o faulthandler_timeout=3600

# The loom models keep one core busy for minutes and need no Python, so setup and the Python tests run beside them. The
# runtime's tests run alone: their threads wait for each other, and take ten times as long beside other tests.
# End-to-end tests mostly wait, so pytest gets one worker more than there are cores.
BOTH = +@$(MAKE) --no-print-directory --output-sync=line -j2

.PHONY: test
test: fit ## run the tests, except the slow ones
	$(BOTH) test-models test-python
	@$(CARGO_TEST)

.PHONY: test-full
test-full: fit ## run all tests, including the slow ones
	$(BOTH) test-models-full test-python-full
	@$(CARGO_TEST)
	@$(RUN) -m pytest $(PATIENT) -m e2e

.PHONY: test-python test-python-full
test-python: setup
	@$(RUN) -m pytest $(IN_PARALLEL) -m "not slow"

test-python-full: setup
	@$(RUN) -m pytest $(PATIENT) $(IN_PARALLEL) -m "not e2e"

# The models check the lock-free code under every interleaving with up to three preemptions, which takes seconds. More
# preemptions take hours and rarely find more. The full tests also run whole executors under random schedules (shuttle).
# timeout wraps each test binary, because ending cargo would leave the binary running; cargo prints the name of a test
# after a minute. --foreground lets Ctrl-C reach the binaries. MAKEFLAGS is empty, because cargo is no sub-make.
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

.PHONY: cost
cost: setup ## measure what a run costs besides the engine; ARGS="--before CHECKOUT" compares; minutes on a quiet machine
	@$(RUN) -m tests.e2e.cost $(ARGS)

.PHONY: memory
memory: setup ## show that ten times the events take no more memory; ARGS="--cases sd" chooses; half an hour on a quiet machine
	@$(RUN) -m tests.e2e.memory $(ARGS)

.PHONY: nights
nights: setup ## show that nights find what they must, and accuse no unchanged build; an hour on a quiet machine
	@$(RUN) -m tests.e2e.nights $(ARGS)

.PHONY: lint lint-python lint-rust
lint: setup ## check style, types, prose, spelling and links; silent when clean
	$(BOTH) lint-python lint-rust

lint-python:
	@$(VENV)/bin/ruff format --check --quiet
	@$(RUN) -m infra.lint

lint-rust:
	@cargo fmt --all --check
	@$(CLIPPY) --all-targets -- -D warnings
	@$(CLIPPY) --lib --tests --features loom -- -D warnings
CLIPPY := MAKEFLAGS= cargo clippy --quiet --workspace

.PHONY: docs
docs: setup ## write the generated files, and build the documentation site into .lockstep-build/site
	@$(RUN) -m infra.reference
	@$(MAKE) --no-print-directory $(BUILD)/.site

# Without this, mkdocs-material prints an advertisement.
$(BUILD)/.site: export NO_MKDOCS_2_WARNING := 1
# The site appears whole or not at all: Airflow may be serving it.
$(BUILD)/.site: mkdocs.yml $(shell find docs infra/site -type f 2>/dev/null) $(VENV)/.locked
	@$(RUN) -m mkdocs build --quiet --site-dir $(BUILD)/site.new
	@rm -rf $(BUILD)/site && mv $(BUILD)/site.new $(BUILD)/site
	@touch $@

.PHONY: screenshots
screenshots: setup $(BUILD)/.site ## take pictures of every page, light and dark, narrow and wide; ARGS="FOLDER"
	@$(RUN) -m tests.support.screenshots $(or $(ARGS),$(BUILD)/screenshots)

##@ Releasing
.PHONY: release
release: setup ## run the release checklist, and write the wheel into dist; ARGS="--no-tests" leaves out lint and tests
	@$(RUN) -m infra.release $(ARGS)

##@ Cleaning up
# In the warehouse only raw/ is history; `lockstep warehouse build` makes the marts from it.
.PHONY: clean
clean: ## remove .venv, build outputs and the marts; keep the history of runs
	@rm -rf $(VENV) $(BUILD) target dbt/target dbt/logs .pytest_cache .ruff_cache .mypy_cache .hypothesis
	@rm -f streaming_core/_runtime*.so
	@find . -name __pycache__ -type d -not -path './.lockstep/*' -prune -exec rm -rf {} +
	@[ ! -d "$$LOCKSTEP_HOME/warehouse" ] \
	  || find "$$LOCKSTEP_HOME/warehouse" -mindepth 1 -maxdepth 1 -not -name raw -exec rm -rf {} +
