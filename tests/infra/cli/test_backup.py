"""lockstep backup and restore: history and decisions go into one file and come back; bad files change nothing."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import multiprocessing
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.cli.report import RATIOS
from infra.services import backup as service
from infra.services.decisions import acknowledge
from infra.services.lock import hold
from reports.history import History
from streaming_core.regression.decisions import decisions
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import RAW, SCHEMA_VERSION, rows
from tests.dbt.conftest import read_mart
from tests.dbt.conftest import warehouse as run_warehouse
from tests.dbt.raw_runs import RED, write_runs
from tests.infra.cli.conftest import lockstep
from tests.reports import past_runs

MARTS = ("cells", "throughput", "speed", "latency", "verdicts", "runs")
# Reproducible files, files of a process, and files outside the folders of history.
LEFT_OUT = (
    "workloads/gs/gs-100000/events/part-00000.parquet",
    "oracle/gs/0a0b/outputs/part-00000.parquet",
    "builds/abc/engine.so",
    "compiled/kernel.nbi",
    "logs/spark-cli.log",
    "spark-server.json",
    "lock.json",
    "expectations/other.json",
    "imported/wc/.plays.new/manifest.json",
    "reports/index.html",
    "reports/data_docs/index.html",
    "warehouse/dbt/manifest.json",
    f"runs/{past_runs.LAST}/gs.cell/attempt-1/outputs/part-00000.parquet",
    f"runs/{past_runs.LAST}/gs.cell/attempt-1/state/accounts/part-00000.parquet",
    f"runs/{past_runs.LAST}/gs.cell/attempt-1/.checkpoint/0/state",
    f"warehouse/raw/cells/run_id={past_runs.LAST}/.part-0.parquet.123",
)
HISTORY = (
    "imported/wc/plays/events/part-00000.parquet",
    "imported/wc/plays/manifest.json",
    "reports/bench/tstream-20260101T000000Z.json",
    "expectations/results/cells/result.json",
    f"runs/{past_runs.LAST}/gs.cell/attempt-1/report.json",
    f"runs/{past_runs.LAST}/gs.cell/attempt-1.stderr.log",
    f"runs/{past_runs.LAST}/stages/publish_reports.json",
)


@pytest.fixture(scope="module")
def backup_folder(tmp_path_factory) -> Path:
    """The folder `home` with five nights, acknowledged red cells, and every other kind of file; and its backup."""
    folder = tmp_path_factory.mktemp("made")
    home = Home(folder / "home")
    past_runs.make(home)
    acknowledge(home, past_runs.LAST, None, "ada", "the disk was full")
    for path in (*LEFT_OUT, *HISTORY):
        (home.root / path).parent.mkdir(parents=True, exist_ok=True)
        (home.root / path).write_text(path)
    service.backup(home, folder / "b.tar.gz", print)
    return folder


@pytest.fixture
def home(backup_folder, tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    shutil.copytree(backup_folder / "home", tmp_path / "home")
    return Home(tmp_path / "home")


@pytest.fixture
def file(backup_folder, tmp_path) -> Path:
    """A backup of `home`."""
    return shutil.copyfile(backup_folder / "b.tar.gz", tmp_path / "b.tar.gz")


@pytest.fixture
def empty(tmp_path, monkeypatch) -> Home:
    """LOCKSTEP_HOME of a new machine: a path that does not exist."""
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "new"))
    return Home(tmp_path / "new")


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def reports(capsys) -> list[dict]:
    """The output of `lockstep report --json` on a green and a red run, without paths and what marts decide.

    dbt judges speeds, and only a judged speed has ratios.
    """
    runs = []
    for run_id in (past_runs.RUN_IDS[0], past_runs.LAST):
        assert lockstep("report", run_id, "--json") == (run_id == past_runs.LAST)
        run = json.loads(capsys.readouterr().out)
        for cell in run["cells"]:
            for name in ("speed", *RATIOS):
                del cell[name]
        runs.append({name: value for name, value in run.items() if name not in ("reports", "speed")})
    return runs


def refused(capsys, *arguments: str) -> str:
    """The one line that bad input gets."""
    assert lockstep(*arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("lockstep: ")
    assert error.count("\n") == 1
    return error


def members(file: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(file) as archive:
        return [(one, archive.extractfile(one).read()) for one in archive]  # type: ignore[union-attr]


def write(file: Path, parts: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    with tarfile.open(file, "w:gz") as archive:
        for member, data in parts:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def edit(file: Path, change: Callable[[dict], object]) -> None:
    """Change the manifest of a backup."""
    (first, data), *others = members(file)
    manifest = json.loads(data)
    change(manifest)
    write(file, [(first, json.dumps(manifest).encode()), *others])


def test_history_and_acknowledgements_come_back_equal(home, file, tmp_path, monkeypatch, capsys):
    before, decided = reports(capsys), decisions(home)
    tables = {(name, run): rows(home, name, run) for name in RAW for run in past_runs.RUN_IDS}
    assert len(decided) == 3
    assert sum(rows is not None for rows in tables.values()) == 20
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "new"))
    assert lockstep("restore", str(file)) == 0
    restored = Home(tmp_path / "new")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"restore: {file} holds 5 runs, 3 acknowledgements, ")
    assert lines[1:] == ["next: lockstep warehouse build, then lockstep publish"]
    assert reports(capsys) == before
    assert decisions(restored) == decided
    assert {(name, run): rows(restored, name, run) for name, run in tables} == tables
    acknowledged = [cell.acknowledged for cell in History(restored).run(past_runs.LAST).cells if cell.red]
    assert [one and one.why for one in acknowledged] == ["the disk was full"] * 3


@pytest.mark.slow
def test_marts_and_pages_can_be_rebuilt_from_a_backup(tmp_path, monkeypatch, capsys):
    first, second = Home(tmp_path / "first"), Home(tmp_path / "second")
    write_runs(first)
    first.run(RED).mkdir(parents=True)
    acknowledge(first, RED, None, "ada", "the disk was full")
    assert run_warehouse(first, "build").returncode == 0
    marts = {name: sorted(map(repr, read_mart(first, name))) for name in MARTS}
    assert all(marts.values())
    monkeypatch.setenv("LOCKSTEP_HOME", str(first.root))
    assert lockstep("backup", str(tmp_path / "b.tar.gz")) == 0
    monkeypatch.setenv("LOCKSTEP_HOME", str(second.root))
    assert lockstep("restore", str(tmp_path / "b.tar.gz")) == 0
    assert not (second.root / "warehouse" / "marts").exists()
    done = run_warehouse(second, "build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {name: sorted(map(repr, read_mart(second, name))) for name in MARTS} == marts
    assert lockstep("publish", "--run", RED) == 0
    page = (second.report(RED, "index.html")).read_text()
    assert page.count("ada, ") == page.count("the disk was full") == 3
    assert "quarantine" not in capsys.readouterr().err


def test_backup_holds_the_whole_history_and_nothing_else(home, file, empty):
    names = [member.name for member, _ in members(file)]
    assert names == ["manifest.json", *sorted(names[1:])]
    assert set(HISTORY) < set(names)
    assert not set(LEFT_OUT) & set(names)
    assert not [name for name in names if "/marts/" in name]
    assert lockstep("restore", str(file)) == 0
    before = content(home.root)
    assert content(empty.root) == {name: before[name] for name in names[1:]}
    old, new = (one.root / HISTORY[0] for one in (home, empty))
    assert int(old.stat().st_mtime) == new.stat().st_mtime


def test_manifest_lists_the_content_of_the_file(home, file):
    (_, data), *others = members(file)
    manifest = json.loads(data)
    assert (manifest["format"], manifest["raw_schema"]) == (1, SCHEMA_VERSION)
    assert manifest["created_at"].endswith("+00:00")
    assert manifest["files"] == [
        {"path": member.name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for member, data in others
    ]


def test_json_gives_programs_the_counts(home, tmp_path, monkeypatch, capsys):
    assert lockstep("backup", str(tmp_path / "b.tar.gz"), "--json") == 0
    written = json.loads(capsys.readouterr().out)
    assert (written["runs"], written["acknowledgements"], written["home"]) == (5, 3, str(home.root))
    assert written["files"] == len(members(tmp_path / "b.tar.gz")) - 1
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "new"))
    assert lockstep("restore", str(tmp_path / "b.tar.gz"), "--json") == 0
    assert json.loads(capsys.readouterr().out) == written | {"home": str(tmp_path / "new")}


def test_restored_home_can_be_backed_up_again(file, empty, tmp_path):
    assert lockstep("restore", str(file)) == 0
    assert lockstep("backup", str(tmp_path / "again.tar.gz")) == 0
    (_, first), *one = members(file)
    (_, second), *other = members(tmp_path / "again.tar.gz")
    assert json.loads(first)["files"] == json.loads(second)["files"]
    assert [data for _, data in one] == [data for _, data in other]


def test_empty_folder_with_a_lock_that_is_free_is_replaced(file, empty):
    with hold(empty, "prune"):
        pass
    empty.root.chmod(0o750)
    assert lockstep("restore", str(file)) == 0
    assert len(decisions(empty)) == 3
    assert empty.root.stat().st_mode & 0o777 == 0o750
    assert not (empty.root / "lock.json").exists()


def test_link_to_an_empty_folder_stays_a_link(file, empty, tmp_path):
    (tmp_path / "disk").mkdir()
    empty.root.symlink_to(tmp_path / "disk")
    assert lockstep("restore", str(file)) == 0
    assert empty.root.is_symlink()
    assert len(decisions(Home(tmp_path / "disk"))) == 3


# --- backup: bad input -----------------------------------------------------------------------------------------------


def test_existing_file_is_never_replaced(home, tmp_path, capsys):
    (tmp_path / "b.tar.gz").write_text("precious")
    error = refused(capsys, "backup", str(tmp_path / "b.tar.gz"))
    assert "b.tar.gz already exists: choose another name" in error
    assert (tmp_path / "b.tar.gz").read_text() == "precious"


@pytest.mark.parametrize(
    ("folder", "message"),
    [("absent", "does not exist: there is nothing"), ("bare", "has no history: there is nothing")],
)
def test_home_without_history_has_nothing_to_back_up(tmp_path, monkeypatch, capsys, folder, message):
    (tmp_path / "bare").mkdir()
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / folder))
    assert message in refused(capsys, "backup", str(tmp_path / "b.tar.gz"))
    assert [path.name for path in tmp_path.iterdir()] == ["bare"]


def test_backup_to_an_unwritable_folder_is_bad_input(home, tmp_path, capsys):
    (tmp_path / "occupied").write_text("")
    assert "cannot write " in refused(capsys, "backup", str(tmp_path / "occupied" / "b.tar.gz"))


def test_damaged_or_foreign_raw_file_is_named(home, tmp_path, capsys):
    part = home.part("cells", past_runs.LAST)
    table = pq.ParquetFile(part).read()
    other = pa.array([SCHEMA_VERSION + 7] * len(table), pa.int32())
    pq.write_table(table.set_column(0, table.schema.field(0), other), part)
    assert f"{part} has raw schema version {SCHEMA_VERSION + 7}" in refused(capsys, "backup", str(tmp_path / "b"))
    part.write_text("not parquet")
    assert f"cannot read {part}" in refused(capsys, "backup", str(tmp_path / "b"))
    assert not [path for path in tmp_path.iterdir() if path.name != "home"]


def test_file_change_during_the_backup_is_named_and_leaves_no_backup(home, tmp_path, monkeypatch, capsys):
    measure = service._measure

    def and_change(home: Home, path: str) -> service.File:
        one = measure(home, path)
        if path == HISTORY[0]:
            (home.root / path).write_bytes(b"x" * one.size)
        return one

    monkeypatch.setattr(service, "_measure", and_change)
    assert lockstep("backup", str(tmp_path / "b.tar.gz")) == 3
    assert f"{home.root / HISTORY[0]} changed during the backup" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def _backup(root: str, file: str, messages: multiprocessing.Queue) -> None:
    service.backup(Home(root), Path(file), messages.put)


def test_backup_waits_for_the_run_in_progress_and_holds_its_results(home, tmp_path):
    spawn = multiprocessing.get_context("spawn")
    messages = spawn.Queue()
    other = spawn.Process(target=_backup, args=(str(home.root), str(tmp_path / "b.tar.gz"), messages))
    with hold(home, "nightly"):
        other.start()
        assert messages.get(timeout=60).startswith(f"waiting: {home.root} is in use by nightly on ")
        assert not (tmp_path / "b.tar.gz").exists()
        past_runs.add(home, "20260106T020000Z-00000006", 6)
    other.join(60)
    assert other.exitcode == 0
    assert home.part("cells", "20260106T020000Z-00000006").relative_to(home.root).as_posix() in [
        member.name for member, _ in members(tmp_path / "b.tar.gz")
    ]


# --- restore: bad input ----------------------------------------------------------------------------------------------


def cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def replace(file: Path, **fields: object) -> None:
    """Give the second member of a backup other fields: a name, a type, the target of a link."""
    parts = members(file)
    for name, value in fields.items():
        setattr(parts[1][0], name, value)
    if "type" in fields:
        parts[1] = (parts[1][0], b"")
    write(file, parts)


def rename(file: Path, name: str) -> None:
    """Give the second member another name, in the manifest too."""
    edit(file, lambda manifest: manifest["files"][0].update(path=name))
    replace(file, name=name)


def without_manifest(file: Path) -> None:
    write(file, members(file)[1:])


def with_content(file: Path) -> None:
    parts = members(file)
    parts[1] = (parts[1][0], b"x" * len(parts[1][1]))
    write(file, parts)


BAD = {
    "no file": (lambda file: file.unlink(), "No such file or directory"),
    "folder": (lambda file: (file.unlink(), file.mkdir()), "Is a directory"),
    "empty": (lambda file: cut(file, 0), "is damaged: empty file"),
    "no gzip": (lambda file: file.write_text("hello"), "is damaged: Not a gzipped file"),
    "no tar": (lambda file: file.write_bytes(gzip.compress(b"x" * 5000)), "is damaged: "),
    "cut in half": (lambda file: cut(file, file.stat().st_size // 2), "is damaged: "),
    "cut at its end": (lambda file: cut(file, file.stat().st_size - 1), "is damaged: "),
    "flipped bit": (flip, "is damaged: "),
    "other content": (with_content, " has another digest than manifest.json says"),
    "no manifest": (without_manifest, "is not a backup: its first member is not manifest.json"),
    "missing member": (lambda file: write(file, members(file)[:-1]), " is missing"),
    "extra member": (
        lambda file: edit(file, lambda manifest: manifest["files"].pop()),
        "is damaged: manifest.json does not list ",
    ),
    "other order": (
        lambda file: edit(file, lambda manifest: manifest["files"].reverse()),
        "is damaged: the paths in manifest.json are not in order",
    ),
    "other size": (
        lambda file: edit(file, lambda manifest: manifest["files"][0].update(size=1)),
        " has another place or size than manifest.json says",
    ),
    "no list": (lambda file: edit(file, lambda manifest: manifest.pop("files")), "files is missing"),
    "unknown field": (lambda file: edit(file, lambda manifest: manifest.update(more=1)), "manifest.json: "),
    "other format": (
        lambda file: edit(file, lambda manifest: manifest.update(format=2)),
        "has backup format 2, but this checkout reads only 1",
    ),
    "other raw schema": (
        lambda file: edit(file, lambda manifest: manifest.update(raw_schema=SCHEMA_VERSION + 7)),
        f"has raw schema version {SCHEMA_VERSION + 7}, but this checkout reads only {SCHEMA_VERSION}",
    ),
    "absolute path": (lambda file: rename(file, "/tmp/x"), "'/tmp/x' is not a path of the history"),
    "path upwards": (lambda file: rename(file, "imported/../../x"), "'imported/../../x' is not a path of the history"),
    "path beside history": (lambda file: rename(file, "builds/x"), "'builds/x' is not a path of the history"),
    "absolute member": (lambda file: replace(file, name="/tmp/x"), "'/tmp/x' is not a path of the history"),
    "symbolic link": (lambda file: replace(file, type=tarfile.SYMTYPE, linkname="/etc"), " is not a regular file"),
    "hard link": (lambda file: replace(file, type=tarfile.LNKTYPE, linkname="runs/x"), " is not a regular file"),
    "device": (lambda file: replace(file, type=tarfile.CHRTYPE), " is not a regular file"),
    "pipe": (lambda file: replace(file, type=tarfile.FIFOTYPE), " is not a regular file"),
    "time out of range": (lambda file: replace(file, mtime=1e300), "is damaged: "),
    "sparse": (
        lambda file: replace(file, pax_headers={"GNU.sparse.map": "0,1", "GNU.sparse.size": "1"}),
        " is not a regular file",
    ),
    "folder member": (lambda file: replace(file, type=tarfile.DIRTYPE), " is not a regular file"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file_gets_one_line_and_restores_nothing(file, empty, tmp_path, capsys, name):
    spoil, message = BAD[name]
    spoil(file)
    before = content(tmp_path)
    error = refused(capsys, "restore", str(file))
    assert str(file) in error
    assert message in error
    assert content(tmp_path) == before
    assert not empty.root.exists()


def test_file_cut_anywhere_restores_nothing(file, empty, capsys):
    whole = file.read_bytes()
    for size in range(0, len(whole), len(whole) // 60):
        file.write_bytes(whole[:size])
        assert f"{file} is damaged: " in refused(capsys, "restore", str(file))
        assert not empty.root.exists()


def test_home_with_history_is_unchanged(home, file, capsys):
    before = content(home.root)
    error = refused(capsys, "restore", str(file))
    assert f"LOCKSTEP_HOME={home.root} already holds history, such as expectations/results/" in error
    assert content(home.root) == before


def test_home_with_other_files_is_unchanged(file, empty, capsys):
    empty.log("airflow").parent.mkdir(parents=True)
    empty.log("airflow").write_text("started")
    assert f"LOCKSTEP_HOME={empty.root} is not empty: it holds logs" in refused(capsys, "restore", str(file))
    assert content(empty.root) == {"logs/airflow.log": b"started"}


def test_home_that_is_a_file_is_bad_input(file, empty, capsys):
    empty.root.write_text("")
    assert f"LOCKSTEP_HOME={empty.root}: Not a directory" in refused(capsys, "restore", str(file))


def test_home_in_use_is_unchanged(file, empty, capsys):
    with hold(empty, "prune"):
        assert lockstep("restore", str(file)) == 3
        assert f"LOCKSTEP_HOME={empty.root} is in use by another command" in capsys.readouterr().err
        assert [path.name for path in empty.root.iterdir()] == ["lock.json"]


def test_home_filled_during_the_restore_is_unchanged(file, empty, tmp_path, monkeypatch, capsys):
    def remove_lock_and_write(home: Home) -> None:
        (home.root / "new").touch()

    empty.root.mkdir()
    monkeypatch.setattr(service, "_remove_lock", remove_lock_and_write)
    assert lockstep("restore", str(file)) == 3
    assert f"LOCKSTEP_HOME={empty.root} cannot be replaced" in capsys.readouterr().err
    assert [path.name for path in empty.root.iterdir()] == ["new"]
    assert sorted(os.listdir(tmp_path)) == ["b.tar.gz", "new"]
