//! What the models of schemes run in: a block of two events that have no accesses and no outputs, but each adds one to the
//! only row where it is executed. Loom fails if two are at it at a time, or one does not see what the other left.

use crate::memory::placement::Placement;
use crate::output::clock::{Arrivals, Clock};
use crate::output::sink::{Sink, SinkKind};
use crate::program::Program;
use crate::program::kernel::{ApplyContext, ExecuteContext, PlaceContext, PlanContext, PostContext};
use crate::rows::block::{Block, TEXT_PADDING, Text};
use crate::state::table::Tables;
use crate::threads::idle::{Idle, Strategy};
use crate::threads::sync::{AtomicBool, UnsafeCell};
use crate::transactions::delivery::Delivery;
use crate::transactions::run::Run;
use crate::transactions::transaction::Transaction;

extern "C" fn plan(_: *mut PlanContext) -> i64 {
    0
}
extern "C" fn apply(_: *mut ApplyContext) -> i64 {
    0
}
extern "C" fn post(_: *mut PostContext) -> i64 {
    0
}
extern "C" fn place(_: *mut PlaceContext) -> i64 {
    0
}

extern "C" fn execute(context: *mut ExecuteContext) -> i64 {
    // SAFETY: the context is the runtime's, and an event is the address of the row; loom checks who is at it.
    unsafe {
        let context = &*context;
        for i in context.begin as usize..context.end as usize {
            let row = context.rows.cast::<*const UnsafeCell<u64>>().add(i).read();
            (*row).with_mut(|row| *row += 1);
        }
    }
    0
}

/// Two threads' world.
pub struct World {
    pub program: Program,
    transaction: Transaction,
    tables: Tables,
    placement: Placement,
    delivery: Delivery,
    idle: Idle,
    stopped: AtomicBool,
    row: Box<UnsafeCell<u64>>,
    events: [usize; 2],
    text: [u64; TEXT_PADDING / 8],
}

impl World {
    pub fn new() -> Self {
        let kernels = [
            plan as extern "C" fn(*mut PlanContext) -> i64 as usize,
            apply as extern "C" fn(*mut ApplyContext) -> i64 as usize,
            post as extern "C" fn(*mut PostContext) -> i64 as usize,
            execute as extern "C" fn(*mut ExecuteContext) -> i64 as usize,
            place as extern "C" fn(*mut PlaceContext) -> i64 as usize,
        ];
        let program = Program::parse(&format!(
            r#"{{"kind": "transaction", "event": {{"stride": 8}},
                "tables": [{{"name": "t", "rows": 1, "stride": 8, "read": [0, 8]}}],
                "transaction": {{"name": "t", "plan": {}, "apply": {}, "post": {}, "execute": {}, "place": {},
                                 "stride": 8, "result_stride": 8}},
                "columns": []}}"#,
            kernels[0], kernels[1], kernels[2], kernels[3], kernels[4]
        ))
        .unwrap();
        let row = Box::new(UnsafeCell::new(0));
        let event = (&raw const *row) as usize;
        World {
            // SAFETY: the kernels above.
            transaction: unsafe { Transaction::new(program.transaction.as_ref().unwrap()).unwrap() },
            tables: Tables::new(&program.tables, 2).unwrap(),
            placement: Placement::flat(2, "a model"),
            delivery: Delivery::new(Sink::new(SinkKind::Count, program.hasher().unwrap())),
            idle: Idle::new(Strategy::Yield, 2, 2),
            stopped: AtomicBool::new(false),
            events: [event; 2],
            text: [0; TEXT_PADDING / 8],
            row,
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
            arrivals: Arrivals::new(0.0),
            clock: Clock::default().start(),
            idle: &self.idle,
            stopped: &self.stopped,
        });
    }

    /// Both events were delivered; how many of them were executed. All threads but this one have ended.
    pub fn check(&self) -> u64 {
        assert_eq!(self.delivery.next_ticket(), 2);
        // SAFETY: as the caller says; loom checks it.
        self.row.with(|row| unsafe { *row })
    }
}
