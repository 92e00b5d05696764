"""Energy counters: a temporary folder laid out like Linux's powercap tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_core.apps import registry
from streaming_core.bench.race.race import Race
from streaming_core.data import workload
from streaming_core.run import engine
from streaming_core.run.energy import Meter, Spent
from streaming_core.run.report import RunReport
from streaming_core.run.way import Transactional

TOP = 1_000_000_000


def zone(root: Path, folder: str, name: str, energy: int = 0, top: int = TOP) -> Path:
    """A zone of the tree; its counter."""
    path = root / folder
    path.mkdir(parents=True)
    (path / "name").write_text(f"{name}\n")
    (path / "max_energy_range_uj").write_text(f"{top}\n")
    (path / "energy_uj").write_text(f"{energy}\n")
    return path / "energy_uj"


class Ticking(Meter):
    """A machine that takes a joule between every two readings."""

    def read(self):
        for counter, top in self._packages:
            counter.write_text(str((int(counter.read_text()) + 1_000_000) % top))
        return super().read()


@pytest.fixture
def root(tmp_path):
    return tmp_path / "powercap"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))


def test_packages_add_up_and_their_parts_count_once(root):
    counters = [zone(root, "intel-rapl:0", "package-0", 5_000_000), zone(root, "intel-rapl:1", "package-1", 7)]
    others = [
        zone(root, "intel-rapl:0:0", "core"),
        zone(root, "intel-rapl:2", "psys"),
        zone(root, "intel-rapl-mmio:0", "package-0"),
    ]
    (root / "intel-rapl").mkdir()
    meter = Meter(root)
    before = meter.read()
    for counter in [*counters, *others]:
        counter.write_text(str(int(counter.read_text()) + 1_500_000))
    assert meter.joules(before, meter.read()) == 3.0
    assert meter.why == ""


def test_a_counter_wraps_around_at_its_range(root):
    counter = zone(root, "intel-rapl:0", "package-0", 9_500_000, top=10_000_000)
    meter = Meter(root)
    before = meter.read()
    counter.write_text("250000")
    assert meter.joules(before, meter.read()) == 0.75


def test_a_vanished_counter_gives_no_figure(root):
    zone(root, "intel-rapl:0", "package-0")
    counter = zone(root, "intel-rapl:1", "package-1")
    meter = Meter(root)
    spent = Spent(meter)
    with spent.counting():
        pass
    assert spent.joules == 0.0
    with spent.counting():
        counter.unlink()
    with spent.counting():
        pass
    assert spent.joules is None
    assert spent.cpu > 0
    assert meter.why == "cannot read the energy counters: No such file or directory"
    assert Spent(meter).joules is None


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda root: None, "this machine has no energy counters"),
        (lambda root: zone(root, "intel-rapl:0", "psys"), "this machine has no energy counters"),
        (lambda root: zone(root, "intel-rapl:0", "package-0").write_text("many"),
         "cannot read the energy counters: invalid literal"),
        (lambda root: (root / "intel-rapl:0").mkdir(parents=True), "cannot read the energy counters: No such file"),
        (lambda root: zone(root, "intel-rapl:0", "package-0").unlink(),
         "cannot read the energy counters: No such file"),
    ],
)  # fmt: skip
def test_unreadable_counters_give_a_reason(root, make, why):
    make(root)
    meter = Meter(root)
    assert why in meter.why
    assert meter.read() is None
    assert meter.joules(None, None) is None


@pytest.fixture
def packages(root):
    zone(root, "intel-rapl:0", "package-0", TOP - 1_500_000)
    zone(root, "intel-rapl:1", "package-1")
    return root


def test_a_run_reports_its_energy_in_total_and_per_event(tmp_path, packages):
    app = registry.load("sl")
    workload.write(app, app.bind(), 1000, 1, tmp_path / "workload")
    spec = Transactional(app="sl", repetitions=2)
    report = engine.run(spec, tmp_path / "workload", None, meter=Ticking(packages))
    # Two packages, and two times that the engine is active in a pass: the only block, and the end.
    assert [sample.energy_joules for sample in report.samples] == [4.0] * 3
    assert report.energy_joules == 12.0
    assert "energy" not in report.host
    assert report.verified.energy_nj == 4e6
    assert report.verified.cpu_ns == pytest.approx(report.verified.cpu_seconds * 1e6)
    written = report.model_dump(mode="json")
    assert written["samples"][0]["energy_nj"] == 4e6
    assert RunReport.model_validate_json(report.model_dump_json()) == report
    report = engine.run(spec, tmp_path / "workload", None, meter=Meter(tmp_path / "nothing"))
    assert (report.energy_joules, report.verified.energy_nj) == (None, None)
    assert report.host["energy"].startswith("this machine has no energy counters")


def test_a_race_compares_energy_and_processor_time(packages, tmp_path):
    spec = Transactional(app="sl")
    loop, row = Race("sl", {}, 2000, meter=Ticking(packages)).run([spec], 1)
    assert (loop["energy_nj"], row["energy_nj"]) == (1e6, 2e6)  # sl has nothing to flush: the loop is active once
    assert loop["cpu_ns"] > 0
    assert row["cpu_ns"] > 0
