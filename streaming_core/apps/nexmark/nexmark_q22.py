"""NEXMark query 22: the first three directories in the address of each bid's page."""

from streaming_core.api import App, text
from streaming_core.generator import nexmark

app = App("nexmark_q22", params=nexmark.PARAMS, reads="NEXMark, query 22")
bids = nexmark.streams(app).bids


def part(url, number):
    """Return a part of an address between two slashes, or an empty text."""
    for step in url.split("/"):
        if number == 0:
            return step
        number -= 1
    return b""


bids.select(
    "auction",
    "bidder",
    "price",
    "channel",
    dir1=(text, lambda bid: part(bid.url, 3)),
    dir2=(text, lambda bid: part(bid.url, 4)),
    dir3=(text, lambda bid: part(bid.url, 5)),
).sink()
