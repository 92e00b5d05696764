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
from pathlib import Path

import pytest

import streaming_core.apps
from streaming_core import machine_code
from streaming_core.apps import registry

# One worker runs all tests that share a slow process: a warm JVM, or Airflow with its database.
TOGETHER = {
    **dict.fromkeys(("tests/jobs/", "tests/expectations/", "tests/dbt/test_trend.py"), "spark"),
    **dict.fromkeys(("tests/infra/cli/test_check.py", "tests/infra/cli/test_importing.py"), "spark"),
    "tests/dags/": "airflow",
    "tests/dbt/": "dbt",  # its tests share a history that takes a minute to build
}
# A full run of this file would keep one worker busy after the others are done. So its functions go to workers one by
# one, and so does each test of the campaign.
MANY = "tests/differential/test_engine.py"
CAMPAIGN = "tests/differential/test_campaign.py"
# These take longest: started last, they would keep one worker busy alone.
FIRST = ("tests/e2e/", "tests/dbt/", "tests/streaming_core/language/test_windows.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Distribute files over workers as `--dist loadfile` does, except for those that belong together."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            if nodeid.startswith(MANY) and "not slow" not in config.option.markexpr:
                return nodeid.partition("[")[0]
            if nodeid.startswith(CAMPAIGN):
                return nodeid
            return next((name for folder, name in TOGETHER.items() if nodeid.startswith(folder)), None) or (
                super()._split_scope(nodeid)
            )

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: next((n for n, name in enumerate(FIRST) if item.nodeid.startswith(name)), len(FIRST)))


def pytest_collection_finish():
    # Compiling creates millions of objects, and few become garbage. The default thresholds of the collector would cost
    # a fifth of the time.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_sessionfinish(session):
    """Fail the session on a skipped test if LOCKSTEP_SKIPS_FAIL=1, as in CI: the machine lacks something."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if skipped and os.environ.get("LOCKSTEP_SKIPS_FAIL"):
        reporter.write_line(f"\n{len(skipped)} tests were skipped, and LOCKSTEP_SKIPS_FAIL is set")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    """Print the counts of the campaign (differential/campaign.py) by kind of program."""
    kinds = defaultdict(Counter)
    for report in itertools.chain(*terminalreporter.stats.values()):
        for name, counts in getattr(report, "user_properties", ()):
            if name == "campaign" and report.when == "call":
                counts = {**counts, "seconds": report.duration}
                for kind in (counts.pop("kind"), "total"):
                    kinds[kind].update(counts)
    if not kinds:
        return
    total = kinds.pop("total")
    terminalreporter.section("campaign")
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
