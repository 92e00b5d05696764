"""streaming-core with faults. An Airflow connection names it as the wrapper of the real command.

LOCKSTEP_APP_FAULTS names the faults, a JSON object: part of a cell's name -> wrong | crash | vanish | hang.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_core.cli import main


def damage(out: Path) -> None:
    """Change one value of one output row."""
    path = sorted((out / "outputs").glob("*.parquet"))[0]
    table = pq.read_table(path)
    index = next(i for i, field in enumerate(table.schema) if i > 1 and pa.types.is_integer(field.type))
    values = table.column(index).to_pylist()
    values[7] ^= 1
    column = pa.array(values, table.schema.field(index).type)
    pq.write_table(table.set_column(index, table.schema.field(index), column), path)


def fault() -> str | None:
    """The fault of this cell, if it has one."""
    spec = Path(sys.argv[sys.argv.index("run") + 1])
    cell = spec.parent.parent.name
    return next((what for part, what in json.loads(os.environ["LOCKSTEP_APP_FAULTS"]).items() if part in cell), None)


if __name__ == "__main__":
    sys.argv[1:] = sys.argv[sys.argv.index("run") :]
    what = fault()
    out = Path(sys.argv[sys.argv.index("--out") + 1])
    if what == "crash":
        print("operator read_row, event 7: out of cheese", file=sys.stderr)
        sys.exit(1)
    if what == "vanish":  # the host goes away under the run
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()
    if what == "hang":
        child = os.fork()
        if child:
            Path(os.environ["LOCKSTEP_APP_PIDS"]).write_text(f"{os.getpid()} {child}")
        while True:
            signal.pause()
    code = 0
    try:
        code = main()
    except SystemExit as end:
        code = end.code
    if what == "wrong" and not code:
        damage(out)
    sys.exit(code)
