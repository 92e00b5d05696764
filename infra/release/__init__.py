"""A release: the wheel and its smoke test (`make release`)."""
