"""The documentation of releases on the branch of pages of a bare repository on this machine."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from infra.history.branch import PAGES
from infra.release import documentation
from streaming_core.errors import BadInput, CommandFailed


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def clone(tmp_path) -> Path:
    git(tmp_path, "init", "--quiet", "--bare", "remote")
    git(tmp_path, "clone", "--quiet", "remote", "clone")
    return tmp_path / "clone"


def site(folder: Path, **pages: str) -> Path:
    folder.mkdir()
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text)
    return folder


def page(clone: Path, path: str) -> str:
    return git(clone.parent / "remote", "show", f"{PAGES}:{path}")


def test_newest_release_is_latest_and_earlier_ones_stay(clone, tmp_path):
    documentation.publish(site(tmp_path / "1", index="one", old="gone"), "0.1.0", clone)
    line = documentation.publish(site(tmp_path / "2", index="two"), "0.2.0rc1", clone)
    assert line == "the documentation of 0.2.0rc1 is on branch gh-pages, also as latest"
    listed = git(clone.parent / "remote", "ls-tree", "-r", "--name-only", PAGES).split()
    assert listed == [
        *("0.1.0/index.html", "0.1.0/old.html", "0.2.0rc1/index.html", "latest/index.html", "versions.json")
    ]
    assert (page(clone, "latest/index.html"), page(clone, "0.1.0/index.html")) == ("two", "one")
    versions = [(entry["version"], entry["aliases"]) for entry in json.loads(page(clone, "versions.json"))]
    assert versions == [("0.2.0rc1", ["latest"]), ("0.1.0", [])]


def test_release_that_is_published_again_replaces_its_pages(clone, tmp_path):
    documentation.publish(site(tmp_path / "1", index="one", old="gone"), "0.1.0", clone)
    documentation.publish(site(tmp_path / "2", index="again"), "0.1.0", clone)
    listed = git(clone.parent / "remote", "ls-tree", "-r", "--name-only", PAGES).split()
    assert listed == ["0.1.0/index.html", "latest/index.html", "versions.json"]
    assert len(json.loads(page(clone, "versions.json"))) == 1


@pytest.mark.parametrize("version", ["", "v0.1.0", "latest", "../0.1.0", "0.1"])
def test_version_of_another_form_is_refused(clone, tmp_path, version):
    with pytest.raises(BadInput, match="is not a version"):
        documentation.publish(site(tmp_path / "1", index="one"), version, clone)


def test_missing_program_is_named_with_the_command_that_installs_it(tmp_path):
    with pytest.raises(CommandFailed, match="type `make docs`"):
        documentation.build(tmp_path / "sources", tmp_path / "zensical")


@pytest.mark.slow
def test_site_of_a_release_has_the_menu_of_versions(tmp_path):
    page = (documentation.build(tmp_path) / "tutorial.html").read_text()
    (configuration,) = re.findall(r'<script id="__config" type="application/json">(.*?)</script>', page)
    assert json.loads(configuration)["version"] == {"provider": "mike", "default": "latest"}
