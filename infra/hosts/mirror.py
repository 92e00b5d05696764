"""Brings the checkpoints of a running cell here, from a host that does not share LOCKSTEP_HOME.

The files of a checkpoint never change once they have their name (streaming_core/run/checkpoint). So each round fetches
only new files: first outputs, then checkpoints, the oldest one first. If a round is interrupted, the last checkpoint
that is here still has all its files. An output that is not complete yet belongs to no checkpoint. A later round fetches
it again, because its size or time differs.

The triggerer runs this on the event loop that all its triggers share. So files here are read and written in threads,
and not by asyncssh, which would block the loop.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast

import asyncssh

from streaming_core.run.folder import WORK

FOLDERS = ("outputs", "checkpoints")  # in the order in which they are fetched
PIECE = 4 << 20  # bytes that are in memory at once


class About(NamedTuple):
    """What tells two states of a file apart: its size in bytes, and its time in seconds."""

    size: int
    seconds: int


async def fetch_checkpoints(sftp: asyncssh.SFTPClient, there: str, here: Path) -> None:
    """Bring the checkpoints of an attempt up to date, with the outputs that they count. None there: change nothing.

    Args:
        sftp: The connection to the host.
        there: The folder of the attempt on the host.
        here: The folder of the attempt.

    Raises:
        OSError, asyncssh.Error: The host or this disk fails, or a file has gone. The next call goes on from there.
    """
    # Checkpoints first: every output that they count is then complete.
    listings = {name: await _files(sftp, f"{there}/{WORK}/{name}") for name in reversed(FOLDERS)}
    if not listings["checkpoints"]:
        return
    for name in FOLDERS:
        for file in await asyncio.to_thread(_outdated, here / WORK / name, listings[name]):
            about = listings[name][file]
            await _get(sftp, f"{there}/{WORK}/{name}/{file}", here / WORK / name / file, about.seconds)
    for name, files in listings.items():
        if files:
            await asyncio.to_thread(_prune, here / WORK / name, files)


async def _get(sftp: asyncssh.SFTPClient, there: str, here: Path, seconds: int) -> None:
    """Fetch a file, which appears whole; `seconds` is its time."""
    part = here.with_name(f".{here.name}")
    async with sftp.open(there, "rb") as source:
        file = await asyncio.to_thread(part.open, "wb")
        try:
            while data := cast("bytes", await source.read(PIECE)):  # a file in text mode has str
                await asyncio.to_thread(file.write, data)
        finally:
            await asyncio.to_thread(file.close)
    await asyncio.to_thread(os.utime, part, (seconds, seconds))
    await asyncio.to_thread(os.replace, part, here)


async def _files(sftp: asyncssh.SFTPClient, folder: str) -> dict[str, About]:
    """Size and time of the files in a folder that have their name already; empty if there is no folder."""
    try:
        entries = await sftp.readdir(folder)
    except asyncssh.SFTPNoSuchFile:
        return {}
    return {
        str(entry.filename): About(entry.attrs.size or 0, int(entry.attrs.mtime or 0))
        for entry in entries
        if stat.S_ISREG(entry.attrs.permissions or 0) and not str(entry.filename).startswith(".")
    }


def _outdated(folder: Path, files: Mapping[str, About]) -> list[str]:
    """The files that a folder here, which is made if necessary, lacks or has with another size or time."""
    folder.mkdir(parents=True, exist_ok=True)
    return [file for file, about in sorted(files.items()) if _about(folder / file) != about]


def _prune(folder: Path, files: Mapping[str, About]) -> None:
    """Remove everything else from a folder here."""
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()


def _about(path: Path) -> About | None:
    try:
        about = path.stat()
    except FileNotFoundError:
        return None
    return About(about.st_size, int(about.st_mtime))
