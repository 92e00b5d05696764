"""Where things lie in the blocks of memory that the loop works on: offsets, in bytes."""

# The context's words.
(
    SEQ, TEXT, SITE, REJECTED, RESULTS, READS, ARENA, ARENA_LIMIT, ARENA_CHUNKS, DIGEST, ROWS, SUBS, SUBS_CAPACITY,
    RESULT_CAPACITY, COUNT, HOLDS, LAST, NEXT_SUB,
) = range(0, 144, 8)  # fmt: skip
HEAD_BYTES = 192
# An emitter's words: where the next row goes, end and begin of the buffer, inputs dropped.
NEXT, LIMIT, BEGIN, DROPPED = 0, 8, 16, 24
EMITTER_BYTES = 64  # one to a cache line
END_OF_TIME = (1 << 63) - 1  # later than any seq
# A map's words: entries, number of entries - 1, entries in use, bytes of an entry, bytes of a state, 1 = state inside.
ENTRIES, MASK, USED, ENTRY, STATE, INSIDE = 0, 8, 16, 24, 32, 40
MAP_BYTES = 48
