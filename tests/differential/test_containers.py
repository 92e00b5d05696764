"""Every method of every container has the same result or error in interpreter, compiled loop, kernel and runtime."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_core.api import Array, Counter, Map, Queue, Ring, Set, f64, i64, record, text
from streaming_core.errors import BadInput, RunFailed
from streaming_core.language.record import CONTAINERS
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import ENGINE_EXECUTORS, RunSpec
from tests.differential.case import Case, strategies
from tests.differential.containers import FIELDS, WORDS, application, declared, events, uses
from tests.differential.kernel import Kernel
from tests.support.draws import some

ROUNDS = 25


@record
class Rings:
    last: Ring[i64, 3]


DATAFLOW = [name for name, executor in ENGINE_EXECUTORS.items() if "dataflow" in executor.application_kinds]


def test_every_container_method_has_a_use():
    met = {kind: {use.name for use in uses() if isinstance(FIELDS[use.field], kind)} for kind in CONTAINERS}
    assert {kind: names - set(WORDS) for kind, names in met.items()} == declared()
    assert {type(field) for field in FIELDS} == set(CONTAINERS)


def until_error(machine, table):
    """The outputs or the error's class of each event. An error ends only its own event."""
    outputs = []
    for seq in range(table.num_rows):
        try:
            outputs.append(machine.process(table.slice(seq, 1)).to_pylist())
        except RunFailed as failure:
            line = str(failure).partition("event ")[2].split(":")
            assert int(line[0]) == seq
            outputs.append(line[1].strip())
    return outputs


def shown(outputs):
    """The values as text, because a NaN equals itself there, and zeros have signs."""
    return [repr(output) for output in outputs]


def renumbered(table):
    return table.set_column(0, "seq", pa.array(range(table.num_rows), pa.int64()))


# One container of each kind, and with the slow tests all of them.
FEW = (0, 9, 13, 16, 19, 21, 24)


@pytest.fixture(scope="module", params=some([FEW, range(len(FIELDS))]), ids=["few", "all"])
def fields(request):
    return request.param


@pytest.fixture(scope="module")
def drawn(fields):
    table = events(1, ROUNDS)
    return renumbered(table.filter(pa.array([uses()[what].field in fields for what in table["what"].to_pylist()])))


@pytest.fixture(scope="module")
def alone(fields, tmp_path_factory):
    return application(tmp_path_factory.mktemp("containers"), "alone", fields)


@pytest.fixture(scope="module")
def outcome(alone, drawn):
    """The interpreter's outcome of each event, and the interpreter."""
    machine = Interpreter(alone, {})
    return until_error(machine, drawn), machine


def test_each_use_succeeds_and_fails_where_it_can(outcome, drawn):
    outputs, _ = outcome
    met = {}
    for what, output in zip(drawn["what"].to_pylist(), outputs, strict=True):
        met.setdefault(what, set()).add(output if isinstance(output, str) else "")
    for number, use in [(number, uses()[number]) for number in met]:
        assert "" in met[number], use
        if use.name in ("at", "key_at", "value_at", "score_at", "[]", "popleft"):
            assert "IndexError" in met[number], use
    assert {error for errors in met.values() for error in errors} == {"", "IndexError", "OverflowError"}


@pytest.mark.parametrize("kind", some([Kernel, Loop]))
def test_outputs_errors_and_states_agree(kind, alone, outcome, drawn):
    outputs, interpreter = outcome
    machine = kind(alone, {})
    wrong = [
        (uses()[what], expected, actual)
        for what, expected, actual in zip(
            drawn["what"].to_pylist(), shown(outputs), shown(until_error(machine, drawn)), strict=True
        )
        if expected != actual
    ]
    assert not wrong, wrong[:5]
    if kind is Loop:
        compare("containers", interpreter.state()["work"], machine.state()["work"], "state")


def without_errors(app, table):
    """The events that come to something where those before them do."""
    machine = Interpreter(app, {})
    is_right = [not isinstance(row, str) for row in until_error(machine, table)]
    return renumbered(table.filter(pa.array(is_right)))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["keyed", "transaction"])
def test_runtime_equals_the_interpreter(how, tmp_path):
    app = application(tmp_path, how)
    table = without_errors(app, events(1, ROUNDS))
    assert pc.count_distinct(table["what"]).as_py() == len(uses())
    case = Case(app, {}, table)
    loop = Loop(app, {})
    compare(app.name, case.outputs, loop.process(table), "outputs")
    for name, rows in case.state.items():
        compare(app.name, rows, loop.state()[name], name)
    executors = ["transactional"] if how == "transaction" else DATAFLOW
    # One of each executor and scheme: what they do with a batch of rows differs, not what a kernel does with a row.
    ways = {(f["executor"], f.get("scheme")): f for executor in executors for f in strategies(executor)}
    for fields in ways.values():
        for threads, batch in ((1, 256), (3, 7)):
            case.check(
                RunSpec.parse({"app": app.name, "threads": threads, "batch": batch, "punctuation": 100, **fields})
            )


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (Set[f64], "keys of Set must be integers or texts"),
        (Map[f64, i64], "keys of Map must be integers or texts"),
        (Counter[f64], "keys of Counter must be integers or texts"),
        (Set[Ring[i64, 3]], "items of Set must be scalars or texts"),
        (Map[i64, Set[text]], "items of Map must be scalars or texts"),
        (Ring[text, 3], "items of Ring must be scalars"),
        (Ring[Set[i64], 3], "items of Ring must be scalars"),
        (Array[text, 3], "items of Array must be scalars"),
        (Queue[i64], "items of Queue must be records$"),
        (Queue["Rings"], "items of Queue must be records$"),
        (Queue[Rings], "items of Queue must be records of scalars and texts, but Rings.last is a Ring"),
    ],
)
def test_declaration_of_an_unsupported_container_type_is_refused(kind, what):
    with pytest.raises(BadInput, match=f"record Held.inside: {what}"):
        record(type("Held", (), {"__annotations__": {"inside": kind}}))
