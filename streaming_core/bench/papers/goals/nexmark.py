"""Queries of NEXMark on Lockstep and on other engines, measured as in suite `engines`."""

from __future__ import annotations

from streaming_core.bench.papers.goals.engines import NEXMARK, OURS, experiment
from streaming_core.bench.suite import Suite

SUITE = Suite(
    "nexmark",
    "NEXMark: Lockstep and other engines",
    tuple(experiment(app) for app in OURS if app.startswith(NEXMARK)),
)
