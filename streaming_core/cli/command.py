"""The commands and their options. Each command parses, calls one function of the engine and prints the result."""

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


def examples(*lines: str) -> str:
    """Write the epilog of a command: an example per line."""
    return "\n\n".join(["Examples:", *lines])


app = typer.Typer(
    name=NAME,
    help="Run a streaming application on all cores, and check its result against a sequential oracle.\n\n"
    "Four commands make a complete check: generate a workload, run the application, compute the oracle's result, and "
    "compare the two.",
    epilog=examples(
        "streaming-core generate wc --events 10000 --out wc-events",
        "streaming-core run wc --input wc-events --threads 2 --out wc-run",
        "streaming-core oracle wc --input wc-events --out wc-oracle",
        "streaming-core diff wc-run wc-oracle",
    )
    + "\n\nExit codes:\n\n"
    "0: done.\n\n"
    "1: the run failed, or its result differs.\n\n"
    "2: the input is wrong, or the two results are not comparable.\n\n"
    "3: the command itself failed, for example on a full disk. Set LOCKSTEP_TRACEBACK=1 to see the traceback.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def show(value: Any) -> None:
    """Print JSON on stdout."""
    print(json.dumps(value, indent=1, sort_keys=True))


class Bar:
    """A progress bar on stderr if that is a terminal, else nothing."""

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
    if errors:
        raise BadInput("; ".join(errors))


@app.command(epilog=examples("streaming-core describe wc"))
def describe(name: AppName, as_json: Json = False) -> None:
    """Show one application.

    Lists its pipeline, its records, its parameters with defaults and bounds, its profiles, its invariants, and the
    executors that run it with their options.
    """
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
            | ({"key_type": t.key.name, "lookup": t.lookup} if t.key else {})
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
            inputs = f" <- {' + '.join(i.name for i in o.inputs)}" if o.inputs else ""
            console.print(f"  {step}{inputs}", highlight=False)
    for title in ("event", "output"):
        fields = ", ".join(f"{k}: {v}" for k, v in about[title].items())
        console.print(f"[bold]{title}[/]  {fields}", highlight=False)
    for executor, axes in about["executors"].items():
        facts = [*(f"{axis}: {','.join(values)}" for axis, values in axes.items()), about["placement"][executor]]
        console.print(f"[bold]{executor}[/]  {'; '.join(facts)}")
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


@app.command(epilog=examples("streaming-core new clicks"))
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the application and of its file.")],
) -> None:
    """Write a new application that works, and a test of it.

    Change the two files into your own application. The command prints their paths.
    """
    from streaming_core.cli.new import new

    for path in new(name):
        print(path)


@app.command(
    epilog=examples(
        "streaming-core run wc --input wc-events --threads 2 --out wc-run",
        "streaming-core run wc --input wc-events --threads 2 --executor pooled --repetitions 3 --out wc-pooled",
        "streaming-core run wc --input wc-events --executor pinned --rate 50000 --out wc-rate",
    )
)
@takes(RUN)
def run(
    what: What,
    input: Input,
    out: Annotated[
        Path,
        typer.Option(
            help="Run folder to write: outputs, final state and report.json. A folder of the same run that was "
            "interrupted resumes from its last checkpoint."
        ),
    ],
    options: dict[str, Any],
    settings: Settings = None,
    profile: ProfileName = None,
    as_json: Json = False,
) -> None:
    """Run an application over a workload.

    The first pass writes the outputs that `streaming-core diff` compares. Further passes (--repetitions) only measure.
    Without --set and --profile, the parameters are those of the workload. Some options belong to one executor;
    `streaming-core describe APP` shows which.
    """
    spec = specification(what, options, profile, settings, input, find_plan=True)
    from streaming_core.run import engine, external, planning
    from streaming_core.run.way import External

    # A user that sets plan auto wants that plan or an error; a run with default options succeeds without one.
    requires_plan = "plan" in options or what.endswith(".json")

    def tell(line: str) -> None:
        say(NAME, line)

    with Bar(as_json) as bar:
        if isinstance(spec, External):
            report = external.run(spec, input, out, tell)
        else:
            report = engine.run(spec, input, out, bar, tell, find_plan=planning.planned, requires_plan=requires_plan)
    if as_json:
        show(report.model_dump(mode="json"))
        return
    first, best = report.verified, report.peak
    latency = first.processing if first.end_to_end is None else first.end_to_end
    processor = "" if best.cpu_ns is None else f"{best.cpu_ns:,.0f} CPU ns/event, "
    energy = "" if best.energy_nj is None else f"{best.energy_nj:,.0f} nJ/event, "
    print(
        f"{report.cell}: {first.events} events, {first.outputs} outputs, {best.events_per_s:,.0f} events/s, "
        f"{processor}{energy}p99 {latency.p99 / 1000:.3f} ms, digest {first.digest}, "
        f"{first.rejected} rejected, {first.dropped_invalid} invalid; written to {out}"
    )
    if report.planned is not None:
        threads = planning.in_order(report.planned.plan, spec.app)
        places = "; ".join(f"{name} {', '.join(map(str, at))}" for name, at in threads.items())
        error = report.planned.error
        off = "" if error is None else f", {error:.0%} off"
        print(f"plan auto, threads of each operator: {places}")
        print(f"plan auto, prediction: {report.planned.events_per_s:,.0f} events/s{off}")
        if chosen := report.planned.chosen:
            rates = f"{chosen.candidate_per_s:,.0f} and {chosen.replicated_per_s:,.0f} events/s"
            print(
                f"plan auto, choice: the {chosen.plan} plan; found and replicated plan measured {rates}, ratio "
                f"{chosen.ratio:.2f}, median of {chosen.rounds} rounds"
            )
        for operator, times in report.planned.changed.items():
            print(f"plan auto, changed load: {operator} takes {times:.1f} times the share of work of the profile")
        if better := report.planned.better:
            plan = json.dumps(planning.in_order(better.plan, spec.app))
            rates = f"{better.events_per_s:,.0f} instead of {better.instead_of:,.0f} events/s"
            print(f"plan auto, better plan now: {plan}, {rates}")


@app.command(
    epilog=examples(
        "streaming-core record wc --operator count --input wc-events --out wc-count",
        "streaming-core oracle wc --operator count --input wc-events --out wc-count-oracle",
        "streaming-core diff wc-count wc-count-oracle",
    )
)
@takes(RECORD)
def record(
    what: What,
    operator: Annotated[str, typer.Option(help="Operator of the application; `streaming-core describe` lists them.")],
    input: Input,
    out: Annotated[Path, typer.Option(help="Folder to write. It must be new or empty.")],
    options: dict[str, Any],
    settings: Settings = None,
    profile: ProfileName = None,
    as_json: Json = False,
) -> None:
    """Record the input rows of one operator.

    Runs the part of the pipeline before the operator and writes the rows that reach the operator. The oracle makes the
    same recording with `streaming-core oracle --operator`. To run the operator alone on the recording, use
    `streaming-core replay`.
    """
    spec = specification(what, options, profile, settings, input)
    from streaming_core.data import workload
    from streaming_core.run import recording

    source = workload.read(input, spec.app, spec.params)
    with Bar(as_json) as bar:
        manifest = recording.record(source, operator, out, spec, progress=bar)
    show_recording(out, manifest, as_json)


def show_recording(out: Path, manifest: dict, as_json: bool) -> None:
    """Print the facts about a recording."""
    if as_json:
        show(manifest)
    else:
        rows = f"{manifest['rows']} input rows of operator {manifest['operator']}"
        print(f"{out}: {rows}, digest {manifest['content_digest']}")


@app.command(
    epilog=examples(
        "streaming-core record wc --operator count --input wc-events --out wc-input",
        "streaming-core replay wc-input",
    )
)
def replay(
    folder: Annotated[Path, typer.Argument(metavar="RECORDING", help="Folder that `streaming-core record` wrote.")],
    repetitions: Annotated[
        int, typer.Option(help="Measured passes, at least 1. Times are medians over the passes.")
    ] = 5,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write the operator's output to. It must be new or empty. Default: no output."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run one operator alone on its recorded input.

    Uses one thread. Checks the result against the oracle's replay, then measures the time per row.
    """
    from streaming_core.run import recording
    from streaming_core.run import replay as replaying

    source = recording.read(folder)
    with Bar(as_json) as bar:
        result = replaying.replay(source, repetitions, out, progress=bar)
    if as_json:
        show(result.as_dict())
        return
    figures = "no rows to measure"
    if result.rows_in:
        size = "" if result.bytes_out is None else f", {result.bytes_out:,.1f} bytes/row out"
        keys = "" if result.keys is None else f", {result.keys} keys"
        figures = (
            f"selectivity {result.selectivity:.4g}, {result.ns_per_row:,.1f} ns/row, "
            f"{result.bytes_in:,.1f} bytes/row in{size}{keys}"
        )
    print(
        f"{result.operator} of {result.app} ({result.kind}): {result.rows_in} rows in, {result.rows_out} rows out, "
        f"{figures}; equal to the oracle's replay"
    )


@app.command(
    epilog=examples(
        "streaming-core oracle wc --input wc-events --out wc-oracle",
        "streaming-core oracle wc --input wc-events --mode compiled --out wc-compiled",
    )
)
def oracle(
    name: AppName,
    input: Input,
    out: Annotated[
        Path, typer.Option(help="Folder to write. It must be new or empty, or hold the same result already.")
    ],
    operator: Annotated[
        str | None,
        typer.Option(help="Record the input rows of this operator instead, as `streaming-core record` does."),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(help="interpreted, compiled or auto. With auto, the oracle compiles beyond 100,000 events."),
    ] = "auto",
    as_json: Json = False,
) -> None:
    """Compute the expected result of a workload.

    The sequential oracle takes one event at a time on one thread. It shares no meaning of operators with the runtime,
    so its result is the reference for every run.
    """
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
        late = f", {manifest['dropped_late']} events too late for every window" if manifest.get("dropped_late") else ""
        print(f"{out}: {manifest['outputs']['rows']} outputs, digest {manifest['outputs']['digest']}{late}")


@app.command(epilog=examples("streaming-core diff wc-run wc-oracle"))
def diff(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or a recording.")],
    oracle_dir: Annotated[Path, typer.Argument(metavar="ORACLE", help="Oracle folder, or a recording of the oracle.")],
    as_json: Json = False,
) -> None:
    """Compare a run with the result of the oracle.

    Compares every output row, their order, the final state and the counts. Shows the first rows that differ.

    Exit code 0: equal. Exit code 1: different. Exit code 2: not comparable, for example two different workloads.
    """
    from streaming_core.run.comparison import diff as compare

    result = compare(run_dir, oracle_dir)
    if as_json:
        show(result.as_dict())
    else:
        print(result.text())
    raise typer.Exit(result.exit_code)


def _check_bench(
    names: list[str] | None, suite: str | None, files: bool, only: list[str] | None, events: int | None
) -> None:
    """Raise BadInput if options of `bench` contradict each other."""
    if events is not None and events < 0:
        raise BadInput(f"--events must be at least 0, got {events}")
    if suite is not None and events == 0:
        raise BadInput("--events must be at least 1 with --suite, got 0")
    if suite is not None and names:
        raise BadInput(f"--suite chooses the applications itself; remove {', '.join(names)}")
    if files and suite is not None:
        raise BadInput("--files and --suite exclude each other; remove one of them")
    if files and events == 0:
        raise BadInput("--events must be at least 1 with --files, got 0")
    if only and suite is None:
        raise BadInput("--only chooses experiments of a suite; add --suite")


def _check_alone(option: str, others: dict[str, Any]) -> None:
    """Raise BadInput if one of the other options is set, although `option` excludes it."""
    if both := [name for name, value in others.items() if value not in (None, False, [])]:
        raise BadInput(f"{option} and {both[0]} exclude each other; remove one of them")


@app.command(
    epilog=examples(
        "streaming-core bench wc --events 10000 --threads 1 --repetitions 1",
        "streaming-core bench --suite tstream",
        "streaming-core bench --evidence evidence.json",
        "streaming-core bench --import evidence.json",
    )
)
def bench(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="APP", help="Applications to measure. Default: all.")
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            help="Run the experiments of a suite: tstream, ordered, viper, briskstream, rlas, stretch, limits, engines."
        ),
    ] = None,
    files: Annotated[
        bool,
        typer.Option(
            "--files",
            help="Include reading and writing Parquet, and compare with pyarrow. Default applications: gs, wc.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="EXPERIMENT", help="Run only this experiment of the suite; repeat it for several."),
    ] = None,
    events: Annotated[
        int | None,
        typer.Option(help="Events per workload, at least 0. Default: as many as a run of the slowest way can process."),
    ] = None,
    threads: Annotated[
        str | None,
        typer.Option(help="Thread counts, separated by commas: 1,2. Default: powers of two up to the cores."),
    ] = None,
    repetitions: Annotated[
        int | None,
        typer.Option(help="Rounds of measurement. Figures are medians over the rounds. Default: 5; with --quick, 3."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Try a benchmark: single runs of few events. The figures say nothing about speed."
        ),
    ] = False,
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Run the experiments of all suites that need many cores or several NUMA nodes, and write one file to "
            "send back.",
        ),
    ] = None,
    evidence_to_import: Annotated[
        Path | None,
        typer.Option(
            "--import", metavar="FILE", help="Check a file of --evidence, add its results to LOCKSTEP_HOME, show them."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="JSON file to write. Default: a file in LOCKSTEP_HOME/reports/bench.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure executors against the compiled sequential loop.

    Every executor takes turns with the loop on the same events. The command checks each result against the loop's. It
    ends with exit code 1 if a result differs, or if an experiment misses a goal that it asserts.
    """
    from streaming_core.bench import applications, report
    from streaming_core.bench import evidence as for_large_hosts
    from streaming_core.bench import files as from_files
    from streaming_core.bench import suite as suites

    try:
        counts = [int(part) for part in threads.split(",")] if threads else None
    except ValueError:
        raise BadInput(f"--threads must be numbers separated by commas, such as 1,2; got {threads!r}") from None
    chosen = {"APP": names, "--suite": suite, "--files": files, "--only": only, "--out": out}
    if evidence_to_import is not None:
        measuring = {"--threads": counts, "--events": events, "--repetitions": repetitions, "--quick": quick}
        _check_alone("--import", chosen | measuring | {"--evidence": evidence})
        _import(evidence_to_import, as_json)
        return
    if evidence is not None:
        _check_alone("--evidence", chosen)
    _check_bench(names, suite, files, only, events)
    rounds = (3 if quick else 5) if repetitions is None else repetitions
    subject = [*(names or []), *(["--suite", suite] if suite else []), *(["--files"] if files else [])]
    subject += ["--evidence", "FILE"] if evidence is not None else []
    command = report.command(subject, only, events, counts, rounds, quick)
    of_command = {"command": command}
    with Bar(as_json) as bar:
        if evidence is not None:

            def keep(unfinished: dict[str, Any]) -> None:
                save_json(evidence, for_large_hosts.with_command(unfinished, command))

            results = for_large_hosts.run(events, counts, rounds, bar, keep, quick)
            results = for_large_hosts.with_command(results, command)
        elif files:
            results = from_files.run(names, events, counts, rounds, bar, quick) | of_command
        elif suite is None:
            results = applications.run(names, events, counts, rounds, bar, quick) | of_command
        else:
            results = suites.run(
                suites.load(suite),
                only,
                events,
                counts,
                rounds,
                bar,
                lambda unfinished: report.save(unfinished | of_command, out),
                quick,
            )
            results |= of_command
    path = report.save(results, evidence or out)
    if as_json:
        show(results)
    else:
        report.render(results, Console())
        print(f"written to {path}{'; `lockstep report` draws it' if suite else ''}")
    if wrong := report.wrong(results):
        first = f"{wrong[0]['app']} {wrong[0]['way']}"
        raise RunFailed(f"{len(wrong)} results differ from the result of the compiled loop; the first is {first}")
    if missed := report.failed(results):
        raise RunFailed(f"{len(missed)} goals are missed; the first is {missed[0]['app']}: {missed[0]['failed']}")
    if far := [] if quick else report.mispredicted(results):
        first = f"{far[0]['app']} {far[0]['way']}"
        rates = f"predicted {far[0]['predicted_per_s']:,.0f}, measured {far[0]['events_per_s']:,.0f} events/s"
        raise RunFailed(f"{len(far)} predictions are too far off; the first is {first}: {rates}")


def _import(path: Path, as_json: bool) -> None:
    """Check the results in a file, keep them, and print them."""
    from streaming_core.bench import evidence, report

    parts, kept = evidence.take(path)
    if as_json:
        show({"version": report.VERSION, "evidence": True, "suites": parts})
        return
    console = Console()
    for part in parts:
        report.render(part, console)
    for place in kept:
        print(f"written to {place}; `lockstep report` draws it")


@app.command(
    epilog=examples(
        "streaming-core plan wc --input wc-events --threads 1 --out wc-plan.json",
        "streaming-core run wc --input wc-events --executor pinned --plan wc-plan.json --out wc-planned",
        "streaming-core plan wc --machine server_a",
    )
)
def plan(
    name: AppName,
    input: Annotated[
        Path | None,
        typer.Option("--input", help="Workload to measure the operators with. Default: the command generates one."),
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Use this profile of an earlier measurement instead of measuring."),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="Machine to plan for: a file that `streaming-core probe --machine` wrote, server_a or server_b. "
            "Default: this host.",
        ),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            help="Search strategy: balanced (ours), rlas (BriskStream's), rlas_fix_l, rlas_fix_u, first_fit, "
            "round_robin, os, random or exhaustive."
        ),
    ] = "balanced",
    threads: Annotated[
        int | None, typer.Option(help="Threads of this host to plan for. Default: one for each core.")
    ] = None,
    channel: Annotated[str | None, typer.Option(help="Channel of the runs to plan. Default: gate.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of strategy random.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Plan file to write, for `streaming-core run --plan`.")] = None,
    settings: Settings = None,
    profile: ProfileName = None,
    as_json: Json = False,
) -> None:
    """Find a plan: how many replicas each operator has, and on which threads.

    Measures the operators of the application, then searches for the plan with the highest predicted rate on this host
    or another machine.
    """
    from streaming_core.planner import strategies
    from streaming_core.run import planning

    params = parameters(name, profile, settings)
    strategies.check(strategy)
    target = planning.machine_for(machine, threads)  # fails before the operators are measured, which takes longer
    with Bar(as_json) as bar:
        costs, where = planning.profile_of(name, params, input, measured, channel, bar)
        best = planning.find_on(costs, target, strategy, seed)
    if out is not None:
        save_json(out, best.as_plan())
    if as_json:
        show(planning.as_dict(best) | {"profile": str(where) if where else None})
        return
    console = Console()
    estimated = planning.at_rate(best)
    grid = Grid("operator", "replicas", "threads", "rows/s", "busy", box=None)
    for operator, places in planning.in_order(best.as_plan(), name).items():
        rows, busy = planning.rows_per_s(estimated, operator), planning.busy(estimated, operator)
        grid.add_row(operator, str(len(places)), ", ".join(map(str, places)), f"{rows:,.0f}", f"{busy:.0%}")
    console.print(grid)
    sustained = best.estimate.sustained
    print(
        f"strategy {best.strategy} on {best.machine.name}: predicts {sustained.ingress:,.0f} events/s, limited by "
        f"{sustained.bottleneck}{f'; written to {out}' if out else ''}"
    )
    for note in planning.notes(best):
        print(f"note: {note}")


@app.command(epilog=examples("streaming-core probe", "streaming-core probe --machine host.json"))
def probe(
    machine: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also measure latencies and bandwidths, and write this machine file."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the cores and memory nodes of this host.

    With --machine, measures them too. `streaming-core plan --machine` takes the file.
    """
    from streaming_core.run.probe import topology

    facts = topology()
    if machine is not None and machine.is_dir():
        raise BadInput(f"--machine must be a file to write, but {machine} is a folder")
    if machine is not None:
        from streaming_core.run import host

        measured = host.machine()
        measured.save(machine)
        facts = measured.model_dump(mode="json")
    if as_json:
        show(facts)
        return
    for key, value in facts.items():
        print(f"{key}: {value}")


def main() -> int:
    """Run the command line and return the exit code."""
    with interruption.heeded():
        return invoke(app)
