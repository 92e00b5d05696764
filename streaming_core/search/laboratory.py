"""Trials in processes that may crash or hang.

One process imports everything, compiles the application, and forks a child for each request. The child writes a line
before and after each trial. If it crashes, or does not end in time, the lines name the trial that was at fault.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NoReturn

from streaming_core import process
from streaming_core.apps import registry
from streaming_core.errors import BadInput, CommandFailed
from streaming_core.run.way import RunSpec
from streaming_core.search.case import Case, Symptom

LIMIT = 30.0  # seconds of one trial; a usual one takes a tenth of a second
LOOP, PROPERTIES = "loop", "properties"  # checks of the oracle alone
_PRCTL = ctypes.CDLL(None).prctl
_PR_SET_PDEATHSIG = 1
_MEMORY = Path("/dev/shm")  # trials synchronise many small files, which takes long on a disk


@dataclass(frozen=True)
class Verdict:
    """The outcome of a trial, as it leaves the process.

    Attributes:
        symptom: How it went wrong; None if it did not.
        reason: One line about it.
        seconds: Its duration.
    """

    symptom: Symptom | None
    reason: str = ""
    seconds: float = 0.0


@dataclass
class Examination:
    """All that a laboratory learned about some events.

    Attributes:
        refused: Why the application does not take the events or the parameters at all; None if it does.
        failure: Whether an operator fails in the oracle.
        branches: The branches that the events reached.
        of_oracle: Symptoms of the oracle alone: properties, and the compiled loop.
        of_runs: A verdict for each way, in their order.
    """

    refused: str | None = None
    failure: bool = False
    branches: frozenset[int] = frozenset()
    of_oracle: list[Verdict] = field(default_factory=list)
    of_runs: list[Verdict] = field(default_factory=list)

    @property
    def verdicts(self) -> list[Verdict]:
        """All verdicts that name a symptom."""
        return [verdict for verdict in (*self.of_oracle, *self.of_runs) if verdict.symptom is not None]


class Laboratory:
    """A process that examines cases of applications, one at a time. It is a context."""

    def __init__(self) -> None:
        """Start the process."""
        place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        self._folder = Path(tempfile.mkdtemp(prefix="lockstep-find-", dir=place))
        command = [sys.executable, "-m", __name__, *registry.elsewhere()]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._server = process.start(command, dies_by=signal.SIGKILL, **pipes)

    def __enter__(self) -> Laboratory:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process and all of its children, and remove its files."""
        process.end_group(self._server)
        shutil.rmtree(self._folder, ignore_errors=True)

    def examine(
        self,
        case: Case,
        specs: Sequence[RunSpec],
        checks: Sequence[str] = (),
        limit: float = LIMIT,
        keep: Path | None = None,
        part: str | None = None,
        until: Symptom | None = None,
    ) -> Examination:
        """Examine the events of a case, in these ways.

        Args:
            case: The events; its spec has application and parameters.
            specs: The ways.
            checks: `LOOP`, `PROPERTIES`, or `PROPERTIES:name` for one property.
            limit: Seconds after which a trial hangs.
            keep: A new folder that gets `workload`, `oracle` and `run-N`; None keeps nothing.
            part: An operator behind which the pipeline ends; None: the whole pipeline.
            until: A symptom after which no further run begins.

        Raises:
            CommandFailed: The disk is full, or the process ended.
        """
        result = Examination()
        while True:
            todo = specs[len(result.of_runs) :]
            request = {
                "specs": [spec.model_dump(mode="json") for spec in todo],
                "checks": list(checks),
                "limit": limit,
                "first": len(result.of_runs),
                "keep": None if keep is None else str(keep),
                "part": part,
                "until": until and dataclasses.asdict(until),
            }
            lines = self._request(case, request)
            is_over = _read(lines, result, checks, todo) or len(result.of_runs) == len(specs)
            if is_over or (until is not None and until in [verdict.symptom for verdict in result.of_runs[-1:]]):
                return result
            checks = ()

    def _request(self, case: Case, request: dict[str, Any]) -> list[dict[str, Any]]:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            case.save(folder)
            stdin, stdout = self._server.stdin, self._server.stdout
            assert stdin is not None
            assert stdout is not None
            try:
                stdin.write(json.dumps(request | {"folder": str(folder)}) + "\n")
                stdin.flush()
                line = stdout.readline()
            except BrokenPipeError:
                line = ""
            if not line:
                raise CommandFailed("the process that makes the trials has ended")
            lines: list[dict[str, Any]] = json.loads(line)
            return lines
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _read(lines: list[dict[str, Any]], result: Examination, checks: Sequence[str], specs: Sequence[RunSpec]) -> bool:
    """Take over what a child wrote; returns whether all is done. The last line says how the child ended."""
    end = lines[-1]["end"]
    open_trial = None
    for line in lines[:-1]:
        match line:
            case {"refused": reason}:
                result.refused = reason
                return True
            case {"disk": reason}:
                raise CommandFailed(reason)
            case {"defect": reason}:
                raise CommandFailed(f"a trial failed by a defect of Lockstep: {reason}")
            case {"failure": failure, "branches": branches}:
                result.failure, result.branches = failure, frozenset(branches)
            case {"begin": name}:
                open_trial = name
            case {"verdict": [symptom, reason, seconds], "of": name}:
                verdict = Verdict(symptom and Symptom(**symptom), reason, seconds)
                (result.of_runs if name == "run" else result.of_oracle).append(verdict)
            case {"done": name}:
                open_trial = None
    if end == "exit 0":
        return True
    symptom = Symptom("hang") if end == "late" else Symptom("crash", end)
    verdict = Verdict(symptom, symptom.sentence)
    if open_trial != "run":
        symptom = Symptom("oracle", f"{open_trial}: {symptom.sentence}")
        result.of_oracle.append(Verdict(symptom, symptom.sentence))
        return not specs or open_trial is None
    result.of_runs.append(verdict)
    return False


# --- the process -----------------------------------------------------------------------------------------------------


def _serve(requests: IO[str], answers: IO[str]) -> None:
    for line in requests:
        request = json.loads(line)
        answers.write(json.dumps(_fork(request)) + "\n")
        answers.flush()


def _fork(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Serve a request in a child; returns its lines, and how it ended."""
    from streaming_core.oracle.loop import Loop
    from streaming_core.run import engine

    case = Case.load(Path(request["folder"]))
    try:  # to compile is no part of a trial: a busy machine takes long
        if request["specs"]:
            engine.compiled(case.app, case.params)
        if LOOP in request["checks"]:
            Loop(case.app, case.params)
    except BadInput as error:
        return [{"refused": str(error)}, {"end": "exit 0"}]
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _be_child(case, request, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text, is_late = _follow(pipe.fileno(), request["limit"])
    if is_late:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    end = "late" if is_late else f"exit {code}" if code >= 0 else signal.Signals(-code).name
    lines = [json.loads(line) for line in text.decode().splitlines() if line.endswith("}")]
    return [*lines, {"end": end}]


def _follow(pipe: int, limit: float) -> tuple[bytes, bool]:
    """Read to the end of a pipe; returns the bytes, and whether nothing came for so many seconds."""
    text = b""
    while True:
        if not select.select([pipe], [], [], limit)[0]:
            return text, True
        part = os.read(pipe, 1 << 16)
        if not part:
            return text, False
        text += part


def _be_child(case: Case, request: dict[str, Any], pipe: int) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)

        def say(line: dict[str, Any]) -> None:
            os.write(pipe, json.dumps(line).encode() + b"\n")

        root = Path(request["keep"] or request["folder"])
        for line in _examine(case, request, root):
            say(line)
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def _examine(case: Case, request: dict[str, Any], root: Path) -> Iterator[dict[str, Any]]:
    """Make the trials of a request; yields a line before and after each."""
    from streaming_core.search import trial

    def line_of(name: str, outcome: trial.Outcome, began: float) -> dict[str, Any]:
        symptom = outcome.symptom and dataclasses.asdict(outcome.symptom)
        return {"verdict": [symptom, outcome.reason, time.perf_counter() - began], "of": name}

    try:
        root.mkdir(parents=True, exist_ok=True)
        if request["part"]:
            registry.replace(case.app.through(request["part"]))
        yield {"begin": "interpreter"}
        expected = trial.expect(case, root)
        yield {"failure": expected.failure is not None, "branches": sorted(expected.branches)}
        for check in request["checks"]:
            yield {"begin": check}
            began = time.perf_counter()
            name = check.partition(":")[2]
            if check == LOOP:
                yield line_of(check, trial.loop(case, expected, root / "loop"), began)
            else:
                for outcome in trial.properties(case, expected, [name] if name else ()):
                    yield line_of(check, outcome, began)
            yield {"done": check}
        for number, fields in enumerate(request["specs"], request["first"]):
            yield {"begin": "run"}
            began, out = time.perf_counter(), root / f"run-{number}"
            outcome = trial.run(RunSpec.parse(fields), case.app, expected, out)
            yield line_of("run", outcome, began)
            if request["keep"] is None:
                shutil.rmtree(out, ignore_errors=True)
            yield {"done": "run"}
            if outcome.symptom is not None and dataclasses.asdict(outcome.symptom) == request["until"]:
                return
    except BadInput as error:
        yield {"refused": str(error)}
    except CommandFailed as error:
        yield {"disk": str(error)}
    except Exception as error:  # one line for the parent, instead of a trace in another process
        yield {"defect": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    import pyarrow

    import streaming_core._runtime
    import streaming_core.oracle.oracle
    import streaming_core.run.engine
    import streaming_core.run.planning
    import streaming_core.search.trial  # noqa: F401
    from streaming_core.data.arrow import from_bytes
    from streaming_core.data.digest import digest_table
    from streaming_core.run import provenance

    digest_table(pyarrow.Table.from_arrays([from_bytes([b""])], ["text"]))  # imports numba
    provenance.build()  # asks git once
    pyarrow.set_cpu_count(1)
    for module in sys.argv[1:]:
        registry.add(module)
    _serve(sys.stdin, sys.stdout)
