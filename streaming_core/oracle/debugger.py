"""The interpreter under Python's debugger: the operators of an application at one event of a workload.

Interpreted functions keep the file and the lines of the application (source.py), so pdb shows the user's own source.
"""

from __future__ import annotations

import bdb
import pdb
import sys
from typing import TextIO

import pyarrow as pa
import pyarrow.compute as pc

from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.oracle.interpreter import Interpreter

BLOCK = 4096


def debug(
    source: workload.Source, event: int, stdin: TextIO | None = None, stdout: TextIO | None = None
) -> pa.Table | None:
    """Interpret a workload up to an event, then that event under pdb, which stops in each operator that it reaches.

    Args:
        source: The workload.
        event: The event, by its seq.
        stdin: Where pdb reads commands; None: this process's standard input.
        stdout: Where pdb writes; None: this process's standard output.

    Returns:
        The outputs of the event, as the oracle has them. None if the person left the debugger before its end.

    Raises:
        BadInput: The workload has no such event, or the application does not keep to the language.
        RunFailed: An operator raised, before the event or at it.
    """
    check_event(source, event)
    machine = Interpreter(source.app, source.manifest["params"])
    for block in source.blocks(BLOCK):
        seqs = block.column("seq")
        before = block.filter(pc.less(seqs, event))
        if before.num_rows:
            machine.process(before)
        if before.num_rows < block.num_rows:
            at = block.filter(pc.equal(seqs, event))
            return _under_debugger(machine, at, stdin, stdout)
    raise AssertionError("the blocks of a workload hold each of its events")


def check_event(source: workload.Source, event: int) -> None:
    """Raise BadInput unless the workload has this event."""
    if not 0 <= event < source.rows:
        raise BadInput(f"the workload has no event {event}: it has {source.rows:,} events, and the first is event 0")


def _under_debugger(
    machine: Interpreter, event: pa.Table, stdin: TextIO | None, stdout: TextIO | None
) -> pa.Table | None:
    debugger = pdb.Pdb(stdin=stdin, stdout=stdout, nosigint=True, readrc=False)
    debugger.prompt = "(operator) "
    debugger.reset()
    for file, line, name in machine.functions():
        # pdb compares the name of the code, because Python reports no event for the line of a `def`.
        if error := debugger.set_break(file, line, funcname=name):
            raise BadInput(f"cannot read the source of the application: {error}")
    debugger.botframe = sys._getframe()  # without it, pdb would stop in the interpreter first
    debugger.set_continue()
    sys.settrace(debugger.trace_dispatch)
    try:
        return machine.process(event)
    except bdb.BdbQuit:
        return None
    finally:
        sys.settrace(None)
        debugger.clear_all_breaks()
