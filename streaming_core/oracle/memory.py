"""What the compiled loop is made of: raw loads and stores, checks that say where they failed, maps and containers.

Everything is an address (int64). The loop's context is a block of 8-byte words (offsets below); an emitter and a map
are blocks inside it. Memory that grows comes from calloc and is freed with the loop; growing containers take theirs
from an arena that only ever grows.
"""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from streaming_core.api.record import Scalar

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

# What went wrong at a site: the context's SITE word is 16 * site + the place in this list.
ERRORS = (
    "IndexError: index out of range",
    "OverflowError: the value does not fit the field",
    "ZeroDivisionError: division by zero",
    "ZeroDivisionError: integer division by zero",
    "ZeroDivisionError: integer modulo by zero",
    "ZeroDivisionError: float floor division by zero",
    "ZeroDivisionError: float modulo by zero",
    "ValueError: shift count outside 0..63",
    "ValueError: range() arg 3 must not be zero",
    "OverflowError: int() of a float outside 64 bits",
    "IndexError: slice bounds are not negative",
    "IndexError: a search does not start before the text",
    "ValueError: a byte lies in 0..255",
)

OPTIONS = {"error_model": "numpy", "fastmath": False, "boundscheck": False, "nogil": True}
_I8, _I32, _I64, _F64 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.DoubleType()
_PTR = ir.PointerType(_I8)


def compiled(function):
    """njit, with the one set of options."""
    return njit(**OPTIONS)(function)


def internal(function):
    """The same, of a function that only compiled code calls: a face for Python would take time to compile."""
    return njit(**OPTIONS, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)


class Machine:
    """A compiled function `(int64, ...) -> int64` as one piece of machine code.

    numba links what a function calls, but inlines little of it; here everything else becomes internal and the
    optimiser runs once more, free to inline: operators called in one place move into their loop. Calling releases the
    GIL; a Python exception inside becomes `False`.
    """

    def __init__(self, function, arguments: int):
        function.compile((types.int64,) * arguments)
        [result] = function.overloads.values()
        name = result.fndesc.llvm_func_name
        module = result.library._final_module.clone()
        for other in module.functions:
            if not other.is_declaration and other.name != name:
                other.linkage = llvm.Linkage.internal
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = result.library.codegen._tm
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.inlining_threshold = 3000
        llvm.create_pass_builder(target, options).getModulePassManager().run(
            module, llvm.create_pass_builder(target, options)
        )
        host = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
        )
        self._engine = llvm.create_mcjit_compiler(module, host)
        self._engine.finalize_object()
        self._keep = result
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, *[word] * arguments)(
            self._engine.get_function_address(name)
        )

    def __call__(self, *arguments: int) -> bool:
        """Whether it returned instead of raising."""
        value, error = ctypes.c_int64(), ctypes.c_void_p()
        return self._call(ctypes.addressof(value), ctypes.addressof(error), *arguments) == 0


# --- raw memory ------------------------------------------------------------------------------------------------------


def loader(scalar: Scalar):
    """An intrinsic `load(address)` -> int64, float64 or boolean."""
    result = types.float64 if scalar.is_float else types.boolean if scalar.name == "boolean" else types.int64

    @intrinsic
    def load(typingctx, address):
        def codegen(context, builder, signature, args):
            kind = _F64 if scalar.is_float else ir.IntType(scalar.width * 8)
            raw = builder.load(builder.inttoptr(args[0], ir.PointerType(kind)), align=scalar.width)
            if scalar.name == "boolean":
                return builder.icmp_unsigned("!=", raw, raw.type(0))
            if scalar.is_float or scalar.width == 8:
                return raw
            return builder.sext(raw, _I64) if scalar.low < 0 else builder.zext(raw, _I64)

        return result(types.int64), codegen

    return load


def storer(scalar: Scalar):
    """An intrinsic `store(address, value)`; the value has been found to fit."""
    given = types.float64 if scalar.is_float else types.boolean if scalar.name == "boolean" else types.int64

    @intrinsic
    def store(typingctx, address, value):
        def codegen(context, builder, signature, args):
            value = args[1]
            if scalar.name == "boolean":
                value = builder.zext(value, _I8)
            elif not scalar.is_float and scalar.width < 8:
                value = builder.trunc(value, ir.IntType(scalar.width * 8))
            builder.store(value, builder.inttoptr(args[0], ir.PointerType(value.type)), align=scalar.width)
            return context.get_dummy_value()

        return types.none(types.int64, given), codegen

    return store


def _word(scalar_type, unsigned: bool):
    """Loads and stores that need no alignment."""
    seen = types.uint64 if unsigned else types.int64

    @intrinsic
    def load(typingctx, address):
        def codegen(context, builder, signature, args):
            raw = builder.load(builder.inttoptr(args[0], ir.PointerType(scalar_type)), align=1)
            return raw if scalar_type == _I64 else builder.zext(raw, _I64)

        return seen(types.int64), codegen

    @intrinsic
    def store(typingctx, address, value):
        def codegen(context, builder, signature, args):
            value = args[1] if scalar_type == _I64 else builder.trunc(args[1], scalar_type)
            builder.store(value, builder.inttoptr(args[0], ir.PointerType(scalar_type)), align=1)
            return context.get_dummy_value()

        return types.none(types.int64, types.uint64 if unsigned else types.int64), codegen

    return load, store


get, put = _word(_I64, False)
get_u64, put_u64 = _word(_I64, True)
get_u32, put_u32 = _word(_I32, False)
get_u8, put_u8 = _word(_I8, False)


@intrinsic
def float_bits(typingctx, value):
    """The bits of a double, as uint64."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], _I64)

    return types.uint64(types.float64), codegen


@intrinsic
def bits_float(typingctx, value):
    """The double with these bits (int64)."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], _F64)

    return types.float64(types.int64), codegen


def _libc(name: str, arguments: int, returns: bool):
    @intrinsic
    def function(typingctx, a, b):
        def codegen(context, builder, signature, args):
            # calloc(count, size), realloc(block, size), free(block): pointers travel as integers of their width.
            kind = ir.FunctionType(_I64 if returns else ir.VoidType(), [_I64] * arguments)
            target = cgutils.get_or_insert_function(builder.module, kind, name)
            result = builder.call(target, args[:arguments])
            return result if returns else context.get_constant(types.int64, 0)

        return types.int64(types.int64, types.int64), codegen

    return function


_calloc, _realloc, _free = _libc("calloc", 2, True), _libc("realloc", 2, True), _libc("free", 1, False)


@intrinsic
def copy_bytes(typingctx, target, source, size):
    """memcpy."""

    def codegen(context, builder, signature, args):
        cgutils.raw_memcpy(builder, builder.inttoptr(args[0], _PTR), builder.inttoptr(args[1], _PTR), args[2], 1)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), codegen


@intrinsic
def wipe(typingctx, target, size):
    """memset to zero."""

    def codegen(context, builder, signature, args):
        cgutils.memset(builder, builder.inttoptr(args[0], _PTR), args[1], 0)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), codegen


@compiled
def allocate(size):
    """Zeroed memory."""
    block = _calloc(size, 1)
    if block == 0:
        raise MemoryError("out of memory")
    return block


@compiled
def release(block):
    """Gives memory back (0 is fine)."""
    _free(block, 0)


@compiled
def arena(ctx, size):
    """Zeroed memory that lives as long as the loop."""
    size = (size + 15) & ~15
    block = get(ctx + ARENA)
    if block + size > get(ctx + ARENA_LIMIT):
        room = max(size + 16, 1 << 20)
        chunk = allocate(room)
        put(chunk, get(ctx + ARENA_CHUNKS))
        put(ctx + ARENA_CHUNKS, chunk)
        block = chunk + 16
        put(ctx + ARENA_LIMIT, chunk + room)
    put(ctx + ARENA, block + size)
    return block


@compiled
def release_arena(ctx):
    """Frees every chunk."""
    chunk = get(ctx + ARENA_CHUNKS)
    while chunk != 0:
        following = get(chunk)
        release(chunk)
        chunk = following
    put(ctx + ARENA_CHUNKS, 0)


@compiled
def more_rows(emitter, stride):
    """Makes room for at least one more row; returns where it goes."""
    begin = get(emitter + BEGIN)
    used = get(emitter + NEXT) - begin
    room = max(2 * (get(emitter + LIMIT) - begin), 1 << 16, 2 * stride)
    block = _realloc(begin, room)
    if block == 0:
        raise MemoryError("out of memory")
    put(emitter + BEGIN, block)
    put(emitter + LIMIT, block + room)
    put(emitter + NEXT, block + used)
    return block + used


@compiled
def append_rows(emitter, begin, size):
    """Copies `size` bytes of rows behind those that the emitter holds."""
    at = get(emitter + NEXT)
    if at + size > get(emitter + LIMIT):
        at = more_rows(emitter, size)
    copy_bytes(at, begin, size)
    put(emitter + NEXT, at + size)


# --- checks: the site of the failing operation is left in the context -------------------------------------------------


@compiled
def index(ctx, i, length, site):
    """`i` if 0 <= i < length."""
    if i < 0 or i >= length:
        put(ctx + SITE, 16 * site + 0)
        raise IndexError("index out of range")
    return i


@compiled
def fit(ctx, value, low, high, site):
    """`value` if low <= value <= high."""
    if value < low or value > high:
        put(ctx + SITE, 16 * site + 1)
        raise OverflowError("the value does not fit the field")
    return value


@compiled
def divide(ctx, a, b, site):
    """Quotient of two doubles."""
    if b == 0.0:
        put(ctx + SITE, 16 * site + 2)
        raise ZeroDivisionError("division by zero")
    return a / b


@compiled
def floor_divide(ctx, a, b, site):
    """Floor of the quotient of two integers; INT_MIN // -1 wraps around."""
    if b == 0:
        put(ctx + SITE, 16 * site + 3)
        raise ZeroDivisionError("integer division by zero")
    if b == -1:
        return -a
    return a // b


@compiled
def modulo(ctx, a, b, site):
    """Remainder with the sign of the divisor."""
    if b == 0:
        put(ctx + SITE, 16 * site + 4)
        raise ZeroDivisionError("integer modulo by zero")
    if b == -1:
        return 0
    return a % b


@compiled
def float_floor_divide(ctx, a, b, site):
    """Python's `//` of doubles."""
    if b == 0.0:
        put(ctx + SITE, 16 * site + 5)
        raise ZeroDivisionError("float floor division by zero")
    return a // b


@compiled
def float_modulo(ctx, a, b, site):
    """Python's `%` of doubles."""
    if b == 0.0:
        put(ctx + SITE, 16 * site + 6)
        raise ZeroDivisionError("float modulo by zero")
    return a % b


@compiled
def shift_left(ctx, a, b, site):
    """`a << b` modulo 2^64."""
    if b < 0 or b > 63:
        put(ctx + SITE, 16 * site + 7)
        raise ValueError("shift count outside 0..63")
    return a << b


@compiled
def shift_right(ctx, a, b, site):
    """`a >> b` with sign."""
    if b < 0 or b > 63:
        put(ctx + SITE, 16 * site + 7)
        raise ValueError("shift count outside 0..63")
    return a >> b


@compiled
def step(ctx, value, site):
    """The step of a range, which is not zero."""
    if value == 0:
        put(ctx + SITE, 16 * site + 8)
        raise ValueError("range() arg 3 must not be zero")
    return value


@compiled
def truncate(ctx, value, site):
    """`int(value)`."""
    if not (value >= -9223372036854775808.0 and value < 9223372036854775808.0):
        put(ctx + SITE, 16 * site + 9)
        raise OverflowError("int() of a float outside 64 bits")
    return types.int64(value)


# --- text: (address, length), with 64 readable bytes behind every buffer ----------------------------------------------


@compiled
def text_item(ctx, text, i, site):
    """The byte at i."""
    return get_u8(text[0] + index(ctx, i, text[1], site))


@compiled
def text_slice(ctx, text, low, high, site):
    """`text[low:high]`."""
    if low < 0 or high < 0:
        put(ctx + SITE, 16 * site + 10)
        raise IndexError("slice bounds are not negative")
    low = min(low, text[1])
    high = max(low, min(high, text[1]))
    return (text[0] + low, high - low)


@intrinsic
def find_in_16(typingctx, address, byte):
    """Position of the first `byte` among the 16 bytes at an address; 16 or more when it is not there."""

    def codegen(context, builder, signature, args):
        lanes = ir.VectorType(_I8, 16)
        here = builder.load(builder.inttoptr(args[0], ir.PointerType(lanes)), align=1)
        wanted = builder.insert_element(ir.Constant(lanes, ir.Undefined), builder.trunc(args[1], _I8), _I32(0))
        spread = ir.Constant(ir.VectorType(_I32, 16), [0] * 16)
        wanted = builder.shuffle_vector(wanted, ir.Constant(lanes, ir.Undefined), spread)
        bits = builder.bitcast(builder.icmp_unsigned("==", here, wanted), ir.IntType(16))
        return builder.cttz(builder.or_(builder.zext(bits, _I64), _I64(1 << 16)), ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64, types.int64), codegen


@compiled
def text_find(ctx, text, byte, start, site):
    """Position of the first `byte` at or after start, or -1: sixteen bytes at a time."""
    if start < 0:
        put(ctx + SITE, 16 * site + 11)
        raise IndexError("a search does not start before the text")
    if byte < 0 or byte > 255:
        put(ctx + SITE, 16 * site + 12)
        raise ValueError("a byte lies in 0..255")
    at = start
    while at < text[1]:
        found = find_in_16(text[0] + at, byte)
        if found < 16:
            return at + found if at + found < text[1] else -1
        at += 16
    return -1


@compiled
def text_word(address, length):
    """The first min(8, length) bytes as a number, the others zero."""
    # No branches: lengths of words cannot be predicted.
    bits = types.uint64(8 * max(0, min(8, length)))
    partial = (types.uint64(1) << (bits & types.uint64(63))) - types.uint64(1)
    return get_u64(address) & (~types.uint64(0) if bits == types.uint64(64) else partial)


@compiled
def same_bytes(a, b, length):
    """Whether two runs of bytes are equal."""
    at = 0
    while at < length:
        if text_word(a + at, length - at) != text_word(b + at, length - at):
            return False
        at += 8
    return True


@compiled
def text_equal(one, other):
    """Whether two texts are equal."""
    return one[1] == other[1] and same_bytes(one[0], other[0], one[1])


# --- maps from keys to states: open addressing, linear probing, at most half full, fixed seed ------------------------


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
    put(table + ENTRIES, allocate(64 * get(table + ENTRY)))


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
    entries = allocate((wide + 1) * size)
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
    entries = allocate((wide + 1) * size)
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
            addresses[count] = entry
            count += 1
    return count


@compiled
def copy_states(table, addresses, key_bytes, states):
    """Copies the states of these entries, one behind the other."""
    size = get(table + STATE)
    for i in range(addresses.size):
        inside = addresses[i] + key_bytes
        copy_bytes(states + i * size, inside if get(table + INSIDE) != 0 else get(inside), size)


@compiled
def copy_text_keys(addresses, offsets, target):
    """Lengths into `offsets` (running sum); with `target` != 0 also the keys' bytes."""
    total = 0
    for i in range(addresses.size):
        key, length = text_key(addresses[i])
        if target != 0:
            copy_bytes(target + total, key, length)
        offsets[i] = total
        total += length
    offsets[addresses.size] = total
    return total


@compiled
def copy_integer_keys(addresses, keys):
    """The integer keys of these entries."""
    for i in range(addresses.size):
        keys[i] = get(addresses[i])


# --- ring: {head: u32, length: u32, items} ----------------------------------------------------------------------------


@compiled
def ring_slot(ring, capacity):
    """Makes room for one more item; returns its position."""
    head, length = get_u32(ring), get_u32(ring + 4)
    if length < capacity:
        put_u32(ring + 4, length + 1)
        place = head + length
        return place - capacity if place >= capacity else place
    put_u32(ring, head + 1 if head + 1 < capacity else 0)
    return head


@compiled
def ring_item(ctx, ring, i, capacity, site):
    """Position of the i-th oldest item."""
    place = get_u32(ring) + index(ctx, i, get_u32(ring + 4), site)
    return place - capacity if place >= capacity else place


# --- growing containers: {items: address, length: u32, capacity: u32, places: address, 8 spare} -----------------------
# Items are pairs (key, value) of 8 bytes each, in insertion order (top-k: in rank order); from 16 items on, `places`
# is a hash table of twice the capacity that holds positions + 1.

_INDEXED = 16


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
        found = get_u32(places + 4 * place) - 1
        if found < 0 or get(items + 16 * found) == key:
            return found
        place = (place + 1) & mask


@compiled
def _box_note(box, key, position):
    mask = 2 * get_u32(box + 12) - 1
    place = types.int64(mix(types.uint64(key))) & mask
    while get_u32(get(box + 16) + 4 * place) != 0:
        place = (place + 1) & mask
    put_u32(get(box + 16) + 4 * place, position + 1)


@compiled
def box_append(ctx, box, key, value):
    """Adds a pair behind the others."""
    length, capacity = get_u32(box + 8), get_u32(box + 12)
    if length == capacity:
        capacity = max(4, 2 * capacity)
        items = arena(ctx, 16 * capacity)
        copy_bytes(items, get(box), 16 * length)
        put(box, items)
        put_u32(box + 12, capacity)
        if capacity >= _INDEXED:
            put(box + 16, arena(ctx, 8 * capacity))
            for i in range(length):
                _box_note(box, get(items + 16 * i), i)
    put(get(box) + 16 * length, key)
    put(get(box) + 16 * length + 8, value)
    put_u32(box + 8, length + 1)
    if get(box + 16) != 0:
        _box_note(box, key, length)


@compiled
def box_put(ctx, box, key, value):
    """Sets the value of a key."""
    place = box_find(box, key)
    if place < 0:
        box_append(ctx, box, key, value)
    else:
        put(get(box) + 16 * place + 8, value)


@compiled
def box_clear(box):
    """Empties the container."""
    put_u32(box + 8, 0)
    if get(box + 16) != 0:
        for i in range(get_u32(box + 12)):
            put(get(box + 16) + 8 * i, 0)


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
