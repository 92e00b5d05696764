"""Fixtures that all tests share, and the distribution of tests over workers.

Each test has its own home. Tests share compiled machine code, because compiling it in each home takes too long. The
address of the code covers all of its sources, so sharing it changes no result. test_machine_code.py tests the cache.
"""

import gc
import itertools
import logging
import os
import sys
from collections import Counter, defaultdict
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import settings

import streaming_core.apps
from streaming_core import machine_code, process
from streaming_core.apps import registry

process.remove_foreign_variables()  # before numba reads some of them
for variable in ("MAKEFLAGS", "MAKELEVEL"):  # a make that a test starts is no part of the make that started the tests
    os.environ.pop(variable, None)

# One worker runs all tests that share a slow process: a warm JVM, or Airflow with its database. One runs the pipelines:
# each needs several processes, and takes a multiple of its time beside another one.
TOGETHER = {
    "tests/e2e/": "pipelines",
    **dict.fromkeys(("tests/jobs/", "tests/expectations/"), "spark"),
    "tests/infra/cli/test_check.py": "spark",
    **dict.fromkeys(("tests/dags/", "tests/infra/airflow/", "tests/infra/gate/test_remote_pairs.py"), "airflow"),
    "tests/dbt/": "dbt",  # its tests share a history that takes a minute to build
}
# A full run of this file would keep one worker busy after the others are done. So its functions go to workers one by
# one, and so does each test of the campaigns.
MANY = "tests/differential/test_engine.py"
CAMPAIGNS = ("tests/differential/test_campaign.py", "tests/differential/test_relay.py")
WHOLLY_SLOW = ("\npytestmark = pytest.mark.slow", "\npytestmark = [pytest.mark.e2e, pytest.mark.slow")
# The seconds of each group when it was last recorded: `make test ARGS=--record-durations` writes the file. The longest
# groups run first, because a long one that starts last would keep one worker busy alone.
DURATIONS = Path(__file__).with_name("durations.txt")
# Seconds of a test in `make test` on the machine of DURATIONS. A test of 20 s may take five times as long beside
# others: two cores run three workers, and some of these start a JVM.
LONGEST = 100


def pytest_addoption(parser):
    parser.addoption("--record-durations", action="store_true", help="write tests/durations.txt")


def pytest_configure(config):
    """Have Hypothesis draw fewer examples where no slow test runs."""
    settings.register_profile("quick", max_examples=20, derandomize=True)
    if "not slow" in config.option.markexpr:
        settings.load_profile("quick")


def group_of(nodeid, every_test=True):
    """The group of a test: the tests that one worker runs. `every_test` says whether slow tests run, too."""
    if nodeid.startswith(MANY) and every_test:
        return nodeid.partition("[")[0]
    if nodeid.startswith(CAMPAIGNS):
        return nodeid
    file = nodeid.partition("::")[0]
    return next((name for folder, name in TOGETHER.items() if file.startswith(folder)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Distribute files over workers as `--dist loadfile` does, except for those that belong together."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid, "not slow" not in config.option.markexpr)

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_ignore_collect(collection_path, config):
    """Do not import a file whose tests are all slow where no slow test runs: importing all of them takes seconds."""
    if "not slow" in config.option.markexpr and collection_path.suffix == ".py":
        text = collection_path.read_text()
        return any(mark in text for mark in WHOLLY_SLOW) or None
    return None


def pytest_pycollect_makeitem(collector, name, obj):
    """Make no items of slow functions where no slow test runs: they have thousands of parameters."""
    marks = getattr(obj, "pytestmark", ()) if name.startswith("test_") and callable(obj) else ()
    return [] if "not slow" in collector.config.option.markexpr and "slow" in {mark.name for mark in marks} else None


def recorded():
    """The recorded seconds of each group that took more than a second."""
    lines = (line.split() for line in DURATIONS.read_text().splitlines())
    return {group: float(seconds) for seconds, group in lines}


def pytest_collection_modifyitems(items):
    seconds = recorded()
    items.sort(key=lambda item: -seconds.get(group_of(item.nodeid, every_test=False), 0))


def pytest_collection_finish():
    # Compiling creates millions of objects, and few become garbage. The default thresholds of the collector would cost
    # a fifth of the time.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_sessionfinish(session):
    """Fail on a test that is skipped or too long if LOCKSTEP_STRICT_TESTS=1, as in CI."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("LOCKSTEP_STRICT_TESTS"):
        return
    faults = [f"{report.nodeid} was skipped" for report in reporter.stats.get("skipped", ())]
    most = LONGEST * max(1, pace(seconds_of_groups(reporter), recorded()))
    faults += [
        f"{report.nodeid} took {report.duration:.0f} s, and `make test` allows {most:.0f} on this machine: make it "
        "faster, or let `make test-full` run it (@pytest.mark.slow)"
        for report in reports(reporter)
        if report.when == "call" and report.duration > most and not {"slow", "e2e"} & set(report.keywords)
    ]
    for fault in faults:
        reporter.write_line(f"\n{fault}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    """Print the seconds of groups, the counts of campaigns (differential/), and skipped tests."""
    if config.getoption("durations") is not None:
        print_groups(terminalreporter, config)
    for title in ("campaign", "relay", "kills"):
        print_counts(terminalreporter, title)
    reasons = Counter(report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()))
    for reason, tests in reasons.items():
        terminalreporter.write_line(f"{tests} skipped: {reason.removeprefix('Skipped: ')}")


def reports(reporter):
    """The reports of the setup, call and end of each test."""
    return [report for report in itertools.chain(*reporter.stats.values()) if hasattr(report, "duration")]


def seconds_of_groups(reporter):
    """What each group took in this session."""
    seconds = Counter()
    for report in reports(reporter):
        seconds[group_of(report.nodeid, every_test=False)] += report.duration
    return seconds


def pace(seconds, before):
    """How many times longer this machine takes than the recorded one, over the groups that ran."""
    return sum(seconds[group] for group in before) / (sum(before[group] for group in before if seconds[group]) or 1)


def print_groups(reporter, config):
    """Print the seconds of the longest groups, and those whose share has doubled since they were recorded."""
    seconds, before = seconds_of_groups(reporter), recorded()
    reporter.section("seconds of groups")
    for group, took in seconds.most_common(12):
        reporter.write_line(f"{took:7.0f} {group}")
    reporter.write_line(f"{seconds.total():7.0f} of all {len(seconds)} groups")
    if config.getoption("record_durations"):
        lines = [f"{took:.0f} {group}\n" for group, took in seconds.most_common() if took >= 1]
        DURATIONS.write_text("".join(lines))
        return
    times = pace(seconds, before)
    for group, took in seconds.most_common():
        if took > 10 + 2 * times * before.get(group, 0):
            reporter.write_line(f"{group} took {took:.0f} s, and {before.get(group, 0):.0f} s when recorded")


def print_counts(terminalreporter, title):
    """Print the counts that tests recorded as a property of this name, by kind of program."""
    kinds = defaultdict(Counter)
    for report in itertools.chain(*terminalreporter.stats.values()):
        for name, counts in getattr(report, "user_properties", ()):
            if name == title and report.when == "call":
                counts = {**counts, "seconds": report.duration}
                for kind in (counts.pop("kind"), "total"):
                    kinds[kind].update(counts)
    if not kinds:
        return
    total = kinds.pop("total")
    terminalreporter.section(title)
    names = list(total)
    terminalreporter.write_line(" ".join(f"{name:>11}" for name in ("kind", *names)))
    for kind, counts in [*kinds.items(), ("total", total)]:
        terminalreporter.write_line(" ".join([f"{kind:>11}", *(f"{counts[name]:>11.0f}" for name in names)]))


@pytest.fixture(scope="module", autouse=True)
def tidied():
    """Freeze the objects that a file leaves behind, such as numba's compiled functions.

    The collector then skips them in later files and at exit, where they would cost a quarter of a minute.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory):
    """The folder of compiled machine code: the one of `make test`, else one for all processes of the run."""
    if home := os.environ.get("LOCKSTEP_HOME"):
        folder = Path(home).absolute() / "compiled"
    else:
        base = tmp_path_factory.getbasetemp()
        folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine_code, "kept", lambda: machine_code.Kept(folder))
        yield folder


@pytest.fixture(scope="session")
def with_compiled(compiled):
    """A function that links the shared machine code into the home of another process and returns the home."""

    def share(home: Path) -> Path:
        home.mkdir(parents=True, exist_ok=True)
        (home / "compiled").symlink_to(compiled)
        return home

    return share


@pytest.fixture(scope="session")
def spark():
    """One local Spark session for all tests of a process.

    The fixture also ends its JVM, which would outlive the session. It quiets py4j: py4j logs each connection that it
    closes, and closes the last ones after logging has shut down.
    """
    from pyspark import SparkContext

    from jobs.session import spark_session

    logging.getLogger("py4j").setLevel(logging.WARNING)
    with spark_session("tests") as session:
        yield session
    gateway = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when this pipe closes
    gateway.proc.wait(60)
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture
def session(spark, monkeypatch):
    """The session of the tests, which commands in this process use instead of their own."""
    monkeypatch.setattr("jobs.session.spark_session", lambda *_, **__: nullcontext(spark))
    return spark


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An empty folder in place of the applications; a test writes its own files into it."""
    monkeypatch.setattr(registry, "_HERE", tmp_path)
    monkeypatch.setattr(streaming_core.apps, "__path__", [str(tmp_path)])
    yield tmp_path
    for name in list(sys.modules):
        if name.startswith("streaming_core.apps.") and not name.endswith(".registry"):
            file = getattr(sys.modules[name], "__file__", "") or ""
            if file.startswith(str(tmp_path)):
                del sys.modules[name]
                vars(streaming_core.apps).pop(name.rpartition(".")[2], None)
