"""The components that benchmarks measure, and digests of their sources.

A result holds the digest of each component that its suite measures. If a source changes, so does the digest, and the
pages mark the result as outdated. Every component includes the shared sources. Tests, documentation and the benchmark
itself are not sources of a component.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from streaming_core.errors import BadInput

ROOT = Path(__file__).parents[3]
PYTHON, RUST = "streaming_core", "streaming_core/runtime/src"
KINDS = ("*.py", "*.rs", "*.java")
UNKNOWN = "unknown"  # the digest of sources that an installed package lacks; pages mark such a result as outdated

# Files and folders of the checkout. A folder stands for all `.py`, `.rs` and `.java` files below it,
# but those in hidden folders.
SHARED = (
    "Cargo.lock",
    "Cargo.toml",
    "streaming_core/runtime/Cargo.toml",
    "streaming_core/runtime/build.rs",
    *(
        f"{RUST}/{name}"
        for name in (
            "dataflow/direct.rs",
            "dataflow/flush.rs",
            "dataflow/frame.rs",
            "dataflow/lane.rs",
            "dataflow/mod.rs",
            "dataflow/operator.rs",
            "engine.rs",
            "error.rs",
            "executor.rs",
            "interruption.rs",
            "lib.rs",
            "memory",
            "output",
            "program",
            "python.rs",
            "rows",
            "state/container.rs",
            "state/index.rs",
            "state/key_group.rs",
            "state/key_index.rs",
            "state/key_range.rs",
            "state/keyed",
            "state/mod.rs",
            "state/states.rs",
            "state/table.rs",
            "threads",
        )
    ),
    *(
        f"{PYTHON}/{name}"
        for name in (
            "api.py",
            "apps/__init__.py",
            "apps/registry.py",
            "data/rows.py",
            "data/workload.py",
            "generator",
            "kernels",
            "language",
            "machine_code",
            "oracle/loop",
            "run/blocks.py",
            "run/engine.py",
            "run/one_pass.py",
            "run/passes.py",
            "run/way.py",
            "run/yardstick.py",
        )
    ),
)


def _apps(*names: str) -> tuple[str, ...]:
    return tuple(f"{PYTHON}/apps/{name}.py" for name in names)


def _engines(*names: str) -> tuple[str, ...]:
    """The programs of engines, and the versions of their packages."""
    return tuple(f"infra/engines/{name}{path}" for name in names for path in ("", "/requirements.lock"))


COMPONENTS: dict[str, tuple[str, ...]] = {
    "transactions": (f"{RUST}/transactions", *_apps("fx", "gs", "ob", "sl", "tb", "tp")),
    "pooled": (f"{RUST}/dataflow/pooled", *_apps("q1", "q2", "q3", "q4", "q15")),
    "pinned": (
        f"{RUST}/dataflow/pinned",
        f"{RUST}/dataflow/morsel",
        f"{PYTHON}/planner",
        f"{PYTHON}/run/host.py",
        f"{PYTHON}/run/planning.py",
        f"{PYTHON}/run/profile.py",
        f"{PYTHON}/run/trial.py",
        *_apps("fd", "lr", "sd", "wc"),
    ),
    "channels": (f"{RUST}/dataflow/channel", *_apps("new_seg", "pos_rep")),
    "windows": (
        f"{RUST}/dataflow/share",
        f"{RUST}/dataflow/windowed",
        f"{RUST}/state/windows",
        *_apps("hashtag", "hedge", "scalejoin", "wordcount"),
    ),
    "limits": ("streaming_core/runtime/benches", *_apps("fd", "sd", "wc")),
    # Those that Lockstep ships. An engine of your own makes no result outdated.
    "engines": (
        f"{PYTHON}/engines",
        f"{PYTHON}/run/external.py",
        "infra/engines/flink/jars.lock",
        *_engines("bytewax", "flink", "handwritten", "polars"),
    ),
}


def digests(names: Iterable[str], root: Path = ROOT) -> dict[str, str]:
    """Return 16 hex digits for each of these components: the digest of its sources and of the shared ones.

    An installed package has no sources of the runtime. Every digest is UNKNOWN then.

    Args:
        names: The components.
        root: The checkout.

    Raises:
        BadInput: A component is unknown, or a source is missing from the checkout.
    """
    is_installed = not (root / RUST).exists()
    return {name: UNKNOWN if is_installed and name in COMPONENTS else _digest(name, root) for name in names}


def _digest(name: str, root: Path) -> str:
    if name not in COMPONENTS:
        raise BadInput(f"unknown component {name!r}; known: {', '.join(COMPONENTS)}")
    digest = hashlib.sha256()
    for path in sorted({path for source in (*SHARED, *COMPONENTS[name]) for path in files(source, root)}):
        content = (root / path).read_bytes()
        digest.update(f"{path} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def files(source: str, root: Path = ROOT) -> Iterator[str]:
    """Yield the files of a source, relative to the checkout, without tests.

    Raises:
        BadInput: The source is missing from the checkout.
    """
    path = root / source
    if not path.exists():
        raise BadInput(
            f"{path} is missing; run benchmarks in a checkout, or correct streaming_core/bench/race/components.py"
        )
    below = [path] if path.is_file() else [file for kind in KINDS for file in path.rglob(kind)]
    names = (file.relative_to(root) for file in below)
    shown = (name.as_posix() for name in names if not any(part.startswith(".") for part in name.parts))
    yield from (name for name in shown if not is_test(name))


def is_test(name: str) -> bool:
    """Return whether a file of the runtime holds only tests or models of its structures."""
    path = Path(name)
    return bool({"tests", "testing"} & set(path.parts[:-1])) or path.name in ("tests.rs", "models.rs")
