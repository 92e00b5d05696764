"""A small run on disk in the official layout: events, oracle, cells. Tests damage it and check the verdicts.

The application is a bank: event i adds `amount` to an account; its output is the new balance, a text, a mean and an
array. A score of one output is NaN, one text is not UTF-8, and the final table holds a list, as in real applications.
"""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_core.api import App, Array, Record, boolean, f64, i64, text, u32
from streaming_core.regression.home import Home
from streaming_core.regression.request import RegressionSpec
from streaming_core.run.way import EXECUTORS, RunSpec
from streaming_core.storage import sealed

RUN_ID = "20260101T000000Z-0123abcd"
EVENTS = 60
ACCOUNTS = 7
WORKLOAD, ORACLE = "feed0001", "0badc0de"
Tables = dict[str, pa.Table]


DEPOSIT = Record("Deposit", {"ts": i64, "account": u32, "amount": i64}, None)
BALANCE = Record(
    "Balance", {"account": u32, "balance": i64, "name": text, "mean": f64, "rich": boolean, "ends": Array(i64, 2)}, None
)


def bank() -> App:
    """The application, as far as the jobs ask it."""
    app = App("bank")
    app.event, app.outputs = DEPOSIT, BALANCE
    app.invariant(
        "money",
        """SELECT e.total AS expected, s.total AS actual
           FROM (SELECT sum(amount) AS total FROM events) e, (SELECT sum(balance) AS total FROM state_accounts) s
           WHERE e.total <> s.total""",
    )
    app.invariant("not_negative", "SELECT seq, sub, balance FROM outputs WHERE balance < 0")
    app.invariant("in_sequence", "SELECT * FROM outputs WHERE seq % 7 <> account", by_order=True)
    return app


def tables(events: int = EVENTS) -> Tables:
    """The tables of a right run: `events`, `outputs`, `accounts`."""
    amounts = [(7 * i) % 11 + 1 for i in range(events)]
    balances, rows, history = [0] * ACCOUNTS, [], [[] for _ in range(ACCOUNTS)]
    for i, amount in enumerate(amounts):
        account = i % ACCOUNTS
        balances[account] += amount
        history[account].append(float(amount))
        name = b"\xff\xfe" if i == 3 else f"<b>{i}</b>".encode()
        mean = math.nan if i == 5 else balances[account] / (i + 1)
        rows.append((i, 0, account, balances[account], name, mean, balances[account] > 20, [0, amount]))
    names = ["seq", "sub", *BALANCE.fields]
    types = BALANCE.resolve({}).arrow(("seq", "sub")).types
    numbers, each = pa.array(range(events), pa.int64()), range(ACCOUNTS)
    accounts = pa.array([i % ACCOUNTS for i in range(events)], pa.uint32())
    event = {"seq": numbers, "ts": numbers, "account": accounts, "amount": pa.array(amounts, pa.int64())}
    account = {"key": pa.array(each, pa.int64()), "balance": pa.array(balances, pa.int64())}
    return {
        "events": pa.table(event),
        "outputs": pa.table([pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)], names=names),
        "accounts": pa.table(account | {"history": pa.array(history, pa.list_(pa.float64()))}),
    }


def set_value(table: pa.Table, column: str, row: int, value: object) -> pa.Table:
    """`table` with one value replaced."""
    values = table[column].to_pylist()
    values[row] = value
    return table.set_column(table.column_names.index(column), column, pa.array(values, table.schema.field(column).type))


def take(table: pa.Table, rows: list[int]) -> pa.Table:
    """`table` with these rows in this order."""
    return table.take(pa.array(rows))


class World:
    """A LOCKSTEP_HOME with one planned run of the bank."""

    def __init__(self, root: Path, events: int = EVENTS):
        self.home, self.run_id, self.right = Home(root), RUN_ID, tables(events)
        self.cells: list[dict] = []
        workload, oracle = self.home.workload("bank", WORKLOAD), self.home.oracle("bank", ORACLE)
        write_parts(workload / "events", self.right["events"], 2)
        write_json(workload / "manifest.json", {"address": WORKLOAD})
        write_parts(oracle / "outputs", self.right["outputs"], 1)
        write_parts(oracle / "state", self.right["accounts"], name="accounts.parquet")
        self.digests = {"output_digest": f"{events}:00000000000000aa", "state_digest": "7:00000000000000bb"}
        # Without order accounts, names and means agree, and the final table.
        self.unordered = {"output_digest": f"{events}:00000000000000cc", "state_digest": "7:00000000000000dd"}
        agrees = {"columns": ["account", "name", "mean"], "states": ["accounts"], **self.unordered}
        self.dropped = {"dropped_invalid": 3, "dropped_late": 0, "rejected": 1}
        counts = {"outputs": {"rows": events}, **self.dropped}
        manifest = {"address": ORACLE, **self.digests, **counts, "unordered": agrees}
        write_json(oracle / "manifest.json", sealed(manifest))
        write_json(self.home.run(RUN_ID) / "oracles.json", {WORKLOAD: ORACLE})

    def plan(self, *ways: tuple[str, int], **choices: object) -> list[str]:
        """Plans one cell per (scheme or channel, threads), the same choices for all; returns their names."""
        for scheme, threads in ways:
            way = {"executor": "transactional", "scheme": scheme}
            if scheme in EXECUTORS["pinned"].axes()["channel"]:
                way = {"executor": "pinned", "channel": scheme}
            plain = {"app": "bank", "threads": threads, "sink": "parquet", "repetitions": 1}
            spec = RunSpec.parse(plain | way | choices)
            cell = {"cell": spec.cell, "spec": spec.model_dump(mode="json"), "workload": WORKLOAD}
            self.cells.append(cell | {"is_bound": spec.is_bound})
        source = {"app": "bank", "params": {}, "events": len(self.right["events"]), "seed": 1, "address": WORKLOAD}
        plan = {"run_id": RUN_ID, "origin": "cli", "created_at": "2026-01-01T00:00:00Z", "workloads": [source]}
        regression = RegressionSpec(applications=["bank"]).model_dump(mode="json")
        write_json(self.home.run(RUN_ID) / "plan.json", plan | {"regression": regression, "cells": self.cells})
        return [cell["cell"] for cell in self.cells]

    def attempt(
        self,
        cell: str,
        change: Callable[[Tables], Tables] = lambda tables: tables,
        number: int = 1,
        exit_code: int = 0,
        error: str | None = None,
        report: Callable[[dict], dict] | None = lambda report: report,
    ) -> Path:
        """Writes one attempt: the right tables after `change`, exit.json, and the report (None: no report)."""
        folder = self.home.attempt(RUN_ID, cell, number)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        content = change(dict(self.right))
        if "outputs" in content:
            write_parts(folder / "outputs", content["outputs"], 3)
        for name in content.keys() - {"events", "outputs"}:
            write_parts(folder / "state", content[name], name=f"{name}.parquet")
        spec = next(c for c in self.cells if c["cell"] == cell)["spec"]
        write_json(folder / "spec.json", spec)
        exit = {"exit_code": exit_code, "error": error, "host": "here"}
        write_json(folder / "exit.json", exit | {"started_at": "2026-01-01T00:00:01Z", "ended_at": 1767225602.0})
        if report:
            write_json(folder / "report.json", sealed(report(self.report(cell, spec))))
        return folder

    def report(self, cell: str, spec: dict) -> dict:
        """A RunReport of the right run."""
        latency = {"p50": 1.0, "p95": 2.0, "p99": 3.0, "p999": 4.0, "max": 5.0}
        events = len(self.right["events"])
        ordered = spec["order"] == "total"
        digests = self.digests if ordered else self.unordered
        sample = {"events": events, "outputs": events, "digest": digests["output_digest"], "in_order": ordered}
        sample |= {"seconds": 0.5, "events_per_s": events / 0.5, "processing": latency, **self.dropped}
        sample["breakdown"] = {"useful": 0.4, "sync": 0.1, "lock": 0.0, "remote": 0.0, "other": 0.0}
        sample |= {"cpu_seconds": 0.5, "energy_joules": 2.5}
        passes = [{"kind": kind, "repetition": n, **sample} for n, kind in enumerate(("verified", "peak"))]
        source = {"address": WORKLOAD, "events": events, "seed": 1, "params": {}, "content_digest": "x"}
        report = {"spec": spec, "spec_digest": RunSpec.parse(spec).spec_digest, "cell": cell, "app": "bank"}
        report |= {"code_digest": "c0de", "build": "abc123", "workload": source, "samples": passes}
        report |= {"is_bound": spec["scheme"] == "no_lock", "state_digest": digests["state_digest"]}
        report |= {"compile_seconds": 0.1, "peak_memory_bytes": 1 << 20, "topology": {"cores": 2}}
        return report | {"host": {"name": "here", "load_before": 0.5, "load_after": 0.75}}


def write_parts(folder: Path, table: pa.Table, parts: int = 1, name: str | None = None) -> None:
    """Writes `table` as `parts` files, or as one of that name."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(table) // parts) if len(table) else 1
    for part in range(parts):
        pq.write_table(table.slice(part * size, size), folder / (name or f"part-{part:05d}.parquet"))


def write_json(path: Path, value: object) -> None:
    """Writes JSON, making the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
