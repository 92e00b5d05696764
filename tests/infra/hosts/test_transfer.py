"""Folders that go to a host, and results that come back, through a real SSH server that breaks connections."""

import asyncio
import json
import os
import random
import shutil
import sys
import time
from pathlib import Path

import asyncssh
import pytest

from infra.airflow.hosts import Host
from infra.hosts import folders, transfer
from infra.hosts.mirror import PIECE, fetch_checkpoints
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from tests.support.event_loop import calls_below
from tests.support.sshd import Sshd

RUN_ID = "20260101T000000Z-00000000"
BIG = 3 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Sshd(tmp_path_factory.mktemp("host") / "sshd") as running:
        yield running


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


@pytest.fixture
def host(server, home, tmp_path, monkeypatch):
    """Another machine, which shares nothing."""
    extra = {"python": sys.executable, "folder": str(tmp_path / "there"), "patience": 20}
    monkeypatch.setenv("AIRFLOW_CONN_NODE", json.dumps(server.connection(**extra)))
    return Host.of("node", home)


@pytest.fixture
def workload(home):
    """A workload with a file of several chunks, an empty one, and one in a folder."""
    folder = home.workload("wc", "0123456789abcdef")
    (folder / "events").mkdir(parents=True)
    (folder / "events" / "part-0.parquet").write_bytes(random.Random(1).randbytes(BIG))
    (folder / "empty").touch()
    (folder / "manifest.json").write_text("{}")
    return folder


def there(host: Host, path: Path) -> Path:
    return Path(host.path(path))


def tree(folder: Path) -> dict[str, bytes]:
    """The content of each file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_workload_arrives_whole_and_is_sent_once(host, workload):
    lines = []
    host.send([workload], lines.append)
    assert tree(there(host, workload)) == tree(workload)
    host.send([workload], lines.append)
    assert lines == [f"sending {BIG / 1e6:.1f} MB of {workload.name}"]


CHECKPOINTS = {"checkpoints/checkpoint-7": "seven", "outputs/part-00000.parquet": "rows"}


def fill(work: Path, files: dict[str, str]) -> None:
    """Make the files of a run's work those, and no others."""
    shutil.rmtree(work, ignore_errors=True)
    for name, content in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(content)
        os.utime(work / name, (1e9 + len(content), 1e9 + len(content)))


def test_attempt_arrives_with_the_checkpoints_that_it_inherited(host, home):
    attempt = home.attempt(RUN_ID, "cell", 2)
    fill(attempt / ".run", CHECKPOINTS)
    (attempt / "spec.json").write_text("{}")
    host.send([attempt], lambda line: None)
    assert tree(there(host, attempt)) == tree(attempt)


def test_checkpoints_of_a_running_cell_come_here(server, host, home, tmp_path):
    """Each round fetches what is new, and removes what the host has removed."""
    attempt = home.attempt(RUN_ID, "cell", 1)
    attempt.mkdir(parents=True)
    work, far = attempt / ".run", tmp_path / "far" / "attempt-1"
    moved = {"checkpoints/checkpoint-9": "nine"}
    large = CHECKPOINTS | {"outputs/part-00001.parquet": "x" * (PIECE + 7)}  # several pieces
    later = {**CHECKPOINTS, "outputs/part-00000.parquet": "more rows"} | moved
    rounds: list[tuple[dict[str, str], dict[str, str] | None]] = [
        ({}, {}),
        ({"outputs/part-00000.parquet": "ro"}, {}),
        ({**CHECKPOINTS, "checkpoints/.checkpoint-9": "half"}, CHECKPOINTS),
        (large, large),
        (later, later),
        (later, later),
        (moved, moved | {"outputs/part-00000.parquet": "more rows"}),  # at its end, a run moves its outputs out
        ({}, moved | {"outputs/part-00000.parquet": "more rows"}),
    ]
    known = server.connection()

    async def fetch() -> None:
        key, port = known["extra"]["key_file"], known["port"]
        async with asyncssh.connect("127.0.0.1", port, client_keys=[key], known_hosts=None) as connection:
            for files, expected in rounds:
                fill(far / ".run", files)
                async with connection.start_sftp_client() as sftp:
                    await fetch_checkpoints(sftp, str(far), attempt)
                contents = await asyncio.to_thread(tree, work)
                assert {name: content.decode() for name, content in contents.items()} == expected

    with calls_below(work) as calls:
        asyncio.run(fetch())
    assert calls == [], "a slow disk here does not block the triggers"


def test_interrupted_transfer_goes_on_where_it_ended(host, workload):
    target = there(host, workload)
    arriving = folders.incoming(target)
    (arriving / "events").mkdir(parents=True)
    (arriving / "events" / "part-0.parquet").write_bytes((workload / "events" / "part-0.parquet").read_bytes()[:-10])
    lines = []
    host.send([workload], lines.append)
    assert tree(target) == tree(workload)
    assert lines == [f"sending 0.0 MB of {workload.name}"]
    assert not arriving.exists()


def test_damaged_bytes_are_sent_again(host, workload):
    target = there(host, workload)
    arriving = folders.incoming(target)
    (arriving / "events").mkdir(parents=True)
    (arriving / "events" / "part-0.parquet").write_bytes(b"0" * (BIG - 10))
    (arriving / "manifest.json").write_text("longer than the file")
    host.send([workload], lambda line: None)
    assert tree(target) == tree(workload)


def test_results_come_back_and_leave_nothing_there(host, home):
    attempt = home.attempt(RUN_ID, "cell", 1)
    attempt.mkdir(parents=True)
    (attempt / "spec.json").write_text("{}")
    host.send([attempt], lambda line: None)
    far = there(host, attempt)
    (far / "outputs").mkdir()
    (far / "outputs" / "part-0.parquet").write_bytes(random.Random(2).randbytes(BIG))
    (far / ".run").mkdir()
    (far / ".run" / "hidden").touch()
    (far / "exit.json").write_text('{"exit_code": 0}')
    far.with_name("attempt-1.stderr.log").write_text("a line\n")
    far.with_name("attempt-1.process.json").write_text("{}")
    expected = {name: content for name, content in tree(far).items() if not name.startswith(".")}
    host.fetch(attempt, lambda line: None)
    assert tree(attempt) == expected
    assert attempt.with_name("attempt-1.stderr.log").read_text() == "a line\n"
    assert not attempt.with_name("attempt-1.process.json").exists()
    assert not far.parent.exists()
    host.fetch(attempt, lambda line: None)  # as a lane does that runs again
    assert tree(attempt) == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_cut_connections_lose_nothing(seed, server, host, workload, monkeypatch):
    """The connection breaks after some bytes, several times."""
    chance, cuts = random.Random(seed), 0
    real = transfer._append

    def breaking(sftp, path, to, start, size):
        nonlocal cuts
        if cuts < 4 and size > transfer.CHUNK and start < size:
            cuts += 1
            real(sftp, path, to, start, min(size, start + chance.randrange(1, transfer.CHUNK)))
            raise EOFError("cut by the test")
        real(sftp, path, to, start, size)

    monkeypatch.setattr(transfer, "_append", breaking)
    monkeypatch.setattr("infra.airflow.hosts.time.sleep", lambda seconds: None)
    lines = []
    host.send([workload], lines.append)
    assert cuts == 4
    assert tree(there(host, workload)) == tree(workload)
    assert any("lost the SSH connection" in line for line in lines)


def test_full_disk_is_refused_in_one_line(host, workload, monkeypatch):
    monkeypatch.setattr("infra.hosts.transfer.files_of", lambda folder, hidden: {"events": (1 << 60, "0" * 64)})
    line = r"^the disk there has \d+ MB free, and 0123456789abcdef needs 1152921504607 MB$"
    with pytest.raises(BadInput, match=line):
        host.send([workload], lambda line: None)


def test_folder_that_cannot_be_written_is_refused_in_one_line(server, home, workload, monkeypatch, tmp_path):
    extra = {"python": sys.executable, "folder": str(tmp_path / "there")}
    monkeypatch.setenv("AIRFLOW_CONN_NODE", json.dumps(server.connection(**extra)))
    host = Host.of("node", home)
    (tmp_path / "there" / "data").parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "there" / "data").write_text("a file")
    with pytest.raises(BadInput, match=r"data.*: (Not a directory|File exists)$"):
        host.send([workload], lambda line: None)


def test_host_with_a_mount_gets_no_data(server, home, workload, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_NODE", json.dumps(server.connection(lockstep_home=str(home.root))))
    host = Host.of("node", home)
    host.send([workload], pytest.fail)
    assert host.path(workload) == str(workload)


def test_data_without_use_goes_after_two_days(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for path in (old, new):
        path.mkdir()
    os.utime(old, (time.time() - folders.KEPT_SECONDS - 1,) * 2)
    folders.remove_unused(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"]
