"""A folder that debootstrap fills with Debian 12, with our settings for package registries."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.programs import require

RELEASE = "bookworm"
SETTINGS = ("/etc/apt/apt.conf.d", "/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/hosts", "/etc/pip.conf")
SETTINGS += ("/etc/resolv.conf", "/etc/ssl", "/etc/uv")
SETTINGS += ("/usr/local/share/ca-certificates", "/usr/share/ca-certificates")
OF_HOME = (".cargo/config", ".cargo/config.toml", ".config/pip", ".config/uv", ".netrc", ".pip")
VARIABLES = re.compile(
    r"(PIP|UV|CARGO_(HTTP|NET|REGISTRIES|REGISTRY|SOURCE)|SSL|CURL|REQUESTS)_\w+|(https?|no|all)_proxy", re.I
)


def fill(root: Path, packages: Sequence[str]) -> None:
    """Fill a folder with Debian, a few more of its packages, and our settings. It needs root, and takes a minute."""
    options = ["--variant=minbase", *([f"--include={','.join(packages)}"] if packages else [])]
    log = root.with_name("debootstrap.log")
    with open(log, "w") as out:
        done = subprocess.run([require("debootstrap"), *options, RELEASE, root, mirror()], stdout=out, stderr=out)
    assert done.returncode == 0, log.read_text()[-3000:]
    named = [value for value in variables().values() if value.startswith("/") and os.path.exists(value)]
    for path in map(Path, [*SETTINGS, *named]):
        _copy(path, root / path.relative_to("/"))
    for name in OF_HOME:  # for the root of the machine, whose home is /root, and for users that it adds
        for home in ("root", "etc/skel"):
            _copy(Path.home() / name, root / home / name)


def variables() -> dict[str, str]:
    """Our variables for package registries. Some name files, which the folder has too."""
    return {name: value for name, value in os.environ.items() if VARIABLES.fullmatch(name)}


def mirror() -> str:
    """The address that this machine takes Debian's packages from."""
    command = ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(CODENAME)", "Created-By: Packages"]
    targets = [line.split() for line in subprocess.check_output(command, text=True).splitlines()]
    sites = [site for site, *releases in targets if RELEASE in releases]
    assert sites, "this machine has no source of Debian 12"
    return sites[0]


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore_dangling_symlinks=True)
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
