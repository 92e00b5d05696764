"""Hand-written loops in Rust, bounds for suites `scaling` and `stretch`: `runtime/benches/limits` holds them.

A loop is a process that reads its events from a file. Whenever it gets a line, it runs, and answers with the time and
the digest of the outputs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from streaming_core.data.digest import format_digest
from streaming_core.errors import BadInput
from streaming_core.kernels.program import Program
from streaming_core.language.application import App

ROOT = Path(__file__).parents[3]
RUST = "streaming_core/runtime/src"
APPS = ("gs", "sl", "ob", "wc", "fd", "sd", "scalejoin", "wordcount")  # with default parameters
NUMBERS = {"scalejoin": ("keys", "size")}  # applications whose loop takes threads and these parameters
WORD = 8


class Handwritten:
    """The hand-written loop of an application, on some events."""

    def __init__(
        self,
        app: App,
        program: Program,
        blocks: Iterable[tuple[np.ndarray, np.ndarray]],
        folder: Path,
        threads: Sequence[int] = (1,),
        params: dict[str, Any] | None = None,
    ):
        """Write the events into a folder and start a process for each number of threads.

        Args:
            app: The application, one of APPS.
            program: Its compiled program.
            blocks: The rows and the text of each block.
            folder: An empty folder.
            threads: The numbers of threads. An application outside NUMBERS has one thread.
            params: The values of the parameters. Only those in NUMBERS may differ from the defaults.

        Raises:
            BadInput: There is no loop for the application or for these threads, or it cannot be built.
        """
        if app.name not in APPS:
            raise BadInput(f"there is no hand-written loop for {app.name}; known: {', '.join(APPS)}")
        names = NUMBERS.get(app.name)
        if names is None and set(threads) != {1}:
            raise BadInput(f"the hand-written loop of {app.name} has 1 thread, got {max(threads)}")
        path = folder / "events.bin"
        bound = app.bind(params or {})
        constants = [np.asarray(constant.build(bound)) for constant in app.constants]
        tables = [*constants, *getattr(program, "initial", [])]
        _write(path, tables, list(blocks))
        self._processes = {}
        for count in threads:
            numbers = [count, *(bound[name] for name in names)] if names else []
            command = [str(executable()), app.name, str(path), *map(str, numbers)]
            self._processes[count] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, threads: int = 1) -> tuple[float, str]:
        """Run once on fresh state. Returns the seconds and the digest of the outputs.

        Args:
            threads: One of the numbers of threads.

        Raises:
            RuntimeError: The process has ended.
        """
        process = self._processes[threads]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("run\n")
        process.stdin.flush()
        answer = process.stdout.readline().split()
        if len(answer) != 3:
            raise RuntimeError(f"the hand-written loop ended with code {process.wait()}")
        nanoseconds, rows, digest = answer
        return int(nanoseconds) / 1e9, format_digest(int(rows), int(digest, 16))

    def close(self) -> None:
        """End the processes."""
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def cargo() -> str:
    """Return the program that builds the loops.

    Raises:
        BadInput: It is missing, or the sources of the loops are.
    """
    if not (ROOT / RUST).exists():
        raise BadInput("the hand-written loops need a checkout, because an installed package lacks their sources")
    program = shutil.which("cargo") or shutil.which("cargo", path=Path.home() / ".cargo" / "bin")
    if program is None:
        raise BadInput("the hand-written loops need cargo; `make doctor` says how to install it")
    return program


@cache
def executable() -> Path:
    """Build the loops, and return the path of the program.

    Raises:
        BadInput: cargo is missing, or the build fails.
    """
    command = [cargo(), "build", "--quiet", "--release", "--bench", "limits", "--message-format", "json"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise BadInput(f"the hand-written loops cannot be built: {built.stderr.strip() or built.stdout.strip()}")
    messages: list[dict[str, Any]] = [json.loads(line) for line in built.stdout.splitlines()]
    return next(Path(message["executable"]) for message in messages if message.get("executable"))


def _write(path: Path, tables: list[np.ndarray], blocks: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Write the file that `benches/limits/input.rs` reads."""
    with path.open("wb") as file:

        def number(value: int) -> None:
            file.write(value.to_bytes(WORD, "little"))

        def content(values: np.ndarray) -> None:
            data = np.ascontiguousarray(values).view(np.uint8).tobytes()
            number(len(data))
            file.write(data + bytes(-len(data) % WORD))

        number(len(tables))
        for table in tables:
            content(table)
        number(len(blocks))
        for rows, text in blocks:
            number(len(rows))
            content(rows)
            content(text)
