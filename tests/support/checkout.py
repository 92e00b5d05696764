"""A copy of this checkout with its own environment, for tests that change files like a user."""

import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path

from infra.checkout import ROOT
from streaming_core.process import git

PACKAGES = Path(sysconfig.get_path("purelib"))
# The results of `make setup`. With them, `make setup` does nothing in the copy.
STAMPS = (".locked", ".runtime")
MODULES = ("dags", "expectations", "infra", "jobs", "reports", "streaming_core")
# Variables as other programs leave them in a shell: conda, tools of other projects, a proxy that answers nothing.
FOREIGN = {
    **dict.fromkeys(
        ("CONDA_PREFIX", "CONDA_DEFAULT_ENV", "UV_PROJECT_ENVIRONMENT", "MATURIN_PEP517_ARGS"), "/nonsense"
    ),
    **dict.fromkeys(("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "CARGO_BUILD_TARGET", "RUSTFLAGS"), "/nonsense"),
    **dict.fromkeys(("PYTHONPATH", "PYTHONHOME", "DBT_TARGET", "DBT_PROFILES_DIR", "AIRFLOW_CONFIG"), "/nonsense"),
    **dict.fromkeys(("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS"), "/nonsense"),
    **dict.fromkeys(("HADOOP_CONF_DIR", "JAVA_TOOL_OPTIONS", "SPARK_LOCAL_IP"), "/nonsense"),
    **dict.fromkeys(("UV_SYSTEM_PYTHON", "PIP_USER", "NUMBA_DISABLE_JIT", "PYTHONDONTWRITEBYTECODE"), "1"),
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"),
}


def copy(folder: Path) -> Path:
    """Copy the checkout as `track` does, and make it usable as `equip` does; returns the folder."""
    return equip(track(folder))


def track(folder: Path) -> Path:
    """Copy the files that git tracks or would track into a repository of one commit; returns the folder."""
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return commit(folder)


def commit(folder: Path) -> Path:
    """Commit everything in a folder, which becomes a repository if necessary; returns the folder."""
    settings = ("-c", "user.name=A User", "-c", "user.email=user@example.org", "-c", "core.hooksPath=/dev/null")
    _git(folder, "init", "--quiet")
    _git(folder, "add", "--all")
    _git(folder, *settings, "commit", "--quiet", "--message", "all")
    return folder


def equip(folder: Path) -> Path:
    """Give a copy the runtime and a virtual environment: its modules are the copy's, its packages those of this one.

    The copy also gets the byte code of this checkout, which fits its sources as long as they are unchanged. Returns the
    folder.
    """
    (runtime,) = (ROOT / "streaming_core").glob("_runtime*.so")
    shutil.copy2(runtime, folder / "streaming_core")
    _make_environment(folder)
    for stamp in STAMPS:
        (folder / ".venv" / stamp).touch()
    for cache in (path for name in MODULES for path in (ROOT / name).rglob("__pycache__")):
        if (target := folder / cache.relative_to(ROOT)).parent.is_dir():
            with suppress(shutil.Error):  # another process is writing a file of the cache
                shutil.copytree(cache, target, dirs_exist_ok=True)
    return folder


def _make_environment(folder: Path) -> None:
    venv = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    # In this order: modules of the copy come before those that the packages' own .pth files lead to.
    (packages / "copy.pth").write_text(f"{folder}\nimport site; site.addsitedir({str(PACKAGES)!r})\n")
    here = Path(sys.executable).parent
    for script in here.iterdir():
        copy = venv / "bin" / script.name
        if copy.exists() or not script.is_file():
            continue
        if script.is_symlink():
            copy.symlink_to(os.readlink(script))
        else:
            copy.write_bytes(script.read_bytes().replace(str(here.parent).encode(), str(venv).encode()))
            shutil.copymode(script, copy)


def environment(folder: Path) -> dict[str, str]:
    """The variables of a shell in the copy, without those that lead to another checkout."""
    unwanted = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LOCKSTEP_", "AIRFLOW_", "SPARK_", "PYTEST_", "MAKE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    here = [path for path in kept["PATH"].split(os.pathsep) if Path(path) != Path(sys.executable).parent]
    kept["PATH"] = os.pathsep.join([str(folder / ".venv" / "bin"), *here])
    return kept


def homes(folder: Path) -> dict[str, str]:
    """The variables of homes in a folder."""
    names = {"LOCKSTEP_HOME": "lockstep", "AIRFLOW_HOME": "airflow", "LOCKSTEP_HOST_LOCK": "host.lock"}
    return {variable: str(folder / name) for variable, name in names.items()}


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout
