//! `pat`: counters per partition, as in S-Store (TStream, section II-C3).
//!
//! Every table is cut into the same number of equal ranges of rows, its *partitions*; the last range takes the rest. Each
//! partition has a monotone counter. A transaction inserts its locks when the counters of all its partitions permit it. Then it
//! advances these counters. The counters order only the insertion of locks. Locks are on rows, as in `lock`, so two transactions
//! on different rows of a partition run at the same time. Transactions on disjoint partitions never wait for each other.
//!
//! **Numbers.** A transaction compares its number in each partition with the counter of the partition. In S-Store, the source
//! knows the partitions of a transaction. Here the plan kernel finds them. Threads plan the events of a batch, and the last
//! thread to do so numbers the transactions of each partition. Threads plan a batch before they execute the batch before, so
//! they seldom wait for numbers.
//!
//! The number of partitions belongs to the program and not to the threads. Generators draw keys by partition, and a run must
//! not depend on the thread that executes it.

use std::ops::Range;

use crate::error::RunError;
use crate::program::Program;
use crate::program::kernel::Access;
use crate::program::options::Options;
use crate::state::index::prefetch_to_write;
use crate::threads::own::Own;
use crate::threads::sync::{AtomicUsize, CachePadded, Ordering, UnsafeCell};
use crate::transactions::run::Scheme;
use crate::transactions::scheme::ahead;
use crate::transactions::scheme::ahead::counter::Counter;
use crate::transactions::scheme::ahead::locks::{LockTicket, RowLock};
use crate::transactions::scheme::ahead::requests::{Request, Requests, RowNumbers, writes};
use crate::transactions::scheme::ahead::{Event, Guard};

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    Ok(ahead::make(Pat::new(program, options.threads)?, program, options))
}

struct Pat {
    numbers: RowNumbers,
    locks: Box<[RowLock]>,
    partitions: Partitions,
    counters: Box<[Counter]>,
    source: Source,
}

/// The partitions of all tables, numbered through.
#[derive(Debug)]
struct Partitions {
    /// The number of rows in a partition of each table.
    sizes: Vec<u32>,
    /// The number of partitions of a table.
    each: u32,
}

/// Numbers the transactions of each partition, in event order.
struct Source {
    threads: usize,
    /// For even and odd batches, the number of threads that have planned their events.
    planned: [CachePadded<AtomicUsize>; 2],
    /// For even and odd batches, the partitions of the transactions of each thread.
    targets: [Own<Targets>; 2],
    /// The number of batches whose transactions are numbered. The thread that numbers a batch writes it.
    numbered: CachePadded<AtomicUsize>,
    /// For each partition, the number of its next transaction.
    next: UnsafeCell<Box<[u64]>>,
}

/// The partitions of a thread's transactions of a batch.
#[derive(Debug, Default)]
struct Targets {
    list: Vec<Target>,
    /// The end of each transaction in `list`.
    ends: Vec<u32>,
    /// The last transaction that each partition was noted for, in any batch.
    noted: Vec<u64>,
    transaction: u64,
}

/// A partition of a transaction, and the transaction's number there.
#[derive(Debug, Clone, Copy)]
struct Target {
    partition: u32,
    number: u64,
}

// SAFETY: the thread that plans last uses `next` and all targets, until it declares the batch numbered.
unsafe impl Sync for Source {}

#[derive(Default)]
struct Held {
    requests: Requests,
    targets: Vec<Target>,
    tickets: Vec<LockTicket>,
}

impl Partitions {
    fn new(program: &Program) -> Self {
        let most = program.tables.iter().map(|table| table.rows).max().unwrap_or(1);
        let each = program.partitions.min(most).max(1);
        // A table of fewer rows than partitions has a partition per row.
        Self {
            sizes: program.tables.iter().map(|table| (table.rows / each).max(1) as u32).collect(),
            each: each as u32,
        }
    }

    #[inline]
    fn of(&self, access: &Access) -> u32 {
        let table = usize::from(access.table);
        (access.row / self.sizes[table]).min(self.each - 1) + u32::from(access.table) * self.each
    }

    fn len(&self) -> usize {
        self.sizes.len() * self.each as usize
    }
}

impl Targets {
    fn new(partitions: usize) -> Self {
        Self { noted: vec![0; partitions], ..Self::default() }
    }

    /// Notes the partitions of the thread's next transaction, each once.
    fn note(&mut self, partitions: impl Iterator<Item = u32>) {
        self.transaction += 1;
        for partition in partitions {
            let noted = &mut self.noted[partition as usize];
            if *noted != self.transaction {
                *noted = self.transaction;
                self.list.push(Target { partition, number: 0 });
            }
        }
        self.ends.push(self.list.len() as u32);
    }

    /// Forgets the transactions of a batch.
    fn clear(&mut self) {
        self.list.clear();
        self.ends.clear();
    }

    /// The `index`-th transaction, as a part of `list`.
    fn range(&self, index: usize) -> Range<usize> {
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        begin as usize..self.ends[index] as usize
    }
}

impl Source {
    fn new(threads: usize, partitions: usize) -> Self {
        let targets = || Own::new(threads, || Targets::new(partitions));
        Self {
            threads,
            planned: Default::default(),
            targets: [targets(), targets()],
            numbered: CachePadded::default(),
            next: UnsafeCell::new(vec![0; partitions].into()),
        }
    }

    fn rewind(&self) {
        // ORDERING: Relaxed; starting the next block publishes it.
        self.planned.iter().for_each(|planned| planned.store(0, Ordering::Relaxed));
        self.numbered.store(0, Ordering::Relaxed);
    }

    /// Notes the partitions of the transactions of `thread` in batch `number`, whose events have these positions. The last
    /// thread to do so numbers all transactions of the batch.
    ///
    /// # Safety
    /// `thread` is the calling thread's number. It has executed its transactions of batch `number - 2`.
    unsafe fn foresee<P: Iterator<Item = u32>>(
        &self,
        thread: usize,
        number: usize,
        events: Range<usize>,
        transactions: impl Iterator<Item = P>,
    ) {
        let note = |targets: &mut Targets| {
            targets.clear();
            transactions.for_each(|partitions| targets.note(partitions));
        };
        // SAFETY: other threads use these targets only to number the batch, after this thread has planned it.
        unsafe { self.targets[number % 2].with_mut(thread, note) };
        let planned = &self.planned[number % 2];
        // ORDERING: AcqRel; the last thread takes over the targets of all threads, and the numbers from the thread that
        // numbered the batch before. That thread counts itself only afterwards.
        if planned.fetch_add(1, Ordering::AcqRel) + 1 < self.threads {
            return;
        }
        // ORDERING: Relaxed; `numbered` publishes it.
        planned.store(0, Ordering::Relaxed);
        self.next.with_mut(|next| {
            // SAFETY: all threads have planned the batch, and none executes it.
            let next = unsafe { &mut *next };
            for (index, event) in events.enumerate() {
                let assign = |targets: &mut Targets| {
                    let range = targets.range(index / self.threads);
                    for target in &mut targets.list[range] {
                        let number = &mut next[target.partition as usize];
                        target.number = *number;
                        *number += 1;
                    }
                };
                // SAFETY: as above.
                unsafe { self.targets[number % 2].with_mut(event % self.threads, assign) };
            }
        });
        // ORDERING: Release publishes the numbers.
        self.numbered.store(number + 1, Ordering::Release);
    }

    fn is_numbered(&self, number: usize) -> bool {
        // ORDERING: Acquire takes over the numbers.
        self.numbered.load(Ordering::Acquire) > number
    }

    /// Copies the targets of the `index`-th transaction of `thread` in batch `number`.
    ///
    /// # Safety
    /// `thread` is the calling thread's number, and the batch is numbered.
    #[inline]
    unsafe fn copy(&self, thread: usize, number: usize, index: usize, to: &mut Vec<Target>) {
        to.clear();
        let copy = |targets: &Targets| to.extend_from_slice(&targets.list[targets.range(index)]);
        // SAFETY: only this thread uses its targets, after they are numbered.
        unsafe { self.targets[number % 2].with(thread, copy) };
    }
}

impl Pat {
    fn new(program: &Program, threads: usize) -> Result<Self, RunError> {
        let numbers = RowNumbers::new(&program.tables)?;
        let partitions = Partitions::new(program);
        Ok(Self {
            locks: (0..numbers.len()).map(|_| RowLock::default()).collect(),
            numbers,
            counters: (0..partitions.len()).map(|_| Counter::default()).collect(),
            source: Source::new(threads, partitions.len()),
            partitions,
        })
    }
}

impl Guard for Pat {
    type Held = Held;
    const NUMBERS: bool = true;

    fn held(&self) -> Held {
        Held::default()
    }

    fn rewind(&self) {
        self.source.rewind();
    }

    unsafe fn foresee<'a>(
        &self,
        thread: usize,
        number: usize,
        events: Range<usize>,
        transactions: impl Iterator<Item = &'a [Access]>,
    ) {
        let partitions = |accesses: &'a [Access]| accesses.iter().map(|access| self.partitions.of(access));
        // SAFETY: as the caller says.
        unsafe { self.source.foresee(thread, number, events, transactions.map(partitions)) };
    }

    fn is_numbered(&self, number: usize) -> bool {
        self.source.is_numbered(number)
    }

    #[inline]
    fn collect(&self, event: &Event, held: &mut Held) {
        held.requests
            .collect(event.accesses, |access| Request { row: self.numbers.of(access), writes: writes(access) });
        for request in held.requests.list() {
            prefetch_to_write(&raw const self.locks[request.row as usize]);
        }
        let index = (event.position - event.batch.begin) / self.source.threads;
        // SAFETY: the batch is numbered, and the event is this thread's.
        unsafe { self.source.copy(event.thread, event.number, index, &mut held.targets) };
    }

    #[inline]
    fn is_permitted(&self, _event: &Event, held: &Held) -> bool {
        held.targets.iter().all(|target| self.counters[target.partition as usize].permits(target.number))
    }

    #[inline]
    fn insert(&self, _event: &Event, held: &mut Held) {
        held.tickets.clear();
        held.tickets.extend(held.requests.list().iter().map(|request| {
            // SAFETY: the counters of all partitions of the event permit it, and the row is in one of them.
            unsafe { self.locks[request.row as usize].insert(request) }
        }));
        for target in &held.targets {
            self.counters[target.partition as usize].advance(target.number);
        }
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

    /// A thread for each transaction. Accounts 0 to 3 and 4 to 7 are partitions, and so are the two stocks.
    fn with_stage(transactions: &[Transfer], test: impl FnOnce(&mut Stage<Pat>)) {
        let mut program = program(8, 2);
        program.partitions = 2;
        let threads = transactions.len();
        stage(&program, &Pat::new(&program, threads).unwrap(), threads, transactions, |stage| {
            (0..threads).for_each(|number| stage.plan(number));
            test(stage);
        });
    }

    #[test]
    fn transactions_on_disjoint_partitions_do_not_wait_for_each_other() {
        with_stage(&[transfer(0, 1, 1), transfer(0, 2, 1), transfer(4, 5, 1), transfer(4, 6, 1)], |stage| {
            assert_eq!([0, 1, 2, 3].map(|number| stage.may_insert(number)), [true, false, true, false]);
            // Transactions 2 and 3 run to their ends before the first transaction inserts a lock.
            for number in [2, 3] {
                stage.insert(number);
                stage.execute(number);
                stage.release(number);
            }
            stage.insert(0);
            assert!(stage.is_granted(0) && stage.may_insert(1));
        });
    }

    #[test]
    fn counters_order_only_the_insertion_of_locks() {
        with_stage(&[transfer(0, 1, 1), transfer(2, 3, 1), transfer(0, 2, 1)], |stage| {
            assert!(!stage.may_insert(1));
            stage.insert(0);
            // Transaction 0 holds rows of the partition and has not run.
            stage.insert(1);
            assert!(stage.is_granted(1));
            assert_eq!(stage.execute(1).to, 51);
            stage.release(1);
            stage.insert(2);
            assert!(stage.is_granted(0) && !stage.is_granted(2));
            stage.execute(0);
            stage.release(0);
            assert_eq!(stage.execute(2).from, 48);
        });
    }

    #[test]
    fn a_transaction_waits_for_the_counters_of_all_its_partitions() {
        with_stage(&[transfer(4, 5, 1), transfer(0, 1, 1), transfer(2, 6, 1), transfer(7, 7, 1)], |stage| {
            stage.insert(1);
            assert!(!stage.may_insert(2), "partition 1 waits for transaction 0");
            stage.insert(0);
            assert_eq!([2, 3].map(|number| stage.may_insert(number)), [true, false]);
            stage.insert(2);
            assert!(stage.may_insert(3));
        });
    }

    #[test]
    fn each_table_has_partitions_of_its_own() {
        // Both touch the first partition of a table: of the accounts, and of the stocks.
        with_stage(&[transfer(0, 1, 1), look(4, 5, 0)], |stage| {
            stage.insert(1);
            assert_eq!(stage.execute(1).from, 50);
            stage.release(1);
            assert!(stage.may_insert(0));
        });
    }

    #[test]
    fn readers_of_a_row_share_it() {
        with_stage(&[look(0, 1, 0), look(0, 1, 0), transfer(0, 1, 1)], |stage| {
            (0..3).for_each(|number| stage.insert(number));
            assert_eq!([0, 1, 2].map(|number| stage.is_granted(number)), [true, true, false]);
        });
    }

    #[test]
    fn the_last_partition_of_a_table_takes_the_remaining_rows() {
        let mut program = program(11, 2);
        program.partitions = 3;
        let partitions = Partitions::new(&program);
        let of = |table, row| partitions.of(&Access { table, row, ..Access::default() });
        assert_eq!([0, 2, 3, 8, 9, 10].map(|row| of(0, row)), [0, 0, 1, 2, 2, 2]);
        assert_eq!(([0, 1].map(|row| of(1, row)), partitions.len()), ([3, 4], 6));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::sync::{Arc, thread};
    use crate::threads::testing::interleave;
    use crate::transactions::testing::world;

    /// Transactions of one or two partitions, which two threads plan and execute in turn, in batches of two. The cells fail if
    /// two transactions insert into a partition at a time. The values fail if they insert in another order.
    #[test]
    fn loom_transactions_insert_into_each_partition_in_order() {
        const EVENTS: [&[u32]; 4] = [&[0], &[0, 1], &[1], &[0]];
        interleave(3, || {
            let partition = || (Counter::default(), UnsafeCell::new(0));
            let shared = Arc::new((Source::new(2, 2), [partition(), partition()]));
            let work = |(source, partitions): &(Source, [(Counter, UnsafeCell<usize>); 2]), me: usize| {
                let plan = |number: usize| {
                    let events = 2 * number..2 * number + 2;
                    let own = EVENTS[events.clone()].iter().skip(me).step_by(2).map(|event| event.iter().copied());
                    // SAFETY: there are two batches.
                    unsafe { source.foresee(me, number, events, own) };
                };
                plan(0);
                let mut targets = Vec::new();
                for number in 0..2 {
                    if number == 0 {
                        plan(1);
                    }
                    while !source.is_numbered(number) {
                        thread::yield_now();
                    }
                    // SAFETY: numbered.
                    unsafe { source.copy(me, number, 0, &mut targets) };
                    let counter = |target: &Target| &partitions[target.partition as usize].0;
                    while !targets.iter().all(|target| counter(target).permits(target.number)) {
                        thread::yield_now();
                    }
                    let event = 2 * number + me;
                    for target in &targets {
                        let cell = &partitions[target.partition as usize].1;
                        // SAFETY: loom checks that no other thread is at the cell.
                        let before = cell.with_mut(|cell| unsafe { std::mem::replace(&mut *cell, event + 1) });
                        assert!(before <= event);
                        counter(target).advance(target.number);
                    }
                }
            };
            let other = {
                let shared = shared.clone();
                thread::spawn(move || work(&shared, 1))
            };
            work(&shared, 0);
            other.join().unwrap();
        });
    }

    /// Two threads take two conflicting events from plan to delivery.
    #[test]
    #[ignore = "a whole executor, half a minute: in make test-full"]
    fn loom_conflicting_transactions_run_in_order() {
        world::explore(2, |world| {
            make(&world.program, &Options { threads: 2, batch: 1, ..Options::default() }).unwrap()
        });
    }
}
