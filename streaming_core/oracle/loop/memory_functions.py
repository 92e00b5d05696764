"""The loop's memory functions for Python, compiled once for all applications.

All of them take and return int64: counts, sizes, addresses.
"""

from __future__ import annotations

from functools import cache

from streaming_core.oracle.loop import containers, maps, memory
from streaming_core.oracle.loop.machine import Machine, compiled, programs


@compiled
def gather(begins, count, offsets, target):
    """Copies the texts at `begins` behind each other; `offsets` has the begin of each, and the end of the last one."""
    for i in range(count):
        at = memory.get(offsets + 8 * i)
        memory.copy_bytes(target + at, memory.get(begins + 8 * i), memory.get(offsets + 8 * i + 8) - at)
    return 0


_ARGUMENTS = {
    memory.free_buffer: 1, maps.map_open: 3, maps.entries_in_use: 3, maps.copy_states: 5,
    maps.enter_integers: 4, maps.enter_texts: 5, maps.copy_text_keys: 4, maps.copy_integer_keys: 3, gather: 4,
    containers.box_live: 2,
}  # fmt: skip


@cache
def memory_functions() -> dict[str, Machine]:
    """Load the functions, by name."""
    functions = {function.__name__: function for function in _ARGUMENTS}
    arguments = {function.__name__: count for function, count in _ARGUMENTS.items()}
    return programs("memory functions", arguments, lambda: functions, {})
