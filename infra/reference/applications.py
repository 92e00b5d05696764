"""The page of the applications, from the files in streaming_core/apps."""

from __future__ import annotations

import inspect
import re

from infra.reference.markdown import bullets, code, codes, next_pages, paragraph, table, text
from infra.reference.markdown import page as whole_page
from streaming_core.apps import registry
from streaming_core.language.application import App
from streaming_core.language.operator import Operator
from streaming_core.language.parameters import Param
from streaming_core.run.way import executors_of

# The first paragraph of an application: what it does, and the paper in parentheses.
FIRST = re.compile(r"(.*?)(?: \(([^()]*(?:\([^()]*\)[^()]*)*)\))?\.?")
KINDS = (
    ("transaction", "Each event is a transaction on shared tables."),
    ("dataflow", "A pipeline of operators, with state per key or none."),
    ("windowed", "A pipeline with operators that have windows over event time."),
)


def page() -> str:
    """The text of the page."""
    loaded = {name: registry.load(name) for name in registry.names()}
    return whole_page(
        "`streaming_core/apps`",
        "Applications",
        paragraph(
            "This page lists the applications that come with Lockstep, with their parameters, profiles and "
            "invariants. The kind of an application decides which executors run it:"
        ),
        table(
            ("kind", "what it is", "executors"),
            [(code(kind), meaning, codes(executors_of(kind))) for kind, meaning in KINDS],
        ),
        paragraph(
            "Set a parameter with `--set NAME=VALUE`, or in the field `params` of a request. A profile is a named set "
            "of parameters: `--profile NAME`. `streaming-core describe APP` shows the same for one application, with "
            "its records."
        ),
        paragraph(
            "[From SQL](../explanation/from-sql.md) has the queries of NEXMark. Name them to run them: `all` leaves "
            "them out."
        ),
        "## All applications",
        table(
            ("application", "kind", "what it does"),
            [(f"[{name}](#{name})", app.kind, text(about(app)[0])) for name, app in loaded.items()],
        ),
        *(part for app in loaded.values() for part in _section(app)),
        next_pages(
            "[Run one application](../how-to/run-one-application.md): generate events, run, and compare.",
            "[Write an application](../how-to/write-an-application.md): add your own.",
            "[Language](language.md): what an application may contain.",
        ),
    )


def about(app: App) -> tuple[str, str]:
    """One sentence on what an application does, and its source."""
    first = " ".join(app.doc.partition("\n\n")[0].split())
    parts = FIRST.fullmatch(first)
    assert parts is not None, app.name
    sentence = parts[1].removeprefix(f"{app.name}: ")
    return f"{sentence[0].upper()}{sentence[1:]}.", parts[2] or ""


def _section(app: App) -> list[str]:
    sentence, source = about(app)
    rows = [
        (
            code(name),
            code(_literal(parameter.default)),
            _allowed(parameter),
            text(parameter.doc),
        )
        for name, parameter in app.declared.items()
    ]
    parts = [
        f"## {app.name}",
        paragraph(text(sentence) + (f" Source: {text(source)}." if source else "")),
        paragraph(f"Kind: `{app.kind}`. Executors: {codes(executors_of(app.kind))}."),
        table(
            ("operator", "kind", "key"),
            [(code(operator.name), operator.kind, codes(operator.key)) for operator in app.operators[1:-1]],
        ),
        table(("parameter", "default", "values", "description"), rows),
    ]
    if windows := [(operator.name, operator) for operator in app.operators if operator.window is not None]:
        head = ("window", "kind", "advance", "size", "delay", "keys")
        parts.append(table(head, [(code(name), *_window(operator)) for name, operator in windows]))
    if app.profiles:
        profiles = [
            (code(name), codes(f"{key}={_literal(value)}" for key, value in profile.params.items()), text(profile.doc))
            for name, profile in app.profiles.items()
        ]
        parts.append(table(("profile", "parameters", "description"), profiles))
    if app.invariants:
        parts += ["Invariants:", bullets(text(name) for name in app.invariants)]
    if app.properties:
        parts += ["Properties:", bullets(text(inspect.getdoc(fn) or name) for name, fn in app.properties.items())]
    if app.unordered:
        agrees = [*map(code, app.unordered.columns), *(f"the final state of `{name}`" for name in app.unordered.states)]
        parts.append(paragraph(f"Agrees without order: {', '.join(agrees)}."))
    return parts


def _literal(value: object) -> str:
    """A value as a command line or a file takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _allowed(param: Param) -> str:
    if isinstance(param.default, bool):
        return codes(("true", "false"))
    if param.choices:
        return codes(param.choices)
    if param.minimum is None and param.maximum is None:
        return "any"
    least = "" if param.minimum is None else _number(param.minimum)
    return f"{least} to {_number(param.maximum)}" if param.maximum is not None else f"{least} or more"


def _number(value: float) -> str:
    exponent = len(str(value)) - 1
    return f"10^{exponent}" if exponent > 8 and value == 10**exponent else f"{value:,}"


def _window(operator: Operator) -> tuple[str, ...]:
    window = operator.window
    assert window is not None
    keys = (
        f"field `{window.field}`"
        if window.field
        else f"`{window.every}` for every row"
        if window.every
        else "a function"
    )
    return window.kind, *(code(value) for value in (window.advance, window.size, window.delay)), keys
