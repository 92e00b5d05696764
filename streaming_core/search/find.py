"""A find: what the engineer gets of a case that goes wrong. Its folder travels; only the source has to be there.

| file | contents |
|---|---|
| `case.json`, `events.parquet` | the case (`case.py`) |
| `workload/`, `oracle/`, `run/` | the events, the oracle's result, and that of the run that differs |
| `find.json` | the fields of `Find` |
| `test_found_<digest>.py` | a test for pytest, which fails until the fault is fixed |

Start at `write`.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import shutil
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from streaming_core import storage
from streaming_core.apps import registry
from streaming_core.data.comparison import Difference, plain, shown
from streaming_core.errors import BadInput
from streaming_core.run import provenance, recording
from streaming_core.run.way import RunSpec
from streaming_core.search.case import Case, Symptom
from streaming_core.search.laboratory import LOOP, Laboratory
from streaming_core.search.replay import RUN, Invariants, Replay, replay
from streaming_core.storage import left_json

FILE = "find.json"
SHRUNK = "shrunk"  # in the folder of a red cell, the folder of its find
_FOLDERS = {RUN: "run", LOOP: "run"}  # of a trial: their names in the folder of a find
_MOST_EVENTS = 50  # of a case whose event at fault is worth a search


@dataclass(frozen=True)
class Find:
    """A find, as `find.json` has it.

    Attributes:
        folder: Its folder.
        digest: The digest of its case, which is also the name of the folder.
        app: The application.
        symptom: How it goes wrong.
        reason: One line about the trial in `run/`.
        rate: The share of trials that show it.
        origin: How the events were drawn.
        way: The fields of the way that differ from their defaults.
        params: The parameters that differ from their defaults.
        events: The number of events.
        threads: The number of threads.
        operator: The first operator whose rows differ, or that fails; None if none does.
        place: The file and the line of that operator, of the property, or of the invariant.
        event: The number of the event at which it goes wrong; None if that is not known.
        counts: The number of differing rows, by table.
        differences: The first of them: table, kind, row, expected, actual, columns.
        seconds: The seconds of the search until it showed.
        shrinking: The seconds of making it smaller.
        seed: The seed of the search.
        code: The digest of the application's code.
        build: The revision of the checkout.
        time: When it was found, in UTC.
    """

    folder: Path
    digest: str
    app: str
    symptom: Symptom
    reason: str
    rate: float
    origin: str
    way: dict[str, Any]
    params: dict[str, Any]
    events: int
    threads: int
    operator: str | None
    place: str | None
    event: int | None
    counts: dict[str, int] = field(default_factory=dict)
    differences: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    shrinking: float = 0.0
    seed: int = 0
    code: str = ""
    build: str = ""
    time: str = ""

    @property
    def sentence(self) -> str:
        """The find as people read it."""
        return f"{self.app}, {self.size}: {self.symptom.sentence}"

    @property
    def size(self) -> str:
        """`3 events on 2 threads`."""
        events = f"{self.events} event{'s' * (self.events != 1)}"
        return f"{events} on {self.threads} thread{'s' * (self.threads != 1)}" if self.symptom.needs_run else events

    @property
    def at(self) -> str:
        """What is at fault: `operator count (wc.py:80), event 4`."""
        place = f" ({self.place})" if self.operator and self.place else self.place or ""
        parts = [f"operator {self.operator}{place}" if self.operator else place]
        parts += [f"event {self.event}"] if self.event is not None else []
        return ", ".join(part for part in parts if part)

    @property
    def how_often(self) -> str:
        """How often it shows."""
        return "every trial" if self.rate >= 1 else f"{self.rate:.0%} of the trials, because it needs luck of timing"

    @property
    def command(self) -> str:
        """The command that reproduces it."""
        return f"lockstep find --case {self.folder}"

    @property
    def test(self) -> Path:
        """The file of the test."""
        return self.folder / f"test_found_{self.digest}.py"

    @staticmethod
    def load(folder: Path) -> Find:
        """Read the find in a folder.

        Raises:
            BadInput: The folder holds none.
        """
        try:
            about = json.loads((folder / FILE).read_bytes())
            return Find(folder, **about | {"symptom": Symptom(**about["symptom"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{folder} holds no find: {error}") from None


def finds(folder: Path) -> list[Find]:
    """The finds in the folders of a folder, the oldest first. Folders without a find are left out."""
    there = [Find.load(path.parent) for path in folder.glob(f"*/{FILE}") if "symptom" in left_json(path)]
    return sorted(there, key=lambda find: (find.time, find.digest))


def write(
    case: Case, laboratory: Laboratory, finds: Path | None, about: dict[str, Any], invariants: Invariants | None = None
) -> Find:
    """Show a case once more, say what is at fault, and write the folder of the find.

    Args:
        case: The case, with its symptom.
        laboratory: Makes the trials.
        finds: The folder that gets the folder of the find; None: the find has no files.
        about: Fields of the find that the search knows: `seconds`, `shrinking`, `seed`.
        invariants: Checks the declared invariants; a case that breaks one needs it.

    Returns:
        The find. If its folder exists already, the folder stays as it is.

    Raises:
        CommandFailed: The disk is full.
    """
    assert case.symptom is not None
    target = (finds or Path(".")) / case.digest
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-find-")))
        trial = replay(case, laboratory, root / "shown", invariants=invariants)
        operator = _operator(case, laboratory, root / "part")
        find = Find(
            folder=target,
            digest=case.digest,
            app=case.spec.app,
            symptom=case.symptom,
            reason=trial.reason or f"not shown again in {trial.trials} trials",
            rate=case.rate,
            origin=case.origin,
            way=way_of(case.spec),
            params=case.spec.params,
            events=case.events.num_rows,
            threads=case.spec.threads,
            operator=operator,
            place=_place(case, operator),
            event=_event(case, trial, laboratory, root / "part"),
            counts=trial.counts,
            differences=[_plain(difference) for difference in trial.differences],
            code=registry.code_digest(case.app),
            build=provenance.build(),
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            **about,
        )
        if finds is not None:
            folder = stack.enter_context(storage.atomic_directory(target))
            for name in ("workload", "oracle", RUN, LOOP):
                if (root / "shown" / name).exists():
                    shutil.copytree(root / "shown" / name, folder / _FOLDERS.get(name, name))
            fill(folder, case, find)
    return find


def fill(folder: Path, case: Case, find: Find) -> None:
    """Write the files of a find and its case into a folder."""
    case.save(folder)
    (folder / find.test.name).write_text(pytest_file(case, find.at))
    about = dataclasses.asdict(find)
    del about["folder"]
    storage.write_json(folder / FILE, about)


def _plain(difference: Difference) -> dict[str, Any]:
    """A difference as JSON holds it."""
    values = dataclasses.asdict(difference)
    return {name: [*value] if isinstance(value, tuple) else plain(value) for name, value in values.items()}


# --- what is at fault -------------------------------------------------------------------------------------------------


def _operator(case: Case, laboratory: Laboratory, keep: Path) -> str | None:
    """The operator at fault: the one that fails, or the first one behind which the pipeline goes wrong."""
    app, symptom = case.app, case.symptom
    assert symptom is not None
    operators = [operator.name for operator in app.operators[1:-1]]
    if symptom.kind in ("failure", "oracle"):
        return next((name for name in operators if re.match(rf"{name}\b", symptom.name)), None)
    if not symptom.needs_run or symptom.kind == "hang":
        return None
    for name in operators:
        part = app.through(name)
        if len(part.operators) == len(app.operators):  # no operator in front of it is at fault
            return name
        spec = recording.within(case.spec, {operator.name for operator in part.operators[1:]})
        try:
            if replay(case.changed(spec=spec), laboratory, keep, name, least=1).symptom is not None:
                return name
        except BadInput:  # the part does not run in this way
            continue
    return None


def _place(case: Case, operator: str | None) -> str | None:
    """`file:line` of the operator, the property or the invariant."""
    app, symptom = case.app, case.symptom
    assert symptom is not None
    function = app.properties.get(symptom.name)
    if operator is not None:
        function = next(iter(app.operator(operator).functions.values()), None)
    if code := getattr(inspect.unwrap(function), "__code__", None) if function else None:
        return f"{Path(code.co_filename).name}:{code.co_firstlineno}"
    if symptom.kind == "invariant":
        lines = Path(app.file).read_text().splitlines()
        return next((f"{Path(app.file).name}:{at}" for at, line in enumerate(lines, 1) if symptom.name in line), None)
    return None


def _event(case: Case, trial: Replay, laboratory: Laboratory, keep: Path) -> int | None:
    """The event at fault: that of the first differing output or of the failure, or the last one of those needed."""
    symptom = case.symptom
    assert symptom is not None
    if outputs := [difference.row["seq"] for difference in trial.differences if "seq" in difference.row]:
        return min(outputs)
    if symptom.kind == "failure" and (match := re.search(r"\bevent (\d+)", trial.reason)):
        return int(match[1])
    if symptom.kind in ("hang", "invariant") or case.rate < 1 or case.events.num_rows > _MOST_EVENTS:
        return None
    for count in range(1, case.events.num_rows + 1):
        if replay(case.changed(events=case.events.slice(0, count)), laboratory, keep, least=1).symptom == symptom:
            return count - 1
    return None


# --- the test --------------------------------------------------------------------------------------------------------


def way_of(spec: RunSpec) -> dict[str, Any]:
    """The fields of a way that differ from their defaults, apart from application and parameters."""
    fields = spec.model_dump(mode="json")
    for name in reversed(list(fields)):  # an option may need an earlier one
        fewer = {key: value for key, value in fields.items() if key != name}
        with suppress(BadInput):
            fields = fewer if RunSpec.parse(fewer | {"app": spec.app, "params": spec.params}) == spec else fields
    return {name: value for name, value in fields.items() if name not in ("app", "params")}


def way_text(way: dict[str, Any]) -> str:
    """The fields of `way_of` as people read them: `pooled, 2 threads, batch 1`."""
    options = dict(way)
    words = [options.pop("executor")]
    if threads := options.pop("threads", 1):
        words.append(f"{threads} thread{'s' * (threads != 1)}")
    words += [name if value is True else f"{name} {shown(value)}" for name, value in options.items()]
    return ", ".join(words).replace("_", " ")


def pytest_file(case: Case, at: str = "") -> str:
    """The test of a case for pytest: a file that needs no other one. `at` says what is at fault."""
    assert case.symptom is not None
    rows = case.events.drop_columns(["seq"]).to_pylist()
    values: dict[str, Any] = {"app": case.spec.app}
    values |= {"params": case.spec.params} if case.spec.params else {}
    values |= {"way": way_of(case.spec), "symptom": (case.symptom.kind, case.symptom.name)}
    values |= {"rate": round(case.rate, 3)} if case.rate < 1 else {}
    arguments = [f"{name}={_literal(value)}," for name, value in values.items()]
    events = [f"{_literal({name: value for name, value in row.items() if value is not None})}," for row in rows]
    events = ["events=[", *(f"    {row}" for row in events), "],"] if rows else ["events=[],"]
    imports = ["from decimal import Decimal", ""] if any("Decimal(" in line for line in events) else []
    if case.symptom.kind == "invariant":
        imports.append("from jobs.invariants import beside")
        arguments.append("invariants=beside,")
    imports.append("from streaming_core.search.replay import assert_sound")
    lines = [
        f'"""Application {case.spec.app}, as `lockstep find` found it: {case.symptom.sentence}.',
        "",
        *([f"At fault: {at}.", ""] if at else []),
        "The test fails until the fault is fixed, and guards against its return.",
        '"""',
        "",
        *imports,
        "",
        "",
        f"def test_found_{case.digest}():",
        "    assert_sound(",
        *(f"        {line}" for line in (*arguments, *events)),
        "    )",
        "",
    ]
    return "\n".join(lines)


def _literal(value: Any) -> str:
    """A value as Python source, without a name that needs an import."""
    match value:
        case float() if value != value or value in (float("inf"), float("-inf")):
            return f'float("{value}")'
        case dict():
            return f"{{{', '.join(f'{_literal(name)}: {_literal(item)}' for name, item in value.items())}}}"
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case tuple():
            return f"({', '.join(map(_literal, value))})"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case bytes():
            return f'b"{_escaped(value)}"'
    return repr(value)


def _escaped(value: bytes) -> str:
    text = repr(value)
    return text[2:-1] if text[1] == '"' else text[2:-1].replace("\\'", "'").replace('"', '\\"')
