"""Each rule of prose finds a violation at its line, and passes clean text."""

import pytest

from infra.lint.prose import rules as prose
from infra.lint.prose.passages import Passage


def check(tmp_path, text):
    (tmp_path / "a.md").write_text(text)
    return [(violation.line, violation.rule) for violation in prose.check(tmp_path, ["a.md"])]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Short.\nHere there are two.", "prose/there-is"),
        ("Short.\nWhoever runs it waits.", "prose/who-noun"),
        ("Short.\nThe replica that\nwaits for who has the cell.", "prose/who-noun"),
        ("Short.\nRows, of which some differ.", "prose/chain"),
        ("Short.\nA run such that all cells pass.", "prose/chain"),
    ],
)
def test_violation_has_the_line_of_its_sentence(tmp_path, text, rule):
    assert check(tmp_path, text) == [(2, rule)]


@pytest.mark.parametrize(
    "text",
    [
        "The engineers who reviewed it agree. Such a run passes.",
        "```\nwhoever has it\n```",
    ],
)
def test_clean_text_passes(tmp_path, text):
    assert check(tmp_path, text) == []


@pytest.mark.parametrize(("passive", "rules"), [(3, []), (4, [(1, "prose/passive")])])
def test_quarter_of_the_sentences_may_be_passive(tmp_path, passive, rules):
    text = "The row is never written twice. " * passive + "The writer needs no lock. " * (12 - passive)
    assert check(tmp_path, text) == rules


def test_few_sentences_may_all_be_passive(tmp_path):
    assert check(tmp_path, "The row was read. " * (prose.FEWEST_SENTENCES - 1)) == []


@pytest.mark.parametrize(
    ("path", "text", "rules"),
    [
        ("dags/a.py", '"""Whoever."""', ["prose/who-noun"]),
        ("dags/lib/a.py", '"""Whoever."""', ["comment/who-noun"]),
        ("streaming_core/apps/a.py", '"""Whoever."""', ["prose/who-noun"]),
        ("a.py", "# Whoever", ["comment/who-noun"]),
        ("a.py", 'raise E("whoever")', ["prose/who-noun"]),
        ("tests/a.py", 'raise E("whoever")', []),
        ("tests/a.py", "# Whoever", ["comment/who-noun"]),
    ],
)
def test_user_text_and_comments_have_separate_rules(tmp_path, path, text, rules):
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text)
    assert [violation.rule for violation in prose.check(tmp_path, [path])] == rules


def test_sentences_end_at_a_full_stop_before_a_capital():
    text = 'Take one, e.g. Rust.\nIs v1.2 new? "No." It is\n`old`. `x` is newer!'
    assert list(prose.sentences(Passage(5, text))) == [
        (5, "Take one, e.g. Rust."),
        (6, "Is v1.2 new?"),
        (6, '"No."'),
        (6, "It is\n`old`."),
        (7, "`x` is newer!"),
    ]
