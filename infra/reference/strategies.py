"""The page of executors, their options and strategies, from run/way.py."""

from __future__ import annotations

from pydantic.fields import FieldInfo

from infra.reference.fields import bounds, default
from infra.reference.markdown import code, codes, next_pages, paragraph, table, text
from infra.reference.markdown import page as whole_page
from streaming_core.run.strategies import STRATEGIES
from streaming_core.run.way import EXECUTORS, NAMED_PLANS, Requires, RunSpec, values_of

PLANS = {
    "replicated": "Each operator has a replica on each thread.",
    "auto": "Lockstep measures the operators and finds the plan with the highest predicted throughput.",
}


def page() -> str:
    """The text of the page."""
    parts = [
        paragraph(
            "This page lists the executors, with their options and strategies. An executor is a way to run an "
            "application on several threads. An executor runs only some kinds of applications; the kind of an "
            "application follows from its operators."
        ),
        table(("executor", "implements", "runs", "assigns work to threads"), map(_executor_row, EXECUTORS.values())),
        paragraph(
            "Set an option on the command line of `streaming-core run`, with dashes: `--throughput-window 500`. "
            "A file with a run specification takes the names below. `lockstep run` and the form in Airflow take lists "
            "of strategies under plural names, and run a cell for each: `--schemes lock,pat` "
            "([requests](requests.md))."
        ),
    ]
    for name, executor in EXECUTORS.items():
        options = executor.options()
        parts += [f"## {name}", (executor.__doc__ or "").partition("\n")[0]]
        own = {option: field for option, field in options.items() if option not in RunSpec.model_fields}
        parts += [_options_table(options, executor.requirements())] if options else ["It has no options of its own."]
        parts += _strategies(own)
    common = {name: field for name, field in RunSpec.model_fields.items() if name not in ("app", "params", "executor")}
    parts += ["## Options of every executor", _options_table(common, {}), *_strategies(common)]
    parts.append(
        next_pages(
            "[Executors](../explanation/executors.md): how each executor works.",
            "[Benchmarks](../benchmarks.md): measured throughput of the executors.",
            "[Command line](command-line.md): the other options of `streaming-core run`.",
        )
    )
    return whole_page("`streaming_core/run/way.py`", "Executors and strategies", *parts)


def _executor_row(executor: type[RunSpec]) -> tuple[str, ...]:
    kinds = ", ".join(f"{kind} applications" for kind in executor.application_kinds)
    return f"[{executor.name()}](#{executor.name()})", executor.system or "a baseline", kinds, executor.placement


def _options_table(fields: dict[str, FieldInfo], requirements: dict[str, Requires]) -> str:
    rows = [
        (
            code(name),
            _values(name, field),
            default(field),
            _requirement(name, requirements),
            text(field.description or ""),
        )
        for name, field in fields.items()
    ]
    return table(("option", "values", "default", "only with", "description"), rows)


def _values(name: str, field: FieldInfo) -> str:
    if values := values_of(name):
        return codes(values)
    if field.annotation is bool:
        return codes(("true", "false"))
    if field.annotation in (int, float):
        return bounds(field)
    return ", ".join([*(code(plan) for plan in NAMED_PLANS if name == "plan"), "JSON"])


def _requirement(name: str, requirements: dict[str, Requires]) -> str:
    requirement = requirements.get(name)
    if requirement is None:
        return ""
    return f"`{requirement.option}` {codes(v for v in values_of(requirement.option) if v in requirement.values)}"


def _strategies(fields: dict[str, FieldInfo]) -> list[str]:
    """A heading and a table for each option that chooses a strategy."""
    parts = []
    for name in fields:
        meanings = PLANS if name == "plan" else STRATEGIES.get(name, {})
        if values := NAMED_PLANS if name == "plan" else values_of(name):
            rows = [(code(value), text(meanings.get(value, ""))) for value in values]
            parts += [f"### Option `{name}`", table((name, "effect"), rows)]
    return parts
