"""The registry: each file of the package is an application, and a broken file is refused in one line."""

import pytest

from streaming_core.apps import registry
from streaming_core.errors import BadInput

WHOLE = '''"""Echo: what comes in goes out."""
import numpy as np
from streaming_core.api import App, i64, record

app = App("echo")

@record
class Event:
    ts: i64

def same(row, out):
    out.emit(ts=row.ts)

app.source(Event).flat_map(same, Event).sink()

@app.generates
def events(params, seed, start, stop):
    return {"ts": np.arange(start, stop)}
'''


def test_every_application_loads_and_describes_itself():
    queries = {"q1", "q2", "q3", "q4", "q15"}
    dataflow = {"wc", "fd", "sd", "lr", "pos_rep", "new_seg"} | queries
    windowed = {"wordcount", "hashtag", "scalejoin", "hedge"}
    kinds = {"transaction": {"gs", "sl", "ob", "tp", "tb", "fx"}, "dataflow": dataflow, "windowed": windowed}
    assert set(registry.names()) == set().union(*kinds.values())
    assert registry.kinds() == {name: kind for kind, names in kinds.items() for name in names}
    for name in registry.names():
        app = registry.load(name)
        assert len(app.doc) > 100
        assert app.reads
        assert app.invariants
        assert app.event.fields["ts"] is not None
        for profile in app.profiles.values():
            assert profile.doc
        # A profile may spell out the defaults, to give them a name; no two say the same.
        bound = [app.bind(profile.params) for profile in app.profiles.values()]
        assert all(bound.count(params) == 1 for params in bound)


@pytest.mark.parametrize("name", ["my-app", "$(id)", "<b>", "a b", "Echo", "x" * 40])
def test_a_file_without_a_plain_name_is_not_imported(package, name):
    (package / f"{name}.py").write_text(f"open({str(package / 'imported')!r}, 'w')")
    with pytest.raises(BadInput, match="invalid file name"):
        registry.load(name)
    assert not (package / "imported").exists()


def test_every_file_adds_an_application(package):
    (package / "echo.py").write_text(WHOLE)
    (package / "_notes.py").write_text("1 / 0")
    assert registry.names() == ["echo"]
    assert registry.load("echo").name == "echo"
    assert registry.kinds() == {"echo": "dataflow"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (", r"application echo: echo.py:1: SyntaxError: '\(' was never closed"),
        ("import numpy as np\nnp.nope", r"application echo: echo.py:2: AttributeError: .*nope"),
        ("import nothing_of_the_kind", r"application echo: echo.py:1: ModuleNotFoundError: .*nothing_of_the_kind"),
        ("x = 1", "application echo: echo.py must define `app = App"),
        (WHOLE.replace('App("echo")', 'App("other")'), r"application echo: echo.py says App\('other'\)"),
        (WHOLE.replace("ts: i64", "ts: int"), "application echo: .*is not a field type"),
        (WHOLE.replace(".sink()", ""), r"app echo needs a sink: end the pipeline with \.sink\(\)$"),
        ('from streaming_core.api import App\napp = App("echo")', "app echo needs a source: .*; a sink: .*"),
        ("raise ValueError('two\\nlines')", "application echo: echo.py:1: ValueError: two lines"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(text, message, package):
    (package / "echo.py").write_text(text)
    with pytest.raises(BadInput, match=message) as error:
        registry.load("echo")
    assert "\n" not in str(error.value)
    assert registry.kinds() == {}


def test_an_unknown_application_is_refused_with_the_known_names():
    with pytest.raises(BadInput, match=r"unknown application 'wcc' \(did you mean 'wc'\?\); known: .*gs, .*wc"):
        registry.load("wcc")
    with pytest.raises(BadInput, match=r"'nexmark_q13_' \(did you mean 'nexmark_q13'\?\); known: .*, nexmark"):
        registry.load("nexmark_q13_")
    with pytest.raises(BadInput, match="unknown application"):
        registry.load("registry")
    with pytest.raises(BadInput, match="unknown application"):
        registry.load("../errors")
