"""`lockstep run --dry-run`: what a run would do, without Airflow."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra import checkout
from infra.fields import OF_RUN
from infra.hosts.judgement import this_machine
from reports import estimate
from streaming_core.regression import fleet, matrices, matrix
from streaming_core.regression.home import Home, new_run_id
from streaming_core.regression.preflight import latest


def dry_run(home: Home, conf: dict[str, Any], as_json: bool) -> None:
    """Print the cells of a request, its hosts, and how long it will take.

    Args:
        home: LOCKSTEP_HOME.
        conf: The conf of the run, as `infra.cli.run_options.conf` returns it.
        as_json: Print JSON instead of a table.

    Raises:
        BadInput: The task plan_matrix would refuse the request.
    """
    fields = {name: value for name, value in conf.items() if name not in OF_RUN}
    request = matrices.request(checkout.MATRICES, home, fields, conf.get("matrix"))
    regression = request.regression
    plan = matrix.draft(
        regression,
        home,
        new_run_id("dry run", time.time()),
        matrix=request.matrix,
        spark=conf.get("spark") or fleet.SPARK,
        hosts=latest(home, regression.hosts) | {fleet.LOCAL: this_machine(home)},
    )
    sentence = estimate.of_plan(home, plan, estimate.machines(home, regression.hosts)).sentence
    if as_json:
        content = {
            "cells": [cell["cell"] for cell in plan["cells"]],
            "hosts": regression.hosts,
            "placement": regression.placement,
            "gate_minutes": regression.gate_minutes,
            "find_minutes": regression.find_minutes,
            "left_out": plan["left_out"],
            "estimate": sentence,
        }
        print(json.dumps(content, indent=1))
        return
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("application")
    table.add_column("executor")
    table.add_column("cells", justify="right")
    counts = Counter((cell["spec"]["app"], cell["spec"]["executor"]) for cell in plan["cells"])
    for (app, executor), count in counts.items():
        table.add_row(app, executor, f"{count:,}")
    console = Console(highlight=False)
    console.print(table)
    hosts = f"{', '.join(regression.hosts)}; placement {regression.placement}"
    lines = [f"left out: {line}" for line in matrix.omissions(plan)]
    lines += [f"hosts: {hosts}", sentence]
    if regression.gate_minutes:
        lines.append(f"then up to {regression.gate_minutes:g} minutes of the speed gate")
    if regression.find_minutes:
        lines.append(f"then up to {regression.find_minutes:g} minutes of the search for faults")
    for line in lines:
        console.print(Text(line), soft_wrap=True)
