"""The commands of `lockstep` and their options.

Each command parses its options, and calls the function that does the work. The docstring of a command is its help.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from infra.airflow.home import DEFAULT_PORT
from infra.checkout import home, user
from infra.cli.request import OPTIONS, conf
from streaming_core.cli.invocation import invoke
from streaming_core.cli.options import FOLLOW, Json, Settings, parameters, specification, takes
from streaming_core.errors import BadInput

NAME = "lockstep"
CACHE_GB = 20.0

app = typer.Typer(
    name=NAME,
    help="Run streaming applications on every executor, and check each result against a single-threaded reference.",
    epilog="Exit codes: 0 success; 1 a run is red, or a cell is slower; 2 bad input; 3 the command itself failed. "
    "LOCKSTEP_TRACEBACK=1 shows where a command failed. Use streaming-core to run one application by hand.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
CELLS = "Names of cells, separated by commas, as `lockstep report --json` prints them."
Port = Annotated[int, typer.Option(min=1, max=65535, metavar="N", help="Port on localhost.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Your reason. Pages show it with your name.")]
RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="The id of a run, as `lockstep report` prints it.")]
NewestRun = Annotated[str | None, typer.Argument(metavar="RUN_ID", help="The id of a run. Default: the newest run.")]


@app.command()
@takes(OPTIONS)
def run(
    options: dict[str, Any],
    matrix: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Use the values of dags/matrices/NAME.yaml. The other options override them."
        ),
    ] = None,
    spark: Annotated[
        str | None,
        typer.Option(metavar="CONNECTION", help="Airflow connection of the Spark master. Default: spark_default."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the cells, the hosts and the estimated time, and run nothing.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Run a regression: run every cell of a matrix, and check each result.

    A cell is one application, executed in one way. The command prints a
    table with the speed and the verdict of each cell. It exits with 1 if
    the run is red. While `lockstep ui` is up, its scheduler runs the cells.

    Examples:
        lockstep run --matrix smoke
        lockstep run --applications gs,wc --threads 2 --events 5000
        lockstep run --applications sl --executors transactional --schemes all
        lockstep run --matrix nightly --dry-run
    """
    request = conf(options, matrix) | ({"spark": spark} if spark else {})
    if dry_run:
        from infra.cli.dry_run import dry_run as drafted

        drafted(home(), request, as_json)
        return 0
    from infra.cli.run import run as regression

    return regression(request, as_json)


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="APP", help="Application id. `streaming-core apps` lists them.")],
    events: Annotated[int, typer.Option(min=1, metavar="N", help="Number of events to generate.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the generator.")] = 1,
    settings: Settings = None,
    as_json: Json = False,
) -> int:
    """Check an application in about half a minute, on few events.

    The command generates events, runs both oracles, and runs the
    application on 1, 2 and 3 threads with every executor that fits it. It
    compares each result and checks the invariants. It keeps no files and
    measures no speed. It exits with 1 unless every cell is equal.

    Examples:
        lockstep check wc
        lockstep check gs --events 500 --seed 7
    """
    from infra.cli.check import check

    return check(name, events, seed, parameters(name, None, settings), as_json)


@app.command()
def conformance(
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="An engine, as `lockstep engines list` shows it, or an executor of Lockstep."
        ),
    ],
    applications: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Applications. Default: all that the engine runs.")
    ] = None,
    workloads: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Workloads, as the table shows them. Default: all.")
    ] = None,
    threads: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Numbers of worker threads. Default: 1,3.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep workloads, outputs and oracles of what differs in this new folder."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Check an engine on workloads that are easy to get wrong.

    The workloads are small: ties, gaps, skew, empty streams, unusual texts
    and numbers, and others. For each answer that differs from the oracle's,
    the command prints the first differing row and the event that caused it.
    It exits with 1 unless all answers are equal.

    Examples:
        lockstep conformance --engine pooled --applications wc
        lockstep conformance --engine polars --threads 2 --keep wrong
    """
    from infra.cli.conformance import conformance, numbers

    chosen = [[*dict.fromkeys(filter(None, (text or "").split(",")))] for text in (applications, workloads)]
    return conformance(engine, chosen[0], chosen[1], numbers(threads) if threads else [], keep, as_json)


@app.command("import")
def import_(
    name: Annotated[str, typer.Argument(metavar="APP", help="The application that will process the events.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILES", help="Parquet, CSV or JSON lines files, or folders. CSV and JSON may be .gz or .bz2."
        ),
    ] = None,
    streams: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            metavar="NAME=PATH",
            help="The file or folder of one stream, instead of FILES. Repeat it for each stream of the application.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the workload to this folder, which must be new or empty.")
    ] = None,
    called: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="Keep the workload in LOCKSTEP_HOME under a name, for regressions."
        ),
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FIELD=COLUMN",
            help="Read a field from a column with another name. Repeat for more. Write STREAM.FIELD for one stream.",
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="s|ms|us|ns",
            help="Unit of integer fields that are read from timestamps. Default: refuse timestamps.",
        ),
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option(
            metavar="CHAR", help="Character between the columns of CSV. Default: a comma; in .tsv files a tab."
        ),
    ] = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Import your own data as a workload of an application.

    Each row becomes an event, or is set aside with a reason. The workload's
    folder holds the rows that were set aside, under aside/. Give either
    --name or --out. A regression runs on an import if you name it with
    --data. An application with several streams takes --stream NAME=PATH
    for each of them, and orders their rows by ts.

    Examples:
        lockstep import wc posts.csv --map line=body --name lines
        lockstep import scalejoin --stream Left=a.csv --stream Right=b.csv --name ab
        lockstep run --applications wc --data '{"wc": "lines"}'
    """
    from infra.cli.importing import import_
    from infra.services.importing import Form

    params = parameters(name, None, settings)
    import_(Form(name, files or [], streams or [], mapping or [], unit, separator, params), out, called, as_json)


# How `follow` reads its source.
READING = {
    "until_idle": Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="End the stream after so many seconds without new rows. 0 processes the rows that exist. "
            "Default: never.",
        ),
    ],
    "limit": Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Most files, or records of a topic, in a micro-batch. Default: 100, or 100000."
        ),
    ],
    "mapping": Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=COLUMN", help="Read a field from a column with another name."),
    ],
    "unit": Annotated[
        str | None,
        typer.Option(
            metavar="s|ms|us|ns",
            help="Unit of integer fields that are read from timestamps. Default: refuse timestamps.",
        ),
    ],
    "separator": Annotated[
        str | None,
        typer.Option(
            metavar="CHAR", help="Character between the columns of CSV. Default: a comma; in .tsv files a tab."
        ),
    ],
}


@app.command()
@takes(FOLLOW | READING)
def follow(
    name: Annotated[str, typer.Argument(metavar="APP", help="The application that processes the events.")],
    options: dict[str, Any],
    source: Annotated[
        str,
        typer.Option(
            metavar="DIR|URL",
            help="A folder in which Parquet, CSV or JSON lines files appear, or kafka://HOST:PORT/TOPIC.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Run folder to write. The same command on its folder resumes a run.")
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="At the end, run the oracle on the recorded events and compare.")
    ] = False,
    settings: Settings = None,
    as_json: Json = False,
) -> int:
    """Run an application on a live source: a folder that grows, or a topic.

    Spark Structured Streaming takes new rows in micro-batches. The command
    records their events, and the engine processes them at once. Outputs
    appear in the run folder while the command runs. Stop or kill it at any
    time; the same command resumes. At the end of the stream, the folder
    holds the recorded workload too, so that the oracle can check the run.

    Examples:
        lockstep follow wc --source incoming --out run
        lockstep follow wc --source incoming --out run --until-idle 0 --verify
    """
    from infra.cli.follow import Reading, follow

    reading = Reading(source, **{key: options.pop(key) for key in READING if key in options})
    spec = specification(name, options, None, settings, None)
    return follow(spec, reading, out, verify, as_json)


@app.command()
def invariants(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder that `streaming-core run --out` wrote.")],
    source: Annotated[Path, typer.Option("--input", metavar="DIR", help="The workload of that run.")],
    as_json: Json = False,
) -> int:
    """Check the invariants of an application on the result of one run.

    The command names each invariant that holds, and prints the rows that
    break the others. It exits with 1 if a row breaks an invariant, or if
    an invariant cannot be evaluated.

    Examples:
        streaming-core generate gs --events 5000 --out workload
        streaming-core run gs --input workload --out result
        lockstep invariants result --input workload
    """
    from infra.cli.invariants import invariants

    return invariants(run, source, as_json)


@app.command()
def ui(port: Port = DEFAULT_PORT) -> int:
    """Start Airflow and the Lockstep pages on this machine, until Ctrl-C.

    The command prints the address, the login, and the folder of the logs.
    Airflow listens on localhost only.

    Examples:
        lockstep ui
        lockstep ui --port 8081
    """
    from infra.cli.ui import serve

    return serve(port)


@app.command()
def service(port: Port = DEFAULT_PORT) -> None:
    """Write a systemd user unit that runs `lockstep ui` in the background.

    The unit restarts the UI after a failure and after a reboot. The command
    starts nothing. It prints the commands that do.

    Examples:
        lockstep service
        lockstep service --port 8081
    """
    from infra.cli.service import service

    service(port)


@app.command()
def stop() -> int:
    """Stop the Airflow that `lockstep ui` started, from any terminal.

    Runs that are in progress stop too. Their pages say that you stopped
    them.

    Examples:
        lockstep stop
    """
    from infra.cli.ui import stop

    return stop()


@app.command()
def report(
    run_id: NewestRun = None,
    file: Annotated[
        Path | None, typer.Option(metavar="OUT.html", help="Also write the whole run to one HTML file, to send it.")
    ] = None,
    beside: Annotated[
        str | None, typer.Option(metavar="RUN_ID", help="Also write a page that compares the run with this one.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Print the table of a run and the paths of its pages.

    The command exits with 1 if the run is red.

    Examples:
        lockstep report
        lockstep report --file run.html
    """
    from infra.cli.report import report as shown

    return shown(home(), run_id, as_json, file, beside)


@app.command()
def gate(
    against: Annotated[
        str, typer.Option(metavar="REF", help="The commit to compare with: a branch, a tag or a commit.")
    ],
    run_id: NewestRun = None,
    cells: Annotated[
        str | None, typer.Option(metavar="A,B,...", help=f"{CELLS} Default: every cell whose result is equal.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Compare the speed of this checkout with another commit.

    The command builds the commit once, which takes about a minute. Then it
    runs each cell with both builds in turns, on the host that ran it. That
    takes some minutes a cell. It exits with 1 if a cell is slower, or
    cannot be compared.

    Examples:
        lockstep gate --against HEAD~1
        lockstep gate --against main --cells CELL
    """
    from infra.cli.gate import gate as measured

    return measured(home(), against, run_id, named_cells(cells), as_json)


@app.command()
def bisect(
    cell: Annotated[str, typer.Argument(metavar="CELL", help="The name of a cell. `lockstep report` lists them.")],
    good: Annotated[str, typer.Option(metavar="REF", help="A commit without the fault: a branch, a tag or a commit.")],
    bad: Annotated[str, typer.Option(metavar="REF", help="A later commit with the fault.")] = "HEAD",
    fault: Annotated[
        str,
        typer.Option(
            metavar="mismatch|slowdown", help="A result that differs from the oracle's, or a slower cell than before."
        ),
    ] = "mismatch",
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="RUN_ID", help="The run of the cell. Default: the newest run.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the commit that made a cell wrong or slow.

    The command builds commits between the two, about a minute each, and
    halves the range. To judge the speed of one, it measures it beside the
    good commit, which takes some minutes. Your checkout stays as it is.

    Examples:
        lockstep bisect CELL --good v1.2
        lockstep bisect CELL --good HEAD~20 --fault slowdown
    """
    from infra.cli.bisect import bisect as halved

    halved(home(), cell, (good, bad), fault, run_id, as_json)


@app.command()
def debug(
    cell: Annotated[str, typer.Argument(metavar="CELL", help="The name of a cell. `lockstep report` lists them.")],
    event: Annotated[
        int | None,
        typer.Option(metavar="N", help="The event, by its number. Default: the first one whose output differs."),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="RUN_ID", help="The run of the cell. Default: the newest run.")
    ] = None,
) -> int:
    """Open the event that broke a cell in a debugger on your operators.

    The interpreter of the oracle processes all events before it. Then the
    debugger stops in each operator that the event reaches, in your source.
    At the end, the command prints the outputs that the oracle expects.

    Examples:
        lockstep debug CELL
        lockstep debug CELL --event 1204
    """
    from infra.cli.debug import debug as opened

    return opened(home(), cell, event, run_id)


@app.command()
def acknowledge(
    run_id: RunId,
    why: Reason,
    cells: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help=f"{CELLS} Default: every red cell; with --withdraw, every acknowledged one."
        ),
    ] = None,
    withdrawn: Annotated[
        bool, typer.Option("--withdraw", help="Withdraw earlier acknowledgements instead. Their entries stay.")
    ] = False,
) -> None:
    """Record that you have seen the red cells of a run, with a reason.

    The cells stay red. Once all red cells of a run are acknowledged,
    `lockstep prune` may remove the outputs of the run. The record only
    grows: the last entry on a cell counts. Every command that reads the
    record refuses it if an entry was changed, removed or moved.

    Examples:
        lockstep acknowledge RUN_ID --reason "the disk was full"
        lockstep acknowledge RUN_ID --withdraw --reason "it was a lost update"
    """
    from infra.services import decisions
    from reports.publish import publish

    record = decisions.withdraw if withdrawn else decisions.acknowledge
    print(record(home(), run_id, named_cells(cells), user(), why))
    publish(home(), run_id)


@app.command()
def publish(
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="RUN_ID", help="Also write the pages of this run.")
    ] = None,
) -> None:
    """Write the overview and the performance page again.

    Runs and `make bench` do this when they end. Use the command after you
    changed or removed files in LOCKSTEP_HOME by hand.

    Examples:
        lockstep publish
    """
    from reports import publish

    if run_id is None:
        print(f"performance page: {publish.performance(home())}")
    else:
        print(f"publish: {publish.publish(home(), run_id)}")


@app.command()
def prune(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what the command would remove, and remove nothing.")
    ] = False,
    cache_gb: Annotated[
        float,
        typer.Option(
            metavar="GB", help="Largest total size of workloads, oracles and builds, in gigabytes (1e9 bytes)."
        ),
    ] = CACHE_GB,
) -> int:
    """Remove old outputs and caches, which a run can make again.

    Figures, verdicts and pages of all runs stay. Outputs stay for the last
    seven green runs, and for a red run until you acknowledge its red cells.

    Examples:
        lockstep prune --dry-run
        lockstep prune --cache-gb 5
    """
    if not 0 <= cache_gb < 1e9:
        raise BadInput(f"--cache-gb must be between 0 and 1e9, got {cache_gb:g}")
    from infra.cli.prune import prune as removed

    return removed(home(), int(cache_gb * 1e9), dry_run)


@app.command()
def backup(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write, such as NAME.tar.gz. It must be new.")
    ],
    as_json: Json = False,
) -> None:
    """Back up the history and the decisions of LOCKSTEP_HOME into one file.

    The file holds raw results, acknowledgements, the plans and reports of
    runs, expectation results, benchmarks and imports. It leaves out what a
    command can make again: workloads, oracles, builds, compiled kernels,
    marts, pages, and the outputs of runs. The command waits while a run is
    in progress.

    Examples:
        lockstep backup history.tar.gz
    """
    from infra.cli.backup import backup

    backup(home(), file, as_json)


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `lockstep backup` wrote.")],
    as_json: Json = False,
) -> None:
    """Restore a backup into LOCKSTEP_HOME, which must be missing or empty.

    The command checks the whole file first. It restores everything or
    nothing. It makes no marts and no pages, but prints the commands that
    do.

    Examples:
        lockstep restore history.tar.gz
        LOCKSTEP_HOME=restored lockstep restore history.tar.gz
    """
    from infra.cli.backup import restore

    restore(home(), file, as_json)


@app.command()
def doctor(as_json: Json = False) -> int:
    """Check that the file system of LOCKSTEP_HOME does what Lockstep needs.

    The command tries renames, locks, fsync, names and clocks in a temporary
    folder there. It also checks whether this checkout can read the raw
    results. Run it on each host that shares the folder. It exits with 1 if
    it finds a fault. `make doctor` checks the machine instead.

    Examples:
        lockstep doctor
        LOCKSTEP_HOME=/mnt/lockstep lockstep doctor
    """
    from infra.cli.doctor import doctor

    return doctor(home(), as_json)


@app.command()
def hosts(
    names: Annotated[list[str], typer.Argument(metavar="CONNECTION...", help="Airflow connections of the hosts.")],
    as_json: Json = False,
) -> int:
    """Check that hosts can run cells, before a night needs them.

    The command does what a run does first: it brings the build to each host
    that lacks it. It compares packages, clock and LOCKSTEP_HOME with those
    here, and prints what it saw. It exits with 2 if a host cannot run cells.

    Examples:
        lockstep hosts local
        lockstep hosts numa01 numa02 --json
    """
    from infra.cli.hosts import hosts

    return hosts(names, as_json)


@app.command()
def migrate(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Migrate everything in memory, say how much, and change no file.")
    ] = False,
) -> None:
    """Bring raw results of an older version of Lockstep to this version.

    Other commands refuse them until then. Use `lockstep backup` before,
    because an older Lockstep cannot read migrated results. If the command
    is ended in the middle, type it again: it goes on. It refuses to start
    while a run is in progress.

    Examples:
        lockstep backup history.tar.gz
        lockstep migrate --dry-run
        lockstep migrate
    """
    from infra.services.migration import migrate

    print(migrate(home(), dry_run))


@app.command()
def sql(
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="One statement in DuckDB's SQL. Default: list the tables.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Query the history of all runs with SQL, or list its tables.

    A query names the tables as dbt does: marts such as throughput, and
    raw tables such as raw_cells. It can only read them. It reads and
    writes no other file, and loads no extension.

    Examples:
        lockstep sql
        lockstep sql "SELECT verdict, count(*) FROM cells GROUP BY ALL"
    """
    from infra.cli.sql import sql as queried

    queried(home(), query, as_json)


warehouse = typer.Typer(
    help="Build the warehouse: dbt's tables (marts) and their documentation, from the results of all runs."
)
app.add_typer(warehouse, name="warehouse")


@warehouse.command()
def build() -> None:
    """Build every mart, and test every constraint.

    A run does this too. Use the command after you changed a dbt model.

    Examples:
        lockstep warehouse build
    """
    from infra.services.warehouse import build

    print(build(home()))


@warehouse.command()
def rebuild() -> None:
    """Remove the marts and dbt's own files, then build them again.

    The results of all runs stay. Use the command if a build fails because
    of a damaged file.

    Examples:
        lockstep warehouse rebuild
    """
    from infra.services.warehouse import rebuild

    print(rebuild(home()))


@warehouse.command()
def docs() -> None:
    """Build every mart, and write dbt's documentation with their rows.

    `build` writes it only if the dbt project has changed.

    Examples:
        lockstep warehouse docs
    """
    from infra.services.warehouse import document

    print(document(home()))


@warehouse.command()
def freshness() -> None:
    """Print the age of the newest results.

    The command exits with 1 if they are older than dbt allows
    (dbt/models/staging/raw.yml).

    Examples:
        lockstep warehouse freshness
    """
    from infra.services.warehouse import freshness

    print(freshness(home()))


engines_app = typer.Typer(
    help="Engines beside Lockstep's own: list them, install them, and begin a new one. A run names them as executors."
)
app.add_typer(engines_app, name="engines")
EngineName = Annotated[str, typer.Argument(metavar="NAME", help="An engine, as `lockstep engines list` shows it.")]


@engines_app.command("list")
def list_engines(as_json: Json = False) -> None:
    """List the engines, their applications, and which are installed here.

    Examples:
        lockstep engines list
    """
    from infra.cli.engines import show_list

    show_list(as_json)


@engines_app.command("install")
def install_engines(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Engines, as `lockstep engines list` shows.")],
) -> None:
    """Make the environment of an engine, from its lock.

    The environment is the folder .environment in the engine's folder.
    Remove it to uninstall the engine.

    Examples:
        lockstep engines install polars
    """
    from rich.console import Console

    from infra.cli.engines import install

    install(names, Console(stderr=True))


@engines_app.command("lock")
def lock_engine(name: EngineName) -> None:
    """Resolve an engine's requirements.in into its requirements.lock.

    Examples:
        lockstep engines lock polars
    """
    from infra.services.engines import lock

    print(f"wrote {lock(name)}")


@engines_app.command("new")
def new_engine(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the new engine.")],
) -> None:
    """Write the skeleton of a new engine, which runs application wc, and its test.

    Examples:
        lockstep engines new mine
    """
    from infra.cli.engines import new

    new(name)


stack_app = typer.Typer(
    help="Run the production topology on this machine: Airflow on PostgreSQL with two Celery workers, a Spark cluster "
    "and an SSH host."
)
app.add_typer(stack_app, name="stack")
StackFolder = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The folder of the stack. Default: .stack in the checkout.")
]


@stack_app.command()
def up(
    folder: StackFolder = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, metavar="N", help="Port of Airflow's pages. Default: a free one.")
    ] = None,
) -> None:
    """Start the topology, and wait until each part is ready.

    Every part listens on loopback, and writes below one folder only. The
    programs come from Debian's packages and from .venv. The command prints
    the time of each step, the address and the file of the password.

    Examples:
        lockstep stack up
        lockstep stack up --folder /srv/stack --port 8090
    """
    from infra.cli import stack

    stack.up(folder or stack.DEFAULT, port)


@stack_app.command()
def down(folder: StackFolder = None) -> None:
    """End every process of the topology. Its files stay.

    Examples:
        lockstep stack down
    """
    from infra.cli import stack

    stack.down(folder or stack.DEFAULT)


@stack_app.command()
def status(folder: StackFolder = None, as_json: Json = False) -> int:
    """Print the state, the process and the address of each program.

    The command exits with 1 unless every program runs.

    Examples:
        lockstep stack status --json
    """
    from infra.cli import stack

    return stack.status(folder or stack.DEFAULT, as_json)


@stack_app.command("test")
def try_stack(folder: StackFolder = None) -> int:
    """Run regressions on the topology, and kill parts of it meanwhile.

    The first run is undisturbed. During the second, the command kills a
    Spark worker in the middle of a stage, and during the third the
    scheduler. The command prints the time of each step. It exits with 1
    unless every run is green.

    Examples:
        lockstep stack up && lockstep stack test
    """
    from infra.cli import stack

    return stack.test(folder or stack.DEFAULT)


@app.command(context_settings={"ignore_unknown_options": True})
def airflow(
    arguments: Annotated[
        list[str], typer.Argument(metavar="ARGUMENTS", help="A command of Airflow, with its options.")
    ],
) -> None:
    """Run a command of Airflow with the settings of this checkout.

    The first use prepares AIRFLOW_HOME: settings, database and connections.
    Each component of a deployment is one such command.

    Examples:
        lockstep airflow connections list
        lockstep airflow celery worker
    """
    from infra.cli.airflow import airflow

    airflow(arguments)


def named_cells(text: str | None) -> list[str] | None:
    """Split the value of --cells into names; None if the option was not used."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise BadInput("--cells: name at least one cell")
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return invoke(app, arguments)
