"""An application for these tests. With TALLY_FAULT, runs on two threads count the third vote for a name twice."""

import os

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_core.api import App, i64, record, text
from streaming_core.run import engine

app = App("tally")


@record
class Vote:
    """A vote at a time."""

    ts: i64
    name: text


@record
class Sum:
    """The votes for a name."""

    votes: i64


@record
class Tally:
    """A name and its votes so far."""

    name: text
    votes: i64


def named(row, out):
    """Drop votes without a name."""
    if len(row.name) > 0:
        out.emit(ts=row.ts, name=row.name)


def add(row, state, out):
    """Count a vote."""
    state.votes += 1
    out.emit(name=row.name, votes=state.votes)


app.source(Vote).flat_map(named, Vote).key_by("name").process(add, state=Sum, output=Tally).sink()

_run = engine.run


def _spoiled(spec, source, out, *more, **options):
    report = _run(spec, source, out, *more, **options)
    if spec.app != "tally":  # a test that comes later in this process
        return report
    for path in (out / "outputs").glob("*.parquet"):
        rows = pq.read_table(path)
        if spec.threads == 2 and "votes" in rows.column_names:
            votes = rows["votes"]
            wrong = pc.if_else(pc.equal(votes, 3), pa.scalar(4, votes.type), votes)
            place = rows.column_names.index("votes")
            pq.write_table(rows.set_column(place, rows.schema.field("votes"), wrong), path)
    return report


if "TALLY_FAULT" in os.environ:
    engine.run = _spoiled
