"""The compiler, top to bottom: it turns an accepted application, bound with its parameters, into kernels.

    translate    rewrites every function of the operator in words                 dialect, vocabulary
    observe      learns from numba which fields post-processing reads             transaction
    the rest     compile kernels: the loops around these functions                batches, phases, windows, direct,
                                                                                  row_positions

`STEPS` lists the steps for an operator of each kind. Steps hand on their results in `Work`. Importing this module
imports numba: a run with stored kernels never does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from numba.core.errors import NumbaError

from streaming_core import interruption
from streaming_core.errors import CommandFailed
from streaming_core.kernels import batches, entry, phases, windows
from streaming_core.kernels.dialect import Translator
from streaming_core.kernels.direct import execute_kernel
from streaming_core.kernels.plans import passes
from streaming_core.kernels.row_positions import positions_kernel
from streaming_core.kernels.transaction import Bound
from streaming_core.kernels.vocabulary import WORDS
from streaming_core.language.bound import BoundApp
from streaming_core.language.operator import Operator
from streaming_core.language.source import named
from streaming_core.machine_code import emission


@dataclass
class Work:
    """An operator on its way through the steps.

    Attributes:
        functions: Translated functions, by role.
        modifications: Translated modifications of a plan, by index.
        conditions: Translated conditions of a plan, by index.
        bound: The tables, and what the plan and post-processing do with them.
        kernels: Object files by name.
    """

    program: BoundApp
    operator: Operator
    translator: Translator
    functions: dict[str, Callable] = field(default_factory=dict)
    modifications: list[Callable] = field(default_factory=list)
    conditions: list[Callable] = field(default_factory=list)
    kernels: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.records = self.program.records
        self.event, self.output = self.records[self.operator.input], self.records[self.operator.emitted]
        self.bound = self.tables()

    def tables(self, spans: list[tuple[int, int]] | None = None, seen: list[set[str]] | None = None) -> Bound:
        """Describe the tables, before numba has compiled a plan over them.

        Args:
            spans: By table the bytes of a row that a READ copies; None: all.
            seen: By table the set that collects the fields that post-processing reads; None: collect nothing.
        """
        return Bound(self.program.tables, self.event, spans=spans or [], seen=seen)


def translate(work: Work) -> None:
    """Translate the functions of an operator without windows."""
    translator, output = work.translator, work.operator.output
    work.functions = {role: translator.translate(f, output) for role, f in work.operator.functions.items()}
    work.modifications = [translator.translate(f) for f in translator.modifications]
    work.conditions = [translator.translate(f) for f in translator.conditions]


def map_batches(work: Work) -> None:
    """Compile the kernel of a stateless operator."""
    record = work.operator.scratch
    scratch = work.records[record] if record is not None else None
    work.kernels["map"] = batches.map_kernel(work.functions["map"], work.event, work.output, scratch)


def process_batches(work: Work) -> None:
    """Compile the kernel of an operator with state."""
    state = work.records[work.operator.kept]
    work.kernels["process"] = batches.process_kernel(work.functions["process"], work.event, state, work.output)


def flush_states(work: Work) -> None:
    """Compile the kernel that flushes states at the end of the stream, if the operator has one."""
    if "flush" in work.functions:
        state = work.records[work.operator.kept]
        work.kernels["flush"] = batches.flush_kernel(work.functions["flush"], state, work.output)


def observe(work: Work) -> None:
    """Learn which bytes of each table's rows post-processing reads."""
    # This kernel only shows which fields post-processing reads: READs need not copy more.
    scout = work.tables(seen=[set() for _ in work.program.tables])
    phases.post_kernel(work.functions["post"], work.event, scout, work.output)
    work.bound = work.tables(spans=scout.spans_seen())


def plan(work: Work) -> None:
    """Compile the kernel that writes down the accesses of events."""
    work.kernels["plan"] = phases.plan_kernel(work.functions["plan"], work.event, work.bound)


def apply(work: Work) -> None:
    """Compile the kernel that applies accesses."""
    work.kernels["apply"] = phases.apply_kernel(work.bound, work.event, work.modifications, work.conditions)


def post(work: Work) -> None:
    """Compile the kernel of post-processing."""
    work.kernels["post"] = phases.post_kernel(work.functions["post"], work.event, work.bound, work.output)


def execute(work: Work) -> None:
    """Compile the kernel that executes transactions directly."""
    readers = [work.translator.modifications[function] for function in work.bound.readers]
    steps = passes(work.operator.functions["plan"], readers)
    work.kernels["execute"] = execute_kernel(
        work.functions["plan"], steps, work.event, work.bound, work.modifications, work.conditions,
        work.functions["post"], work.output,
    )  # fmt: skip


def place(work: Work) -> None:
    """Compile the kernel that finds the row positions of events."""
    work.kernels["place"] = positions_kernel(work.functions["plan"], work.event, work.bound)


def translate_windows(work: Work) -> None:
    """Translate the functions of a windowed operator."""
    translator, window = work.translator, work.operator.window
    assert window is not None
    for role, function in work.operator.functions.items():
        emitted = window.key if role.startswith("keys") else None if role == "slide" else work.operator.output
        work.functions[role] = translator.translate(function, emitted)


def compile_key_kernels(work: Work) -> None:
    """Compile a kernel per stream that emits the keys of its rows."""
    window, functions = work.operator.window, work.functions
    assert window is not None
    for stream, rows in enumerate(work.operator.streams):
        keys = functions.get(f"keys_{stream}") or (windows.field_key(window.field) if window.field else windows.no_keys)
        work.kernels[f"keys_{stream}"] = windows.keys_kernel(keys, work.records[rows], work.records[window.key])


def compile_window_kernels(work: Work) -> None:
    """Compile the kernels that update, slide and finish windows."""
    window = work.operator.window
    assert window is not None
    key, states = work.records[window.key], [work.records[state] for state in window.states]
    for role, function in work.functions.items():
        what, _, stream = role.partition("_")
        if what != "keys":
            event = work.records[work.operator.streams[int(stream)]] if stream else None
            output = work.output if role != "slide" else None
            start = (window.kind == "session", window.most is not None)
            work.kernels[role] = windows.window_kernel(function, event, key, states, output, *start)


STEPS: dict[str, tuple[Callable[[Work], None], ...]] = {
    "stateless": (translate, map_batches),
    "stateful": (translate, process_batches, flush_states),
    "partitioned": (translate, process_batches, flush_states),
    "windowed": (translate_windows, compile_key_kernels, compile_window_kernels),
    "transaction": (translate, observe, plan, apply, post, execute, place),
}


def compile_kernels(program: BoundApp) -> tuple[dict[str, bytes], list[tuple[int, int]]]:
    """Return object files by kernel name, and by table which bytes of a row the READs of a transaction copy.

    Raises:
        CommandFailed: numba does not compile what the language allows, which is a fault of Lockstep.
    """
    kernels: dict[str, bytes] = {}
    spans: list[tuple[int, int]] = []
    translator = Translator(program, WORDS, entry.compiled)  # translates once what operators share
    for operator in program.app.operators[1:-1]:
        work = Work(program, operator, translator)
        for step in STEPS[operator.kind]:
            try:
                step(work)
            except NumbaError as error:
                raise _failure(operator, error) from error
            interruption.check()
        kernels |= {f"{operator.name}.{role}": code for role, code in work.kernels.items()}
        spans = work.bound.spans if operator.kind == "transaction" else []
    return kernels, spans


def _failure(operator: Operator, error: NumbaError) -> CommandFailed:
    function = next(iter(operator.functions.values()))
    inside = error.loc is not None and error.loc.filename == function.__code__.co_filename
    where = named(function, error.loc.line if inside else None)
    return emission.not_compiled(where, error)
