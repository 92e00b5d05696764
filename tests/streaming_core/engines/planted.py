"""Engines for tests: small programs in a test's folder, registered as installed."""

import sys
from pathlib import Path

import yaml

from streaming_core.engines import environment, registry
from streaming_core.engines.contract import Manifest
from streaming_core.storage import write_json

# A correct engine for wc. Code at `{fault}` can change it.
WC = """
from collections import Counter
import pyarrow as pa
from lockstep_engine import main

def wc(task):
    def one_pass():
        counts, rows = Counter(), []
        for seq, line in zip(task.events["seq"].to_pylist(), task.events["line"].to_pylist()):
            for sub, word in enumerate(filter(None, line.split(b" "))):
                counts[word] += 1
                rows.append({{"seq": seq, "sub": sub, "word": word, "n": counts[word]}})
        columns = [("seq", "int64"), ("sub", "int64"), ("word", "binary"), ("n", "int64")]
        return pa.Table.from_pylist(rows, schema=pa.schema(columns))
    return one_pass
{fault}
main({{"wc": wc}}, {{"python": "3"}})
"""


def plant(root: Path, name: str, program: str, **manifest: object) -> registry.Engine:
    """Write an engine into a folder of engines as an installed one. It runs on this Python."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / environment.LOCK).touch()
    (folder / "run.py").write_text(program)
    fields = {"system": f"Test {name}", "command": [sys.executable, "run.py"], "applications": {"wc": "total"}}
    (folder / registry.MANIFEST).write_text(yaml.safe_dump(fields | manifest))
    engine = registry.Engine(name, folder, Manifest.model_validate(fields | manifest))
    (folder / environment.FOLDER).mkdir()
    write_json(folder / environment.FOLDER / environment.INSTALLED, {"source": environment.source_digest(engine)})
    return engine
