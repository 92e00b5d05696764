"""Skewed keys of partitions (TStream, section VI-B): how many keys of an event lie in each partition, and which."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streaming_core.generator.distributions import zipf
from streaming_core.generator.draws import Draws

LANES = 64  # draws d = lane + LANES * attempt
ATTEMPTS = 64


class Keys:
    """Skewed keys 0..n_items-1 in `parts` ranges of equal size; the last range also has the rest.

    A table with fewer keys than parts has one part for each key. Without `partitioned` there is one range.
    """

    def __init__(self, n_items: int, theta: float, parts: int, partitioned: bool):
        self.n_items, self.theta = n_items, theta
        self.parts = min(parts, n_items) if partitioned else 1
        self.size = n_items // self.parts
        self._pools: dict[int, np.ndarray] = {}
        zipf(n_items, theta)

    def start(self, draws: Draws, lane: int) -> np.ndarray:
        """Return the first partition of each event: that of a Zipf key."""
        if self.parts == 1:
            return np.zeros(len(draws), np.int64)
        key = zipf(self.n_items, self.theta).pick(draws.u53(lane))
        return np.minimum(key // self.size, self.parts - 1)

    def partitions(self, draws: Draws, first: np.ndarray, n: int, neighbours: bool, lane: int = 32) -> list[np.ndarray]:
        """Return the `n` partitions of each event, in case it is a multi-partition event.

        Args:
            draws: The draws of the events.
            first: The first partition of each event.
            n: The number of partitions.
            neighbours: The other partitions follow the first; if false, they are random and distinct.
            lane: The lane of the first draw; each partition takes one.
        """
        if neighbours:
            return [(first + i) % self.parts for i in range(n)]
        every, whole, single = (
            Keys(self.parts, 0.0, 1, False),
            np.zeros(len(first), np.int64),
            np.zeros(len(first), bool),
        )
        partitions = [first]
        for i in range(1, n):
            partitions.append(every.draw(draws, lane + i, whole, single, (1, 1), partitions))
        return partitions

    def shares(self, length: int, partitions: int) -> list[int]:
        """Return how many keys a multi-partition event has in each of its partitions.

        Each partition gets an equal share, rounded up, as long as one key is left for each partition behind it.

        Args:
            length: The number of keys.
            partitions: The wanted number of partitions; there are fewer if there are fewer keys or fewer partitions.
        """
        number = min(partitions, length, self.parts)
        shares: list[int] = []
        for behind in reversed(range(number)):
            shares.append(min(-(-length // number), length - sum(shares) - behind))
        return shares

    def pools(self, need: int) -> np.ndarray:
        """Return the size of each partition's pool, from which an event draws `need` distinct keys.

        A pool begins at the first key of its partition. It has the keys of the partition, and those of the next
        partitions as long as there are too few.
        """
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
        """Draw one key for each event, other than those in `avoid`, as int64.

        An event that hits a key to avoid draws again, 63 times at most. Then it takes the next free key of its pool.

        Args:
            draws: The draws of the events.
            lane: The number of this draw within the event, below 64.
            partition: The partition of each event's key.
            multi: Which events are multi-partition events.
            needs: How many distinct keys a single- and a multi-partition event draw from that partition in all.
            avoid: Columns of keys; there are fewer columns than keys.
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
        # Try one key after the other: first in the pool, then in the whole table, if other keys fill the pool.
        steps = 0
        while len(rows):
            steps += 1
            size = self.n_items if steps > sizes[-1] else sizes[0] if pool is None else pool[rows]
            inside = (keys[rows] - base[rows] + 1) % self.n_items % size
            keys[rows] = (base[rows] + inside) % self.n_items
            rows = rows[_clashes(keys[rows], [other[rows] for other in avoid])]
        return keys

    def _fresh(self, u: np.ndarray, base: np.ndarray, pool: np.ndarray | None, sizes: np.ndarray) -> np.ndarray:
        """Draw Zipf keys of the pools that begin at `base`; with `pool` None, all pools have the one size."""
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
    """Tell which keys equal one of the columns to avoid."""
    taken = np.zeros(len(keys), bool)
    for other in avoid:
        taken |= keys == other
    return taken
