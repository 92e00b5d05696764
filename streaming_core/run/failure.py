"""Turns failures of the runtime into errors of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streaming_core import interruption
from streaming_core.errors import RunFailed
from streaming_core.kernels.program import describe_error


@contextmanager
def runtime_failures() -> Iterator[None]:
    """Turn exceptions of the runtime in the block into errors of a run.

    Raises:
        RunFailed: An operator failed (operator, event, window, reason), or an event becomes too many rows.
        Interrupted: A signal ended the run.
        MemoryError: There is no memory for the state of an operator.
    """
    from streaming_core import _runtime

    try:
        yield
    except _runtime.Interrupted as error:
        raise interruption.Interrupted(*error.args) from None
    except _runtime.TooManyRows as error:
        raise RunFailed(str(error)) from None
    except _runtime.KernelFailed as error:
        operator, seq, window, payload = error.args
        reason = describe_error(payload)
        if reason.startswith("MemoryError"):
            raise MemoryError from None
        where = f" in window [{window[0]}, {window[1]})" if window else ""
        raise RunFailed(f"operator {operator} failed at event {seq}{where}: {reason}") from None
