"""Checks that the file system of LOCKSTEP_HOME does what Lockstep needs, by doing it there in a temporary folder.

All processes of Lockstep share LOCKSTEP_HOME: tasks of Airflow on several workers, Spark, and the pages. They rely on

- renames that happen whole,
- locks that exclude other processes, and end with their own,
- data that is on the disk after fsync,
- names that differ by case,
- times of files that agree with the clock.

The checks run on one host. Locks between hosts depend on the mount, so `locks` also reads the mount's options.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from streaming_core.errors import BadInput, refusal
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import check_versions
from streaming_core.storage import Lock, appearing, replacing, sync

SKEW_SECONDS = 2.0  # Lockstep compares the times of files with the clock, in seconds
SLOW_SECONDS = 1.0
REPLACEMENTS = 200
PATIENCE = 30
# With these options, an NFS mount keeps locks on this host alone.
LOCAL_LOCKS = {"nolock", "local_lock=all", "local_lock=flock"}
# Takes the lock on the file in its argument, prints a line, and waits until its standard input ends.
HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


class Finding(NamedTuple):
    """The result of a check: the state, and the fix if that is a fault."""

    name: str
    state: str
    fix: str = ""


class Fault(Exception):
    """A check that failed, with the state and the fix."""

    def __init__(self, state: str, fix: str):
        """Keep the arguments: the faulty state, and what the user should do."""
        super().__init__(state)
        self.fix = fix


class Mount(NamedTuple):
    """A mounted file system."""

    point: Path
    kind: str
    options: set[str]


def check(home: Home) -> list[Finding]:
    """Try everything in a temporary folder of `home`, and remove the folder.

    Raises:
        BadInput: `home` is not a folder, or nothing can be written there.
    """
    if not home.root.is_dir():
        raise BadInput(
            f"LOCKSTEP_HOME={home.root} is not a folder: create it on the file system that you want to check"
        )
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=home.root) as folder:
            findings = [_finding(name, work, Path(folder)) for name, work in CHECKS.items()]
    except OSError as error:
        raise refusal(error, f"LOCKSTEP_HOME={home.root} cannot be written") from None
    return [*findings, _schema(home)]


def _finding(name: str, work: Callable[[Path], str], folder: Path) -> Finding:
    try:
        return Finding(name, work(folder))
    except Fault as fault:
        return Finding(name, str(fault), fault.fix)
    except OSError as error:
        return Finding(name, f"fails: {error.strerror}", "use a local disk, or NFS 4")


def _file_system(folder: Path) -> str:
    """The kind of the mount, and its free space."""
    mount, space = mount_of(folder), os.statvfs(folder)
    return f"{mount.kind} at {mount.point}, {space.f_bavail * space.f_frsize / 1e9:.1f} GB free"


def _renames(folder: Path) -> str:
    """A file is replaced while it is read; a folder appears whole, and never replaces another one."""
    target = folder / "file"
    target.write_bytes(b"0" * 4096)
    for number in range(REPLACEMENTS):
        with open(target, "rb") as reader, replacing(target) as file:
            file.write(bytes([48 + number % 10]) * 4096)
            before = reader.read()
        after = target.read_bytes()
        if any(len(text) != 4096 or len(set(text)) != 1 for text in (before, after)):
            raise Fault("a reader saw a file in part", "use a local disk, or NFS 4")
    for name in ("first", "second"):
        with appearing(folder / "folder") as created:
            (created / name).write_text(name)
    if [path.name for path in (folder / "folder").iterdir()] != ["first"]:
        raise Fault("a rename replaced a folder with files in it", "use a local disk, or NFS 4")
    return f"{REPLACEMENTS} files replaced whole; a folder appears whole, and is not replaced"


def _locks(folder: Path) -> str:
    """A lock keeps another process out, until its process ends, even by SIGKILL."""
    fix = "mount the file system with locks: NFS 4, or NFS 3 without nolock and local_lock"
    lock = Lock(folder / "lock")
    command = [sys.executable, "-c", HOLDER, str(lock.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        try:
            assert holder.stdout is not None
            if holder.stdout.readline() != b"held\n":
                raise Fault("flock does not work", fix)
            if lock.take():
                lock.leave()
                raise Fault("two processes hold one lock", fix)
        finally:
            holder.kill()
    deadline = time.monotonic() + PATIENCE
    while not lock.take():
        if time.monotonic() > deadline:
            raise Fault(f"a lock outlives its process by {PATIENCE} s", fix)
        time.sleep(0.01)
    lock.leave()
    mount = mount_of(folder)
    if local := mount.options & LOCAL_LOCKS:
        raise Fault(f"the mount option {', '.join(sorted(local))} keeps locks on this host", fix)
    between = "other hosts see them if they mount it likewise" if mount.kind.startswith("nfs") else "on this host"
    return f"exclude another process, and end with theirs; {between}"


def _fsync(folder: Path) -> str:
    """Files and folders can be synchronised to the disk."""
    started = time.monotonic()
    with replacing(folder / "synchronised") as file:
        file.write(b"0" * 4096)
    sync(folder)
    seconds = time.monotonic() - started
    if seconds > SLOW_SECONDS:
        raise Fault(f"writing a file to the disk takes {seconds:.1f} s", "use a faster disk: a run writes many files")
    return f"a file and its folder are on the disk after {seconds * 1000:.0f} ms"


def _names(folder: Path) -> str:
    """Names can hold what Spark writes, and differ by case."""
    for name in ("run_id=A", "run_id=a", ".part-0.parquet.crc", "n" * 255):
        (folder / name).touch(exist_ok=False)
    return "differ by case, may hold '=' and 255 characters"


def _clock(folder: Path) -> str:
    """The file system's time of a new file agrees with the clock of this host."""
    (folder / "time").touch()
    skew = (folder / "time").stat().st_mtime - time.time()
    if abs(skew) > SKEW_SECONDS:
        raise Fault(
            f"the file system is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this host",
            "synchronise the clocks of the file server and of all hosts (NTP)",
        )
    return f"the file system and this host agree within {SKEW_SECONDS:.0f} s"


CHECKS: dict[str, Callable[[Path], str]] = {
    "file system": _file_system,
    "renames": _renames,
    "locks": _locks,
    "fsync": _fsync,
    "names": _names,
    "clock": _clock,
}


def _schema(home: Home) -> Finding:
    """Whether this checkout can read the raw results."""
    try:
        check_versions(home)
    except BadInput as error:
        state, _, fix = str(error).partition("; ")
        return Finding("raw results", state, fix or "restore it from a backup")
    return Finding("raw results", "this checkout can read all of them")


def mount_of(folder: Path) -> Mount:
    """The mount that a folder is on."""
    device = os.stat(folder).st_dev
    return next(
        (mount for major_minor, mount in reversed(list(_mounts())) if major_minor == _numbers(device)),
        Mount(folder, "unknown", set()),
    )


def _numbers(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"


def _mounts() -> Iterator[tuple[str, Mount]]:
    """The number of its device, and each mount, in the order of mounting (proc_pid_mountinfo(5))."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EACCES):
            raise
        return
    for line in lines:
        before, _, after = line.partition(" - ")
        _, _, device, _, point, options, *_ = before.split(" ")
        kind, _, of_system = after.split(" ")
        # The kernel writes a space as \\040.
        where = Path(point.encode().decode("unicode_escape"))
        yield device, Mount(where, kind, {*options.split(","), *of_system.split(",")})
