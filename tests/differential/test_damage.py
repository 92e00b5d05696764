"""A run refuses its damaged folder in one line, or ends with the result of the oracle.

The damage hits any file of a killed run: checkpoints, outputs, the specification; one or several of them.
"""

import random
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.oracle import oracle
from streaming_core.run import engine, folder
from streaming_core.run.comparison import diff
from streaming_core.run.way import RunSpec
from tests.differential.test_engine import SMALL
from tests.support.draws import some

EVENTS = 900
SPECS = {
    "sl": {"executor": "transactional", "threads": 2, "punctuation": 20},
    "wc": {"executor": "pooled", "threads": 2},
    "hashtag": {"executor": "pinned", "threads": 2},
}


def flip(data: bytes, r: random.Random) -> bytes:
    """The content with one bit changed."""
    if not data:
        return data
    at = r.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << r.randrange(8)]) + data[at + 1 :]


def zero(data: bytes, r: random.Random) -> bytes:
    """The content with zeros somewhere."""
    at = r.randrange(len(data) + 1)
    return data[:at] + bytes(len(data[at : at + 64])) + data[at + 64 :]


CHANGES = {
    "flip": flip,
    "zeros": zero,
    "cut": lambda data, r: data[: r.randrange(len(data) + 1)],
    "append": lambda data, r: data + r.randbytes(r.randrange(1, 100)),
    "empty": lambda data, r: b"",
    "version": lambda data, r: data.replace(b"lockstep checkpoint 2", b"lockstep checkpoint 3"),
}


LINES = re.compile(
    r"resuming from the checkpoint at event \d+|checkpoint-\d+ in .*; using .*|no checkpoint at event .*"
)


class Stop(Exception):
    """Ends a run as if it were killed."""


def stop(kind, done, total):
    if done >= 500:
        raise Stop


class Cell:
    """A cell, its oracle, and folders of its runs below `root`: of a killed run of it, and of others."""

    def __init__(self, app: str, root: Path):
        self.root = root
        self.spec = self._spec(app)
        self._write(app, "workload", 3)
        self._write(app, "other", 4)
        oracle.run(root / "workload", root / "oracle")
        self._kill(self.spec, "workload", "killed")
        self._kill(self.spec, "other", "foreign")
        another = next(name for name in SPECS if name != app)
        self._write(another, "another", 3)
        self._kill(self._spec(another), "another", "stranger")

    def _spec(self, app: str) -> RunSpec:
        return RunSpec.parse({
            "app": app, "params": SMALL[app], "sink": "parquet", "checkpoint": "100", **SPECS[app],
        })  # fmt: skip

    def _write(self, app: str, name: str, seed: int) -> None:
        workload.write(app, SMALL[app], EVENTS, seed, self.root / name)

    def _kill(self, spec: RunSpec, source: str, name: str) -> None:
        with pytest.raises(Stop):
            engine.run(spec, self.root / source, self.root / name, stop)

    def damage(self, r: random.Random) -> str:
        """Make a damaged copy of the killed run; returns a description."""
        out = self.root / "damaged"
        shutil.copytree(self.root / "killed", out)
        return ", ".join(self._damage_once(out, r) for _ in range(r.choice((1, 1, 1, 2, 4))))

    def _damage_once(self, out: Path, r: random.Random) -> str:
        path = r.choice(files(out))
        if r.random() < 0.5:
            path = r.choice([file for file in files(out) if file.parent.name == folder.CHECKPOINTS] or [path])
        data = path.read_bytes()
        kind = r.choice((*CHANGES, "lose", "sibling", "foreign", "folder", "link", "stray"))
        path.unlink()
        match kind:
            case "sibling":
                shutil.copy(r.choice([file for file in files(out) if file.parent == path.parent] or files(out)), path)
            case "foreign":
                others = files(self.root / "foreign") + files(self.root / "stranger")
                shutil.copy(r.choice([file for file in others if file.parent.name == path.parent.name] or others), path)
            case "folder":
                path.mkdir()
            case "link":
                path.symlink_to(r.choice((path.name, "/dev/null", "nowhere", str(self.root / "foreign"))))
            case "stray":
                path.write_bytes(data)
                names = ("checkpoint-000000000000777", "part-00777.parquet", ".left", "x" * 200)
                path.with_name(r.choice(names)).write_bytes(data)
            case "lose":
                pass
            case _:
                path.write_bytes(CHANGES[kind](data, r))
        return f"{kind} {path.relative_to(out)}"

    def resume(self) -> str:
        """Resume the damaged run; returns the outcome."""
        out, lines = self.root / "damaged", []
        before = contents(out)
        error = None
        try:
            report = engine.run(self.spec, self.root / "workload", out, say=lines.append)
        except BadInput as refusal:
            error = str(refusal)
        if error is not None:
            assert "\n" not in error
            after = contents(out)
            after.pop("spec.json", None)  # a run without one writes it
            assert before.items() >= after.items(), "a refused run changes files"
            assert all(Path(name).name.startswith(".") for name in before.keys() - after.keys() - {"spec.json"}), (
                "a refused run loses files"
            )
            return "refused"
        assert diff(out, self.root / "oracle").exit_code == 0
        assert all(LINES.fullmatch(line) for line in lines), lines
        return f"resumed at {report.resumed[-1]}" if report.resumed else "begun again"


def files(out: Path) -> list[Path]:
    """The regular files below a folder, in order."""
    return [path for path in sorted(out.rglob("*")) if path.is_file() and not path.is_symlink()]


def contents(out: Path) -> dict[str, bytes | None]:
    """Files below a folder by name; links and folders have no content."""
    return {
        str(path.relative_to(out)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in sorted(out.rglob("*"))
    }


@pytest.mark.parametrize(("app", "times"), some([("wc", 6), *((app, 120) for app in SPECS)]))
def test_damaged_run_is_refused_or_ends_with_the_same_result(app, times, tmp_path, record_property):
    cell, outcomes = Cell(app, tmp_path), Counter()
    for number in range(times):
        what = cell.damage(random.Random(f"damage {app} {number}"))
        try:
            outcomes[cell.resume()] += 1
        except Exception as error:
            raise AssertionError(f"damage {number}: {what}") from error
        shutil.rmtree(tmp_path / "damaged")
    record_property("outcomes", dict(outcomes))
    assert len(outcomes) > 1
