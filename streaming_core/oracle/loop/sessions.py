"""Sessions of a windowed operator, in the order in which they may end: a heap of entries.

The heap orders entries by their latest row at the time when they entered it (E_NUMBER), then by key group and order of
begin (E_PREVIOUS). A later row of a session changes its entry only. An entry that comes out too early enters the heap
again.
"""

from __future__ import annotations

from streaming_core.oracle.loop.layout import (
    E_GROUP,
    E_LAST,
    E_NUMBER,
    E_PREVIOUS,
    W_SESSIONS,
    W_SESSIONS_COUNT,
    W_SESSIONS_ROOM,
    W_TOUCHED,
)
from streaming_core.oracle.loop.machine import compiled
from streaming_core.oracle.loop.memory import allocate, copy_bytes, get, put, release


@compiled
def _is_before(left, right):
    """Whether an entry comes before another one."""
    if get(left + E_NUMBER) != get(right + E_NUMBER):
        return get(left + E_NUMBER) < get(right + E_NUMBER)
    if get(left + E_GROUP) != get(right + E_GROUP):
        return get(left + E_GROUP) < get(right + E_GROUP)
    return get(left + E_PREVIOUS) < get(right + E_PREVIOUS)


@compiled
def _sink(windows, entry):
    """Puts an entry in place of the first one."""
    heap, count = get(windows + W_SESSIONS), get(windows + W_SESSIONS_COUNT)
    place = 0
    while 2 * place + 1 < count:
        child = 2 * place + 1
        if child + 1 < count and _is_before(get(heap + 8 * child + 8), get(heap + 8 * child)):
            child += 1
        if not _is_before(get(heap + 8 * child), entry):
            break
        put(heap + 8 * place, get(heap + 8 * child))
        place = child
    put(heap + 8 * place, entry)


@compiled
def session_begin(windows, entry):
    """A new entry, which stands in the window of its first row."""
    put(entry + E_PREVIOUS, get(windows + W_TOUCHED))
    put(windows + W_TOUCHED, get(windows + W_TOUCHED) + 1)
    count, room = get(windows + W_SESSIONS_COUNT), get(windows + W_SESSIONS_ROOM)
    if count == room:
        room = max(2 * room, 64)
        heap = allocate(windows, 8 * room)
        copy_bytes(heap, get(windows + W_SESSIONS), 8 * count)
        release(get(windows + W_SESSIONS))
        put(windows + W_SESSIONS, heap)
        put(windows + W_SESSIONS_ROOM, room)
    heap = get(windows + W_SESSIONS)
    put(windows + W_SESSIONS_COUNT, count + 1)
    place = count
    while place > 0 and _is_before(entry, get(heap + 8 * ((place - 1) // 2))):
        put(heap + 8 * place, get(heap + 8 * ((place - 1) // 2)))
        place = (place - 1) // 2
    put(heap + 8 * place, entry)


@compiled
def session_end(windows, before):
    """The next entry whose latest row is before `before`, which leaves the heap; 0: there is none."""
    while get(windows + W_SESSIONS_COUNT) != 0:
        heap = get(windows + W_SESSIONS)
        entry = get(heap)
        if get(entry + E_NUMBER) >= before:
            return 0
        if get(entry + E_LAST) == get(entry + E_NUMBER):
            count = get(windows + W_SESSIONS_COUNT) - 1
            put(windows + W_SESSIONS_COUNT, count)
            if count != 0:
                _sink(windows, get(heap + 8 * count))
            return entry
        put(entry + E_NUMBER, get(entry + E_LAST))
        _sink(windows, entry)
    return 0
