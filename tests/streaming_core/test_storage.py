"""Locks in shared folders: another user's link there is never followed."""

from __future__ import annotations

import os
import stat

import pytest

from streaming_core.storage import Lock, atomic_directory


@pytest.mark.parametrize("shared", [True, False])
def test_a_lock_does_not_follow_a_link(tmp_path, shared):
    mine, link = tmp_path / "mine", tmp_path / "lock"
    mine.write_text("of value")
    mine.chmod(0o600)
    link.symlink_to(mine)
    with pytest.raises(OSError, match="symbolic links"):
        Lock(link, of_all_users=shared).take("another process")
    assert mine.read_text() == "of value"
    assert stat.S_IMODE(mine.stat().st_mode) == 0o600


def test_only_a_new_lock_of_all_users_is_writable_by_every_user(tmp_path):
    before = os.umask(0o077)
    try:
        for name, shared in (("shared", True), ("own", False)):
            lock = Lock(tmp_path / name, of_all_users=shared)
            assert lock.take(name)
            lock.leave()
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == (0o666 if shared else 0o600)
        there = tmp_path / "there"
        there.touch(0o640)
        lock = Lock(there, of_all_users=True)
        assert lock.take("me")
        lock.leave()
        assert stat.S_IMODE(there.stat().st_mode) == stat.S_IMODE(0o640 & ~0o077)
    finally:
        os.umask(before)


def test_a_refusal_names_the_holder_of_the_lock(tmp_path):
    held, other = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert held.take("the first, who has a long name")
    assert not other.take("another")
    assert other.holder() == "the first, who has a long name"
    held.leave()
    assert other.take("another")
    assert held.holder() == "another"
    other.leave()


def test_folder_of_a_killed_writer_goes_and_no_later_writer_uses_it(tmp_path):
    """A task that outlives its writer may still write there."""
    target, other = tmp_path / "one", tmp_path / ".one.more.5.new"
    for left in (tmp_path / ".one.new", tmp_path / ".one.4194305.new", other):
        left.mkdir()
    with atomic_directory(target) as folder:
        assert folder.name == f".one.{os.getpid()}.new"
        assert sorted(tmp_path.glob(".*.new")) == sorted([folder, other])
    assert target.is_dir()
    assert [*tmp_path.glob(".*.new")] == [other]
