"""Growing containers, compiled: sets, maps, counters and top-k lists.

The 32-byte head in the row is `{data: pointer, length, capacity, gaps: u32, 4 unused, tree: pointer}`. `data` holds
`capacity` entries of two words (key, value) in insertion order. For all but top-k, an open-addressing index of
`2 * capacity` u32 follows them (entry number + 1, 0 = free). Capacity doubles; the old block stays with the arena.
Nothing depends on addresses: iteration follows insertion, or, in a top-k, score descending and key ascending.

A removed entry leaves a gap, and `tree` counts the gaps: a binary indexed tree of `capacity` u32. So it takes a step
for each doubling of the capacity to find the i-th entry. A full container closes its gaps if they are half of it, or
else when it grows. Reads change nothing, because transactions may read a container together.

A key or value that is a text is the word of a text that the container owns (owned.py). The index finds it by its hash.
"""

from __future__ import annotations

from collections.abc import Callable

from numba.core import cgutils, types
from numba.extending import intrinsic, overload, overload_method

from streaming_core.kernels import ir as code
from streaming_core.kernels import owned
from streaming_core.kernels.arithmetic import contains
from streaming_core.kernels.memory import allocate, as_bits, as_double, load_half, load_word, store_half, store_word
from streaming_core.kernels.owned import compiled
from streaming_core.kernels.values import GrowingType, text_address, text_at
from streaming_core.language.record import Counter, Map, Set, Text, TopK

LENGTH, CAPACITY, GAPS, TREE = 8, 12, 16, 24


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
def _find_text(head, text):
    """Return the entry number of a key that is a text, or -1."""
    capacity = load_half(head, CAPACITY)
    if capacity == 0:
        return -1
    data = load_word(head, 0)
    index = data + capacity * 16
    mask = 2 * capacity - 1
    address, length = text_address(text), len(text)
    spread = _spread(owned.hash_of(address, length))
    tag = (spread >> 32) & 0xFFFFFFFF & ~mask
    place = spread & mask
    while True:
        noted = load_half(index, place * 4)
        if noted == 0:
            return -1
        if noted & ~mask == tag:
            entry = (noted & mask) - 1
            if owned.equals(load_word(data, entry * 16), address, length):
                return entry
        place = (place + 1) & mask


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
def _enter(data, capacity, entry, spread):
    index = data + capacity * 16
    mask = 2 * capacity - 1
    place = spread & mask
    while load_half(index, place * 4) != 0:
        place = (place + 1) & mask
    store_half(index, place * 4, ((spread >> 32) & 0xFFFFFFFF & ~mask) | (entry + 1))


def _adder(number: Callable) -> Callable:
    """Return a function that appends a key that the container does not have yet.

    Args:
        number: Compiled: the number by which the index finds the word of a key.
    """

    @compiled
    def make_room(head, arena):
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
            _enter(data, larger, i, _spread(number(key)))
        _close_gaps(head)
        if larger != capacity:
            store_word(head, 0, data)
            store_half(head, CAPACITY, larger)
            store_word(head, TREE, 0)

    @compiled
    def add(head, arena, key, value):
        length = load_half(head, LENGTH)
        place = length + load_half(head, GAPS)
        if place == load_half(head, CAPACITY):
            make_room(head, arena)
            place = length
        data = load_word(head, 0)
        store_word(data, place * 16, key)
        store_word(data, place * 16 + 8, value)
        _enter(data, load_half(head, CAPACITY), place, _spread(number(key)))
        store_half(head, LENGTH, length + 1)

    return add


def _remover(number: Callable) -> Callable:
    """Return a function that removes an entry; `number` as above."""

    @compiled
    def remove(head, arena, entry):
        data, capacity = load_word(head, 0), load_half(head, CAPACITY)
        index, mask = data + capacity * 16, 2 * capacity - 1
        free = _spread(number(load_word(data, entry * 16))) & mask
        while load_half(index, free * 4) & mask != entry + 1:
            free = (free + 1) & mask
        place = (free + 1) & mask
        noted = load_half(index, place * 4)
        while noted != 0:  # it takes the free place unless its own search starts behind that
            start = _spread(number(load_word(data, ((noted & mask) - 1) * 16))) & mask
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

    return remove


_word = compiled(lambda word: word)
_add, _remove = _adder(_word), _remover(_word)
_add_text, _remove_text = _adder(owned.stored_hash), _remover(owned.stored_hash)


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


@compiled
def _disown(head, arena, part):
    """Give the texts of all entries back: of their keys (0) or values (8)."""
    for i in range(load_half(head, LENGTH)):
        owned.disown(arena, load_word(_entry(head, i), part))


@compiled
def _own_key(arena, text):
    return owned.own(arena, text_address(text), len(text), owned.hash_of(text_address(text), len(text)))


@compiled
def _own(arena, text):
    return owned.own(arena, text_address(text), len(text), 0)


@compiled
def _same(arena, bits):
    return bits


def _keys(key):
    """Return compiled functions for keys of this type: find one, make the word of one, add one, remove an entry."""
    if isinstance(key, Text):
        return _find_text, _own_key, _add_text, _remove_text
    return _find_bits, _same, _add, _remove


@compiled
def _find_bits(head, key):
    return _find(head, as_bits(key))


def _seen(kind):
    """Return a compiled function: what an operator sees of the word of a key or value."""
    if isinstance(kind, Text):
        return compiled(lambda word: text_at(word))
    if kind is not None and kind.is_float:
        return compiled(lambda word: as_double(word))
    if kind is not None and kind.name == "boolean":
        return compiled(lambda word: word != 0)
    return compiled(lambda word: word)


def _default(kind):
    """Return a compiled function: the default of a map with such values, as an operator sees it."""
    if isinstance(kind, Text):
        return compiled(lambda default: default)
    if kind.is_float:
        return compiled(lambda default: float(default))
    if kind.name == "boolean":
        return compiled(lambda default: default != 0)
    return compiled(lambda default: as_bits(default))


def _fitting(scalar, field: str):
    """Return a compiled check that a key or value fits its declared type; it returns the bits, or the text."""
    if isinstance(scalar, Text):
        return compiled(lambda text: text)
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
    find, _, _, _ = _keys(container.item)
    return lambda x, container: find(_head(container), x) >= 0


@overload_method(GrowingType, "clear")
def _clear_all(container):
    indexed = container.kind is not TopK
    keys, values = (isinstance(kind, Text) for kind in (container.item, container.value))

    def clear(container):
        if keys:
            _disown(_head(container), _arena(container), 0)
        if values:
            _disown(_head(container), _arena(container), 8)
        _clear(_head(container), indexed)

    return clear


@overload_method(GrowingType, "remove")
def _remove_key(container, key):
    if container.kind is TopK:
        return None
    find, _, _, remove_entry = _keys(container.item)
    keys, values = (isinstance(kind, Text) for kind in (container.item, container.value))

    def remove(container, key):
        entry = find(_head(container), key)
        if entry < 0:
            return False
        place = load_word(_head(container), 0) + entry * 16
        if keys:
            owned.disown(_arena(container), load_word(place, 0))
        if values:
            owned.disown(_arena(container), load_word(place, 8))
        remove_entry(_head(container), _arena(container), entry)
        return True

    return remove


@overload_method(GrowingType, "add")
def _add_key(container, key, count=None):
    fit, (find, own, add_new, _) = _fitting(container.item, container.field), _keys(container.item)
    if container.kind is Set:

        def add(container, key, count=None):
            bits = fit(key)
            if find(_head(container), bits) >= 0:
                return False
            add_new(_head(container), _arena(container), own(_arena(container), bits), 0)
            return True

        return add
    if container.kind is Counter:

        def count_up(container, key, count=None):
            bits = fit(key)
            entry = find(_head(container), bits)
            if entry < 0:
                add_new(_head(container), _arena(container), own(_arena(container), bits), as_bits(count))
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
    find, own, add, _ = _keys(container.item)
    if isinstance(container.value, Text):

        def put_text(container, key, value):
            bits = fit(key)
            entry = find(_head(container), bits)
            if entry < 0:
                worth = _own(_arena(container), value)
                add(_head(container), _arena(container), own(_arena(container), bits), worth)
            else:
                place = load_word(_head(container), 0) + entry * 16 + 8
                owned.assign(_arena(container), place, text_address(value), len(value))

        return put_text

    def put(container, key, value):
        bits = fit(key)
        worth = fit_value(value)
        entry = find(_head(container), bits)
        if entry < 0:
            add(_head(container), _arena(container), own(_arena(container), bits), worth)
        else:
            store_word(load_word(_head(container), 0), entry * 16 + 8, worth)

    return put


@overload_method(GrowingType, "get")
def _get(container, key, default=None):
    if container.kind not in (Map, Counter):
        return None
    find, _, _, _ = _keys(container.item)
    if container.kind is Counter:

        def count_of(container, key, default=None):
            entry = find(_head(container), key)
            return load_word(load_word(_head(container), 0), entry * 16 + 8) if entry >= 0 else 0

        return count_of
    seen, default_as = _seen(container.value), _default(container.value)

    def value_of(container, key, default=None):
        entry = find(_head(container), key)
        if entry >= 0:
            return seen(load_word(load_word(_head(container), 0), entry * 16 + 8))
        return default_as(default)

    return value_of


@overload_method(GrowingType, "offer")
def _offer_key(container, key, score):
    if container.kind is not TopK:
        return None
    capacity = container.count
    return lambda container, key, score: _offer(
        _head(container), _arena(container), capacity, as_bits(key), as_bits(score)
    )


def _key(container, i):
    seen = _seen(container.item if isinstance(container.item, Text) else None)
    return lambda container, i: seen(load_word(_entry(_head(container), i), 0))


def _value(container, i):
    seen = _seen(container.value)
    return lambda container, i: seen(load_word(_entry(_head(container), i), 8))


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
