"""A release: the checklist that `make release` runs, the wheel and its smoke test. Start reading at `checklist`."""
