"""A page explains the terms of the glossary before it uses them, or links them."""

import pytest

from infra.lint.prose import terms

GLOSSARY = """# Glossary

## Terms

| term | meaning |
|---|---|
| <a id="cell"></a>cell | One application, run in one way. |
| <a id="speed-gate"></a><a id="gate"></a>speed gate | It compares builds. |
| <a id="matrix"></a>matrix | The cells of a run. |

## Ordinary words

| word | meaning |
|---|---|
| <a id="run"></a>run | All cells. |
"""


@pytest.fixture
def check(tmp_path):
    (tmp_path / "docs" / "how-to").mkdir(parents=True)
    (tmp_path / "docs" / "glossary.md").write_text(GLOSSARY)

    def check(text, path="docs/how-to/page.md"):
        (tmp_path / path).write_text(text)
        return [(term.line, term.message.split()[0], term.is_warning) for term in terms.check(tmp_path, [path])]

    return check


def test_term_without_an_explanation_is_a_warning_at_its_first_use(check):
    text = "# Run\n\nA run has\ntwo cells. A cell ends.\n\n| a | b |\n|---|---|\n| the speed gate | all matrices |\n"
    assert check(text) == [(4, '"cells"', True), (8, '"speed', True), (8, '"matrices"', True)]


@pytest.mark.parametrize(
    "text",
    [
        "A *cell* is one application. Cells end.",
        "Each [cell](../glossary.md#cell) ends.",
        "The [speed\ngate](../glossary.md#gate) measures. So the speed gate ends.",
        "It runs cells.\nA *cell* is one application.",
        "Type `lockstep report CELL`, or see `cell`.",
        "Press **Cells**.",
        "# The cells of a night\n\nIt runs.",
        "An excellent run, cancelled.",
        "```text\ncell  verdict\n```",
    ],
)
def test_explained_term_passes(check, text):
    assert check(f"# Page\n\n{text}\n") == []


def test_term_over_two_lines_is_found_at_the_first(check):
    assert check("A run with `code`\n*in it*\nand a speed\ngate, which ends.\n") == [(3, '"speed', True)]


def test_explanation_in_a_later_section_is_too_late(check):
    assert check("It runs cells.\n\n## Cells\n\nA *cell* is one application.\n") == [(1, '"cells"', True)]


def test_reference_pages_and_checkouts_without_a_glossary_are_left_alone(check, tmp_path):
    assert check("Two cells.\n", "docs/index.md") == []
    (tmp_path / "docs" / "glossary.md").unlink()
    assert check("Two cells.\n") == []
