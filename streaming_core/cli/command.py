"""Commands and their options; each only parses, calls one function of the engine and shows what it returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid

from streaming_core import interruption
from streaming_core.cli.invocation import invoke
from streaming_core.cli.options import (
    RECORD,
    RUN,
    AppName,
    Input,
    Json,
    ProfileName,
    Settings,
    What,
    parameters,
    specification,
    takes,
)
from streaming_core.ending import say
from streaming_core.errors import BadInput, RunFailed
from streaming_core.storage import save_json

NAME = "streaming-core"

app = typer.Typer(
    name=NAME,
    help="Runs streaming applications on all cores and proves the result equal to one event at a time.",
    epilog="Exit codes: 0 done, 1 the run failed or differs, 2 bad input or not comparable, 3 the command itself "
    "failed (full disk, stdout that cannot be written, no memory); LOCKSTEP_TRACEBACK=1 then shows where.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def show(value: Any) -> None:
    """JSON on stdout."""
    print(json.dumps(value, indent=1, sort_keys=True))


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
    """List the applications; of those that cannot be loaded, say why."""
    from streaming_core.apps import registry
    from streaming_core.run.way import executors_of

    rows: list[dict[str, Any]] = []
    refused: list[str] = []
    for name in registry.names():
        try:
            loaded = registry.load(name)
        except BadInput as error:
            refused.append(str(error))
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
    if refused:
        raise BadInput("; ".join(refused))


@app.command()
def describe(name: AppName, as_json: Json = False) -> None:
    """Show an application: pipeline, records, parameters, profiles, invariants, executors."""
    from streaming_core.apps import registry
    from streaming_core.run.way import EXECUTORS, executors_of

    loaded = registry.load(name)
    params = loaded.bind()
    about: dict[str, Any] = {
        "app": name,
        "about": loaded.doc,
        "source": loaded.reads,
        "kind": loaded.kind,
        "executors": {able: EXECUTORS[able].axes() for able in executors_of(loaded.kind)},
        "placement": {able: EXECUTORS[able].placement for able in executors_of(loaded.kind)},
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
            t.name: {**{f.name: str(f.type) for f in t.row.resolve(params).arrow()}, "rows": t.size}
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
        said = [*(f"{axis}: {','.join(values)}" for axis, values in axes.items()), about["placement"][executor]]
        console.print(f"[bold]{executor}[/]  {'; '.join(said)}")
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
    from streaming_core.apps import registry
    from streaming_core.data import workload

    loaded = registry.load(name)
    params = parameters(name, profile, settings)
    workload.address(loaded, params, events, seed)
    with Bar(as_json) as bar:
        manifest = workload.write(
            loaded, params, events, seed, out, progress=lambda made: bar("generate", made, events)
        )
    if as_json:
        show(manifest)
    else:
        print(f"{out}: {manifest['events']} events of {name}, content {manifest['content_digest']}")


@app.command()
def new(name: Annotated[str, typer.Argument(metavar="NAME", help="Of the application, and of its file.")]) -> None:
    """Write a small application that works, to be changed into yours, and a test of it."""
    from streaming_core.cli.new import new

    for path in new(name):
        print(path)


@app.command()
@takes(RUN)
def run(
    what: What,
    input: Input,
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    given: dict[str, Any],
    settings: Settings = None,
    profile: ProfileName = None,
    as_json: Json = False,
) -> None:
    """Run an application over a workload on the native runtime."""
    spec = specification(what, given, profile, settings, input, find_plan=True)
    from streaming_core.run import engine, planning

    # A user that sets plan auto wants that plan or an error; a run with default options succeeds without one.
    requires_plan = "plan" in given or what.endswith(".json")
    with Bar(as_json) as bar:
        report = engine.run(
            spec,
            input,
            out,
            bar,
            lambda line: say(NAME, line),
            find_plan=planning.planned,
            requires_plan=requires_plan,
        )
    if as_json:
        show(report.model_dump(mode="json"))
        return
    first, best = report.verified, report.peak
    latency = first.processing if first.end_to_end is None else first.end_to_end
    energy = "" if best.energy_nj is None else f"{best.energy_nj:,.0f} nJ/event, "
    print(
        f"{report.cell}: {first.events} events, {first.outputs} outputs, {best.events_per_s:,.0f} events/s, "
        f"{best.cpu_ns or 0:,.0f} CPU ns/event, {energy}p99 {latency.p99 / 1000:.3f} ms, digest {first.digest}, "
        f"{first.rejected} rejected, {first.dropped_invalid} invalid; {out}"
    )
    if report.planned is not None:
        threads = planning.in_order(report.planned.plan, spec.app)
        places = "; ".join(f"{name} {', '.join(map(str, at))}" for name, at in threads.items())
        error = report.planned.error
        off = "" if error is None else f", {error:.0%} off"
        print(f"planned ({places}): {report.planned.events_per_s:,.0f} events/s were predicted{off}")
        for operator, times in report.planned.changed.items():
            print(f"changed: {operator} has {times:.1f} times the part of the work that it had in the profile")
        if better := report.planned.better:
            plan = json.dumps(planning.in_order(better.plan, spec.app))
            print(f"better now: {plan}, {better.events_per_s:,.0f} events/s instead of {better.instead_of:,.0f}")


@app.command()
@takes(RECORD)
def record(
    what: What,
    operator: Annotated[str, typer.Option(help="Of the application's operators, this one.")],
    input: Input,
    out: Annotated[Path, typer.Option(help="Recording to write; must be new or empty.")],
    given: dict[str, Any],
    settings: Settings = None,
    profile: ProfileName = None,
    as_json: Json = False,
) -> None:
    """Record the rows an operator takes, by running what lies in front of it (by the oracle: `oracle --operator`)."""
    spec = specification(what, given, profile, settings, input)
    from streaming_core.data import workload
    from streaming_core.run import recording

    source = workload.read(input, spec.app, spec.params)
    with Bar(as_json) as bar:
        manifest = recording.record(source, operator, out, spec, progress=bar)
    show_recording(out, manifest, as_json)


def show_recording(out: Path, manifest: dict, as_json: bool) -> None:
    """What a recording holds."""
    if as_json:
        show(manifest)
    else:
        print(f"{out}: {manifest['rows']} rows that {manifest['operator']} takes, digest {manifest['content_digest']}")


@app.command()
def replay(
    folder: Annotated[Path, typer.Argument(metavar="RECORDING", help="Folder that `record` has written.")],
    repetitions: Annotated[int, typer.Option(help="Measured passes; times are medians over them.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Folder for what it puts out; must be new or empty.")] = None,
    as_json: Json = False,
) -> None:
    """Run an operator alone on its recorded input, on one thread: compare with the oracle's replay, and measure."""
    from streaming_core.run import recording
    from streaming_core.run import replay as replaying

    source = recording.read(folder)
    with Bar(as_json) as bar:
        found = replaying.replay(source, repetitions, out, progress=bar)
    if as_json:
        show(found.as_dict())
        return
    figures = "nothing to measure"
    if found.rows_in:
        size = "" if found.bytes_out is None else f", {found.bytes_out:,.1f} bytes/row out"
        keys = "" if found.keys is None else f", {found.keys} keys"
        figures = (
            f"selectivity {found.selectivity:.4g}, {found.ns_per_row:,.1f} ns/row, "
            f"{found.bytes_in:,.1f} bytes/row in{size}{keys}"
        )
    print(
        f"{found.operator} of {found.app} ({found.kind}): {found.rows_in} rows in, {found.rows_out} out, {figures}; "
        "equal to the oracle's"
    )


@app.command()
def oracle(
    name: AppName,
    input: Input,
    out: Annotated[Path, typer.Option(help="Oracle folder to write.")],
    operator: Annotated[str | None, typer.Option(help="Record what this operator takes instead (`record`).")] = None,
    mode: Annotated[str, typer.Option(help="interpreted, compiled, or auto: compiled beyond 100,000 events.")] = "auto",
    as_json: Json = False,
) -> None:
    """Compute what one thread, taking one event at a time, produces."""
    from streaming_core.apps import registry
    from streaming_core.data import workload
    from streaming_core.oracle import oracle as oracle_module

    source = workload.read(input, registry.load(name))
    if operator is not None:
        from streaming_core.run.recording import record_oracle

        show_recording(out, record_oracle(source, operator, out, mode), as_json)
        return
    manifest = oracle_module.run(input, out, mode=mode)
    if as_json:
        show(manifest)
    else:
        late = f", too late for any window: {manifest['dropped_late']}" if manifest.get("dropped_late") else ""
        print(f"{out}: {manifest['outputs']['rows']} outputs, digest {manifest['outputs']['digest']}{late}")


@app.command()
def diff(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or recording.")],
    oracle_dir: Annotated[Path, typer.Argument(metavar="ORACLE", help="Oracle folder, or the oracle's recording.")],
    as_json: Json = False,
) -> None:
    """Compare a run with its oracle: 0 equal, 1 different (first differing rows shown), 2 not comparable."""
    from streaming_core.run.comparison import diff as compare

    found = compare(run_dir, oracle_dir)
    if as_json:
        show(found.as_dict())
    else:
        print(found.text())
    raise typer.Exit(found.exit_code)


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="APP", help="Default: every application.")] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            help="Run the comparisons of a paper instead: tstream, ordered, viper, briskstream, rlas, stretch."
        ),
    ] = None,
    files: Annotated[
        bool,
        typer.Option("--files", help="From Parquet to Parquet, beside what pyarrow takes; default: gs, wc."),
    ] = False,
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
    from streaming_core.bench import files as from_files
    from streaming_core.bench import suite as suites

    try:
        counts = [int(part) for part in threads.split(",")] if threads else None
    except ValueError:
        raise BadInput(f"--threads {threads!r}: write numbers separated by commas") from None
    if events is not None and events < 0:
        raise BadInput(f"--events must be at least 0, got {events}")
    if suite is not None and events == 0:
        raise BadInput("a suite compares figures, and no events have none: --events must be at least 1, got 0")
    if suite is not None and names:
        raise BadInput("a suite has its own applications: give none beside --suite")
    if files and (suite is not None or events == 0):
        raise BadInput("--files takes applications and at least one event, and no --suite")
    if only and suite is None:
        raise BadInput("--only chooses from a suite: give --suite too")
    command = {"command": report.command(names, suite, files, only, events, counts, repetitions)}
    with Bar(as_json) as bar:
        if files:
            found = from_files.run(names, events, counts, repetitions, bar)
        elif suite is None:
            found = applications.run(names, events, counts, repetitions, bar)
        else:
            chosen = suites.load(suite)
            found = suites.run(
                chosen, only, events, counts, repetitions, bar, lambda found: report.save(found | command, out)
            )
    found |= command
    path = report.save(found, out)
    if as_json:
        show(found)
    else:
        report.render(found, Console())
        print(f"written to {path}{'; lockstep report draws it' if suite else ''}")
    if wrong := report.wrong(found):
        raise RunFailed(f"{len(wrong)} results differ from the loop's, first {wrong[0]['app']} {wrong[0]['way']}")
    if far := report.mispredicted(found):
        first = f"{far[0]['app']} {far[0]['way']}, {far[0]['predicted_per_s']:,.0f} for {far[0]['events_per_s']:,.0f}"
        raise RunFailed(f"{len(far)} plans found were predicted too far off, first {first} events/s")


@app.command()
def plan(
    name: AppName,
    input: Annotated[
        Path | None, typer.Option("--input", help="Workload to measure operators with. Default: one is generated.")
    ] = None,
    measured: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A profile that was measured before, instead.")
    ] = None,
    machine: Annotated[
        str | None, typer.Option(metavar="FILE|NAME", help="Machine to plan for, or server_a, server_b. Default: this.")
    ] = None,
    strategy: Annotated[str, typer.Option(help="Search strategy; docs/explanation/plans.md lists them.")] = "rlas",
    threads: Annotated[int | None, typer.Option(help="Threads of this host. Default: one for each core.")] = None,
    channel: Annotated[str | None, typer.Option(help="Of the runs that are planned. Default: gate.")] = None,
    seed: Annotated[int, typer.Option(help="Of strategy random.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Plan file to write, for `run --plan`.")] = None,
    settings: Settings = None,
    profile: ProfileName = None,
    as_json: Json = False,
) -> None:
    """Find who runs where: measure the operators, and plan for this host or another machine."""
    from streaming_core.planner import strategies
    from streaming_core.run import planning

    given = parameters(name, profile, settings)
    strategies.check(strategy)
    target = planning.machine_for(machine, threads)  # measuring operators takes longer than refusing a machine
    with Bar(as_json) as bar:
        known, where = planning.profile_of(name, given, input, measured, channel, bar)
        found = planning.find_on(known, target, strategy, seed)
    if out is not None:
        save_json(out, found.as_plan())
    if as_json:
        show(planning.as_dict(found) | {"profile": str(where) if where else None})
        return
    console = Console()
    estimated = planning.at_rate(found)
    grid = Grid("operator", "replicas", "threads", "rows/s", "busy", box=None)
    for operator, places in planning.in_order(found.as_plan(), name).items():
        rows, busy = planning.rows_per_s(estimated, operator), planning.busy(estimated, operator)
        grid.add_row(operator, str(len(places)), ", ".join(map(str, places)), f"{rows:,.0f}", f"{busy:.0%}")
    console.print(grid)
    sustained = found.estimate.sustained
    print(
        f"{found.strategy} on {found.machine.name}: {sustained.ingress:,.0f} events/s are predicted, limited by "
        f"{sustained.bottleneck}{f'; written to {out}' if out else ''}"
    )


@app.command()
def probe(
    machine: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Measure latencies and bandwidths too; machine file to write.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the host's topology as the runtime sees it; measure it as a machine that plans are made for."""
    from streaming_core.run.engine import topology

    found = topology()
    if machine is not None and machine.is_dir():
        raise BadInput(f"{machine} is a folder: name a machine file to write")
    if machine is not None:
        from streaming_core.run import host

        measured = host.machine()
        measured.save(machine)
        found = measured.model_dump(mode="json")
    if as_json:
        show(found)
        return
    for key, value in found.items():
        print(f"{key}: {value}")


def main() -> int:
    """Does what the command line asks for; returns the exit code."""
    with interruption.heeded():
        return invoke(app)
