"""Past runs, read from LOCKSTEP_HOME. Start at `History` (load.py), which finds runs and loads them.

| module | noun |
|---|---|
| `load` | `History`: every run of a LOCKSTEP_HOME |
| `run` | `Run`, and `Results`, which a run and the state share |
| `cell` | `Cell`: one planned cell and its outcome |
| `state` | `State`: each cell as its latest comparable run judged it |
| `speed`, `gate` | the verdicts on a cell's speed: over the nights, and beside another commit |
| `profile` | `Profile`: where the time of a cell goes |
| `text` | words for values |
"""

from reports.history.cell import Cell
from reports.history.load import History
from reports.history.run import Results, Run
from reports.history.text import NOTHING, human_micros, human_rate, revision, short
from reports.times import started

__all__ = [
    "NOTHING",
    "Cell",
    "History",
    "Results",
    "Run",
    "human_micros",
    "human_rate",
    "revision",
    "short",
    "started",
]
