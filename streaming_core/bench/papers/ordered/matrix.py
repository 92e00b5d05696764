"""Matrix products: a benchmark whose parameters set the cost, size, state and number of tuples.

    source -> scale (stateless) -> fold (partitioned by key) -> sink

The application comes from Scaling Ordered Stream Processing, sections 7.1 to 7.3.

Both operators multiply the d x d matrix of a tuple by a fixed matrix, modulo 2^32: `scale` does so `r` times, `fold`
`r_keyed` times. `scale` emits each tuple `sel` times on average. `fold` mixes the tuple's checksum into one word of the
key's state, so that the order of tuples matters. It emits the checksum of that state.

The time of one multiplication depends on the machine. The suite measures it and sets `r` and `r_keyed` accordingly.
"""

from functools import lru_cache
from typing import Literal

import numpy as np

from streaming_core.api import App, Array, Param, i64, record, u32
from streaming_core.generator import Draws, bell, proportional

app = App(
    "matrix",
    reads="Scaling Ordered Stream Processing, section 7",
    params={
        "d": Param(4, "rows and columns of a tuple's matrix; a tuple takes 16 + 4 d^2 bytes", minimum=1, maximum=100),
        "r": Param(10, "multiplications per tuple in the stateless operator", minimum=0, maximum=1_000_000_000),
        "r_keyed": Param(10, "multiplications per tuple in the partitioned operator", minimum=0, maximum=1_000_000_000),
        "sel": Param(1.0, "tuples that the stateless operator emits per tuple", minimum=0.0, maximum=1_000.0),
        "keys": Param(1_000, "number of keys, each a partition with its own state", minimum=1, maximum=1_000_000),
        "sigma": Param(
            0.0,
            "standard deviation of the draws that select keys, within -1..1; 0: all keys equally likely",
            minimum=0.0,
            maximum=1e6,
        ),
    },
)
p = app.params
MASK = (1 << 32) - 1
FRACTION = 24  # bits of the fractional part of a selectivity


@record
class Tuple:
    """An event: a key and a d x d matrix of 32-bit words, row by row."""

    ts: i64
    key: u32
    m: Array[u32, Literal["d*d"]]


@record
class Scratch:
    """Space for one event: the product so far, and one row of the next product."""

    x: Array[u32, Literal["d*d"]]
    row: Array[u32, Literal["d"]]


@record
class Scaled:
    """A tuple after the multiplications of the stateless operator."""

    key: u32
    m: Array[u32, Literal["d*d"]]


@record
class State:
    """State of a key: the number of its tuples, the words that hold their checksums, and scratch space."""

    n: i64
    words: Array[u32, Literal[16]]
    x: Array[u32, Literal["d*d"]]
    row: Array[u32, Literal["d"]]


@record
class Folded:
    """The checksum of a key's state after its n-th tuple."""

    key: u32
    n: i64
    checksum: u32


@app.constant
def factor(params):
    """Return the fixed matrix, row by row."""
    cells = params["d"] * params["d"]
    return (Draws(0, "matrix.factor", 0, cells).bits(0) >> np.uint64(32)).view(np.int64)


@app.constant
def copies(params):
    """Return the whole part of `sel`, and the fractional part in 1/2^24."""
    whole = int(params["sel"])
    return np.array([whole, round((params["sel"] - whole) * (1 << FRACTION))], np.int64)


def mixed(number):
    """Hash a number into 32 bits."""
    bits = ((number ^ (number >> 32)) & MASK) * 0x9E3779B1 & MASK
    bits = (bits ^ (bits >> 15)) * 0x85EBCA77 & MASK
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE3D & MASK
    return bits ^ (bits >> 16)


def copies_of(seq):
    """Return how many tuples `scale` emits for an event."""
    one_more = mixed(2 * seq) >> (32 - FRACTION) < copies[1]
    return copies[0] + (1 if one_more else 0)


def multiply(x, row, times):
    """Compute x = x * factor, `times` times; `row` is scratch space for a row."""
    for _ in range(times):
        for i in range(p.d):
            for j in range(p.d):
                total = 0
                for k in range(p.d):
                    total += x[i * p.d + k] * factor[k * p.d + j]
                row[j] = total & MASK
            for j in range(p.d):
                x[i * p.d + j] = row[j]


def checksum(words):
    """Return a 32-bit checksum of an array, which depends on the order of its words."""
    total = 0
    for i in range(len(words)):
        total = (total * 31 + words[i]) & MASK
    return total


def scale(row, scratch, out):
    """Multiply the matrix `r` times, and emit the tuple `sel` times on average."""
    x = scratch.x
    for i in range(len(x)):
        x[i] = row.m[i]
    multiply(x, scratch.row, p.r)
    for _ in range(copies_of(row.seq)):
        out.emit(key=row.key, m=x)
        for i in range(len(x)):
            x[i] = (x[i] + 1) & MASK


def fold(row, state, out):
    """Multiply the matrix, mix its checksum into the state, and emit the state's checksum."""
    words = state.words
    x = state.x
    if state.n == 0:
        for i in range(len(words)):
            words[i] = mixed(i)
    for i in range(len(x)):
        x[i] = row.m[i]
    multiply(x, state.row, p.r_keyed)
    state.n += 1
    at = state.n % len(words)
    words[at] = (words[at] * 3 + checksum(x)) & MASK
    out.emit(key=row.key, n=state.n, checksum=checksum(words))


app.source(Tuple).flat_map(scale, Scaled, scratch=Scratch).key_by("key").process(
    fold, state=State, output=Folded
).sink()


@app.generates
def tuples(params, seed, start, stop):
    """Draw each tuple independently; ts is its number."""
    draws, cells = Draws(seed, "matrix.tuples", start, stop), params["d"] * params["d"]
    key = _keys(params["keys"], params["sigma"]).pick(draws.u53(0))
    m = np.stack([draws.bits(1 + i) >> np.uint64(32) for i in range(cells)], axis=1)
    return {"ts": np.arange(start, stop), "key": key, "m": m.view(np.int64)}


@lru_cache(maxsize=4)
def _keys(keys, sigma):
    """Return the distribution of keys: normal draws within -1..1, cut into one equal range per key."""
    if sigma == 0:
        return proportional(np.ones(keys))
    fine = 16 if keys <= 10_000 else 1  # points per range at which the density is evaluated
    density = bell(keys * fine, sigma * keys * fine / 2)
    weights = density[::fine].copy()
    for i in range(1, fine):
        weights += density[i::fine]
    return proportional(weights)
