"""What generators are made of: addressed draws, distributions, patterns, keys, lines of text. All vectorised.

A draw is addressed, never consumed: draw d of unit i of a substream is a function of (seed, substream, i, d) alone, so
any slice of a workload can be made by itself, anywhere, and is always the same. Everything here is integers, or doubles
that only see + - * / (libm's last bits differ between hosts), so the same events come out on every host.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from streaming_core.errors import BadInput

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def u64(value: int) -> np.uint64:
    """A 64-bit constant that keeps arithmetic in 64 bits."""
    return np.uint64(value & MASK)


def splitmix64(x: np.ndarray) -> np.ndarray:
    """The output of splitmix64 in state `x` (uint64 array)."""
    z = x + u64(GOLDEN)
    z ^= z >> u64(30)
    z *= u64(0xBF58476D1CE4E5B9)
    z ^= z >> u64(27)
    z *= u64(0x94D049BB133111EB)
    z ^= z >> u64(31)
    return z


mix64 = splitmix64


def fnv1a64(name: str) -> int:
    """FNV-1a of the name's bytes: tells substreams apart."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & MASK
    return h


class Draws:
    """The draws of some units (events, entities, rounds, ...) in one substream.

    Unit i has a splitmix64 sequence of its own, started at splitmix64(substream + i * golden); draw d is its output d.

    Args:
        seed: the workload's seed.
        name: the substream, one per purpose.
        units: int64 array of unit numbers, or None with `start` and `stop` for consecutive ones.
    """

    def __init__(self, seed: int, name: str, start: int = 0, stop: int = 0, units: np.ndarray | None = None):
        unit = np.arange(start, stop, dtype=np.uint64) if units is None else units.astype(np.uint64)
        base = splitmix64(np.array([(seed ^ fnv1a64(name)) & MASK], np.uint64))
        self.states = splitmix64(base + unit * u64(GOLDEN))

    def __len__(self) -> int:
        return len(self.states)

    def bits(self, d: int, rows: np.ndarray | None = None) -> np.ndarray:
        """Draw `d`, uint64, of every unit or of those at the positions `rows`."""
        states = self.states if rows is None else self.states[rows]
        return splitmix64(states + u64(GOLDEN * d))

    def u53(self, d: int, rows: np.ndarray | None = None) -> np.ndarray:
        """The top 53 bits of draw `d`, as int64: what distributions are inverted with."""
        return (self.bits(d, rows) >> u64(11)).view(np.int64)

    def below(self, d: int, n: int | np.ndarray) -> np.ndarray:
        """Uniform in 0..n-1 (n < 2^32), int64: the high half of draw * n."""
        bits, n = self.bits(d), np.asarray(n, np.uint64)
        low = (bits & u64(0xFFFFFFFF)) * n
        return (((bits >> u64(32)) * n + (low >> u64(32))) >> u64(32)).view(np.int64)

    def chance(self, d: int, ratio: float) -> np.ndarray:
        """True with probability `ratio`."""
        return self.u53(d) < round(ratio * (1 << 53))


# --- distributions ---------------------------------------------------------------------------------------------------


class Discrete:
    """A distribution over 0..n-1 by integer thresholds: the first k with threshold[k] >= u, u of 53 bits.

    A table guides each draw to where its search begins; the few that stand far away are found by bisection.
    """

    def __init__(self, thresholds: np.ndarray):
        self.thresholds = thresholds
        bits = max(1, (4 * len(thresholds) - 1).bit_length())
        self._shift = 53 - bits
        cells = np.arange(1 << bits, dtype=np.int64) << self._shift
        self._guide = np.searchsorted(thresholds, cells).astype(np.int32)

    def pick(self, u: np.ndarray) -> np.ndarray:
        """int64 values for draws `u` (`Draws.u53`)."""
        k = self._guide[u >> self._shift].astype(np.int64)
        behind = np.flatnonzero(self.thresholds[k] < u)
        for _ in range(3):
            if not len(behind):
                return k
            k[behind] += 1
            behind = behind[self.thresholds[k[behind]] < u[behind]]
        k[behind] = np.searchsorted(self.thresholds, u[behind])
        return k


_recorded: list[dict[str, np.ndarray]] = []


@contextmanager
def recorded() -> Iterator[dict[str, np.ndarray]]:
    """Collects the Zipf thresholds that are asked for inside the block, by `zipf(n, theta)` as text."""
    _recorded.append({})
    try:
        yield _recorded[-1]
    finally:
        _recorded.pop()


def zipf(n: int, theta: float) -> Discrete:
    """P(k) proportional to (k+1)^-theta for k = 0..n-1: small numbers are hot; theta = 0 is uniform."""
    found = _zipf(n, theta)
    for tables in _recorded:
        tables[f"zipf({n}, {theta})"] = found.thresholds
    return found


@lru_cache(maxsize=256)
def _zipf(n: int, theta: float) -> Discrete:
    if n < 1:
        raise BadInput(f"zipf needs at least one value, got {n}")
    rank = np.arange(1, n + 1, dtype=np.float64)
    cumulated = np.cumsum(_exp(-theta * _log(rank)) if theta else np.ones(n))
    thresholds = np.floor(cumulated / cumulated[-1] * float(1 << 53)).astype(np.int64)
    thresholds[-1] = 1 << 53
    return Discrete(thresholds)


def weighted(weights: Sequence[int]) -> Discrete:
    """P(k) proportional to the integer weights."""
    total, sums = sum(weights), np.cumsum(np.array(weights, dtype=object))
    # u below T is (T of 2^53); the threshold is the last u that still belongs to k.
    return Discrete(np.array([(int(s) << 53) // total - 1 for s in sums], np.int64))


def proportional(weights: np.ndarray) -> Discrete:
    """P(k) proportional to the doubles `weights`, the first of which is above 0."""
    sums = np.cumsum(weights)
    thresholds = np.floor(sums / sums[-1] * float(1 << 53)).astype(np.int64)
    thresholds[-1] = 1 << 53
    return Discrete(thresholds)


def bell(n: int, deviation: float) -> np.ndarray:
    """The normal density around the middle of 0..n-1, at each of them; the doubles sum up to 1."""
    distance = (np.arange(n) - (n - 1) / 2.0) / deviation
    square = distance * distance
    weights = _exp(np.maximum((square - square.min()) * -0.5, -1000.0))
    return weights / np.cumsum(weights)[-1]


def _log(x: np.ndarray) -> np.ndarray:
    """Natural logarithm of x >= 1 with + - * / only: x = m * 2^e, ln m = 2 artanh((m-1)/(m+1))."""
    m, e = np.frexp(x)
    low = m < 0.7071067811865476
    m, e = np.where(low, m * 2.0, m), np.where(low, e - 1, e)
    s = (m - 1.0) / (m + 1.0)
    square, total = s * s, np.zeros_like(s)
    for k in range(27, 0, -2):
        total = total * square + 1.0 / k
    return e * 0.6931471805599453 + 2.0 * s * total


def _exp(x: np.ndarray) -> np.ndarray:
    """e^x with + - * / only: x = k ln 2 + r, Taylor in r."""
    k = np.floor(x / 0.6931471805599453 + 0.5)
    r, total = x - k * 0.6931471805599453, np.ones_like(x)
    for d in range(16, 0, -1):
        total = total * r / d + 1.0
    return np.ldexp(total, k.astype(np.int64))


def of_eight(ratio: float, draws: Draws, d: int, start: int, stop: int, drawn: bool = False) -> np.ndarray:
    """Which of the events start..stop-1 are of the second kind: the last `ratio * 8` of every eight consecutive ones.

    Where `ratio * 8` is no whole number, or with `drawn`, draw `d` decides for each event.
    """
    slots = ratio * 8
    if drawn or slots != int(slots):
        return draws.chance(d, ratio)
    return np.arange(start, stop) % 8 >= 8 - int(slots)


# --- events by the period --------------------------------------------------------------------------------------------

Columns = dict[str, "np.ndarray | pa.Array | list[bytes]"]
RECENT = 4  # streams, and periods of each, that are kept
EMPTY = 10_000  # periods one after the other in which nothing may happen


def by_period(
    make: Callable[[dict, int, int], Columns], count: Callable[[dict, int, int], int] | None = None
) -> Callable[[dict, int, int, int], Columns]:
    """A generator of events out of one of periods: the events of period 0, then those of period 1, without end.

    For events that are no function of their number alone: those of a visit, of a vehicle, of a second. Draws are
    addressed by (period or unit, draw), so any period can be made by itself; where it begins in the stream hangs on how
    many events those before it have. These numbers are kept, and the columns of the last few periods, so that a stream
    that is asked for slice by slice makes every period once. A period should have 2^20 events at most: a few are in
    memory, and nothing else that grows but 8 bytes a period.

    Args:
        make: `make(params, seed, period)` gives the columns of a period, of 0 or more events in their final order, `ts`
            not less than in the periods before. Always the same ones, whatever else was asked for.
        count: `count(params, seed, period)`, how many events `make` gives, where that is cheaper to say: who makes a
            part far into the stream then counts what is before it, and makes none of it.

    Returns:
        What `App.generates` takes. One thread at a time may call it.

    Raises:
        BadInput: (the generator) columns of different lengths, not as many events as counted, or none for long.
    """
    streams: OrderedDict[tuple, _Stream] = OrderedDict()

    def generate(params: dict, seed: int, start: int, stop: int) -> Columns:
        key = (seed, *sorted(params.items()))
        if key not in streams:
            streams[key] = _Stream(make, count, params, seed)
        return _used(streams, key).events(start, stop)

    return generate


class _Stream:
    """The events of one workload, made by the period."""

    def __init__(self, make: Callable, count: Callable | None, params: dict, seed: int):
        self._make, self._count, self._asked = make, count, (dict(params), seed)
        self._ends: list[int] = []  # how many events there are up to the end of each period
        # Columns of the last periods, and the Zipf thresholds they were drawn with: those are recorded (`recorded`)
        # whether a period is made or only served.
        self._recent: OrderedDict[int, tuple[Columns, dict[str, np.ndarray]]] = OrderedDict()

    def events(self, start: int, stop: int) -> Columns:
        """Events start..stop-1."""
        while not self._ends or self._ends[-1] <= start:
            period = len(self._ends)
            if self._count is None:
                self._columns(period)
            else:
                self._end(period, self._count(*self._asked, period))
        parts, period, at = [], bisect_right(self._ends, start), start
        while not parts or at < stop:
            columns = self._columns(period)
            first, end = self._ends[period - 1] if period else 0, min(stop, self._ends[period])
            if end > at or not parts:
                parts.append({name: values[at - first : end - first] for name, values in columns.items()})
                at = end
            period += 1
        return {name: _joined([part[name] for part in parts]) for name in parts[0]}

    def _columns(self, period: int) -> Columns:
        if period not in self._recent:
            with recorded() as tables:
                columns = self._make(*self._asked, period)
            lengths = {len(values) for values in columns.values()}
            if len(lengths) != 1:
                raise BadInput(f"a generator's period {period} has columns of {sorted(lengths)} values")
            self._end(period, lengths.pop())
            self._recent[period] = columns, tables
        columns, tables = _used(self._recent, period)
        for others in _recorded:
            others.update(tables)
        return columns

    def _end(self, period: int, events: int) -> None:
        """Notes or checks how many events a period has; it is at most one behind those that are known."""
        end = events + (self._ends[period - 1] if period else 0)
        if period == len(self._ends):
            self._ends.append(end)
        if end != self._ends[period]:
            raise BadInput(f"a generator's period {period} has {events} events, not as many as were counted")
        if period >= EMPTY and self._ends[period - EMPTY] == end:
            raise BadInput(f"a generator gives no events in its periods {period - EMPTY + 1} to {period}")


def _used(recent: OrderedDict, key: object) -> object:
    """The value of `key`, now the last to go when there are more than a few."""
    recent.move_to_end(key)
    if len(recent) > RECENT:
        recent.popitem(last=False)
    return recent[key]


def _joined(parts: list) -> np.ndarray | pa.Array | list[bytes]:
    """Values one after the other."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], pa.Array):
        return pa.concat_arrays(parts)
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else [value for part in parts for value in part]


# --- keys (workloads: A.0.1) -----------------------------------------------------------------------------------------

LANES = 64  # draws d = lane + LANES * attempt
ATTEMPTS = 64


class Keys:
    """Skewed keys 0..n_items-1 out of `parts` ranges of equal size, the rest belonging to the last one.

    A table smaller than the number of parts has a part per key. Without `partitioned` there is one range.
    """

    def __init__(self, n_items: int, theta: float, parts: int, partitioned: bool):
        self.n_items, self.theta = n_items, theta
        self.parts = min(parts, n_items) if partitioned else 1
        self.size = n_items // self.parts
        self._pools: dict[int, np.ndarray] = {}
        zipf(n_items, theta)

    def start(self, draws: Draws, lane: int) -> np.ndarray:
        """The partition an event starts with: the one of a Zipf key."""
        if self.parts == 1:
            return np.zeros(len(draws), np.int64)
        key = zipf(self.n_items, self.theta).pick(draws.u53(lane))
        return np.minimum(key // self.size, self.parts - 1)

    def pools(self, need: int) -> np.ndarray:
        """Per partition, from how many keys on from its first one `need` distinct keys are drawn: its own, and whole
        next partitions while those are too few."""
        if need not in self._pools:
            sizes = np.full(self.parts, self.size, np.int64)
            sizes[-1] = self.n_items - self.size * (self.parts - 1)
            pools, following = sizes.copy(), np.arange(self.parts)
            for _ in range(self.parts - 1):
                short = pools < need
                following = (following + 1) % self.parts
                pools[short] += sizes[following[short]]
            self._pools[need] = pools
        return self._pools[need]

    def draw(
        self,
        draws: Draws,
        lane: int,
        partition: np.ndarray,
        multi: np.ndarray,
        needs: tuple[int, int],
        avoid: Sequence[np.ndarray] = (),
    ) -> np.ndarray:
        """One key per event, unlike those in `avoid`, int64.

        A key that is taken is drawn again, 63 times at most; then the next free key of its pool is taken.

        Args:
            lane: number of this draw within the event, below 64.
            partition: where each event looks for it.
            multi: which events are multi-partition ones.
            needs: how many distinct keys a single- and a multi-partition event wants from that partition in all.
            avoid: fewer columns than there are keys.
        """
        single, several = self.pools(needs[0]), self.pools(needs[1])
        sizes = np.unique(np.concatenate([single, several]))
        pool = np.where(multi, several[partition], single[partition]) if len(sizes) > 1 else None
        base = partition * self.size
        keys = self._fresh(draws.u53(lane), base, pool, sizes)
        rows = np.flatnonzero(_clashes(keys, avoid))
        for attempt in range(1, ATTEMPTS):
            if not len(rows):
                return keys
            u = draws.u53(lane + LANES * attempt, rows)
            keys[rows] = self._fresh(u, base[rows], None if pool is None else pool[rows], sizes)
            rows = rows[_clashes(keys[rows], [other[rows] for other in avoid])]
        # One after the other: through the pool, and should other partitions' keys fill that, through the whole table.
        steps = 0
        while len(rows):
            steps += 1
            size = self.n_items if steps > sizes[-1] else sizes[0] if pool is None else pool[rows]
            inside = (keys[rows] - base[rows] + 1) % self.n_items % size
            keys[rows] = (base[rows] + inside) % self.n_items
            rows = rows[_clashes(keys[rows], [other[rows] for other in avoid])]
        return keys

    def _fresh(self, u: np.ndarray, base: np.ndarray, pool: np.ndarray | None, sizes: np.ndarray) -> np.ndarray:
        """Zipf keys of the pools that begin at `base`; `pool` None: all are of the one size there is."""
        if pool is None:
            keys = zipf(int(sizes[0]), self.theta).pick(u)
        else:
            keys = np.empty(len(u), np.int64)
            for size in sizes:
                mine = pool == size
                keys[mine] = zipf(int(size), self.theta).pick(u[mine])
        keys += base
        keys[keys >= self.n_items] -= self.n_items
        return keys


def _clashes(keys: np.ndarray, avoid: Sequence[np.ndarray]) -> np.ndarray:
    """Which keys equal one of the columns to avoid."""
    taken = np.zeros(len(keys), bool)
    for other in avoid:
        taken |= keys == other
    return taken


# --- text ------------------------------------------------------------------------------------------------------------


class Tokens:
    """Lists of tokens, laid end to end; a line is a series of tokens, written without anything between them.

    Args:
        lists: tokens by list; token k of a list has the id `first[list] + k`.
    """

    def __init__(self, **lists: Sequence[bytes]):
        self.first: dict[str, int] = {}
        self._tokens = pa.array([], pa.binary())
        self._append(lists)

    def _append(self, lists: dict[str, Sequence[bytes]]) -> None:
        for name, items in lists.items():
            self.first[name] = len(self._tokens)
            self._tokens = pa.concat_arrays([self._tokens, pa.array(items, pa.binary())])

    def plus(self, **lists: Sequence[bytes]) -> Tokens:
        """These lists and some more: for tokens that only a slice of the events needs."""
        more = Tokens()
        more.first, more._tokens = dict(self.first), self._tokens
        more._append(lists)
        return more

    def lines(self, columns: Sequence[np.ndarray]) -> pa.BinaryArray:
        """Row i is token columns[0][i], then columns[1][i], ... (ids). The bytes are copied once, by Arrow's take."""
        ids = np.empty((len(columns[0]), len(columns)), np.int32)
        for j, column in enumerate(columns):
            ids[:, j] = column
        count, width = ids.shape
        taken = self._tokens.take(pa.array(ids.reshape(-1)))
        _, offsets, data = taken.buffers()
        starts = np.frombuffer(offsets, np.int32, count * width + 1)[::width]
        return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(np.ascontiguousarray(starts)), data])


# The files that generators are made of, beside those of the applications.
FILES = ("bigbench.py", "generator.py", "linear_road.py")


@cache
def version() -> str:
    """Digest of those files: part of every workload's address."""
    here = Path(__file__).parent
    return hashlib.sha256(b"".join((here / name).read_bytes() for name in FILES)).hexdigest()[:16]
