"""From a case that goes wrong to the smallest one that goes wrong in the same way.

The steps, over and over until nothing changes or the time is over:

1. the events up to the first difference, by bisection; then without one part after the other, down to single events;
2. the way: fewer threads, default options, small batches, fewer faults and reconfigurations;
3. the parameters, back to their defaults;
4. the values: zeros and small numbers, short texts, small gaps in time.

`shrink` knows only whether a case shows the symptom. `Judge` answers that, with trials in a laboratory.
"""

from __future__ import annotations

import hashlib
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from streaming_core.conformance.workloads import Material, Row
from streaming_core.errors import BadInput
from streaming_core.language.application import App
from streaming_core.language.record import Array, Nullable, Scalar, Text
from streaming_core.language.sources import TAG
from streaming_core.run.way import SPEC_FIELDS, RunSpec
from streaming_core.search.case import Case
from streaming_core.search.draws import in_order
from streaming_core.search.laboratory import LIMIT, Laboratory, Verdict
from streaming_core.search.replay import requests
from streaming_core.search.ways import REPETITIONS

SINGLY = 20  # events whose values shrink one by one
ROWS = 2_000  # events whose values shrink at all
NUMBERS = ("batch", "punctuation", "partitions")  # options that small cases need small
GROUPS = 6  # values of a field to which the events are reduced, all but one value leaving
DOUBT = 0.01  # chance of a wrong no
MEASURE, MOST = 10, 60  # trials that measure a rate; at most for a candidate, and for a case that hides its symptom
SURE = 0.9  # a higher rate was measured on too few trials
PASSES, LEAST = 20.0, 1.0  # a hang lasts so many times as long as a run that ends, and so many seconds
EVENTS_PER_SECOND = 500  # of the oracle at least, which delays the first sign of a trial
LUCKY = 0.3  # with a lower rate, repetitions and stalls of threads may make a fault more likely
STALLS = (1, 2, 3, 4)  # seeds to try
SHARE = 0.15  # of the time that may measure the rate at the beginning, and again at the end
MEASURING = 3.0  # seconds to measure the rate in between
T = TypeVar("T")


class Shows(Protocol):
    """Answers whether cases show the symptom."""

    def measure(self, case: Case, seconds: float) -> float:
        """The share of trials that show it, from trials that take about so long."""

    def shows(self, case: Case) -> bool:
        """Whether a case shows it, with little doubt."""

    def confirms(self, case: Case) -> bool:
        """Whether the smallest case shows it beyond doubt."""


def shrink(
    case: Case,
    judge: Shows,
    seconds: float,
    say: Callable[[str], None] = lambda line: None,
    clock: Callable[[], float] = time.monotonic,
) -> Case:
    """Make a case smaller that shows its symptom.

    Args:
        case: The case, with its symptom.
        judge: Answers whether a case still shows it.
        seconds: No trial begins later.
        say: Receives a line about each step that helps.
        clock: Returns the time in seconds.

    Returns:
        The smallest case, with its rate.
    """
    began = clock()
    rate = judge.measure(case, SHARE * seconds)
    if rate < LUCKY and case.symptom is not None and case.symptom.needs_run:
        case, rate = _likelier(case, rate, judge, SHARE * seconds / len(STALLS))
    if not rate:
        say("the symptom does not show again")
        return case.changed(rate=0.0)
    work = _Shrinking(case, judge, began + (1 - SHARE) * seconds, say, clock)
    work.run()
    for smallest in work.ladder():
        if judge.confirms(smallest):
            return smallest.changed(rate=judge.measure(smallest, SHARE * seconds) or rate)
    return case.changed(rate=rate)


def _likelier(case: Case, rate: float, judge: Shows, seconds: float) -> tuple[Case, float]:
    """The case and its rate, with repetitions, and with stalls of threads, if these make its fault twice as likely."""
    others = [entry for entry in case.spec.faults.split(",") if entry and not entry.startswith("stall")]
    changes: list[dict[str, Any]] = [{"repetitions": REPETITIONS, "seconds": 0.0}]
    changes += [{"faults": ",".join([*others, f"stall@{seed}"])} for seed in STALLS]
    best = case
    for change in changes:
        try:
            other = best.with_spec(**change)
        except BadInput:
            continue
        if (now := judge.measure(other, seconds)) > 2 * rate:
            best, rate = other, now
    return best, judge.measure(best, seconds) or rate


class _Over(Exception):
    """The time is over."""


class _Shrinking:
    """The smallest case so far, and the steps that make it smaller."""

    def __init__(self, case: Case, judge: Shows, end: float, say: Callable[[str], None], clock: Callable[[], float]):
        self.case, self.app = case, case.app
        self._judge, self._end, self._say, self._clock = judge, end, say, clock
        self._known = {_digest(case): True}
        self._steps = [case]

    def run(self) -> None:
        """Make all steps until nothing changes, or the time is over."""
        steps = (self._prefix, self._events, self._way, self._params, self._events, self._values)
        try:
            before = None
            while before is not self.case:
                self._judge.measure(self.case, MEASURING)
                before = self.case
                for step in steps:
                    self._make(step)
            self._make(self._usual_numbers)
        except _Over:
            self._say("the time is over")

    def _make(self, step: Callable[[], None]) -> None:
        before = self.case
        step()
        if self.case is not before:
            spec = self.case.spec
            self._say(f"{self.case.events.num_rows:,} events, {spec.strategy}, threads {spec.threads}")

    def ladder(self) -> Iterator[Case]:
        """The smallest case, then ever larger ones."""
        number = len(self._steps) - 1
        while number >= 0:
            yield self._steps[number]
            number = number // 2 if number else -1

    def tries(self, make: Callable[[], Case], again: bool = False) -> bool:
        """Take a case over if it shows the symptom; returns whether it does. Cases that do not exist do not.

        Args:
            make: Makes the case. May raise BadInput.
            again: Whether a case that was the smallest before may be so again.
        """
        try:
            case = make()
        except BadInput:
            return False
        digest = _digest(case)
        if digest in self._known and not (again and self._known[digest]):
            return False
        if self._clock() >= self._end:
            raise _Over
        if digest not in self._known:
            self._known[digest] = self._judge.shows(case)
        if self._known[digest]:
            self.case = case
            self._steps.append(case)
        return self._known[digest]

    def first(self, makes: Iterable[Callable[[], Case]]) -> bool:
        """Take over the first of some cases that shows the symptom; returns whether one does."""
        return any(self.tries(make) for make in makes)

    # --- events ------------------------------------------------------------------------------------------------------

    def _prefix(self) -> None:
        """Leave out the events at the end, as many as bisection shows."""
        base, low, high = self.case, -1, self.case.events.num_rows
        while high - low > 1:
            middle = (low + high) // 2
            if self.tries(partial(_with_rows, self.app, base, range(middle))):
                high = middle
            else:
                low = middle

    def _events(self) -> None:
        """Leave out events: all without a certain value in a field; then parts, down to single ones."""
        if 4 < self.case.events.num_rows <= ROWS:
            for name in self.case.events.column_names[1:]:
                self._groups(name)
        base = self.case
        reduced(range(base.events.num_rows), lambda rows: self.tries(partial(_with_rows, self.app, base, rows)))

    def _groups(self, name: str) -> None:
        values = [repr(value) for value in self.case.events[name].to_pylist()]
        distinct = [*dict.fromkeys(reversed(values))]
        if 1 < len(distinct) < len(values):
            groups = [[row for row, value in enumerate(values) if value == choice] for choice in distinct[:GROUPS]]
            self.first(partial(_with_rows, self.app, self.case, rows) for rows in groups)

    # --- the way -----------------------------------------------------------------------------------------------------

    def _way(self) -> None:
        spec = self.case.spec
        if self.case.symptom is not None and not self.case.symptom.needs_run:  # the oracle alone shows it
            plain = RunSpec.parse({"app": spec.app, "params": spec.params, "executor": spec.executor})
            if plain != spec:
                self.case = self.case.changed(spec=plain)
                self._steps.append(self.case)
            return
        self.first(partial(self._with, threads=threads) for threads in range(1, spec.threads))
        self._options()
        for name in NUMBERS:
            self._number(name)
        if self.case.spec.option("plan"):
            self._plan(dict(self.case.spec.option("plan")))
        if self.case.spec.option("schedule"):
            reduced(self._dump["schedule"], lambda some: self.tries(partial(self._with, schedule=some)))
            self._owners()
        if faults := self.case.spec.faults:
            reduced(faults.split(","), lambda some: self.tries(partial(self._with, faults=",".join(some))))
            self._lower_faults()
        now = self.case.spec.interval.events
        self.first(partial(self._with, checkpoint=str(by)) for by in (1, now // 4, now // 2) if 0 < by < now)

    @property
    def _dump(self) -> dict[str, Any]:
        return self.case.spec.model_dump(mode="json")

    def _with(self, **fields: Any) -> Case:
        """The case with other fields of its spec. With fewer threads, those beyond become earlier ones."""
        spec = self._dump | fields
        threads, plan = spec["threads"], spec["plan"]
        if isinstance(plan, dict):
            spec["plan"] = plan = {name: [place % threads for place in places] for name, places in plan.items()}
        for entry in spec["schedule"]:
            for name, owners in entry["owners"].items():
                replicas = len(plan.get(name, range(threads)))
                entry["owners"][name] = [owner % replicas for owner in owners]
        return self._of(spec)

    def _of(self, fields: dict[str, Any]) -> Case:
        spec = RunSpec.parse(fields)
        spec.check(self.app)
        return self.case.changed(spec=spec)

    def _options(self) -> None:
        """Give as many options as possible their defaults."""
        kind, dump = type(self.case.spec), self._dump
        fixed = {name: dump[name] for name in ("app", "params", "executor", "threads", *NUMBERS)}
        usual = RunSpec.parse({"app": dump["app"], "executor": dump["executor"]}).model_dump(mode="json")
        usual["checkpoint"] = fixed["checkpoint"] = "0"
        names = [name for name in SPEC_FIELDS if name not in fixed or name == "checkpoint"]
        names = [name for name in names if dump[name] != usual[name]]
        if "order" in names and "order" not in kind.options():  # it follows from other options
            names.remove("order")

        def spec(some: list[str]) -> Case:
            fields = fixed | {name: dump[name] for name in some}
            for name, needed in kind.requirements().items():
                if not needed.holds(fields.get(needed.option, usual[needed.option])):
                    fields.pop(name, None)
            return self._of(fields)

        reduced(names, lambda some: self.tries(partial(spec, some)))

    def _number(self, name: str) -> None:
        """Lower an option that is a number: to powers of two, the smallest first."""
        now = self.case.spec.option(name)
        most = max(4, self.case.events.num_rows)
        powers = [1 << power for power in range(now.bit_length()) if 1 << power < min(now, most)]
        self.first(partial(self._with, **{name: value}) for value in powers)

    def _usual_numbers(self) -> None:
        """Give numbers that were lowered their defaults, if the smallest case still shows the symptom."""
        for name in NUMBERS:
            self.tries(partial(self._with, **{name: SPEC_FIELDS[name].default}), again=True)

    def _plan(self, plan: dict[str, list[int]]) -> None:
        """Leave out operators of the plan; then replicas."""
        reduced([*plan.items()], lambda some: self.tries(lambda: self._with(plan=dict(some))))
        for name, places in plan.items():
            now = self.case.spec.option("plan")
            if name in now:
                self.first(partial(self._with, plan=now | {name: places[:count]}) for count in range(1, len(places)))

    def _owners(self) -> None:
        """Give each reconfiguration few owners."""
        for number in range(len(self.case.spec.option("schedule"))):
            schedules = []
            for count in (1, 2, 3):
                schedule = self._dump["schedule"]
                owners = schedule[number]["owners"]
                schedule[number]["owners"] = {name: cells[:count] for name, cells in owners.items()}
                schedules.append(schedule)
            self.first(partial(self._with, schedule=schedule) for schedule in schedules)

    def _lower_faults(self) -> None:
        """Lower the number of each fault but a stall, whose number is a seed."""
        entries = self.case.spec.faults.split(",")
        for at, (kind, _, number) in enumerate(entry.partition("@") for entry in entries):
            numbers = () if kind == "stall" else _toward_zero(int(number or 0))
            lower = [f"{kind}@{value}" for value in numbers if value > 0]
            for entry in lower:
                if self.tries(partial(self._with, faults=",".join([*entries[:at], entry, *entries[at + 1 :]]))):
                    entries[at] = entry
                    break

    # --- parameters and values ----------------------------------------------------------------------------------------

    def _params(self) -> None:
        """Give as many parameters as possible their defaults."""
        dump = self._dump
        reduced([*dump["params"].items()], lambda some: self.tries(lambda: self._of(dump | {"params": dict(some)})))

    def _values(self) -> None:
        """Simpler values: of each field, first in all events at once, then in each one."""
        count = self.case.events.num_rows
        if not 0 < count <= ROWS:
            return
        for name in self.case.events.column_names[1:]:
            kind = self.app.event.fields[name]
            if name == "ts" and isinstance(kind, Scalar) and not kind.is_float:
                self._times(kind)
            elif name != TAG:
                self._column(name, kind)
                for row in range(count) if count <= SINGLY else ():
                    self._value(name, kind, row)

    def _changed(self, name: str, values: Mapping[int, Any]) -> Case:
        """The case with other values of a field, by row."""
        rows: list[Row] = self.case.events.drop_columns(["seq"]).to_pylist()
        streams = self.app.streams
        for row, value in values.items():
            if streams is None or name in streams.columns[rows[row][TAG]].values():
                rows[row] = rows[row] | {name: value}
        return self.case.changed(events=_table(self.app, self.case, rows))

    def _columns(self, name: str, columns: Iterable[list[Any]]) -> None:
        """Take over the first of some columns that is simpler and shows the symptom."""
        weight = _weight(self.case.events[name].to_pylist())
        self.first(
            partial(self._changed, name, dict(enumerate(column)))
            for column in columns
            if column and _weight(column) < weight
        )

    def _column(self, name: str, kind: Any) -> None:
        values = self.case.events[name].to_pylist()
        zero = _zero(kind, next((value for value in values if value is not None), None))
        halves = [next(iter(simpler(kind, value)[2:3]), value) for value in values]
        self._columns(name, ([zero] * len(values), [values[0]] * len(values), _ranks(kind, values), halves))

    def _value(self, name: str, kind: Any, row: int) -> None:
        while self.first(
            partial(self._changed, name, {row: value}) for value in simpler(kind, self.case.events[name][row].as_py())
        ):
            pass

    def _times(self, kind: Scalar) -> None:
        """Times from 0 on, without gaps or with small ones."""
        times = self.case.events["ts"].to_pylist()
        count, first = len(times), times[0]
        starts = [0] * count, [first] * count, _ranks(kind, times), [*range(count)], [time - first for time in times]
        self._columns("ts", starts)
        for row in range(count) if count <= SINGLY else ():
            while self._smaller_gap(row):
                pass

    def _smaller_gap(self, row: int) -> bool:
        """Bring an event and those behind it nearer to the one before."""
        times = self.case.events["ts"].to_pylist()
        gap = times[row] - (times[row - 1] if row else 0)
        later = [{at: times[at] - gap + new for at in range(row, len(times))} for new in _toward_zero(gap)]
        return self.first(partial(self._changed, "ts", ts) for ts in later)


def reduced(items: Sequence[T], shows: Callable[[list[T]], bool]) -> list[T]:
    """The items without those that are not needed: delta debugging, with parts of half the items down to single ones.

    Args:
        items: The items, in order.
        shows: Whether some items, in their order, are enough.
    """
    rest = [*items]
    if not rest or shows([]):
        return []
    size = len(rest) // 2
    while size:
        stop, is_smaller = len(rest), False
        while stop > 0:
            start = max(0, stop - size)
            fewer = rest[:start] + rest[stop:]
            if len(fewer) and shows(fewer):
                rest, is_smaller = fewer, True
            stop = start
        size = 1 if size == 1 and is_smaller else size // 2
    return rest


# --- values ---------------------------------------------------------------------------------------------------------


def simpler(kind: Any, value: Any) -> list[Any]:
    """Values of a type that are simpler than this one, the simplest first."""
    if isinstance(kind, Nullable):
        return [_zero(kind.item, None)] if value is None else simpler(kind.item, value)
    if isinstance(kind, Array):
        return _simpler_items(kind, value)
    if isinstance(kind, Text):
        half = len(value) // 2
        texts = (b"", b"a", value[:half], value[half:], value[:-1], value[1:], b"a" * len(value))
        return [text for text in dict.fromkeys(texts) if (len(text), text) < (len(value), value)]
    if isinstance(value, bool):
        return [False] if value else []
    if isinstance(value, Decimal):
        return [Decimal(units).scaleb(-kind.scale) for units in _toward_zero(int(value.scaleb(kind.scale)))]
    if isinstance(value, float):
        if not math.isfinite(value):
            return [0.0, 1.0]
        near = (0.0, 1.0, float(int(value)), float(int(value) // 2), round(value, 1))
        return [
            number
            for number in dict.fromkeys(near)
            if (len(repr(abs(number))), abs(number)) < (len(repr(abs(value))), abs(value))
        ]
    return _toward_zero(value)


def _simpler_items(kind: Array, value: list[Any]) -> list[Any]:
    zero = _zero(kind, value)
    whole = [new for new in (zero, [value[0]] * len(value)) if repr(new) != repr(value)] if value else []
    return [new for new in whole if _weight(new) < _weight(value)] + [
        [*value[:at], part, *value[at + 1 :]] for at, item in enumerate(value) for part in simpler(kind.item, item)[:3]
    ]


def _toward_zero(value: int) -> list[int]:
    """Few simpler integers: 0, 1, without the sign; then ever nearer ones."""
    size, sign = abs(value), -1 if value < 0 else 1
    numbers = [0, 1, size, *(sign * (size - part) for part in (size // 2, size // 4, size // 8, 1))]
    return [number for number in dict.fromkeys(numbers) if (abs(number), number < 0) < (size, value < 0)]


def _zero(kind: Any, like: Any) -> Any:
    """The simplest value of a type; an array is as long as another one."""
    match kind:
        case Nullable():
            return _zero(kind.item, like)
        case Array():
            return [_zero(kind.item, None)] * len(like or ())
        case Text():
            return b""
    if kind.is_float:
        return 0.0
    if kind.scale is not None:
        return Decimal(0).scaleb(-kind.scale)
    return False if kind.name == "boolean" else 0


def _ranks(kind: Any, values: list[Any]) -> list[Any]:
    """Small values in the same order, equal where these are equal."""
    if any(value is None or isinstance(value, list | bool) for value in values):
        return []
    rank = {repr(value): number for number, value in enumerate(dict.fromkeys(sorted(values, key=_sortable)))}
    if isinstance(kind, Text):
        return [b"%c" % (97 + rank[repr(value)]) if rank[repr(value)] < 26 else value for value in values]
    if isinstance(values[0], Decimal):
        return [Decimal(rank[repr(value)]).scaleb(-kind.scale) for value in values]
    return [type(values[0])(rank[repr(value)]) for value in values]


def _sortable(value: Any) -> Any:
    return (isinstance(value, float) and math.isnan(value), value)


def _weight(values: Any) -> tuple[int, str]:
    """The size of values as people read them."""
    return len(repr(values)), repr(values)


# --- cases ----------------------------------------------------------------------------------------------------------


def _with_rows(app: App, case: Case, rows: Sequence[int]) -> Case:
    """The case with these of its events. The events that its way names move along."""
    fewer = case.with_events(case.events.take(pa.array(rows, pa.int64())))
    if app.streams is not None and app.delay is not None:  # the order follows from all events
        fewer = fewer.changed(events=_table(app, case, fewer.events.drop_columns(["seq"]).to_pylist()))
    spec = case.spec
    if schedule := spec.option("schedule"):
        entries = [entry.model_copy(update={"event": bisect_left(rows, entry.event)}) for entry in schedule]
        spec = spec.model_copy(update={"schedule": entries})
    if faults := spec.faults:
        moved = [_moved(entry, rows) for entry in faults.split(",")]
        spec = spec.model_copy(update={"faults": ",".join(dict.fromkeys(moved))})
    return fewer.changed(spec=spec)


def _moved(fault: str, rows: Sequence[int]) -> str:
    """A fault at the same event, while only some events stay. The number of a stall is no event."""
    kind, _, event = fault.partition("@")
    return fault if kind == "stall" or not event else f"{kind}@{max(1, bisect_left(rows, int(event)))}"


def _table(app: App, case: Case, rows: list[Row]) -> pa.Table:
    """The rows as events, in the order of their times.

    Raises:
        BadInput: A value does not fit.
    """
    material = Material(app, case.spec.params, rows)
    try:
        return material.table(in_order(material))
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise BadInput(str(error)) from None


def _digest(case: Case) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, case.events.schema) as writer:
        writer.write_table(case.events.combine_chunks())
    digest = hashlib.blake2b(case.spec.model_dump_json().encode(), digest_size=16)
    digest.update(sink.getvalue())
    return digest.digest()


# --- trials ---------------------------------------------------------------------------------------------------------


class Judge:
    """Answers whether cases show a symptom, by trials in a laboratory.

    A fault may need luck. So a case is tried as often as the rate of the fault demands, and shows the symptom twice.

    Attributes:
        rate: The share of trials that show the symptom.
    """

    def __init__(
        self,
        laboratory: Laboratory,
        case: Case,
        broken: Callable[[Sequence[Case]], list[list[str]]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Prepare to judge.

        Args:
            laboratory: Makes the trials.
            case: The case with the symptom.
            broken: Returns the invariants that each case breaks; None if the symptom is another one.
            clock: Returns the time in seconds.
        """
        assert case.symptom is not None
        self._laboratory, self._symptom, self._broken, self._clock = laboratory, case.symptom, broken, clock
        self.rate = case.rate
        self._limit = LIMIT

    def measure(self, case: Case, seconds: float) -> float:
        """The share of trials that show the symptom, which is the rate from now on if it is not 0.

        Args:
            case: The case.
            seconds: After this time, no trial begins unless none has shown the symptom.
        """
        if not self._symptom.needs_run:
            return float(any(self._trials(case, 1)))
        if self._symptom.kind == "hang" and self._limit == LIMIT:
            self._limit = self._limit_of_hang(case)
        end, hits, trials = self._clock() + seconds, 0, 0
        while trials < MEASURE or (not hits and trials < MOST):
            some = self._trials(case, MEASURE // 2, is_first_enough=False)
            hits, trials = hits + sum(some), trials + len(some)
            if hits and self._clock() >= end:
                break
        self.rate = hits / trials if hits else self.rate
        return hits / trials

    def shows(self, case: Case) -> bool:
        """Whether a case shows the symptom, in as many trials as its rate demands."""
        if not self._symptom.needs_run:
            return any(self._trials(case, 1))
        # So many trials are all in vain with a probability of DOUBT. A rate of 1 was measured on few trials.
        count = min(MOST, math.ceil(math.log(DOUBT) / math.log1p(-min(self.rate, SURE))))
        is_hang = self._symptom.kind == "hang"
        hits = sum(self._trials(case, count, is_first_enough=is_hang or self.rate < SURE))
        return hits > 1 or (hits > 0 and (is_hang or any(self._trials(case, count))))

    def confirms(self, case: Case) -> bool:
        """Whether the smallest case shows the symptom; a hang must last long."""
        if self._symptom.kind != "hang":
            return True
        limit, self._limit = self._limit, LIMIT
        try:
            return self.shows(case)
        finally:
            self._limit = limit

    def _limit_of_hang(self, case: Case) -> float:
        """Seconds after which a run hangs: many times as long as one thread takes."""
        usual = ("app", "params", "executor", "checkpoint", "faults", "repetitions", "seconds")
        plain = RunSpec.parse(
            {name: value for name, value in case.spec.model_dump(mode="json").items() if name in usual}
        )
        [verdict] = self._laboratory.examine(case, [plain]).of_runs or [Verdict(None, seconds=LIMIT)]
        return min(LIMIT, max(LEAST, PASSES * verdict.seconds, case.events.num_rows / EVENTS_PER_SECOND))

    def _trials(self, case: Case, count: int, is_first_enough: bool = True) -> list[bool]:
        """Make some trials, and return for each whether it shows the symptom.

        Args:
            case: The case.
            count: The number of trials.
            is_first_enough: Whether the first one that shows the symptom is the last.
        """
        if self._symptom.kind == "invariant":
            assert self._broken is not None
            return [self._symptom.name in names for names in self._broken([case])]
        specs, checks = requests(case)
        until = self._symptom if is_first_enough else None
        seen = self._laboratory.examine(case, [*specs] * count, checks, self._limit, until=until)
        verdicts = seen.of_runs if self._symptom.needs_run else seen.of_oracle
        return [verdict.symptom == self._symptom for verdict in verdicts] or [False]
