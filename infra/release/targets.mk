# The targets for the development of Lockstep itself.
##@ Developing Lockstep
.PHONY: cost
cost: setup ## measure what a run costs besides the engine; ARGS="--before CHECKOUT" compares; minutes on a quiet machine
	@$(RUN) -m tests.e2e.cost $(ARGS)

.PHONY: memory
memory: setup ## show that ten times the events take no more memory; ARGS="--cases sd" chooses; half an hour on a quiet machine
	@$(RUN) -m tests.e2e.memory $(ARGS)

.PHONY: nights
nights: setup ## show that nights find what they must, and accuse no unchanged build; an hour on a quiet machine
	@$(RUN) -m tests.e2e.nights $(ARGS)

.PHONY: screenshots
screenshots: setup $(BUILD)/.site ## take pictures of every page, light and dark, narrow and wide; ARGS="FOLDER"
	@$(RUN) -m tests.support.screenshots $(or $(ARGS),$(BUILD)/screenshots)

.PHONY: release release-files
release: setup ## check all that a release needs, and write its files into dist; minutes of builds beside lint and tests
	+@$(MAKE) --no-print-directory lock docs lint test
	@changes=$$(git status --porcelain); [ -z "$$changes" ] || { echo "release: commit these files first:"; echo "$$changes"; exit 1; } >&2
	+@$(MAKE) --no-print-directory release-files
	@version=$$(echo dist/*.tar.gz | sed 's/.*-\(.*\).tar.gz/\1/'); echo "Tag it: git tag --annotate v$$version --message 'Lockstep $$version'"

# Tools that no test needs, in an environment of their own.
RELEASE := $(BUILD)/release

# zig links against an old glibc (manylinux2014), and for other processors. maturin builds each wheel from the source
# distribution, and refuses one that needs more than its tag allows.
WHEELS := x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu
release-files: setup $(RELEASE)/.locked ## write the files of a release into dist, and run the wheel; no lint or tests
	@rm -rf dist && mkdir dist
	@for target in $(WHEELS); do \
	  [ -d "$$(rustc --print target-libdir --target $$target)" ] || rustup target add $$target 2>/dev/null \
	    || { echo "release: no wheel for $$target, because Rust's standard library for it is missing" >&2; continue; }; \
	  PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" MAKEFLAGS= $(VENV)/bin/maturin build --release --sdist --zig --auditwheel check \
	    --target $$target --quiet --out dist; done
	@for python in 3.11 3.12 3.13; do infra/release/smoke dist/*_$$(uname -m).whl $$python; done
	@cd dist && sha256sum * > SHA256SUMS && ls
