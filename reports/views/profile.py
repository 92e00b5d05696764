"""The page of a profile: where the time of a cell goes, and where it differs from an earlier build."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from reports.charts import flame
from reports.history.profile import Profile, Side
from reports.history.text import NOTHING, human_nano, short

MOST = 25  # rows of the table of functions
NOISE = 4.0  # standard deviations that a difference must exceed; a page compares some dozens of parts
UNCOUNTED = "the processor or the hypervisor does not offer them, or the passes were too short to count them"


@dataclass(frozen=True)
class FunctionRow:
    """A function: its own time per event, without that of functions that it calls.

    Attributes:
        name: an operator's kernel, or a function.
        of: `operators` or `runtime`.
        ns: nanoseconds per event.
        share: its share of the whole time.
        before: nanoseconds per event in the baseline; None without one.
    """

    name: str
    of: str
    ns: float
    share: float
    before: float | None

    @property
    def more(self) -> str:
        """The difference from the baseline, such as `+12.3 ns`; a dash without one."""
        return NOTHING if self.before is None else f"{self.ns - self.before:+,.1f} ns"


@dataclass(frozen=True)
class CounterRow:
    """A counter of the processor: its name, and its number per event in the build and in the baseline, as text."""

    name: str
    build: str
    baseline: str


@dataclass(frozen=True)
class ProfileView:
    """A profile in words and pictures.

    Attributes:
        profile: the profile.
        headline: the operator or function with the most time, in a sentence.
        about: how it was measured.
        graph: the flame graph of the build.
        difference: the flame graph beside the baseline; empty without one.
        functions: the functions with the most time of their own.
        counters: the counters that the host has.
        uncounted: those that it lacks, for the reason `UNCOUNTED`.
    """

    profile: Profile
    headline: str
    about: str
    graph: Markup
    difference: Markup
    functions: list[FunctionRow]
    counters: list[CounterRow]
    uncounted: list[str]

    @classmethod
    def of(cls, profile: Profile) -> ProfileView:
        """The view of a profile. Drawing takes a second."""
        build, baseline = profile.build, profile.baseline
        has = [name for name in build.counters if build.counters[name] is not None]
        return cls(
            profile=profile,
            headline=_headline(profile),
            about=_about(profile),
            graph=Markup(flame.graph(build.stacks)),
            difference=Markup(flame.difference(build.stacks, baseline.stacks) if baseline else ""),
            functions=list(_functions(build, baseline))[:MOST],
            counters=[CounterRow(name, _count(build, name), _count(baseline, name)) for name in has],
            uncounted=[name for name in build.counters if name not in has],
        )

    @property
    def lines(self) -> list[str]:
        """The profile for a terminal."""
        lines = [self.headline, self.about]
        for row in self.functions[:10]:
            more = "" if row.before is None else f"  {row.more:>12}"
            lines.append(f"{row.ns:10,.1f} ns  {row.share:6.1%}{more}  {row.name}")
        lines += [f"{row.name}: {row.build} per event" for row in self.counters]
        if self.uncounted:
            lines.append(f"not available on this host: {', '.join(self.uncounted)}; {UNCOUNTED}")
        return lines


def _headline(profile: Profile) -> str:
    """The operator or function with the most time, and the one that changed most since the baseline."""
    build, baseline = profile.build, profile.baseline
    whole, parts = sum(build.stacks.values()), _parts(build)
    if not whole:
        return f"The profile of {profile.cell} has no samples"
    most = max(parts, key=lambda part: (parts[part], part))
    text = f"{most[0].upper()}{most[1:]} takes {parts[most] / whole:.0%} of the time"
    text += f": {human_nano(parts[most], 's')} of {human_nano(whole, 's')} per event"
    if baseline is None:
        return text
    before = _parts(baseline)
    changes = {part: parts.get(part, 0.0) - before.get(part, 0.0) for part in {*parts, *before}}
    moved = max(changes, key=lambda part: (abs(changes[part]), part))
    if abs(changes[moved]) < NOISE * _deviation(profile, parts.get(moved, 0.0), before.get(moved, 0.0)):
        return f"{text}; no part differs from build {short(baseline.build)} by more than the noise of the samples"
    word = "more" if changes[moved] > 0 else "less"
    what = "it" if moved == most else moved
    return f"{text}; {what} takes {human_nano(abs(changes[moved]), 's')} {word} than in build {short(baseline.build)}"


def _deviation(profile: Profile, now: float, before: float) -> float:
    """The standard deviation of the difference of two times in nanoseconds per event: samples are counts."""

    def variance(side: Side, ns: float) -> float:
        return ns * sum(side.stacks.values()) / side.samples if side.samples else 0.0

    assert profile.baseline is not None
    return math.sqrt(variance(profile.build, now) + variance(profile.baseline, before))


def _parts(side: Side) -> dict[str, float]:
    """Nanoseconds per event: of an operator with all that it calls, of a function of the runtime alone."""
    times: dict[str, float] = {}
    for stack, value in side.stacks.items():
        root, *path = stack.split(flame.SEPARATOR)
        part = f"operator {path[0]}" if root == "operators" and path else f"function {(path or [root])[-1]}"
        times[part] = times.get(part, 0.0) + value
    return times


def _about(profile: Profile) -> str:
    build = profile.build
    if profile.fallback:
        how = f"The runtime itself measured its tasks, because {profile.fallback}."
    else:
        how = f"perf took {build.samples:,} samples of the engine."
    return (
        f"{how} They cover {build.passes} passes over {build.events:,} events on host {profile.host}. Times "
        "are those of all threads together."
    )


def _functions(build: Side, baseline: Side | None) -> Iterator[FunctionRow]:
    """The functions, those with the most time of their own first."""
    whole = sum(build.stacks.values()) or 1.0
    now, before = _own(build), _own(baseline) if baseline else {}
    for of, name in sorted({*now, *before}, key=lambda key: (-max(now.get(key, 0.0), before.get(key, 0.0)), key)):
        ns = now.get((of, name), 0.0)
        yield FunctionRow(name, of, ns, ns / whole, before.get((of, name), 0.0) if baseline else None)


def _own(side: Side) -> dict[tuple[str, str], float]:
    times: dict[tuple[str, str], float] = {}
    for stack, value in side.stacks.items():
        root, *path = stack.split(flame.SEPARATOR)
        function = root, path[-1] if path else root
        times[function] = times.get(function, 0.0) + value
    return times


def _count(side: Side | None, name: str) -> str:
    value = side.counters.get(name) if side else None
    return NOTHING if value is None else f"{value:,.4g}"
