"""The memory of windowed operators: panes, entries, tables of entries, keys of a row, and texts that outlive a batch.

An entry belongs to a key in a window: words (layout.py), the key's fields, its states, the bytes of its texts. For
windows of the kind multi, entries lie in the memory of their pane, which is freed as a whole. For the kind single, each
has its own memory.
"""

from __future__ import annotations

from numba import types

from streaming_core.oracle.loop.layout import (
    E_GROUP,
    E_HASH,
    E_LAST,
    E_NEXT,
    E_PREVIOUS,
    END_OF_TIME,
    MOST_TEXT,
    NEXT_TEXT,
    NO_TIME,
    P_AT,
    P_CHUNKS,
    P_COUNT,
    P_HEAD,
    P_LIMIT,
    P_TAIL,
    PANE_BYTES,
    T_MASK,
    T_SLOTS,
    T_USED,
    TEXT,
    W_COUNTS,
    W_FIRST,
    W_HEAD,
    W_IDLE,
    W_KEYS,
    W_KEYS_LIMIT,
    W_OPEN,
    W_PANES,
    W_ROOM,
    W_SORTED,
    W_SORTED_LIMIT,
    W_STAMP,
    W_STAMPS,
    W_STAMPS_MASK,
    W_TABLE,
    W_TAIL,
    WINDOWS_BYTES,
)
from streaming_core.oracle.loop.machine import compiled
from streaming_core.oracle.loop.memory import allocate, copy_bytes, get, put, release, release_chunks
from streaming_core.oracle.loop.text import text_word

_GROUPS, _CELLS = 4096, 1024  # key groups, and the cells in which neighbouring ones lie


# --- tables of entries, by hash --------------------------------------------------------------------------------------


@compiled
def table_add(table, entry):
    """Adds a new entry: open addressing, linear probing, at most half full."""
    if 2 * (get(table + T_USED) + 1) > get(table + T_MASK) + 1:
        _larger_table(table)
    slots, mask = get(table + T_SLOTS), get(table + T_MASK)
    place = get(entry + E_HASH) & mask
    while get(slots + 8 * place) != 0:
        place = (place + 1) & mask
    put(slots + 8 * place, entry)
    put(table + T_USED, get(table + T_USED) + 1)


@compiled
def _larger_table(table):
    old = get(table + T_SLOTS)
    count = 0 if old == 0 else get(table + T_MASK) + 1
    mask = max(2 * count, 16) - 1
    slots = allocate(table, 8 * (mask + 1))
    for i in range(count):
        entry = get(old + 8 * i)
        if entry != 0:
            place = get(entry + E_HASH) & mask
            while get(slots + 8 * place) != 0:
                place = (place + 1) & mask
            put(slots + 8 * place, entry)
    release(old)
    put(table + T_SLOTS, slots)
    put(table + T_MASK, mask)


@compiled
def table_remove(table, entry):
    """Removes an entry; those behind it move up, so that none is behind a gap."""
    slots, mask = get(table + T_SLOTS), get(table + T_MASK)
    gap = get(entry + E_HASH) & mask
    while get(slots + 8 * gap) != entry:
        gap = (gap + 1) & mask
    at = gap
    while True:
        at = (at + 1) & mask
        other = get(slots + 8 * at)
        if other == 0:
            break
        # It may move unless the place of its hash lies behind the gap.
        if ((at - get(other + E_HASH)) & mask) >= ((at - gap) & mask):
            put(slots + 8 * gap, other)
            gap = at
    put(slots + 8 * gap, 0)
    put(table + T_USED, get(table + T_USED) - 1)


# --- panes: the entries of one window --------------------------------------------------------------------------------


@compiled
def _item(windows, place):
    """Address of an open window in the list: its number, then its pane."""
    return get(windows + W_PANES) + 16 * (get(windows + W_FIRST) + place)


@compiled
def _place(windows, number):
    """Position of a window in the list, which ascends, or the position for it."""
    count = get(windows + W_OPEN)
    if count == 0 or get(_item(windows, count - 1)) < number:
        return count
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if get(_item(windows, middle)) < number:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _make_room(windows, place):
    """Moves the items from this place on by one; the list itself moves where its room is used up."""
    first, count, room = get(windows + W_FIRST), get(windows + W_OPEN), get(windows + W_ROOM)
    if first + count == room:
        old = get(windows + W_PANES)
        items = old
        if 2 * first < room or room == 0:
            room = max(2 * room, 16)
            items = allocate(windows, 16 * room)
        for word in range(2 * count):
            put(items + 8 * word, get(old + 16 * first + 8 * word))
        if items != old:
            release(old)
        put(windows + W_PANES, items)
        put(windows + W_ROOM, room)
        put(windows + W_FIRST, 0)
    for i in range(count - place):
        at = _item(windows, count - i)
        put(at, get(at - 16))
        put(at + 8, get(at - 8))


@compiled
def pane_open(windows, number):
    """The pane of a window; a missing one is inserted."""
    if get(windows + W_OPEN) != 0:
        first = _item(windows, 0)
        at = number - get(first)
        # The window is there if all windows between the first one and it are open.
        if 0 <= at < get(windows + W_OPEN) and get(first + 16 * at) == number:
            return get(first + 16 * at + 8)
    return _search_or_insert(windows, number)


@compiled
def _search_or_insert(windows, number):
    """Searches the list for the pane of a window, and inserts one if it is missing."""
    place = _place(windows, number)
    if place < get(windows + W_OPEN) and get(_item(windows, place)) == number:
        return get(_item(windows, place) + 8)
    pane = allocate(windows, PANE_BYTES)
    _make_room(windows, place)
    put(_item(windows, place), number)
    put(_item(windows, place) + 8, pane)
    put(windows + W_OPEN, get(windows + W_OPEN) + 1)
    return pane


@compiled
def first_open(windows):
    """The earliest open window, if there is any."""
    return get(_item(windows, 0))


@compiled
def pane_take(windows):
    """Closes the earliest open window; returns its pane."""
    pane = get(_item(windows, 0) + 8)
    put(windows + W_FIRST, get(windows + W_FIRST) + 1)
    put(windows + W_OPEN, get(windows + W_OPEN) - 1)
    return pane


@compiled
def pane_memory(pane, size):
    """Zeroed memory that lives as long as the pane."""
    size = (size + 15) & ~15
    at = get(pane + P_AT)
    if at + size > get(pane + P_LIMIT):
        room = max(size + 16, min(4096 << min(get(pane + P_COUNT) // 32, 8), 1 << 20))
        chunk = allocate(pane, room)
        put(chunk, get(pane + P_CHUNKS))
        put(pane + P_CHUNKS, chunk)
        put(pane + P_LIMIT, chunk + room)
        at = chunk + 16
    put(pane + P_AT, at + size)
    return at


@compiled
def pane_append(pane, entry):
    """One more entry, behind those that were touched before it."""
    put(entry + E_NEXT, 0)
    if get(pane + P_TAIL) == 0:
        put(pane + P_HEAD, entry)
    else:
        put(get(pane + P_TAIL) + E_NEXT, entry)
    put(pane + P_TAIL, entry)
    put(pane + P_COUNT, get(pane + P_COUNT) + 1)


@compiled
def pane_release(pane):
    """Frees a pane and its entries."""
    release_chunks(get(pane + P_CHUNKS))
    release(get(pane + T_SLOTS))
    release(pane)


@compiled
def in_order(windows, pane):
    """Sorts a pane's entries by key group into W_SORTED, in pane order within a group; returns their number."""
    n = get(pane + P_COUNT)
    if n > get(windows + W_SORTED_LIMIT):
        release(get(windows + W_SORTED))
        put(windows + W_SORTED, allocate(windows, 16 * n))
        put(windows + W_SORTED_LIMIT, 2 * n)
    if get(windows + W_COUNTS) == 0:
        put(windows + W_COUNTS, allocate(windows, 8 * (_GROUPS + 1)))
    entries, counts = get(windows + W_SORTED), get(windows + W_COUNTS)
    for group in range(_GROUPS + 1):
        put(counts + 8 * group, 0)
    entry = get(pane + P_HEAD)
    while entry != 0:
        at = counts + 8 * (get(entry + E_GROUP) + 1)
        put(at, get(at) + 1)
        entry = get(entry + E_NEXT)
    for group in range(1, _GROUPS + 1):
        put(counts + 8 * group, get(counts + 8 * group) + get(counts + 8 * group - 8))
    entry = get(pane + P_HEAD)
    while entry != 0:
        at = counts + 8 * get(entry + E_GROUP)
        put(entries + 8 * get(at), entry)
        put(at, get(at) + 1)
        entry = get(entry + E_NEXT)
    return n


# --- entries of sliding windows without observers: longest untouched first --------------------------------------------


@compiled
def touched(windows, entry):
    """Appends an entry to the list, as the one touched last."""
    last = get(windows + W_TAIL)
    put(entry + E_PREVIOUS, last)
    put(entry + E_NEXT, 0)
    put(last + E_NEXT if last != 0 else windows + W_HEAD, entry)
    put(windows + W_TAIL, entry)


@compiled
def untouched(windows, entry):
    """Takes an entry out of the list."""
    before, behind = get(entry + E_PREVIOUS), get(entry + E_NEXT)
    put(before + E_NEXT if before != 0 else windows + W_HEAD, behind)
    put(behind + E_PREVIOUS if behind != 0 else windows + W_TAIL, before)


@compiled
def forget(windows, start):
    """Removes the entries whose keys have had no row since `start`."""
    entry = get(windows + W_HEAD)
    while entry != 0 and get(entry + E_LAST) < start:
        untouched(windows, entry)
        table_remove(windows + W_TABLE, entry)
        release(entry)
        entry = get(windows + W_HEAD)


# --- the watermark ----------------------------------------------------------------------------------------------------


@compiled
def low_mark(windows, streams):
    """The lowest mark that counts; NO_TIME if one that counts is missing. Units of `ts`."""
    oldest = NO_TIME
    if get(windows + W_IDLE) >= 0:
        for stream in range(streams):
            oldest = max(oldest, get(windows + WINDOWS_BYTES + 8 * stream))
        oldest -= get(windows + W_IDLE)
    low = END_OF_TIME
    for stream in range(streams):
        mark = get(windows + WINDOWS_BYTES + 8 * stream)
        if mark >= oldest:
            low = min(low, mark)
    return low


# --- keys of a row ---------------------------------------------------------------------------------------------------


@compiled
def key_slot(windows, i, size):
    """Address for the i-th key of a row; earlier keys may move."""
    if (i + 1) * size > get(windows + W_KEYS_LIMIT):
        limit = get(windows + W_KEYS_LIMIT)
        room = max(2 * limit, 64 * size)
        block = allocate(windows, room)
        copy_bytes(block, get(windows + W_KEYS), limit)
        release(get(windows + W_KEYS))
        put(windows + W_KEYS, block)
        put(windows + W_KEYS_LIMIT, room)
    return get(windows + W_KEYS) + i * size


@compiled
def stamps(windows, n):
    """A table for n keys of a row, without any key that has this row's stamp. Slots: stamp, number of a key."""
    mask = get(windows + W_STAMPS_MASK)
    if 2 * n > mask:
        mask = 63
        while 2 * n > mask:
            mask = 2 * mask + 1
        release(get(windows + W_STAMPS))
        put(windows + W_STAMPS, allocate(windows, 16 * (mask + 1)))
        put(windows + W_STAMPS_MASK, mask)
    put(windows + W_STAMP, get(windows + W_STAMP) + 1)
    return mask


_SEED, _K1, _K2 = types.uint64(0x2545F4914F6CDD1D), types.uint64(0x9E3779B97F4A7C15), types.uint64(0xD6E8FEB86659FD93)
_29, _32, _52 = types.uint64(29), types.uint64(32), types.uint64(52)


@compiled
def group_start():
    """What the hash of a key of several fields begins with."""
    return _SEED


@compiled
def group_step(h, word):
    """One word more."""
    h = (h ^ word) * _K1
    return h ^ (h >> _32)


@compiled
def group_finish(h):
    """The hash, after all words."""
    h = h * _K2
    return h ^ (h >> _29)


@compiled
def group_text(text):
    """The hash of a text."""
    address, length = text
    h = (types.uint64(length) ^ _SEED) * _K1
    at = 0
    while at < length:
        h = group_step(h, text_word(address + at, length - at))
        at += 8
    return group_finish(h)


@compiled
def group_of(h):
    """The key group of a hash."""
    return types.int64(h >> _52)


@compiled
def group_of_index(index):
    """The key group of a key that every row has: such keys lie in the cells in turn."""
    return index % _CELLS * (_GROUPS // _CELLS) + index // _CELLS % (_GROUPS // _CELLS)


# --- text that outlives its batch ------------------------------------------------------------------------------------


@compiled
def batch_text(ctx, text):
    """A text to which the batch's rows can refer: the same, or a copy of one outside the batch."""
    address, length = text
    base = get(ctx + TEXT)
    if 0 <= address - base < MOST_TEXT:
        return text
    at = get(ctx + NEXT_TEXT)
    if at + length > base + MOST_TEXT:
        raise MemoryError("out of memory")
    copy_bytes(at, address, length)
    put(ctx + NEXT_TEXT, at + length)
    return (at, length)
