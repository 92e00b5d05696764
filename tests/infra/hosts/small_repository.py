"""A small git repository with a `streaming_core` package and a Rust runtime, which compiles in seconds.

Each commit has a tag:

- `v1` works.
- `slow` works too, reports slower passes and locks other packages.
- `broken` has a runtime that does not compile.
- `endless` has a build script that creates a file and then does not end.
- `bare` has no crate.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from infra.checkout import LOCK_FILE, ROOT
from infra.hosts import build
from streaming_core.run import provenance

# A `streaming-core run` that writes a made-up report. The file `answer` beside it holds the figures. The file `asked`
# collects the specs.
ANSWERS = """
import hashlib, json, sys
from pathlib import Path

def main():
    here, spec, out = Path(__file__).parent, json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[6])
    with open(here / "asked", "a") as asked:
        print(json.dumps(spec), file=asked)
    answer = {"seconds": 0.25, "digest": "1:a", "steal": 0.0, "means": ""}
    answer |= json.loads((here / "answer").read_text())
    if "error" in answer:
        sys.exit(answer["error"])
    sample = {"seconds": answer["seconds"], "digest": answer["digest"]}
    out.mkdir()
    spec_digest = hashlib.sha256((json.dumps(spec, sort_keys=True, separators=(",", ":")) + answer["means"]).encode())
    report = {"spec_digest": spec_digest.hexdigest()[:16], "state_digest": "0:0", "host": {"steal": answer["steal"]}}
    report["samples"] = [sample | {"seconds": 9.0}] + [sample] * spec["repetitions"]
    (out / "report.json").write_text(json.dumps(report))
"""
CARGO = """
[package]
name = "small"
version = "0.1.0"
edition = "2021"

[lib]
name = "_runtime"
path = "src/lib.rs"
crate-type = ["cdylib"]

[dependencies]
pyo3-ffi = { version = "0.30", features = ["abi3-py311", "extension-module"] }
"""
PROJECT = """
[build-system]
requires = ["maturin>=1.10,<2"]
build-backend = "maturin"

[project]
name = "small"
version = "0.1.0"

[tool.maturin]
module-name = "streaming_core._runtime"
python-source = "."
"""
RUNTIME = """
use pyo3_ffi::*;

static mut SLOTS: [PyModuleDef_Slot; 1] = [PyModuleDef_Slot { slot: 0, value: std::ptr::null_mut() }];
static mut MODULE: PyModuleDef = PyModuleDef {
    m_base: PyModuleDef_HEAD_INIT,
    m_name: c"_runtime".as_ptr(),
    m_doc: std::ptr::null(),
    m_size: 0,
    m_methods: std::ptr::null_mut(),
    m_slots: &raw mut SLOTS as *mut _,
    m_traverse: None,
    m_clear: None,
    m_free: None,
};

#[no_mangle]
pub unsafe extern "C" fn PyInit__runtime() -> *mut PyObject {
    PyModuleDef_Init(&raw mut MODULE)
}
"""
# Cargo runs it before it compiles the crate. Reading a pipe without a writer does not end.
ENDLESS = """
fn main() {
    std::fs::write(env!("STARTED"), "").unwrap();
    let _ = std::fs::read(env!("PIPE"));
}
"""


def make(root: Path) -> Path:
    """Write the repository; its checkout is at `v1`."""
    files = {"Cargo.toml": CARGO, "pyproject.toml": PROJECT, LOCK_FILE: "numba==1\n", "src/lib.rs": RUNTIME}
    files |= {"streaming_core/__init__.py": "", "streaming_core/cli.py": ANSWERS, "streaming_core/answer": "{}"}
    put(root, files | {".gitignore": "asked\n__pycache__\n"})
    shutil.copy(ROOT / "Cargo.lock", root)  # of its crates those that are here, so that nothing is downloaded
    git(root, "init", "--quiet", "--initial-branch", "main")
    commit(root, "v1")
    put(root, {"streaming_core/answer": '{"seconds": 0.5}', LOCK_FILE: "numba==2\n"})
    commit(root, "slow")
    put(root, {"src/lib.rs": RUNTIME.replace("MODULE)", "NOSUCH)")})
    commit(root, "broken")
    put(root, {"src/lib.rs": RUNTIME, "build.rs": ENDLESS})
    commit(root, "endless")
    for name in ("Cargo.toml", "build.rs"):
        (root / name).unlink()
    commit(root, "bare")
    git(root, "checkout", "--quiet", "v1")
    return root


def replace_checkout(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let `root` be the checkout, for the services in this process."""
    monkeypatch.setattr(build, "ROOT", root)
    revision = git(root, "describe", "--always", "--exclude=*")
    monkeypatch.setattr(provenance, "build", lambda: revision)
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")
    return root


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def commit(root: Path, tag: str) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", tag)
    git(root, "tag", tag)


def git(root: Path, *words: str) -> str:
    """The output of a git command."""
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    name = [word for role in ("user.name=t", "user.email=t@t") for word in ("-c", role)]
    done = subprocess.run(
        ["git", *name, *words], cwd=root, env=os.environ | alone, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
