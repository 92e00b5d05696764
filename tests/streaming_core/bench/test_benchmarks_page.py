"""The benchmark page shows the committed results, with their conditions, and nothing else."""

import json
import re
from pathlib import Path

import pytest

from infra.reference import files
from streaming_core.bench import wording
from streaming_core.bench.benchmarks_page import page
from streaming_core.bench.race.components import COMPONENTS, digests
from streaming_core.cli import main
from streaming_core.errors import BadInput

pytestmark = pytest.mark.slow  # its results are real ones, and take a minute
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
            sizes = ["--quick", "--threads", "1", "--repetitions", "2"]
            arguments = ["bench", *options, *sizes, "--out", str(folder / f"{name}.json")]
            patch.setattr("sys.argv", ["streaming-core", *arguments])
            with pytest.raises(SystemExit) as ended:
                main()
            assert ended.value.code == 0
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in RUNS}


@pytest.fixture
def write(measured, tmp_path):
    """The results, as if measured in full at a commit, and a function that writes one of them with changes."""

    def write(name, stem=None, **changes):
        result = {"build": "abc1234", "quick": False} | changes
        (tmp_path / f"{stem or name}.json").write_text(json.dumps(measured[name] | result))
        return tmp_path

    for name in measured:
        write(name)
    return write


def changed(rows, **changes):
    """A copy of the rows, with changes in the second one."""
    copied = json.loads(json.dumps(rows))
    copied[1] |= changes
    return copied


def test_page_has_medians_intervals_and_conditions(write, measured):
    text = page(write("engine"))
    for name in RUNS:
        result = measured[name]
        host = result["host"]
        assert f"| command | `{result['command']}` |" in text
        assert f"{host['memory_bytes'] / 2**30:.0f} GiB of memory" in text
        assert host["kernel"] in text
        assert host["cpu"] in text
        assert result["made_at"] in text
        assert f"| round trip between cores | {wording.round_trip(host)} |" in text
        assert f"| longest pause | {host['longest_pause_ms']:.2g} ms |" in text
        assert f"| size | {result['cells']} cells in " in text
    row = next(row for row in measured["engine"]["results"] if row["way"] == "owners")
    speed, ratio = row["events_per_s_range"], row["to_loop_range"]
    shown = re.search(r"^\| sl \| owners \| 1 \| \d+ \| (.+) \| equal \|$", text, re.MULTILINE)[1].split(" | ")
    assert shown[0] == f"{row['events_per_s'] / 1e6:.3g} ({speed[0] / 1e6:.3g} to {speed[1] / 1e6:.3g})"
    assert shown[1] == f"{row['to_loop']:.2f} ({ratio[0]:.2f} to {ratio[1]:.2f})"


def test_claim_is_shown_beside_its_measurement_and_verdict(write):
    text = page(write("tstream"))
    assert "| claim | measure | case | paper | ours, as published | our best | verdict |" in text
    case = r"^\| On one core, .* \(section VI-G\) \| throughput \| gs \| 0.0117 M/s \| .* M/s.* \| .* M/s.* \| "
    assert re.search(case + "not testable here: needs S-Store", text, re.MULTILINE)


def test_experiments_are_sorted_by_figure_number(write, measured):
    [experiment] = measured["tstream"]["experiments"]
    figures = ("section VI-G", "figures 13 and 14", "Figure 8", "figure 10")
    experiments = [experiment | {"figure": figure, "title": f"{n}"} for n, figure in enumerate(figures)]
    text = page(write("tstream", experiments=experiments))
    headings = re.findall(r"^### (.*): \d$", text, re.MULTILINE)
    assert headings == ["Figure 8", "Figure 10", "Figures 13 and 14", "Section VI-G"]


@pytest.mark.parametrize(("name", "key"), [("engine", "results"), ("files", "files"), ("tstream", "experiments")])
def test_changed_figure_changes_the_page(write, measured, name, key):
    before = page(write(name))
    of_name = measured[name][key]
    figures = {"to_loop": 1234.5, "to_pyarrow": 1234.5}
    if key == "experiments":
        rows = [of_name[0] | {"rows": changed(of_name[0]["rows"], **figures)}]
    else:
        rows = changed(of_name, **figures)
    after = page(write(name, **{key: rows}))
    assert after != before
    assert "| 1234.50" in after


def test_changed_source_marks_its_component_outdated(write):
    folder, now = write("tstream"), digests(COMPONENTS)
    assert "**Outdated:**" not in page(folder)
    text = page(folder, lambda: now | {"transactions": "0" * 16})
    warning = "**Outdated:** the sources of `transactions` changed after this result was measured."
    assert text.count("**Outdated:**") == 3, "the two other results measure all components"
    assert text.count(warning) == 3
    text = page(folder, lambda: now | {"pinned": "0" * 16, "windows": "0" * 16})
    assert text.count("**Outdated:** the sources of `pinned` and `windows` changed") == 2


@pytest.mark.parametrize("change", ["result", "source"])
def test_committed_page_is_stale_after_a_change(write, tmp_path, monkeypatch, change):
    """The test of generated files compares the page that is there with the page that the results make now."""
    committed = tmp_path / "docs" / "benchmarks"
    committed.mkdir(parents=True)
    (write("tstream") / "tstream.json").rename(committed / "tstream.json")
    monkeypatch.setattr(files.dbt, "files", lambda folder: {})
    monkeypatch.setattr(files, "PAGES", {})

    def stale() -> dict[Path, str]:
        return {path: text for path, text in files.stale(tmp_path) if path.suffix == ".md"}

    [(path, text)] = stale().items()
    path.write_text(text)
    assert not stale()
    if change == "result":
        result = json.loads((committed / "tstream.json").read_text())
        result["experiments"][0]["rows"][0]["events_per_s"] *= 2
        (committed / "tstream.json").write_text(json.dumps(result))
    else:
        now = digests(COMPONENTS)
        monkeypatch.setattr(wording, "sources", lambda: now | {"transactions": "0" * 16})
    assert list(stale()) == [tmp_path / "docs" / "benchmarks.md"]


def test_result_of_another_machine_has_its_own_section(write, measured):
    host = measured["tstream"]["host"] | {"cpu": "a large processor", "cores": 40}
    text = page(write("tstream", "tstream-numa", host=host))
    title = measured["tstream"]["title"]
    assert re.findall(rf"^## {re.escape(title)}.*$", text, re.MULTILINE) == [f"## {title}", f"## {title} (numa)"]
    assert "| machine | a large processor, 40 cores, " in text


def test_without_results_the_page_has_no_figures(tmp_path):
    text = page(tmp_path / "absent")
    assert "**No result is committed**" in text
    assert "streaming-core bench --threads 1,2 --repetitions 5" in text
    assert "x loop |" not in text


def test_result_without_a_commit_is_rejected(write):
    for build in ("abc1234-dirty", "unknown"):
        with pytest.raises(BadInput, match=rf"engine.json: measured on build {build}; commit all changes"):
            page(write("engine", build=build))


@pytest.mark.parametrize("name", RUNS)
def test_quick_result_is_rejected(write, name):
    with pytest.raises(BadInput, match=rf"{name}.json: measured with --quick; run it again without"):
        page(write(name, quick=True))


@pytest.mark.parametrize("name", RUNS)
def test_result_of_another_version_is_rejected(write, name):
    with pytest.raises(BadInput, match=rf"{name}.json: version 1 of a result, this is version 2; run `streaming-core "):
        page(write(name, version=1))


def test_wrong_result_is_rejected(write, measured):
    rows = [row | {"result": "different"} for row in measured["engine"]["results"]]
    with pytest.raises(BadInput, match=rf"engine.json: {len(rows)} results differ from the loop's, first sl loop"):
        page(write("engine", results=rows))
    write("engine")
    [experiment] = measured["tstream"]["experiments"]
    wrong = experiment | {"rows": changed(experiment["rows"], result="different")}
    with pytest.raises(BadInput, match=r"tstream.json: 1 results differ from the loop's, first "):
        page(write("tstream", experiments=[wrong]))


def test_invalid_result_file_is_rejected_with_its_path(write):
    folder = write("engine")
    for name, text, message in (
        ("notes", "{}", "no benchmark has this name; known: engine, files, tstream"),
        ("ordered", (folder / "tstream.json").read_text(), "not the result of `streaming-core bench --suite ordered"),
        ("stretch", (folder / "engine.json").read_text(), "not the result of `streaming-core bench --suite stretch"),
        ("viper", "{", "cannot be read: "),
        (
            "rlas",
            '{"version": 2, "suite": "rlas", "experiments": []}',
            "command is missing; run `streaming-core bench --suite rlas --threads 1,2` again",
        ),
    ):
        path = folder / f"{name}.json"
        path.write_text(text)
        with pytest.raises(BadInput, match=re.escape(f"{path}: {message}")):
            page(folder)
        path.unlink()


@pytest.mark.parametrize(("part", "fact"), [("host", "longest_pause_ms"), ("conditions", "pass_seconds")])
def test_result_without_its_conditions_is_rejected(write, measured, part, fact):
    lacking = {name: value for name, value in measured["files"][part].items() if name != fact}
    with pytest.raises(BadInput, match=rf"files.json: {part}.{fact} is missing; run `streaming-core bench gs"):
        page(write("files", **{part: lacking}))


def test_text_of_a_result_is_escaped_on_the_page(write, measured):
    experiment = measured["tstream"]["experiments"][0] | {"conclusions": ["a | b <script>\n| c"]}
    text = page(write("tstream", experiments=[experiment], title="<b>"))
    assert "- a \\| b &lt;script> \\| c\n" in text
    assert "## &lt;b>\n" in text
