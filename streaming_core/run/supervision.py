"""Runs that inject faults into themselves: a process that supervises, and one process after the other that runs.

`supervised` forks a process for each *life* of a run, before any thread of the engine exists. A kill or a full disk
ends a life. The next one resumes from the newest checkpoint, as the next command would. Only the last life makes a
report. A life that ends for another reason ends the run in the same way.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import random
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from typing import Any, NoReturn

from streaming_core import interruption
from streaming_core.errors import CommandFailed, ExitCode
from streaming_core.run.faults import ENDING, Fault
from streaming_core.run.one_pass import Beside, Progress
from streaming_core.run.report import InjectedFault, RunReport

POLL_SECONDS = 0.05
LATEST_KILL = 0.003  # seconds after its event; half of the kills come at once
_PRCTL, _PR_SET_PDEATHSIG = ctypes.CDLL(None).prctl, 1


@dataclass
class Life:
    """One process of a run; of a run without faults, the only one.

    Attributes:
        progress: Receives the pass, the events done, and all events.
        say: Receives a line.
        number: Its number in the run, from 1.
        pending: The faults that have not happened yet, in the order of their events.
        faults: The faults that happened, in this life and before.
        tell: Receives each fault that happens.
        beside: A context for the time in which the first pass processes events.
    """

    progress: Progress | None
    say: Callable[[str], None]
    number: int = 1
    pending: Sequence[Fault] = ()
    faults: list[InjectedFault] = field(default_factory=list)
    tell: Callable[[Fault], None] = lambda _: None
    beside: Beside | None = None
    _is_dying: bool = False

    @property
    def cuts(self) -> list[int]:
        """Numbers of events at which a block ends, because a fault happens there."""
        return [fault.at or 0 for fault in self.pending if fault.kind != "stall"]

    def processed(self, kind: str, done: int, total: int) -> None:
        """Inject the faults that are due after so many events, and pass the progress on."""
        if self._is_dying:  # the delay was longer than the block
            _die()
        if self.progress is not None:
            self.progress(kind, done, total)
        for fault in [one for one in self.pending if one.kind != "stall" and (one.at or 0) <= done]:
            self.pending = [one for one in self.pending if one != fault]
            self._happen(fault, is_last=done == total)
            if fault.kind in ENDING:  # another one that ends the process is for the next process
                self.pending = [one for one in self.pending if one.kind not in ENDING]
                break

    def _happen(self, fault: Fault, is_last: bool) -> None:
        self.faults.append(InjectedFault(kind=fault.kind, at=fault.at or 0, life=self.number))
        self.tell(fault)
        if fault.kind == "kill":
            r = random.Random(fault.at)
            delay = 0.0 if is_last or r.random() < 0.5 else r.uniform(0, LATEST_KILL)
            if not delay:
                _die()
            self._is_dying = True
            threading.Timer(delay, _die).start()


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def supervised(
    schedule: Sequence[Fault], live: Callable[[Life], RunReport], progress: Progress | None, say: Callable[[str], None]
) -> RunReport:
    """Make the lives of a run, until one of them ends with a report.

    Args:
        schedule: The faults. Each happens once.
        live: Makes a life, in a process of its own.
        progress: Receives the progress of each life.
        say: Receives the lines of each life, and one about each fault.

    Raises:
        BadInput: The request cannot be carried out.
        RunFailed: An operator failed.
        CommandFailed: A life failed for a reason of its own, such as a disk that is really full.
    """
    pending = sorted(schedule, key=lambda fault: fault.at or 0)
    faults: list[InjectedFault] = []
    for number in range(1, 2 + sum(fault.kind in ENDING for fault in pending)):
        life = Life(progress, say, number, list(pending), list(faults))
        before = len(faults)
        end = _Process(life, live).follow(faults, pending)
        new = [fault.kind for fault in faults[before:]]
        if end.report is not None:
            return end.report
        if end.error is not None:
            raise end.error
        if end.code == -signal.SIGKILL and "kill" in new:
            say(f"fault: killed at event {faults[-1].at}")
        else:
            _end_alike(end.code)
    raise AssertionError("a life without a fault that ends it ends the run")


@dataclass
class _End:
    """The end of a life: its report, or its error, and the code of its process."""

    report: RunReport | None = None
    error: Exception | None = None
    code: int = 0


class _Process:
    """The process of a life."""

    def __init__(self, life: Life, live: Callable[[Life], RunReport]):
        """Start it."""
        self._life, self._reported = life, Pipe(duplex=False)
        parent = os.getpid()
        self._child = os.fork()
        reading, writing = self._reported
        if not self._child:
            reading.close()
            _be_child(parent, writing, life, live)
        writing.close()

    def follow(self, faults: list[InjectedFault], pending: list[Fault]) -> _End:
        """Follow it to its end. Move each fault that happens from `pending` to `faults`."""
        reading, end, stopped = self._reported[0], _End(), None
        try:
            while True:
                try:
                    interruption.check()
                except interruption.Interrupted as error:
                    if stopped is None:
                        stopped = error
                        os.kill(self._child, signal.SIGTERM)
                if not reading.poll(POLL_SECONDS):
                    continue
                try:
                    name, *values = reading.recv()
                except (EOFError, OSError):  # it ended, perhaps within a message
                    break
                self._take(name, values, end, faults, pending)
        except BaseException:
            os.kill(self._child, signal.SIGKILL)
            raise
        finally:
            reading.close()
            _, status = os.waitpid(self._child, 0)
            end.code = os.waitstatus_to_exitcode(status)
        if stopped is not None:
            raise stopped
        return end

    def _take(self, name: str, values: list[Any], end: _End, faults: list[InjectedFault], pending: list[Fault]) -> None:
        match name:
            case "progress" if self._life.progress is not None:
                self._life.progress(*values)
            case "say":
                self._life.say(*values)
            case "fault":
                pending.remove(values[0])
                faults.append(InjectedFault(kind=values[0].kind, at=values[0].at, life=self._life.number))
            case "report":
                end.report = values[0]
            case "error":
                end.error = values[0]


def _be_child(parent: int, pipe: Connection, life: Life, live: Callable[[Life], RunReport]) -> NoReturn:
    """Live, and end this process without any step of the parent's ending."""
    code = 0
    try:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(ExitCode.COMMAND_FAILED)
        life.progress = lambda *values: pipe.send(("progress", *values))
        life.say = lambda line: pipe.send(("say", line))
        life.tell = lambda fault: pipe.send(("fault", fault))
        pipe.send(("report", live(life)))
    except Exception as error:
        pipe.send(("error", _portable(error)))
    except interruption.Interrupted as error:
        code = error.exit_code
    except BaseException:
        code = ExitCode.SIGNAL + signal.SIGINT
    finally:
        os._exit(code)


def _portable(error: Exception) -> Exception:
    """An error that another process can raise. It has the traceback of this one."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _end_alike(code: int) -> NoReturn:
    """End as the process of a life ended: by a crash, or by a signal that ends a command."""
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    if code > ExitCode.SIGNAL:
        raise interruption.Interrupted(code - ExitCode.SIGNAL)
    raise CommandFailed(f"the process of the run ended with code {code}")
