"""NEXMark query 3: who sells in Oregon, Idaho or California, in category 10."""

from streaming_core.api import App
from streaming_core.generator import nexmark

app = App("nexmark_q3", params=nexmark.PARAMS, reads="NEXMark, query 3")
people, auctions, _ = nexmark.streams(app)
items = auctions.filter(lambda auction: auction.category == 10).select("ts", "id", "seller")
sellers = people.filter(lambda person: person.state in ("OR", "ID", "CA")).select("ts", "id", "name", "city", "state")
app.join(items, sellers, on={"seller": "id"}, ttl=None).select("name", "city", "state", "id").sink()
