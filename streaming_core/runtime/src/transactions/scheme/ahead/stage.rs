//! A stage for tests of what guards decide. A test takes transactions of the bank through a guard, step by step. The order of
//! steps is any that the guard permits.

use crate::memory::placement::Placement;
use crate::output::clock::{Arrivals, Clock};
use crate::output::delivered::Delivered;
use crate::output::sink::{Sink, SinkKind};
use crate::program::Program;
use crate::rows::block::{Block, TEXT_PADDING, Text};
use crate::rows::buffer::RowBuffer;
use crate::state::states::Keys;
use crate::state::table::Tables;
use crate::threads::idle::{Idle, Strategy};
use crate::threads::sync::AtomicBool;
use crate::transactions::batch::Batch;
use crate::transactions::delivery::Delivery;
use crate::transactions::run::Run;
use crate::transactions::scheme::ahead::{Event, Guard, Worker};
use crate::transactions::testing::bank::kernels::{EVENT, Transfer, VERDICT, Verdict};
use crate::transactions::transaction::Transaction;

/// The balance of every account and stock at the start.
pub(crate) const BALANCE: i64 = 50;

/// A transaction that writes two accounts.
pub(crate) fn transfer(from: u32, to: u32, amount: i64) -> Transfer {
    Transfer { seq: 0, kind: 0, from, to, item: 0, amount }
}

/// A transaction that reads two accounts and a stock.
pub(crate) fn look(from: u32, to: u32, item: u32) -> Transfer {
    Transfer { seq: 0, kind: 3, from, to, item, amount: 0 }
}

/// Transactions, numbered from 0, which `threads` threads take in turn.
pub(crate) struct Stage<'a, G: Guard> {
    guard: &'a G,
    run: &'a Run<'a>,
    workers: Vec<Worker<G::Held>>,
}

impl<G: Guard> Stage<'_, G> {
    fn batch(&self) -> Batch<'_> {
        Batch { block: self.run.block, begin: 0, end: self.run.block.n }
    }

    /// Calls `work` with a planned transaction.
    fn with<R>(&mut self, number: usize, work: impl FnOnce(&G, &Event, &mut G::Held) -> R) -> R {
        let (guard, run, threads) = (self.guard, self.run, self.workers.len());
        let batch = Batch { block: run.block, begin: 0, end: run.block.n };
        let Worker { plans, held, thread, .. } = &mut self.workers[number % threads];
        let event = plans[0].event(run, *thread, &batch, 0, number, threads);
        work(guard, &event, held)
    }

    /// Plans a transaction on its thread, which must have released the one before.
    pub fn plan(&mut self, number: usize) {
        let (run, threads) = (self.run, self.workers.len());
        let batch = Batch { block: run.block, begin: 0, end: run.block.n };
        let worker = &mut self.workers[number % threads];
        if !G::NUMBERS {
            worker.plans[0].planner.reset();
            worker.plan_event(run, &batch, 0, number).unwrap();
        }
        self.with(number, |guard, event, held| guard.collect(event, held));
    }

    pub fn may_insert(&mut self, number: usize) -> bool {
        self.with(number, |guard, event, held| guard.is_permitted(event, held))
    }

    pub fn insert(&mut self, number: usize) {
        assert!(self.may_insert(number));
        self.with(number, |guard, event, held| guard.insert(event, held));
    }

    pub fn is_granted(&mut self, number: usize) -> bool {
        self.with(number, |guard, _, held| guard.is_granted(held))
    }

    /// Accesses the rows of a transaction, and returns its output.
    pub fn execute(&mut self, number: usize) -> Verdict {
        assert!(self.is_granted(number));
        // SAFETY: granted, and a test executes each transaction once.
        self.with(number, |guard, event, held| unsafe { guard.apply(event, held) }).unwrap();
        let mut rows = RowBuffer::new(VERDICT, false);
        let outcome = &self.workers[number % self.workers.len()].plans[0].outcome;
        self.run.transaction.post(&self.batch(), number..number + 1, outcome, &mut rows).unwrap();
        assert_eq!(rows.len(), 1);
        // SAFETY: the kernel wrote a verdict.
        unsafe { rows.row(0).cast::<Verdict>().read_unaligned() }
    }

    pub fn release(&mut self, number: usize) {
        self.with(number, |guard, _, held| guard.release(held));
    }

    /// What the thread of a transaction holds.
    pub fn held(&self, number: usize) -> &G::Held {
        &self.workers[number % self.workers.len()].held
    }
}

/// Calls `test` with a stage for these transactions.
pub(crate) fn stage<G: Guard>(
    program: &Program,
    guard: &G,
    threads: usize,
    transactions: &[Transfer],
    test: impl FnOnce(&mut Stage<G>),
) {
    assert_eq!(size_of::<Transfer>(), EVENT);
    let mut tables = Tables::new(&program.tables, threads).unwrap();
    // SAFETY: the kernels of the bank; this function holds the tables as long as the transaction.
    let transaction = unsafe { Transaction::new(program.transaction.as_ref().unwrap(), &tables, None).unwrap() };
    for (index, table) in program.tables.iter().enumerate() {
        tables.load(index, &Keys::None, &BALANCE.to_le_bytes().repeat(table.rows)).unwrap();
    }
    let padding = [0_u64; TEXT_PADDING / 8];
    // SAFETY: both outlive the block.
    let block = unsafe {
        let text = Text::new(padding.as_ptr().cast(), 0);
        Block::new(transactions.as_ptr().cast(), transactions.len(), EVENT, text)
    };
    let run = Run {
        block: &block,
        events: 0..block.n,
        offset: 0,
        transaction: &transaction,
        tables: &tables,
        placement: &Placement::flat(threads, "a test"),
        delivery: &Delivery::new(Delivered::new(Sink::new(SinkKind::Count, program.hasher().unwrap()))),
        first_ticket: 0,
        arrivals: &Arrivals::new(&[]),
        clock: Clock::default().start(),
        idle: &Idle::new(Strategy::Yield, threads, threads),
        stopped: &AtomicBool::new(false),
    };
    let worker = |thread| Worker::new(thread, threads, block.n, guard.held());
    let mut stage = Stage { guard, run: &run, workers: (0..threads).map(worker).collect() };
    if G::NUMBERS {
        let batch = Batch { block: &block, begin: 0, end: block.n };
        for worker in &mut stage.workers {
            assert!(!guard.is_numbered(0));
            worker.plan_batch(&run, guard, &batch, 0).unwrap();
        }
        assert!(guard.is_numbered(0));
    }
    test(&mut stage);
}
