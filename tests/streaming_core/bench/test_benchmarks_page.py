"""The benchmark pages show the committed results, with their conditions, and nothing else."""

import json
import re
from pathlib import Path

import pytest

from infra.reference import files
from streaming_core.bench import wording
from streaming_core.bench.benchmarks_page import claims_of, pages
from streaming_core.cli import main
from streaming_core.errors import BadInput

pytestmark = pytest.mark.slow  # its result is a real one, and takes a minute
ONLY = "contention"


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A small result, as the command writes it."""
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_HOME", str(folder / "home"))
        arguments = ["bench", "--suite", "tstream", "--only", ONLY, "--quick", "--threads", "1", "--repetitions", "2"]
        patch.setattr("sys.argv", ["streaming-core", *arguments, "--out", str(folder / "tstream.json")])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
    return json.loads((folder / "tstream.json").read_text())


@pytest.fixture
def write(measured, tmp_path):
    """A function that writes the result with changes, as if measured in full at a commit, and returns the folder."""

    def write(stem="tstream", **changes):
        (tmp_path / f"{stem}.json").write_text(json.dumps(measured | {"build": "abc1234", "quick": False} | changes))
        return tmp_path

    return write


def changed(rows, **changes):
    """A copy of the rows, with changes in the second one."""
    copied = json.loads(json.dumps(rows))
    copied[1] |= changes
    return copied


def test_details_have_medians_intervals_and_conditions(write, measured):
    text, host = pages(write())["benchmarks/tstream.md"], measured["host"]
    assert f"| command | `{measured['command']}` |" in text
    assert f"{host['memory_bytes'] / 2**30:.0f} GiB of memory" in text
    for fact in (host["kernel"], host["cpu"], measured["made_at"]):
        assert fact in text
    assert f"| round trip between cores | {wording.round_trip(host)} |" in text
    assert f"| longest pause | {host['longest_pause_ms']:.2g} ms |" in text
    assert f"| size | {measured['cells']} cells in " in text
    rows = measured["experiments"][0]["rows"]
    row = next(row for row in rows if row["way"] == "owners")
    speed, ratio = row["events_per_s_range"], row["to_loop_range"]
    line = re.search(rf"^\| {row['app']} \| owners \| .* \| equal \|$", text, re.MULTILINE)[0]
    assert f"| {row['events_per_s'] / 1e6:.3g} ({speed[0] / 1e6:.3g} to {speed[1] / 1e6:.3g}) |" in line
    assert f"| {row['to_loop']:.2f} ({ratio[0]:.2f} to {ratio[1]:.2f}) |" in line


def test_claim_has_a_line_with_its_verdict_and_revision(write, measured):
    [[line]] = claims_of(measured).values()
    verdict = line.verdict.partition(":")[0]
    text = pages(write())["benchmarks.md"]
    titles = (
        "| claim | paper | batch, threads | as published | ours, same batch and threads | best of all executors | "
        "x loop: published, ours, best | verdict | revision |"
    )
    assert titles in text
    assert re.search(rf"\| {verdict}.* \| abc1234 \|$", text, re.MULTILINE)
    assert f"claims, by the verdict on most cases: 1 {verdict}." in text
    assert (
        "![Throughput relative to the compiled loop: as published, ours, and the best](benchmarks/tstream.svg)" in text
    )


def test_experiments_are_sorted_by_figure_number(write, measured):
    [experiment] = measured["experiments"]
    figures = ("section VI-G", "figures 13 and 14", "Figure 8", "figure 10")
    experiments = [experiment | {"figure": figure, "title": f"{n}"} for n, figure in enumerate(figures)]
    text = pages(write(experiments=experiments))["benchmarks/tstream.md"]
    headings = re.findall(r"^## (.*): \d$", text, re.MULTILINE)
    assert headings == ["Figure 8", "Figure 10", "Figures 13 and 14", "Section VI-G"]


def test_committed_pages_are_stale_after_another_result(write, measured, tmp_path, monkeypatch):
    """The test of generated files compares the pages that are there with those that the results make now."""
    committed = tmp_path / "docs" / "benchmarks"
    committed.mkdir(parents=True)
    (write() / "tstream.json").rename(committed / "tstream.json")
    monkeypatch.setattr(files.dbt, "files", lambda folder: {})
    monkeypatch.setattr(files, "PAGES", {})

    def stale() -> dict[Path, str]:
        return {path: text for path, text in files.stale(tmp_path) if "benchmarks" in str(path.relative_to(tmp_path))}

    names = [tmp_path / "docs" / name for name in ("benchmarks.md", "benchmarks/tstream.md", "benchmarks/tstream.svg")]
    written = stale()
    assert list(written) == names
    for path, text in written.items():
        path.write_text(text)
    assert not stale()
    rows = changed(measured["experiments"][0]["rows"], to_loop=1234.5)
    (write(experiments=[measured["experiments"][0] | {"rows": rows}]) / "tstream.json").rename(
        committed / "tstream.json"
    )
    [details] = [text for path, text in stale().items() if path == names[1]]
    assert "| 1234.50" in details


def test_result_of_another_machine_has_its_own_section(write, measured):
    write()
    host = measured["host"] | {"cpu": "a large processor", "cores": 40}
    every = pages(write("tstream-numa", host=host))
    title = re.escape(measured["title"])
    headings = re.findall(rf"^### ({title}.*)$", every["benchmarks.md"], re.MULTILINE)
    assert headings == [measured["title"], f"{measured['title']} (numa)"]
    assert "| machine | a large processor, 40 cores, " in every["benchmarks/tstream-numa.md"]


def test_without_results_the_page_has_no_figures(tmp_path):
    [(name, text)] = pages(tmp_path / "absent").items()
    assert name == "benchmarks.md"
    assert "**No result is committed**" in text
    assert "streaming-core bench --suite tstream --threads 1,2" in text
    assert "x loop |" not in text


def test_result_that_is_not_of_a_full_run_at_a_commit_is_rejected(write):
    for changes, message in (
        ({"build": "abc1234-dirty"}, "measured on build abc1234-dirty; commit all changes"),
        ({"build": "unknown"}, "measured on build unknown; commit all changes"),
        ({"quick": True}, "measured with --quick; run it again without"),
        ({"version": 1}, "version 1 of a result, this is version 2; run `streaming-core "),
    ):
        with pytest.raises(BadInput, match=f"tstream.json: {message}"):
            pages(write(**changes))


def test_wrong_result_is_rejected(write, measured):
    [experiment] = measured["experiments"]
    wrong = experiment | {"rows": changed(experiment["rows"], result="different")}
    with pytest.raises(BadInput, match=r"tstream.json: 1 results differ from the loop's; the first is "):
        pages(write(experiments=[wrong]))


def test_invalid_result_file_is_rejected_with_its_path(write):
    folder = write()
    for name, text, message in (
        ("notes", "{}", "no suite has this name; known: tstream, "),
        ("ordered", (folder / "tstream.json").read_text(), "not the result of `streaming-core bench --suite ordered"),
        ("viper", "{", "cannot be read: "),
        (
            "stretch",
            '{"version": 2, "suite": "stretch", "experiments": []}',
            "command is missing; run `streaming-core bench --suite stretch --threads 1,2` again",
        ),
    ):
        path = folder / f"{name}.json"
        path.write_text(text)
        with pytest.raises(BadInput, match=re.escape(f"{path}: {message}")):
            pages(folder)
        path.unlink()


@pytest.mark.parametrize(("part", "fact"), [("host", "longest_pause_ms"), ("conditions", "pass_seconds")])
def test_result_without_its_conditions_is_rejected(write, measured, part, fact):
    lacking = {name: value for name, value in measured[part].items() if name != fact}
    with pytest.raises(BadInput, match=rf"tstream.json: {part}.{fact} is missing; run `streaming-core bench "):
        pages(write(**{part: lacking}))


def test_text_of_a_result_is_escaped_on_the_page(write, measured):
    experiment = measured["experiments"][0] | {"conclusions": ["a | b <script>\n| c"]}
    every = pages(write(experiments=[experiment], title="<b>"))
    assert "- a \\| b &lt;script> \\| c\n" in every["benchmarks/tstream.md"]
    assert "### &lt;b>\n" in every["benchmarks.md"]
