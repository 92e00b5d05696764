"""Items and parameters that the tests of several queries share."""

from streaming_core.generator import bigbench


def of_category(params, *numbers):
    """The first items of these categories."""
    categories = bigbench.categories(params).tolist()
    return [item for item in range(1, len(categories)) if categories[item] in numbers]


def click(ts, user, item, sales=-1, page=1):
    return {"ts": ts, "user_sk": user, "item_sk": item, "sales_sk": sales, "web_page_sk": page}


def sessions_of(events, timeout, keep):
    """(cause, clicks) of every session in the order in which it closes; open ones close at the end, by user."""
    closed, opened = [], {}
    for e in events:
        if not keep(e):
            continue
        last = opened.get(e["user_sk"])
        if last and e["ts"] - last[-1]["ts"] > timeout:
            closed.append((e["seq"], last))
            opened[e["user_sk"]] = [e]
        else:
            opened.setdefault(e["user_sk"], []).append(e)
    return closed + [(len(events), opened[user]) for user in sorted(opened)]


def best(counts, limit):
    """((a, b), n): most frequent first, then by the pair."""
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]
