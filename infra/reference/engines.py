"""The page of the contract of external engines, and its JSON schemas, from streaming_core/engines/contract.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from infra.reference.fields import bounds, default
from infra.reference.markdown import block, bullets, code, next_pages, paragraph, table, text
from infra.reference.markdown import page as whole_page
from streaming_core.engines.contract import Latencies, Manifest, Pass, Report, Task
from streaming_core.errors import bounds_of

MODELS: tuple[type[BaseModel], ...] = (Manifest, Task, Report)
SCHEMAS = "engines.schema.json"

HEADER = [
    "infra/engines/NAME/",
    "  engine.yaml          the manifest",
    "  requirements.in      its Python packages",
    "  requirements.lock    the same with versions and hashes, by `lockstep engines lock NAME`",
    "  run.py               the program; its name is free",
    "  .environment/        what `lockstep engines install NAME` makes; git ignores it",
]
REPORT = [
    '{"passes": [{"kind": "verified", "events": 1000, "outputs": 10000,',
    '             "digest": "10000:0123456789abcdef", "seconds": 0.52},',
    '            {"kind": "peak", "events": 1000, "outputs": 10000,',
    '             "digest": "10000:0123456789abcdef", "seconds": 0.31,',
    '             "latency_us": {"p50": 80, "p95": 120, "p99": 150, "p999": 300, "max": 900, "mean": 85}}],',
    ' "versions": {"polars": "2.1.0"}}',
]


def page() -> str:
    """The text of the page."""
    return whole_page(
        "`streaming_core/engines/contract.py`",
        "External engines",
        paragraph(
            "This page is the contract between Lockstep and an *external engine*: a program beside Lockstep's engine "
            "that runs applications of Lockstep. A run names it as an executor: `--executors pooled,polars`. Its "
            "cells have the same workloads, the same oracle and the same pages as all others."
        ),
        paragraph("[Bring your own engine](../how-to/bring-an-engine.md) shows how to write one in fifteen minutes."),
        *_folder(),
        *_call(),
        *_outputs(),
        *_report(),
        *_checks(),
        next_pages(
            "[Bring your own engine](../how-to/bring-an-engine.md): from the skeleton to the night.",
            "[Executors and strategies](strategies.md): Lockstep's own executors.",
            "[Benchmarks](../benchmarks.md): external engines beside Lockstep's.",
        ),
    )


def files(folder: Path) -> dict[Path, str]:
    """The JSON schemas of the contract."""
    schemas = {model.__name__.lower(): model.model_json_schema() for model in MODELS}
    return {folder / SCHEMAS: json.dumps(schemas, indent=2) + "\n"}


def _folder() -> list[str]:
    return [
        "## The folder and its manifest",
        paragraph(
            "An external engine is a folder. Its name is the name of the engine: a small letter, then up to 30 small "
            "letters, digits and `_`."
        ),
        block(HEADER, "text"),
        paragraph(
            "Lockstep looks for folders with an `engine.yaml` in `infra/engines`, or in the folder that the setting "
            "`LOCKSTEP_ENGINES` names. A Python package can bring an engine too. Its entry point in the group "
            "`lockstep.executors` has the name of the engine. It names the package whose folder is the engine's. "
            "A folder comes before a package of the same name."
        ),
        paragraph("The fields of `engine.yaml`:"),
        _fields(Manifest),
        paragraph(
            "`lockstep engines install NAME` makes the environment: a virtual environment with the packages of "
            "requirements.lock, then what `build` writes. It is out of date once requirements.lock changes. With a "
            "`build`, it is out of date once any file of the folder changes, but Markdown files."
        ),
        paragraph("Commands of an engine run in its folder, with these variables:"),
        table(
            ("variable", "value"),
            [
                ("`PATH`", "the `bin` of the environment, then the `PATH` of Lockstep"),
                ("`ENGINE_HOME`", "the folder of the environment; `build` may write there"),
                ("`PYTHONPATH`", "the folder of the client `lockstep_engine.py`"),
                ("`PYTHONHASHSEED`", "`0`"),
                ("others", "those of Lockstep's process that begin with neither `LOCKSTEP_` nor `PYTHON`"),
            ],
        ),
    ]


def _call() -> list[str]:
    return [
        "## The call",
        "A cell is one call of the manifest's command:",
        block(["COMMAND --workload DIR --spec FILE --out DIR"], "text"),
        bullets(
            [
                "`--workload`: the folder of the workload. `events/part-*.parquet` has the events in order: `seq` "
                "(int64, from 0, without gaps), then the fields of the application. There are no nulls. A text is "
                "`binary`. `events/part-00000.parquet` also exists if there are no events. Several streams are one "
                "table, and its column `stream` has the number of an event's stream. `manifest.json` describes the "
                "workload.",
                "`--spec`: a JSON file, the *task* (below).",
                "`--out`: an empty folder for outputs and the report. The program writes nowhere else.",
            ]
        ),
        "The fields of the task:",
        _fields(Task),
        paragraph(
            "The program makes *passes* over the events. Each one begins from fresh state. The first pass, `verified`, "
            "warms up, and its outputs are written. Then follow measured passes, `peak`: at least `repetitions`, and "
            "until they have taken `repetitions` times `seconds`. If `rate` is above 0, one pass `open_loop` follows, "
            "in which event `i` arrives at `i / rate` seconds."
        ),
        paragraph(
            "The clock of a pass starts when the first event enters the engine, and stops when the digest of all "
            "outputs is known. Before it, the program reads the events and converts them into its own form in memory. "
            "Starting the engine, sorting the outputs and writing them are not measured either."
        ),
        paragraph(
            "For a program in Python, `from lockstep_engine import main` does all of this. It needs numpy and pyarrow, "
            "and nothing of Lockstep. Its docstrings say how to use it."
        ),
    ]


def _outputs() -> list[str]:
    return [
        "## Outputs",
        paragraph(
            "Outputs are `outputs/part-00000.parquet` and so on, at least one file. The task names a Parquet "
            "file without rows in `columns`. Outputs have exactly its columns, with the same types and in the same "
            "order. There are no nulls."
        ),
        paragraph("The manifest declares for each application which order its outputs have:"),
        table(
            ("order", "columns", "compared with the oracle"),
            [
                (
                    "`total`",
                    "`seq`: the number of the event that caused the output; at the end of the stream, the number of "
                    "events. `sub`: 0, 1, 2 and so on among the outputs of one `seq`. Then the fields of the output. "
                    "Rows lie in the order of (`seq`, `sub`).",
                    "row by row, bit by bit",
                ),
                (
                    "`none`",
                    "the columns that the application names in `agrees_unordered`",
                    "as a multiset of rows. The events still come in order: only the outputs have none.",
                ),
            ],
        ),
        paragraph(
            "`lockstep_engine.digest` computes the digest of outputs: `<rows>:<16 hex digits>`. Other programs "
            "compute it from the words of each row, all modulo 2^64:"
        ),
        bullets(
            [
                "The words of a row are those of its columns. With order `total`, `seq` and `sub` come first; else the "
                "columns come in their order.",
                "An integer is one word: its value, extended to 64 bits with its sign, or with zeros if it is "
                "unsigned. A boolean is 0 or 1. A double is its bits. A list of fixed length is its items.",
                "A text is its length in bytes, then its bytes in words of eight, the first byte lowest. Zeros fill "
                "the last word. An empty text is its length alone.",
                "The hash of a row begins with `h = 0x243F6A8885A308D3`. For each word `w`: `h = (h ^ w) * "
                "0x9E3779B97F4A7C15`, then `h = h ^ (h >> 32)`. At the end: `h = h * 0xD6E8FEB86659FD93`, then `h = h "
                "^ (h >> 29)`.",
                "The digest of a set of rows is their number and the sum of their hashes.",
            ]
        ),
        paragraph(
            "Doubles have one NaN, with the bits 0x7ff8000000000000. Integers wrap around at 64 bits. "
            "[The language](language.md) says what an operator computes."
        ),
    ]


def _report() -> list[str]:
    return [
        "## The report",
        paragraph("The program writes `report.json` last, and ends with exit code 0."),
        block(REPORT, "json"),
        "The fields of the report:",
        _fields(Report),
        "The fields of a pass:",
        _fields(Pass),
        paragraph(f"`latency_us` has {', '.join(map(code, Latencies.model_fields))}."),
        paragraph(f"[{SCHEMAS}]({SCHEMAS}) has the JSON schemas of manifest, task and report."),
    ]


def _checks() -> list[str]:
    return [
        "## What Lockstep checks",
        paragraph("A cell fails, and says why with the last lines of the engine's log, if:"),
        bullets(
            [
                "the engine is not installed, or changed since it was installed;",
                "its process ends with another exit code than 0, by a signal, or not within `limit` seconds; Lockstep "
                "then ends all its processes;",
                "there is no report, or it breaks the schema;",
                "the report contradicts the task: it lacks passes, or a pass has another number of events;",
                "the passes took longer than the process;",
                "outputs are missing, have another schema, or contradict the number or the digest in the report.",
            ]
        ),
        paragraph(
            "Then the run compares the outputs with the oracle, as those of every executor, and the digests of all "
            "passes. A wrong row turns the run red. Final state is the engine's own: Lockstep does not compare it, "
            "and does not check invariants that read it. Without order, it checks no invariants, because outputs lack "
            "columns."
        ),
        paragraph(
            "A cell of an external engine runs on the machine of the connection `local`, alone. Other hosts of a run "
            "do not take it. The compiled loop runs after the engine, and not in turns with its passes. The "
            "repetitions of a cell are equal shares of the measured passes; each counts with its median."
        ),
    ]


def _fields(model: type[BaseModel]) -> str:
    rows = [
        (code(name), _type(field), "" if field.is_required() else default(field), text(field.description or ""))
        for name, field in model.model_fields.items()
    ]
    return table(("field", "type", "default", "description"), rows)


def _type(field: FieldInfo) -> str:
    """The type of a field in words, with its bounds."""
    kind = field.annotation
    if kind in (int, float) and bounds_of(field) != (None, None):
        return bounds(field)
    if get_origin(kind) is list:
        return "list"
    if get_origin(kind) is dict:
        return "mapping"
    names: dict[object, str] = {str: "text", int: "integer", float: "number", bool: "`true` or `false`"}
    if kind in names:
        return names[kind]
    values = [value for value in get_args(kind) if isinstance(value, str)]
    return ", ".join(map(code, values)) or "mapping"
