//! What the models of schemes run in: a block of two events without outputs. Each has a condition on one row and adds one to
//! another, where it is executed or its accesses are applied. Loom fails if two are at a row at a time, or one does not see
//! what the other left.

// Decisions are the kernels', which no model sees: std's atomics.
use std::sync::atomic::{AtomicU32, Ordering};

use crate::memory::placement::Placement;
use crate::output::clock::{Arrivals, Clock};
use crate::output::delivered::Delivered;
use crate::output::sink::{Sink, SinkKind};
use crate::program::Program;
use crate::program::kernel::{
    Access, ApplyContext, ExecuteContext, PlaceContext, PlanContext, PostContext, decision, kind,
};
use crate::rows::block::{Block, TEXT_PADDING, Text};
use crate::state::key_group::{OwnerMap, group, hash_i64};
use crate::state::table::Tables;
use crate::threads::idle::{Idle, Strategy};
use crate::threads::sync::{Arc, AtomicBool, UnsafeCell, thread};
use crate::threads::testing::interleave;
use crate::transactions::delivery::Delivery;
use crate::transactions::run::{Run, Scheme};
use crate::transactions::transaction::Transaction;

/// Of so many tables with two rows each, the first one has the row of an event's condition. Another one has the row of its
/// modification, in another partition of `tstream`.
const TABLES: u8 = 8;

fn modified() -> u8 {
    let share = |table: u8| OwnerMap::even(2).owner(group(hash_i64((u64::from(table) << 32) as i64)));
    (1..TABLES).find(|&table| share(table) != share(0)).expect("one of them is")
}

extern "C" fn plan(context: *mut PlanContext) -> i64 {
    // SAFETY: the context is the runtime's.
    unsafe {
        let context = &mut *context;
        for event in context.begin as usize..context.end as usize {
            context.first.add(event).write(context.len as u32);
            for (row, table, kind) in [(0, 0, kind::CONDITION), (1, modified(), kind::MODIFY)] {
                if context.len == context.cap {
                    assert_eq!((context.grow)(context), 0);
                }
                let access = Access { event: event as u32, row, slot: 0, function: 0, table, kind };
                context.accesses.add(context.len as usize).write(access);
                context.len += 1;
            }
            context.decisions.add(event).write(1);
            context.results.add(event).write(0);
        }
    }
    0
}

extern "C" fn apply(context: *mut ApplyContext) -> i64 {
    // SAFETY: the context is the runtime's, and decisions are changed here only; loom checks which thread is at a row.
    unsafe {
        let context = &mut *context;
        for i in 0..context.n as usize {
            let access = *context.accesses.add(i);
            let rows = rows_of(context.rows, access.event as usize);
            let word = AtomicU32::from_ptr(context.decisions.add(access.event as usize));
            if access.kind == kind::CONDITION {
                rows[0].with_mut(|row| *row += 0);
                word.fetch_sub(1, Ordering::AcqRel);
            } else if decision::is_decided(word.load(Ordering::Acquire)) {
                rows[1].with_mut(|row| *row += 1);
            } else {
                context.done = i as i64;
                return 0;
            }
        }
        context.done = context.n;
    }
    0
}

extern "C" fn post(_: *mut PostContext) -> i64 {
    0
}

/// An event is the address of the rows, plus one if it spans shares.
///
/// # Safety
/// `events` has event `i`.
unsafe fn rows_of<'a>(events: *const u8, i: usize) -> &'a [UnsafeCell<u64>; 2] {
    // SAFETY: as the caller says; the world outlives its runs.
    unsafe { &*events.cast::<*const [UnsafeCell<u64>; 2]>().add(i).read().map_addr(|address| address & !1) }
}

/// The rows of an event lie at the start of their tables, or one at the start and one in the middle.
extern "C" fn place(context: *mut PlaceContext) -> i64 {
    // SAFETY: the context is the runtime's.
    unsafe {
        let context = &mut *context;
        for i in context.begin as usize..context.end as usize {
            let spans = context.rows.cast::<usize>().add(i).read() & 1;
            context.places.add(i).write((spans as u32) << 31);
        }
    }
    0
}

extern "C" fn execute(context: *mut ExecuteContext) -> i64 {
    // SAFETY: as in `apply`.
    unsafe {
        let context = &*context;
        for i in context.begin as usize..context.end as usize {
            let i = if context.selection.is_null() { i } else { context.selection.add(i).read() as usize };
            let rows = rows_of(context.rows, i);
            rows[1].with_mut(|row| *row += 1);
        }
    }
    0
}

/// What the threads of a model share.
pub struct World {
    pub program: Program,
    transaction: Transaction,
    tables: Tables,
    placement: Placement,
    delivery: Delivery,
    idle: Idle,
    stopped: AtomicBool,
    rows: Box<[UnsafeCell<u64>; 2]>,
    events: [usize; 2],
    text: [u64; TEXT_PADDING / 8],
}

impl World {
    /// For two threads, with events of one share.
    pub fn new() -> Self {
        Self::with(2, false)
    }

    /// `spanning`: whether events have rows in two shares.
    fn with(threads: usize, spanning: bool) -> Self {
        let tables = [r#"{"name": "t", "rows": 2, "stride": 8, "read": [0, 8]}"#; TABLES as usize].join(", ");
        let kernels = [
            plan as extern "C" fn(*mut PlanContext) -> i64 as usize,
            apply as extern "C" fn(*mut ApplyContext) -> i64 as usize,
            post as extern "C" fn(*mut PostContext) -> i64 as usize,
            execute as extern "C" fn(*mut ExecuteContext) -> i64 as usize,
            place as extern "C" fn(*mut PlaceContext) -> i64 as usize,
        ];
        // SAFETY: the kernels are functions of this file, for the layouts given here.
        let program = unsafe {
            Program::parse(&format!(
                r#"{{"kind": "transaction", "event": {{"stride": 8}},
                "tables": [{}],
                "transaction": {{"name": "t", "plan": {}, "apply": {}, "post": {}, "execute": {}, "place": {},
                                 "stride": 8, "result_stride": 8}},
                "columns": []}}"#,
                tables, kernels[0], kernels[1], kernels[2], kernels[3], kernels[4]
            ))
        }
        .unwrap();
        let rows = Box::new([UnsafeCell::new(0), UnsafeCell::new(0)]);
        let event = (&raw const *rows).expose_provenance() + usize::from(spanning);
        let tables = Tables::new(&program.tables, threads).unwrap();
        World {
            // SAFETY: the kernels above; the world holds the tables as long.
            transaction: unsafe { Transaction::new(program.transaction.as_ref().unwrap(), &tables, None).unwrap() },
            tables,
            placement: Placement::flat(threads, "a model"),
            delivery: Delivery::new(Delivered::new(Sink::new(SinkKind::Count, program.hasher().unwrap()))),
            idle: Idle::new(Strategy::Yield, threads, threads),
            stopped: AtomicBool::new(false),
            events: [event; 2],
            text: [0; TEXT_PADDING / 8],
            rows,
            program,
        }
    }

    /// Runs `work` with everything a thread needs.
    pub fn run(&self, work: impl FnOnce(&Run)) {
        // SAFETY: both outlive the block.
        let block = unsafe {
            let text = Text::new(self.text.as_ptr().cast(), 0);
            Block::new(self.events.as_ptr().cast(), self.events.len(), 8, text)
        };
        work(&Run {
            block: &block,
            events: 0..block.n,
            offset: 0,
            transaction: &self.transaction,
            tables: &self.tables,
            placement: &self.placement,
            delivery: &self.delivery,
            first_ticket: 0,
            arrivals: &Arrivals::new(&[]),
            clock: Clock::default().start(),
            idle: &self.idle,
            stopped: &self.stopped,
        });
    }

    /// Everything was delivered, under `tickets` tickets; how many events have been executed, or applied. All threads but this
    /// one have ended.
    pub fn check(&self, tickets: u64) -> u64 {
        assert_eq!(self.delivery.next_ticket(), tickets);
        // SAFETY: as the caller says; loom checks it.
        self.rows[1].with(|row| unsafe { *row })
    }
}

/// Two threads take the block through a scheme, in every order with so many preemptions; both events are executed, under two
/// tickets.
pub fn explore(preemptions: usize, make: impl Fn(&World) -> Box<dyn Scheme> + Send + Sync + 'static) {
    explore_with(2, false, preemptions, make);
}

/// As `explore`, with so many threads. `spanning`: whether events have rows in two shares.
pub fn explore_with(
    threads: usize,
    spanning: bool,
    preemptions: usize,
    make: impl Fn(&World) -> Box<dyn Scheme> + Send + Sync + 'static,
) {
    interleave(preemptions, move || {
        let world = World::with(threads, spanning);
        let shared = Arc::new((make(&world), world));
        let others: Vec<_> = (1..threads)
            .map(|number| {
                let shared = shared.clone();
                thread::spawn(move || shared.1.run(|run| shared.0.block(number, run).unwrap()))
            })
            .collect();
        shared.1.run(|run| shared.0.block(0, run).unwrap());
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(shared.1.check(2), 2);
    });
}
