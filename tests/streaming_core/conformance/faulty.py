"""A small engine in plain Python: wc (order total) and wordcount (order none). `faults.py` plants faults in it."""

from __future__ import annotations

import heapq
import platform
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import lockstep_engine
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from lockstep_engine import Task, main


def table(task: Task, columns: dict[str, list]) -> pa.Table:
    """Outputs with the columns of the task, in its order."""
    arrays = [pa.array(columns[field.name], type=field.type) for field in task.schema]
    return pa.Table.from_arrays(arrays, schema=task.schema)


def write_outputs(task: Task, outputs: pa.Table) -> None:
    """Write the outputs, which are in order already."""
    folder = task.out / "outputs"
    folder.mkdir(exist_ok=True)
    pq.write_table(outputs, folder / "part-00000.parquet")


lockstep_engine.write_outputs = write_outputs


# --- wc ---------------------------------------------------------------------------------------------------------


def split(line: bytes) -> list[bytes]:
    return [word for word in line.split(b" ") if word]


def wc(task: Task):
    lines = task.events.column("line").to_pylist()
    threads = max(1, task.threads)
    bounds = [len(lines) * t // threads for t in range(threads + 1)]

    def local(t: int):
        """The words of a part of the events, and their counts."""
        sentences = [split(line) for line in lines[bounds[t] : bounds[t + 1]]]
        return sentences, Counter(word for words in sentences for word in words)

    def emit(t: int, sentences: list[list[bytes]], before: dict[bytes, int]):
        """The outputs of a part after `before`, the counts of all earlier words."""
        counts = dict(before)
        seqs, subs, out, ns = [], [], [], []
        for seq, words in enumerate(sentences, bounds[t]):
            for sub, word in enumerate(words):
                n = counts[word] = counts.get(word, 0) + 1
                seqs.append(seq)
                subs.append(sub)
                out.append(word)
                ns.append(n)
        return seqs, subs, out, ns

    def one_pass() -> pa.Table:
        with ThreadPoolExecutor(threads) as pool:
            parts = list(pool.map(local, range(threads)))
            earlier, total = [], Counter()
            for _, counts in parts:
                earlier.append(dict(total))
                total.update(counts)
            results = list(pool.map(lambda t: emit(t, parts[t][0], earlier[t]), range(threads)))
        seqs, subs, out, ns = ([x for result in results for x in result[i]] for i in range(4))
        return table(task, {"seq": seqs, "sub": subs, "word": out, "n": np.array(ns, np.int64)})

    return one_pass


# --- wordcount --------------------------------------------------------------------------------------------------


class Seen:
    """The words of the present tweet so far."""

    def __init__(self):
        self.tweet = None
        self.words = set()

    def is_new(self, tweet: int, word: bytes) -> bool:
        if tweet != self.tweet:
            self.tweet = tweet
            self.words.clear()
        if word in self.words:
            return False
        self.words.add(word)
        return True


def add(windows: dict[int, dict[bytes, int]], ends: list[int], end: int, words: list[bytes]) -> None:
    """Count words in the window that ends there."""
    counts = windows.get(end)
    if counts is None:
        counts = windows[end] = {}
        heapq.heappush(ends, end)
    for word in words:
        counts[word] = counts.get(word, 0) + 1


def wordcount(task: Task):
    stamps = task.events.column("ts").to_pylist()
    texts = task.events.column("text").to_pylist()
    advance, size = task.params["advance"], task.params["size"]
    once = task.params["multiplicity"] == "set"

    def one_pass() -> pa.Table:
        seen = Seen()
        windows: dict[int, dict[bytes, int]] = {}  # by end
        ends: list[int] = []  # heap
        out_ts, out_word, out_n = [], [], []
        watermark = None

        def close() -> None:
            end = heapq.heappop(ends)
            for word, n in windows.pop(end).items():
                out_ts.append(end)
                out_word.append(word)
                out_n.append(n)

        for seq, (ts, text) in enumerate(zip(stamps, texts, strict=True)):
            if watermark is None or ts > watermark:
                watermark = ts
            while ends and ends[0] <= watermark:
                close()
            words = text.split()
            if once:
                words = [word for word in words if seen.is_new(seq, word)]
            if not words:
                continue
            first, last = (ts - size) // advance + 1, ts // advance
            for at in range(first, last + 1):
                end = at * advance + size
                if end <= watermark and ts < watermark:
                    continue  # too late for this window
                add(windows, ends, end, words)
        while ends:
            close()
        return table(task, {"ts": out_ts, "word": out_word, "n": out_n})

    return one_pass


if __name__ == "__main__":
    main({"wc": wc, "wordcount": wordcount}, versions={"python": platform.python_version()})
