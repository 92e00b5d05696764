"""An application whose events carry programs: each event contains the steps of its own transaction.

Compiled once, it plays as many random applications as there are event streams. An event's program is its text, four
bytes a step: an action, two rows, an amount. The steps use every part of a transaction:

- reads before and after writes;
- modifications with and without an index, and by other rows;
- conditions on the event alone, and over one to three rows of three tables;
- scalars, narrow fields and every container;
- a row that the event names several times, and a row that does not exist.

The stored values depend on the order of the writes, and conditions on their low bits. So a wrong state soon changes
outputs. The outputs show every value read, and slices of the text.

There are three plans, one for each way in which the engine can go through a plan (kernels/plans.py). `tidy` asks first
and drops first. `joint` fuses two operators, and the second one asks after the first has acted. `late` drops after
everything else.
"""

from streaming_core.api import (
    App,
    Array,
    Counter,
    Map,
    Param,
    Ring,
    Set,
    TopK,
    boolean,
    f64,
    i8,
    i16,
    i32,
    i64,
    record,
    text,
    u8,
    u16,
    u32,
)

STEP = 4  # bytes
# What the lower half of an event's code says: it is invalid, and when it turns out.
DROPS, DROPS_LATE, DROPS_AFTERWARDS = 1, 2, 3
# Most steps of this amount fail, and so do some of events with this code.
FAILS = 255


@record
class Event:
    code: u8
    span: u8  # rows of each table that the stream names
    shift: u16  # of its rows
    program: text


@record
class Account:
    balance: i64
    rate: f64
    level: i16
    closed: boolean
    limits: Array[i32, 2]


@record
class Shelf:
    stock: i64
    grade: i8
    recent: Ring[i16, 3]
    buyers: Set[u32]
    paid: Map[u8, f64]
    visits: Counter[u8]
    best: TopK[2]


@record
class Tally:
    count: u8


@record
class Seen:
    step: i64
    ok: boolean
    whole: i64
    real: f64
    narrow: i64
    what: text


PARAMS = {"accounts": Param(2, minimum=1), "shelves": Param(2, minimum=1), "tallies": Param(2, minimum=1)}
APPS = {plan: App(f"programs_{plan}", params=PARAMS) for plan in ("tidy", "joint", "late")}
p = APPS["tidy"].params
accounts = APPS["tidy"].table(
    "accounts", Account, "accounts", lambda key, params: {"balance": key * 7, "rate": 1.5, "level": 5}
)
shelves = APPS["tidy"].table("shelves", Shelf, "shelves", lambda key, params: {"stock": 5 - key, "grade": key % 100})
tallies = APPS["tidy"].table("tallies", Tally, "tallies")
for plan in ("joint", "late"):
    APPS[plan].tables.extend(APPS["tidy"].tables)
for app in APPS.values():
    app.generates(lambda *arguments: {})


def action(event, i):
    return event.program[STEP * i] % 24


def amount(event, i):
    return event.program[STEP * i + 3]


def place(event, i, which):
    return (event.program[STEP * i + which] + event.shift) % max(event.span, 1)


def fails(event, i):
    return 1 // (FAILS - amount(event, i))  # 0, or 1, or an error


# --- conditions -----------------------------------------------------------------------------------------------------


def odd_code(event):
    return event.code % 8 != 5


def open_account(account, event):
    return (account.balance + event.code) % 8 != 3 and not (account.closed and event.code % 16 == 4)


def within_limit(account, event, i):
    return (account.balance ^ account.limits[i & 1]) % 4 != amount(event, i) % 4 + fails(event, i) * 0


def welcome(shelf, event, i):
    n = amount(event, i)
    if n % 3 == 0:
        return n not in shelf.buyers or len(shelf.buyers) % 2 == 0
    if n % 3 == 1:
        return shelf.visits.get(n % 16) < 2 or shelf.paid.get(n % 8, 0.5) < 4.0
    return len(shelf.best) == 0 or shelf.best.score_at(0) % 4 != 1


def alike(one, other, event):
    return (one.balance - other.balance) % 4 != 1 and one.level + other.level < 150


def affordable(account, shelf, event, i):
    newest = shelf.recent[len(shelf.recent) - 1] if len(shelf.recent) > 0 else 0
    return account.rate * shelf.grade + newest < 900.0 and (account.balance + shelf.stock) % 4 != amount(event, i) % 4


def in_sum(account, tally, shelf, event, i):
    return (account.balance + tally.count + shelf.stock + i) % 4 != 2


def counted(tally, event):
    return tally.count % 8 != event.code % 8


# --- modifications --------------------------------------------------------------------------------------------------


def deposit(account, event):
    account.balance = account.balance * 31 + event.code
    account.closed = account.balance % 3 == 0


def charge(account, event, i):
    n = amount(event, i)
    account.balance -= n * (i + 1)
    account.level = (account.level * 7 + n) % 100 + fails(event, i) * 0
    account.limits[i & 1] = account.limits[1 - (i & 1)] + n - 100
    account.rate = account.rate * 0.75 + n / 4


def restock(shelf, event, i):
    n = amount(event, i)
    shelf.stock = shelf.stock * 3 + n
    shelf.grade = (shelf.grade + n) % 128
    shelf.recent.append(shelf.grade * n)


def visit(shelf, event, i):
    n = amount(event, i)
    shelf.buyers.add(n % 32 + shelf.stock % 4)
    shelf.visits.add(n % 16, n % 3)
    shelf.paid.put(n % 8, shelf.paid.get(n % 8, 0.25) * 1.5)
    shelf.best.offer(n % 8, shelf.stock % 64)
    if len(shelf.buyers) > 9:
        shelf.buyers.clear()
        shelf.visits.clear()
    shelf.stock += len(shelf.buyers)


def count(tally, event):
    tally.count = (tally.count * 5 + event.code + 1) % 256


def spill(tally, event, i):
    tally.count = tally.count + amount(event, i) // FAILS * 200  # a store that loses bits, sooner or later


def follow(account, other, event):
    account.balance = other.balance * 3 + other.limits[event.code % 2]
    account.rate = other.rate * 0.5


def weigh(account, shelf, other, event, i):
    if shelf.stock % 2 == 0 and len(shelf.recent) > 0:  # a write with a condition of its own
        account.balance += shelf.recent[0] * other.level + amount(event, i)
        account.level = (other.level + shelf.grade) % 100 + fails(event, i) * 0


def stack(shelf, account, event, i):
    shelf.stock += account.balance % 1000 - i + fails(event, i) * 0
    shelf.recent.append(account.level)


def tell(tally, other, shelf, event):
    tally.count = (other.count * 3 + shelf.stock % 4) % 256


# --- plans ----------------------------------------------------------------------------------------------------------


def ask(event, txn, i):
    what = action(event, i)
    if what < 10:
        return
    if what == 10:
        txn.require(odd_code)
    elif what == 11:
        txn.require(open_account, txn.row(accounts, place(event, i, 1) % p.accounts))
    elif what == 12:
        txn.require(within_limit, txn.row(accounts, place(event, i, 1) % p.accounts), i)
    elif what == 13:
        txn.require(welcome, txn.row(shelves, place(event, i, 1) % p.shelves), i)
    elif what == 14:
        account = txn.row(accounts, place(event, i, 1) % p.accounts)
        txn.require(alike, account, txn.row(accounts, place(event, i, 2) % p.accounts))
    elif what == 15:
        account = txn.row(accounts, place(event, i, 1) % p.accounts)
        txn.require(affordable, account, txn.row(shelves, place(event, i, 2) % p.shelves), i)
    elif what == 16:
        account = txn.row(accounts, place(event, i, 1) % p.accounts)
        tally = txn.row(tallies, (place(event, i, 1) + 1) % p.tallies)
        txn.require(in_sum, account, tally, txn.row(shelves, place(event, i, 2) % p.shelves), i)
    elif what == 17:
        txn.require(counted, txn.row(tallies, place(event, i, 1) % p.tallies))


def act(event, txn, i):
    what = action(event, i)
    if what < 3 or what == 19:
        read(event, txn, i)
    elif what < 20:
        modify(event, txn, i)
    else:
        modify_by_others(event, txn, i)


def read(event, txn, i):
    what = action(event, i)
    if what == 0:
        txn.read(txn.row(accounts, place(event, i, 1) % p.accounts))
    elif what == 1:
        txn.read(txn.row(shelves, place(event, i, 1) % p.shelves))
    elif what == 2:
        txn.read(txn.row(tallies, place(event, i, 1) % p.tallies))
    elif event.code == FAILS:
        txn.read(txn.row(accounts, p.accounts))  # no such row
    else:
        txn.read(txn.row(accounts, place(event, i, 2) % p.accounts))


def modify(event, txn, i):
    what = action(event, i)
    if what == 3:
        txn.modify(txn.row(accounts, place(event, i, 1) % p.accounts), deposit)
    elif what == 4:
        txn.modify(txn.row(accounts, place(event, i, 1) % p.accounts), charge, i)
    elif what == 5:
        txn.modify(txn.row(shelves, place(event, i, 1) % p.shelves), restock, i)
    elif what == 6:
        txn.modify(txn.row(shelves, place(event, i, 1) % p.shelves), visit, i)
    elif what == 7:
        txn.modify(txn.row(tallies, place(event, i, 1) % p.tallies), count)
    elif what == 8:
        txn.modify(txn.row(tallies, place(event, i, 1) % p.tallies), spill, i)
    elif what == 9:
        txn.modify(txn.row(accounts, place(event, i, 1) % p.accounts), charge, i)
        txn.modify(txn.row(accounts, place(event, i, 2) % p.accounts), charge, i)
    elif what == 18:
        for j in range(event.program[STEP * i + 3] % 4):  # a few rows side by side
            txn.modify(txn.row(shelves, (place(event, i, 1) + j) % p.shelves), restock, j)


def modify_by_others(event, txn, i):
    what = action(event, i)
    if what == 20:
        other = txn.row(accounts, place(event, i, 2) % p.accounts)
        txn.modify(txn.row(accounts, place(event, i, 1) % p.accounts), follow, other)
    elif what == 21:
        account = txn.row(accounts, place(event, i, 1) % p.accounts)
        shelf = txn.row(shelves, place(event, i, 2) % p.shelves)
        txn.modify(account, weigh, shelf, txn.row(accounts, place(event, i, 2) % p.accounts), i)
    elif what == 22:
        account = txn.row(accounts, place(event, i, 2) % p.accounts)
        txn.modify(txn.row(shelves, place(event, i, 1) % p.shelves), stack, account, i)
    elif what == 23:
        tally = txn.row(tallies, place(event, i, 2) % p.tallies)
        shelf = txn.row(shelves, place(event, i, 2) % p.shelves)
        txn.modify(txn.row(tallies, place(event, i, 1) % p.tallies), tell, tally, shelf)


def steps(event):
    return len(event.program) // STEP


@APPS["tidy"].transaction(input=Event, output=Seen)
def tidy(event, txn):
    if event.code % 16 == DROPS:
        txn.drop()
        return
    for i in range(steps(event)):
        ask(event, txn, i)
    for i in range(steps(event)):
        act(event, txn, i)


def first_half(event, txn):
    for i in range(steps(event) // 2):
        ask(event, txn, i)
        act(event, txn, i)


def second_half(event, txn):
    for i in range(steps(event) // 2, steps(event)):
        act(event, txn, i)
        ask(event, txn, i)


@APPS["joint"].transaction(input=Event, output=Seen)
def joint(event, txn):
    if event.code % 16 == DROPS:
        txn.drop()
        return
    first_half(event, txn)
    second_half(event, txn)


@APPS["late"].transaction(input=Event, output=Seen)
def late(event, txn):
    if event.code % 16 == DROPS:
        txn.drop()
        return
    first_half(event, txn)
    second_half(event, txn)
    if event.code % 16 == DROPS_LATE:
        txn.drop()


@tidy.post
@joint.post
@late.post
def report(event, txn, out):
    reads = 0
    for i in range(steps(event)):
        what = action(event, i)
        word = event.program[STEP * i : STEP * i + 1 + i % 4]
        if what == 0 or what == 19:
            account = txn.result(accounts, reads)
            whole = account.balance * 1000003 + account.limits[0] * 31 + account.limits[1]
            out.emit(step=i, ok=txn.accepted, whole=whole, real=account.rate, narrow=account.level, what=word)
        elif what == 1:
            shelf = txn.result(shelves, reads)
            out.emit(step=i, ok=txn.accepted, whole=shelf.stock, real=0.5, narrow=shelf.grade, what=word)
        elif what == 2:
            tally = txn.result(tallies, reads)
            out.emit(step=i, ok=txn.accepted, whole=tally.count, real=0.0, narrow=reads, what=word)
        if what < 3 or what == 19:
            reads += 1
        if event.code % 16 == DROPS_AFTERWARDS and i == 2:
            out.drop()
    out.emit(step=-1, ok=txn.accepted, whole=reads, real=0.0, narrow=event.code, what=event.program)
