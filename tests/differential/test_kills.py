"""Processes killed again and again, and resumed in other ways, end with the oracle's result.

A case is an application: one of the package, or a random program. Its run makes checkpoints, and is killed at any
moment: before a step, some time after one, or in the process that writes a checkpoint. Half of the runs that resume
do so in another way of executing. `relay.py` resumes far more often, without files.
"""

import json
import random
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.oracle import oracle
from streaming_core.run.comparison import diff
from streaming_core.run.way import RunSpec
from streaming_core.search.ways import draw_way
from tests.differential import campaign, dataflows, generated, test_dataflows, test_generated, test_sources, windowings
from tests.differential.killed import Command
from tests.differential.streams import SEED, Stream
from tests.differential.test_engine import SMALL

pytestmark = pytest.mark.slow  # test_faults.py, test_durability.py and test_relay.py have quick cases

PROGRAMS = {"windowed": 26, "dataflow": 14, "transaction": 14, "sources": 6}
CHUNK = 2  # programs of a test
KILLS = 10  # of a program
EVENTS = 2_000
MOST = 5  # kills of one run, which then ends
LINES = re.compile(
    r"(streaming-core: resuming from the checkpoint at event \d+\n)?"
    r"(streaming-core: no checkpoint at event \d+: its process was ended by signal 9; the run goes on\n)?"
    r"(streaming-core: \S+ already holds this run; nothing to do\n)?"
)


def write(folder: Path, kind: str, number: int) -> str:
    """Write a random program as a module of a name of its own; return the name."""
    name = f"kills_{kind}_{number}"
    match kind:
        case "transaction":
            path, old = generated.write(folder, f"{name}_{SEED}"), "generated"
        case "dataflow":
            path, old = dataflows.write(folder, f"{name}_{SEED}", number % 4 == 1, False, number % 4 == 2), "dataflow"
        case "windowed":
            path, old = windowings.write(folder, f"{name}_{SEED}", number % 4 == 1), "dataflow"
        case _:
            path, old = folder / f"{name}_", "drawn"
            path.write_text(test_sources.written(number))
    source = path.read_text()
    path.unlink()
    (folder / f"{name}.py").write_text(source.replace(f'App("{old}"', f'App("{name}"'))
    return name


def events_of(name: str, params: dict, r: random.Random):
    """Events of an application; None: a random program that needs its own."""
    app = registry.load(name)
    if name.startswith("kills_") and not name.startswith("kills_sources"):
        size = test_dataflows.EVENT
        stream = Stream([r.randbytes(size) for _ in range(EVENTS // 20)], 20, r.choice((1, 3, 64)), False)
        table = (test_generated if app.kind == "transaction" else test_dataflows).encode(app)(stream)
        return campaign.late(table, r) if name.startswith("kills_windowed") else table
    count = test_sources.EVENTS if name.startswith("kills_") else EVENTS
    return workload.generate_chunk(app, params, count, 7, 0, count)


@dataclass
class Case:
    """An application, its workload and its oracle's result below `root`."""

    name: str
    root: Path
    r: random.Random

    def __post_init__(self):
        self.app = registry.load(self.name)
        self.params = self.app.bind(SMALL.get(self.name, {}))
        table = events_of(self.name, self.params, self.r)
        self.events = table.num_rows
        part = workload.write_part(self.root / "workload", 0, table)
        workload.seal_imported(self.root / "workload", self.app, self.params, [part], {"files": []})
        oracle.run(self.root / "workload", self.root / "oracle", "interpreted", self.app, self.params)

    def spec(self) -> RunSpec:
        """A way of executing, with checkpoints by events."""
        way = draw_way(self.app, self.params, self.events, self.r, {})
        interval = self.r.choice((37, 150, 600))
        return RunSpec.parse(way.model_dump() | {"sink": "parquet", "rate": 0.0, "checkpoint": str(interval)})

    def moment(self) -> dict[str, int]:
        """The moment of a kill."""
        r = self.r
        return r.choice((
            {"at": r.randrange(1, r.choice((20, 60, 200)))},
            {"at": r.randrange(1, r.choice((20, 60, 200))), "spin": r.randrange(4_000)},
            {"at": r.randrange(1, 8), "spin": r.randrange(60_000)},
            {"at": r.randrange(1, 9), "writer": r.randrange(1, 5)},
        ))  # fmt: skip

    def endure(self, command: Command, kills: int) -> Counter:
        """Kill runs so many times, resume each until it ends, and compare. Returns counts."""
        r, counts, out = self.r, Counter(), self.root / "out"
        while counts["kills"] < kills:
            spec, begun, killed = self.spec(), command.events, 0
            while True:
                (self.root / "spec.json").write_text(json.dumps(spec.model_dump(mode="json")))
                arguments = ("run", self.root / "spec.json", "--input", self.root / "workload", "--out", out)
                moment = self.moment() if killed < MOST else {}
                code, error = command(*arguments, **moment)
                assert LINES.fullmatch(error), error
                counts["resumes"] += "resuming" in error
                counts["writers"] += "signal 9" in error
                counts["kills"] += code is None or "signal 9" in error
                killed += 1
                if code is not None:
                    break
                # A run that was killed after its report is complete, and belongs to its way.
                if r.random() < 0.5 and not (out / "report.json").exists():
                    order, spec = spec.order, self.spec()
                    while spec.order != order:
                        spec = self.spec()
                    counts["other ways"] += 1
            assert code == 0, (error, spec)
            difference = diff(out, self.root / "oracle")
            assert difference.exit_code == 0, (difference, spec)
            assert not [path.name for path in out.iterdir() if path.name.startswith(".")]
            counts["runs"] += 1
            counts["events"] += self.events
            counts["repeated"] += command.events - begun - self.events
            shutil.rmtree(out)
        return counts


@pytest.fixture
def endure(tmp_path, with_compiled, monkeypatch, record_property):
    """A function that kills runs of applications; modules in the folder `programs` are applications, too."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.syspath_prepend(programs)
    monkeypatch.setattr(registry, "_ELSEWHERE", {})

    def run(kind: str, names: list[str], kills: int) -> Counter:
        modules = [path.stem for path in programs.glob("*.py")]
        for module in modules:
            registry.add(module)
        command, counts = Command(with_compiled(tmp_path / "home"), modules), Counter()
        try:
            for name in names:
                r = random.Random(f"kills {SEED} {name}")
                counts += Case(name, tmp_path / name, r).endure(command, kills)
        finally:
            command.close()
        record_property("kills", {"kind": kind, "programs": len(names), **counts})
        return counts

    run.programs = programs
    return run


@pytest.mark.parametrize("name", registry.names())
def test_often_killed_application_resumes_in_other_ways(name, endure):
    counts = endure("app", [name], 22)
    assert counts["resumes"] > 1
    assert counts["other ways"] > 1


@pytest.mark.parametrize(
    ("kind", "start"), [(kind, at) for kind, count in PROGRAMS.items() for at in range(0, count, CHUNK)]
)
def test_killed_random_programs_resume_in_other_ways(kind, start, endure):
    names = [write(endure.programs, kind, number) for number in range(start, start + CHUNK)]
    assert endure(kind, names, KILLS)["kills"] >= CHUNK * KILLS
