"""The end of every command: an exit code and, after an error, one line on stderr.

`errors.py` lists the codes. Code 1 always stands for a run. With LOCKSTEP_TRACEBACK=1, a failure with code 3 prints
a traceback above the line.

This module uses only the standard library, so that it works even if no library can be loaded.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import NoReturn, TextIO

from streaming_core.errors import BadInput, CommandFailed, ExitCode, RunFailed, refusal
from streaming_core.interruption import Interrupted

# The address space that the libraries need before a command starts. OpenBLAS, which numpy loads, ends the process with
# code 1 if it gets none.
ROOM = 192 << 20


def begin(name: str) -> None:
    """Make an uncaught exception, such as that of an import, end the process as `end` does."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> NoReturn:
        sys.exit(_ended(name, error))

    sys.excepthook = hook
    _check_room()


def end(name: str, command: Callable[[], int | None]) -> NoReturn:
    """Run the command of this name. Exit with its code, or with the code of its exception."""
    # Python writes characters outside the terminal's encoding as escapes. A name with one must not fail the command.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _check_room()
        _check_names()
        code = command() or 0
    except SystemExit as ended:  # argparse, after --help
        code = ended.code or 0  # type: ignore[assignment]  # argparse exits with numbers
    except BaseException as error:
        sys.exit(_ended(name, error))
    sys.exit(_ended(name, None, code))


def say(name: str, message: str) -> None:
    """Write one line to stderr."""
    try:
        print(f"{name}: {' '.join(message.split())}", file=sys.stderr, flush=True)
    except OSError:
        _give_up(sys.stderr)  # the exit code still reports the error


def _check_room() -> None:
    """Raise MemoryError if a limit leaves no room to load the libraries."""
    # No command multiplies matrices, and each thread for that would need room.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        mmap.mmap(-1, ROOM, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ).close()
    except OSError:
        raise MemoryError from None


def _check_names() -> None:
    """Raise BadInput for a name that Python and the Parquet library would encode differently."""
    home = os.environ.get("LOCKSTEP_HOME", "")
    for kind, text in (*(("argument", argument) for argument in sys.argv[1:]), ("LOCKSTEP_HOME", home)):
        encoded = os.fsencode(text)
        if encoded == text.encode("utf-8", "surrogatepass"):
            continue
        try:
            encoded.decode("utf-8")
        except UnicodeDecodeError:
            raise BadInput(f"{kind} {encoded!r} is not valid UTF-8; use another name") from None
        encoding = sys.getfilesystemencoding()
        raise BadInput(f"{kind} {encoded!r}: this system reads it as {encoding}; set PYTHONUTF8=1")


def _ended(name: str, error: BaseException | None, code: int = 0) -> int:
    """Flush the output of a command, report its error in one line, and return its exit code."""
    message = None
    if error is not None:
        cause = error.__cause__
        # pydantic wraps what is raised while it calls back.
        message, code = _line(cause if isinstance(cause, Interrupted) else error)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as unwritten:
        _give_up(sys.stdout)
        error, code = unwritten, ExitCode.COMMAND_FAILED
        message = f"cannot write to standard output: {unwritten.strerror}"
        if isinstance(unwritten, BrokenPipeError):
            message = None
    is_traced = os.environ.get("LOCKSTEP_TRACEBACK", "0") not in ("", "0")
    if code == ExitCode.COMMAND_FAILED and error is not None and is_traced:
        with suppress(OSError):
            traceback.print_exception(error)
    if message is not None:
        say(name, message)
    return code


def _line(error: BaseException) -> tuple[str | None, int]:
    match error:
        case BadInput():
            return str(error), ExitCode.BAD_INPUT
        case RunFailed():
            return str(error), ExitCode.FAILED
        case CommandFailed():
            return str(error), ExitCode.COMMAND_FAILED
        case Interrupted():
            return str(error), error.exit_code
        case KeyboardInterrupt():
            return "interrupted", ExitCode.SIGNAL + signal.SIGINT
        case BrokenPipeError():
            return None, ExitCode.COMMAND_FAILED  # the reader of the output has gone
        case MemoryError():
            return "out of memory", ExitCode.COMMAND_FAILED
        case RuntimeError() if "can't start new thread" in str(error):
            return (
                "cannot start a thread: a limit of memory or processes is reached (ulimit -a)",
                ExitCode.COMMAND_FAILED,
            )
        case OSError() if error.errno == errno.ENOMEM:
            return "out of memory", ExitCode.COMMAND_FAILED
        case OSError() if error.errno:
            return _line(refusal(error))
        case OSError() | ImportError():  # libraries add long advice; the cause is short
            return f"cannot load a library: {_cause(error)}", ExitCode.COMMAND_FAILED
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = f" ({last[0].filename}:{last[0].lineno})" if last else ""
    line = f"internal error: {type(error).__name__}: {error}{place}; set LOCKSTEP_TRACEBACK=1 to see the traceback"
    return line, ExitCode.COMMAND_FAILED


def _cause(error: BaseException) -> BaseException:
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return error


def _give_up(stream: TextIO) -> None:
    """Redirect a broken stream to nowhere, so that the interpreter can flush it at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
