"""Twenty faults of operators: an application of Lockstep or one of `applications/`, with one piece of text replaced."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

_APPLICATIONS = Path(__file__).with_name("applications")


@dataclass(frozen=True)
class OperatorFault:
    """A fault of an operator.

    Attributes:
        name: Its name.
        about: What it does wrong.
        app: The application.
        old: The text that it replaces, which occurs once.
        new: The text in its place.
        by: The property or invariant that it breaks.
    """

    name: str
    about: str
    app: str
    old: str
    new: str
    by: str

    @property
    def file(self) -> Path:
        """The file of the application, relative to a checkout."""
        return Path("streaming_core/apps", f"{self.app}.py")

    @property
    def source(self) -> str:
        """The sound application."""
        own = _APPLICATIONS / f"{self.app}.py"
        return (own if own.exists() else Path(__file__).parents[2] / self.file).read_text()

    @property
    def faulty(self) -> str:
        """The application with the fault."""
        assert self.source.count(self.old) == 1, self.name
        return self.source.replace(self.old, self.new)

    def apply(self, root: Path) -> None:
        """Put the fault into the checkout at `root`."""
        (root / self.file).write_text(self.faulty)


def prepare(root: Path) -> None:
    """Put the sound applications of this folder into the checkout at `root`."""
    for path in _APPLICATIONS.glob("*.py"):
        shutil.copy(path, root / "streaming_core/apps")


FAULTS = {
    fault.name: fault
    for fault in (
        OperatorFault(
            "overdraft",
            "a transfer needs more than its amount",
            "bank",
            "account.balance >= request.amount",
            "account.balance > request.amount",
            "money_moves_only_if_the_source_has_it",
        ),
        OperatorFault(
            "self_transfer",
            "a transfer to itself is valid",
            "bank",
            " or request.source == request.target",
            "",
            "a_transfer_to_itself_is_invalid",
        ),
        OperatorFault(
            "overflow",
            "a sum wraps around",
            "sales",
            "shop.total = limited(shop.total + limited(row.cents))",
            "shop.total += row.cents",
            "totals_stay_in_bounds",
        ),
        OperatorFault(
            "floor",
            "negative amounts are rounded down",
            "sales",
            "-(-cents // 100) if cents < 0 else cents // 100",
            "cents // 100",
            "refunds_mirror_sales",
        ),
        OperatorFault(
            "counter_not_reset",
            "the second report counts the sales of the first one again",
            "sales",
            "        shop.since = 0\n",
            "        shop.since = p.every if p.every == 1 else 1\n",
            "every_sale_is_reported_once",
        ),
        OperatorFault(
            "shared_state",
            "shops whose numbers differ by 64 share a state",
            "sales",
            'app.source(Sale).key_by("shop")',
            "app.source(Sale).key_by(lambda row: row.shop % 64)",
            "totals_stay_in_bounds",
        ),
        OperatorFault(
            "lost_flush",
            "a single sale after the last report is lost",
            "sales",
            "if shop.since > 0:",
            "if shop.since > 1:",
            "every_sale_is_reported_once",
        ),
        OperatorFault(
            "window_start",
            "a visit at the start of a window is lost",
            "visits",
            "row.ts >= window.start",
            "row.ts > window.start",
            "every_visit_counts_once",
        ),
        OperatorFault(
            "late_counted_twice",
            "a late visit counts as in time, too",
            "visits",
            "n=0, late=1",
            "n=1, late=1",
            "every_visit_counts_once",
        ),
        OperatorFault(
            "window_multiple",
            "a late visit at the start of a window counts for the window before",
            "visits",
            "ts=row.ts // p.size * p.size + p.size",
            "ts=-(-row.ts // p.size) * p.size",
            "every_visit_counts_once",
        ),
        OperatorFault(
            "event_number",
            "every eighth event counts twice",
            "visits",
            "        state.n += 1\n",
            "        state.n += 2 if row.seq % 8 == 7 else 1\n",
            "every_visit_counts_once",
        ),
        OperatorFault(
            "forgotten_number",
            "the sixth number makes a sensor forget the others",
            "readings",
            "    if state.numbers.add(row.number):\n",
            "    if len(state.numbers) == 5:\n        state.numbers.clear()\n    if state.numbers.add(row.number):\n",
            "a_number_passes_once",
        ),
        OperatorFault(
            "float_sum",
            "a sum of fractions depends on their order",
            "readings",
            "state.total += float(int(min(max(row.value, -1e9), 1e9) * 1000.0))",
            "state.total += min(max(row.value, -1e9), 1e9)",
            "order_is_irrelevant_for_extremes",
        ),
        OperatorFault(
            "nan",
            "a value that is no number is the highest",
            "readings",
            "row.value == row.value and (not state.any or row.value > state.highest)",
            "not state.any or not row.value <= state.highest",
            "highest_and_worst_are_those_of_the_readings",
        ),
        OperatorFault(
            "null",
            "an unknown quality after a known one counts as 0",
            "readings",
            "    if row.quality is not None and (not state.rated or row.quality < state.worst):\n",
            "    if row.quality is None and state.rated:\n        state.worst = 0\n"
            "    if row.quality is not None and (not state.rated or row.quality < state.worst):\n",
            "highest_and_worst_are_those_of_the_readings",
        ),
        OperatorFault(
            "order_of_ties",
            "of two readings of one time, the later one decides",
            "readings",
            "state.value = max(state.value, row.number)",
            "state.value = row.number",
            "ties_may_change_places",
        ),
        OperatorFault(
            "empty_word",
            "two blanks have an empty word between them",
            "wc",
            "        if len(word) > 0:\n            out.emit(word=word)",
            "        out.emit(word=word)",
            "counts_are_those_of_the_words",
        ),
        OperatorFault(
            "session_gap",
            "a session ends after a silence of the longest length within it",
            "q2",
            "row.ts - state.last > p.timeout",
            "row.ts - state.last >= p.timeout",
            "pairs_are_those_of_sessions",
        ),
        OperatorFault(
            "join_band",
            "a right row misses left rows at the edge of the band",
            "scalejoin",
            "abs(kept[i].x - row.a) <= p.band",
            "abs(kept[i].x - row.a) < p.band",
            "pairs_are_those_of_a_nested_loop",
        ),
        OperatorFault(
            "top_tie",
            "a pair does not enter a full list if it ties with the last one",
            "q2",
            "row.n >= best.score_at(p.limit - 1)",
            "row.n > best.score_at(p.limit - 1)",
            "the_last_list_has_the_most_frequent_pairs",
        ),
    )
}
