"""Texts that states own: fields, and the parts of containers (runtime/ABI.md, section Texts).

Such a text is a word: the address of a block `{length: u32, hash: u32, bytes}`, or 0 if the text is empty. Each block
belongs to one word. The hash is that of keys; other texts leave it 0. The size of a block is a power of two that
follows from the length, so the runtime can move texts, too.

A block whose text is replaced or removed *waits* until the function of the operator has returned, because variables may
refer to it. Then it is free for the next text of its size. So the memory of texts is bounded by the most that a state
has held of each size. The second word of an arena is the address of its lists: the waiting blocks, then the free blocks
of each size. A block in a list has the address of the next one in its last word, which is never the text's.
"""

from __future__ import annotations

from numba import njit

from streaming_core.kernels import abi
from streaming_core.kernels.memory import (
    allocate,
    copy_bytes,
    load_half,
    load_word,
    same_bytes,
    store_half,
    store_word,
)

HEAD = 8  # bytes of a block before the text
_READABLE = 16  # bytes at least behind it: searches read sixteen at a time
SMALLEST = 32
_SIZES = 32  # of blocks: the largest has room for any text
compiled = njit(error_model="python", no_cpython_wrapper=True, no_cfunc_wrapper=True)


@compiled
def _size(length):
    """Return the bytes of a block for a text of so many bytes, and the offset of the list of such free blocks."""
    size, place = SMALLEST, 8
    while size < length + HEAD + _READABLE:
        size, place = 2 * size, place + 8
    return size, place


@compiled
def own(arena, address, length, spread):
    """Return the word of a new text, a copy of these bytes; `spread`: its hash if it is a key, else 0."""
    if length == 0:
        return 0
    size, place = _size(length)
    lists = load_word(arena, abi.ARENA_TEXTS)
    block = load_word(lists, place) if lists != 0 else 0
    if block != 0:
        store_word(lists, place, load_word(block, size - 8))
    else:
        block = allocate(arena, size)
    store_half(block, 0, length)
    store_half(block, 4, spread)
    copy_bytes(block + HEAD, address, length)
    return block


@compiled
def disown(arena, word):
    """Let the block of a text wait until it is free."""
    if word != 0:
        lists = load_word(arena, abi.ARENA_TEXTS)
        if lists == 0:
            lists = allocate(arena, 8 + 8 * _SIZES)
            store_word(arena, abi.ARENA_TEXTS, lists)
        size, _ = _size(load_half(word, 0))
        store_word(word, size - 8, load_word(lists, 0))
        store_word(lists, 0, word)


@compiled
def settle(arena):
    """Free the waiting blocks: no variable refers to them any more."""
    lists = load_word(arena, abi.ARENA_TEXTS)
    if lists == 0:
        return
    block = load_word(lists, 0)
    store_word(lists, 0, 0)
    while block != 0:
        size, place = _size(load_half(block, 0))
        following = load_word(block, size - 8)
        store_word(block, size - 8, load_word(lists, place))
        store_word(lists, place, block)
        block = following


@compiled
def equals(word, address, length):
    """Whether a text has these bytes."""
    if word == 0 or length == 0:
        return word == length
    return load_half(word, 0) == length and same_bytes(word + HEAD, address, length)


@compiled
def assign(arena, place, address, length):
    """Replace the text whose word is at `place`."""
    word = load_word(place, 0)
    if not equals(word, address, length):
        store_word(place, 0, own(arena, address, length, 0))
        disown(arena, word)


@compiled
def hash_of(address, length):
    """Return the hash of a text as a key, in 32 bits; that of the empty text is 0."""
    mixed = length
    at = 0
    while at < length:
        word = load_word(address, at)
        if length - at < 8:
            word &= (1 << 8 * (length - at)) - 1
        mixed = (mixed ^ word) * -7046029254386353131
        mixed ^= (mixed >> 32) & 0xFFFFFFFF
        at += 8
    return mixed & 0xFFFFFFFF


@compiled
def stored_hash(word):
    """Return the hash that a key holds."""
    return load_half(word, 4) if word != 0 else 0
