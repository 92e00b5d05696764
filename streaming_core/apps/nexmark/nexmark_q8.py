"""NEXMark query 8: the people who entered and opened an auction within the same ten seconds."""

from streaming_core.api import App, boolean, i64, record, text, tumbling
from streaming_core.generator import nexmark

app = App("nexmark_q8", params=nexmark.PARAMS, reads="NEXMark, query 8")
people, auctions, _ = nexmark.streams(app)


@record
class Entrance:
    """Whether a person is new, and the name."""

    is_new: boolean
    name: text


@record
class Sale:
    """Whether a person has opened an auction."""

    is_open: boolean


@record
class NewSeller:
    """A person, and the start of the ten seconds."""

    id: i64
    name: text
    ts: i64


def enter(person, window, entrance, sale, out):
    """Note that a person has entered."""
    entrance.is_new = True
    entrance.name = person.name


def open_auction(auction, window, entrance, sale, out):
    """Note that a person has opened an auction."""
    sale.is_open = True


def sellers(window, entrance, sale, out):
    """Emit a person who did both."""
    if entrance.is_new and sale.is_open:
        out.emit(id=window.key.id, name=entrance.name, ts=window.start)


both = app.connect(people, auctions.select("ts", id="seller")).key_by("id").window(tumbling("10s"))
both.apply((enter, open_auction), (Entrance, Sale), NewSeller, sellers).sink()
app.agrees_unordered("id", "name", "ts")
