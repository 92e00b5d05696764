# Every target sets up what it needs; stamp files skip finished steps. `make` lists the targets.
# YES=1 installs missing Debian packages. Settings come from the command line, then the environment, then .env (see .env.example), then the defaults below.

# Recipes run in the environment of everything that Lockstep starts, which also reads .env.
SHELL := infra/setup/environment
.SHELLFLAGS := bash -euo pipefail -c
$(if $(shell true)$(filter-out 0,$(.SHELLSTATUS)),$(error .env is not valid))
.DEFAULT_GOAL := help

BUILD := .lockstep-build
VENV  := .venv
RUN   := $(VENV)/bin/python
LOCKSTEP := $(VENV)/bin/lockstep

# Without the environment's .venv/bin, which comes first.
HASH := \#
HOST_PATH := $${PATH$(HASH)*:}

# The first Python that is new enough; otherwise any, so that doctor can report that it is too old.
PYTHON ?= $(shell PATH="$(HOST_PATH)"; for p in $${PYTHON-} python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; exit; }; done; \
	command -v python3 || echo python3-not-found)

##@ Every day
.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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
# Without YES=1, tests are skipped if only they need a missing program.
.PHONY: fit
fit:
	@$(DOCTOR) --quiet $(addprefix --for=,$(FOR))
FOR :=
lint: FOR := lint
test: FOR := $(if $(YES),test)
test-full: FOR := $(if $(YES),test test-full)

# PYTHON is looked up anew in each recipe, so the recipes after this one use a Python that this one installed.
DOCTOR = PATH="$(HOST_PATH)"; { command -v "$(PYTHON)" >/dev/null || infra/setup/python $(YES); } && \
	"$$(command -v "$(PYTHON)" || echo python3)" infra/setup/doctor $(if $(YES),--yes)

# The locks whose packages .venv gets. An image needs no linters and no tests: `make setup LOCKS=requirements/runtime.lock`.
LOCKS := requirements/runtime.lock requirements/dev.lock

# The packages install beside the build of the runtime, which needs only one of them: maturin. Their bytecode is compiled
# there, too: the build leaves a core idle, and every first process would compile what it imports.
$(VENV)/.locked: $(LOCKS) | fit
	@echo "setup: installing the Python packages and building the Rust runtime (about three minutes on two cores)"
	@mkdir -p $(BUILD)
	@$(RUN) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || PATH="$(HOST_PATH)" "$(PYTHON)" -m venv --clear $(VENV)
	@awk '/^[a-z0-9]/ { tool = /^(uv|maturin)==/ } tool' requirements/runtime.lock > $(BUILD)/tools.lock
	@$(RUN) -m pip install -q --no-deps --require-hashes -r $(BUILD)/tools.lock
	+@$(MAKE) --no-print-directory --output-sync=line -j2 setup-packages setup-runtime
	@touch $@

# uv installs the packages several times faster than pip, and removes those that no lock names any more. But it does not
# read pip's settings, such as a mirror in pip.conf. If uv fails, pip tries. A lock is complete, so --no-deps skips
# resolution (pip would also reject extras that the lock merges into one line).
.PHONY: setup-packages setup-runtime
setup-packages:
	@UV_PYTHON_DOWNLOADS=never $(VENV)/bin/uv pip sync -q --compile-bytecode --require-hashes $(LOCKS) \
	  || { echo "setup: uv failed; trying pip"; $(RUN) -m pip install -q --no-deps --require-hashes $(LOCKS:%=-r %); }

setup-runtime:
	@$(MATURIN) --skip-install
PROFILE := release
MATURIN := MAKEFLAGS= $(VENV)/bin/maturin develop --profile $(PROFILE) --quiet

# Installed in place: edited Python files count at once, and `make setup` builds edited Rust files.
RUNTIME_SOURCES := $(shell find streaming_core/runtime -name '*.rs' -o -name Cargo.toml) Cargo.toml pyproject.toml
$(VENV)/.runtime: $(VENV)/.locked $(RUNTIME_SOURCES)
	@echo "setup: installing the Rust runtime (building it takes a minute)"
	@$(MATURIN) --uv
	@$(RUN) -c 'import streaming_core._runtime'
	@touch $@

# Order-only, because a link has the modification time of its target.
$(LOCKSTEP): | $(VENV)/.locked
	@ln -sfn ../../infra/cli/lockstep $@

# In this order: the versions of runtime.lock hold in dev.lock, too.
.PHONY: lock
lock: $(VENV)/.locked ## resolve requirements/*.in into their locks; ARGS="--upgrade-package numba" upgrades one package
	@for name in runtime dev $(filter-out runtime dev,$(basename $(notdir $(wildcard requirements/*.in)))); do \
	  $(VENV)/bin/uv pip compile requirements/$$name.in -o requirements/$$name.lock --quiet --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(ARGS); done

##@ Checking
# Tests have their own homes, so that they add nothing to the history of real runs.
test-python test-python-full test-e2e: export LOCKSTEP_HOME := $(CURDIR)/$(BUILD)/test/lockstep
test-python test-python-full test-e2e: export AIRFLOW_HOME := $(CURDIR)/$(BUILD)/test/airflow

# One worker runs all tests of a file. tests/conftest.py groups files and puts the long ones first. A worker that dies
# ends the run with the name of its test, because xdist fails to give a new worker the work of a dead one.
IN_PARALLEL := -n $$(($$(nproc) + 1)) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# A slow test may take two hours.
PATIENT := -o faulthandler_timeout=7200

# Prints the seconds of a target.
TIMED = TIMEFORMAT='$@: %0R s'; time

# What the runtime's property tests and models explore at most (threads/testing.rs); the full tests have their own bounds.
test: export PROPTEST_CASES := 16
test: export LOOM_MAX_PREEMPTIONS := 1

.PHONY: test
test: | fit ## run the tests, except the slow ones; ARGS="--record-durations" notes what they take in tests/durations.txt
	@$(TIMED) $(MAKE) --no-print-directory test-runtime test-models test-python

.PHONY: test-full
test-full: | fit ## run all tests, including the slow ones
	@$(TIMED) $(MAKE) --no-print-directory test-runtime-full test-models-full test-python-full $(if $(wildcard tests/e2e),test-e2e)

# End-to-end tests mostly wait, so pytest gets one worker more than there are cores. It ends with the tests that it skips.
.PHONY: test-python test-python-full test-e2e
test-python: setup
	@$(TIMED) $(RUN) -m pytest $(IN_PARALLEL) --durations=25 -m "not slow" $(ARGS)

test-python-full: setup
	@$(TIMED) $(RUN) -m pytest $(PATIENT) $(IN_PARALLEL) --durations=25 -m "not e2e"

test-e2e: setup
	@$(TIMED) $(RUN) -m pytest $(PATIENT) --durations=25 -m e2e

# The models check the lock-free code under every interleaving with up to so many preemptions, mostly three. More take hours
# and rarely find more. The full tests also run whole executors under random schedules (shuttle).
# timeout wraps each test binary, because ending cargo would leave the binary running; cargo prints the name of a test
# after a minute. --foreground lets Ctrl-C reach the binaries. MAKEFLAGS is empty, because cargo is no sub-make.
LIMITED = MAKEFLAGS= cargo --config 'target."cfg(unix)".runner = ["timeout", "--foreground", "15m"]' test --quiet
LOOM = $(LIMITED) --workspace --lib --features loom
.PHONY: test-runtime test-runtime-full test-models test-models-full
test-runtime: | fit
	@$(TIMED) $(LIMITED) --workspace --lib

test-runtime-full: | fit
	@$(TIMED) $(LIMITED) --workspace

test-models: | fit
	@$(TIMED) $(LOOM)

test-models-full: | fit
	@$(TIMED) $(CLIPPY) --lib --tests --features loom -- -D warnings
	@$(TIMED) $(LOOM) -- --include-ignored
	@$(TIMED) $(LIMITED) --lib --features shuttle shuttle_

.PHONY: lint lint-python lint-rust
lint: setup ## check style, types, prose, spelling and links; silent when clean
	@$(TIMED) $(MAKE) --no-print-directory --output-sync=line -j2 lint-python lint-rust

lint-python:
	@$(VENV)/bin/ruff format --check --quiet
	@$(RUN) -m infra.lint

lint-rust:
	@cargo fmt --all --check
	@$(CLIPPY) --all-targets -- -D warnings
CLIPPY := MAKEFLAGS= cargo clippy --quiet --workspace

.PHONY: docs
docs: setup ## write the generated files, and build the documentation site into .lockstep-build/site
	@$(RUN) -m infra.reference
	@$(MAKE) --no-print-directory $(BUILD)/.site

# The site appears whole or not at all: Airflow may be serving it. So mkdocs.yml names another folder.
$(BUILD)/.site: mkdocs.yml $(shell find docs infra/site -type f 2>/dev/null) $(BUILD)/docs/.locked
	@$(BUILD)/docs/bin/zensical build --clean --strict > $(BUILD)/site.log 2>&1 || { cat $(BUILD)/site.log >&2; exit 1; }
	@rm -rf $(BUILD)/site && mv $(BUILD)/site.new $(BUILD)/site
	@touch $@

# An environment of its own, such as that of requirements/docs.in.
$(BUILD)/%/.locked: requirements/%.lock $(VENV)/.locked
	@$(RUN) -m venv --clear $(BUILD)/$*
	@UV_PYTHON_DOWNLOADS=never $(VENV)/bin/uv pip sync -q --python $(BUILD)/$* --require-hashes $< \
	  || { echo "$*: uv failed; trying pip"; $(BUILD)/$*/bin/pip install -q --no-deps --require-hashes -r $<; }
	@touch $@

# What only Lockstep itself needs; a project has no such file (copier.yml).
-include infra/release/targets.mk

##@ Cleaning up
# In the warehouse only raw/ is history; `lockstep warehouse build` makes the marts from it.
.PHONY: clean
clean: ## remove .venv, build outputs and the marts; keep the history of runs
	@rm -rf $(VENV) $(BUILD) target dbt/target dbt/logs .pytest_cache .ruff_cache .mypy_cache .hypothesis .cache
	@rm -f streaming_core/_runtime*.so
	@find . -name __pycache__ -type d -not -path './.lockstep/*' -prune -exec rm -rf {} +
	@[ ! -d "$$LOCKSTEP_HOME/warehouse/raw" ] \
	  || find "$$LOCKSTEP_HOME/warehouse" -mindepth 1 -maxdepth 1 -not -name raw -exec rm -rf {} +
