"""The DAG import_data: the values that its form accepts and refuses, and an import of two streams by its tasks."""

import os
from pathlib import Path

import jsonschema
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from dags.lib import import_form
from dags.lib.form import regression_params
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.regression.project import named
from tests.dags.test_plan import OTHERS, PAGE

OPTIONAL = dict.fromkeys(("files", "map", "separator", "params"))
FORM = OPTIONAL | {"tolerance": 0.0}


@pytest.fixture
def inbox(lockstep_home, monkeypatch) -> Path:
    """The default folder to import from, with a file; a file lies outside."""
    monkeypatch.delenv("LOCKSTEP_IMPORT_ROOTS", raising=False)
    (lockstep_home.root / "inbox").mkdir(parents=True)
    for path in ("inbox/a.csv", "outside.csv"):
        (lockstep_home.root / path).write_text("ts,line\n1,x\n")
    return lockstep_home.root / "inbox"


def refusal(**fields) -> str:
    with pytest.raises(AirflowFailException) as refused:
        import_form.check(FORM | {"application": "wc", "name": "mine"} | fields)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_tasks_check_the_form_and_then_import(dags):
    dag = dags[named("import_data")]
    assert set(dag.task_ids) == {"check", "import_files"}
    assert dag.get_task("import_files").upstream_task_ids == {"check"}
    assert {task.retries for task in dag.tasks} == {0}
    with pytest.raises(ParamValidationError):  # application and name have no default
        dag.params.validate()


def test_form_describes_every_field_and_offers_all_applications(inbox):
    params = import_form.import_params()
    assert {"application", "name", *FORM} == set(params)
    assert sorted(params["application"].schema["enum"]) == registry.names()
    assert str(inbox) in params["files"].description
    for name, param in params.items():
        assert param.schema["title"], name
        assert param.description, name
        if name in OPTIONAL:
            assert param.resolve() is None


INVALID = [("application", "nosuch"), ("name", "../mine"), ("name", "a" * 62), ("files", "a.csv")]
INVALID += [("files", [1]), ("tolerance", 1.1), ("params", [])]


@pytest.mark.parametrize(("name", "value"), INVALID)
def test_form_refuses_invalid_values(name, value):
    with pytest.raises((ParamValidationError, jsonschema.ValidationError)):
        import_form.import_params()[name].resolve(value)


def test_paths_and_links_outside_the_roots_and_fifos_are_refused_in_one_line(inbox):
    (inbox / "link.csv").symlink_to("../outside.csv")
    (inbox / "in").mkdir()
    (inbox / "in" / "b.csv").symlink_to("../../outside.csv")
    os.mkfifo(inbox / "fifo.csv")
    outside = f"is outside the folders that may be read ({inbox}): copy the file there, or add its folder to "
    for path, message in (
        ("/etc/passwd", f"/etc/passwd {outside}"),
        ("../outside.csv", f"{inbox}/../outside.csv {outside}"),
        ("link.csv", f"{inbox}/link.csv {outside}"),
        ("in", f"{inbox}/in/b.csv {outside}"),
        ("fifo.csv", f"{inbox}/fifo.csv is a FIFO: only regular files, and folders of them, can be imported"),
        ("nosuch.csv", f"{inbox}/nosuch.csv does not exist"),
    ):
        assert refusal(files=["a.csv", path]).startswith(message)
        assert refusal(application="scalejoin", files=[f"Left={path}", "Right=a.csv"]).startswith(message)
    assert import_form.check(FORM | {"application": "wc", "name": "mine", "files": [str(inbox / "a.csv"), " "]}) == {
        "folder": str(inbox.parent / "imported" / "mine"),
        "files": 1,
    }


def test_setting_adds_another_root(inbox, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_IMPORT_ROOTS", f"/nosuch:{inbox.parent}")
    form = FORM | {"application": "wc", "name": "mine", "files": [str(inbox.parent / "outside.csv")]}
    assert import_form.check(form)["files"] == 1
    assert "(/nosuch, " in refusal(files=["/etc/passwd"])


def test_inconsistent_request_is_refused_before_a_row_is_read(inbox):
    (inbox.parent / "imported" / "taken").mkdir(parents=True)
    (inbox.parent / "imported" / "taken" / "there").touch()
    for fields, message in (
        ({}, "give the files with the events of wc"),
        ({"files": ["a.csv"], "name": "taken"}, "already exists: choose another name, or remove it first"),
        ({"files": ["a.csv"], "name": "../x"}, "--name '../x': use at most 61 letters"),
        ({"files": ["a.csv"], "application": "nosuch"}, "unknown application 'nosuch'"),
        ({"files": ["a.csv"], "map": ["line=body"]}, "has no column 'body' for the field line"),
        ({"files": ["a.csv"], "params": {"nosuch": 1}}, "nosuch"),
        ({"application": "scalejoin", "files": ["Left=a.csv"]}, "stream Right has no file"),
    ):
        assert message in refusal(**fields)


def test_hostile_values_are_refused_in_one_line(inbox, tmp_path):
    for pattern in [PAGE, *OTHERS]:
        text = pattern.format(tmp_path)
        for field in ("files", "map"):
            others = {"files": ["a.csv"]} if field == "map" else {}
            if text.strip():
                refusal(**others, **{field: [text]})
        for field in ("application", "name"):
            refusal(**{"files": ["a.csv"], field: text or "-"})
    assert not (tmp_path / "marker").exists()


def test_import_of_two_streams_equals_the_generated_events_and_is_offered(inbox, capsys):
    app = registry.load("scalejoin")
    home = inbox.parent
    generated = workload.write(app, {}, 2000, 3, home / "generated")
    table = pa.concat_tables(workload.read(home / "generated").blocks(1000))
    for number, (name, columns) in enumerate(zip(app.streams.names, app.streams.columns, strict=True)):
        of_stream = table.filter(pc.equal(table["stream"], number))
        pq.write_table(pa.table({field: of_stream[c] for field, c in columns.items()}), inbox / f"{name}.parquet")
    form = FORM | {"application": "scalejoin", "name": "ours"}
    form |= {"files": ["Right=Right.parquet", f"Left={inbox / 'Left.parquet'}"]}
    assert import_form.check(form) == {"folder": str(home / "imported" / "ours"), "files": 2}
    result = import_form.import_files(form)
    assert result == {"data": "scalejoin/ours", "events": 2000, "rows": 2000, "set_aside": 0}
    assert ": 2,000 events of scalejoin, from 2,000 rows of 2 files" in capsys.readouterr().out
    manifest = workload.read_manifest(home / "imported" / "ours")
    assert manifest["content_digest"] == generated["content_digest"]
    assert regression_params()["data"].schema["examples"] == ["scalejoin/ours"]
