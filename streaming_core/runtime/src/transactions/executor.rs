//! The transactional executor: state transactions on shared tables, in the way a scheme orders them.

use std::collections::BTreeMap;

use crate::error::RunError;
use crate::executor::{Executor, TakeNamed};
use crate::memory::placement::Placement;
use crate::output::clock::{Arrivals, Clock};
use crate::output::counters::Counters;
use crate::output::delivered::{Delivered, metrics};
use crate::output::metrics::{Metrics, Standing};
use crate::output::sink::Sink;
use crate::planted::{self, Fault};
use crate::program::Program;
use crate::program::options::Options;
use crate::rows::block::Block;
use crate::threads::choice::Choice;
use crate::threads::idle::Strategy;
use crate::threads::team::Team;
use crate::transactions::delivery::Delivery;
use crate::transactions::run::{Candidate, Run};
use crate::transactions::scheme;

use crate::state::states::{Keys, States};
use crate::state::table::Tables;
use crate::transactions::transaction::Transaction;

struct Transactional {
    event_stride: usize,
    transaction: Transaction,
    schemes: Vec<Candidate>,
    /// Of a scheme for each part of a block.
    choice: Choice,
    tables: Tables,
    placement: Placement,
    delivery: Delivery,
    team: Team,
    clock: Clock,
    arrivals: Arrivals,
    events: u64,
    /// What was counted before the run was resumed.
    before: Counters,
    chosen_before: BTreeMap<String, u64>,
}

impl Transactional {
    fn counters(&self) -> Counters {
        let (mut counters, mut schemes) = (self.before, Counters::default());
        self.schemes.iter().for_each(|candidate| schemes += candidate.scheme.counters());
        schemes.time.take_out_remote();
        if self.schemes.iter().all(|candidate| candidate.scheme.counts_plans_as_useful()) {
            schemes.time.take_out_lookups(self.tables.lookup_nanoseconds());
        }
        counters += schemes;
        counters.cpu_nanoseconds += self.team.cpu_nanoseconds();
        counters
    }

    /// Events by the scheme that ran them, if there are several.
    fn chosen(&self) -> BTreeMap<String, u64> {
        let mut chosen = self.chosen_before.clone();
        if !self.choice.is_fixed() {
            for (candidate, events) in self.schemes.iter().zip(self.choice.events()) {
                *chosen.entry(candidate.name.to_owned()).or_default() += events;
            }
        }
        chosen
    }
}

pub fn make(program: Program, options: Options) -> Result<Box<dyn Executor>, RunError> {
    let options = scheme::threads(options)?;
    let placement = Placement::probe(options.threads, options.pin);
    make_with(scheme::make, placement, program, options)
}

/// With schemes and a placement of the caller's own making: tests bring broken ones, to see that they are found out, and
/// made-up ones.
pub fn make_with(
    make_schemes: impl FnOnce(&Program, &Options) -> Result<Vec<Candidate>, RunError>,
    mut placement: Placement,
    program: Program,
    options: Options,
) -> Result<Box<dyn Executor>, RunError> {
    let Some(transaction) = &program.transaction else {
        return Err(RunError::Invalid("the transactional executor runs transactions, not dataflows".into()));
    };
    let schemes = make_schemes(&program, &options)?;
    let ways = schemes.iter().map(|candidate| candidate.way);
    let choice = Choice::new(ways, options.punctuation, options.allowed_threads());
    #[cfg(test)]
    let choice = {
        let mut choice = choice;
        choice.take_turns();
        choice
    };
    let tables = Tables::new(&program.tables, options.threads)?;
    let homes = schemes.last().and_then(|candidate| candidate.scheme.homes());
    placement.bind(tables.rows(), homes.as_deref());
    let arrivals = Arrivals::new(&options.rate.phases()).sleeping(options.idle == Strategy::Park);
    let delivered = Delivered::new(Sink::new(options.sink, program.hasher()?));
    Ok(Box::new(Transactional {
        event_stride: program.event.stride,
        // SAFETY: the creator of a program guarantees its addresses; the executor holds the tables as long.
        transaction: unsafe { Transaction::new(transaction, &tables, program.texts.clone())? },
        schemes,
        choice,
        tables,
        placement,
        delivery: Delivery::new(delivered.with_latencies_of(options.latencies, &arrivals)),
        team: Team::new(options.threads, options.idle, options.pin)?,
        clock: Clock::default(),
        arrivals,
        events: 0,
        before: Counters::default(),
        chosen_before: BTreeMap::new(),
    }))
}

impl Executor for Transactional {
    fn process(&mut self, block: &Block) -> Result<(), RunError> {
        if block.stride != self.event_stride {
            return Err(RunError::Invalid(format!(
                "event rows must have {} bytes, the rows of the block have {}",
                self.event_stride, block.stride
            )));
        }
        let block = &self.transaction.begin(block)?;
        let clock = self.clock.start();
        let signals = self.team.signals();
        let (mut begin, mut outcome) = (0, Ok(()));
        while begin < block.n && outcome.is_ok() {
            let end = self.choice.end(begin..block.n);
            let scheme = &*self.schemes[self.choice.way()].scheme;
            scheme.rewind();
            let run = Run {
                block,
                events: begin..end,
                offset: self.events,
                transaction: &self.transaction,
                tables: &self.tables,
                placement: &self.placement,
                delivery: &self.delivery,
                first_ticket: self.delivery.next_ticket(),
                arrivals: &self.arrivals,
                clock,
                idle: &signals.idle,
                stopped: &signals.stopped,
            };
            let (waits, started) = (!run.has_arrived(end), clock.now());
            outcome = self.team.run(self.choice.threads(), &|thread| scheme.block(thread, &run));
            self.choice.note(end - begin, (!waits).then(|| clock.now() - started));
            begin = end;
        }
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
        let mut memory = self.placement.to_json();
        if self.schemes.iter().any(|candidate| candidate.scheme.makes_up_sockets()) {
            memory["sockets"] = "made up".into();
        }
        if let Some(pools) = self.schemes.iter().find_map(|candidate| candidate.scheme.pools()) {
            memory["pools"] = pools.into();
        }
        let mut costs = BTreeMap::new();
        for (cost, value) in self.schemes.iter().flat_map(|candidate| candidate.scheme.costs()) {
            *costs.entry(cost).or_default() += value;
        }
        Metrics {
            events: self.events,
            threads: self.choice.to_json(),
            counters: self.counters(),
            seconds: self.clock.seconds(),
            binding: self.team.binding(),
            memory,
            chosen: self.chosen(),
            costs,
            ..metrics(std::iter::once(delivered))
        }
    }

    fn load_table(&mut self, index: usize, keys: &Keys, rows: &[u8]) -> Result<(), RunError> {
        self.tables.load(index, keys, rows)
    }

    fn table(&self, index: usize) -> Result<States, RunError> {
        self.tables.copy(index)
    }

    fn standing(&self) -> Result<Standing, RunError> {
        // SAFETY: threads only work within `process`, which needs `&mut self`.
        let delivered = unsafe { self.delivery.delivered() };
        let mut chosen = self.chosen();
        chosen.retain(|_, events| *events > 0);
        Ok(Standing {
            events: self.events,
            nanoseconds: self.clock.nanoseconds(),
            counters: self.counters(),
            chosen,
            delivered: delivered.sink.so_far(),
            processing: delivered.processing.counts(),
            end_to_end: delivered.end_to_end.counts(),
            windows: BTreeMap::new(),
        })
    }

    fn images(&self, take: TakeNamed) -> Result<(), RunError> {
        for index in 0..self.tables.len() {
            self.tables.images(index, &mut |part, image| take(self.tables.name(index), part, image))?;
        }
        Ok(())
    }

    fn restore(&mut self, name: &str, image: &[u64]) -> Result<(), RunError> {
        let index = (0..self.tables.len()).find(|&index| self.tables.name(index) == name);
        self.tables.restore(index.ok_or_else(|| RunError::Invalid(format!("there is no table {name}")))?, image)
    }

    fn resume(&mut self, standing: &Standing) -> Result<(), RunError> {
        self.events = standing.events;
        self.before = standing.counters;
        if planted::has(Fault::LostRejections) {
            self.before.rejected = 0;
        }
        self.chosen_before.clone_from(&standing.chosen);
        self.clock = Clock::after(standing.nanoseconds);
        self.delivery.delivered_mut().resume(standing);
        Ok(())
    }
}
