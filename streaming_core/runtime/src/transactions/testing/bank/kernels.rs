//! The bank: its events, their sequential meaning, and the kernels with this meaning.

use crate::program::Program;
use crate::program::kernel::decision::{self, DROPPED};
use crate::program::kernel::{Access, ApplyContext, ExecuteContext, PlaceContext, PlanContext, PostContext, kind};
use crate::rows::emitter::Emitter;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// An event moves `amount` from account `from` to account `to` if `from` holds more than that. For kinds other than 0, `from`
/// and stock `item` must also hold more than 100 together; then the stock gains one. The event reads all rows that it names.
/// Kind 2 is invalid. Kind 3 changes nothing, and kind 4 only the account `to`: they read the other rows that they name.
/// Amount 666 makes the condition raise, 667 the plan, 668 the post-processing.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    pub seq: i64,
    pub kind: u32,
    pub from: u32,
    pub to: u32,
    pub item: u32,
    pub amount: i64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub seq: i64,
    pub ok: i64,
    pub from: i64,
    pub to: i64,
    pub item: i64,
}

pub const EVENT: usize = size_of::<Transfer>();
pub const VERDICT: usize = size_of::<Verdict>();
pub const RESULT: usize = 8;

/// What a READ brings back for an event that names the row.
pub fn sequential(events: &[Transfer], accounts: &mut [i64], stocks: &mut [i64]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for event in events {
        let (from, to, item) = (event.from as usize, event.to as usize, event.item as usize);
        if event.kind == 2 {
            continue;
        }
        let mut ok = accounts[from] > event.amount;
        if event.kind != 0 {
            ok &= accounts[from] + stocks[item] > 100;
        }
        if ok {
            accounts[from] -= if event.kind < 3 { event.amount } else { 0 };
            accounts[to] += if event.kind != 3 { event.amount } else { 0 };
            stocks[item] += i64::from(event.kind == 1);
        }
        let stock = if event.kind != 0 { stocks[item] } else { 0 };
        let (from, to) = (accounts[from], accounts[to]);
        verdicts.push(Verdict { seq: event.seq, ok: i64::from(ok), from, to, item: stock });
    }
    verdicts
}

pub static RAISED: &[u8] = b"raised";

// The kernels below follow README.md: pointers are those of a context that the runtime filled in.

extern "C" fn plan(context: *mut PlanContext) -> i64 {
    // SAFETY: see above.
    unsafe {
        let c = &mut *context;
        for i in c.begin as usize..c.end as usize {
            let event = c.rows.cast::<Transfer>().add(i).read();
            c.first.add(i).write(c.len as u32);
            c.captures.add(i).write(0);
            if event.amount == 667 {
                (c.error_at, c.error, c.error_len) = (i as i64, RAISED.as_ptr(), RAISED.len() as i64);
                return 1;
            }
            if event.kind == 2 {
                c.decisions.add(i).write(DROPPED);
                c.dropped += 1;
                continue;
            }
            let slots = 3 * RESULT;
            let group = 8 + 2 * RESULT;
            if (c.limit as usize) - (c.next as usize) < slots + group && (c.more)(c, (slots + group) as i64) != 0 {
                return 1;
            }
            c.results.add(i).write(c.next as u64);
            c.next = c.next.add(slots);
            let both = event.kind != 0;
            if both {
                c.captures.add(i).write(c.next as u64);
                c.next.cast::<u64>().write(2);
                c.next = c.next.add(group);
            }
            c.decisions.add(i).write(if both { 2 } else { 1 });
            let mut put = |row, table, function, slot, kind| {
                if c.len == c.cap {
                    assert_eq!((c.grow)(c), 0);
                }
                let access = Access { event: i as u32, row, slot, function, table, kind };
                c.accesses.add(c.len as usize).write(access);
                c.len += 1;
            };
            put(event.from, 0, 0, 0, kind::CONDITION);
            if both {
                put(event.from, 0, 1, 0, kind::CAPTURE);
                put(event.item, 1, 1, 0, kind::CAPTURE + 1);
            }
            if event.kind < 3 {
                put(event.from, 0, 0, 0, kind::MODIFY);
            }
            if event.kind != 3 {
                put(event.to, 0, 1, 0, kind::MODIFY);
            }
            if event.kind == 1 {
                put(event.item, 1, 2, 0, kind::MODIFY);
            }
            put(event.from, 0, 0, 0, kind::READ);
            put(event.to, 0, 0, 1, kind::READ);
            if both {
                put(event.item, 1, 0, 2, kind::READ);
            }
        }
        0
    }
}

extern "C" fn apply(context: *mut ApplyContext) -> i64 {
    // SAFETY: see above.
    unsafe {
        let c = &mut *context;
        for n in 0..c.n as usize {
            let access = c.accesses.add(n).read();
            let event = &*c.rows.cast::<Transfer>().add(access.event as usize);
            let row = (*c.tables.add(usize::from(access.table))).cast::<i64>().add(access.row as usize);
            let word = AtomicU32::from_ptr(c.decisions.add(access.event as usize));
            let decide = |holds: bool| {
                // One condition fewer to evaluate; one more that failed.
                let change = if holds { 0_u32 } else { 1 << 16 }.wrapping_sub(1);
                if c.shared == 1 {
                    word.fetch_add(change, Ordering::AcqRel);
                } else {
                    word.store(word.load(Ordering::Relaxed).wrapping_add(change), Ordering::Relaxed);
                }
            };
            match access.kind {
                kind::CONDITION => {
                    if event.amount == 666 {
                        (c.error_at, c.error, c.error_len) =
                            (i64::from(access.event), RAISED.as_ptr(), RAISED.len() as i64);
                        return 1;
                    }
                    decide(*row > event.amount);
                }
                kind::MODIFY | kind::READ => {
                    let decision = word.load(Ordering::Acquire);
                    if !decision::is_decided(decision) {
                        c.done = n as i64;
                        return 0;
                    }
                    if access.kind == kind::READ {
                        let slot = (*c.results.add(access.event as usize) as *mut i64).add(access.slot as usize);
                        slot.write(*row);
                    } else if decision & decision::FAILED == 0 {
                        match access.function {
                            0 => *row -= event.amount,
                            1 => *row += event.amount,
                            _ => *row += 1,
                        }
                    }
                }
                capture => {
                    let group = *c.captures.add(access.event as usize) as *mut u64;
                    let j = usize::from(capture - kind::CAPTURE);
                    group.add(1 + j).write(*row as u64);
                    if AtomicU64::from_ptr(group).fetch_sub(1, Ordering::AcqRel) == 1 {
                        decide(group.add(1).read() as i64 + group.add(2).read() as i64 > 100);
                    }
                }
            }
        }
        c.done = c.n;
        0
    }
}

extern "C" fn post(context: *mut PostContext) -> i64 {
    // SAFETY: see above.
    unsafe {
        let c = &mut *context;
        for i in c.begin as usize..c.end as usize {
            let event = c.rows.cast::<Transfer>().add(i).read();
            let word = c.decisions.add(i).read();
            if word & DROPPED != 0 {
                continue;
            }
            if event.amount == 668 {
                (c.error_at, c.error, c.error_len) = (i as i64, RAISED.as_ptr(), RAISED.len() as i64);
                return 1;
            }
            let ok = word & decision::FAILED == 0;
            c.rejected += i64::from(!ok);
            let results = *c.results.add(i) as *const i64;
            let item = if event.kind != 0 { results.add(2).read() } else { 0 };
            let verdict =
                Verdict { seq: event.seq, ok: i64::from(ok), from: results.read(), to: results.add(1).read(), item };
            let emitter: &mut Emitter = &mut *c.emitter;
            if emitter.len == emitter.cap && (emitter.grow)(emitter) != 0 {
                return 1;
            }
            emitter.rows.cast::<Verdict>().add(emitter.len as usize).write(verdict);
            if !emitter.origin.is_null() {
                emitter.origin.add(emitter.len as usize).write(i as u32);
            }
            emitter.len += 1;
        }
        0
    }
}

extern "C" fn execute(context: *mut ExecuteContext) -> i64 {
    // SAFETY: see above.
    unsafe {
        let c = &mut *context;
        for i in c.begin as usize..c.end as usize {
            let i = if c.selection.is_null() { i } else { c.selection.add(i).read() as usize };
            let event = c.rows.cast::<Transfer>().add(i).read();
            if (666..=668).contains(&event.amount) {
                (c.error_at, c.error, c.error_len) = (i as i64, RAISED.as_ptr(), RAISED.len() as i64);
                return 1;
            }
            if event.kind == 2 {
                c.dropped += 1;
                continue;
            }
            let tables = c.tables;
            let account = |row: u32| (*tables).cast::<i64>().add(row as usize);
            let stock = (*tables.add(1)).cast::<i64>().add(event.item as usize);
            let both = event.kind != 0;
            let ok = *account(event.from) > event.amount && (!both || *account(event.from) + *stock > 100);
            if ok {
                *account(event.from) -= if event.kind < 3 { event.amount } else { 0 };
                *account(event.to) += if event.kind != 3 { event.amount } else { 0 };
                // Of kind 0 the stock is none of its rows, and not this thread's to write.
                if event.kind == 1 {
                    *stock += 1;
                }
            }
            c.rejected += i64::from(!ok);
            if c.capacity < 3 * RESULT as i64 && (c.more)(c, 3 * RESULT as i64) != 0 {
                return 1;
            }
            let results = c.results.cast::<i64>();
            results.write(*account(event.from));
            results.add(1).write(*account(event.to));
            results.add(2).write(if both { *stock } else { 0 });
            let verdict = Verdict {
                seq: event.seq,
                ok: i64::from(ok),
                from: results.read(),
                to: results.add(1).read(),
                item: results.add(2).read(),
            };
            let emitter: &mut Emitter = &mut *c.emitter;
            if emitter.len == emitter.cap && (emitter.grow)(emitter) != 0 {
                return 1;
            }
            emitter.rows.cast::<Verdict>().add(emitter.len as usize).write(verdict);
            if !emitter.origin.is_null() {
                emitter.origin.add(emitter.len as usize).write(i as u32);
            }
            emitter.len += 1;
        }
        0
    }
}

extern "C" fn place(context: *mut PlaceContext) -> i64 {
    // SAFETY: see above.
    unsafe {
        let c = &mut *context;
        let rows = c.text.cast::<u64>();
        for i in c.begin as usize..c.end as usize {
            let event = c.rows.cast::<Transfer>().add(i).read();
            if event.amount == 667 {
                (c.error_at, c.error, c.error_len) = (i as i64, RAISED.as_ptr(), RAISED.len() as i64);
                return 1;
            }
            let at = |row: u32, rows: u64| ((u64::from(row) * ((1 << 48) / rows)) >> 32) as u32;
            let places = [event.from, event.to].map(|row| at(row, rows.read()));
            let item = at(event.item, rows.add(1).read());
            let (mut low, mut high) = (places[0].min(places[1]), places[0].max(places[1]));
            if event.kind != 0 {
                (low, high) = (low.min(item), high.max(item));
            }
            c.places.add(i).write(low | high << 16);
        }
        0
    }
}

pub fn program(accounts: usize, stocks: usize) -> Program {
    let kernels = [
        plan as extern "C" fn(*mut PlanContext) -> i64 as usize,
        apply as extern "C" fn(*mut ApplyContext) -> i64 as usize,
        post as extern "C" fn(*mut PostContext) -> i64 as usize,
        execute as extern "C" fn(*mut ExecuteContext) -> i64 as usize,
        place as extern "C" fn(*mut PlaceContext) -> i64 as usize,
    ];
    // SAFETY: the kernels are functions of this file, for the layouts given here.
    unsafe { Program::parse(&format!(
        r#"{{"kind": "transaction", "event": {{"stride": {EVENT}}},
            "tables": [{{"name": "accounts", "rows": {accounts}, "stride": 8, "containers": false, "read": [0, 8]}},
                       {{"name": "stocks", "rows": {stocks}, "stride": 8, "read": [0, 8]}}],
            "transaction": {{"name": "transfer", "plan": {}, "apply": {}, "post": {}, "execute": {}, "place": {}, "stride": {VERDICT},
                             "result_stride": {RESULT}}},
            "columns": [{{"kind": "i64", "offset": 8, "count": 1}}, {{"kind": "i64", "offset": 16, "count": 3}}]}}"#,
        kernels[0], kernels[1], kernels[2], kernels[3], kernels[4]
    )) }
    .unwrap()
}
