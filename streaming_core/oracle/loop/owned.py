"""Texts that states own: fields, and the parts of containers.

Such a text is the address of a block {number: word, length: word, bytes}, or 0 if the text is empty. A block has
32 << number bytes, at least 16 of them behind the text. A block whose text is gone waits until the next row, because
variables may refer to it. Then it is free. Blocks in a list have the address of the next one in place of the length.
"""

from __future__ import annotations

from streaming_core.oracle.loop.layout import FREE, WAITING
from streaming_core.oracle.loop.machine import compiled
from streaming_core.oracle.loop.memory import arena, copy_bytes, get, put

HEAD = 16


@compiled
def text_own(ctx, text):
    """A copy of a text."""
    address, length = text
    if length == 0:
        return 0
    number = 0
    while (32 << number) < length + HEAD + 16:
        number += 1
    block = get(ctx + FREE + 8 * number)
    if block == 0:
        block = arena(ctx, 32 << number)
        put(block, number)
    else:
        put(ctx + FREE + 8 * number, get(block + 8))
    put(block + 8, length)
    copy_bytes(block + HEAD, address, length)
    return block


@compiled
def text_disown(ctx, block):
    """Gives a text back; -1 is none."""
    if block > 0:
        put(block + 8, get(ctx + WAITING))
        put(ctx + WAITING, block)


@compiled
def text_settle(ctx):
    """Frees the blocks that wait."""
    block = get(ctx + WAITING)
    put(ctx + WAITING, 0)
    while block != 0:
        following, list_ = get(block + 8), ctx + FREE + 8 * get(block)
        put(block + 8, get(list_))
        put(list_, block)
        block = following


@compiled
def text_seen(ctx, block):
    """The text as operators see it: address and length."""
    return (block + HEAD, get(block + 8)) if block != 0 else (ctx, 0)


@compiled
def text_put(ctx, place, text):
    """Replaces the text at a place."""
    old = get(place)
    put(place, text_own(ctx, text))
    text_disown(ctx, old)
