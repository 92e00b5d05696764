"""Names machine code for profilers: where the code of each kernel lies in memory, in the format of `perf`.

With LOCKSTEP_PERF_MAP=FILE, a process appends a line `START SIZE NAME` to FILE for each object file that it loads; both
numbers are hexadecimal. `lockstep profile` sets the variable.
"""

from __future__ import annotations

import os
import struct

VARIABLE = "LOCKSTEP_PERF_MAP"
SYMBOL_TABLE = 2  # SHT_SYMTAB in elf.h


def note(name: str, code: bytes, export: str, address: int) -> None:
    """Append the code of a loaded object file to the map, if the environment asks for one.

    Args:
        name: The name of the code, such as `count.process`.
        code: The object file.
        export: The symbol of its function.
        address: The address of this function in memory.
    """
    if path := os.environ.get(VARIABLE):
        offset, size = _extent(code, export)
        with open(path, "a") as file:
            file.write(f"{address - offset:x} {size:x} {name}\n")


def _extent(code: bytes, export: str) -> tuple[int, int]:
    """The offset of a function in its section of an ELF file of 64 bits, and the bytes of this section."""
    table, entry_size, entries = *struct.unpack_from("<Q", code, 40), *struct.unpack_from("<HH", code, 58)
    # Of each section: type, place in the file, size, and the section that it refers to.
    sections = [struct.unpack_from("<4xI16xQQI", code, table + entry_size * number) for number in range(entries)]
    for kind, begin, size, strings in sections:
        for at in range(begin, begin + size, 24) if kind == SYMBOL_TABLE else ():
            name, section, value = struct.unpack_from("<IxxHQ", code, at)
            name += sections[strings][1]
            if code[name : code.index(0, name)].decode() == export:
                return value, sections[section][2]
    raise ValueError(f"object file does not define {export}")
