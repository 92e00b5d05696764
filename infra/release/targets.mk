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

.PHONY: release
release: setup ## check all that a release needs, write the wheel into dist, and run it
	+@$(MAKE) --no-print-directory lock docs lint test
	@changes=$$(git status --porcelain); [ -z "$$changes" ] || { echo "release: commit these files first:"; echo "$$changes"; exit 1; } >&2
	@rm -rf dist && MAKEFLAGS= $(VENV)/bin/maturin build --release --quiet --out dist
	@cd dist && sha256sum *.whl > SHA256SUMS
	@for python in 3.11 3.12 3.13; do infra/release/smoke dist/*.whl $$python; done
	@version=$$(echo dist/*.whl | cut -d- -f2); echo "Tag it: git tag --annotate v$$version --message 'Lockstep $$version'"
