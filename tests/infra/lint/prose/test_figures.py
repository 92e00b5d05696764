"""Measured figures stand in the page of committed results and nowhere else."""

import pytest

from infra.lint.prose import figures

TEXTS = ["It reaches 2.7 million events/s.", "| `wc` | 3.4 M events/s |", "about 12,000 rows/s"]
TEXTS += ["memory is read at 30 GB/s", "an access costs 84 ns an event", "the default has 1.29 times the loop"]
TEXTS += ["| x 1.3 times the compiled loop |", "    gs: 20000 events, 1,234,567 events/s"]
TEXTS += [" app  x loop  95 %  result\n wc   0.88    0.67-1.01  equal"]


@pytest.mark.parametrize("text", TEXTS)
def test_measured_figure_is_reported(text):
    assert list(figures.figures(text))


@pytest.mark.parametrize(
    "text",
    [
        "A run of 20,000 events on 2 threads.",
        "The generator makes 8,000 rows per second of the stream.",
        "wc: 20000 events, ... events/s, ...",
        "A pass lasts 1 to 5 seconds, or 100 times the longest pause.",
        " app  x loop  95 %     result\n wc   1.00    ...-...  yardstick\n\nVersion 1.25 of the page.",
        "| `x loop` | the ratio to the loop |\n| 0.5 | no table of the benchmark |",
    ],
)
def test_other_numbers_are_no_figures(text):
    assert not list(figures.figures(text))


def test_only_the_page_of_results_has_figures(tmp_path):
    (tmp_path / "docs").mkdir()
    paths = ["docs/benchmarks.md", "docs/index.md", "notes.txt"]
    for path in paths:
        (tmp_path / path).write_text("plain\n\n3.4 M events/s\n")
    [violation] = figures.check(tmp_path, paths)
    assert (violation.path, violation.line, violation.rule) == ("docs/index.md", 3, "figure")
    assert violation.message == "'3.4 M events/s': only docs/benchmarks.md has measured figures; link to it instead"
