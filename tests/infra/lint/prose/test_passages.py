"""Prose is read where it stands, with the line it starts at, and code is not prose."""

import pytest

from infra.lint.prose.passages import passages


def read(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return [(passage.line, passage.text) for passage in passages(path)]


def test_markdown_is_read_by_paragraph_and_code_is_left_out(tmp_path):
    text = (
        "# Title\n\nOne `a b`\nline [more](x.md).\n\n```\ncode\n```\n\n- an item\n\n| a | b |\n|---|---|\n| c | d |\n"
    )
    cells = [(12, "a"), (12, "b"), (14, "c"), (14, "d")]
    assert read(tmp_path, "a.md", text) == [(1, "Title"), (3, "One `code`\nline more."), (10, "an item"), *cells]


def test_docstrings_and_comments_of_python_are_read(tmp_path):
    text = '''"""Head.

Second paragraph.
"""

# A comment
# of two lines.
x = 1  # behind code
y = 2  # another
# noqa: E501


def f(a):
    """
    Does it.

    Args:
        a (int): A number
            of things.
        b: A letter.

    Returns:
        A sum
        of all.

    >>> f(1)
    'not prose'
    """
'''
    comments = [
        (1, "Head."),
        (3, "Second paragraph."),
        (6, "A comment\nof two lines."),
        (8, "behind code"),
        (9, "another"),
    ]
    code = [(15, "Does it."), (18, "a (int): A number\nof things."), (20, "b: A letter."), (23, "A sum\nof all.")]
    assert read(tmp_path, "a.py", text) == comments + code


def test_messages_of_python_are_read(tmp_path):
    text = """Option(help="How " "many.")
form(description=f"Of {x}.")
raise BadInput(f"{path}: no such file")
print("this line", f"the run {x} has ended with exit code {code}")
read("a name or a format")
query("SELECT many words from a table")
page("<p>this is the text of a page")
"""
    assert read(tmp_path, "a.py", text) == [
        (1, "How many."),
        (2, "Of `code`."),
        (3, "`code`: no such file"),
        (4, "the run `code` has ended with exit code `code`"),
        (5, "a name or a format"),
    ]


def test_comments_and_messages_of_rust_are_read(tmp_path):
    text = """//! Module
//! head.

/// Item.
// Why.
let url = "https://x";
#[error("no row {row} is in this")]
return invalid("these rows have \\
    no key");
#[cfg(test)]
let test = "a string of a test";
"""
    assert read(tmp_path, "a.rs", text) == [
        (1, "Module\nhead."),
        (4, "Item."),
        (5, "Why."),
        (7, "no row `code` is in this"),
        (8, "these rows have no key"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.md", "Text.", "page"),
        ("a.html", "<p>Text", "page"),
        ("a.py", '"""Text."""', "module"),
        ("a.py", 'def f():\n    """Text."""', "comment"),
        ("a.py", "# Text", "comment"),
        ("a.py", 'raise E("text")', "message"),
        ("a.rs", "// Text", "comment"),
    ],
)
def test_passage_has_its_kind(tmp_path, name, text, kind):
    (tmp_path / name).write_text(text)
    assert [passage.kind for passage in passages(tmp_path / name)] == [kind]


TEMPLATE = """<style>p { }</style>{# no prose #}
<p>Of <b>{{ n }}</b> runs
{% if a %}one{% else %}two{% endif %}</p>
<p>{% for
x in y %}
End <code>a b</code>.</p>
"""
YAML = """models:
  - name: not prose
    description: >
      One row
      per run.
    columns:
      - {name: a, description: "{{ doc('a') }}"}
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.html", TEMPLATE, [(2, "Of `code` runs\none"), (3, "two"), (6, "End `code`.")]),
        ("a.yml", YAML, [(3, "One row per run."), (7, "`code`")]),
        ("a.md", "{% docs run_id %}\nThe run.\n{% enddocs %}\n", [(2, "The run.")]),
        *((name, "Some text.", []) for name in ("a.sql", "a.json", "a")),
    ],
)
def test_texts_of_other_files_are_read(tmp_path, name, text, expected):
    assert read(tmp_path, name, text) == expected
