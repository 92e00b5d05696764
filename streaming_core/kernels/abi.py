"""The C ABI of kernels: offsets of the fields of the runtime's structs, in bytes.

`runtime/ABI.md` says what they mean. A test compares them with those that the runtime reports (`_runtime.abi()`,
tests/streaming_core/kernels/test_abi.py). No other module of kernels contains an offset.
"""

from __future__ import annotations

# The runtime's struct, by the prefix of its constants.
STRUCTS = {
    "EMITTER": "Emitter",
    "ARENA": "ArenaHeader",
    "ACCESS": "Access",
    "INDEX": "IndexHeader",
    "BATCH": "BatchContext",
    "WINDOW": "WindowContext",
    "ENTRY": "EntryHeader",
    "BEFORE": "BeforeEntry",
    "PLAN": "PlanContext",
    "APPLY": "ApplyContext",
    "POST": "PostContext",
    "EXECUTE": "ExecuteContext",
    "PLACE": "PlaceContext",
}

EMITTER_ROWS = 0
EMITTER_LEN = 8
EMITTER_CAP = 16
EMITTER_GROW = 24
EMITTER_ORIGIN = 32
EMITTER_DROPPED = 40
EMITTER_HOME = 56

ARENA_ALLOC = 0
ARENA_TEXTS = 8

# Kernels write and read two words: event and row, and the other fields.
ACCESS_EVENT = 0
ACCESS_ROW = 4
ACCESS_SLOT = 8
ACCESS_FUNCTION = 12
ACCESS_TABLE = 14
ACCESS_KIND = 15
ACCESS_SIZE = 16

INDEX_FIND = 0

BATCH_ROWS = 0
BATCH_N = 8
BATCH_PLACES = 16
BATCH_STATES = 24
BATCH_TEXT = 32
BATCH_EMITTER = 40
BATCH_ARENA = 48
BATCH_SEQ = 56
BATCH_ERROR_AT = 64
BATCH_ERROR = 72

WINDOW_ROWS = 0
WINDOW_N = 8
WINDOW_ENTRIES = 16
WINDOW_STARTS = 24
WINDOW_SPAN = 32
WINDOW_TEXT = 40
WINDOW_EMITTER = 48
WINDOW_SEQ = 56
WINDOW_ERROR_AT = 64
WINDOW_ERROR = 72

ENTRY_SIZE = 16  # the fields of the key follow

# The struct before an entry ends where the entry begins.
BEFORE_START = 8
BEFORE_ARENA = 32
BEFORE_SIZE = 40

PLAN_ROWS = 0
PLAN_BEGIN = 8
PLAN_END = 16
PLAN_TEXT = 24
PLAN_ACCESSES = 32
PLAN_LEN = 40
PLAN_CAP = 48
PLAN_GROW = 56
PLAN_DECISIONS = 64
PLAN_RESULTS = 72
PLAN_FIRST = 80
PLAN_NEXT = 88
PLAN_LIMIT = 96
PLAN_MORE = 104
PLAN_CAPTURES = 112
PLAN_DROPPED = 120
PLAN_ERROR_AT = 128
PLAN_ERROR = 136
PLAN_INDEXES = 160
PLAN_LOOKUPS = 168

APPLY_ROWS = 0
APPLY_TEXT = 8
APPLY_ACCESSES = 16
APPLY_N = 24
APPLY_TABLES = 32
APPLY_DECISIONS = 40
APPLY_RESULTS = 48
APPLY_CAPTURES = 56
APPLY_ARENA = 64
APPLY_DONE = 72
APPLY_SHARED = 80
APPLY_ERROR_AT = 88
APPLY_ERROR = 96

POST_ROWS = 0
POST_BEGIN = 8
POST_END = 16
POST_TEXT = 24
POST_DECISIONS = 32
POST_RESULTS = 40
POST_EMITTER = 48
POST_REJECTED = 56
POST_ERROR_AT = 64
POST_ERROR = 72

EXECUTE_ROWS = 0
EXECUTE_BEGIN = 8
EXECUTE_END = 16
EXECUTE_TEXT = 24
EXECUTE_TABLES = 32
EXECUTE_ARENA = 40
EXECUTE_EMITTER = 48
EXECUTE_RESULTS = 56
EXECUTE_CAPACITY = 64
EXECUTE_MORE = 72
EXECUTE_DROPPED = 80
EXECUTE_REJECTED = 88
EXECUTE_ERROR_AT = 96
EXECUTE_ERROR = 104
EXECUTE_SELECTION = 120
EXECUTE_INDEXES = 128
EXECUTE_LOOKUPS = 136

PLACE_ROWS = 0
PLACE_BEGIN = 8
PLACE_END = 16
PLACE_TEXT = 24
PLACE_PLACES = 32
PLACE_ERROR_AT = 40
PLACE_ERROR = 48
PLACE_INDEXES = 64
PLACE_LOOKUPS = 72

# Kinds of accesses; a CAPTURE adds the number of the row within its condition.
CONDITION, MODIFY, READ, CAPTURE = 0, 1, 2, 3

# The bits of a decision: conditions still to evaluate, conditions that failed, and whether the event is invalid.
PENDING, FAILED, DROPPED = 0xFFFF, 0x3FFF0000, 1 << 31
SELECTION_AHEAD = 8  # entries of a selection that a kernel may read beyond its end

# What an index returns in place of a row, negated: no row has the key, every row has another key, memory ran out.
ABSENT, FULL, NO_MEMORY = 1, 2, 3

TEXT_PADDING = 64  # readable bytes behind every text

# The table of the functions that build texts and convert them to numbers: its symbol, and their numbers.
TEXT_FUNCTIONS = "lockstep_text_functions"
TEXT_CONCAT, TEXT_LOWER, TEXT_UPPER, TEXT_DECIMAL, TEXT_INTEGER, TEXT_FLOAT, TEXT_RELEASE = range(7)
# The error of every kernel that builds texts or emits others than those of its block.
NO_ROOM = "no room for texts"
