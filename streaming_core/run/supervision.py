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
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING, Any, NoReturn

from streaming_core import interruption
from streaming_core.errors import CommandFailed, ExitCode
from streaming_core.run.faults import ENDING, Fault
from streaming_core.run.one_pass import Beside, Progress
from streaming_core.run.report import InjectedFault, RunReport

if TYPE_CHECKING:
    from streaming_core import _runtime

POLL_SECONDS = 0.05
MOST_BYTES = 64  # of a file on a full disk
LATEST = 0.003  # seconds from an event to its kill
DELAYS = [0.0001 * 2**number for number in range(12)]  # seconds before each jump of the engine's clock
YEAR = 365 * 86400.0
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
    """

    progress: Progress | None
    say: Callable[[str], None]
    number: int = 1
    pending: Sequence[Fault] = ()
    faults: list[InjectedFault] = field(default_factory=list)
    tell: Callable[[Fault], None] = lambda _: None
    _is_dying: bool = False

    @property
    def cuts(self) -> list[int]:
        """Numbers of events at which a block ends, because a fault happens there."""
        return [fault.at or 0 for fault in self.pending if fault.kind != "stall"]

    @property
    def beside(self) -> Beside | None:
        """A context in which threads pause while the first pass processes events; None without stalls."""
        return self._stalling if any(fault.kind == "stall" for fault in self.pending) else None

    @contextmanager
    def _stalling(self, engine: _runtime.Engine) -> Iterator[None]:
        from streaming_core import _runtime

        [fault] = [fault for fault in self.pending if fault.kind == "stall"]
        if all(fault.kind != "stall" for fault in self.faults):
            self._note(fault)
        stalls = _runtime.Stalls(fault.at or 0)
        try:
            yield
        finally:
            stalls.stop()

    def processed(self, kind: str, done: int, total: int) -> None:
        """Inject the faults that are due after so many events, and pass the progress on."""
        if self._is_dying:  # the delay was longer than the block
            _die()
        if self.progress is not None:
            self.progress(kind, done, total)
        for fault in [pending for pending in self.pending if pending.kind != "stall" and (pending.at or 0) <= done]:
            self.pending = [pending for pending in self.pending if pending != fault]
            self._happen(fault, is_last=done == total)
            if fault.kind in ENDING:  # another one that ends the process is for the next process
                self.pending = [fault for fault in self.pending if fault.kind not in ENDING]
                break

    def _note(self, fault: Fault) -> None:
        self.faults.append(InjectedFault(kind=fault.kind, at=fault.at or 0, life=self.number))
        self.tell(fault)

    def _happen(self, fault: Fault, is_last: bool) -> None:
        self._note(fault)
        r = random.Random(fault.at)
        if fault.kind == "full-disk":
            _fill_disk(r.randrange(MOST_BYTES))
        if fault.kind == "clock":
            jump_clocks(r)
        if fault.kind == "kill":
            delay = 0.0 if is_last or r.random() < 0.5 else r.uniform(0, LATEST)
            if not delay:
                _die()
            self._is_dying = True
            threading.Timer(delay, _die).start()


def _fill_disk(size: int) -> None:
    """Make the kernel refuse every write of this process, and of its forks, beyond so many bytes of a file.

    The error is EFBIG in place of ENOSPC. No file of a run is so small, so each file that is written next is cut off.
    """
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def jump_clocks(r: random.Random) -> None:
    """Let the clocks of this process jump: the wall clock to any side, the others ahead as after a long sleep.

    The engine's clock jumps several times a little later, because it stands still between two blocks.
    """
    from streaming_core import _runtime

    def jump() -> None:
        for delay in DELAYS:
            time.sleep(delay)
            _runtime.jump_clock(ahead)

    ahead = r.randint(100, 7200)
    for name, by in (("time", r.uniform(-YEAR, YEAR)), ("monotonic", ahead), ("perf_counter", ahead)):
        setattr(time, name, partial(_ahead, getattr(time, name), by))
    threading.Thread(target=jump).start()


def _ahead(clock: Callable[[], float], by: float) -> float:
    return clock() + by


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
        if "full-disk" in new and isinstance(end.error, CommandFailed | OSError):
            say(f"fault: disk full from event {faults[-1].at}: {end.error}")
        elif end.error is not None:
            raise end.error
        elif end.code == -signal.SIGKILL and "kill" in new:
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
                if values[0].kind != "stall":  # the threads of the next life pause, too
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
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # those of a progress bar have a lock
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
