"""The commands about applications and their workloads: `apps`, `describe`, `generate` and `new`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as Grid

from streaming_core.cli.options import AppName, Json, ProfileName, Settings, examples, parameters
from streaming_core.cli.output import Bar, show
from streaming_core.errors import BadInput

if TYPE_CHECKING:
    from streaming_core.language.application import App

app = typer.Typer()


@app.command(epilog=examples("streaming-core apps"))
def apps(as_json: Json = False) -> None:
    """List the applications.

    Shows the kind of each application, the executors that run it, and its first line of documentation. If an
    application is invalid, the command cites file, line and reason, and ends with exit code 2.
    """
    from streaming_core.apps import registry
    from streaming_core.run.way import executors_of

    rows: list[dict[str, Any]] = []
    errors: list[str] = []
    for name in registry.names():
        try:
            loaded = registry.load(name)
        except BadInput as error:
            errors.append(str(error))
            continue
        able = executors_of(loaded.kind)
        rows.append({"app": name, "kind": loaded.kind, "executors": able, "about": loaded.doc.partition("\n")[0]})
    if as_json:
        show(rows)
    else:
        grid = Grid("app", "kind", "executors", "about", box=None)
        for row in rows:
            grid.add_row(row["app"], row["kind"], ", ".join(row["executors"]) or "-", row["about"])
        Console().print(grid)
        for suite in registry.SUITES:
            members = ", ".join(registry.names(suite))
            Console().print(f"Suite {suite}, which belongs to no matrix: {members}", soft_wrap=True)
    if errors:
        raise BadInput("; ".join(errors))


@app.command(epilog=examples("streaming-core describe wc"))
def describe(name: AppName, as_json: Json = False) -> None:
    """Show one application.

    Lists its pipeline, its records, its parameters with defaults and bounds, its profiles, its invariants and its
    properties. It also lists the executors that run it, with their options.
    """
    from streaming_core.apps import registry

    loaded = registry.load(name)
    facts = _facts_of(loaded)
    if as_json:
        show(facts)
    else:
        _print_facts(loaded, facts)


def _facts_of(loaded: App) -> dict[str, Any]:
    """The facts about an application, as JSON values."""
    from streaming_core.data.workload import described
    from streaming_core.run.way import EXECUTORS, executors_of

    params = loaded.bind()
    return {
        "app": loaded.name,
        "about": loaded.doc,
        "source": loaded.reads,
        "kind": loaded.kind,
        "executors": {able: EXECUTORS[able].axes() for able in executors_of(loaded.kind)},
        "placement": {able: EXECUTORS[able].placement for able in executors_of(loaded.kind)},
        "pipeline": [
            {"operator": o.name, "kind": o.kind, "inputs": [i.name for i in o.inputs]}
            | ({"key": list(o.key)} if o.key else {})
            | ({"state": o.state.name} if o.state else {})
            | ({"output": o.output.name} if o.output else {})
            for o in loaded.operators
        ],
        "event": {f.name: described(f) for f in loaded.event.resolve(params).arrow()},
        "output": {f.name: described(f) for f in loaded.outputs.resolve(params).arrow()},
        "tables": {
            t.name: {**{f.name: described(f) for f in t.row.resolve(params).arrow()}, "rows": t.size}
            | ({"key_type": t.key.name, "lookup": t.lookup} if t.key else {})
            for t in loaded.tables
        },
        "params": {
            k: {"default": p.default, "doc": p.doc, "minimum": p.minimum, "maximum": p.maximum, "choices": p.choices}
            for k, p in loaded.declared.items()
        },
        "profiles": {k: {"doc": p.doc, "params": p.params} for k, p in loaded.profiles.items()},
        "invariants": loaded.invariants,
        "properties": {name: inspect.getdoc(fn) or "" for name, fn in loaded.properties.items()},
        "unordered": loaded.unordered
        and {
            "columns": loaded.unordered.columns,
            "states": loaded.unordered.states,
            "invariants": list(loaded.required_invariants("none")),
        },
    }


def _print_facts(loaded: App, facts: dict[str, Any]) -> None:
    """Print the facts about an application, for people."""
    console = Console()
    console.print(f"[bold]{loaded.name}[/] ({facts['kind']})", loaded.doc, sep="\n", highlight=False)
    steps = [f"{o.name}({o.kind}{''.join(f', {field}' for field in o.key)})" for o in loaded.operators]
    if all(o.inputs == loaded.operators[i : i + 1] for i, o in enumerate(loaded.operators[1:])):
        console.print(f"\n[bold]pipeline[/]  {' -> '.join(steps)}", highlight=False)
    else:
        console.print("\n[bold]pipeline[/]", highlight=False)
        for o, step in zip(loaded.operators, steps, strict=True):
            inputs = f" <- {' + '.join(i.name for i in o.inputs)}" if o.inputs else ""
            console.print(f"  {step}{inputs}", highlight=False)
    for title in ("event", "output"):
        fields = ", ".join(f"{k}: {v}" for k, v in facts[title].items())
        console.print(f"[bold]{title}[/]  {fields}", highlight=False)
    for executor, axes in facts["executors"].items():
        parts = [*(f"{axis}: {','.join(values)}" for axis, values in axes.items()), facts["placement"][executor]]
        console.print(f"[bold]{executor}[/]  {'; '.join(parts)}")
    grid = Grid("parameter", "default", "allowed", "meaning", box=None)
    for key, p in loaded.declared.items():
        allowed = ", ".join(map(str, p.choices)) if p.choices else ""
        if p.minimum is not None or p.maximum is not None:
            allowed = f"{'' if p.minimum is None else p.minimum}..{'' if p.maximum is None else p.maximum}"
        grid.add_row(key, str(p.default), allowed, p.doc)
    console.print(grid)
    for key, profile in loaded.profiles.items():
        values = ", ".join(f"{k}={v}" for k, v in profile.params.items())
        console.print(f"[bold]profile {key}[/]  {profile.doc} ({values})", highlight=False)
    for key in loaded.invariants:
        console.print(f"[bold]invariant[/]  {key}", highlight=False)
    for key, sentence in facts["properties"].items():
        console.print(f"[bold]property[/]  {key}: {sentence}", highlight=False)
    if facts["unordered"]:
        agrees = "; ".join(f"{what}: {', '.join(names)}" for what, names in facts["unordered"].items() if names)
        console.print(f"[bold]agrees without order[/]  {agrees}", highlight=False)


@app.command(
    epilog=examples(
        "streaming-core generate wc --events 10000 --out wc-events",
        "streaming-core generate wc --events 1000 --set words=5 --seed 7 --out wc-short",
    )
)
def generate(
    name: AppName,
    events: Annotated[int, typer.Option(help="Number of events, at least 0.")],
    out: Annotated[
        Path, typer.Option(help="Folder to write. It must be new or empty, or hold the same workload already.")
    ],
    seed: Annotated[int, typer.Option(help="Seed of the generator. The same seed makes the same events.")] = 1,
    settings: Settings = None,
    profile: ProfileName = None,
    as_json: Json = False,
) -> None:
    """Generate a workload: the events of an application, as Parquet files.

    The events depend only on the application, its parameters, the seed and the number of events.
    """
    from streaming_core.apps import registry
    from streaming_core.data import workload

    loaded = registry.load(name)
    params = parameters(name, profile, settings)
    workload.address(loaded, params, events, seed)
    with Bar(as_json) as bar:
        manifest = workload.write(
            loaded, params, events, seed, out, progress=lambda done: bar("generate", done, events)
        )
    if as_json:
        show(manifest)
    else:
        print(f"{out}: {manifest['events']} events of {name}, content digest {manifest['content_digest']}")


@app.command(epilog=examples("streaming-core new clicks", "streaming-core new visits --template session"))
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the application and of its file.")],
    template: Annotated[
        str,
        typer.Option(metavar="TEMPLATE", help="words (with a test), join, map, session, transaction or window."),
    ] = "words",
) -> None:
    """Write a new application that works, with events of its own.

    Change the files into your own application. The command prints their paths.
    """
    from streaming_core.cli.new import new

    for path in new(name, template=template):
        print(path)
