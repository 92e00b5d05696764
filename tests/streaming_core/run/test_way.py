"""Ways of executing: the declarations of executors, and the files generated from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming_core.apps import registry
from streaming_core.cli.options import RECORD, RUN
from streaming_core.errors import BadInput
from streaming_core.regression.request import FIELD_OPTIONS, RegressionSpec
from streaming_core.regression.warehouse import CELLS, WAY, spec_of, way_columns
from streaming_core.run import way
from streaming_core.run.way import (
    ABSENT_VALUES,
    EXECUTORS,
    OPTION_EXECUTORS,
    SPEC_FIELDS,
    Pooled,
    RunSpec,
    executors_of,
)
from streaming_core.storage import canonical_json

ROOT = Path(__file__).parents[3]

# Cells, and their specs from before executors were classes.
WRITTEN = {
    "sl.transactional.owners.t1.a434cccc": {"app": "sl", "executor": "transactional"},
    "sl.transactional.serial.t2.a836fd24": {"app": "sl", "executor": "transactional", "scheme": "serial", "threads": 2,
     "sink": "parquet", "repetitions": 3},
    "gs.transactional.tstream-shared_everything-stealing-batch64.t4.af86d232": {"app": "gs",
     "executor": "transactional", "scheme": "tstream", "pool": "shared_everything", "stealing": True, "threads": 4,
     "punctuation": 100, "checkpoint": "30s", "batch": 64, "idle": "park", "pin": True},
    "tp.transactional.no_lock.t8.042cb3a8": {"app": "tp", "executor": "transactional", "scheme": "no_lock",
     "threads": 8, "params": {"n_roads": 3}, "rate": 1000.0},
    "wc.pooled.affinity.t2.e2a5f166": {"app": "wc", "executor": "pooled", "threads": 2, "sink": "parquet",
     "repetitions": 3},
    "wc.pooled.lp-shared-lock-batch7.t1.7407bcc0": {"app": "wc", "executor": "pooled", "heuristic": "lp",
     "queue": "shared", "reorder": "lock", "batch": 7, "punctuation": 7},
    "fd.pinned.gate.t2.82569041": {"app": "fd", "executor": "pinned", "threads": 2,
     "plan": {"source": [0], "predict": [0, 1]}},
    "wc.pinned.shared_ring.t2.443287cf": {"app": "wc", "executor": "pinned", "channel": "shared_ring", "threads": 2},
    "wc.morsel.morsel-none.t2.b3771397": {"app": "wc", "executor": "morsel", "order": "none", "threads": 2},
    "wc.morsel.morsel.t1.b4da8565": {"app": "wc", "executor": "morsel"},
    "wc.spark.spark.t2.29068d69": {"app": "wc", "executor": "spark", "threads": 2},
}  # fmt: skip
# The flat JSON of two of them from old files.
FLAT = {
    "sl.transactional.serial.t2.a836fd24": """{"app": "sl", "params": {}, "executor": "transactional", "threads": 2,
        "scheme": "serial", "pool": null, "stealing": false, "punctuation": 500, "checkpoint": "60s", "batch": 256,
        "heuristic": null, "queue": null, "reorder": null, "channel": null, "plan": {}, "order": "total", "rate": 0.0,
        "pin": false, "idle": "yield", "sink": "parquet", "repetitions": 3}""",
    "wc.pinned.shared_ring.t2.443287cf": """{"app": "wc", "params": {}, "executor": "pinned", "threads": 2,
        "scheme": null, "pool": null, "stealing": false, "punctuation": 500, "checkpoint": "60s", "batch": 256,
        "heuristic": null, "queue": null, "reorder": null, "channel": "shared_ring", "plan": {}, "order": "none",
        "rate": 0.0, "pin": false, "idle": "yield", "sink": "digest", "repetitions": 0}""",
}


@pytest.mark.parametrize("cell", WRITTEN)
def test_cells_keep_their_names_over_releases(cell):
    assert RunSpec.parse(WRITTEN[cell]).cell == cell


@pytest.mark.parametrize("cell", FLAT)
def test_a_flat_spec_survives_a_round_trip(cell):
    spec = RunSpec.parse(FLAT[cell])
    assert spec == RunSpec.parse(WRITTEN[cell])
    # Options that are newer.
    later = {"schedule": [], "controller": None, "thresholds": [], "parallelism": None}
    later |= {"seconds": 0.4, "partitioning": None, "partitions": 100, "slice": 5, "throughput_window": 1000}
    later |= {"linger": 1000, "faults": ""}
    later |= {"controller": "none", "parallelism": "vsn"} if spec.executor == "pinned" else {}
    assert spec.model_dump(mode="json") == json.loads(FLAT[cell]) | later
    assert RunSpec.parse(spec.model_dump_json()) == spec


def test_a_spec_is_parsed_into_the_class_of_its_executor():
    for name, executor in EXECUTORS.items():
        spec = RunSpec.parse({"app": "wc", "executor": name})
        assert type(spec) is executor
        assert spec == executor(app="wc")
        absent = {option: value for option, value in ABSENT_VALUES.items() if option not in executor.options()}
        assert {option: spec.option(option) for option in absent} == absent
        assert not any(hasattr(spec, option) for option in absent)
    with pytest.raises(TypeError, match="abstract class RunSpec"):
        RunSpec(app="wc", executor="pooled")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"executor": "pooled", "scheme": "owners"}, "executor pooled has no scheme; transactional has"),
        ({"executor": "morsel", "plan": {"source": [0]}}, "executor morsel has no plan; pinned has"),
        ({"executor": "spark", "plan": "auto"}, "executor spark has no plan; pinned has"),
        ({"executor": "spark", "order": "none"}, "order is total with spark"),
        ({"executor": "spark", "rate": 7}, "executor spark has no open-loop pass: set rate to 0"),
        ({"executor": "spark", "pin": True}, "executor spark binds no threads to cores: set pin to false"),
        ({"executor": "pinned", "stealing": True}, "executor pinned has no stealing; transactional has"),
        (
            {"executor": "pooled", "checkpoint": "1.5s"},
            "checkpoint: must be seconds, such as 10s",
        ),
        ({"executor": "pooled", "order": "none"}, "order is total with pooled"),
        ({"executor": "pinned", "channel": "shared_ring", "order": "total"}, "order is none with channel shared_ring"),
        ({"executor": "transactional", "scheme": "lock", "pool": "shared_everything"}, "scheme lock has no pool"),
        ({"executor": "transactional", "stealing": True}, "stealing needs a shared pool"),
        ({"executor": "transactional", "scheme": "serial", "stealing": True}, "stealing needs a shared pool"),
        ({"executor": "pooled", "queue": "line"}, "unknown queue 'line' of executor pooled; known: lanes, hybrid, "),
        (
            {"executor": "no engine"},
            "unknown executor 'no engine'; known: transactional, pooled, pinned, morsel, spark",
        ),
        (
            {"executor": ["pooled"]},
            "unknown executor \"['pooled']\" (did you mean 'pooled'?); known: transactional, pooled, pinned, morsel, ",
        ),
        ({}, "executor is missing"),
        ({"executor": "pooled", "telepathy": 1}, "unknown field 'telepathy'"),
        ({"executor": "pinned", "threads": 2, "plan": {"a": [2]}}, "plan: a needs a replica, each on one of the "),
        (
            {"executor": "pinned", "controller": "daemon"},
            "unknown controller 'daemon' of executor pinned; known: none, ",
        ),
        ({"executor": "pinned", "thresholds": [90, 70, 45]}, "thresholds are those of controllers threshold and model"),
        *(
            (
                {"executor": "pinned", "controller": "model", "thresholds": fields},
                "thresholds: upper > target > lower, ",
            )
            for fields in ([70, 90, 45], [90, 70], [101, 70, 45], [90, 70, 0], [90, 70, 70])
        ),
    ],
)
def test_an_invalid_spec_is_refused_in_one_line(fields, message):
    for data in ({"app": "wc"} | fields, json.dumps({"app": "wc"} | fields)):
        with pytest.raises(BadInput) as refused:
            RunSpec.parse(data)
        assert str(refused.value).startswith(message)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["{", "[]", "7"])
def test_unparsable_text_is_refused_in_one_line(text):
    with pytest.raises(BadInput) as refused:
        RunSpec.parse(text)
    assert "\n" not in str(refused.value)


def test_the_first_strategy_of_an_axis_is_its_default():
    for executor in EXECUTORS.values():
        for axis, strategies in executor.axes().items():
            assert executor.options()[axis].default == strategies[0], (executor, axis)


def test_every_application_names_its_executors():
    for name in registry.names():
        app = registry.load(name)
        for executor in EXECUTORS:
            if executor in executors_of(app.kind):
                RunSpec.parse({"app": name, "executor": executor}).check(app)
            else:
                with pytest.raises(BadInput, match=f"does not run on {executor}; it supports: "):
                    RunSpec.parse({"app": name, "executor": executor}).check(app)


def test_a_cell_is_recognised_from_its_raw_row():
    later = {"schedule": [{"event": 5, "owners": {"count": [1, 0], "sum": 2}}, {"event": 9, "owners": {"sum": 1}}]}
    windows = {"app": "wordcount", "executor": "pinned", "threads": 2} | later
    windows |= {"controller": "model", "thresholds": [80, 70, 60]}
    plans = [{"app": "wc", "executor": "pinned", "threads": 2, "plan": plan} for plan in ("auto", {"split": [0, 1]})]
    for fields in (*WRITTEN.values(), windows, windows | {"parallelism": "sn"}, *plans):
        spec = RunSpec.parse(fields | {"params": {}, "sink": "digest", "repetitions": 0})
        row = {"app": spec.app, "params": "{}", **way_columns(spec)}
        assert spec_of(row) == spec
        assert row["schedule"] == canonical_json(spec.model_dump(mode="json")["schedule"])


def test_every_option_is_available_everywhere():
    assert RUN.keys() == SPEC_FIELDS.keys() - {"app", "params"}
    assert set(RECORD) == {
        "executor", "threads", "batch", "pin", "idle", "heuristic", "queue", "reorder", "partitioning", "partitions",
        "slice", "throughput_window", "channel", "plan", "linger", "schedule", "controller", "thresholds",
        "parallelism",
    }  # fmt: skip
    assert set(FIELD_OPTIONS.values()) == OPTION_EXECUTORS.keys() - {"schedule", "thresholds"}
    assert RegressionSpec.model_fields.keys() >= FIELD_OPTIONS.keys()
    assert all(executor.placement for executor in EXECUTORS.values())
    assert set(WAY) <= set(CELLS.names)
    options = Pooled(app="wc").runtime_options
    assert options.keys() == SPEC_FIELDS.keys() - {"app", "params", "checkpoint", "repetitions", "seconds", "faults"}


# Text of the declaration -> text to insert after it: another field of every executor, and another axis, switch and
# strategy of pooled. A separate process imports the changed declaration instead of the real one.
MORE = {
    'description="Measured passes at peak rate after the first pass.")\n': """
    mood: int = Field(3, description="Of the machine.")
""",
    'description="The buffer behind an operator that puts its outputs into order again."\n    )\n': """
    lane: Literal["left", "right"] = Field("left", description="Side of the road.")
    lights: Annotated[bool, Requires("lane", frozenset({"right"}), "lights are on the right")] = Field(
        False, description="Lights at night."
    )
""",
    'heuristic: Literal["affinity", "ct", "lp", "et", "qst"': ', "hunch"',
}
ASK = """
import importlib.util, json, sys
name = "streaming_core.run.way"
found = importlib.util.spec_from_file_location(name, sys.argv[1])
sys.modules[name] = way = importlib.util.module_from_spec(found)
found.loader.exec_module(way)
import streaming_core.run
streaming_core.run.way = way

from dags.lib.form import regression_params
from streaming_core.cli.options import RECORD, RUN
from streaming_core.regression.request import RegressionSpec
from streaming_core.regression.warehouse import CELLS, spec_of, way_columns
from infra.checkout import ROOT
from infra.reference import dbt

form = regression_params()
texts = {path.relative_to(ROOT).as_posix(): text for path, text in dbt.files(ROOT / "dbt").items()}
spec = way.Pooled(app="wc", lane="right", lights=True, heuristic="hunch")
cells = RegressionSpec(applications=["wc"], executors=["pooled"], threads=[1], lanes=["left", "right"], lights=True)
print(json.dumps({
    "generated": {path: [word for word in ("lane", "lights", "hunch") if word in text] for path, text in texts.items()},
    "help": [RUN[name].__metadata__[0].help for name in ("lane", "lights", "heuristic")],
    "recorded": [name in RECORD for name in ("lane", "lights")],
    "form": [[form[name].schema[key] for key in ("title", "section")] for name in ("lanes", "lights")],
    "offered": [form[name].schema["examples"] for name in ("lanes", "heuristics")],
    "columns": [str(CELLS.field(name).type) for name in ("lane", "lights")],
    "row": [way_columns(spec)[name] for name in ("lane", "lights")],
    "again": spec_of({"app": "wc", "params": "{}", **way_columns(spec)}) == spec,
    "options": [spec.runtime_options[name] for name in ("lane", "lights")],
    "strategies": [cell.strategy for cell in cells.cells({"wc": "dataflow"})],
    "strategy": spec.strategy,
    "names": [way.RunSpec.parse(fields).cell for fields in json.loads(sys.argv[2])],
    "read": way.RunSpec.parse(sys.argv[3]).cell,
    "another": spec.cell != way.Pooled(app="wc", lane="right", heuristic="hunch").cell,
}))
"""


def test_form_command_line_and_sql_follow_the_declaration(tmp_path):
    text = Path(way.__file__).read_text()
    for place, more in MORE.items():
        assert text.count(place) == 1
        text = text.replace(place, place + more)
    declared = tmp_path / "way.py"
    declared.write_text(text)
    cell, flat = next(iter(FLAT.items()))
    command = [sys.executable, "-c", ASK, str(declared), json.dumps(list(WRITTEN.values())), flat]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    options = ["lane", "lights"]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "generated": {
            "dbt/macros/way.sql": [*options, "hunch"],
            "dbt/models/way.md": [*options, "hunch"],
            "dbt/models/staging/raw.yml": options,
            "dbt/models/marts/cells.yml": options,
        },
        "help": [
            "Side of the road. One of left, right. Default: left.",
            "Lights at night.",
            "How a worker chooses the operator to run next. One of affinity, ct, lp, et, qst, hunch. "
            "Default: affinity.",
        ],
        "recorded": [True, True],
        "form": [["Lanes", "Executor pooled"], ["Lights", "Executor pooled"]],
        "offered": [["all", "left", "right"], ["all", "affinity", "ct", "lp", "et", "qst", "hunch"]],
        "columns": ["string", "bool"],
        "row": ["right", True],
        "again": True,
        "options": ["right", True],
        "strategies": ["affinity", "affinity-right", "affinity-right-lights"],
        "strategy": "hunch-right-lights",
        "names": list(WRITTEN),
        "read": cell,
        "another": True,
    }
