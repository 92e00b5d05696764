"""NEXMark query 13: each bid with a value of a side table, whose key is the auction modulo 10,000."""

import numpy as np

from streaming_core.api import App, i64, record, text
from streaming_core.generator import nexmark

app = App("nexmark_q13", params=nexmark.PARAMS, reads="NEXMark, query 13")
bids = nexmark.streams(app).bids


@record
class Side:
    """The side table."""

    key: i64
    value: text


def side_input(params):
    """Return NEXMark's side input, whose values are the keys."""
    return {"key": np.arange(10_000), "value": [str(key) for key in range(10_000)]}


side = app.lookup_table(Side, key="key", rows=side_input)
keyed = bids.select("auction", "bidder", "price", "ts", key=(i64, lambda bid: bid.auction % 10_000))
keyed.lookup(side, on="key").select("auction", "bidder", "price", "ts", "value").sink()
