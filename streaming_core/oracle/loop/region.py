"""The region of a loop: all memory that holds its state, at one address, so that it can be saved and loaded.

State consists of raw addresses, so a loaded region must begin at the address that it had. It therefore begins at one of
a few fixed addresses, far from those that the system gives out. Only used pages become memory.

The first quarter of a region holds the blocks that Python makes. Compiled code takes blocks of the rest (memory.py).
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, BinaryIO

import numpy as np

from streaming_core.errors import CommandFailed
from streaming_core.oracle.loop.layout import PAGE, R_END, R_FREE, R_NEXT, REGION

_PLACES = range(64 * REGION, 320 * REGION, REGION)  # below 0x5000_0000_0000
_SIZES = (REGION, REGION >> 4, REGION >> 8)  # smaller ones where a limit of addresses leaves no more
_STEP = 16 << 20  # bytes to save at once
_LARGE = 80  # the class from which on free blocks lose their pages before a snapshot: 16 KiB
_KEPT = 256 << 20  # bytes that stay this process's when a loop begins anew: new pages take longer than old ones
_HUGE = 4 << 20  # bytes from which on blocks ask for huge pages, as numpy's arrays do
_READ_WRITE = 3
_PRIVATE_LAZY_FIXED = 0x104022  # MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE
_DISCARD, _HUGE_PAGES = 4, 14  # MADV_DONTNEED, MADV_HUGEPAGE

_libc = ctypes.CDLL(None)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
_libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
_libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class Region:
    """Reserved addresses, freed with the last array that lies in them.

    Args:
        base: The address; None: one that is free.

    Raises:
        CommandFailed: The address is taken, or the process may not have so many addresses.
    """

    def __init__(self, base: int | None = None):
        places = _PLACES if base is None else [base]
        self.base, size = next(((at, size) for size in _SIZES for at in places if _reserve(at, size)), (0, 0))
        if not size:
            where = f" at {base:#x}" if base is not None else ""
            raise CommandFailed(
                f"cannot reserve {_SIZES[-1] >> 30} GiB of addresses{where} for the state of the oracle"
            )
        self._memory: Any = (ctypes.c_uint8 * size).from_address(self.base)
        weakref.finalize(self._memory, _libc.munmap, self.base, size)
        self._blocks = self.base + PAGE  # where the next block goes; the region's words are in front of the first
        self._rest, self._end = self.base + size // 4, self.base + size
        self._head = self._array(self.base, PAGE)
        self.clear()

    def block(self, size: int) -> np.ndarray:
        """Return a new block of zero words that hold `size` bytes."""
        size += -size % 8
        begin = self._blocks + -self._blocks % (_HUGE if size >= _HUGE else 64)
        self._blocks = begin + size
        if self._blocks > self._rest:
            raise CommandFailed("out of memory")
        if size >= _HUGE:
            _libc.madvise(begin, size // PAGE * PAGE, _HUGE_PAGES)
        return self._array(begin, size)

    def clear(self) -> None:
        """Free all memory that compiled code has taken."""
        end = min(self._next, self._rest + _KEPT)
        self._array(self._rest, end - self._rest)[:] = 0
        _libc.madvise(end, self._next - end, _DISCARD)
        self._head[R_FREE // 8 :] = 0
        self._head[R_NEXT // 8], self._head[R_END // 8] = self._rest, self._end

    def save(self, file: BinaryIO) -> None:
        """Write the pages that are not zero. Large free blocks lose theirs before."""
        for block in self._head[R_FREE // 8 + _LARGE :].tolist():
            while block:
                size, following = self._array(block - 8, 16).tolist()
                begin, end = block + PAGE & -PAGE, block + (size >> 8) & -PAGE
                if begin < end:
                    _libc.madvise(begin, end - begin, _DISCARD)
                block = following
        file.write(np.array([self._blocks - self.base, self._rest - self.base]).tobytes())
        for begin, end in ((self.base, self._blocks), (self._rest, self._next)):
            for at in range(begin, end, _STEP):
                pages = self._pages(at, -(-min(_STEP, end - at) // PAGE))
                used = np.flatnonzero(np.bitwise_or.reduce(pages, axis=1))
                file.write(np.array([at - self.base, len(used), *used]).tobytes())
                file.write(pages[used].tobytes())

    def load(self, file: BinaryIO) -> None:
        """Take over what `save` wrote to the rest of a file for a region with the same blocks.

        Raises:
            CommandFailed: The region is smaller than the saved one, because of a limit of addresses.
        """
        if _words(file, 2) != [self._blocks - self.base, self._rest - self.base]:
            raise CommandFailed("the saved state of the oracle needs more addresses than this process may have")
        _libc.madvise(self._rest, self._next - self._rest, _DISCARD)
        _libc.madvise(self.base, self._blocks - self.base, _DISCARD)
        while head := _words(file, 2):
            offset, count = head
            used = _words(file, count)
            pages = self._pages(self.base + offset, 1 + max(used, default=-1))
            pages[used] = np.frombuffer(file.read(count * PAGE), np.int64).reshape(-1, PAGE // 8)

    @property
    def _next(self) -> int:
        """Where the next block of compiled code goes."""
        return max(int(self._head[R_NEXT // 8]), self._rest)

    def _array(self, begin: int, size: int) -> np.ndarray:
        return np.frombuffer(self._memory, np.int64, size // 8, begin - self.base)

    def _pages(self, begin: int, count: int) -> np.ndarray:
        return self._array(begin, count * PAGE).reshape(-1, PAGE // 8)


def _words(file: BinaryIO, count: int) -> list[int]:
    return np.frombuffer(file.read(8 * count), np.int64).tolist()


def _reserve(place: int, size: int) -> bool:
    """Whether these addresses are the process's now. An old kernel gives others if they are taken."""
    address = _libc.mmap(place, size, _READ_WRITE, _PRIVATE_LAZY_FIXED, -1, 0)
    if address == place:
        return True
    if address != ctypes.c_void_p(-1).value:
        _libc.munmap(address, size)
    return False
