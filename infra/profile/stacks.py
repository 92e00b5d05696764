"""Stacks of the engine, from the output of `perf script`: operators by name, and functions of the runtime.

A stack is a tuple of frames, outermost first. It begins with `operators` (then the operator and its kernel) or with
`runtime` (then functions). A kernel ends the unwinding, because the compiler of kernels writes no unwind tables. So the
functions that called it are unknown, and its stack begins with the kernel.

Other stacks do not count: those of Python, of the compiler, and of threads that read files. They are not part of the
engine's active time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

UNNAMED = "unnamed"  # of kernels of a build that writes no map
ENGINE = "_runtime."  # begins the name of the runtime's file
PYTHON_FUNCTION = "__pyfunction_"  # a function of the runtime that reads or converts, outside the passes
FRAME = re.compile(r"\s+(?P<address>[0-9a-f]+) (?P<symbol>.*) \((?P<file>.*)\)$")
# Frames between Python or a thread's start, and the work of a thread, which is the same on every thread.
ENTRY = re.compile(
    r"__pymethod_|trampoline|__rust_begin_short_backtrace|FnOnce|thread_start|^\[unknown\]$|Executor>::process$|"
    r"Team::run$|TeamState::attempt$"
)
CALL = re.compile(r"__x64_sys_(\w+)|__arm64_sys_(\w+)")
SHOWN_PARTS = 3  # of a function's path, the last ones

Stack = tuple[str, ...]


class Frame(NamedTuple):
    """A line of `perf script`: an address, its symbol, and the file with its code."""

    address: int
    symbol: str
    file: str

    @property
    def is_engine(self) -> bool:
        """Whether it is a function of the runtime."""
        return self.file.rpartition("/")[2].startswith(ENGINE)

    @property
    def is_linux(self) -> bool:
        """Whether it belongs to the kernel of the operating system."""
        return self.file.startswith("[kernel") or self.file.endswith(".ko")


class Kernels:
    """The kernels in memory, as machine_code/perf_map.py lists them."""

    def __init__(self, text: str):
        """Read the lines of a map."""
        lines = (line.split(" ", 2) for line in text.splitlines())
        places = sorted((int(start, 16), int(size, 16), name) for start, size, name in lines)
        self._starts = [start for start, _, _ in places]
        self._places = places

    def name(self, frame: Frame) -> str | None:
        """The name of the kernel that a frame is in; `UNNAMED` if the map lacks it; None if it is no kernel."""
        if (at := bisect_right(self._starts, frame.address) - 1) >= 0:
            start, size, name = self._places[at]
            if frame.address < start + size:
                return name
        # Code that no file holds; perf names it after a map that it did not find.
        is_anonymous = re.search(r"/perf-\d+\.map$|^//anon|^\[anon", frame.file)
        return UNNAMED if is_anonymous and not self._places else None


def count(lines: Iterable[str], kernels: Kernels) -> Counter[Stack]:
    """Count the stacks of the engine in the lines of `perf script -F ip,sym,dso`; all other lines are ignored."""
    counts: Counter[Stack] = Counter()
    frames: list[Frame] = []
    for line in (*lines, ""):
        if match := FRAME.match(line):
            frames.append(Frame(int(match["address"], 16), match["symbol"], match["file"]))
        elif frames:
            if stack := stack_of(frames[::-1], kernels):
                counts[stack] += 1
            frames = []
    return counts


def stack_of(frames: Sequence[Frame], kernels: Kernels) -> Stack | None:
    """The stack of frames, outermost first; None if they are not of the engine."""
    begin = next((at for at, frame in enumerate(frames) if frame.is_engine or kernels.name(frame)), None)
    if begin is None or any(frame.is_engine and PYTHON_FUNCTION in frame.symbol for frame in frames):
        return None
    name = kernels.name(frames[begin])
    if name is None:
        return "runtime", *_functions(frames[begin:])
    operator, _, kernel = name.partition(".")
    return "operators", operator, *([f"{operator}.{kernel}"] if kernel else []), *_functions(frames[begin + 1 :])


def _functions(frames: Sequence[Frame]) -> Iterator[str]:
    """The frames of functions, by short names; those of the operating system as one."""
    last = ""
    for at, frame in enumerate(frames):
        if frame.is_linux:
            yield f"Linux: {_purpose(frames[at:])}"
            return
        if ENTRY.search(frame.symbol):
            continue
        if (name := short(frame.symbol)) != last:
            yield name
        last = name


def _purpose(frames: Sequence[Frame]) -> str:
    """What the operating system does in these frames."""
    symbols = " ".join(frame.symbol for frame in frames)
    if call := CALL.search(symbols):
        return call[1] or call[2]
    return "page fault" if "exc_page_fault" in symbols else "interrupt"


def short(symbol: str) -> str:
    """A function by the last parts of its path, without type parameters.

    `<_runtime::dataflow::frame::Dataflow<W> as _runtime::executor::Executor>::process` is `frame::Dataflow::process`.
    """
    text = re.sub(r"::\{\{closure\}\}|\{\{vtable\.shim\}\}|->", "", symbol)
    # From the inside out: the type in front of a path stays; parameters of a type and `<impl ...>` go.
    while (simple := re.sub(r"(?<![\w:])<([^<>]*?)(?: as [^<>]*)?>(?=::)|<[^<>]*>", r"\1", text)) != text:
        text = simple
    parts = [part for part in text.removeprefix("_runtime::").split("::") if part]
    return "::".join(parts[-SHOWN_PARTS:])
