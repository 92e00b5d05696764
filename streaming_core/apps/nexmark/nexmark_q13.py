"""NEXMark query 13: each bid with a value of a side table, whose key is the auction modulo 10,000."""

import numpy as np

from streaming_core.api import App, text
from streaming_core.generator import nexmark

app = App("nexmark_q13", params=nexmark.PARAMS, reads="NEXMark, query 13")
bids = nexmark.streams(app).bids


@app.constant
def side_input(params):
    """Return the value of each key: NEXMark's side input has the keys themselves."""
    return np.arange(10_000)


value = (text, lambda bid: str(side_input[bid.auction % 10_000]))
bids.select("auction", "bidder", "price", "ts", value=value).sink()
