"""lockstep backup and restore: history and decisions go into one file and come back; bad files change nothing."""

import gzip
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.history import archive
from infra.history.ledger import acknowledge
from reports.history import History
from streaming_core.regression.decisions import decisions
from streaming_core.regression.home import Home
from streaming_core.regression.lock import hold, of_home
from streaming_core.regression.warehouse import SCHEMA_VERSION
from tests.infra.cli.conftest import lockstep, refused
from tests.reports import past_runs

# Reproducible files, files of a process, and files outside the folders of history.
CELL = f"runs/{past_runs.LAST}/gs.cell/attempt-1"
LEFT_OUT = ("workloads/gs/gs-100000/events/part-00000.parquet", "expectations/other.json", "reports/index.html")
LEFT_OUT += ("imported/wc/.plays.new/manifest.json", "warehouse/dbt/manifest.json")
LEFT_OUT += (f"{CELL}/outputs/part-00000.parquet", f"{CELL}/.run/checkpoints/0")
HISTORY = ("imported/wc/plays/events/part-00000.parquet", "reports/bench/tstream-20260101T000000Z.json")
HISTORY += ("expectations/results/cells/result.json", f"{CELL}/report.json")


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
    archive.backup(home, folder / "b.tar.gz", print)
    return folder


@pytest.fixture
def home(backup_folder, tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    return Home(shutil.copytree(backup_folder / "home", tmp_path / "home"))


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


def test_history_and_acknowledgements_come_back_and_nothing_else(home, file, empty, capsys):
    assert lockstep("restore", str(file)) == 0
    line, further = capsys.readouterr().out.splitlines()
    assert line.startswith(f"restore: {file} holds 5 runs, 3 acknowledgements, ")
    assert further == "next: lockstep warehouse build, then lockstep publish"
    before, after = content(home.root), content(empty.root)
    assert after == {path: before[path] for path in after}
    assert set(HISTORY) < after.keys() <= before.keys() - set(LEFT_OUT)
    assert not [path for path in after if "/marts/" in path]
    assert {path for path in before if path.startswith("warehouse/raw/")} <= after.keys()
    assert decisions(empty) == decisions(home)
    assert int((home.root / HISTORY[0]).stat().st_mtime) == (empty.root / HISTORY[0]).stat().st_mtime
    red = [cell.acknowledged for cell in History(empty).run(past_runs.LAST).cells if cell.red]
    assert [acknowledgement and acknowledgement.why for acknowledgement in red] == ["the disk was full"] * 3


def test_existing_file_is_never_replaced(home, file, capsys):
    before = file.read_bytes()
    assert "b.tar.gz already exists: choose another name" in refused(capsys, "backup", str(file))
    assert file.read_bytes() == before


def test_unusable_home_or_target_leaves_no_backup(home, tmp_path, monkeypatch, capsys):
    (tmp_path / "occupied").write_text("")
    assert "cannot write " in refused(capsys, "backup", str(tmp_path / "occupied" / "b.tar.gz"))
    part = home.part("cells", past_runs.LAST)
    part.write_text("not parquet")
    assert f"cannot read {part}" in refused(capsys, "backup", str(tmp_path / "b.tar.gz"))
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "absent"))
    assert "has no history: there is nothing" in refused(capsys, "backup", str(tmp_path / "b.tar.gz"))
    assert sorted(os.listdir(tmp_path)) == ["home", "occupied"]


def test_file_change_during_the_backup_is_named_and_leaves_no_backup(home, tmp_path, monkeypatch, capsys):
    write = archive._write

    def change_first(home: Home, *arguments) -> None:
        (home.root / HISTORY[0]).write_text("other")
        write(home, *arguments)

    monkeypatch.setattr(archive, "_write", change_first)
    assert lockstep("backup", str(tmp_path / "b.tar.gz")) == 3
    assert f"{home.root / HISTORY[0]} changed during the backup" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def members(file: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(file) as archive:
        return [(member, archive.extractfile(member).read()) for member in archive]  # type: ignore[union-attr]


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


def replace(file: Path, data: bytes = b"", **fields: object) -> None:
    """Give the second member of a backup other content and other fields: a name, a type, the target of a link."""
    parts = members(file)
    for name, value in fields.items():
        setattr(parts[1][0], name, value)
    parts[1] = (parts[1][0], data)
    write(file, parts)


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def edited(change: Callable[[dict], object]) -> Callable[[Path], None]:
    return lambda file: edit(file, change)


def moved(path: str) -> Callable[[Path], None]:
    return edited(lambda manifest: manifest["files"][0].update(path=path))


NEWER = SCHEMA_VERSION + 7
BAD = {
    "no file": (lambda file: file.unlink(), "No such file or directory"),
    "empty": (lambda file: file.write_bytes(b""), "is damaged: empty file"),
    "no gzip": (lambda file: file.write_text("hello"), "is damaged: Not a gzipped file"),
    "no tar": (lambda file: file.write_bytes(gzip.compress(b"x" * 5000)), "is damaged: "),
    "cut at its end": (lambda file: file.write_bytes(file.read_bytes()[:-1]), "is damaged: "),
    "flipped bit": (flip, "is damaged: "),
    "other content": (lambda file: replace(file, b"x"), " has another digest than manifest.json says"),
    "no manifest": (lambda file: write(file, members(file)[1:]), "its first member is not manifest.json"),
    "missing member": (lambda file: write(file, members(file)[:-1]), " is missing"),
    "extra member": (
        edited(lambda manifest: manifest["files"].pop()),
        " is not a regular file that manifest.json lists",
    ),
    "no list": (edited(lambda manifest: manifest.pop("files")), "is damaged: manifest.json: "),
    "other format": (
        edited(lambda manifest: manifest.update(format=2)),
        "has format 2, but this checkout reads only 1",
    ),
    "other raw schema": (
        edited(lambda manifest: manifest.update(raw_schema=NEWER)),
        f"has raw_schema {NEWER}, but this checkout",
    ),
    "path upwards": (moved("imported/../../x"), "'imported/../../x' is not a path of the history"),
    "path beside history": (moved("builds/x"), "'builds/x' is not a path of the history"),
    "absolute member": (lambda file: replace(file, name="/tmp/x"), "'/tmp/x' is not a regular file that"),
    "symbolic link": (lambda file: replace(file, type=tarfile.SYMTYPE, linkname="/etc"), " is not a regular file"),
    "device": (lambda file: replace(file, type=tarfile.CHRTYPE), " is not a regular file"),
    "time out of range": (lambda file: replace(file, mtime=1e300), "is damaged: "),
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
    for size in range(0, len(whole), len(whole) // 20):
        file.write_bytes(whole[:size])
        assert f"{file} is damaged: " in refused(capsys, "restore", str(file))
        assert not empty.root.exists()


def test_live_home_is_unchanged(home, file, empty, capsys, monkeypatch):
    with hold(of_home(empty), "prune"):
        assert "is not empty: it holds lock.json; set LOCKSTEP_HOME" in refused(capsys, "restore", str(file))
    monkeypatch.setenv("LOCKSTEP_HOME", str(home.root))
    before = content(home.root)
    assert f"LOCKSTEP_HOME={home.root} is not empty: it holds " in refused(capsys, "restore", str(file))
    assert content(home.root) == before


def test_home_filled_during_the_restore_is_unchanged(file, empty, tmp_path, monkeypatch, capsys):
    read = archive._read

    def read_and_fill(*arguments) -> list[str]:
        (empty.root / "new").touch()
        return read(*arguments)

    empty.root.mkdir()
    monkeypatch.setattr(archive, "_read", read_and_fill)
    assert lockstep("restore", str(file)) == 3
    assert f"LOCKSTEP_HOME={empty.root} cannot be replaced" in capsys.readouterr().err
    assert [path.name for path in empty.root.iterdir()] == ["new"]
    assert sorted(os.listdir(tmp_path)) == ["b.tar.gz", "new"]
