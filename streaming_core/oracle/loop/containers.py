"""Containers in the fields of rows: rings of a fixed size, and growing sets, maps, counters, top-k and queues.

A ring is {head: u32, length: u32, items}. A growing container is {items: address, length: u32, capacity: u32, places:
address, gaps: u32, 4 spare}. Its items are pairs (key, value) of 8 bytes each, in insertion order, or in rank order for
top-k. A key or value that is a text is the address of a copy (owned.py). From 16 items on, `places` is a hash table of
twice the capacity with positions + 1.

A removed pair of a container with `places` leaves a gap among its items: its key is then found elsewhere or not at all.
If keys are texts, the key in a gap is -1. The gaps close when an item is read by its position, or when the items need
room.

A queue is {columns: address, length: u32, capacity: u32, first: word, 8 spare}. There is one column per field, with
`capacity` values of its width. The rows lie at `first` to `first + length` of every column. They never wrap around its
end, so a scan over a field reads adjacent values. Rows that reach the end move to the front if they fill at most half
of the columns, else to columns twice as long. An append therefore moves two rows on average at most. A queue takes less
than four times its greatest length, or eight times with the columns that it has left behind.
"""

from __future__ import annotations

from functools import cache

from numba import types

from streaming_core.language.record import Scalar
from streaming_core.oracle.loop.checks import filled, fit, index
from streaming_core.oracle.loop.machine import compiled
from streaming_core.oracle.loop.maps import mix, text_hash
from streaming_core.oracle.loop.memory import arena, copy_bytes, get, get_u32, loader, put, put_u32
from streaming_core.oracle.loop.owned import text_disown, text_own, text_put, text_seen
from streaming_core.oracle.loop.text import text_equal

_INDEXED = 16
_GAPS = 24  # offset in a box: the number of gaps among its items
_FIRST = 16  # offset in a queue: the position of its first row in the columns
GONE = -1  # the key in a gap among texts
_SHORTEST = 8  # columns: a power of two, and every one begins at a multiple of 8 bytes


@compiled
def ring_slot(ring, capacity, width):
    """Makes room for one more item, of so many bytes; returns its address."""
    head, length = get_u32(ring), get_u32(ring + 4)
    if length < capacity:
        put_u32(ring + 4, length + 1)
        place = head + length
        return ring + 8 + (place - capacity if place >= capacity else place) * width
    put_u32(ring, head + 1 if head + 1 < capacity else 0)
    return ring + 8 + head * width


@compiled
def ring_item(ctx, ring, i, capacity, width, site):
    """Address of the i-th oldest item."""
    place = get_u32(ring) + index(ctx, i, get_u32(ring + 4), site)
    return ring + 8 + (place - capacity if place >= capacity else place) * width


@compiled
def box_find(box, key):
    """Position of a key, or -1."""
    items, length, places = get(box), get_u32(box + 8), get(box + 16)
    if places == 0:
        for i in range(length):
            if get(items + 16 * i) == key:
                return i
        return -1
    mask = 2 * get_u32(box + 12) - 1
    place = types.int64(mix(types.uint64(key))) & mask
    while True:
        position = get_u32(places + 4 * place) - 1
        if position < 0 or get(items + 16 * position) == key:
            return position
        place = (place + 1) & mask


@compiled
def box_find_text(ctx, box, text):
    """Position of a key that is a text, or -1."""
    items, length, places = get(box), get_u32(box + 8), get(box + 16)
    if places == 0:
        for i in range(length):
            if text_equal(text_seen(ctx, get(items + 16 * i)), text):
                return i
        return -1
    mask = 2 * get_u32(box + 12) - 1
    place = text_hash(text[0], text[1]) & mask
    while True:
        position = get_u32(places + 4 * place) - 1
        if position < 0 or text_equal(text_seen(ctx, get(items + 16 * position)), text):
            return position
        place = (place + 1) & mask


@compiled
def box_get(box, place, default):
    """The value at a position, or `default` if that is -1."""
    return default if place < 0 else get(get(box) + 16 * place + 8)


@compiled
def box_get_text(ctx, box, place, default):
    """The text at a position, or `default` if that is -1."""
    return default if place < 0 else text_seen(ctx, get(get(box) + 16 * place + 8))


@compiled
def _hash_word(ctx, word):
    return types.int64(mix(types.uint64(word)))


@compiled
def _hash_text(ctx, word):
    address, length = text_seen(ctx, word)
    return text_hash(address, length)


@compiled
def _is_found(box, i):
    return box_find(box, get(get(box) + 16 * i)) == i


@compiled
def _is_text(box, i):
    return get(get(box) + 16 * i) != GONE


@compiled
def _note(box, h, position):
    mask = 2 * get_u32(box + 12) - 1
    place = h & mask
    while get_u32(get(box + 16) + 4 * place) != 0:
        place = (place + 1) & mask
    put_u32(get(box + 16) + 4 * place, position + 1)


@compiled
def _forget(box):
    for i in range(get_u32(box + 12)):
        put(get(box + 16) + 8 * i, 0)


def _spacious(hashed, is_live):
    """Return the functions `live`, which copies the pairs, and `room`, which makes room for more.

    Args:
        hashed: The hash of a key's word.
        is_live: Whether the item at a position is no gap.
    """

    @compiled
    def live(box, target):
        """Copies the pairs without the gaps; `target` may be where they lie."""
        items, count = get(box), 0
        for i in range(get_u32(box + 8) + get_u32(box + _GAPS)):
            if is_live(box, i):
                key, value = get(items + 16 * i), get(items + 16 * i + 8)
                put(target + 16 * count, key)
                put(target + 16 * count + 8, value)
                count += 1
        return count

    @compiled
    def room(ctx, box, capacity):
        """Closes the gaps, in the same memory if it has this capacity."""
        old, length = get(box), get_u32(box + 8)
        grows = capacity != get_u32(box + 12)
        items = arena(ctx, 16 * capacity) if grows else old
        if get_u32(box + _GAPS) != 0:
            live(box, items)
        elif grows:
            copy_bytes(items, old, 16 * length)
        put(box, items)
        put_u32(box + 12, capacity)
        put_u32(box + _GAPS, 0)
        if capacity >= _INDEXED:
            if grows:
                put(box + 16, arena(ctx, 8 * capacity))
            else:
                _forget(box)
            for i in range(length):
                _note(box, hashed(ctx, get(items + 16 * i)), i)

    return live, room


def _adding(hashed, room):
    """Return the functions that append a pair, and read one."""

    @compiled
    def append(ctx, box, key, value):
        """Adds a pair behind the others."""
        length, capacity = get_u32(box + 8), get_u32(box + 12)
        place = length + get_u32(box + _GAPS)
        if place == capacity:
            room(ctx, box, capacity if place > 0 and 2 * length <= capacity else max(4, 2 * capacity))
            place = length
        put(get(box) + 16 * place, key)
        put(get(box) + 16 * place + 8, value)
        put_u32(box + 8, length + 1)
        if get(box + 16) != 0:
            _note(box, hashed(ctx, key), place)

    @compiled
    def item(ctx, box, i, offset, site):
        """A word of the i-th pair: 0 is where its key lies, 8 its value. Finding `i` may have moved the items."""
        position = index(ctx, i, get_u32(box + 8), site)
        if get_u32(box + _GAPS) != 0:
            room(ctx, box, get_u32(box + 12))
        return get(get(box) + 16 * position + offset)

    return append, item


def _removing(hashed):
    """Return the function that removes a pair."""

    @compiled
    def remove(ctx, box, position):
        """Removes the pair at a position; says whether there is one, which is not so if that is -1."""
        if position < 0:
            return False
        items, length, places = get(box), get_u32(box + 8) - 1, get(box + 16)
        put_u32(box + 8, length)
        if places == 0:
            for i in range(position, length):
                copy_bytes(items + 16 * i, items + 16 * (i + 1), 16)
            return True
        mask = 2 * get_u32(box + 12) - 1
        free = hashed(ctx, get(items + 16 * position)) & mask
        while get_u32(places + 4 * free) != position + 1:
            free = (free + 1) & mask
        # A later key of the chain moves to the free place unless its search begins behind it.
        place = (free + 1) & mask
        while get_u32(places + 4 * place) != 0:
            noted = get_u32(places + 4 * place)
            begin = hashed(ctx, get(items + 16 * (noted - 1))) & mask
            if (place - begin) & mask >= (place - free) & mask:
                put_u32(places + 4 * free, noted)
                free = place
            place = (place + 1) & mask
        put_u32(places + 4 * free, 0)
        gaps = get_u32(box + _GAPS)
        if position < length + gaps:
            put_u32(box + _GAPS, gaps + 1)
        return True

    return remove


box_live, _room = _spacious(_hash_word, _is_found)
box_append, box_item = _adding(_hash_word, _room)
_append_text, box_item_text = _adding(_hash_text, _spacious(_hash_text, _is_text)[1])
box_remove, _remove_text = _removing(_hash_word), _removing(_hash_text)


@compiled
def box_put(ctx, box, key, value, key_bounds, value_bounds, site):
    """Sets the value of a key; key and value must lie within their bounds (low, high)."""
    fit(ctx, key, key_bounds[0], key_bounds[1], site)
    fit(ctx, value, value_bounds[0], value_bounds[1], site)
    place = box_find(box, key)
    if place < 0:
        box_append(ctx, box, key, value)
    else:
        put(get(box) + 16 * place + 8, value)


@compiled
def box_put_at_text(ctx, box, text, value, bounds, site):
    """Sets the value of a key that is a text."""
    fit(ctx, value, bounds[0], bounds[1], site)
    place = box_find_text(ctx, box, text)
    if place < 0:
        _append_text(ctx, box, text_own(ctx, text), value)
    else:
        put(get(box) + 16 * place + 8, value)


@compiled
def box_put_text(ctx, box, key, text, bounds, site):
    """Sets a text as the value of a key."""
    fit(ctx, key, bounds[0], bounds[1], site)
    place = box_find(box, key)
    if place < 0:
        box_append(ctx, box, key, text_own(ctx, text))
    else:
        text_put(ctx, get(box) + 16 * place + 8, text)


@compiled
def box_put_text_at_text(ctx, box, key, text):
    """Sets a text as the value of a key that is a text."""
    place = box_find_text(ctx, box, key)
    if place < 0:
        _append_text(ctx, box, text_own(ctx, key), text_own(ctx, text))
    else:
        text_put(ctx, get(box) + 16 * place + 8, text)


@compiled
def box_clear_texts(ctx, box, keys, values):
    """Empties a container whose keys or values are texts."""
    for i in range(get_u32(box + 8) + get_u32(box + _GAPS)):
        if keys:
            text_disown(ctx, get(get(box) + 16 * i))
        if values:
            text_disown(ctx, get(get(box) + 16 * i + 8))
    box_clear(box)


@compiled
def box_remove_texts(ctx, box, position, keys, values):
    """Removes a pair whose key or value is a text, as `box_remove` does."""
    if position < 0:
        return False
    place = get(box) + 16 * position
    key, value = get(place), get(place + 8)
    if keys:
        _remove_text(ctx, box, position)
        text_disown(ctx, key)
    else:
        box_remove(ctx, box, position)
    if values:
        text_disown(ctx, value)
    if get(box + 16) != 0:  # it may be a gap now, and no other pair has its place
        if keys:
            put(place, GONE)
        put(place + 8, 0)
    return True


@compiled
def box_clear(box):
    """Empties the container."""
    put_u32(box + 8, 0)
    put_u32(box + _GAPS, 0)
    if get(box + 16) != 0:
        _forget(box)


@compiled
def counter_add(ctx, box, key, count, low, high, site):
    """Adds to the count of a key; returns the new count."""
    place = box_find(box, key)
    if place < 0:
        box_append(ctx, box, fit(ctx, key, low, high, site), count)
        return count
    total = get(get(box) + 16 * place + 8) + count
    put(get(box) + 16 * place + 8, total)
    return total


@compiled
def set_add(ctx, box, key, low, high, site):
    """Adds a key; says whether it was new."""
    if box_find(box, key) >= 0:
        return False
    box_append(ctx, box, fit(ctx, key, low, high, site), 0)
    return True


@compiled
def counter_add_text(ctx, box, text, count):
    """Adds to the count of a key that is a text."""
    place = box_find_text(ctx, box, text)
    if place < 0:
        _append_text(ctx, box, text_own(ctx, text), count)
        return count
    total = get(get(box) + 16 * place + 8) + count
    put(get(box) + 16 * place + 8, total)
    return total


@compiled
def set_add_text(ctx, box, text):
    """Adds a text; says whether it was new."""
    if box_find_text(ctx, box, text) >= 0:
        return False
    _append_text(ctx, box, text_own(ctx, text), 0)
    return True


@compiled
def top_offer(ctx, box, key, score, capacity):
    """Replaces the key's pair, keeps the best `capacity` pairs: score descending, then key ascending."""
    if get(box) == 0:
        put(box, arena(ctx, 16 * (capacity + 1)))
        put_u32(box + 12, capacity)
    items, length = get(box), get_u32(box + 8)
    place = 0
    while place < length and get(items + 16 * place) != key:
        place += 1
    if place < length:
        length -= 1
        for i in range(place, length):
            copy_bytes(items + 16 * i, items + 16 * (i + 1), 16)
    place = length
    while place > 0:
        before = items + 16 * (place - 1)
        if get(before + 8) > score or (get(before + 8) == score and get(before) < key):
            break
        copy_bytes(items + 16 * place, before, 16)
        place -= 1
    put(items + 16 * place, key)
    put(items + 16 * place + 8, score)
    put_u32(box + 8, min(length + 1, capacity))


@compiled
def queue_slot(ctx, queue, widths):
    """Makes room for one more row, whose fields have these widths; returns its position in the columns."""
    length, capacity, first = get_u32(queue + 8), get_u32(queue + 12), get(queue + _FIRST)
    if first + length == capacity:
        queue_room(ctx, queue, widths)
        first = 0
    put_u32(queue + 8, length + 1)
    return first + length


@compiled
def queue_room(ctx, queue, widths):
    """Moves the rows to the front, of the same columns if they fill at most half of them, else of longer ones."""
    old, length, capacity, first = get(queue), get_u32(queue + 8), get_u32(queue + 12), get(queue + _FIRST)
    room = max(_SHORTEST, capacity if 2 * length <= capacity else 2 * capacity)
    columns = old if room == capacity else arena(ctx, room * sum(widths))
    before = 0  # bytes of a row's fields before this one
    for width in widths:
        # No overlap within a column: the rows lie in its second half.
        copy_bytes(columns + room * before, old + capacity * before + first * width, length * width)
        before += width
    put(queue, columns)
    put_u32(queue + 12, room)
    put(queue + _FIRST, 0)


@compiled
def queue_column(queue, before):
    """Address of a column: `before` is the width of the fields before its own."""
    return get(queue) + get_u32(queue + 12) * before


@cache
def queue_item(scalar: Scalar):
    """Compiled: a field of the i-th oldest row."""
    load = loader(scalar, of_column=True)

    @compiled
    def item(ctx, queue, i, before, site):
        return load(queue_column(queue, before), get(queue + _FIRST) + index(ctx, i, get_u32(queue + 8), site))

    return item


@cache
def queue_at(scalar: Scalar):
    """Compiled: a field of the i-th oldest row, without a check that the row exists."""
    load = loader(scalar, of_column=True)

    @compiled
    def at(queue, i, before):
        return load(queue_column(queue, before), get(queue + _FIRST) + i)

    return at


@compiled
def queue_popleft(ctx, queue, site):
    """Removes the oldest row."""
    length = get_u32(queue + 8)
    filled(ctx, length, site)
    put_u32(queue + 8, length - 1)
    # The queue is empty: the next row goes to the front.
    put(queue + _FIRST, 0 if length == 1 else get(queue + _FIRST) + 1)


@compiled
def queue_clear(queue):
    """Removes every row."""
    put_u32(queue + 8, 0)
    put(queue + _FIRST, 0)


@compiled
def queue_disown(ctx, queue, columns, count):
    """Gives the texts of the oldest rows back; `columns`: for each text the width of the fields before it."""
    for before in columns:
        column = queue_column(queue, before) + 8 * get(queue + _FIRST)
        for i in range(count):
            text_disown(ctx, get(column + 8 * i))


@compiled
def queue_popleft_texts(ctx, queue, columns, site):
    """Removes the oldest row of a queue with texts."""
    queue_disown(ctx, queue, columns, min(1, get_u32(queue + 8)))
    queue_popleft(ctx, queue, site)


@compiled
def queue_clear_texts(ctx, queue, columns):
    """Removes every row of a queue with texts."""
    queue_disown(ctx, queue, columns, get_u32(queue + 8))
    queue_clear(queue)
