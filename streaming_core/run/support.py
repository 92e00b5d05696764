"""Which ways of executing an application supports."""

from __future__ import annotations

from streaming_core.errors import BadInput
from streaming_core.language.application import App
from streaming_core.run.way import EXECUTORS, RunSpec


def check(spec: RunSpec, app: App) -> None:
    """Raises BadInput unless the application runs that way."""
    executor = EXECUTORS[spec.executor]
    if app.kind not in executor.runs:
        able = [e.name for e in EXECUTORS.values() if app.kind in e.runs]
        supported = ", ".join(able) or "no executor yet"
        raise BadInput(f"application {app.name} does not run on {spec.executor}; it supports: {supported}")
    if refused(spec, app):
        raise BadInput(f"scheme {spec.scheme} is refused for {app.name}: its tables hold containers")
    if spec.order == "none" and app.unordered is None:
        raise BadInput(f"application {app.name} runs in total order only: it does not say what agrees without order")
    kinds = {"source": "source"} | {o.name: o.kind for o in app.operators[1:-1]} | {"sink": "sink"}
    for name, places in spec.plan.items():
        if name not in kinds:
            raise BadInput(f"plan: {app.name} has no operator {name}; it has {', '.join(kinds)}")
        if len(places) > 1 and kinds[name] in ("stateful", "sink"):
            raise BadInput(f"plan: {name} of {app.name} is {kinds[name]}: it has one replica, not {len(places)}")


def refused(spec: RunSpec, app: App) -> bool:
    """Whether the spec is a bound that would not be memory-safe: threads could change a container at the same time."""
    return spec.is_bound and any(t.row.resolve(app.bind(spec.params)).has_containers for t in app.tables)
