"""The layout of the blocks of memory that the loop works on: offsets, in bytes.

NEXT_TEXT is the end of the batch's texts, where a copy of another text goes. SCRATCH is the begin of the texts that the
present event builds, and SCRATCH_AT their end. WAITING and FREE are lists (owned.py). The windowed words serve
panes.py.
"""

# The context's words.
(
    SEQ, TEXT, SITE, REJECTED, RESULTS, READS, ARENA, ARENA_LIMIT, DIGEST, ROWS, SUBS, SUBS_CAPACITY,
    RESULT_CAPACITY, COUNT, HOLDS, LAST, NEXT_SUB, NEXT_TEXT, COPIES, TAKEN, SCRATCH, SCRATCH_AT, WAITING, FREE,
) = range(0, 192, 8)  # fmt: skip
SIZES = 32  # words of FREE
HEAD_BYTES = 448
# Words that belong to the process or to the present batch, not to the state.
PASSING = (
    TEXT, SITE, RESULTS, RESULT_CAPACITY, DIGEST, ROWS, SUBS, SUBS_CAPACITY, COUNT, NEXT_TEXT, SCRATCH, SCRATCH_AT,
)  # fmt: skip
# An emitter's words: where the next row goes, end and begin of the buffer, inputs dropped.
NEXT, LIMIT, BEGIN, DROPPED = 0, 8, 16, 24
EMITTER_BYTES = 64  # one to a cache line
END_OF_TIME = (1 << 63) - 1  # later than any seq
# A map's words: entries, number of entries - 1, entries in use, bytes of an entry, bytes of a state, 1 = state inside.
# Then room for a key of several fields, and its bytes.
ENTRIES, MASK, USED, ENTRY, STATE, INSIDE, PACKED, PACKED_BYTES = range(0, 64, 8)
MAP_BYTES = 64
# A windowed operator's words, in order:
# - advance, size, delay, idle (-1: none), number of keys that every row has
# - list of open windows and their panes, its room
# - earliest window that the watermark leaves open, number of late rows
# - number of open windows, position of the first one in the list
# - a row's keys, their room, their number
# - table of entries, and the list of them
# - entries that expire, in order, and their room; counts by key group
# - stamps of a row's keys, the last slot, the stamp
# - heap of sessions, its room, number of sessions, number of all sessions so far
(
    W_ADVANCE, W_SIZE, W_DELAY, W_IDLE, W_EVERY, W_PANES, W_ROOM, W_LEAST, W_LATE, W_OPEN, W_FIRST, W_KEYS,
    W_KEYS_LIMIT, W_KEYS_COUNT, W_TABLE, _, _, W_HEAD, W_TAIL, W_SORTED, W_SORTED_LIMIT, W_COUNTS, W_STAMPS,
    W_STAMPS_MASK, W_STAMP, W_SESSIONS, W_SESSIONS_ROOM, W_SESSIONS_COUNT, W_TOUCHED,
) = range(0, 232, 8)  # fmt: skip
WINDOWS_BYTES = 232
# A word for each stream follows: its mark, the highest `ts` of its rows.
NO_TIME = -(1 << 63)  # before any ts
# A table's words: slots, the last slot, slots in use.
T_SLOTS, T_MASK, T_USED = 0, 8, 16
# A pane's words: a table first; entries in the order in which they were touched, how many; memory.
P_HEAD, P_TAIL, P_COUNT, P_CHUNKS, P_AT, P_LIMIT = range(24, 72, 8)
PANE_BYTES = 72
# An entry's words, before its key: start and end of its window, hash, key group, neighbours in a list. Then come the
# latest row of its key, and the number of its window. A session has no neighbours: E_PREVIOUS is the number of earlier
# sessions.
E_START, E_END, E_HASH, E_GROUP, E_NEXT, E_PREVIOUS, E_LAST, E_NUMBER, E_KEY = range(0, 72, 8)
FIELD_BYTES = 16  # of a key: an integer, or address and length of a text
# A region's words: where the next block goes, the end, the first free block of each class (memory.py).
REGION, PAGE = 1 << 38, 4096  # bytes; a region begins at a multiple of its size
R_NEXT, R_END, R_FREE = 0, 8, 16
MOST_TEXT = (1 << 32) - 64  # bytes of text that the rows of a batch can refer to
