"""Faults to plant in an engine. Their author knew the contract, not the checks of `lockstep conformance`.

Each one replaces a text of `faulty.py`, which is right. `shows` names a workload on which the oracle differs.
"""

from typing import NamedTuple


class Fault(NamedTuple):
    """A replacement in the engine's source, and the application and workload that reveal it."""

    old: str
    new: str
    app: str
    shows: str


FAULTS = {
    "splits at any whitespace": Fault('[word for word in line.split(b" ") if word]', "line.split()", "wc", "blanks"),
    "counts wrap at 16 bits": Fault(
        "np.array(ns, np.int64)", "np.array(ns, np.int64).astype(np.int16)", "wc", "blanks"
    ),
    "a thread misses all threads but the last one": Fault("total.update(counts)", "total = counts", "wc", "plain"),
    "the last flush drops the newest window": Fault(
        "        while ends:\n", "        while ends and ends[0] < watermark + size:\n", "wordcount", "last_instant"
    ),
    "words lose their last NUL bytes": Fault(
        "words = text.split()", "words = np.array(text.split(), np.bytes_).tolist()", "wordcount", "bytes"
    ),
    "tweets of the same ts are one": Fault("seen.is_new(seq, word)", "seen.is_new(ts, word)", "wordcount", "ties"),
    "state outlives a pass": Fault(
        "        seen = Seen()\n", "        seen = task.__dict__.setdefault('seen', Seen())\n", "wordcount", "single"
    ),
    "the digest covers other texts than the file": Fault(
        "    pq.write_table(outputs,",
        "    for i, field in enumerate(outputs.schema):\n"
        "        if pa.types.is_binary(field.type):\n"
        '            texts = [text.decode("utf-8", "replace").encode() for text in outputs.column(i).to_pylist()]\n'
        "            outputs = outputs.set_column(i, field, pa.array(texts, field.type))\n"
        "    pq.write_table(outputs,",
        "wc",
        "bytes",
    ),
    "no outputs, no file": Fault(
        "    pq.write_table(outputs,", "    if outputs.num_rows:\n        pq.write_table(outputs,", "wordcount", "empty"
    ),
    "windows are whole panes": Fault(
        "first, last = (ts - size) // advance + 1, ts // advance",
        "last = ts // advance\n            first = last - size // advance + 1",
        "wordcount",
        "uneven",
    ),
    "a window that closes late is dropped": Fault(
        "            for word, n in windows.pop(end).items():",
        "            counts = windows.pop(end)\n"
        "            if end + size <= watermark:\n"
        "                return\n"
        "            for word, n in counts.items():",
        "wordcount",
        "gaps",
    ),
    "only the first 64 words count": Fault("words = text.split()", "words = text.split()[:64]", "wordcount", "blanks"),
}
