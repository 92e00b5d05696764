"""Growing containers, compiled: sets, maps, counters and top-k lists.

The 32-byte head in the row is `{data: pointer, length, capacity, gaps: u32, 4 unused, tree: pointer}`. `data` holds
`capacity` entries of two words (key, value) in insertion order. For all but top-k, an open-addressing index of
`2 * capacity` u32 follows them (entry number + 1, 0 = free). Capacity doubles; the old block stays with the arena.
Nothing depends on addresses: iteration follows insertion, or, in a top-k, score descending and key ascending.

A removed entry leaves a gap, and `tree` counts the gaps: a binary indexed tree of `capacity` u32. So it takes a step
for each doubling of the capacity to find the i-th entry. A full container closes its gaps if they are half of it, or
else when it grows. Reads change nothing, because transactions may read a container together.
"""

from __future__ import annotations

from collections.abc import Callable

from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic, overload, overload_method

from streaming_core.kernels import ir as code
from streaming_core.kernels.arithmetic import contains
from streaming_core.kernels.memory import allocate, as_bits, as_double, load_half, load_word, store_half, store_word
from streaming_core.kernels.values import GrowingType
from streaming_core.language.record import Counter, Map, Set, TopK

LENGTH, CAPACITY, GAPS, TREE = 8, 12, 16, 24
compiled = njit(error_model="python", no_cpython_wrapper=True, no_cfunc_wrapper=True)


def part(name: str) -> Callable:
    """Return an intrinsic that loads one of the two addresses of a container."""

    @intrinsic
    def address(typingctx, container):
        def codegen(context, builder, signature, args):
            held = cgutils.create_struct_proxy(container)(context, builder, args[0])
            return builder.ptrtoint(getattr(held, name), code.I64)

        return types.int64(container), codegen

    return address


_head, _arena = part("address"), part("arena")


@compiled
def _spread(key):
    """Mix the key's bits in a fixed way (the multiplier is 2^64 divided by the golden ratio)."""
    mixed = key * -7046029254386353131
    return mixed ^ ((mixed >> 32) & 0xFFFFFFFF)


@compiled
def _find(head, key):
    """Return the entry number of the key, or -1."""
    capacity = load_half(head, CAPACITY)
    if capacity == 0:
        return -1
    data = load_word(head, 0)
    index = data + capacity * 16
    mask = 2 * capacity - 1
    spread = _spread(key)
    tag = (spread >> 32) & 0xFFFFFFFF & ~mask
    place = spread & mask
    while True:
        noted = load_half(index, place * 4)
        if noted == 0:
            return -1
        if noted & ~mask == tag:
            entry = (noted & mask) - 1
            if load_word(data, entry * 16) == key:
                return entry
        place = (place + 1) & mask


@compiled
def _enter(data, capacity, entry, key):
    index = data + capacity * 16
    mask = 2 * capacity - 1
    spread = _spread(key)
    place = spread & mask
    while load_half(index, place * 4) != 0:
        place = (place + 1) & mask
    store_half(index, place * 4, ((spread >> 32) & 0xFFFFFFFF & ~mask) | (entry + 1))


@compiled
def _add(head, arena, key, value):
    """Append a key that the container does not have yet."""
    length = load_half(head, LENGTH)
    place = length + load_half(head, GAPS)
    if place == load_half(head, CAPACITY):
        _make_room(head, arena)
        place = length
    data = load_word(head, 0)
    store_word(data, place * 16, key)
    store_word(data, place * 16 + 8, value)
    _enter(data, load_half(head, CAPACITY), place, key)
    store_half(head, LENGTH, length + 1)


@compiled
def _make_room(head, arena):
    """Close the gaps of a full container, in its own block if they are half of it."""
    length, capacity, gaps = load_half(head, LENGTH), load_half(head, CAPACITY), load_half(head, GAPS)
    old = load_word(head, 0)
    if gaps > 0 and 2 * length <= capacity:
        larger = capacity
        data = old
        _forget(head)
    else:
        larger = max(8, 2 * capacity)
        data = allocate(arena, larger * 24)
    for i in range(length):
        place = _place(head, i) if gaps > 0 else i
        key = load_word(old, place * 16)
        store_word(data, i * 16, key)
        store_word(data, i * 16 + 8, load_word(old, place * 16 + 8))
        _enter(data, larger, i, key)
    _close_gaps(head)
    if larger != capacity:
        store_word(head, 0, data)
        store_half(head, CAPACITY, larger)
        store_word(head, TREE, 0)


@compiled
def _place(head, i):
    """Return the place of the i-th entry among entries and gaps."""
    tree, step, place = load_word(head, TREE), load_half(head, CAPACITY), 0
    while step > 0:
        if place + step <= load_half(head, CAPACITY):
            entries = step - load_half(tree, (place + step - 1) * 4)
            if entries <= i:
                i -= entries
                place += step
        step >>= 1
    return place


@compiled
def _remove(head, arena, key):
    """Remove a key; returns whether it was there."""
    entry = _find(head, key)
    if entry < 0:
        return False
    data, capacity = load_word(head, 0), load_half(head, CAPACITY)
    index, mask = data + capacity * 16, 2 * capacity - 1
    free = _spread(key) & mask
    while load_half(index, free * 4) & mask != entry + 1:
        free = (free + 1) & mask
    place = (free + 1) & mask
    noted = load_half(index, place * 4)
    while noted != 0:  # it takes the free place unless its own search starts behind that
        start = _spread(load_word(data, ((noted & mask) - 1) * 16)) & mask
        if (place - start) & mask >= (place - free) & mask:
            store_half(index, free * 4, noted)
            free = place
        place = (place + 1) & mask
        noted = load_half(index, place * 4)
    store_half(index, free * 4, 0)
    length, gaps = load_half(head, LENGTH) - 1, load_half(head, GAPS)
    store_half(head, LENGTH, length)
    if entry < length + gaps:  # not the last one
        if load_word(head, TREE) == 0:
            store_word(head, TREE, allocate(arena, capacity * 4))
        tree, node = load_word(head, TREE), entry + 1
        while node <= capacity:
            store_half(tree, (node - 1) * 4, load_half(tree, (node - 1) * 4) + 1)
            node += node & -node
        store_half(head, GAPS, gaps + 1)
    return True


@compiled
def _forget(head):
    """Empty the index."""
    capacity = load_half(head, CAPACITY)
    index = load_word(head, 0) + capacity * 16
    for i in range(capacity):  # two u32 at a time
        store_word(index, i * 8, 0)


@compiled
def _close_gaps(head):
    """Count no gaps any more."""
    if load_half(head, GAPS) > 0:
        store_half(head, GAPS, 0)
        for i in range(load_half(head, CAPACITY) // 2):
            store_word(load_word(head, TREE), i * 8, 0)


@compiled
def _clear(head, indexed):
    store_half(head, LENGTH, 0)
    if indexed:
        _close_gaps(head)
        _forget(head)


@compiled
def _entry(head, i):
    if i < 0 or i >= load_half(head, LENGTH):
        raise IndexError("container: index out of range")
    if load_half(head, GAPS) > 0:
        i = _place(head, i)
    return load_word(head, 0) + i * 16


@compiled
def _offer(head, arena, capacity, key, score):
    if load_half(head, CAPACITY) == 0:
        store_word(head, 0, allocate(arena, capacity * 16))
        store_half(head, CAPACITY, capacity)
    data = load_word(head, 0)
    length = load_half(head, LENGTH)
    for i in range(length):
        if load_word(data, i * 16) == key:
            for j in range(i, length - 1):
                store_word(data, j * 16, load_word(data, (j + 1) * 16))
                store_word(data, j * 16 + 8, load_word(data, (j + 1) * 16 + 8))
            length -= 1
            break
    place = length
    while place > 0:
        above = load_word(data, (place - 1) * 16 + 8)
        if above > score or (above == score and load_word(data, (place - 1) * 16) < key):
            break
        place -= 1
    if place < capacity:
        for j in range(min(length, capacity - 1), place, -1):
            store_word(data, j * 16, load_word(data, (j - 1) * 16))
            store_word(data, j * 16 + 8, load_word(data, (j - 1) * 16 + 8))
        store_word(data, place * 16, key)
        store_word(data, place * 16 + 8, score)
        length = min(length + 1, capacity)
    store_half(head, LENGTH, length)


def _fitting(scalar, field: str):
    """Return a compiled check that a key or value fits its declared type; it returns the bits."""
    if scalar is None or scalar.name == "i64":

        @compiled
        def whole(value):
            return as_bits(value)

        return whole
    if scalar.is_float:

        @compiled
        def real(value):
            return as_bits(float(value))

        return real
    low, high, message = scalar.low, scalar.high, f"{field}: the value does not fit {scalar.name}"

    @compiled
    def narrow(value):
        if value < low or value > high:
            raise OverflowError(message)
        return as_bits(value)

    return narrow


@overload(len)
def _len(value):
    return (lambda value: load_half(_head(value), LENGTH)) if isinstance(value, GrowingType) else None


@overload(contains)
def _contains(x, container):
    if not isinstance(container, GrowingType) or container.kind not in (Set, Map):
        return None
    return lambda x, container: _find(_head(container), as_bits(x)) >= 0


@overload_method(GrowingType, "clear")
def _clear_all(container):
    indexed = container.kind is not TopK
    return lambda container: _clear(_head(container), indexed)


@overload_method(GrowingType, "remove")
def _remove_key(container, key):
    if container.kind is TopK:
        return None
    return lambda container, key: _remove(_head(container), _arena(container), as_bits(key))


@overload_method(GrowingType, "add")
def _add_key(container, key, count=None):
    fit = _fitting(container.item, container.field)
    if container.kind is Set:

        def add(container, key, count=None):
            bits = fit(key)
            if _find(_head(container), bits) >= 0:
                return False
            _add(_head(container), _arena(container), bits, 0)
            return True

        return add
    if container.kind is Counter:

        def count_up(container, key, count=None):
            bits = fit(key)
            entry = _find(_head(container), bits)
            if entry < 0:
                _add(_head(container), _arena(container), bits, as_bits(count))
                return as_bits(count)
            place = load_word(_head(container), 0) + entry * 16
            total = load_word(place, 8) + as_bits(count)
            store_word(place, 8, total)
            return total

        return count_up
    return None


@overload_method(GrowingType, "put")
def _put(container, key, value):
    if container.kind is not Map:
        return None
    fit, fit_value = _fitting(container.item, container.field), _fitting(container.value, container.field)

    def put(container, key, value):
        bits = fit(key)
        worth = fit_value(value)
        entry = _find(_head(container), bits)
        if entry < 0:
            _add(_head(container), _arena(container), bits, worth)
        else:
            store_word(load_word(_head(container), 0), entry * 16 + 8, worth)

    return put


@overload_method(GrowingType, "get")
def _get(container, key, default=None):
    if container.kind is Counter:

        def count_of(container, key, default=None):
            entry = _find(_head(container), as_bits(key))
            return load_word(load_word(_head(container), 0), entry * 16 + 8) if entry >= 0 else 0

        return count_of
    if container.kind is Map and container.value.is_float:

        def real(container, key, default=None):
            entry = _find(_head(container), as_bits(key))
            if entry >= 0:
                return as_double(load_word(load_word(_head(container), 0), entry * 16 + 8))
            return float(default)

        return real
    if container.kind is Map and container.value.name == "boolean":

        def truth(container, key, default=None):
            entry = _find(_head(container), as_bits(key))
            return load_word(load_word(_head(container), 0), entry * 16 + 8) != 0 if entry >= 0 else default != 0

        return truth
    if container.kind is Map:

        def whole(container, key, default=None):
            entry = _find(_head(container), as_bits(key))
            return load_word(load_word(_head(container), 0), entry * 16 + 8) if entry >= 0 else as_bits(default)

        return whole
    return None


@overload_method(GrowingType, "offer")
def _offer_key(container, key, score):
    if container.kind is not TopK:
        return None
    capacity = container.count
    return lambda container, key, score: _offer(
        _head(container), _arena(container), capacity, as_bits(key), as_bits(score)
    )


def _key(container, i):
    return lambda container, i: load_word(_entry(_head(container), i), 0)


def _value(container, i):
    if container.kind is Map and container.value.is_float:
        return lambda container, i: as_double(load_word(_entry(_head(container), i), 8))
    if container.kind is Map and container.value.name == "boolean":
        return lambda container, i: load_word(_entry(_head(container), i), 8) != 0
    return lambda container, i: load_word(_entry(_head(container), i), 8)


def _positional(name: str, kinds: tuple[type, ...], implementation) -> None:
    """Register a method of these containers that takes a position."""

    def implemented(container, i):
        if container.kind not in kinds:
            return None
        return implementation(container, i)

    overload_method(GrowingType, name)(implemented)


_positional("at", (Set,), _key)
_positional("key_at", (Map, Counter, TopK), _key)
_positional("value_at", (Map, Counter), _value)
_positional("score_at", (TopK,), _value)
