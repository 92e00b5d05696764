"""The shell commands that reproduce a cell: generate its events, run it and its oracle, and compare.

Start at `commands`. The commands use nothing but the checkout, so a reader can paste them as often as needed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from reports.history.cell import Cell
from reports.history.run import Run
from streaming_core.run.way import AXES, NAMED_PLANS, WINDOW_OPTIONS, RunSpec
from streaming_core.storage import canonical_json


class _Expanded(str):
    """A path that the shell expands. All other words of a command are quoted."""


def commands(run: Run, cell: Cell, report: dict[str, Any]) -> list[str]:
    """Write the shell lines that repeat the comparison of a cell.

    Args:
        run: the run that planned the cell.
        cell: the cell.
        report: the report.json of its attempt; {} without one.
    """
    spec, regression = cell.spec, run.plan.get("regression", {})
    workloads: dict[str, Mapping[str, Any]] = {w["address"]: w for w in run.plan.get("workloads", [])}
    planned = workloads.get(cell.workload, {})
    events = planned.get("events") or cell.facts.get("events") or regression.get("events", 0)
    seed = planned.get("seed", cell.facts.get("seed", regression.get("seed", 1)))
    settings = [word for name, value in spec.params.items() for word in ("--set", f"{name}={value}")]
    workload, oracle, output = (_Expanded(f'"$again"/{name}') for name in ("workload", "oracle", "run"))
    options, files = _options(spec, (report.get("planned") or {}).get("plan"))
    generate = [["generate", spec.app, "--events", events, "--seed", seed, "--out", workload, *settings]]
    # No generator makes imported events: they are in the folder of the import.
    if name := planned.get("data"):
        workload, generate = _Expanded(shlex.quote(str(run.home.imported(name)))), []
    own = settings if name else []  # a generated workload has its parameters, an import has none
    steps = [
        *generate,
        ["oracle", spec.app, "--input", workload, "--out", oracle, *own],
        ["run", spec.app, "--input", workload, "--out", output, *options, *own],
        ["diff", output, oracle],
    ]
    shell = [_shell("streaming-core", words) for words in steps]
    if not cell.is_bound:  # a bound keeps no invariant
        shell.append(_shell("lockstep", ["invariants", output, "--input", workload]))
    install = [_shell("lockstep", ["engines", "install", spec.executor])] if cell.is_of_other_engine else []
    return ["again=$(mktemp -d)", *install, *files, *shell]


def _shell(command: str, words: list[Any]) -> str:
    quoted = (word if isinstance(word, _Expanded) else shlex.quote(str(word)) for word in words)
    return " ".join([f".venv/bin/{command}", *quoted])


def _options(spec: RunSpec, plan_in_report: dict[str, Any] | None) -> tuple[list[Any], list[str]]:
    """The options of the run, and the shell lines that write the files that it reads."""
    options = ["--executor", spec.executor, "--threads", spec.threads]
    for axis, value in strategies(spec).items():
        options += [f"--{axis}", value]
    options += [f"--{switch}" for switch in spec.options() if spec.option(switch) is True]
    for option, field in spec.options().items():
        if field.annotation is int and spec.option(option) != field.default:
            options += [f"--{option.replace('_', '-')}", spec.option(option)]
    options += ["--thresholds", ",".join(map(str, numbers))] if (numbers := spec.option("thresholds")) else []
    options += ["--punctuation", spec.punctuation, "--batch", spec.batch, "--idle", spec.idle, "--sink", "parquet"]
    usual = RunSpec.model_fields
    options += ["--checkpoint", spec.checkpoint] if spec.checkpoint != usual["checkpoint"].default else []
    options += ["--faults", spec.faults] if spec.faults else []
    options += ["--repetitions", spec.repetitions, *(["--rate", spec.rate] if spec.rate else [])]
    options += ["--seconds", spec.seconds] if spec.seconds != usual["seconds"].default else []
    # A search may find another plan on another machine, so the commands name the plan of this run.
    plan = plan_in_report if spec.needs_plan else spec.option("plan")
    if "plan" in spec.options() and not plan:
        options += ["--plan", next(word for word, named in NAMED_PLANS.items() if named == spec.option("plan"))]
    files = []
    for option, value in (("plan", plan), ("schedule", spec.model_dump(mode="json")["schedule"])):
        if value:
            path = _Expanded(f'"$again"/{option}.json')
            files.append(f"echo {shlex.quote(canonical_json(value))} > {path}")
            options += [f"--{option}", path]
    options += ["--pin"] if spec.pin or (spec.needs_plan and plan) else []
    return options, files


def strategies(spec: RunSpec) -> dict[str, object]:
    """Its strategies by axis; those of windows only if they differ from the default."""
    chosen = {axis: value for axis in AXES if (value := spec.option(axis)) is not None}
    return {axis: value for axis, value in chosen.items() if axis not in WINDOW_OPTIONS or value != AXES[axis][0]}
