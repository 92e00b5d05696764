"""NEXMark query 21: the number of each bid's channel, from its name or from the address of the page."""

from streaming_core.api import App, i64, record, text
from streaming_core.generator import nexmark

app = App("nexmark_q21", params=nexmark.PARAMS, reads="NEXMark, query 21")
bids = nexmark.streams(app).bids


@record
class Channel:
    """A bid and the number of its channel."""

    auction: i64
    bidder: i64
    price: i64
    channel: text
    channel_id: text


def with_number(bid, out):
    """Emit a bid whose channel has a number."""
    name = bid.channel.lower()
    if name in ("apple", "google", "facebook", "baidu"):
        number = "0" if name == "apple" else "1" if name == "google" else "2" if name == "facebook" else "3"
        out.emit(bid, channel_id=number)
    else:
        for part in bid.url.split("&"):
            if part.startswith("channel_id="):
                out.emit(bid, channel_id=part[len("channel_id=") :])
                return


bids.flat_map(with_number, Channel).sink()
