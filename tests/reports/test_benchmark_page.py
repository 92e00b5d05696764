"""The benchmark page shows the committed results, with their conditions, and nothing else."""

import json
import re

import pytest

from reports.benchmark_page import page
from streaming_core.cli import main
from streaming_core.errors import BadInput

RUNS = {
    "engine": ["sl"],
    "files": ["gs", "--files"],
    "tstream": ["--suite", "tstream", "--only", "three-writes"],
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A small result of each kind, as the command writes it."""
    folder = tmp_path_factory.mktemp("measured")
    for name, options in RUNS.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOCKSTEP_HOME", str(folder / "home"))
            sizes = ["--events", "2000", "--threads", "1", "--repetitions", "2"]
            arguments = ["bench", *options, *sizes, "--out", str(folder / f"{name}.json")]
            patch.setattr("sys.argv", ["streaming-core", *arguments])
            with pytest.raises(SystemExit) as ended:
                main()
            assert ended.value.code == 0
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in RUNS}


@pytest.fixture
def results(measured, tmp_path):
    """The results, as if measured at a commit; `write` changes one of them."""

    def write(name, **changes):
        result = {"build": "abc1234"} | changes
        (tmp_path / f"{name}.json").write_text(json.dumps(measured[name] | result))
        return tmp_path

    for name in measured:
        write(name)
    return write


def test_page_has_medians_intervals_and_conditions(results, measured):
    text = page(results("engine"))
    for name, options in RUNS.items():
        host = measured[name]["host"]
        assert f"`streaming-core bench {' '.join(options)} --events 2000 --threads 1 --repetitions 2`" in text
        assert f"{host['memory_bytes'] / 2**30:.0f} GiB of memory, {host['kernel']}" in text
        assert host["cpu"] in text
        assert measured[name]["made_at"] in text
    row = next(row for row in measured["engine"]["results"] if row["way"] == "owners")
    low, high = row["to_loop_range"]
    speeds = [f"{2000 / seconds / 1e6:.3g}" for seconds in sorted(row["seconds"], reverse=True)]
    shown = re.search(r"^\| sl \| owners \| 1 \| 2000 \| (.+) \| equal \|$", text, re.MULTILINE)[1].split(" | ")
    assert shown[0] == f"{row['events_per_s'] / 1e6:.3g}"
    assert shown[1:4] == [f"{speeds[0]} to {speeds[1]}", f"{row['to_loop']:.2f}", f"{low:.2f} to {high:.2f}"]


@pytest.mark.parametrize(("name", "key"), [("engine", "results"), ("files", "files"), ("tstream", "experiments")])
def test_a_changed_figure_changes_the_page(results, measured, name, key):
    before = page(results(name))
    changed = json.loads(json.dumps(measured[name][key]))
    rows = changed[0]["rows"] if key == "experiments" else changed
    rows[1]["seconds"] = [seconds * 2 for seconds in rows[1]["seconds"]]
    assert page(results(name, **{key: changed})) != before


def test_without_results_the_page_has_no_figures(tmp_path):
    text = page(tmp_path / "absent")
    assert "**No result is committed**" in text
    assert "streaming-core bench --threads 1,2 --repetitions 5" in text
    assert "x loop |" not in text


def test_a_result_that_was_not_measured_at_a_commit_is_rejected(results):
    for build in ("abc1234-dirty", "unknown"):
        with pytest.raises(BadInput, match=rf"engine.json: measured on build {build}; commit all changes"):
            page(results("engine", build=build))


def test_a_wrong_result_is_rejected(results, measured):
    rows = [row | {"result": "different"} for row in measured["engine"]["results"]]
    with pytest.raises(BadInput, match=rf"engine.json: {len(rows)} results differ from the loop's, first sl loop"):
        page(results("engine", results=rows))


def test_a_file_that_is_no_result_of_its_name_is_rejected(results, measured):
    folder = results("engine")
    for name, text, message in (
        ("notes", "{}", "no benchmark has this name; known: engine, files, tstream"),
        ("ordered", (folder / "tstream.json").read_text(), "not the result of `streaming-core bench --suite ordered"),
        ("stretch", (folder / "engine.json").read_text(), "not the result of `streaming-core bench --suite stretch"),
        ("viper", "{", "cannot be read: "),
        ("rlas", '{"suite": "rlas", "experiments": []}', "command is missing; run `streaming-core bench` again"),
    ):
        path = folder / f"{name}.json"
        path.write_text(text)
        with pytest.raises(BadInput, match=re.escape(f"{path}: {message}")):
            page(folder)
        path.unlink()


def test_text_of_a_result_is_text_on_the_page(results, measured):
    experiment = measured["tstream"]["experiments"][0] | {"conclusions": ["a | b <script>\n| c"]}
    text = page(results("tstream", experiments=[experiment], title="<b>"))
    assert "- a \\| b &lt;script> \\| c\n" in text
    assert "## &lt;b>\n" in text
