"""Brings the checkpoints of a running cell here, from a host that does not share LOCKSTEP_HOME.

The files of a checkpoint never change once they have their name (streaming_core/run/checkpoint). So each round fetches
only new files: first outputs, then checkpoints, the oldest one first. If a round is interrupted, the last checkpoint
that is here still has all its files. An output that is not complete yet belongs to no checkpoint. A later round fetches
it again, because its size or time differs.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import asyncssh

from streaming_core.run.folder import WORK

FOLDERS = ("outputs", "checkpoints")  # in the order in which they are fetched


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
        folder = here / WORK / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, about in sorted(listings[name].items()):
            if _about(folder / file) != about:
                await sftp.get(f"{there}/{WORK}/{name}/{file}", folder / f".{file}", preserve=True)
                os.replace(folder / f".{file}", folder / file)
    for name, files in listings.items():
        for path in (here / WORK / name).iterdir() if files else ():
            if path.name not in files:
                path.unlink()


async def _files(sftp: asyncssh.SFTPClient, folder: str) -> dict[str, tuple[int, int]]:
    """Size and time of the files in a folder that have their name already; empty if there is no folder."""
    try:
        entries = await sftp.readdir(folder)
    except asyncssh.SFTPNoSuchFile:
        return {}
    return {
        str(entry.filename): (entry.attrs.size or 0, int(entry.attrs.mtime or 0))
        for entry in entries
        if stat.S_ISREG(entry.attrs.permissions or 0) and not str(entry.filename).startswith(".")
    }


def _about(path: Path) -> tuple[int, int] | None:
    """Size and time of a file here."""
    try:
        about = path.stat()
    except FileNotFoundError:
        return None
    return about.st_size, int(about.st_mtime)
