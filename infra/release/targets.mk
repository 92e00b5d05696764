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

.PHONY: release release-files release-audit
release: setup ## check all that a release needs, and write its files into dist; minutes of builds beside lint and tests
	+@$(MAKE) --no-print-directory lock docs lint test
	@changes=$$(git status --porcelain); [ -z "$$changes" ] || { echo "release: commit these files first:"; echo "$$changes"; exit 1; } >&2
	+@$(MAKE) --no-print-directory release-files
	+@$(MAKE) --no-print-directory release-audit
	@version=$$(echo dist/*.tar.gz | sed 's/.*-\(.*\).tar.gz/\1/'); echo "Tag it: git tag --annotate v$$version --message 'Lockstep $$version'"

# Tools that no test needs: Python's in an environment of their own (requirements/release.in), Rust's in a folder.
# cargo-deny builds faster without optimisation, and only reads a few files.
RELEASE := $(BUILD)/release
DENY := $(BUILD)/cargo/bin/cargo-deny
$(DENY):
	@echo "release: building cargo-deny (a few minutes)"
	@MAKEFLAGS= cargo install --quiet --locked --debug --root $(BUILD)/cargo cargo-deny@0.20.2
CRATES := $(DENY) --locked --all-features --log-level error --config infra/release/deny.toml

# zig links against an old glibc (manylinux2014), and for other processors. maturin builds each wheel from the source
# distribution, and refuses one that needs more than its tag allows.
WHEELS := x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu
release-files: setup $(RELEASE)/.locked $(DENY) ## write the files of a release into dist, and run the wheel; no lint, tests or audit
	@rm -rf dist $(BUILD)/wheel && mkdir dist
	@$(RELEASE)/bin/pip-licenses --python $(RUN) --format csv --with-urls > dist/licenses-python.csv
	@$(RELEASE)/bin/pip-licenses --python $(RUN) \
	  --ignore-packages $$(sed -n 's/^except \([^:]*\):.*/\1/p' infra/release/licenses.txt) \
	  --allow-only "$$(sed '/^#/d; /^except /d' infra/release/licenses.txt | paste -sd ';')" > /dev/null
	@$(CRATES) check licenses sources
	@$(CRATES) list --format tsv > dist/licenses-rust.tsv
	@PYTHONWARNINGS=ignore $(RELEASE)/bin/cyclonedx-py requirements requirements/runtime.lock --pyproject pyproject.toml \
	  --output-reproducible --output-file dist/sbom-python.cdx.json
	@for target in $(WHEELS); do \
	  [ -d "$$(rustc --print target-libdir --target $$target)" ] || rustup target add $$target 2>/dev/null \
	    || { echo "release: no wheel for $$target, because Rust's standard library for it is missing" >&2; continue; }; \
	  PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" MAKEFLAGS= $(VENV)/bin/maturin build --release --sdist --zig --auditwheel check \
	    --target $$target --quiet --out dist; done
	@$(RUN) -m zipfile -e dist/*_$$(uname -m).whl $(BUILD)/wheel
	@cp $(BUILD)/wheel/*.dist-info/sboms/*.cyclonedx.json dist/sbom-rust.cdx.json
	@for python in 3.11 3.12 3.13; do infra/release/smoke dist/*_$$(uname -m).whl $$python; done
	@cd dist && sha256sum * > SHA256SUMS && ls

# Fails as well when a database cannot be reached: a release that was not audited must not look like one that was.
release-audit: $(RELEASE)/.locked $(DENY) ## look for known vulnerabilities in all packages; reads two public databases
	@missing=; \
	$(RELEASE)/bin/pip-audit --strict --disable-pip --progress-spinner off --requirement requirements/runtime.lock || missing="$$missing Python"; \
	$(CRATES) check advisories || missing="$$missing Rust"; \
	[ -z "$$missing" ] || { echo "release: not audited, or vulnerable (see above):$$missing" >&2; exit 1; }
