"""Compares every cell of a run with its oracle, once, and writes one verdict per cell and check.

The verdict on a cell and on the run follows from these rows (`streaming_core/regression/verdict.py`).

In:  runs/<run id>/plan.json, oracles.json, <cell>/attempt-N/{exit,report}.json, outputs/, state/; oracle/, workloads/.
Out: warehouse/raw/verdicts (one row per cell and check) and violations (the first wrong rows, with the input event).
     The job fails if a cell is neither equal to its oracle nor a bound.

The checks of a completed cell:

- `completed`;
- `outputs`, by (seq, sub);
- `order` of delivery;
- `state:<table>`, by key; a final table that is empty on both sides is not checked;
- `digest`: all measured passes must have the oracle's;
- `rerun`: as `outputs`, for the rows of a pass that differed and that the run made again (run/passes.py);
- `counts` of outputs, dropped and rejected events: all measured passes must have the oracle's;
- `invariant:<name>`: the application's SQL. If it selects rows, the verdict is `invariant_broken`.

A check that compared no row has not passed. Bounds are compared too, and have the verdict `not_comparable`.

For a cell without order, `App.agrees_unordered` in the oracle's manifest says what to compare. These are columns of
`outputs` as a multiset, tables, and `digest` over both. A wrong row then counts as one missing and one extra row,
because its event is unknown. There is no check `order`, and invariants that depend on order are not checked.

An engine beside Lockstep's gives no state and no counts but that of outputs, so only its outputs are checked.
Invariants that read final tables are not checked, nor any invariant of such a cell without order.

Tables whose keys line up are compared file by file, several in one Spark task. Spark joins only the others. The first
attempt that differs decides the verdict on a cell, else the last attempt, so a retry hides nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from jobs.comparison import compare, evidence, row_json, spark_row
from jobs.invariants import Violations, evaluate, views_of
from jobs.raw import forget_raw, write_raw
from jobs.run_folder import Attempt, attempts, read_oracles, read_plan
from streaming_core import storage
from streaming_core.apps.registry import load
from streaming_core.data.comparison import keys_of
from streaming_core.data.parts import Parts, states
from streaming_core.errors import RunFailed
from streaming_core.regression.home import Home
from streaming_core.regression.lock import hold, of_warehouse
from streaming_core.regression.plan import PlannedCell
from streaming_core.regression.verdict import Verdict, is_green, of_run
from streaming_core.regression.warehouse import VIOLATION_CAP
from streaming_core.run.comparison import expected_counts, wrong_counts
from streaming_core.run.report import Sample
from streaming_core.run.way import executor_of

FACTS = "pair int, facts string"
MAX_DETAIL = 400
TASK_BYTES = 16 << 20


@dataclass
class Pair:
    """Two tables to compare: a cell's outputs or one of its final tables, and the oracle's."""

    check: str  # outputs | rerun | state:<table>
    expected: Parts
    actual: Parts
    columns: list[str] | None = None  # compare these as a multiset; None means in order
    facts: dict = field(default_factory=dict)  # the result of comparison.compare

    @property
    def complete(self) -> bool:
        """Whether both sides have files."""
        return bool(self.expected.paths and self.actual.paths)

    @property
    def same(self) -> bool:
        """Whether the files are equal."""
        return self.facts["counts"] == {} and not self.facts["faults"]

    @property
    def joinable(self) -> bool:
        """Whether only a join can tell what differs."""
        return self.facts["counts"] is None


@dataclass
class Subject:
    """One completed attempt at a cell, before its verdict."""

    cell: PlannedCell
    attempt: Attempt
    workload: Path
    oracle: Path
    digests: dict  # the expected output_digest and state_digest
    counts: dict[str, int]  # the expected counts, by their names in a report
    pairs: list[Pair]

    @property
    def same(self) -> bool:
        """Whether its files equal the oracle's, in the same order."""
        return all(pair.same and pair.columns is None for pair in self.pairs)

    @property
    def order(self) -> str:
        """The order in which the cell promises its outputs."""
        return self.cell["spec"]["order"]

    @property
    def gives_state(self) -> bool:
        """Whether it leaves its final state."""
        return executor_of(self.cell["spec"]["executor"]).gives_state


# --- row by row, file against file -------------------------------------------------------------------------------


def tasks_of(sizes: list[int], task_bytes: int = TASK_BYTES) -> list[list[int]]:
    """Deal the indices of `sizes` (bytes) to tasks of about `task_bytes`, because a task per small table costs time."""
    tasks: list[list[int]] = []
    room = 0
    for index, size in enumerate(sizes):
        if not tasks or size > room:
            tasks.append([])
            room = task_bytes
        tasks[-1].append(index)
        room -= size
    return tasks


def file_facts(spark: SparkSession, pairs: list[Pair]) -> DataFrame:
    """One row per pair: its index and the JSON of `comparison.compare`. A Spark task takes several pairs."""
    work = [(p.check, p.expected, p.actual, p.columns) for p in pairs]
    tasks = tasks_of([sum(path.stat().st_size for path in p.expected.paths + p.actual.paths) for p in pairs])

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            indices = [index for task in batch.column(0).to_pylist() for index in tasks[task]]
            facts = [json.dumps(compare(*work[index])) for index in indices]
            yield pa.RecordBatch.from_arrays([pa.array(indices, pa.int32()), pa.array(facts)], names=["pair", "facts"])

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(look, FACTS)


# --- the join, for pairs whose rows do not line up ---------------------------------------------------------------


def keyed_rows(spark: SparkSession, files: list[Path], pair: int, check: str, side: str) -> DataFrame:
    """A table as (pair, side, first, second, key, position, row): the keys for the join, and the row as JSON.

    The join matches outputs by (seq, sub), and a final table by its key, or else its first column. A number stays a
    number, so that the first violations have the smallest keys.
    """
    frame = spark.read.parquet(*map(str, files))
    row = F.to_json(F.struct(*[F.col(f"`{name}`") for name in sorted(frame.columns)]), {"ignoreNullFields": "false"})
    if not check.startswith("state:"):
        first, second, key = F.col("seq").cast("long"), F.col("sub").cast("long"), F.lit("")
    else:
        columns = [F.col(f"`{name}`") for name in keys_of(frame.columns) or frame.columns[:1]]
        number = len(columns) == 1 and frame.dtypes[0][1] in ("tinyint", "smallint", "int", "bigint")
        first = columns[0].cast("long") if number else F.lit(0).cast("long")
        second, key = F.lit(0).cast("long"), F.lit("") if number else F.to_json(F.struct(*columns))
    position = F.struct(F.col("_metadata.file_name").alias("file"), F.col("_metadata.row_index").alias("row"))
    return frame.select(
        F.lit(pair).alias("pair"),
        F.lit(side).alias("side"),
        first.alias("first"),
        second.alias("second"),
        key.alias("key"),
        position.alias("position"),
        row.alias("row"),
    )


def differing_rows(rows: DataFrame, cap: int = VIOLATION_CAP) -> DataFrame:
    """The first `cap` differing rows of every pair, each with the pair's totals.

    If a side has several rows with one key, the first delivered one is compared; the others are missing or extra.

    Args:
        rows: The keyed_rows of both sides of any number of pairs.
        cap: Rows per pair.

    Returns:
        pair, rank (from 1), kind, first, second, expected, actual, missing, extra, different.
    """
    key = ["pair", "first", "second", "key"]

    def of(side: str, value: Column) -> Column:
        return F.when(F.col("side") == side, value)

    def more(a: str, b: str) -> Column:
        return F.greatest(F.col(a) - F.col(b), F.lit(0))

    matched = rows.groupBy(*key).agg(
        F.count(of("expected", F.lit(1))).alias("expected_count"),
        F.count(of("actual", F.lit(1))).alias("actual_count"),
        F.min_by(of("expected", F.col("row")), of("expected", F.col("position"))).alias("expected"),
        F.min_by(of("actual", F.col("row")), of("actual", F.col("position"))).alias("actual"),
        F.max_by(of("actual", F.col("row")), of("actual", F.col("position"))).alias("last"),
    )
    both = (F.col("expected_count") > 0) & (F.col("actual_count") > 0)
    differs = both & (F.col("expected") != F.col("actual"))
    kinds = F.array_compact(
        F.array(
            F.when(F.col("expected_count") > F.col("actual_count"), "missing"),
            F.when(differs, "different"),
            F.when(F.col("actual_count") > F.col("expected_count"), "extra"),
        )
    )
    differing = matched.withColumn("kind", F.explode(kinds))
    total = Window.partitionBy("pair")
    is_kind = {kind: F.col("kind") == kind for kind in ("missing", "extra", "different")}
    return (
        differing.withColumns(
            {
                "missing": F.sum(F.when(is_kind["missing"], more("expected_count", "actual_count")).otherwise(0)).over(
                    total
                ),
                "extra": F.sum(F.when(is_kind["extra"], more("actual_count", "expected_count")).otherwise(0)).over(
                    total
                ),
                "different": F.sum(F.when(is_kind["different"], 1).otherwise(0)).over(total),
                "rank": F.row_number().over(total.orderBy("first", "second", "key", "kind")),
            }
        )
        .where(F.col("rank") <= cap)
        .select(
            "pair",
            "rank",
            "kind",
            "first",
            "second",
            F.when(~is_kind["extra"], F.col("expected")).alias("expected"),
            F.when(is_kind["extra"], F.col("last")).when(is_kind["different"], F.col("actual")).alias("actual"),
            "missing",
            "extra",
            "different",
        )
        .orderBy("pair", "rank")
    )


def join(spark: SparkSession, pairs: list[Pair]) -> dict[int, list[dict]]:
    """Join the pairs that need it, in one Spark job: index of a pair -> its differing rows."""
    frames = [
        keyed_rows(spark, table.paths, index, pair.check, side)
        for index, pair in enumerate(pairs)
        if pair.joinable
        for side, table in (("expected", pair.expected), ("actual", pair.actual))
    ]
    if not frames:
        return {}
    by_pair: dict[int, list[dict]] = {i: [] for i, pair in enumerate(pairs) if pair.joinable}
    for row in differing_rows(reduce(DataFrame.unionByName, frames)).toArrow().to_pylist():
        by_pair[row["pair"]].append(row)
    return by_pair


# --- the events behind violations --------------------------------------------------------------------------------


def events_of(spark: SparkSession, numbers: dict[Path, set[int]]) -> dict[tuple[Path, int | None], str | None]:
    """(workload, seq) -> canonical JSON of the input event. A flush has no event."""
    tables = {workload: Parts.of(workload / "events") for workload, seqs in numbers.items() if seqs}
    workloads = [workload for workload, events in tables.items() if events.paths]
    if not workloads:
        return {}
    frames = []
    for index, workload in enumerate(workloads):
        events = spark.read.parquet(*map(str, tables[workload].paths))
        row = F.to_json(F.struct(*[F.col(f"`{name}`") for name in events.columns]), {"ignoreNullFields": "false"})
        picked = events.where(F.col("seq").isin(sorted(numbers[workload])))
        frames.append(picked.select(F.lit(index).alias("workload"), F.col("seq").cast("long"), row.alias("row")))
    rows = {}
    for row in reduce(DataFrame.unionByName, frames).toArrow().to_pylist():
        workload = workloads[row["workload"]]
        rows[workload, row["seq"]] = row_json(spark_row(row["row"], tables[workload].schema))
    return rows


# --- invariants --------------------------------------------------------------------------------------------------


def violations_of(spark: SparkSession, subjects: list[Subject]) -> dict[tuple[int, str], Violations]:
    """(subject, invariant) -> its violations.

    All cells whose files equal the oracle's share one evaluation. A cell without order has its own. A bound that
    differs has none, because its wrong rows say nothing about the application.
    """
    queries, views, results = [], {}, {}
    for index, subject in enumerate(subjects):
        if _same_as(subjects, index) != index or (subject.cell["is_bound"] and not subject.same):
            continue
        spec = subject.cell["spec"]
        app = load(spec["app"])
        for name, sql in app.required_invariants(subject.order, spec["params"], subject.gives_state).items():
            if all(pair.actual.paths for pair in subject.pairs):
                queries.append((index, name, sql))
                views[index] = views_of(subject.attempt.folder, subject.workload)
            else:
                results[index, name] = Violations(error="the cell did not write a table that it reads")
    results |= evaluate(spark, queries, views)
    for index in range(len(subjects)):
        model = _same_as(subjects, index)
        results |= {(index, name): violations for (of, name), violations in list(results.items()) if of == model}
    return results


def _same_as(subjects: list[Subject], index: int) -> int:
    """The first subject with the same files, which is known if both equal one oracle."""
    subject = subjects[index]
    if not subject.same:
        return index
    like = (subject.oracle, subject.gives_state)  # other invariants hold of a cell without state
    return next(i for i, other in enumerate(subjects) if other.same and (other.oracle, other.gives_state) == like)


# --- verdicts ----------------------------------------------------------------------------------------------------


class Verdicts:
    """Collects the rows of both tables. The rows of a bound have the verdict `not_comparable`, whatever differs."""

    def __init__(self) -> None:
        self.verdicts: list[dict] = []
        self.violations: list[dict] = []

    def add(self, cell: PlannedCell, check: str, verdict: str, detail: str = "", **counts: int) -> None:
        """Add a verdict row. `counts` are expected_rows, actual_rows, missing, extra, different, out_of_order."""
        if cell["is_bound"] and verdict in ("equal", "different", "invariant_broken"):
            verdict = "not_comparable"
        zero = dict.fromkeys(("expected_rows", "actual_rows", "missing", "extra", "different", "out_of_order"), 0)
        detail = detail if len(detail) <= MAX_DETAIL else detail[: MAX_DETAIL - 3] + "..."
        row = {"cell": cell["cell"], "app": cell["spec"]["app"], "check": check, "verdict": verdict, "detail": detail}
        self.verdicts.append(row | zero | counts)

    def judge(
        self, cell: PlannedCell, check: str, compared: int, detail: str = "", wrong: str = "different", **counts: int
    ) -> None:
        """Add a verdict: `wrong` if rows differ, `different` if there is a detail, `not_run` if no row was compared."""
        if sum(counts.get(name, 0) for name in ("missing", "extra", "different", "out_of_order")):
            verdict = wrong
        elif detail:
            verdict = "different"
        else:
            verdict = "equal" if compared else "not_run"
        if not compared:
            line = (
                "no row was compared"
                if detail
                else "no row was compared, because both sides are empty: run more events"
            )
            detail = "; ".join(filter(None, [detail, line]))
        self.add(cell, check, verdict, detail, **counts)

    def violation(self, cell: PlannedCell, check: str, rank: int, kind: str, **columns: object) -> None:
        """Add a violation row. `columns` are seq, sub, expected, actual, event."""
        row = {"cell": cell["cell"], "app": cell["spec"]["app"], "check": check, "rank": rank, "kind": kind}
        self.violations.append(row | columns)


def digest_faults(attempt: Attempt, oracle: dict) -> tuple[int, str]:
    """The number of measured passes with a wrong digest, and a line on them.

    The right digest is the oracle's. If that has none, it is the first pass's.
    """
    samples = attempt.measured.samples
    expected = oracle.get("output_digest") or samples[0].digest
    wrong = [s for s in samples if s.digest != expected]
    lines = [f"{s.kind} pass {s.repetition} has digest {s.digest}, expected {expected}" for s in wrong[:2]]
    lines += _without_rows(attempt, wrong)
    state = oracle.get("state_digest")
    if state and attempt.measured.state_digest not in (None, state):
        lines.append(f"final state has digest {attempt.measured.state_digest}, expected {state}")
    return len(wrong), "; ".join(lines)


def _without_rows(attempt: Attempt, wrong: list[Sample]) -> list[str]:
    """What became of the rows of wrong passes, if the first pass, whose rows are kept, is right."""
    if not wrong or wrong[0] == attempt.measured.verified:
        return []
    rerun = attempt.measured.rerun
    return [rerun.text if rerun else "the engine keeps the rows of the first pass alone, so there are none to show"]


def count_faults(attempt: Attempt, counts: dict[str, int]) -> tuple[int, str]:
    """The number of measured passes with a wrong count, and a line on the first of them."""
    wrong = [(sample, faults) for sample in attempt.measured.samples if (faults := wrong_counts(sample, counts))]
    lines = [
        f"{sample.kind} pass {sample.repetition} has {actual} {name}, expected {expected}"
        for sample, faults in wrong[:3]
        for name, expected, actual in faults
    ]
    return len(wrong), "; ".join(lines)


def subject_of(cell: PlannedCell, attempt: Attempt, workload: Path, oracle: Path) -> Subject:
    """List the tables to compare. A table that one side did not write has no files there."""
    manifest = storage.read_manifest(oracle, "oracle result", set(), "oracle")
    agrees = manifest.get("unordered") if cell["spec"]["order"] == "none" else None
    columns = agrees and agrees["columns"]
    pairs = [Pair("outputs", Parts.of(oracle / "outputs"), Parts.of(attempt.folder / "outputs"), columns)]
    expected, actual, nothing = states(oracle), states(attempt.folder), Parts([])
    if attempt.measured.rerun and attempt.measured.rerun.differs:
        pairs.append(Pair("rerun", pairs[0].expected, Parts.of(attempt.folder / "rerun" / "outputs"), columns))
    gives_state = executor_of(cell["spec"]["executor"]).gives_state
    tables = sorted(expected.keys() | actual.keys()) if agrees is None else agrees["states"]
    for table in tables if gives_state else ():
        pairs.append(Pair(f"state:{table}", expected.get(table, nothing), actual.get(table, nothing)))
    for pair in pairs:
        if not pair.complete:
            pair.facts = compare(pair.check, pair.expected, pair.actual)
    counts = expected_counts(manifest, gives_state)
    return Subject(cell, attempt, workload, oracle, agrees or manifest, counts, pairs)


def validate(spark: SparkSession, home: Home, run_id: str) -> Verdicts:
    """Verdicts and violations of every planned cell. It only reads, in a few Spark jobs for any number of cells."""
    plan, oracles = read_plan(home, run_id), read_oracles(home, run_id)
    result = Verdicts()
    completed: dict[str, list[Subject]] = {}
    for cell in plan["cells"]:
        app, name = cell["spec"]["app"], cell["cell"]
        oracle = home.oracle(app, oracles.get(cell["workload"], "missing"))
        for attempt in attempts(home, run_id, cell):
            if attempt.status == "ok" and (oracle / "manifest.json").is_file():
                workload = home.workload(app, cell["workload"])
                completed.setdefault(name, []).append(subject_of(cell, attempt, workload, oracle))

    pairs = [pair for subjects in completed.values() for subject in subjects for pair in subject.pairs if pair.complete]
    if pairs:
        for row in file_facts(spark, pairs).toArrow().to_pylist():
            pairs[row["pair"]].facts = json.loads(row["facts"])
    joined = {id(pairs[index]): rows for index, rows in join(spark, pairs).items()}

    judged = {name: _judged(subjects, joined) for name, subjects in completed.items()}
    subjects = [judged[cell["cell"]] for cell in plan["cells"] if cell["cell"] in judged]
    results = violations_of(spark, subjects)

    evidence_rows: list[tuple[Subject, str, list[dict]]] = []  # without their events
    by_name = {subject.cell["cell"]: index for index, subject in enumerate(subjects)}
    for cell in plan["cells"]:
        last = attempts(home, run_id, cell)[-1]
        index = by_name.get(cell["cell"])
        if last.status != "ok" and not (index is not None and _differs(subjects[index], joined)):
            result.add(cell, "completed", last.status, last.error or "", expected_rows=1)
            continue
        if index is None:
            result.add(cell, "completed", "failed", f"workload {cell['workload']} has no oracle")
            continue
        subject = subjects[index]
        result.add(cell, "completed", "equal", expected_rows=1, actual_rows=1)
        evidence_rows += _tables(result, subject, joined)
        evidence_rows += _invariants(
            result, subject, {name: violations for (of, name), violations in results.items() if of == index}
        )

    numbers: dict[Path, set[int]] = {}
    for subject, _, rows in evidence_rows:
        numbers.setdefault(subject.workload, set()).update(row["seq"] for row in rows if row["seq"] is not None)
    events = events_of(spark, numbers)
    for subject, check, rows in evidence_rows:
        for rank, row in enumerate(rows, 1):
            event = events.get((subject.workload, row["seq"]))
            result.violation(subject.cell, check, rank, event=event, **row)
    return result


def _differs(subject: Subject, joined: dict[int, list[dict]]) -> bool:
    for pair in subject.pairs:
        agrees = pair.same or (pair.joinable and not joined[id(pair)])
        if not agrees or pair.facts["out_of_order"]:
            return True
    return bool(count_faults(subject.attempt, subject.counts)[0])


def _judged(subjects: list[Subject], joined: dict[int, list[dict]]) -> Subject:
    return next((subject for subject in subjects if _differs(subject, joined)), subjects[-1])


def _tables(result: Verdicts, subject: Subject, joined: dict[int, list[dict]]) -> list[tuple[Subject, str, list[dict]]]:
    """Add the verdicts `outputs`, `order`, `state:*`, `digest` and `counts`; returns their evidence."""
    evidence_rows = []
    for pair in subject.pairs:
        facts, counts, rows = pair.facts, pair.facts["counts"] or {}, pair.facts["rows"]
        sizes = {"expected_rows": facts["expected_rows"], "actual_rows": facts["actual_rows"]}
        if pair.check.startswith("state:") and not (any(sizes.values()) or facts["faults"]):
            continue
        if matched := joined.get(id(pair)):
            counts = {name: int(matched[0][name]) for name in ("missing", "extra", "different")}
            rows = [_joined(row, pair) for row in matched]
        moved = facts["out_of_order"]
        if pair.check == "rerun" and pair.columns is None:
            counts, rows = counts | {"out_of_order": moved}, rows + facts["misplaced"]
        result.judge(subject.cell, pair.check, max(sizes.values()), "; ".join(facts["faults"]), **sizes, **counts)
        evidence_rows.append((subject, pair.check, rows))
        if pair.check == "outputs" and pair.columns is None:
            moving = [sample for sample in subject.attempt.measured.samples if not sample.in_order]
            names = ", ".join(f"{sample.kind} pass {sample.repetition}" for sample in moving)
            parts = [f"not delivered in order: {names}", *_without_rows(subject.attempt, moving)]
            line = "; ".join(parts) if moving else ""
            result.judge(subject.cell, "order", facts["actual_rows"], line, **sizes, out_of_order=moved)
            evidence_rows.append((subject, "order", facts["misplaced"]))
    wrong, line = digest_faults(subject.attempt, subject.digests)
    passes = len(subject.attempt.measured.samples)
    result.judge(subject.cell, "digest", passes, line, expected_rows=passes, actual_rows=passes, different=wrong)
    wrong, line = count_faults(subject.attempt, subject.counts)
    result.judge(subject.cell, "counts", passes, line, expected_rows=passes, actual_rows=passes, different=wrong)
    return evidence_rows


def _joined(row: dict, pair: Pair) -> dict:
    """The evidence of a row of `differing_rows`."""
    seq, sub = (None, None) if pair.check.startswith("state:") else (row["first"], row["second"])
    sides = (spark_row(row[side], pair.expected.schema) for side in ("expected", "actual"))
    return evidence(row["kind"], seq, sub, *sides)


def _invariants(
    result: Verdicts, subject: Subject, results: dict[str, Violations]
) -> list[tuple[Subject, str, list[dict]]]:
    """Add the verdicts `invariant:*`; returns their evidence."""
    evidence_rows = []
    size = next(pair.facts["actual_rows"] for pair in subject.pairs if pair.check == "outputs")
    for name, violations in results.items():
        check = f"invariant:{name}"
        counts = {"expected_rows": size, "actual_rows": size, "different": violations.count}
        if violations.error:  # the rows may still be right
            result.add(subject.cell, check, "failed", f"it cannot be evaluated: {violations.error}", **counts)
        else:
            result.judge(subject.cell, check, size, wrong="invariant_broken", **counts)
        rows = []
        for row in violations.rows:
            seq, sub = (row.get(name) if isinstance(row.get(name), int) else None for name in ("seq", "sub"))
            rows.append(evidence("invariant", seq, sub, None, row))
        evidence_rows.append((subject, check, rows))
    return evidence_rows


def judge_cells(spark: SparkSession, home: Home, run_id: str) -> dict[str, Verdict]:
    """Validate a run and replace its rows of the raw tables `verdicts` and `violations`.

    Returns:
        The verdict on each planned cell, by cell.
    """
    result = validate(spark, home, run_id)
    with hold(of_warehouse(home), "validate_outputs", run=run_id):
        # Loaded cells have the verdict of earlier checks, which is stale now. load_metrics loads them again.
        for table in ("cells", "samples"):
            forget_raw(home, table, run_id)
        write_raw(home, "violations", run_id, result.violations)
        write_raw(home, "verdicts", run_id, result.verdicts)
    # The digests of all passes are already a check, so samples add nothing.
    return of_run(None, read_plan(home, run_id)["cells"], result.verdicts, [])


def work(spark: SparkSession, home: Home, run_id: str) -> str:
    """Compare a run with its oracles; returns a line with the number of cells per verdict.

    Raises:
        RunFailed: A cell is neither equal to its oracle nor a bound.
    """
    judged = judge_cells(spark, home, run_id)
    verdicts = [verdict for verdict, _ in judged.values()]
    for cell, (verdict, reason) in judged.items():
        if not is_green([verdict]):
            print(f"{cell}: {verdict.replace('_', ' ')}: {reason}", flush=True)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(Counter(verdicts).items()))
    if not is_green(verdicts):
        raise RunFailed(f"the run is red: {counts}" if counts else "the plan has no cells")
    return counts
