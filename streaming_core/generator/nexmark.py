"""NEXMark's three streams: the people, auctions and bids of an auction site.

Of 50 consecutive events, the first is a person, the next three are auctions, and 46 are bids. Proportions, hot keys and
prices are those of NEXMark, as github.com/nexmark/nexmark publishes them (NexmarkConfiguration, and the generators of
its events):

- Half of the bids are for a hot auction, the first of the last hundred. Others are for one of the last hundred, or of
  ten that do not exist yet.
- Three of four auctions have a hot seller, the first of the last hundred people. Three of four bids have a hot
  bidder, the second of them. Others are among the last thousand people, or ten more that do not exist yet.
- A price is 10^x dollars in cents, with x uniform between 0 and 6.
- An auction ends after a uniform time, on average that of a hundred auctions.
- Half of the bids come through one of four channels, the others through one of ten thousand.
- The texts `extra` fill rows to 200, 500 and 100 bytes on average, 20 % more or less.

The number of a row in its stream addresses its draws. Names of people and streets of the web are Lockstep's own.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_core.api import App, Param, i64, record, text
from streaming_core.generator.distributions import exponential
from streaming_core.generator.draws import Draws
from streaming_core.generator.periods import Columns
from streaming_core.generator.tokens import Tokens

BEGIN = 1_436_918_400_000  # 2015-07-15T00:00:00Z
PEOPLE, AUCTIONS, EVENTS = 1, 3, 50  # of 50 consecutive events
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1_000, 10, 5
HOT, IN_FLIGHT, ACTIVE, AHEAD = 100, 100, 1_000, 10
CHANNELS = 10_000
NAMES = [
    b"Ada",
    b"Alan",
    b"Barbara",
    b"Dennis",
    b"Edsger",
    b"Frances",
    b"Grace",
    b"Jim",
    b"John",
    b"Leslie",
    b"Niklaus",
]
SURNAMES = [b" Allen", b" Backus", b" Dijkstra", b" Gray", b" Hopper", b" Lamport", b" Liskov", b" Turing", b" Wilkes"]
CITIES = [b"Bend", b"Boise", b"Cheyenne", b"Kent", b"Los Angeles", b"Phoenix", b"Portland", b"Redmond", b"Seattle"]
STATES = [b"AZ", b"CA", b"ID", b"OR", b"WA", b"WY"]
# A random byte stands for a letter, or in one of 13 cases for a character between words.
LETTERS = np.frombuffer((bytes(range(97, 123)) * 10)[:236], np.uint8)


@record
class Person:
    """A person who sells or bids, at a time in ms."""

    id: i64
    name: text
    email_address: text
    credit_card: text
    city: text
    state: text
    ts: i64
    extra: text


@record
class Auction:
    """An auction that begins at `ts` and ends at `expires`, in ms; prices are in cents."""

    id: i64
    item_name: text
    description: text
    initial_bid: i64
    reserve: i64
    ts: i64
    expires: i64
    seller: i64
    category: i64
    extra: text


@record
class Bid:
    """A bid of a person for an auction, at a time in ms; the price is in cents."""

    auction: i64
    bidder: i64
    price: i64
    channel: text
    url: text
    ts: i64
    extra: text


if TYPE_CHECKING:
    from streaming_core.api import Stream

PARAMS = {"interval": Param(100, "microseconds from one event to the next", minimum=1, maximum=10**12)}


class Streams(NamedTuple):
    """The sources of a query."""

    people: "Stream[Person]"
    auctions: "Stream[Auction]"
    bids: "Stream[Bid]"


def streams(app: App) -> Streams:
    """Declare the sources of a query.

    All queries have the same three sources, so that one import of NEXMark's data serves all of them.
    """
    app.generates(people, auctions, bids)
    return Streams(*app.sources(Person, Auction, Bid))


def people(params: dict[str, Any], seed: int, start: int, stop: int) -> Columns:
    """Make people start..stop-1."""
    draws, row = Draws(seed, "nexmark.people", start, stop), np.arange(start, stop)
    tokens = _tokens()
    first = tokens.first
    name = [first["names"] + draws.below(0, len(NAMES)), first["surnames"] + draws.below(1, len(SURNAMES))]
    blank = np.full(len(row), first["blank"])
    card = [first["numbers"] + draws.below(d, 10_000) for d in range(2, 6)]
    columns = {
        "name": tokens.lines(name),
        "email_address": _joined(_letters(draws, 8, 7), b"@", _letters(draws, 10, 5), b".com"),
        "credit_card": tokens.lines([card[0], blank, card[1], blank, card[2], blank, card[3]]),
        "city": _pick(CITIES, draws.below(6, len(CITIES))),
        "state": _pick(STATES, draws.below(7, len(STATES))),
    }
    return {
        "id": FIRST_ID + row,
        **columns,
        "ts": _time(params, row * EVENTS),
        "extra": _extra(draws, 12, 200 - 8, columns.values()),
    }


def auctions(params: dict[str, Any], seed: int, start: int, stop: int) -> Columns:
    """Make auctions start..stop-1."""
    draws, row = Draws(seed, "nexmark.auctions", start, stop), np.arange(start, stop)
    person = row // AUCTIONS
    event = person * EVENTS + PEOPLE + row % AUCTIONS
    ts = _time(params, event)
    length = _time(params, event + IN_FLIGHT * EVENTS // AUCTIONS) - ts
    initial = _price(draws, 0)
    item, description = _letters(draws, 8, 20, b" "), _letters(draws, 12, 100, b" ")
    return {
        "id": FIRST_ID + row,
        "item_name": item,
        "description": description,
        "initial_bid": initial,
        "reserve": initial + _price(draws, 1),
        "ts": ts,
        "expires": ts + 1 + draws.below(2, np.maximum(length * 2, 1)),
        "seller": FIRST_ID + np.where(draws.below(3, 4) > 0, person // HOT * HOT, _person(draws, 4, person)),
        "category": FIRST_CATEGORY + draws.below(5, CATEGORIES),
        "extra": _extra(draws, 30, 500 - 48, [item, description]),
    }


def bids(params: dict[str, Any], seed: int, start: int, stop: int) -> Columns:
    """Make bids start..stop-1."""
    draws, row = Draws(seed, "nexmark.bids", start, stop), np.arange(start, stop)
    person, place = np.divmod(row, EVENTS - PEOPLE - AUCTIONS)
    last = person * AUCTIONS + AUCTIONS - 1
    oldest = np.maximum(last - IN_FLIGHT, 0)
    other = oldest + draws.below(1, last - oldest + 1 + AHEAD)
    bidder = np.where(draws.below(2, 4) > 0, person // HOT * HOT + 1, _person(draws, 3, person))
    channel = np.where(draws.below(4, 2) > 0, draws.below(5, 4), 4 + draws.below(5, CHANNELS))
    names, urls = _channels()
    return {
        "auction": FIRST_ID + np.where(draws.below(0, 2) > 0, last // HOT * HOT, other),
        "bidder": FIRST_ID + bidder,
        "price": _price(draws, 6),
        "channel": names.take(pa.array(channel)),
        "url": urls.take(pa.array(channel)),
        "ts": _time(params, person * EVENTS + PEOPLE + AUCTIONS + place),
        "extra": _extra(draws, 8, 100 - 32, []),
    }


def _time(params: dict[str, Any], event: np.ndarray) -> np.ndarray:
    """Return the `ts` of each event."""
    return BEGIN + event * params["interval"] // 1_000


def _person(draws: Draws, d: int, last: np.ndarray) -> np.ndarray:
    """Draw a person among the active ones, or among a few that come later."""
    active = np.minimum(last + 1, ACTIVE)
    return last + 1 - active + draws.below(d, active + AHEAD)


def _price(draws: Draws, d: int) -> np.ndarray:
    """Draw prices in cents: 10^x dollars, x uniform from 0 to 6."""
    return np.rint(exponential(draws.u53(d) * (6 * 2.302585092994046 / (1 << 53))) * 100).astype(np.int64)


def _letters(draws: Draws, d: int, most: int, between: bytes = b"") -> pa.Array:
    """Draw texts of 3 to `most` - 1 characters: letters, and in one of 13 places the character `between`."""
    return _written(draws, d + 1, 3 + draws.below(d, most - 3), most, between)


def _extra(draws: Draws, d: int, average: int, columns: Iterable[pa.Array]) -> pa.Array:
    """Draw texts that fill a row with these columns to an average number of bytes, 20 % more or less."""
    used = sum(np.diff(np.frombuffer(column.buffers()[1], np.int32)) for column in columns)
    rest = np.maximum(average - used, 0) * np.ones(len(draws), np.int64)
    sizes = rest - rest // 5 + draws.below(d, np.maximum(rest * 2 // 5, 1))
    return _written(draws, d + 1, sizes, average * 6 // 5 + 1, b"")


def _written(draws: Draws, d: int, sizes: np.ndarray, most: int, between: bytes) -> pa.Array:
    """Write texts of these sizes; each draw from `d` on gives eight characters."""
    bits = np.stack([draws.bits(d + number) for number in range(-(-most // 8))], axis=1)
    table = np.concatenate([LETTERS, np.frombuffer((between or b"etaoin") * 20, np.uint8)[: 256 - len(LETTERS)]])
    letters = table[bits.view(np.uint8).reshape(len(sizes), -1)]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    data = letters[np.arange(letters.shape[1]) < sizes[:, None]]
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _pick(values: list[bytes], numbers: np.ndarray) -> pa.Array:
    return pa.array(values, pa.binary()).take(pa.array(numbers))


def _joined(left: pa.Array, at: bytes, right: pa.Array, end: bytes) -> pa.Array:
    """Join two columns of texts and two texts."""
    return pc.binary_join_element_wise(left, pa.scalar(at), right, pa.scalar(end), b"")


@lru_cache(maxsize=1)
def _tokens() -> Tokens:
    """Return the parts of names and of credit cards."""
    numbers = [b"%04d" % number for number in range(10_000)]
    return Tokens(names=NAMES, surnames=SURNAMES, numbers=numbers, blank=[b" "])


@lru_cache(maxsize=1)
def _channels() -> tuple[pa.Array, pa.Array]:
    """Return the names and the addresses of all channels, first those of the four hot ones."""
    draws = Draws(0, "nexmark.channels", 0, 4 + CHANNELS)
    streets = zip(*(_letters(draws, d, 5, b"_").to_pylist() for d in (0, 2, 4)), strict=True)
    addresses = [b"https://www.nexmark.com/%s/item.htm?query=1" % b"/".join(three) for three in streets]
    names = [b"Google", b"Facebook", b"Baidu", b"Apple", *(b"channel-%d" % number for number in range(CHANNELS))]
    is_told = draws.below(6, 10) > 0
    for number in np.flatnonzero(is_told[4:]).tolist():
        addresses[4 + number] += b"&channel_id=%d" % (int(f"{number:032b}"[::-1], 2) % (1 << 31))
    return pa.array(names, pa.binary()), pa.array(addresses, pa.binary())
