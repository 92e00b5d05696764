"""Commands and their options; each only parses, calls one function of the engine and shows what it returns."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid

from streaming_core.errors import BadInput, RunFailed
from streaming_core.runspec.spec import EXECUTORS

app = typer.Typer(
    name="streaming-core",
    help="Runs streaming applications on all cores and proves the result equal to one event at a time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# Typer's own base of usage errors: it exports only this subclass.
UsageError = typer.BadParameter.__base__

AppName = Annotated[str, typer.Argument(metavar="APP", help="Application id; `streaming-core apps` lists them.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter that differs from its default.")
]
ProfileName = Annotated[str | None, typer.Option("--profile", help="A named set of parameters.")]


def choices(axis: str) -> str:
    """The strategies of an axis, the default first."""
    return ", ".join(name for executor in EXECUTORS.values() for name in executor.axes.get(axis, ()))


def show(value: Any) -> None:
    """JSON on stdout."""
    print(json.dumps(value, indent=1, sort_keys=True))


def parameters(name: str, profile: str | None, settings: list[str] | None) -> dict[str, Any]:
    """Parameters given by profile and `--set`, checked; only those that were given."""
    from streaming_core.apps import registry

    loaded = registry.load(name)
    given: dict[str, Any] = {}
    if profile is not None:
        if profile not in loaded.profiles:
            known = ", ".join(loaded.profiles) or "none"
            raise BadInput(f"app {name}: unknown profile {profile!r}; known: {known}")
        given |= loaded.profiles[profile].params
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals:
            raise BadInput(f"--set {setting!r}: write NAME=VALUE")
        given[key] = value
    bound = loaded.bind(given)
    return {key: bound[key] for key in given}


class Bar:
    """A progress bar on stderr, where a person looks; silent elsewhere."""

    def __init__(self, quiet: bool = False):
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total)
        self._bar.update(self._tasks[what], completed=done)


@app.command()
def apps(as_json: Json = False) -> None:
    """List the applications."""
    from streaming_core.apps import registry
    from streaming_core.runspec.spec import EXECUTORS

    rows = []
    for name in registry.names():
        loaded = registry.load(name)
        able = [e.name for e in EXECUTORS.values() if loaded.kind in e.runs]
        rows.append({"app": name, "kind": loaded.kind, "executors": able, "about": loaded.doc.partition("\n")[0]})
    if as_json:
        show(rows)
        return
    grid = Grid("app", "kind", "executors", "about", box=None)
    for row in rows:
        grid.add_row(row["app"], row["kind"], ", ".join(row["executors"]) or "-", row["about"])
    Console().print(grid)


@app.command()
def describe(name: AppName, as_json: Json = False) -> None:
    """Show an application: pipeline, records, parameters, profiles, invariants, executors."""
    from streaming_core.apps import registry
    from streaming_core.runspec.spec import EXECUTORS

    loaded = registry.load(name)
    params = loaded.bind()
    about = {
        "app": name,
        "about": loaded.doc,
        "source": loaded.reads,
        "kind": loaded.kind,
        "executors": {e.name: e.axes for e in EXECUTORS.values() if loaded.kind in e.runs},
        "pipeline": [
            {"operator": o.name, "kind": o.kind, "inputs": [i.name for i in o.inputs]}
            | ({"key": o.key} if o.key else {})
            | ({"state": o.state.name} if o.state else {})
            | ({"output": o.output.name} if o.output else {})
            for o in loaded.operators
        ],
        "event": {f.name: str(f.type) for f in loaded.event.resolve(params).arrow()},
        "output": {f.name: str(f.type) for f in loaded.outputs.resolve(params).arrow()},
        "tables": {
            t.name: {f.name: str(f.type) for f in t.row.resolve(params).arrow()} | {"rows": t.size}
            for t in loaded.tables
        },
        "params": {
            k: {"default": p.default, "doc": p.doc, "minimum": p.minimum, "maximum": p.maximum, "choices": p.choices}
            for k, p in loaded.declared.items()
        },
        "profiles": {k: {"doc": p.doc, "params": p.params} for k, p in loaded.profiles.items()},
        "invariants": loaded.invariants,
        "unordered": loaded.unordered
        and {
            "columns": loaded.unordered.columns,
            "states": loaded.unordered.states,
            "invariants": list(loaded.holds("none")),
        },
    }
    if as_json:
        show(about)
        return
    console = Console()
    console.print(f"[bold]{name}[/] ({about['kind']})", loaded.doc, sep="\n", highlight=False)
    steps = [f"{o.name}({o.kind}{', ' + o.key if o.key else ''})" for o in loaded.operators]
    if all(o.inputs == loaded.operators[i : i + 1] for i, o in enumerate(loaded.operators[1:])):
        console.print(f"\n[bold]pipeline[/]  {' -> '.join(steps)}", highlight=False)
    else:
        console.print("\n[bold]pipeline[/]", highlight=False)
        for o, step in zip(loaded.operators, steps, strict=True):
            taken = f" <- {' + '.join(i.name for i in o.inputs)}" if o.inputs else ""
            console.print(f"  {step}{taken}", highlight=False)
    for title in ("event", "output"):
        fields = ", ".join(f"{k}: {v}" for k, v in about[title].items())
        console.print(f"[bold]{title}[/]  {fields}", highlight=False)
    for executor, axes in about["executors"].items():
        console.print(f"[bold]{executor}[/]  {'; '.join(f'{k}: {chr(44).join(v)}' for k, v in axes.items())}")
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
    if about["unordered"]:
        agrees = "; ".join(f"{what}: {', '.join(names)}" for what, names in about["unordered"].items() if names)
        console.print(f"[bold]agrees without order[/]  {agrees}", highlight=False)


@app.command()
def generate(
    name: AppName,
    events: Annotated[int, typer.Option(help="Number of events.")],
    out: Annotated[Path, typer.Option(help="Folder to write; must be new, empty or the same workload.")],
    seed: Annotated[int, typer.Option(help="Seed of every draw.")] = 1,
    settings: Settings = None,
    profile: ProfileName = None,
    as_json: Json = False,
) -> None:
    """Generate a workload."""
    from streaming_core import workload
    from streaming_core.apps import registry

    loaded = registry.load(name)
    params = parameters(name, profile, settings)
    workload.address(loaded, params, events, seed)
    chunks = workload.chunks(events)
    with Bar(as_json) as bar:

        def tables():
            for start, stop in chunks:
                yield workload.generate_chunk(loaded, params, events, seed, start, stop)
                bar("generate", stop, events)

        manifest = workload.write(loaded, params, events, seed, out, tables())
    if as_json:
        show(manifest)
    else:
        print(f"{out}: {manifest['events']} events of {name}, content {manifest['content_digest']}")


@app.command()
def run(
    what: Annotated[str, typer.Argument(metavar="SPEC.json|APP", help="A run specification, or an application id.")],
    input: Annotated[Path, typer.Option("--input", help="Workload folder.")],
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    executor: Annotated[str | None, typer.Option(help="Default: the first that runs the application.")] = None,
    threads: Annotated[int | None, typer.Option(help="OS threads that work, source and sink included.")] = None,
    scheme: Annotated[str | None, typer.Option(help=f"Transactional scheme: {choices('scheme')}.")] = None,
    pool: Annotated[str | None, typer.Option(help=f"Chain pool: {choices('pool')}.")] = None,
    stealing: Annotated[bool | None, typer.Option(help="Work stealing in a shared chain pool.")] = None,
    punctuation: Annotated[int | None, typer.Option(help="Events between punctuations.")] = None,
    checkpoint: Annotated[int | None, typer.Option(help="Punctuations between checkpoints; 0 = none.")] = None,
    batch: Annotated[int | None, typer.Option(help="Events in a batch.")] = None,
    heuristic: Annotated[
        str | None, typer.Option(help=f"How a pooled worker chooses an operator: {choices('heuristic')}.")
    ] = None,
    queue: Annotated[str | None, typer.Option(help=f"Worklist of partitioned operators: {choices('queue')}.")] = None,
    reorder: Annotated[str | None, typer.Option(help=f"Reorder buffer: {choices('reorder')}.")] = None,
    channel: Annotated[str | None, typer.Option(help=f"What orders several replicas: {choices('channel')}.")] = None,
    plan: Annotated[
        Path | None, typer.Option(help='Plan file, JSON: {"operator": [thread of each replica], ...}.')
    ] = None,
    order: Annotated[str | None, typer.Option(help="Order of delivery.")] = None,
    rate: Annotated[float | None, typer.Option(help="Open-loop events per second; 0 = peak.")] = None,
    pin: Annotated[bool | None, typer.Option(help="Bind thread i to core i.")] = None,
    idle: Annotated[str | None, typer.Option(help="What a waiting thread does: spin, yield, park.")] = None,
    sink: Annotated[str | None, typer.Option(help="parquet, digest or count. Default: parquet.")] = None,
    repetitions: Annotated[int | None, typer.Option(help="Measured passes after the first.")] = None,
    settings: Settings = None,
    profile: ProfileName = None,
    as_json: Json = False,
) -> None:
    """Run an application over a workload on the native runtime."""
    from streaming_core.runspec.spec import RunSpec

    given = {
        key: value
        for key, value in {
            "executor": executor,
            "threads": threads,
            "scheme": scheme,
            "pool": pool,
            "stealing": stealing,
            "punctuation": punctuation,
            "checkpoint": checkpoint,
            "batch": batch,
            "heuristic": heuristic,
            "queue": queue,
            "reorder": reorder,
            "channel": channel,
            "plan": None if plan is None else _plan(plan),
            "order": order,
            "rate": rate,
            "pin": pin,
            "idle": idle,
            "sink": sink,
            "repetitions": repetitions,
        }.items()
        if value is not None
    }
    if what.endswith(".json"):
        if given or settings or profile:
            raise BadInput("a run specification is complete: give options in the file, not beside it")
        spec = RunSpec.parse(_read(Path(what)))
    else:
        spec = _spec(what, given, parameters(what, profile, settings), input)
    from streaming_core import engine

    with Bar(as_json) as bar:
        report = engine.run(spec, input, out, bar, lambda line: fail(line, 0))
    if as_json:
        show(report.model_dump(mode="json"))
        return
    first, peak = report.verified, [s for s in report.samples if s.kind == "peak"]
    best = sorted(peak or [first], key=lambda s: s.events_per_s)[len(peak or [first]) // 2]
    latency = first.processing if first.end_to_end is None else first.end_to_end
    energy = "" if best.energy_nj is None else f"{best.energy_nj:,.0f} nJ/event, "
    print(
        f"{report.cell}: {first.events} events, {first.outputs} outputs, {best.events_per_s:,.0f} events/s, "
        f"{best.cpu_ns or 0:,.0f} CPU ns/event, {energy}p99 {latency.p99 / 1000:.3f} ms, digest {first.digest}, "
        f"{first.rejected} rejected, {first.dropped_invalid} invalid; {out}"
    )


def _plan(path: Path) -> dict:
    """The plan in a file, which RunSpec checks."""
    try:
        plan = json.loads(_read(path))
    except ValueError as error:
        raise BadInput(f"{path} is no JSON: {error}") from None
    if not isinstance(plan, dict):
        raise BadInput(f'{path} holds no plan: {{"operator": [thread of each replica], ...}}')
    return plan


def _spec(name: str, given: dict, params: dict, source: Path):
    from streaming_core import workload
    from streaming_core.apps import registry
    from streaming_core.runspec.spec import EXECUTORS, RunSpec

    loaded = registry.load(name)
    able = [e.name for e in EXECUTORS.values() if loaded.kind in e.runs]
    if "executor" not in given:
        if not able:
            raise BadInput(f"application {name} is {loaded.kind}: no executor runs it yet")
        given["executor"] = able[0]
    if not params:
        # What the workload was made with is what runs: the operators' parameters are part of it.
        made = workload.read_manifest(source)
        if made["app"] == name:
            defaults = loaded.bind()
            params = {k: v for k, v in loaded.bind(made["params"]).items() if v != defaults[k]}
    return RunSpec.parse({"sink": "parquet"} | given | {"app": name, "params": params})


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None


@app.command()
def oracle(
    name: AppName,
    input: Annotated[Path, typer.Option("--input", help="Workload folder.")],
    out: Annotated[Path, typer.Option(help="Oracle folder to write.")],
    mode: Annotated[str, typer.Option(help="interpreted, compiled, or auto: compiled beyond 100,000 events.")] = "auto",
    as_json: Json = False,
) -> None:
    """Compute what one thread, taking one event at a time, produces."""
    from streaming_core import oracle as oracle_module
    from streaming_core import workload
    from streaming_core.apps import registry

    workload.read(input, registry.load(name))
    manifest = oracle_module.run(input, out, mode=mode)
    if as_json:
        show(manifest)
    else:
        print(f"{out}: {manifest['outputs']['rows']} outputs, digest {manifest['outputs']['digest']}")


@app.command()
def diff(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    oracle_dir: Annotated[Path, typer.Argument(metavar="ORACLE", help="Oracle folder.")],
    as_json: Json = False,
) -> None:
    """Compare a run with its oracle: 0 equal, 1 different (first differing rows shown), 2 not comparable."""
    from streaming_core.diff import diff as compare

    found = compare(run_dir, oracle_dir)
    if as_json:
        show(found.as_dict())
    else:
        print(found.text())
    raise typer.Exit(found.exit_code)


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="[APP ...]", help="Default: every application.")] = None,
    suite: Annotated[
        str | None, typer.Option(help="Run the comparisons of a paper instead: tstream, ordered, viper, briskstream.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="EXPERIMENT", help="Of the suite, this experiment; may be repeated.")
    ] = None,
    events: Annotated[int | None, typer.Option(help="Events per workload. Default: by application.")] = None,
    threads: Annotated[
        str | None, typer.Option(help="Thread counts, such as 1,2. Default: powers of two up to the cores.")
    ] = None,
    repetitions: Annotated[int, typer.Option(help="Rounds; figures are medians over them.")] = 5,
    out: Annotated[Path | None, typer.Option(help="JSON file. Default: in LOCKSTEP_HOME/reports/bench.")] = None,
    as_json: Json = False,
) -> None:
    """Measure every way of executing beside the compiled sequential loop; results are checked."""
    from streaming_core.bench import applications, report
    from streaming_core.bench import suite as suites

    try:
        counts = [int(part) for part in threads.split(",")] if threads else None
    except ValueError:
        raise BadInput(f"--threads {threads!r}: write numbers separated by commas") from None
    if events is not None and events < 1:
        raise BadInput(f"--events must be at least 1, got {events}")
    if suite is not None and names:
        raise BadInput("a suite has its own applications: give none beside --suite")
    if only and suite is None:
        raise BadInput("--only chooses from a suite: give --suite too")
    with Bar(as_json) as bar:
        if suite is None:
            found = applications.run(names, events, counts, repetitions, bar)
        else:
            found = suites.run(
                suites.load(suite), only, events, counts, repetitions, bar, keep=lambda found: report.save(found, out)
            )
    path = report.save(found, out)
    if as_json:
        show(found)
    else:
        report.render(found, Console())
        print(f"written to {path}{'; make report draws it' if suite else ''}")
    if wrong := report.wrong(found):
        raise RunFailed(f"{len(wrong)} results differ from the loop's, first {wrong[0]['app']} {wrong[0]['way']}")


@app.command()
def probe(as_json: Json = False) -> None:
    """Show the host's topology as the runtime sees it."""
    from streaming_core.engine import topology

    found = topology()
    if as_json:
        show(found)
        return
    for key, value in found.items():
        print(f"{key}: {value}")


def main() -> None:
    """Entry point: turns every failure into one line and an exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    code = 0
    try:
        code = app(standalone_mode=False) or 0
    except UsageError as error:
        code = fail(f"{error.format_message()} (see --help)", 2)
    except (typer.Abort, KeyboardInterrupt):
        code = fail("interrupted", 1)
    except BadInput as error:
        code = fail(str(error), 2)
    except RunFailed as error:
        code = fail(str(error), 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except MemoryError:
        code = fail("out of memory", 1)
    sys.exit(code)


def fail(message: str, code: int) -> int:
    """One line on stderr."""
    print(f"streaming-core: {' '.join(message.split())}", file=sys.stderr)
    return code


def _terminated(number: int, frame: object) -> None:
    raise RunFailed(f"stopped by {signal.Signals(number).name}")
