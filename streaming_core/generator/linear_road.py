"""Position reports and requests of the vehicles on Linear Road's expressways, in closed form (workloads, part L).

A vehicle enters, travels at about its own speed, and reports every 30 s until it leaves. Only an accident of its own
slows it down. So its draws and i alone determine its position at the i-th report. A period is half a minute, in which
every vehicle on the road reports once; the generator makes each period by itself.

An expressway has 100 segments of 5,280 feet. Speeds are in miles per hour: 1 mph covers 44 feet in 30 s. Inside this
module, all vehicles travel up; those of direction 1 are turned round when they report.

The simulation repeats without end, as Viper's injectors do: `seconds` later, vehicles with the same ids send the same
reports. A vehicle that is still on the road at the end leaves it with its last report.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from streaming_core.api import Param
from streaming_core.errors import BadInput
from streaming_core.generator.distributions import exponential, zipf
from streaming_core.generator.draws import Draws
from streaming_core.generator.periods import by_period

SEGMENT, SEGMENTS = 5_280, 100
PERIOD = 30  # seconds between two reports of a vehicle
FEET = 44  # distance that 1 mph covers in a PERIOD
REPORTS = 4_096  # more than a vehicle can send
REPORT, BALANCE, EXPENDITURE, TRAVEL = 0, 2, 3, 4  # types of events
DAYS = 69  # length of the history of tolls
UNUSED = -1
NEVER = 1 << 30
MOST = 1 << 23  # vehicles, about: 100 bytes each

PARAMS = {
    "xways": Param(1, "number of expressways", minimum=1, maximum=250),
    "seconds": Param(
        10_800, "length of the simulation in seconds; it repeats without end", minimum=120, maximum=86_400
    ),
    "veh_per_s": Param(
        10.0, "largest number of vehicles that enter an expressway per second", minimum=0.01, maximum=100.0
    ),
    "request_ratio": Param(0.01, "share of reports with which a vehicle sends a request", minimum=0.0, maximum=1.0),
    "no_type4": Param(False, "omit travel time requests, which make up 40 % of the requests"),
    "congestion": Param(False, "vehicles travel at 60 % of their speed in the middle third of the time"),
    "accidents": Param(True, "two vehicles of an expressway stop in the same place every 5 to 15 minutes"),
    "invalid_ratio": Param(0.0, "share of reports with an invalid direction", minimum=0.0, maximum=1.0),
}


class Road:
    """The vehicles of one simulation, in the order in which they enter.

    Vehicles are Poisson arrivals, at 20 % of `veh_per_s` at both ends of the simulation and at all of it in the middle.
    Base speeds are 20 to 60 mph, uniformly. Of the first million reports, about 34 % come from another segment than the
    vehicle's report before, as Viper says. Later there are fewer (32 % of all), because the vehicles that stay long on
    the road are slow.
    """

    def __init__(self, seed: int, xways: int, seconds: int, veh_per_s: float, congestion: bool, accidents: bool):
        if xways * seconds * veh_per_s > MOST:
            raise BadInput(f"xways * seconds * veh_per_s must be at most {MOST}, got {xways} * {seconds} * {veh_per_s}")
        self._seed, self._seconds = seed, seconds
        self._third = (seconds // 3, 2 * seconds // 3) if congestion else (NEVER, NEVER)
        entering = _arrivals(seed, xways, seconds, veh_per_s).reshape(-1)
        place = np.repeat(np.arange(len(entering)), entering)
        self.entry, self.xway = place // xways, place % xways
        draws = Draws(seed, "lr.vehicles", 0, len(place))
        self.dir = draws.below(0, 2)
        first = draws.below(1, SEGMENTS - 2)
        self._start = first * SEGMENT + draws.below(2, SEGMENT)
        # Feet to the exit's segment, at least two segments on. No vehicle crosses a whole segment between two reports.
        self._goal = (first + 2 + draws.below(3, SEGMENTS - 2 - first)) * SEGMENT - self._start
        self._speed = 20 + draws.below(4, 41)
        # A vehicle's accident: it stops at report `_stop` for `_stay` reports, `_stopped` feet from where it entered.
        self._stop, self._stay = np.full(len(place), NEVER), np.zeros(len(place), np.int64)
        self._stopped, self._stop_lane = np.zeros(len(place), np.int64), np.zeros(len(place), np.int64)
        self._last = (seconds - 1 - self.entry) // PERIOD  # the last report before the end of the simulation
        vehicles = np.arange(len(place))
        self.reports = np.minimum(self._arrives(vehicles, self._goal), self._last) + 1
        if accidents:
            for xway in range(xways):
                self._accidents(xway)

    def __len__(self) -> int:
        return len(self.entry)

    def reporting(self, start: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the vehicles that report in the 30 seconds from `start` on, and the number of each one's report."""
        entered = np.searchsorted(self.entry, start + PERIOD)
        number = (start - self.entry[:entered] + PERIOD - 1) // PERIOD
        vehicles = np.flatnonzero(number < self.reports[:entered])
        return vehicles, number[vehicles]

    def draws(self, name: str, vehicles: np.ndarray, number: np.ndarray) -> Draws:
        """Return the draws of single reports."""
        return Draws(self._seed, name, units=vehicles * REPORTS + number)

    def positions(self, vehicles: np.ndarray, number: np.ndarray) -> dict[str, np.ndarray]:
        """Return speed, lane, seg and pos of these vehicles at these reports."""
        pos = self._start[vehicles] + self._travelled(vehicles, number)
        pos = np.where(self.dir[vehicles] == 0, pos, SEGMENTS * SEGMENT - 1 - pos)
        stop = self._stop[vehicles]
        stopped = (number >= stop) & (number < stop + self._stay[vehicles])
        speed = self._pace(vehicles, number) + self._swing(vehicles, number) - self._swing(vehicles, number - 1)
        lane = np.where(stopped, self._stop_lane[vehicles], self._lane(vehicles, number))
        lane[number == 0] = 0
        lane[number == self.reports[vehicles] - 1] = 4
        return {"speed": np.where(stopped, 0, speed), "lane": lane, "seg": pos // SEGMENT, "pos": pos}

    def _lane(self, vehicles: np.ndarray, number: np.ndarray) -> np.ndarray:
        return 1 + self.draws("lr.lane", vehicles, number).below(0, 3)

    def _swing(self, vehicles: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Return the sum of the deviations from the base speed up to this report, in mph.

        Reports form pairs: one is as much above the base speed (-5..5) as the other is below. So nothing has to be
        added up. The first report is the second half of a pair that has no first half.
        """
        off = self.draws("lr.swing", vehicles, number // 2).below(0, 11) - 5
        return np.where(number % 2 == 1, off, 0)

    def _slow(self, vehicles: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Return how many of the reports 1..number are in the congestion."""
        begin, end = (-((self.entry[vehicles] - t) // PERIOD) for t in self._third)
        return np.clip(number + 1, np.maximum(begin, 1), np.maximum(end, 1)) - np.maximum(begin, 1)

    def _pace(self, vehicles: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Return the base speed at a report, in mph."""
        speed, begin, end = self._speed[vehicles], *self._third
        time = self.entry[vehicles] + PERIOD * number
        return np.where((time >= begin) & (time < end), speed * 3 // 5, speed)

    def _undisturbed(self, vehicles: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Return the feet travelled up to a report, without an accident."""
        miles = self._speed[vehicles] * number + self._swing(vehicles, number)
        if self._third[0] < NEVER:
            speed = self._speed[vehicles]
            miles -= (speed - speed * 3 // 5) * self._slow(vehicles, number)
        return miles * FEET

    def _travelled(self, vehicles: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Return the feet travelled up to a report. A vehicle that stopped goes on from there, at its speed then."""
        feet = self._undisturbed(vehicles, number)
        rows = np.flatnonzero(number >= self._stop[vehicles])
        stopped = vehicles[rows]
        until = self._stop[stopped] + self._stay[stopped]
        since = feet[rows] - self._undisturbed(stopped, until - 1)
        feet[rows] = self._stopped[stopped] + np.where(number[rows] < until, 0, since)
        return feet

    def _arrives(self, vehicles: np.ndarray, feet: np.ndarray) -> np.ndarray:
        """Find the first report at which each has travelled so far, by bisection; one after the last if none."""
        low, high = np.zeros(len(vehicles), np.int64), self._last[vehicles] + 1
        while (low < high).any():
            middle = (low + high) // 2
            there = self._travelled(vehicles, middle) >= feet
            high = np.where(there, middle, high)
            low = np.where(there | (low == high), low, middle + 1)
        return low

    def _accidents(self, xway: int) -> None:
        """Add the accidents of one expressway, 10 +- 5 minutes apart; skip one that no second vehicle would meet.

        A vehicle in a travel lane stops. The next vehicle that passes stops at the same position and lane. Each
        continues 10 to 20 minutes after its own stop. At least four reports of one coincide with four of the other.
        """
        time, number, here = 0, 0, np.flatnonzero(self.xway == xway)
        while True:
            draws = Draws(self._seed, f"lr.accidents {xway}", number, number + 1)
            time, number = time + 300 + int(draws.below(0, 601)[0]), number + 1
            if time >= self._seconds:
                return
            stay = 20 + int(draws.below(1, 21)[0])
            ends = self.entry[here] + PERIOD * self.reports[here]
            free = (self.dir[here] == draws.below(2, 2)[0]) & (self._stop[here] == NEVER)
            near = here[free & (self.entry[here] < time + PERIOD * stay) & (ends > time)]
            report = -((self.entry[near] - time) // PERIOD)
            able = (report >= 1) & (report < self.reports[near] - 1) & (report + stay <= self._last[near])
            if not able.any():
                continue
            chosen = np.flatnonzero(able)[draws.below(3, int(able.sum()))]
            [first], stop = near[chosen], report[chosen]
            place = self._start[first] + self._travelled(near[chosen], stop)
            feet = place - self._start[near]
            passes = near[(feet > 0) & (feet < self._goal[near]) & (near != first)]
            feet = place - self._start[passes]
            report = self._arrives(passes, feet)
            later = self.entry[passes] + PERIOD * report - (self.entry[first] + PERIOD * stop)
            able = (later > 0) & (later <= PERIOD * (stay - 4)) & (report < self.reports[passes] - 1)
            able &= report + stay <= self._last[passes]
            if not able.any():
                continue
            second = np.flatnonzero(able)[np.argmin(later[able])]
            both = np.array([first, passes[second]])
            self._stop_lane[both] = self._lane(near[chosen], stop)
            self._stop[both], self._stay[both] = [stop[0], report[second]], stay
            self._stopped[both] = place - self._start[both]
            self.reports[both] = np.minimum(self._arrives(both, self._goal[both]), self._last[both]) + 1


def _arrivals(seed: int, xways: int, seconds: int, veh_per_s: float) -> np.ndarray:
    """Draw how many vehicles enter each expressway in each second, by inversion: int64 of shape (seconds, xways).

    No vehicle enters in the last 30 seconds, because each reports at least twice.
    """
    second = np.arange(seconds - PERIOD)
    ramp = np.rint(1e6 * np.sin(np.pi * second / seconds)) / 1e6  # rounded: the sine's last bits differ between hosts
    rate = (veh_per_s * (0.2 + 0.8 * ramp))[:, None]
    units = second[:, None] * 256 + np.arange(xways)
    u = Draws(seed, "lr.arrivals", units=units.reshape(-1)).u53(0).reshape(units.shape) / float(1 << 53)
    entering, chance = np.zeros(units.shape, np.int64), exponential(-rate)
    cumulated = chance.copy()
    for k in range(1, 1000):
        more = u >= cumulated
        if not more.any():
            break
        entering += more
        chance = chance * rate / k
        cumulated += chance
    return entering


@lru_cache(maxsize=4)
def _road(seed: int, xways: int, seconds: int, veh_per_s: float, congestion: bool, accidents: bool) -> Road:
    return Road(seed, xways, seconds, veh_per_s, congestion, accidents)


def road(params: dict, seed: int) -> Road:
    """Return the simulation with these parameters; those of `PARAMS` that are missing have their defaults."""
    names = ("xways", "seconds", "veh_per_s", "congestion", "accidents")
    return _road(seed, *(params.get(name, PARAMS[name].default) for name in names))


def events(*columns: str, reports_only: bool = False) -> Callable:
    """Return a generator of Linear Road's events, for `App.generates`, with the parameters `PARAMS`.

    Events are in the order of time, vehicle and type. A vehicle sends a request at the time of a report. Half of the
    requests are for its balance (type 2), a tenth for a day's expenditure (3), the others for a travel time (4).

    Args:
        *columns: The columns besides `ts`: any of type, vid, speed, xway, lane, dir, seg, pos, qid, s_init, s_end, dow,
            tod and day. A value is -1 if events of that type have no such field. A qid is unique within a repetition.
        reports_only: Make only position reports (type 0).
    """

    def reports_of(params: dict, seed: int, period: int) -> tuple:
        """Return the road, the repetition, the vehicles, the numbers of their reports, and the requests with kinds."""
        traffic, steps = road(params, seed), -(-params.get("seconds", PARAMS["seconds"].default) // PERIOD)
        vehicles, number = traffic.reporting(period % steps * PERIOD)
        asking, kinds = np.empty(0, np.int64), np.empty(0, np.int64)
        if not reports_only:
            draws = traffic.draws("lr.requests", vehicles, number)
            asking = np.flatnonzero(draws.chance(0, params["request_ratio"]))
            kinds = np.array([BALANCE] * 5 + [EXPENDITURE] + [TRAVEL] * 4)[draws.below(1, 10)[asking]]
            if params["no_type4"]:
                asking, kinds = asking[kinds != TRAVEL], kinds[kinds != TRAVEL]
        return traffic, period // steps, vehicles, number, asking, kinds

    def count(params: dict, seed: int, period: int) -> int:
        _, _, vehicles, _, asking, _ = reports_of(params, seed, period)
        return len(vehicles) + len(asking)

    def make(params: dict, seed: int, period: int) -> dict[str, np.ndarray]:
        traffic, repetition, vehicles, number, asking, kinds = reports_of(params, seed, period)
        time = traffic.entry[vehicles] + PERIOD * number
        kind = np.concatenate([np.zeros(len(vehicles), np.int64), kinds])
        of = np.concatenate([np.arange(len(vehicles)), asking])  # the report each event belongs to
        order = np.argsort((time[of] * len(traffic) + vehicles[of]) * 8 + kind)
        kind, of = kind[order], of[order]
        direction = traffic.dir[vehicles]
        if not reports_only and params["invalid_ratio"] > 0:
            invalid = traffic.draws("lr.invalid", vehicles, number).chance(0, params["invalid_ratio"])
            direction = np.where(invalid, 2, direction)
        fields = {**traffic.positions(vehicles, number), "xway": traffic.xway[vehicles], "dir": direction}
        ts = repetition * params.get("seconds", PARAMS["seconds"].default) + time
        values_of = {"ts": ts[of], "type": kind, "vid": vehicles[of]}
        values_of |= {name: np.where(kind == REPORT, values[of], UNUSED) for name, values in fields.items()}
        values_of["xway"] = np.where(kind == BALANCE, UNUSED, fields["xway"][of])
        if "qid" in columns:
            values_of |= _requests(traffic, kind, vehicles[of], number[of])
        return {name: values_of[name] for name in ("ts", *columns)}

    return by_period(make, count)


def _requests(traffic: Road, kind: np.ndarray, vehicles: np.ndarray, number: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns that only requests have."""
    draws = traffic.draws("lr.asked", vehicles, number)

    def only(which: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.where(which, values, UNUSED)

    return {
        "qid": only(kind != REPORT, vehicles * REPORTS + number),
        "s_init": only(kind == TRAVEL, draws.below(0, SEGMENTS)),
        "s_end": only(kind == TRAVEL, draws.below(1, SEGMENTS)),
        "dow": only(kind == TRAVEL, 1 + draws.below(2, 7)),
        "tod": only(kind == TRAVEL, 1 + draws.below(3, 24 * 60)),
        "day": only(kind == EXPENDITURE, 1 + draws.below(4, DAYS)),
    }


# --- position reports alone -------------------------------------------------------------------------------------------

_reports = events("vid", "pos", "speed", "xway", "lane", "dir", "seg", reports_only=True)


def position_reports(params: dict, seed: int, start: int, stop: int) -> dict[str, np.ndarray]:
    """Make position reports: independent draws, or the reports of Linear Road's vehicles (workloads A.4).

    With `input` zipf (CHOICE-25), segments follow Zipf's law, and all other fields are uniform. The parameters are
    segments, theta, vehicles, max_speed and reports_per_s. With `input` linear_road, they are veh_per_s and seconds. In
    both cases, a share of invalid_ratio has a speed of -1.
    """
    if params["input"] == "linear_road":
        columns = _reports(params, seed, start, stop)
    else:
        draws = Draws(seed, "tp.reports", start, stop)
        seg = zipf(params["segments"], params["theta"]).pick(draws.u53(0))
        columns = {
            "ts": np.arange(start, stop) // params["reports_per_s"],
            "vid": draws.below(2, params["vehicles"]),
            "pos": seg * SEGMENT + draws.below(3, SEGMENT),
            "speed": draws.below(1, params["max_speed"] + 1),
            "xway": np.zeros(stop - start, np.int64),
            "lane": 1 + draws.below(4, 3),
            "dir": draws.below(5, 2),
            "seg": seg,
        }
    if params["invalid_ratio"] > 0:
        invalid = Draws(seed, "tp.invalid", start, stop).chance(0, params["invalid_ratio"])
        columns = {**columns, "speed": np.where(invalid, -1, columns["speed"])}
    return columns
