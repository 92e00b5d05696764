//! `lock`: strict two-phase locking with lock-ahead (TStream, section II-C1).
//!
//! One monotone counter orders the insertion of locks of all transactions. A transaction inserts shared locks on the rows that
//! it only reads, and exclusive locks on the rows that it may write. It keeps them to its end, even if it is rejected. The
//! counter advances when the locks are inserted, so later transactions insert their locks while this one waits or runs.

use crate::error::RunError;
use crate::program::Program;
use crate::program::options::Options;
use crate::state::index::prefetch_to_write;
use crate::transactions::run::Scheme;
use crate::transactions::scheme::ahead;
use crate::transactions::scheme::ahead::counter::Counter;
use crate::transactions::scheme::ahead::locks::{LockTicket, RowLock};
use crate::transactions::scheme::ahead::requests::{Request, Requests, RowNumbers, writes};
use crate::transactions::scheme::ahead::{Event, Guard};

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    Ok(ahead::make(Lock::new(program)?, program, options))
}

struct Lock {
    numbers: RowNumbers,
    locks: Box<[RowLock]>,
    counter: Counter,
}

#[derive(Default)]
struct Held {
    requests: Requests,
    tickets: Vec<LockTicket>,
}

impl Lock {
    fn new(program: &Program) -> Result<Self, RunError> {
        let numbers = RowNumbers::new(&program.tables)?;
        let locks = (0..numbers.len()).map(|_| RowLock::default()).collect();
        Ok(Self { numbers, locks, counter: Counter::default() })
    }
}

impl Guard for Lock {
    type Held = Held;

    fn held(&self) -> Held {
        Held::default()
    }

    fn rewind(&self) {
        self.counter.rewind();
    }

    #[inline]
    fn collect(&self, event: &Event, held: &mut Held) {
        held.requests
            .collect(event.accesses, |access| Request { row: self.numbers.of(access), writes: writes(access) });
        for request in held.requests.list() {
            prefetch_to_write(&raw const self.locks[request.row as usize]);
        }
    }

    #[inline]
    fn is_permitted(&self, event: &Event, _held: &Held) -> bool {
        self.counter.permits(event.timestamp())
    }

    #[inline]
    fn insert(&self, event: &Event, held: &mut Held) {
        held.tickets.clear();
        held.tickets.extend(held.requests.list().iter().map(|request| {
            // SAFETY: the counter permits it.
            unsafe { self.locks[request.row as usize].insert(request) }
        }));
        self.counter.advance(event.timestamp());
    }

    #[inline]
    fn is_granted(&self, held: &Held) -> bool {
        held.tickets.iter().all(|ticket| self.locks[ticket.row as usize].is_granted(ticket))
    }

    #[inline]
    unsafe fn apply(&self, event: &Event, _held: &mut Held) -> Result<(), RunError> {
        // SAFETY: this thread holds the locks of all rows of the event.
        unsafe { event.apply(event.accesses, event.run.tables.bases()) }
    }

    #[inline]
    fn release(&self, held: &Held) {
        for ticket in &held.tickets {
            self.locks[ticket.row as usize].release(ticket);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::transactions::scheme::ahead::stage::{Stage, look, stage, transfer};
    use crate::transactions::testing::bank::kernels::{Transfer, program};

    /// A thread for each transaction.
    fn with_stage(transactions: &[Transfer], test: impl FnOnce(&mut Stage<Lock>)) {
        let program = program(8, 2);
        stage(&program, &Lock::new(&program).unwrap(), transactions.len(), transactions, |stage| {
            (0..transactions.len()).for_each(|number| stage.plan(number));
            test(stage);
        });
    }

    #[test]
    fn the_next_transaction_inserts_its_locks_when_the_former_has_inserted_its_locks() {
        with_stage(&[transfer(0, 1, 1), transfer(2, 3, 1), transfer(4, 5, 1)], |stage| {
            assert_eq!([0, 1, 2].map(|number| stage.may_insert(number)), [true, false, false]);
            stage.insert(0);
            // Transaction 0 has not run.
            assert_eq!([1, 2].map(|number| stage.may_insert(number)), [true, false]);
            stage.insert(1);
            assert!(stage.may_insert(2));
        });
    }

    #[test]
    fn a_transaction_with_free_rows_runs_while_an_earlier_one_waits() {
        with_stage(&[transfer(0, 1, 1), transfer(0, 2, 1), transfer(3, 4, 1)], |stage| {
            (0..3).for_each(|number| stage.insert(number));
            assert_eq!([0, 1, 2].map(|number| stage.is_granted(number)), [true, false, true]);
            assert_eq!(stage.execute(2).to, 51);
            stage.release(2);
            stage.execute(0);
            assert!(!stage.is_granted(1), "a transaction keeps its locks to its end");
            stage.release(0);
            assert_eq!(stage.execute(1).from, 48);
        });
    }

    #[test]
    fn readers_share_a_row_and_a_writer_waits_for_all_of_them() {
        with_stage(&[look(0, 1, 0), look(0, 1, 0), transfer(0, 2, 1), look(0, 3, 0)], |stage| {
            (0..4).for_each(|number| stage.insert(number));
            assert_eq!([0, 1, 2, 3].map(|number| stage.is_granted(number)), [true, true, false, false]);
            stage.release(1);
            assert!(!stage.is_granted(2));
            stage.release(0);
            assert_eq!([2, 3].map(|number| stage.is_granted(number)), [true, false]);
            stage.execute(2);
            stage.release(2);
            assert_eq!(stage.execute(3).from, 49);
        });
    }

    #[test]
    fn a_transaction_that_reads_and_writes_a_row_locks_it_exclusively() {
        with_stage(&[transfer(0, 0, 1), look(0, 1, 0)], |stage| {
            (0..2).for_each(|number| stage.insert(number));
            assert_eq!([0, 1].map(|number| stage.is_granted(number)), [true, false]);
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::transactions::testing::world;

    /// Two threads take two conflicting events from plan to delivery.
    #[test]
    #[ignore = "a whole executor, half a minute: in make test-full"]
    fn loom_conflicting_transactions_run_in_order() {
        world::explore(2, |world| {
            make(&world.program, &Options { threads: 2, batch: 1, ..Options::default() }).unwrap()
        });
    }
}
