# %% [markdown]
# # The trend of a cell
#
# This notebook reads the raw results in a LOCKSTEP_HOME with DuckDB, and draws the speed of one cell over its runs.
# Open it in VS Code or, with jupytext, in Jupyter. Or run it:
#
#     python docs/notebooks/trend.py --home .lockstep --cell CELL --out trend.svg
#
# Without `--cell` it takes the cell with the most runs. docs/reference/warehouse.md describes the columns.

# %%
import argparse
import json
import os
import sys
from collections import Counter
from pathlib import Path

import duckdb
import vl_convert

parser = argparse.ArgumentParser(description="Draw the speed of a cell over its runs.")
parser.add_argument("--home", default=os.environ.get("LOCKSTEP_HOME", ".lockstep"), help="The LOCKSTEP_HOME to read.")
parser.add_argument("--cell", help="The name of the cell; by default the one with the most runs.")
parser.add_argument("--out", default="trend.svg", help="The picture to write.")
in_notebook = "ipykernel" in sys.modules
options = parser.parse_args([] if in_notebook else None)
raw = Path(options.home) / "warehouse" / "raw"
if not any(raw.glob("cells/run_id=*/*.parquet")):
    parser.error(f"{options.home} holds no results: run `lockstep run`, or name another folder with --home")

# %% [markdown]
# A row for each run and cell, without bounds: the median, the slowest and the fastest pass at peak rate. Red cells stay
# in, because a wrong result has a speed too; the picture gives each verdict a color.

# %%
SPEEDS = """
    select c.run_id, c.cell, c.host, c.build, c.verdict,
           median(s.events_per_s) as median, min(s.events_per_s) as slowest, max(s.events_per_s) as fastest
    from read_parquet($cells, hive_partitioning = false) as c
    join read_parquet($samples, hive_partitioning = false) as s using (run_id, cell)
    where s.kind = 'peak' and not c.is_bound
    group by all
    order by c.run_id
"""
# Each run has a file per table.
files = {table: f"{raw}/{table}/run_id=*/*.parquet" for table in ("cells", "samples")}
speeds = duckdb.sql(SPEEDS, params=files).to_arrow_table().to_pylist()
runs = Counter(row["cell"] for row in speeds)
cell = options.cell or max(sorted(runs), key=runs.__getitem__, default="")
trend = [row for row in speeds if row["cell"] == cell]
if not trend:
    parser.error(f"no run measured the cell {cell!r}; `lockstep report --json` lists the cells of the newest run")

# %% [markdown]
# The picture. A notebook shows it with tooltips; a script writes it as SVG.


# %%
class Chart:
    """A Vega-Lite chart, which notebooks draw."""

    def __init__(self, specification: dict):
        self.specification = specification
        self.svg = vl_convert.vegalite_to_svg(json.dumps(specification))

    def _repr_mimebundle_(self, **_: object) -> dict:
        return {"application/vnd.vegalite.v5+json": self.specification, "image/svg+xml": self.svg}


x = {"field": "run_id", "type": "ordinal", "title": "runs, oldest first", "axis": {"labels": False}}
y = {"field": "median", "type": "quantitative", "title": "events/s", "axis": {"format": "~s"}}
color = {"field": "verdict", "type": "nominal", "title": None}
tooltip = [{"field": name} for name in ("run_id", "build", "host", "median", "slowest", "fastest", "verdict")]
chart = Chart(
    {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "title": cell,
        "width": 600,
        "data": {"values": trend},
        "encoding": {"x": x, "tooltip": tooltip},
        "layer": [
            {"mark": "rule", "encoding": {"y": {**y, "field": "slowest"}, "y2": {"field": "fastest"}}},
            {"mark": {"type": "point", "filled": True, "opacity": 1}, "encoding": {"y": y, "color": color}},
        ],
    }
)
if not in_notebook:
    Path(options.out).write_text(chart.svg)
    print(f"{options.out}: {cell} in {len(trend)} runs")
chart  # the value of the cell, which a notebook shows
