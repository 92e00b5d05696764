"""The image of production and the development container: buildah builds both, and each runs a regression.

Their base is an image that debootstrap makes under the name of Debian's own, so no registry of images is needed. It has
our settings for package registries.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import checkout, debian
from tests.support.programs import require

BASE = "docker.io/library/debian:bookworm"
PATIENCE = 7000
RUN = ("run", "--applications", "wc", "--events", "2000", "--repetitions", "1", "--seconds", "0")
ROOT_OF_PRODUCTION = "/srv/lockstep"
ROOT_OF_DEVELOPMENT = "/home/lockstep/checkout"

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap needs root")]


class Images:
    """Images and containers, kept in a folder of their own."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._buildah = [require("buildah"), "--root", str(folder / "images"), "--runroot", str(folder / "running")]

    def call(self, *words: str) -> str:
        """Run buildah; returns its output."""
        scratch = {"TMPDIR": str(self._folder), "BUILDAH_ISOLATION": "chroot"}
        done = subprocess.run(
            [*self._buildah, *words],
            env={**os.environ, **scratch},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
        return done.stdout.strip()

    def base(self) -> None:
        """Make the image of Debian."""
        tree = self._folder / "debian"
        debian.fill(tree, [])
        container = self.call("from", "scratch")
        self.call("add", "--quiet", container, str(tree), "/")
        settings = [word for name, value in debian.variables().items() for word in ("--env", f"{name}={value}")]
        self.call("config", "--cmd", "bash", *settings, container)
        self.call("commit", "--quiet", "--rm", container, BASE)
        shutil.rmtree(tree)

    def container(self, file: str, context: Path) -> str:
        """Build an image from a file, and make a container of it."""
        image = file.replace("/", "-").strip(".").lower()
        options = ["--pull=never", "--network", "host", "--layers=false", "--build-arg", "PROFILE=ci"]
        self.call("build", *options, "--file", file, "--tag", image, str(context))
        return self.call("from", "--pull=never", image)

    def run(self, container: str, folder: str, *command: str) -> str:
        """Run a command in a container, as its user; returns the output."""
        return self.call("run", "--network", "host", "--workingdir", folder, container, "--", *command)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return checkout.track(tmp_path_factory.mktemp("source") / "checkout")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    images = Images(folder)
    images.base()
    yield images
    images.call("rm", "--all")
    images.call("rmi", "--all", "--force")
    shutil.rmtree(folder)


def test_image_of_production_has_no_tools_of_development_and_is_green(images, source, monkeypatch):
    monkeypatch.chdir(source)
    container = images.container("infra/stack/Containerfile", source)
    installed = set(images.run(container, ROOT_OF_PRODUCTION, "ls", ".venv/bin").split())
    assert {"lockstep", "airflow", "dbt"} <= installed
    assert not installed & {"pytest", "ruff", "mypy", "zensical"}
    output = images.run(container, ROOT_OF_PRODUCTION, ".venv/bin/lockstep", *RUN)
    assert re.search(r"All \d+ cells equal the oracle", output), output[-3000:]


def test_development_container_sets_a_checkout_up_and_is_green(images, source, monkeypatch):
    monkeypatch.chdir(source)
    container = images.container(".devcontainer/Dockerfile", source / ".devcontainer")
    images.call("add", "--quiet", "--chown", "lockstep:lockstep", container, str(source), ROOT_OF_DEVELOPMENT)
    settings = json.loads((source / ".devcontainer" / "devcontainer.json").read_text())
    images.run(container, ROOT_OF_DEVELOPMENT, "bash", "-c", settings["postCreateCommand"])
    output = images.run(container, ROOT_OF_DEVELOPMENT, "make", "run", f"ARGS={' '.join(RUN[1:])}")
    assert re.search(r"All \d+ cells equal the oracle", output), output[-3000:]
