"""Maps from keys to states: open addressing, linear probing, at most half full, fixed seed."""

from __future__ import annotations

from numba import types

from streaming_core.oracle.loop.layout import ENTRIES, ENTRY, INSIDE, MASK, PACKED, PACKED_BYTES, SITE, STATE, USED
from streaming_core.oracle.loop.machine import compiled
from streaming_core.oracle.loop.memory import (
    allocate,
    arena,
    copy_bytes,
    get,
    get_u8,
    get_u64,
    put,
    put_u8,
    put_u64,
    release,
)
from streaming_core.oracle.loop.text import same_bytes, text_word


@compiled
def mix(word):
    """A good 64-bit hash of a word."""
    h = (word ^ types.uint64(0x51A7B0C4D9E8F263)) * types.uint64(0x9FB21C651E98DF25)
    return h ^ (h >> types.uint64(32))


@compiled
def map_open(table, state_size, key_words):
    """An empty map; an entry is key words, then the state, or its address when it is large."""
    inside = state_size <= 64
    put(table + STATE, state_size)
    put(table + INSIDE, 1 if inside else 0)
    put(table + ENTRY, 8 * key_words + (state_size if inside else 8))
    put(table + MASK, 63)
    put(table + ENTRIES, allocate(table, 64 * get(table + ENTRY)))
    return 0


@compiled
def _fresh(ctx, table, entry, key_bytes):
    """The state of a new entry."""
    put(table + USED, get(table + USED) + 1)
    if get(table + INSIDE) != 0:
        return entry + key_bytes
    state = arena(ctx, get(table + STATE))
    put(entry + key_bytes, state)
    return state


@compiled
def integer_state(ctx, table, key):
    """The state of an integer key, zero when it is new. Valid until the next key is looked up."""
    mask, size = get(table + MASK), get(table + ENTRY)
    entries = get(table + ENTRIES)
    place = types.int64(mix(types.uint64(key))) & mask
    while True:
        entry = entries + place * size
        if get(entry + 8) == 0:
            break
        if get(entry) == key:
            return entry + 16 if get(table + INSIDE) != 0 else get(entry + 16)
        place = (place + 1) & mask
    if 2 * (get(table + USED) + 1) > mask + 1:
        larger_integer_map(table)
        mask = get(table + MASK)
        place = types.int64(mix(types.uint64(key))) & mask
        while get(get(table + ENTRIES) + place * size + 8) != 0:
            place = (place + 1) & mask
        entry = get(table + ENTRIES) + place * size
    put(entry, key)
    put(entry + 8, 1)
    return _fresh(ctx, table, entry, 16)


@compiled
def larger_integer_map(table):
    """Twice the entries."""
    mask, size, old = get(table + MASK), get(table + ENTRY), get(table + ENTRIES)
    wide = 2 * mask + 1
    entries = allocate(table, (wide + 1) * size)
    for i in range(mask + 1):
        entry = old + i * size
        if get(entry + 8) != 0:
            place = types.int64(mix(types.uint64(get(entry)))) & wide
            while get(entries + place * size + 8) != 0:
                place = (place + 1) & wide
            copy_bytes(entries + place * size, entry, size)
    release(old)
    put(table + ENTRIES, entries)
    put(table + MASK, wide)


@compiled
def short_hash(first, second, length):
    """Hash of a text of up to 16 bytes."""
    return mix(first ^ types.uint64(length) ^ (second * types.uint64(0xC2B2AE3D27D4EB4F)))


@compiled
def text_hash(address, length):
    """Hash of a text: its words, the last one padded with zeros, and its length."""
    if length <= 16:
        return types.int64(short_hash(text_word(address, length), text_word(address + 8, length - 8), length))
    h = mix(text_word(address, length) ^ types.uint64(length))
    at = 8
    while at < length:
        h = mix(h ^ text_word(address + at, length - at))
        at += 8
    return types.int64(h)


# An entry: length + 1, first word, second word (texts of up to 16 bytes) or the address of the key's copy.


@compiled
def text_state(ctx, table, text):
    """The state of a text key, zero when it is new. Valid until the next key is looked up."""
    address, length = text
    mask, size = get(table + MASK), get(table + ENTRY)
    entries = get(table + ENTRIES)
    first = text_word(address, length)
    second = text_word(address + 8, length - 8)
    h = types.int64(short_hash(first, second, length)) if length <= 16 else text_hash(address, length)
    place = h & mask
    while True:
        entry = entries + place * size
        marked = get(entry)
        if marked == 0:
            break
        if marked == length + 1 and get_u64(entry + 8) == first:
            same = get_u64(entry + 16) == second if length <= 16 else same_bytes(get(entry + 16), address, length)
            if same:
                return entry + 24 if get(table + INSIDE) != 0 else get(entry + 24)
        place = (place + 1) & mask
    if 2 * (get(table + USED) + 1) > mask + 1:
        larger_text_map(table)
        mask = get(table + MASK)
        place = text_hash(address, length) & mask
        while get(get(table + ENTRIES) + place * size) != 0:
            place = (place + 1) & mask
        entry = get(table + ENTRIES) + place * size
    put(entry, length + 1)
    put_u64(entry + 8, first)
    if length <= 16:
        put_u64(entry + 16, second)
    else:
        key = arena(ctx, length + 8)
        copy_bytes(key, address, length)
        put(entry + 16, key)
    return _fresh(ctx, table, entry, 24)


# A key of several fields is packed into a text, which orders keys as their fields do. An integer has eight bytes, the
# highest first, and the least integer is 0. A text ends with a byte 0. Its bytes 0 and 1 become the pairs 1 1 and 1 2.


@compiled
def packed_room(table, size):
    """Room for a packed key of this size."""
    if size + 64 > get(table + PACKED_BYTES):
        release(get(table + PACKED))
        put(table + PACKED, allocate(table, 2 * (size + 64)))
        put(table + PACKED_BYTES, 2 * (size + 64))
    return get(table + PACKED)


@compiled
def pack_integer(at, value):
    """Packs an integer; returns the place behind it."""
    word = types.uint64(value) ^ (types.uint64(1) << types.uint64(63))
    for i in range(8):
        put_u8(at + i, types.int64((word >> types.uint64(56 - 8 * i)) & types.uint64(255)))
    return at + 8


@compiled
def pack_text(at, text):
    """Packs a text; returns the place behind it."""
    for i in range(text[1]):
        byte = get_u8(text[0] + i)
        if byte <= 1:
            put_u8(at, 1)
            at += 1
            byte += 1
        put_u8(at, byte)
        at += 1
    put_u8(at, 0)
    return at + 1


# The index of a table is a map whose states are words: the number of a row, and 1.


@compiled
def _row(ctx, table, word, most, site):
    """The row that `word` holds for a key; a new one if there are at most `most` rows then."""
    row = get(word)
    if row == 0:
        if most == 0:
            put(ctx + SITE, 16 * site + 10)
            raise KeyError("the table has no row with this key")
        row = get(table + USED)
        if row > most:
            put(ctx + SITE, 16 * site + 11)
            raise OverflowError("the table is full")
        put(word, row)
    return row - 1


@compiled
def integer_row(ctx, table, key, most, site):
    """The row of an integer key. `most` is the largest number of rows if keys are inserted, else 0."""
    return _row(ctx, table, integer_state(ctx, table, key), most, site)


@compiled
def text_row(ctx, table, text, most, site):
    """The row of a text key, as `integer_row`."""
    return _row(ctx, table, text_state(ctx, table, text), most, site)


@compiled
def enter_integers(ctx, table, keys, count):
    """Assigns the rows from 0 on to these keys."""
    for i in range(count):
        put(integer_state(ctx, table, get(keys + 8 * i)), i + 1)
    return 0


@compiled
def enter_texts(ctx, table, bytes_, offsets, count):
    """The same for texts; `offsets` are the begins of the keys, and the end of the last one."""
    for i in range(count):
        at = get(offsets + 8 * i)
        put(text_state(ctx, table, (bytes_ + at, get(offsets + 8 * i + 8) - at)), i + 1)
    return 0


@compiled
def text_key(entry):
    """Address and length of an entry's key."""
    length = get(entry) - 1
    return (entry + 8 if length <= 16 else get(entry + 16)), length


@compiled
def larger_text_map(table):
    """Twice the entries."""
    mask, size, old = get(table + MASK), get(table + ENTRY), get(table + ENTRIES)
    wide = 2 * mask + 1
    entries = allocate(table, (wide + 1) * size)
    for i in range(mask + 1):
        entry = old + i * size
        if get(entry) != 0:
            address, length = text_key(entry)
            place = text_hash(address, length) & wide
            while get(entries + place * size) != 0:
                place = (place + 1) & wide
            copy_bytes(entries + place * size, entry, size)
    release(old)
    put(table + ENTRIES, entries)
    put(table + MASK, wide)


@compiled
def entries_in_use(table, marker, addresses):
    """Writes the address of every entry in use; `marker`: offset of the word that is not zero then."""
    count, size, entries = 0, get(table + ENTRY), get(table + ENTRIES)
    for i in range(get(table + MASK) + 1):
        entry = entries + i * size
        if get(entry + marker) != 0:
            put(addresses + 8 * count, entry)
            count += 1
    return count


@compiled
def copy_states(table, addresses, count, key_bytes, states):
    """Copies the states of these entries, one behind the other."""
    size = get(table + STATE)
    for i in range(count):
        inside = get(addresses + 8 * i) + key_bytes
        copy_bytes(states + i * size, inside if get(table + INSIDE) != 0 else get(inside), size)
    return 0


@compiled
def copy_text_keys(addresses, count, offsets, target):
    """Lengths into `offsets` (running sum); with `target` != 0 also the keys' bytes."""
    total = 0
    for i in range(count):
        key, length = text_key(get(addresses + 8 * i))
        if target != 0:
            copy_bytes(target + total, key, length)
        put(offsets + 8 * i, total)
        total += length
    put(offsets + 8 * count, total)
    return total


@compiled
def copy_integer_keys(addresses, count, keys):
    """The integer keys of these entries."""
    for i in range(count):
        put(keys + 8 * i, get(get(addresses + 8 * i)))
    return 0
