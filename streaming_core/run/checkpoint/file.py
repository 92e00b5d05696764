"""The file of one checkpoint: the parts of the state that are new in it, and a head.

The name of the file has the number of events. Its content is

    lockstep checkpoint 2     the first line: the version of the form
    ...                       the images of the new parts, one after the other
    {...}                     the head, as JSON: position, facts, and the table of all parts
    <sha256> <length>         the last line: the digest of first line and head, and the head's number of bytes

The table of parts has the digest of each image and the file that holds it. This is an older file if the part has not
changed since. The digests cover everything, so a changed, cut or exchanged byte shows.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

MAGIC = b"lockstep checkpoint "
FIRST = MAGIC + b"2\n"
LAST = re.compile(rb"\n([0-9a-f]{64}) ([0-9]{12})\n")
LAST_SIZE = 79
NAME = re.compile(r"checkpoint-([0-9]{15})")
PIECE = 1 << 22  # bytes that are read at a time

Take = Callable[[str, int, bytes], None]  # receives the name of a state, the number of the part, and its image
Key = tuple[str, int]  # the name of a state, and the number of a part


class Damage(Exception):
    """What is wrong with a checkpoint."""


@dataclass(frozen=True)
class Part:
    """A part of a state: neighbouring key groups of a table or an operator.

    Attributes:
        name: The table or the operator.
        number: The number of the part.
        size: Bytes of its image.
        digest: SHA-256 of the image.
        file: The name of the file that holds the image.
        offset: Where the image begins in the file.
    """

    name: str
    number: int
    size: int
    digest: str
    file: str
    offset: int

    @property
    def key(self) -> Key:
        """The name of the state, and the number of the part."""
        return self.name, self.number


@dataclass(frozen=True)
class Checkpoint:
    """The position of a run between two blocks.

    Attributes:
        read: Number of the events before, and the sum of their hashes.
        outputs: Number of closed files of outputs.
        standing: The runtime's own position and figures, as `Engine.standing` gives them.
        cpu_seconds: Processor time of the engine so far.
        resumed: Events from which the run has resumed.
        about: Facts that must be the same in the run that resumes, by name.
        states: The fields of each state, see `states.declarations`.
        time: Seconds since 1970 at which it was made.
        way: The run specification at the time.
        parts: All parts of the state.
    """

    read: tuple[int, int]
    outputs: int
    standing: str
    cpu_seconds: float
    resumed: list[int]
    about: dict[str, Any]
    states: dict[str, list[list[str]]]
    time: float
    way: dict[str, Any]
    parts: list[Part] = field(default_factory=list, repr=False)

    @property
    def events(self) -> int:
        """Number of events before."""
        return self.read[0]

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"checkpoint-{self.events:015d}"

    @property
    def files(self) -> set[str]:
        """The names of the files that it needs."""
        return {self.name, *(part.file for part in self.parts)}

    @property
    def size(self) -> int:
        """Bytes of the images of all parts."""
        return sum(part.size for part in self.parts)


def paths(folder: Path) -> list[Path]:
    """The files of the checkpoints in a folder, the newest first; none if there is no folder, or no longer."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    files = [folder / name for name in sorted(names, reverse=True) if NAME.fullmatch(name)]
    return [path for path in files if not path.is_dir()]


def write(
    path: Path, checkpoint: Checkpoint, images: Callable[[Take], None], known: dict[Key, Part] | None = None
) -> None:
    """Write a checkpoint to a file, and synchronise that.

    Args:
        path: The file, under a temporary name.
        checkpoint: The checkpoint, without parts.
        images: Gives the image of each part, as `Engine.images` does.
        known: Parts in older files. They are not written again if they have not changed.
    """
    parts: list[Part] = []
    with open(path, "wb", buffering=0) as file:
        _write(file.fileno(), FIRST)
        end = len(FIRST)

        def take(name: str, number: int, image: bytes) -> None:
            nonlocal end
            digest = hashlib.sha256(image).hexdigest()
            part = (known or {}).get((name, number))
            if part is None or (part.digest, part.size) != (digest, len(image)):
                part = Part(name, number, len(image), digest, checkpoint.name, end)
                _write(file.fileno(), image)
                end += part.size
            parts.append(part)

        images(take)
        head = json.dumps(asdict(replace(checkpoint, parts=parts)), sort_keys=True).encode()
        digest = hashlib.sha256(FIRST + head).hexdigest()
        _write(file.fileno(), head + f"\n{digest} {len(head):012d}\n".encode())
        os.fsync(file.fileno())


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def read(path: Path) -> Checkpoint:
    """Read the head of a checkpoint.

    Raises:
        Damage: The file is missing, damaged or of another version.
    """
    try:
        with open(path, "rb") as file:
            first = file.read(len(FIRST))
            if first != FIRST:
                raise Damage("it has another version" if first.startswith(MAGIC) else "it is not a checkpoint")
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - LAST_SIZE))
            if not (last := LAST.fullmatch(file.read())):
                raise Damage("its end is missing")
            length = int(last[2])
            if length > size - LAST_SIZE - len(FIRST):
                raise Damage("its head is not whole")
            file.seek(size - LAST_SIZE - length)
            head = file.read(length)
    except OSError as error:
        raise Damage(_why(error)) from None
    if hashlib.sha256(FIRST + head).hexdigest().encode() != last[1]:
        raise Damage("the digest of its head is wrong")
    try:
        fields = json.loads(head)
        parts = [Part(**part) for part in fields["parts"]]
        checkpoint = Checkpoint(**fields | {"read": tuple(fields["read"]), "parts": parts})
    except (ValueError, TypeError, KeyError):
        raise Damage("its head has other fields") from None
    if (match := NAME.fullmatch(path.name)) and match[1] != f"{checkpoint.events:015d}":
        raise Damage(f"it is the checkpoint at event {checkpoint.events}")
    return checkpoint


def images(folder: Path, checkpoint: Checkpoint) -> Iterator[tuple[Part, bytes]]:
    """The images of all parts, in the order in which they lie in the files.

    Args:
        folder: The folder of the files.
        checkpoint: The checkpoint.

    Raises:
        Damage: A file is missing, or a part is damaged.
    """
    by_file = sorted(checkpoint.parts, key=lambda part: (part.file, part.offset))
    for name, parts in groupby(by_file, key=lambda part: part.file):
        if not NAME.fullmatch(name):
            raise Damage("its head names a file that is no checkpoint")
        try:
            with open(folder / name, "rb") as file:
                for part in parts:
                    file.seek(part.offset)
                    image = file.read(part.size)
                    if hashlib.sha256(image).hexdigest() != part.digest:
                        raise Damage(f"part {part.number} of {part.name} in {name} was changed")
                    yield part, image
        except OSError as error:
            raise Damage(f"{name}: {_why(error)}") from None


def check(folder: Path, checkpoint: Checkpoint) -> None:
    """Raise Damage unless all parts of a checkpoint are whole."""
    for _ in images(folder, checkpoint):
        pass


def _why(error: OSError) -> str:
    return "it is missing" if isinstance(error, FileNotFoundError) else f"cannot read it: {error.strerror}"
