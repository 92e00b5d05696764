"""A machine: sockets, their cores, and the cost of memory within and between them (BriskStream, section 3.1).

The threads of a socket share local memory. On a small machine a socket may be one thread, so two threads are a machine
with two sockets. An unknown figure is null, and constrains no plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from streaming_core.errors import BadInput, unknown
from streaming_core.planner.document import Amount, Document

MACHINES = Path(__file__).with_name("machines")
NS = 1e9  # nanoseconds in a second

Positive = Annotated[float, Field(gt=0.0)]


class Machine(Document):
    """A host, as planners see it."""

    name: str
    source: str = Field("", description="Origin of the figures.")
    clock_ghz: Positive | None = Field(
        None, description="Clock in GHz, for the reader: times are not scaled by it; null: unknown."
    )
    line_bytes: int = Field(64, ge=1, description="S: bytes of a cache line.")
    replicas_per_core: int | None = Field(
        1,
        ge=1,
        description="Maximum number of replicas per core, 1 in the paper; null: any number, which take turns.",
    )
    cores: list[Annotated[int, Field(ge=1)]] = Field(min_length=1, description="Number of cores of each socket.")
    capacity: list[Positive] | None = Field(
        None, description="C: ns of processor time per second, for each socket; null: cores * 10^9."
    )
    latency: list[list[Amount]] = Field(
        description="L: worst-case ns to fetch a cache line. Row: the producer's socket. Column: the consumer's socket."
    )
    bandwidth: list[list[Positive | None]] | None = Field(
        None,
        description="Bytes per second between sockets, with the rows and columns of latency: Q. The diagonal is B, the "
        "bandwidth of local memory.",
    )

    streams: list[list[Positive | None]] | None = Field(
        None,
        description="Bytes per second at which one core reads consecutive lines of another socket, with the rows and "
        "columns of latency. This is our extension, because the rows of a jumbo tuple are consecutive. Null: each line "
        "of a row takes one latency, as in the paper's equation (2).",
    )
    rewriting: list[list[Positive | None]] | None = Field(
        None,
        description="Bytes per second at which one core writes consecutive lines that another socket has read, with "
        "the rows and columns of latency. This is our extension: producers pay to get the lines back. Null: they pay "
        "nothing, as in the paper.",
    )
    numbers: list[list[int]] | None = Field(
        None, description="Numbers of the threads of each socket; null: consecutive numbers, socket after socket."
    )

    spare: int = Field(
        0,
        ge=0,
        description="Cores beside those of the sockets. Threads that a channel adds to those of a plan run there.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self._check_sizes(self.sockets)
        self._check_rates()
        self._check_numbers()
        for i, row in enumerate(self.latency):
            if row[i] > min(row):
                raise ValueError(f"latency: in row {i}, the diagonal ({row[i]}) must be the minimum ({min(row)})")
        return self

    def _check_sizes(self, n: int) -> None:
        """Raise ValueError unless there is one value for each socket, or for each pair of sockets."""
        if self.capacity is not None and len(self.capacity) != n:
            raise ValueError(f"capacity must have one value for each of {n} sockets, got {len(self.capacity)}")
        for field in ("latency", "bandwidth", "streams", "rewriting"):
            matrix = getattr(self, field)
            for row in [] if matrix is None else matrix:
                if len(matrix or ()) != n or len(row) != n:
                    raise ValueError(f"{field} must have {n} rows of {n} values, one for each socket")
        if not self.latency:
            raise ValueError(f"latency must have {n} rows of {n} values, one for each socket")

    def _check_rates(self) -> None:
        """Raise ValueError unless every rate between two sockets is known."""
        for field in ("streams", "rewriting"):
            for i, row in enumerate(getattr(self, field) or []):
                if unknown := [j for j, rate in enumerate(row) if rate is None and i != j]:
                    raise ValueError(f"{field}: the value of row {i}, column {unknown[0]} is missing")

    def _check_numbers(self) -> None:
        """Raise ValueError unless the numbers of threads are 0 to n-1, each on one core."""
        if self.numbers is not None:
            if [len(threads) for threads in self.numbers] != self.cores:
                raise ValueError("numbers must have one number for each core")
            if sorted(thread for threads in self.numbers for thread in threads) != list(range(self.threads)):
                raise ValueError(f"numbers must be 0 to {self.threads - 1}, each exactly once")

    @property
    def sockets(self) -> int:
        """The number of sockets."""
        return len(self.cores)

    @property
    def threads(self) -> int:
        """The number of cores of all sockets."""
        return sum(self.cores)

    def thread(self, socket: int, core: int) -> int:
        """Return the number of the thread on a socket's core."""
        return sum(self.cores[:socket]) + core if self.numbers is None else self.numbers[socket][core]

    def merge_core(self, number: int) -> int | None:
        """Return the thread of a plan that shares its core with merge thread `number`; None if it has its own core.

        The runtime numbers merge threads after those of the plan, and binds thread i to core i modulo the cores.
        """
        core = (self.threads + number) % (self.threads + self.spare)
        return core if core < self.threads else None

    def socket_of(self, thread: int) -> int:
        """Return the socket of a thread."""
        if self.numbers is not None:
            return next(i for i, threads in enumerate(self.numbers) if thread in threads)
        return next(i for i in range(self.sockets) if thread < sum(self.cores[: i + 1]))

    def room(self, socket: int) -> int | None:
        """Return the most replicas on a socket; None: any number."""
        return None if self.replicas_per_core is None else self.cores[socket] * self.replicas_per_core

    def time(self, socket: int) -> float:
        """Return C: nanoseconds of processor time per second."""
        return self.capacity[socket] if self.capacity else self.cores[socket] * NS

    def memory(self, socket: int) -> float | None:
        """Return B: bytes per second of local memory; None: unknown."""
        return self.bandwidth[socket][socket] if self.bandwidth else None

    def channel(self, producer: int, consumer: int) -> float | None:
        """Return Q: bytes per second from one socket to another; None: unknown."""
        return self.bandwidth[producer][consumer] if self.bandwidth else None

    def fetch(self, size: float, producer: int, consumer: int) -> float:
        """Return T_f of so many bytes in ns; 0 within one socket."""
        return self.units(size) * self.unit_ns[producer][consumer]

    def units(self, size: float) -> float:
        """Return the units to fetch of so many bytes: cache lines, or bytes if `streams` is set."""
        return size if self.streams else float(-(-size // self.line_bytes))

    @cached_property
    def unit_ns(self) -> list[list[float]]:
        """The ns to fetch a unit; row: socket of the producer, column: of the consumer."""
        if self.streams:
            return self._per_byte(self.streams)
        return [[0.0 if i == j else ns for j, ns in enumerate(row)] for i, row in enumerate(self.latency)]

    @cached_property
    def regaining_ns(self) -> list[list[float]]:
        """The ns that a producer takes to regain a byte that a consumer has fetched.

        Rows and columns are those of unit_ns. A producer regains a byte before it writes it again.
        """
        return self._per_byte(self.rewriting or [[None] * self.sockets] * self.sockets)

    def _per_byte(self, rates: list[list[float | None]]) -> list[list[float]]:
        def ns(i: int, j: int) -> float:
            return 0.0 if i == j else NS / (rates[i][j] or math.inf)

        return [[ns(i, j) for j in range(self.sockets)] for i in range(self.sockets)]

    @cached_property
    def interchangeable(self) -> list[list[bool]]:
        """Whether two sockets differ only in their number, by pair: exchanging them does not change the machine."""
        n = self.sockets
        about = [(self.room(i), self.time(i)) for i in range(n)]
        matrices: list[Any] = [self.unit_ns, self.regaining_ns] + ([self.bandwidth] if self.bandwidth else [])

        def exchanged(i: int, j: int) -> bool:
            order = [*range(n)]
            order[i], order[j] = j, i
            same = all(
                matrix[a][b] == matrix[order[a]][order[b]] for matrix in matrices for a in range(n) for b in range(n)
            )
            return same and about[i] == about[j]

        return [[exchanged(i, j) for j in range(n)] for i in range(n)]

    @classmethod
    def named(cls, name: str | Path) -> Machine:
        """Return a machine that ships with the planner, by its name, else the one in a file.

        Raises:
            BadInput: There is no such machine, or the file describes none.
        """
        known = sorted(path.stem for path in MACHINES.glob("*.json"))
        if str(name) in known:
            return cls.read(MACHINES / f"{name}.json")
        if not Path(name).exists():
            raise BadInput(f"{unknown('machine', str(name), known)}, or a machine file")
        return cls.read(Path(name))

    @classmethod
    def of_threads(cls, threads: int, latency: float | Sequence[Sequence[float]] = 0.0) -> Machine:
        """Return a small host: a socket is one thread, which runs any number of replicas in turn.

        Args:
            threads: The number of threads.
            latency: ns to fetch a line that another thread has written, for all pairs of threads or for each.
        """
        if isinstance(latency, (int, float)):
            latency = [[0.0 if i == j else float(latency) for j in range(threads)] for i in range(threads)]
        rows = [list(row) for row in latency]
        return cls(name=f"{threads} threads", replicas_per_core=None, cores=[1] * threads, latency=rows)
