"""Linear Road's events against the rules of a road: positions follow from speeds; lanes, accidents, requests."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from streaming_core import generator
from streaming_core.errors import BadInput
from streaming_core.generator import linear_road
from streaming_core.generator.linear_road import BALANCE, DAYS, EXPENDITURE, PARAMS, PERIOD, REPORT, SEGMENT, TRAVEL
from tests.support.draws import some

ALL = (
    "type", "vid", "speed", "xway", "lane", "dir", "seg", "pos", "qid", "s_init", "s_end", "dow", "tod", "day",
)  # fmt: skip
ROADS = [
    {"seconds": 1_200, "veh_per_s": 5.0, "request_ratio": 1.0, "no_type4": True},
    {"seconds": 3_600, "veh_per_s": 4.0, "request_ratio": 0.05},
    {"seconds": 3_610, "veh_per_s": 1.5, "xways": 3, "congestion": True},
    {"seconds": 121, "veh_per_s": 2.0, "request_ratio": 0.0, "accidents": False},
]


def full(params):
    return {name: param.default for name, param in PARAMS.items()} | params


def repetition(params, seed=5, columns=ALL, number=0):
    """All events of one repetition, column -> int64 array."""
    params, generate = full(params), linear_road.events(*columns)
    reports = int(linear_road.road(params, seed).reports.sum())
    events = generate(params, seed, 0, (number + 1) * 2 * reports + 1)
    inside = events["ts"] // params["seconds"] == number
    assert events["ts"][-1] // params["seconds"] > number  # it is whole
    return {name: values[inside] for name, values in events.items()}


def by_vehicle(events):
    """vid -> its reports, column -> array, in order."""
    reports = events["type"] == REPORT
    order = np.argsort(events["vid"][reports], kind="stable")
    columns = {name: values[reports][order] for name, values in events.items()}
    starts = np.flatnonzero(np.diff(columns["vid"], prepend=-1))
    return {
        int(columns["vid"][a]): {name: values[a:b] for name, values in columns.items()}
        for a, b in zip(starts, [*starts[1:], None], strict=True)
    }


def stopped(vehicle):
    """Marks the reports of a vehicle in runs of at least four at the same position."""
    same = (np.diff(vehicle["pos"]) == 0) & (np.diff(vehicle["lane"]) == 0)
    marked = np.zeros(len(vehicle["pos"]), bool)
    run = 0
    for i, equal in enumerate([*same.tolist(), False]):
        if equal:
            run += 1
        else:
            if run >= 3:
                marked[i - run : i + 1] = True
            run = 0
    return marked


@pytest.mark.parametrize("params", some(ROADS))
def test_reports_come_from_vehicles_on_a_road(params):
    events = repetition(params)
    assert (np.diff((events["ts"] * (1 << 20) + events["vid"]) * 8 + events["type"]) > 0).all()
    assert (events["ts"].min(), events["ts"].max()) >= (0, full(params)["seconds"] - PERIOD)
    vehicles = by_vehicle(events)
    assert list(vehicles) == list(range(len(vehicles)))
    assert len(vehicles) == len(linear_road.road(full(params), 5))
    for vehicle in vehicles.values():
        assert len(vehicle["ts"]) >= 2
        assert (np.diff(vehicle["ts"]) == PERIOD).all()
        assert (vehicle["lane"][0], vehicle["lane"][-1]) == (0, 4)
        assert set(vehicle["lane"][1:-1].tolist()) <= {1, 2, 3}
        assert (vehicle["seg"] == vehicle["pos"] // SEGMENT).all()
        assert vehicle["pos"].min() >= 0
        assert vehicle["pos"].max() < 100 * SEGMENT
        assert len(set(vehicle["dir"].tolist())) == len(set(vehicle["xway"].tolist())) == 1
        # Except for the report at which it stops, a vehicle travels its speed between reports.
        travelled = np.diff(vehicle["pos"]) * (1 - 2 * vehicle["dir"][0])
        stands = stopped(vehicle)
        stops = stands[1:] & ~stands[:-1]
        assert (travelled == vehicle["speed"][1:] * 44)[~stops].all()
        assert ((travelled >= 0) & (travelled <= 65 * 44))[stops].all()
        assert (vehicle["speed"][stands] == 0).all()
        assert vehicle["speed"][~stands].min() >= 7
        assert vehicle["speed"][~stands].max() <= 65
    everything = {name: np.concatenate([v[name] for v in vehicles.values()]) for name in ("dir", "xway", "lane")}
    assert set(everything["xway"].tolist()) == set(range(full(params)["xways"]))
    assert abs(everything["dir"].mean() - 0.5) < 0.1


def test_trips_end_in_their_exit_segment_or_at_the_end_of_time():
    params = {"seconds": 7_200, "veh_per_s": 1.0, "accidents": False}
    vehicles = by_vehicle(repetition(params)).values()
    ended = [v for v in vehicles if v["ts"][-1] + PERIOD < 7_200]
    assert len(ended) > len(vehicles) // 2
    segments = np.array([abs(int(v["seg"][-1]) - int(v["seg"][0])) for v in ended])
    assert segments.min() == 2
    assert segments.max() > 60
    # The report before the last was from the segment before the exit's, and so is in a travel lane.
    assert all(abs(int(v["seg"][-1]) - int(v["seg"][-2])) == 1 for v in ended)
    first = Counter((int(v["dir"][0]), int(v["seg"][0])) for v in vehicles)
    assert {segment for direction, segment in first if direction == 0} <= set(range(98))
    assert {segment for direction, segment in first if direction == 1} <= set(range(2, 100))
    assert len(first) > 190


def test_a_third_of_the_reports_are_from_a_new_segment():
    reports = linear_road.events("vid", "xway", "seg", reports_only=True)(full({}), 1, 0, 1_000_000)
    order = np.argsort(reports["vid"], kind="stable")
    vid, seg = reports["vid"][order], reports["seg"][order]
    new = (np.diff(vid, prepend=-1) != 0) | (np.diff(seg, prepend=-1) != 0)
    assert abs(new.mean() - 0.34) < 0.01


def test_types_occur_in_the_published_proportions():
    kind = linear_road.events("type")(full({}), 1, 0, 500_000)["type"]
    share = np.bincount(kind, minlength=5) / len(kind)
    assert np.allclose(share, [1 / 1.01, 0, 0.005 / 1.01, 0.001 / 1.01, 0.004 / 1.01], rtol=0.06)
    assert share[1] == 0


@pytest.mark.parametrize("params", some(ROADS))
def test_requests_accompany_a_report_and_fill_the_fields_of_their_type(params):
    events = repetition(params)
    reports = set(zip(*(events[n][events["type"] == REPORT].tolist() for n in ("ts", "vid")), strict=True))
    xway = dict(zip(*(events[n][events["type"] == REPORT].tolist() for n in ("vid", "xway")), strict=True))
    is_request = events["type"] != REPORT
    assert len(set(events["qid"][is_request].tolist())) == is_request.sum()
    place, travel = {"speed", "lane", "dir", "seg", "pos"}, {"s_init", "s_end", "dow", "tod"}
    has = {
        REPORT: place | {"xway"},
        BALANCE: {"qid"},
        EXPENDITURE: {"qid", "xway", "day"},
        TRAVEL: {"qid", "xway"} | travel,
    }
    bounds = {"day": (1, DAYS), "s_init": (0, 99), "s_end": (0, 99), "dow": (1, 7), "tod": (1, 1440)}
    for kind, names in has.items():
        rows = {name: values[events["type"] == kind] for name, values in events.items()}
        for name in set(ALL) - {"type", "vid"}:
            low, high = bounds.get(name, (0, 1 << 40))
            assert ((rows[name] >= low) & (rows[name] <= high)).all() if name in names else (rows[name] == -1).all()
        assert set(zip(rows["ts"].tolist(), rows["vid"].tolist(), strict=True)) <= reports
        if kind in (EXPENDITURE, TRAVEL):
            assert rows["xway"].tolist() == [xway[vid] for vid in rows["vid"].tolist()]
    ratio = full(params)["request_ratio"] * (0.6 if full(params)["no_type4"] else 1)
    assert abs(is_request.sum() / (~is_request).sum() - ratio) < 0.01
    assert (TRAVEL in events["type"]) == (ratio > 0 and not full(params)["no_type4"])


@pytest.mark.parametrize("params", ROADS[1:3])
@pytest.mark.slow
def test_an_accident_is_two_vehicles_standing_at_one_position(params):
    events = repetition(params)
    places = defaultdict(list)
    for vid, vehicle in by_vehicle(events).items():
        stands = stopped(vehicle)
        if stands.any():
            assert 20 <= stands.sum() <= 40
            assert set(vehicle["lane"][stands].tolist()) <= {1, 2, 3}
            [place] = {
                tuple(int(vehicle[name][i]) for name in ("xway", "lane", "dir", "pos")) for i in np.flatnonzero(stands)
            }
            places[place].append((vid, vehicle["ts"][stands]))
            assert not stands[-1]  # they resume
    params = full(params)
    per_xway = Counter(place[0] for place in places)
    for xway in range(params["xways"]):  # after 5 to 15 minutes each, and over within the simulation
        assert 2 <= per_xway[xway] <= params["seconds"] // 300
    for involved in places.values():
        (_, first), (_, second) = sorted(involved, key=lambda standing: standing[1][0])
        assert first[0] < second[0]
        assert second[3] <= first[-1]  # by its fourth report the other still stands
        assert len(first) == len(second)
    without = by_vehicle(repetition({**params, "accidents": False}))
    assert not any(stopped(vehicle).any() for vehicle in without.values())


def test_congestion_reduces_speed_by_two_fifths_in_the_middle_third():
    params = {"seconds": 3_600, "veh_per_s": 2.0, "accidents": False}
    free, dense = (repetition({**params, "congestion": congestion}) for congestion in (False, True))
    means = []
    for events in (free, dense):
        middle = (events["ts"] >= 1200) & (events["ts"] < 2400)
        reports = events["type"] == REPORT
        means.append((events["speed"][middle & reports].mean(), events["speed"][~middle & reports].mean()))
    assert abs(means[0][0] - means[0][1]) < 2
    assert abs(means[1][0] / means[0][0] - 0.6) < 0.03


def test_vehicles_arrive_on_a_ramp_as_a_poisson_process():
    rate, seconds, seed = 3.0, 600, 9
    arrivals = linear_road._arrivals(seed, 2, seconds, rate)
    assert arrivals.shape == (seconds - PERIOD, 2)
    for second in (0, 17, 300, 569):
        mean = rate * (0.2 + 0.8 * round(math.sin(math.pi * second / seconds), 6))
        for xway in range(2):
            u = int(generator.Draws(seed, "lr.arrivals", units=np.array([second * 256 + xway])).u53(0)[0]) / 2**53
            k, cumulated = 0, math.exp(-mean)
            while u >= cumulated:
                k += 1
                cumulated += math.exp(-mean) * mean**k / math.factorial(k)
            assert arrivals[second, xway] == k
    many = linear_road._arrivals(1, 250, 300, 80.0)
    middle = many[140:160]
    assert abs(middle.mean() - 80) < 0.5
    assert abs(middle.var() - 80) < 3


@pytest.mark.slow
def test_the_road_repeats_after_its_duration():
    params = ROADS[1]
    first, second = repetition(params), repetition(params, number=1)
    assert (second["ts"] == first["ts"] + full(params)["seconds"]).all()
    assert all((first[name] == second[name]).all() for name in ALL)


def test_invalid_reports_have_an_unknown_direction():
    events, right = repetition({**ROADS[0], "invalid_ratio": 0.1}), repetition(ROADS[0])
    wrong = events["dir"] == 2
    assert abs(wrong[events["type"] == REPORT].mean() - 0.1) < 0.01
    assert (events["dir"] == right["dir"])[~wrong].all()
    assert all((events[name] == right[name]).all() for name in ALL if name != "dir")


def test_an_oversized_road_is_refused():
    with pytest.raises(BadInput, match=r"xways \* seconds \* veh_per_s must be at most 8388608, got 250 \* 86400"):
        linear_road.road(full({"xways": 250, "seconds": 86_400}), 1)
