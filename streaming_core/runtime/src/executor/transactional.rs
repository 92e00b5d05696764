//! The transactional executor: state transactions on shared tables, in the way a scheme orders them.

use super::Executor;
use super::team::Team;
use crate::batch::Block;
use crate::kernel::RunError;
use crate::metrics::{Arrivals, Clock, Metrics};
use crate::program::{Options, Program};
use crate::scheme::{self, Delivery, Run, Scheme};
use crate::sink::Sink;

use crate::state::table::Tables;
use crate::transaction::Transaction;

struct Transactional {
    event_stride: usize,
    transaction: Transaction,
    scheme: Box<dyn Scheme>,
    tables: Tables,
    delivery: Delivery,
    team: Team,
    clock: Clock,
    arrivals: Arrivals,
    events: u64,
}

pub fn make(program: Program, options: Options) -> Result<Box<dyn Executor>, RunError> {
    make_with(scheme::make, program, options)
}

/// With a scheme of the caller's own making: tests bring broken ones, to see that they are found out.
pub fn make_with(
    make_scheme: impl FnOnce(&Program, &Options) -> Result<Box<dyn Scheme>, RunError>,
    program: Program,
    options: Options,
) -> Result<Box<dyn Executor>, RunError> {
    let Some(transaction) = &program.transaction else {
        return Err(RunError::Invalid("the transactional executor runs transactions, not dataflows".into()));
    };
    Ok(Box::new(Transactional {
        event_stride: program.event.stride,
        // SAFETY: whoever makes a program answers for its addresses.
        transaction: unsafe { Transaction::new(transaction)? },
        scheme: make_scheme(&program, &options)?,
        tables: Tables::new(&program.tables, options.threads)?,
        delivery: Delivery::new(Sink::new(options.sink, program.hasher()?)),
        team: Team::new(options.threads, options.idle, options.pin)?,
        clock: Clock::default(),
        arrivals: Arrivals::new(options.rate),
        events: 0,
    }))
}

impl Executor for Transactional {
    fn process(&mut self, block: &Block) -> Result<(), RunError> {
        if block.stride != self.event_stride {
            return Err(RunError::Invalid(format!(
                "events have {} bytes, the block's rows {}",
                self.event_stride, block.stride
            )));
        }
        self.scheme.rewind();
        let clock = self.clock.start();
        let signals = self.team.signals();
        let run = Run {
            block,
            events: 0..block.n,
            offset: self.events,
            transaction: &self.transaction,
            tables: &self.tables,
            delivery: &self.delivery,
            first_ticket: self.delivery.next_ticket(),
            arrivals: self.arrivals,
            clock,
            idle: &signals.idle,
            stopped: &signals.stopped,
        };
        let scheme = &*self.scheme;
        let outcome = self.team.run(&|thread| scheme.block(thread, &run));
        self.clock.stop(clock);
        self.events += block.n as u64;
        outcome
    }

    fn finish(&mut self, _seq: i64) -> Result<(), RunError> {
        // Every block is complete when `process` returns, and transactions have nothing to flush.
        Ok(())
    }

    fn take_outputs(&mut self) -> (Vec<u8>, Vec<u32>) {
        self.delivery.delivered_mut().sink.take()
    }

    fn metrics(&self) -> Metrics {
        // SAFETY: threads only work within `process`, which needs `&mut self`.
        let delivered = unsafe { self.delivery.delivered() };
        let mut counters = self.scheme.counters();
        counters += self.team.counters();
        Metrics {
            events: self.events,
            counters,
            seconds: self.clock.seconds(),
            digest: delivered.sink.digest(),
            in_order: delivered.sink.in_order(),
            processing: delivered.processing.clone(),
            end_to_end: delivered.end_to_end.clone(),
            binding: self.team.binding(),
            chosen: self.scheme.chosen(),
        }
    }

    fn load_table(&mut self, index: usize, rows: &[u8]) -> Result<(), RunError> {
        self.tables.load(index, rows)
    }

    fn table(&self, index: usize) -> Result<Vec<u8>, RunError> {
        self.tables.copy(index)
    }
}
