"""Loads from memory nodes, as the processor counts them: all of them, and those that another node answered.

Linux gives both as the generic cache events `node-loads` and `node-load-misses` (perf_event_open(2)). They count the
loads that missed the caches, of user code, in all threads that the process starts after the counters. Most virtual
machines have no such counters, and many processors do not map these events. The kernel refuses them if
`perf_event_paranoid` is above 2. Then there is no figure, and `why` gives the reason.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Sequence
from typing import NamedTuple

SYSCALLS = {"x86_64": 298, "aarch64": 241}  # perf_event_open
HARDWARE_CACHE, NODE, READ, ACCESS, MISS = 3, 6, 0, 0, 1  # linux/perf_event.h
EVENTS = tuple((HARDWARE_CACHE, NODE | READ << 8 | result << 16) for result in (ACCESS, MISS))
ATTRIBUTES = 112  # bytes of the structure, in its fifth version
INHERIT, EXCLUDE_KERNEL, EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
CLOSE_ON_EXEC = 8


class NodeLoads(NamedTuple):
    """Numbers of loads from memory nodes, and of those among them that another node than the core's answered."""

    loads: int
    misses: int


class Counters:
    """Counts events in this thread, and in all threads that descend from it later.

    Attributes:
        why: The reason for having no figure; empty while there is one.
    """

    def __init__(self, events: Sequence[tuple[int, int]] = EVENTS):
        """Start to count two events, each a type and a configuration of perf_event_open."""
        self.why = ""
        self._files: list[int] = []
        for kind, config in events:
            try:
                self._files.append(_opened(kind, config))
            except OSError as error:
                self.why = f"this machine does not count loads from memory nodes: {error.strerror}"
                self.close()
                break

    def read(self) -> NodeLoads | None:
        """The counts so far; None without counters."""
        if self.why:
            return None
        return NodeLoads(*(struct.unpack("Q", os.read(file, 8))[0] for file in self._files))

    def close(self) -> None:
        """Stop counting."""
        while self._files:
            os.close(self._files.pop())

    def __del__(self) -> None:
        self.close()


def _opened(kind: int, config: int) -> int:
    """A file that counts an event.

    Raises:
        OSError: The system does not count it.
    """
    attributes = ctypes.create_string_buffer(ATTRIBUTES)
    struct.pack_into("IIQ", attributes, 0, kind, ATTRIBUTES, config)
    struct.pack_into("Q", attributes, 40, INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR)
    number = SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(0, f"unknown system call of {platform.machine()}")
    # This process, on any core, in no group.
    file = ctypes.CDLL(None, use_errno=True).syscall(number, attributes, 0, -1, -1, CLOSE_ON_EXEC)
    if file < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return file
