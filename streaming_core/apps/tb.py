"""Trip booking: reserves seats on two flights and rooms in a hotel, all of them or none.

    trips (transaction: two rows of one table and one of another) -> sink

The application is Lockstep's own. It tests conditions over many rows, and rejections that must leave no effect. Demand
exceeds supply, so most events are rejected.

- A BOOK wants `party` seats on each of two flights, and a room for two people each, for `nights`. It needs enough seats
  and rooms, and a total cost, at current prices, within the budget: one condition over rows of two tables. Each sale
  raises a price by `rise` per seat or room.
- A CANCEL returns as many seats and rooms, if as many were taken.

The output holds the total cost of a booking, and how much was taken of each row before the event.

An event is invalid if its kind is unknown or if a flight or hotel does not exist. It is also invalid if both flights
are the same, the party is empty, or the budget is negative.
"""

from collections import Counter

import numpy as np

from streaming_core.api import App, Param, Profile, boolean, burn, i64, record, u8, u32
from streaming_core.errors import BadInput
from streaming_core.generator import Draws, Keys

app = App(
    "tb",
    reads="Lockstep's own: conditions over rows of two tables, and many aborts",
    params={
        "n_flights": Param(1_000, "number of flights", minimum=1, maximum=100_000_000),
        "n_hotels": Param(1_000, "number of hotels", minimum=1, maximum=100_000_000),
        "seats": Param(200, "seats per flight", minimum=0, maximum=10**15),
        "rooms": Param(200, "rooms per hotel", minimum=0, maximum=10**15),
        "rise": Param(1, "price increase per seat or room sold", minimum=0, maximum=10**6),
        "max_budget": Param(2_000, "upper bound of budgets, exclusive", minimum=1, maximum=10**9),
        "cancel_ratio": Param(0.25, "share of cancellations", minimum=0.0, maximum=1.0),
        "work": Param(0, "rounds of extra work per changed flight or hotel", minimum=0, maximum=1_000_000),
        "theta": Param(0.6, "Zipf exponent of flights and hotels", minimum=0.0, maximum=4.0),
        "invalid_ratio": Param(0.0, "share of events with a negative budget", minimum=0.0, maximum=1.0),
    },
    profiles={
        "tb-rush": Profile("all events use 20 flights and 10 hotels", {"n_flights": 20, "n_hotels": 10}),
        "tb-calm": Profile(
            "enough seats and rooms: nothing is rejected",
            {"seats": 10**9, "rooms": 10**9, "rise": 0, "max_budget": 10**9, "cancel_ratio": 0.0},
        ),
    },
)
p = app.params
BOOK = 0
CANCEL = 1
OWN = 0  # seed of the data that is the same in every workload


@record
class Request:
    """A booking or cancellation: two flights, a hotel, the size of the party, the nights, and the budget."""

    ts: i64
    kind: u8
    party: u8
    nights: u8
    out: u32
    back: u32
    hotel: u32
    budget: i64


@record
class Stock:
    """A flight or hotel: how many seats or rooms it has, how many are taken, and the price of the next one."""

    capacity: i64
    taken: i64
    price: i64


@record
class Answer:
    """The outcome of an event: the cost of a booking, and how much was taken of each row before the event."""

    kind: u8
    ok: boolean
    cost: i64
    out: i64
    back: i64
    rooms: i64


def flights_offered(key, params):
    """Return the columns of the flights before the first event; fares lie between 50 and 149."""
    return {"capacity": params["seats"], "price": 50 + Draws(OWN, "tb.fares", units=key).below(0, 100)}


def hotels_offered(key, params):
    """Return the columns of the hotels before the first event; rates lie between 30 and 129."""
    return {"capacity": params["rooms"], "price": 30 + Draws(OWN, "tb.rates", units=key).below(0, 100)}


flights = app.table("flights", Stock, "n_flights", flights_offered)
hotels = app.table("hotels", Stock, "n_hotels", hotels_offered)


def rooms_for(request):
    """Return the number of rooms for a party: one for each two people."""
    return (request.party + 1) // 2


def price_of(out, back, hotel, request):
    """Return the cost of a trip at these prices."""
    return (out.price + back.price) * request.party + hotel.price * rooms_for(request) * request.nights


def seats_left(flight, request):
    """Tell whether a flight has enough seats for the party."""
    return flight.capacity - flight.taken >= request.party


def rooms_left(hotel, request):
    """Tell whether a hotel has enough rooms for the party."""
    return hotel.capacity - hotel.taken >= rooms_for(request)


def affordable(out, back, hotel, request):
    """Tell whether the trip costs no more than the budget."""
    return price_of(out, back, hotel, request) <= request.budget


def were_taken(out, back, hotel, request):
    """Tell whether at least as many seats and rooms are taken as the cancellation returns."""
    return min(out.taken, back.taken) >= request.party and hotel.taken >= rooms_for(request)


def sell_seats(flight, request):
    """Take seats of a flight, which raises its fare."""
    flight.taken += request.party
    flight.price += p.rise * request.party
    if p.work > 0:
        flight.taken += burn(flight.taken, p.work)


def sell_rooms(hotel, request):
    """Take rooms of a hotel, which raises its rate."""
    hotel.taken += rooms_for(request)
    hotel.price += p.rise * rooms_for(request)
    if p.work > 0:
        hotel.taken += burn(hotel.taken, p.work)


def return_seats(flight, request):
    """Return seats of a flight, which lowers its fare."""
    flight.taken -= request.party
    flight.price -= p.rise * request.party
    if p.work > 0:
        flight.taken += burn(flight.taken, p.work)


def return_rooms(hotel, request):
    """Return rooms of a hotel, which lowers its rate."""
    hotel.taken -= rooms_for(request)
    hotel.price -= p.rise * rooms_for(request)
    if p.work > 0:
        hotel.taken += burn(hotel.taken, p.work)


@app.transaction(input=Request, output=Answer)
def trips(request, txn):
    """Book or cancel a trip as one transaction, and drop invalid events."""
    known = request.out < p.n_flights and request.back < p.n_flights and request.hotel < p.n_hotels
    if not known or request.out == request.back or request.kind > CANCEL or request.party == 0 or request.budget < 0:
        txn.drop()
        return
    out = txn.row(flights, request.out)
    back = txn.row(flights, request.back)
    hotel = txn.row(hotels, request.hotel)
    if request.kind == BOOK:
        txn.require(seats_left, out)
        txn.require(seats_left, back)
        txn.require(rooms_left, hotel)
        txn.require(affordable, out, back, hotel)
    else:
        txn.require(were_taken, out, back, hotel)
    # The cost of a trip uses the prices before the trip raises them.
    txn.read(out)
    txn.read(back)
    txn.read(hotel)
    if request.kind == BOOK:
        txn.modify(out, sell_seats)
        txn.modify(back, sell_seats)
        txn.modify(hotel, sell_rooms)
    else:
        txn.modify(out, return_seats)
        txn.modify(back, return_seats)
        txn.modify(hotel, return_rooms)


@trips.post
def confirm(request, txn, out):
    """Answer an event with the cost, and with how much was taken before it."""
    cost = 0
    if request.kind == BOOK:
        cost = price_of(txn.result(flights, 0), txn.result(flights, 1), txn.result(hotels, 2), request)
    out.emit(
        kind=request.kind,
        ok=txn.accepted,
        cost=cost,
        out=txn.result(flights, 0).taken,
        back=txn.result(flights, 1).taken,
        rooms=txn.result(hotels, 2).taken,
    )


@app.generates
def requests(params, seed, start, stop):
    """Draw flights and hotels by Zipf's law, all else uniformly; ts is the number of the event."""
    if params["n_flights"] < 2:
        raise BadInput("app tb: a trip takes two flights, so n_flights must be at least 2, got 1")
    draws = Draws(seed, "tb.requests", start, stop)
    keys = Draws(seed, "tb.flights", start, stop)
    whole, single = np.zeros(stop - start, np.int64), np.zeros(stop - start, bool)  # one partition: all of a table
    by_air, by_night = (Keys(params[n], params["theta"], 1, False) for n in ("n_flights", "n_hotels"))
    out = by_air.draw(keys, 0, whole, single, (2, 2))
    back = by_air.draw(keys, 1, whole, single, (2, 2), [out])
    hotel = by_night.draw(keys, 2, whole, single, (1, 1))
    budget = draws.below(3, params["max_budget"])
    if params["invalid_ratio"] > 0:
        invalid = Draws(seed, "tb.invalid", start, stop).chance(0, params["invalid_ratio"])
        budget = np.where(invalid, -1 - budget, budget)
    return {
        "ts": np.arange(start, stop),
        "kind": np.where(draws.chance(4, params["cancel_ratio"]), CANCEL, BOOK),
        "party": 1 + draws.below(1, 4),
        "nights": 1 + draws.below(2, 7),
        "out": out,
        "back": back,
        "hotel": hotel,
        "budget": budget,
    }


VALID = """greatest(out, back) < (SELECT count(*) FROM state_flights) AND hotel < (SELECT count(*) FROM state_hotels)
    AND out <> back AND kind <= 1 AND party > 0 AND budget >= 0"""

# Each row of each event: (seq, name, key, seen, size), and the event's kind and whether it was accepted.
PARTS = """SELECT e.seq, stack(3, 'flights', e.out, o.out, int(e.party), 'flights', e.back, o.back, int(e.party),
    'hotels', e.hotel, o.rooms, int((e.party + 1) DIV 2)) AS (name, key, seen, size), o.kind, o.ok
    FROM outputs o JOIN events e ON o.seq = e.seq"""
STOCK = """SELECT 'flights' AS name, key, capacity, taken FROM state_flights
    UNION ALL SELECT 'hotels', key, capacity, taken FROM state_hotels"""

app.invariant(
    "each valid event has one answer of its kind, and other events have none",
    f"""SELECT coalesce(e.seq, o.seq) AS seq, e.valid, e.kind, o.outputs, o.of_kind FROM
    (SELECT seq, kind, {VALID} AS valid FROM events) e FULL OUTER JOIN
    (SELECT seq, count(*) AS outputs, max(kind) AS of_kind FROM outputs GROUP BY seq) o ON e.seq = o.seq
    WHERE e.seq IS NULL OR coalesce(o.outputs, 0) <> CAST(e.valid AS INT) OR o.of_kind <> e.kind""",
)
app.invariant(
    "the number taken lies between 0 and the capacity",
    f"SELECT * FROM ({STOCK}) WHERE taken NOT BETWEEN 0 AND capacity",
)
app.invariant(
    "an event sees the numbers taken by all events before it, and the final numbers follow from all events",
    f"""WITH parts AS
    (SELECT *, CASE WHEN NOT ok THEN 0 WHEN kind = 0 THEN size ELSE -size END AS moved FROM ({PARTS})),
    sums AS (SELECT *, sum(moved) OVER (PARTITION BY name, key ORDER BY seq) - moved AS before FROM parts)
    SELECT seq, name, key, seen, before FROM sums WHERE seen <> before
    UNION ALL SELECT -1, s.name, s.key, s.taken, coalesce(m.moved, 0) FROM ({STOCK}) s
    LEFT JOIN (SELECT name, key, sum(moved) AS moved FROM parts GROUP BY name, key) m
    ON s.name = m.name AND s.key = m.key WHERE s.taken <> coalesce(m.moved, 0)""",
)
app.invariant(
    "a booking is accepted exactly when stock and budget suffice, a cancellation when as much was taken",
    f"""SELECT d.*, o.cost, e.budget FROM
    (SELECT p.seq, p.kind, bool_and(p.ok) AS ok, bool_and(s.capacity - p.seen >= p.size) AS there,
    bool_and(p.seen >= p.size) AS taken FROM ({PARTS}) p JOIN ({STOCK}) s ON s.name = p.name AND s.key = p.key
    GROUP BY p.seq, p.kind) d JOIN outputs o ON o.seq = d.seq JOIN events e ON e.seq = d.seq
    WHERE d.ok <> IF(d.kind = 0, d.there AND o.cost <= e.budget, d.taken)""",
)


@app.property
def seats_and_rooms_are_those_of_accepted_trips(stream):
    """Flights and hotels lack what accepted bookings took, less what accepted cancellations returned."""
    seats: Counter = Counter()
    rooms: Counter = Counter()
    for row in stream.outputs:
        event = stream.events[row["seq"]]
        party = event["party"] * (0 if not row["ok"] else 1 if row["kind"] == BOOK else -1)
        assert (row["out"], row["back"], row["rooms"]) == (
            seats[event["out"]],
            seats[event["back"]],
            rooms[event["hotel"]],
        )
        seats.update({event["out"]: party, event["back"]: party})
        rooms[event["hotel"]] += (abs(party) + 1) // 2 * (1 if party > 0 else -1)
        assert party <= 0 or seats[event["out"]] <= stream.params["seats"] >= seats[event["back"]]
