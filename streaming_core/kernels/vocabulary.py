"""The vocabulary of the translator: words by name (dialect.py)."""

from __future__ import annotations

from streaming_core.kernels import arithmetic, containers, emitter, queue, texts, transaction, values

assert containers  # imported for the methods it registers

WORDS = {
    "_set_field": values.set_field,
    "_set_item": values.set_item,
    "_set_optional": values.set_optional,
    "_raw": values.raw,
    "_valid": values.valid,
    "_zero": values.zero,
    "_text": texts.literal,
    "_text_slice": values.text_slice,
    "_text_part": texts.text_part,
    "_part_end": texts.part_end,
    "_blank_end": texts.blank_end,
    "_word_end": texts.word_end,
    "_decimal": texts.decimal,
    "_among": texts.among,
    "_floordiv": arithmetic.floordiv,
    "_modulo": arithmetic.modulo,
    "_shift_left": arithmetic.shift_left,
    "_shift_right": arithmetic.shift_right,
    "_to_integer": arithmetic.to_integer,
    "_to_float": arithmetic.to_float,
    "_invert": arithmetic.invert,
    "_contains": arithmetic.contains,
    "_queue_append": queue.queue_append,
    "_queue_at": queue.queue_at,
    "_emit": emitter.emit,
    "_drop": emitter.drop,
    "_txn_row": transaction.txn_row,
    "_txn_require": transaction.txn_require,
    "_txn_request": transaction.txn_request,
    "_txn_hold": transaction.txn_hold,
    "_txn_modify": transaction.txn_modify,
    "_txn_read": transaction.txn_read,
    "_txn_result": transaction.txn_result,
}
