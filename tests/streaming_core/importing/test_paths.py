"""An import refuses files outside the roots, and other than regular files, in one line."""

import os
import socket
from pathlib import Path

import pytest

from streaming_core.errors import BadInput
from streaming_core.importing.files import find_files
from streaming_core.importing.paths import open_regular, regular_files

TEXT = "ts,line\n1,x\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A readable root, next to a file and a folder outside it."""
    for path in ("root/a.csv", "root/in/b.csv", "root/in/.hidden/c.csv", "outside.csv", "root2/a.csv"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(TEXT)
    return tmp_path / "root"


def refusal(named: Path, roots: list[Path] | None) -> str:
    with pytest.raises(BadInput) as refused:
        find_files([named], None, roots)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_files_and_folders_in_a_root_are_read_through_links_too(root):
    (root / "link.csv").symlink_to("in/b.csv")
    (root.parent / "way").symlink_to(root)
    (root / "in" / "up.csv").symlink_to("../a.csv")
    assert regular_files(root / "a.csv", [root]) == [(root / "a.csv", root / "a.csv")]
    assert regular_files(root / "link.csv", [root]) == [(root / "link.csv", root / "in" / "b.csv")]
    for folder, roots in ((root / "in", [root.parent / "way"]), (root.parent / "way" / "in", [Path("/nosuch"), root])):
        pairs = [(folder / "b.csv", root / "in" / "b.csv"), (folder / "up.csv", root / "a.csv")]
        assert regular_files(folder, roots) == pairs


@pytest.mark.parametrize(
    "path",
    ["outside.csv", "nosuch.csv", "root2/a.csv", "root/../outside.csv", "root/link.csv", "root/folder/a.csv", "."],
)
def test_paths_outside_the_roots_are_refused_whether_or_not_they_exist(root, path):
    (root / "link.csv").symlink_to("../outside.csv")
    (root / "folder").symlink_to("../root2")
    named = root.parent / path
    assert refusal(named, [root, Path("/nosuch")]) == (
        f"{named} is outside the folders that may be read ({root}, /nosuch): copy the file there, or add its folder to "
        "LOCKSTEP_IMPORT_ROOTS"
    )


def test_link_out_of_the_roots_in_a_folder_is_refused(root):
    (root / "in" / "link.csv").symlink_to(root.parent / "outside.csv")
    assert refusal(root / "in", [root]).startswith(f"{root / 'in' / 'link.csv'} is outside the folders ")
    assert len(regular_files(root / "in", None)) == 2


@pytest.mark.parametrize("roots", [True, False])
@pytest.mark.parametrize("is_in_folder", [True, False])
@pytest.mark.parametrize("kind", ["a FIFO", "a socket", "a device", "a link that leads to itself"])
def test_only_regular_files_are_read_on_the_command_line_too(root, roots, is_in_folder, kind, monkeypatch):
    path = root / "in" / "x.csv"
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a socket":
        monkeypatch.chdir(path.parent)  # the path of a socket is short
        with socket.socket(socket.AF_UNIX) as endpoint:
            endpoint.bind("x.csv")
    else:
        path.symlink_to("/dev/null" if kind == "a device" else "x.csv")
    allowed = [root, Path("/dev")] if roots else None
    assert refusal(path.parent if is_in_folder else path, allowed) == (
        f"{path} is {kind}: only regular files, and folders of them, can be imported"
    )


def test_linked_folder_is_named_instead_of_ignored(root):
    (root / "in" / "more").symlink_to("..")
    assert refusal(root / "in", [root]) == f"{root / 'in' / 'more'} is a link to a folder: name that folder itself"


def test_file_replaced_after_the_check_is_not_opened(root):
    ((_, file),) = regular_files(root / "in" / "b.csv", [root])
    with open_regular(file) as opened:
        assert opened.read().decode() == TEXT
    (root / "in").rename(root / "before")
    (root / "in").symlink_to(root / "before")  # the folder above is a link now
    with pytest.raises(OSError, match="another program replaced it while the import ran"):
        open_regular(file)
    (root / "in").unlink()
    (root / "in").mkdir()
    os.mkfifo(file)
    with pytest.raises(OSError, match="another program replaced it while the import ran"):
        open_regular(file)
    file.unlink()
    file.symlink_to(root / "a.csv")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        open_regular(file)
