"""The search for a fault of one application: rounds of drawn inputs, each in several ways, within a time.

A round has one set of parameters, because kernels are compiled for it. Each laboratory makes a round, and their results
count in the order of their numbers. So a seed draws the same inputs again, as long as the corpus is the same.

The search tries the cases of earlier finds first, and ends with the first find that is new.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streaming_core import interruption
from streaming_core.apps import registry
from streaming_core.errors import BadInput
from streaming_core.run.way import RunSpec, executors_of
from streaming_core.search import draws, find, scenario, ways
from streaming_core.search.case import Case, Symptom
from streaming_core.search.corpus import Corpus
from streaming_core.search.draws import Input
from streaming_core.search.find import Find
from streaming_core.search.laboratory import LOOP, PROPERTIES, Examination, Laboratory
from streaming_core.search.replay import Invariants
from streaming_core.search.shrinking import Judge, shrink

INPUTS, WAYS = 8, 5  # of a round; of an input
_PATIENCE = 10.0  # seconds that a search waits at its end for the last invariants
_POLL = 0.2  # seconds between two looks for a signal


@dataclass(frozen=True)
class _Round:
    """A round: its number, its parameters, and its inputs, each with the ways of executing it."""

    number: int
    params: dict[str, Any]
    inputs: list[tuple[Input, list[RunSpec]]]


@dataclass
class Report:
    """The outcome of a search.

    Attributes:
        app: The application.
        seed: The seed.
        inputs: The number of inputs tried.
        runs: The number of runs.
        reached: The number of branches that any search reached.
        branches: The number of branches that the operators have.
        unreached: The others, by line.
        seconds: The duration.
        finds: What was found: earlier finds that still show, and at most one new.
    """

    app: str
    seed: int
    inputs: int = 0
    runs: int = 0
    reached: int = 0
    branches: int = 0
    unreached: list[str] = field(default_factory=list)
    seconds: float = 0.0
    finds: list[Find] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """The outcome as people read it."""
        shown = f"{len(self.finds)} find{'s' * (len(self.finds) != 1)}" if self.finds else "nothing found"
        return (
            f"{self.inputs:,} inputs in {self.runs:,} ways, {self.reached} of {self.branches} branches reached, {shown}"
        )


@dataclass(frozen=True)
class Request:
    """What to search, and how long.

    Attributes:
        app: The application.
        corpus: The folder of its corpus.
        finds: The folder that gets a folder for each find; None: finds have no files.
        seconds: The time for the search.
        seed: Chooses the draws.
        source: A workload or an import, whose events replace those of the generator.
        shrinking: The seconds that a find may take, beyond the time, until it is small.
    """

    app: str
    corpus: Path
    finds: Path | None
    seconds: float
    seed: int = 0
    source: Path | None = None
    shrinking: float = 120.0


class Search:
    """A search of one application."""

    def __init__(self, request: Request, invariants: Invariants | None, say: Callable[[str], None]):
        """Prepare a search; the arguments are those of `search`."""
        self.app = registry.load(request.app)
        if request.source is None:
            self.app.check_generator()
        self._request, self._invariants, self._say = request, invariants, say
        self._corpus = Corpus(request.corpus, registry.code_digest(self.app))
        self._began = time.monotonic()
        self._end = self._began + request.seconds
        self.report = Report(request.app, request.seed)
        self._known: list[Symptom] = []
        self._news = False  # whether there is a find that is new
        self._is_over = threading.Event()  # something goes wrong in one of the rounds
        self._seen: set[str] = set()  # parameters whose compiled loop was compared
        self._checking: tuple[list[tuple[Case, Path]], Future] | None = None  # results whose invariants Spark checks
        self._inputs = self._corpus.inputs()
        self._branches = set(self._corpus.ledger.branches)
        self._every = scenario.branches(self.app, self.app.bind())

    def run(self) -> Report:
        """Search until the time is over, or something new shows."""
        with ExitStack() as stack:
            count = 2 if (os.cpu_count() or 1) > 1 else 1
            self._laboratories = [stack.enter_context(Laboratory()) for _ in range(count)]
            self._pool, self._beside = stack.enter_context(_pool(count)), stack.enter_context(_pool(1))
            self._root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-find-")))
            self._try_known()
            while not self._news:
                self._rounds()
                if time.monotonic() >= self._end:
                    break
            if not self._news and self._checking is not None and wait([self._checking[1]], _PATIENCE).done:
                self._take(self._invariant_cases())
        self._tell()
        return self.report

    def _tell(self) -> None:
        report = self.report
        report.seconds = time.monotonic() - self._began
        report.unreached = [place for number, place in self._every.items() if number not in self._branches]
        report.branches = len(self._every)
        report.reached = report.branches - len(report.unreached)

    # --- rounds ------------------------------------------------------------------------------------------------------

    def _rounds(self) -> None:
        """Make a round in each laboratory, and take the first suspect."""
        rounds = [self._draw(self._corpus.begin(self.report.seed)) for _ in self._laboratories]
        self._is_over.clear()
        futures = [self._pool.submit(self._examine, *pair) for pair in zip(self._laboratories, rounds, strict=True)]
        suspects: list[Case] = []
        for round_, future in zip(rounds, futures, strict=True):
            suspects += self._merge(round_, _result(future))
        suspects += self._by_invariants(rounds)
        self._tell()
        self._say(self.report.sentence)
        self._take(suspects)

    def _draw(self, number: int) -> _Round:
        """Draw the inputs and the ways of a round."""
        r = random.Random(f"search {self.app.name} {self.report.seed} {number}")
        params = draws.parameters(self.app, r)
        inputs = [draws.draw(self.app, params, r, self._inputs, self._request.source) for _ in range(INPUTS)]
        return _Round(number, params, [(drawn, self._ways(drawn, r)) for drawn in inputs])

    def _examine(self, laboratory: Laboratory, round_: _Round) -> list[Examination]:
        """Examine the inputs of a round, until the time is over or something goes wrong."""
        examinations: list[Examination] = []
        checks = [PROPERTIES] if self.app.properties else []
        for number, (drawn, specs) in enumerate(round_.inputs):
            # However slow the machine is, a round tries its first input.
            if (number and time.monotonic() >= self._end) or self._is_over.is_set():
                break
            is_last = number == len(round_.inputs) - 1
            keep = self._place(round_, number) if self._checks_invariants(drawn) else None
            examination = laboratory.examine(self._case(drawn), specs, checks, keep=keep)
            if is_last and self._is_new(round_.params):  # numba takes seconds to compile the loop
                examination.of_oracle += laboratory.examine(self._case(drawn), (), [LOOP]).of_oracle
            examinations.append(examination)
            if examination.verdicts:
                self._is_over.set()
        return examinations

    def _place(self, round_: _Round, number: int) -> Path:
        """The folder of the oracle's result of an input, if Spark checks its invariants."""
        return self._root / f"{round_.number}-{number}"

    def _is_new(self, params: Mapping[str, Any]) -> bool:
        """Whether the compiled loop has these parameters for the first time."""
        is_new = repr(params) not in self._seen
        self._seen.add(repr(params))
        return is_new

    def _checks_invariants(self, drawn: Input) -> bool:
        return self._invariants is not None and drawn.is_usual and drawn.events.num_rows > 0 and self._checking is None

    def _merge(self, round_: _Round, examinations: Sequence[Examination]) -> list[Case]:
        """Count what a round tried, and keep inputs that reached new branches; returns the suspects."""
        runs, suspects, reached = 0, list[Case](), set[int]()
        for (drawn, specs), examination in zip(round_.inputs, examinations, strict=False):
            if examination.refused:
                continue
            self.report.inputs += 1
            runs += len(examination.of_runs)
            suspects += self._suspects(drawn, specs, examination)
            if examination.branches - self._branches:
                self._branches |= examination.branches
                self._corpus.add(drawn)
                self._inputs.append(drawn)
            reached |= examination.branches
        self.report.runs += runs
        self._corpus.end(self.report.seed, round_.number, len(examinations), runs, reached)
        return suspects

    def _ways(self, drawn: Input, r: random.Random) -> list[RunSpec]:
        return ways.ways(self.app, self.app.bind(drawn.params), drawn.events.num_rows, r, WAYS)

    def _case(self, drawn: Input, spec: RunSpec | None = None, symptom: Symptom | None = None) -> Case:
        spec = spec or RunSpec.parse(
            {"app": self.app.name, "params": drawn.params, "executor": executors_of(self.app.kind)[0]}
        )
        return Case(spec, drawn.events, symptom, origin=drawn.origin)

    def _suspects(self, drawn: Input, specs: Sequence[RunSpec], examination: Examination) -> list[Case]:
        """The cases of an examination that go wrong in a way that is not known yet."""
        cases = [self._case(drawn, None, verdict.symptom) for verdict in examination.of_oracle if verdict.symptom]
        cases += [
            self._case(drawn, spec, verdict.symptom)
            for spec, verdict in zip(specs, examination.of_runs, strict=False)
            if verdict.symptom
        ]
        return [case for case in cases if case.symptom not in self._known]

    def _by_invariants(self, rounds: Sequence[_Round]) -> list[Case]:
        """The cases of earlier rounds that break an invariant. Spark then checks usual inputs of these, beside."""
        cases = self._invariant_cases() if self._checking is not None and self._checking[1].done() else []
        places = ((drawn, self._place(round_, at)) for round_ in rounds for at, (drawn, _) in enumerate(round_.inputs))
        results = [(self._case(drawn), folder) for drawn, folder in places if _has_result(folder)]
        if results and self._invariants is not None:
            self._checking = results, self._beside.submit(self._invariants, results)
        return cases

    def _invariant_cases(self) -> list[Case]:
        """The cases that Spark has checked and that break an invariant."""
        assert self._checking is not None
        (results, broken), self._checking = self._checking, None
        for _, folder in results:
            shutil.rmtree(folder, ignore_errors=True)
        return [
            case.changed(symptom=symptom)
            for (case, _), names in zip(results, _result(broken), strict=True)
            for name in names
            if (symptom := Symptom("invariant", name)) not in self._known
        ]

    def _broken(self, cases: Sequence[Case]) -> list[list[str]]:
        """The invariants that each case breaks."""
        assert self._invariants is not None
        with tempfile.TemporaryDirectory(dir=self._root) as root:
            folders = [(case, Path(root) / str(number)) for number, case in enumerate(cases)]
            for case, folder in folders:
                self._laboratories[0].examine(case, (), keep=folder)
            good = [(case, folder) for case, folder in folders if _has_result(folder)]
            names = dict(zip([folder for _, folder in good], self._invariants(good) if good else [], strict=True))
            return [names.get(folder, []) for _, folder in folders]

    # --- finds -------------------------------------------------------------------------------------------------------

    def _try_known(self) -> None:
        """Try the cases of earlier finds; those that still show are finds of this search, too."""
        for stored in find.finds(self._request.finds) if self._request.finds else []:
            try:
                case = Case.load(stored.folder)
            except BadInput as error:  # the application has changed
                self._say(f"find {stored.digest} no longer fits: {error}")
                continue
            if self._judge(case).shows(case):
                self.report.finds.append(stored)
                self._known.append(stored.symptom)

    def _judge(self, case: Case) -> Judge:
        return Judge(self._laboratories[0], case, self._broken if self._invariants else None)

    def _take(self, suspects: Sequence[Case]) -> None:
        """Shrink the first of the cases that go wrong, and write its find."""
        if not suspects:
            return
        case, self._news = suspects[0], True
        assert case.symptom is not None
        self._say(f"found: {case.symptom.sentence}; making it smaller")
        began = time.monotonic()
        judge = self._judge(case)
        small = shrink(case, judge, self._request.shrinking, self._say)
        if case.symptom.kind == "hang" and not small.rate:  # the machine was busy
            self._news = False
            return
        about = {"seconds": began - self._began, "shrinking": time.monotonic() - began, "seed": self.report.seed}
        self.report.finds.append(find.write(small, self._laboratories[0], self._request.finds, about, self._invariants))


def search(
    app: str,
    corpus: Path,
    finds: Path | None,
    seconds: float,
    invariants: Invariants | None = None,
    say: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> Report:
    """Search a fault of an application until the time is over, or something new shows.

    Args:
        app: The application.
        corpus: The folder of its corpus.
        finds: The folder that gets a folder for each find; None: finds have no files.
        seconds: The time for the search.
        invariants: Checks the declared invariants; None leaves them out.
        say: Receives a line about each step.
        options: Other fields of the request.

    Raises:
        BadInput: The application is unknown, or has neither generator nor events.
        CommandFailed: The disk is full, or a process that makes trials ended.
    """
    return Search(Request(app, corpus, finds, seconds, **options), invariants, say).run()


def _has_result(folder: Path) -> bool:
    """Whether a laboratory kept a result of the oracle there. It has none if an operator fails."""
    return (folder / "oracle" / "manifest.json").exists()


@contextmanager
def _pool(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that end without finishing what waits."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _result(future: Future) -> Any:
    """The result of a future, unless a signal comes first."""
    while not wait([future], _POLL).done:
        interruption.check()
    return future.result()
