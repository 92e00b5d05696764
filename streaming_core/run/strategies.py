"""What each strategy of Lockstep's executors does, in a sentence or two. docs/reference/strategies.md shows the texts.

The classes in way.py declare which strategies there are.
"""

from __future__ import annotations

# Axis -> strategy -> its effect.
STRATEGIES: dict[str, dict[str, str]] = {
    "scheme": {
        "owners": "Each thread owns a share of the rows. It executes the events whose rows all lie in its share. It "
        "splits other events into accesses, and the owners of the rows apply these in event order.",
        "tstream": "TStream as published. Per punctuation interval, threads insert the operations of all transactions "
        "into a chain per row, then process the chains in parallel.",
        "serial": "One thread at a time applies batches in order; other threads may plan and post-process them.",
        "lock": "As published with TStream. A counter lets events insert locks on their rows in event order. An event "
        "runs when it holds all of its locks.",
        "mvlk": "As `lock`, with versions: a writer waits for the version before its own, and a reader for the "
        "version that it has to see. Writers never wait for readers.",
        "pat": "As `lock`, with a counter for each partition of each table (S-Store). Events without a common "
        "partition insert their locks in any order.",
        "auto": "Measures `serial` and `owners`, and uses the faster one. It measures again from time to time.",
        "no_lock": "`lock` without its locks and its counter. This is a bound: its results are wrong, and Lockstep "
        "never counts them. A latch per access keeps the containers of a row whole, but orders no events.",
    },
    "pool": {
        "shared_nothing": "Each thread has its own pool.",
        "shared_everything": "All threads share one pool.",
        "shared_per_socket": "The threads of a socket share a pool.",
    },
    "heuristic": {
        "affinity": "A worker serves its own partitions first. Then it serves the operator with the lowest throughput.",
        "ct": "Current throughput: the operator with the lowest normalised throughput within a window of time.",
        "lp": "Last in pipeline: the last operator that has work.",
        "et": "Estimated time: the operator whose queue would take longest to process.",
        "qst": "Queue size throttling: the first operator whose next queue is shorter than its threshold.",
    },
    "queue": {
        "lanes": "A worker takes a free partition and processes its batches. Nothing is enqueued. Lockstep adapts the "
        "number of partitions to the cost of the operator.",
        "hybrid": "A queue per partition, and a master queue that all workers take from. A worker that meets a busy "
        "partition leaves its tuple to the worker there.",
        "partitioned": "Each worker has one partition of its own; no other worker helps.",
        "shared": "One queue for all workers, under a lock, and a lock per partition.",
    },
    "reorder": {
        "non_blocking": "A worker that completes a batch never waits for another worker.",
        "lock": "Workers take turns under a lock.",
    },
    "partitioning": {
        "hash": "By the hash of the key.",
        "range": "By ranges of keys of equal width, from the keys of the first batches.",
    },
    "channel": {
        "gate": "The reader merges the batches of its sources.",
        "scalegate": "The sources insert rows in order into a skip list for each reader (Viper).",
        "merge_sort": "A merge task in front of the reader, on a thread of its own, in addition to `threads`.",
        "shared_ring": "A ring of batches for each producer, which all its consumers read in place. Rows arrive "
        "without an order, for applications that declare which results do not depend on it.",
        "pair_queue": "As BriskStream publishes it: a queue for each pair of producer and consumer. The producer "
        "copies rows into the open jumbo tuple, and publishes it when it is full. No order, as with `shared_ring`.",
    },
    "controller": {
        "none": "No controller.",
        "threshold": "Goes by the share of time in which the replicas work.",
        "model": "Goes by the work that waits and the work that it expects.",
        "balance": "Keeps the replicas, and gives them other keys if one has clearly more rows than the others.",
    },
    "parallelism": {
        "vsn": "Replicas share rows and state. Each key has one owner, and no state moves when the owner changes.",
        "vsn_esg": "As published: every replica reads all rows from an elastic ScaleGate and finds the keys itself. "
        "A change of owners begins with a barrier of all replicas.",
        "sn": "Replicas share nothing (a baseline). Rows are copied to each owner, and state moves with its key.",
    },
    "order": {
        "total": "In the order of events.",
        "none": "In any order. Lockstep compares what the application declares to agree without order.",
    },
    "idle": {
        "spin": "Never leaves its core. With more threads than cores, it acts as `yield`.",
        "yield": "Spins for a moment, then lets other threads of the core run.",
        "park": "Spins, yields, then sleeps until another thread wakes it. With a rate, sources sleep between events.",
    },
    "sink": {
        "parquet": "Files in the folder of the run.",
        "digest": "A digest of the outputs; the rows are not kept.",
        "count": "A count of the outputs; the rows are not kept.",
    },
}
