"""Fraud detection: scores how improbable the last few transactions of each entity are.

    source -> parse (stateless) -> predict (partitioned by entity) -> sink

The application comes from BriskStream, section 6.1.

A line reads `entity,transaction,state`. A state has three letters: amount (L, M, H), type (N, H) and elapsed time
(L, N, S). So there are 18 states. The pipeline drops any other line as invalid.

A Markov model gives the probability of every transition between two states. An entity has a score once its window of
transactions is full. The score is the mean, over the window's transitions, of the probability of any other next state.
Scores are fixed-point numbers: 2^32 stands for 1.
"""

from functools import lru_cache
from typing import Literal

import numpy as np

from streaming_core.api import App, Param, Profile, Ring, boolean, i64, record, text, u8
from streaming_core.generator import Draws, Tokens, weighted, zipf

app = App(
    "fd",
    reads="BriskStream, section 6.1; threshold and window of storm-applications",
    params={
        "window": Param(5, "transactions in the window of an entity", minimum=2, maximum=10_000),
        "threshold_e4": Param(
            9600, "score above which a transaction is an outlier, in 1/10000", minimum=0, maximum=10_000
        ),
        "entities": Param(10_000, "number of entities", minimum=1, maximum=1_000_000),
        "theta": Param(0.0, "Zipf exponent of the entities; 0: all equally likely", minimum=0.0, maximum=4.0),
        "markov": Param(False, "draw states from the model, entity by entity in rounds; false: independent draws"),
        "fraud_ratio": Param(
            0.0, "share of entities with uniform states, which score higher", minimum=0.0, maximum=1.0
        ),
        "invalid_ratio": Param(0.0, "share of lines that are invalid", minimum=0.0, maximum=1.0),
    },
    profiles={
        "fd-brisk": Profile(
            "BriskStream's settings: nearly every transaction is an outlier", {"window": 10, "threshold_e4": 8000}
        ),
        "fd-markov": Profile(
            "states drawn from the model, except those of 2 % of the entities", {"markov": True, "fraud_ratio": 0.02}
        ),
    },
)
p = app.params
COMMA, H, L, M, N, S = (ord(c) for c in ",HLMNS")
STATES = 18
ONE = 1 << 32
ROUNDS = 15  # after so many rounds over the entities a chain of states starts again


@record
class Line:
    """An event as text, with the number of the event as its time."""

    ts: i64
    line: text


@record
class Transaction:
    """A transaction of an entity, with its state as a number from 0 to 17."""

    entity: text
    state: u8


@record
class Chain:
    """The last states of an entity, and the sum of `miss` over the transitions between them, in 2^-32."""

    recent: Ring[u8, Literal["window"]]
    missed: i64


@record
class Signal:
    """The score of an entity after a transaction, in 2^-32, and whether it is an outlier."""

    entity: text
    score: i64
    outlier: boolean


@app.constant
def miss(params):
    """1 - P(next | previous), at previous * 18 + next, in 2^-32."""
    return _model()[1]


def amount_of(letter):
    """Return the number of an amount (L, M, H); -1 for any other letter."""
    return 0 if letter == L else 1 if letter == M else 2 if letter == H else -1


def type_of(letter):
    """Return the number of a type (N, H); -1 for any other letter."""
    return 0 if letter == N else 1 if letter == H else -1


def elapsed_of(letter):
    """Return the number of an elapsed time (L, N, S); -1 for any other letter."""
    return 0 if letter == L else 1 if letter == N else 2 if letter == S else -1


def parse(row, out):
    """Split a line into entity and state, and drop any other line."""
    line = row.line
    first = line.find(COMMA, 0)
    if first < 1:
        out.drop()
        return
    second = line.find(COMMA, first + 1)
    if second < 0 or len(line) != second + 4:
        out.drop()
        return
    amount = amount_of(line[second + 1])
    kind = type_of(line[second + 2])
    elapsed = elapsed_of(line[second + 3])
    if amount < 0 or kind < 0 or elapsed < 0:
        out.drop()
        return
    out.emit(entity=line[0:first], state=amount * 6 + kind * 3 + elapsed)


def predict(row, chain, out):
    """Add a transaction to its entity's window, and emit the score; until the window is full, it is 0."""
    # `missed` is a sum over the transitions in the window: the newest one is added, the oldest one subtracted.
    recent = chain.recent
    size = len(recent)
    missed = chain.missed
    if size > 0:
        missed += miss[recent[size - 1] * STATES + row.state]
    if size == p.window:
        missed -= miss[recent[0] * STATES + recent[1]]
    recent.append(row.state)
    chain.missed = missed
    if len(recent) == p.window:
        outlier = missed * 10_000 > p.threshold_e4 * (p.window - 1) * ONE
        out.emit(entity=row.entity, score=missed // (p.window - 1), outlier=outlier)
    else:
        out.emit(entity=row.entity, score=0, outlier=False)


app.source(Line).flat_map(parse, Transaction).key_by("entity").process(predict, state=Chain, output=Signal).sink()
# A score depends on the order of the transactions.
app.agrees_unordered("entity")


# --- the generator ----------------------------------------------------------------------------------------------------

# Percentages: amount L/M/H, type N/H, elapsed time L/N/S, drawn independently of each other and of the past.
WEIGHTS = [a * t * e for a in (35, 53, 12) for t in (85, 15) for e in (35, 45, 20)]
NAMES = [a + t + e for a in (b"L", b"M", b"H") for t in (b"N", b"H") for e in (b"L", b"N", b"S")]


@lru_cache(maxsize=1)
def _model():
    """(counts, misses): a million transitions of the product law, counted with add-one smoothing."""
    draws = Draws(0, "fd.model", 0, 1_000_001)
    states = weighted(WEIGHTS).pick(draws.u53(0))
    counts = np.bincount(states[:-1] * STATES + states[1:], minlength=STATES * STATES).reshape(STATES, STATES) + 1
    misses = [((sum(row) - c) * ONE * 2 + sum(row)) // (2 * sum(row)) for row in counts.tolist() for c in row]
    return counts, np.array(misses, np.int64)


@app.generates
def transactions(params, seed, start, stop):
    """Make one transaction per event; ts is its number.

    Without `markov`, entity and state of each event are independent draws. With `markov`, each round over the entities
    gives every entity one transaction, in a random order. An entity's state follows from its state in the round before.
    The chains start again after 15 rounds, so any event can be made without those before it.
    """
    tokens, draws, uniform = _tokens(params["entities"]), Draws(seed, "fd.events", start, stop), weighted([1] * STATES)
    if params["markov"]:
        entity, rounds = _rounds(params["entities"], seed, start, stop)
        state = _chains(seed, entity, rounds)
    else:
        entity = zipf(params["entities"], params["theta"]).pick(draws.u53(0))
        state = weighted(WEIGHTS).pick(draws.u53(1))
    fraud = Draws(seed, "fd.fraud", units=entity).chance(0, params["fraud_ratio"])
    state = np.where(fraud, uniform.pick(draws.u53(2)), state)
    bits = draws.bits(3)
    thousands = [(bits >> np.uint64(16 * k) & np.uint64(0xFFFF)).view(np.int64) * 1000 >> 16 for k in range(4)]
    columns = [entity + tokens.first["entity"]]
    columns += [digits + tokens.first["digits"] for digits in thousands]
    columns += [np.full(len(draws), tokens.first["comma"]), state + tokens.first["state"]]
    if params["invalid_ratio"] > 0:
        invalid = Draws(seed, "fd.invalid", start, stop).chance(0, params["invalid_ratio"])
        broken = tokens.first["broken"] + draws.below(4, len(BROKEN))
        columns[-1] = np.where(invalid, broken, columns[-1])
    return {"ts": np.arange(start, stop), "line": tokens.lines(columns)}


BROKEN = [b"", b"XNL", b"LXL", b"LNX", b"LN", b"LNLL", b"lnl"]


@lru_cache(maxsize=4)
def _tokens(entities):
    return Tokens(
        entity=[b"E%09d," % k for k in range(entities)],
        digits=[b"%03d" % k for k in range(1000)],
        comma=[b","],
        state=NAMES,
        broken=BROKEN,
    )


def _rounds(entities, seed, start, stop):
    """Return entity and round of each event; round r is a permutation of the entities."""
    entity = []
    for r in range(start // entities, (stop + entities - 1) // entities):
        order = np.argsort(Draws(seed, f"fd.round {r}", 0, entities).bits(0), kind="stable")
        entity.append(order[max(0, start - r * entities) : min(entities, stop - r * entities)])
    return np.concatenate(entity) if entity else np.empty(0, np.int64), np.arange(start, stop) // entities


def _chains(seed, entity, rounds):
    """Return states: from the product law in the first of 15 rounds, then from the model."""
    rows = [weighted(row) for row in _model()[0].tolist()]
    first = rounds // ROUNDS * ROUNDS
    draws = Draws(seed, "fd.chain", units=entity * (1 << 32) + first)
    state = weighted(WEIGHTS).pick(draws.u53(0))
    for step in range(1, ROUNDS):
        going = np.flatnonzero(rounds - first >= step)
        u, before = draws.u53(step, going), state[going]
        for previous, row in enumerate(rows):
            mine = before == previous
            state[going[mine]] = row.pick(u[mine])
    return state


VALID = "CAST(line AS STRING) RLIKE '^[^,]+,[^,]*,[LMH][NH][LNS]$'"

app.invariant(
    "each valid line has one signal with its entity, and other lines have none",
    f"""SELECT coalesce(e.seq, o.seq) AS seq, e.valid, o.outputs, e.entity, o.of_entity FROM
    (SELECT seq, {VALID} AS valid, split_part(CAST(line AS STRING), ',', 1) AS entity FROM events) e FULL OUTER JOIN
    (SELECT seq, count(*) AS outputs, CAST(max(entity) AS STRING) AS of_entity FROM outputs GROUP BY seq) o
    ON e.seq = o.seq
    WHERE e.seq IS NULL OR coalesce(o.outputs, 0) <> CAST(e.valid AS INT) OR o.of_entity <> e.entity""",
)
app.invariant(
    "an entity has no score before its window is full",
    """SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY entity ORDER BY seq) AS nth FROM outputs)
    WHERE nth < (SELECT max(size(recent)) FROM state_predict) AND (score <> 0 OR outlier)""",
    by_order=True,
)
app.invariant("a score lies between 0 and 1", "SELECT * FROM outputs WHERE score < 0 OR score > 4294967296")
app.invariant(
    "no outlier scores lower than a transaction that is not an outlier",
    """SELECT * FROM (SELECT max(CASE WHEN NOT outlier THEN score END) AS calm,
    min(CASE WHEN outlier THEN score END) AS alarmed FROM outputs) WHERE calm > alarmed""",
)
