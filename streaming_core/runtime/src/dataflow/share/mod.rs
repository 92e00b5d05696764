//! The `share` executor: one operator with a share of its keys, in a task of a cluster engine.
//!
//! The cluster engine runs each operator in tasks that share nothing (STRETCH, section 2.2). It deals rows to them by key, sorts
//! them, and puts the outputs of all tasks into one order. The task is this executor, on the calling thread.
//!
//! Each output has the position of its input in the block, as its number, and a rank (`channel/rank.rs`), its order among the
//! outputs of that input in all tasks. At the end of the stream, a partitioned operator flushes its keys in ascending order. The
//! number of the key then takes the place of the position. Windows that expire then have position 0.
//!
//! A program is a chain of operators, at most one of them with state. Or it is one operator with windows. If that takes several
//! streams, the last word of an event is the number of its stream, and the fields are those of the stream.

mod dealer;
mod outputs;
mod shape;
mod windows;

pub use dealer::Dealer;

use crate::dataflow::channel::rank::{Rank, path_too_long};
use crate::dataflow::direct::keyed;
use crate::dataflow::flush::{due, flush_keys};
use crate::dataflow::lane::{Lanes, Scratch, keyed_states, lane_of};
use crate::dataflow::operator::Chain;
use crate::error::RunError;
use crate::executor::Executor;
use crate::interruption;
use crate::output::clock::Clock;
use crate::output::counters::Counters;
use crate::output::metrics::{Metrics, Standing};
use crate::program::Program;
use crate::program::options::Options;
use crate::rows::block::{Block, Text};
use crate::rows::buffer::RowBuffer;
use crate::rows::texts::{self, Texts};
use crate::rows::view::Rows;
use crate::state::states::States;
use crate::threads::sync::Arc;
use crate::threads::team::thread_cpu_nanoseconds;

use outputs::{Outputs, SECTION};
use shape::check;
use windows::Windows;

/// A chain of operators with one lane for its keys.
#[derive(Debug)]
struct Line {
    chain: Chain,
    lanes: Vec<Lanes>,
    scratch: Scratch,
    /// Per operator, its outputs.
    buffers: Vec<RowBuffer>,
    /// Per output of the last operator, the position of its input.
    positions: Vec<u32>,
}

#[derive(Debug)]
enum Work {
    Line(Box<Line>),
    Windows(Box<Windows>),
}

/// See the module.
#[derive(Debug)]
struct Share {
    work: Work,
    texts: Option<Arc<Texts>>,
    outputs: Outputs,
    counters: Counters,
    clock: Clock,
    events: u64,
    /// Its number, and how many there are.
    share: (usize, usize),
}

/// Makes the executor that `options` describe.
///
/// # Errors
/// `Invalid`: the program is neither a chain nor an operator with windows, or there is no such share.
pub(crate) fn make(program: Program, options: Options) -> Result<Box<dyn Executor>, RunError> {
    check(&program, options.share)?;
    // SAFETY: the creator of the program guarantees its addresses.
    let (chain, windows) = unsafe { (Chain::bind(&program)?, Windows::bind(&program, options.share)?) };
    let work = match windows {
        Some(windows) => Work::Windows(Box::new(windows)),
        None => Work::Line(Box::new(Line {
            lanes: chain.stateful.iter().map(|&at| Lanes::new(&chain.operators[at], 1)).collect(),
            scratch: Scratch::default(),
            buffers: chain.operators.iter().map(|operator| RowBuffer::new(operator.stride, true)).collect(),
            positions: Vec::new(),
            chain,
        })),
    };
    Ok(Box::new(Share {
        work,
        texts: program.texts.clone(),
        outputs: Outputs::default(),
        counters: Counters::default(),
        clock: Clock::default(),
        events: 0,
        share: options.share,
    }))
}

impl Line {
    /// Takes rows through all operators from number `first` on.
    ///
    /// # Safety
    /// The rows are readable and have the layout of this operator's input.
    unsafe fn take(&mut self, first: usize, mut rows: Rows, counters: &mut Counters) -> Result<(), RunError> {
        let text = rows.text;
        for index in first..self.chain.operators.len() {
            let (operator, out) = (&self.chain.operators[index], &mut self.buffers[index]);
            out.clear();
            let outcome = match self.chain.stateful.binary_search(&index) {
                // SAFETY: as the caller says.
                Err(_) => unsafe { operator.map(rows, out) },
                // SAFETY: as above; the lanes are this thread's.
                Ok(stage) => unsafe { keyed(&self.chain, &self.lanes[stage], index, rows, &mut self.scratch, out) },
            };
            counters.dropped += out.take_dropped();
            outcome?;
            if index == first {
                self.positions.clear();
                self.positions.extend_from_slice(out.origins());
            } else {
                let before = std::mem::take(&mut self.positions);
                self.positions.extend(out.origins().iter().map(|&origin| before[origin as usize]));
            }
            rows = Rows::of(out, text);
        }
        Ok(())
    }

    /// Puts out the outputs of the last operator. `position` maps the positions of inputs to those in the block.
    fn put_out(&self, outputs: &mut Outputs, position: impl Fn(usize) -> usize) -> Result<(), RunError> {
        let rows = self.buffers.last().expect("a program has an operator");
        outputs.rows.extend_from_slice(rows.bytes());
        let (mut last, mut number) = (None, 0);
        for (index, &origin) in self.positions.iter().enumerate() {
            number = if last == Some(origin) { number + 1 } else { 0 };
            last = Some(origin);
            let rank = Rank::ONLY.output(number).ok_or_else(|| path_too_long(rows.seq(index)))?;
            outputs.positions.push(position(origin as usize) as u32);
            outputs.ranks.push(rank);
        }
        Ok(())
    }

    /// Flushes the operator with state, key by key, and takes what it emits through the operators behind it.
    fn flush(
        &mut self,
        (seq, text): (i64, Text),
        outputs: &mut Outputs,
        counters: &mut Counters,
    ) -> Result<(), RunError> {
        let (Some(&index), true) = (self.chain.stateful.first(), self.chain.operators.iter().any(|o| o.has_flush()))
        else {
            return Ok(());
        };
        let is_last = index + 1 == self.chain.operators.len();
        // SAFETY: the lanes are this thread's.
        for (number, key) in unsafe { due(&self.lanes[0]) }.chunks(1).enumerate() {
            let mut out = std::mem::replace(&mut self.buffers[index], RowBuffer::new(8, true));
            out.clear();
            // SAFETY: as above.
            let flushed = unsafe { flush_keys(&self.chain.operators[index], &self.lanes[0], key, seq, &mut out) };
            counters.dropped += out.take_dropped();
            let rows = Rows::of(&out, text);
            let outcome = match flushed {
                Err(error) => Err(error),
                Ok(()) if is_last => {
                    self.positions.clear();
                    self.positions.resize(rows.n, 0);
                    Ok(())
                }
                // SAFETY: the rows are the operator's outputs.
                Ok(()) => unsafe { self.take(index + 1, rows, counters) },
            };
            self.buffers[index] = out;
            outcome?;
            // All rows are outputs of this key, in this order.
            self.positions.fill(0);
            self.put_out(outputs, |_| number)?;
        }
        Ok(())
    }
}

impl Share {
    /// Takes rows. The first one is at this position of the block.
    fn take(&mut self, rows: Rows, first: usize) -> Result<(), RunError> {
        let Self { work, outputs, counters, .. } = self;
        match work {
            // SAFETY: a block's rows are readable.
            Work::Windows(windows) => unsafe { windows.take(rows, first, outputs, counters) },
            Work::Line(line) => {
                // SAFETY: as above.
                unsafe { line.take(0, rows, counters) }?;
                line.put_out(outputs, |position| first + position)
            }
        }
    }
}

impl Executor for Share {
    fn process(&mut self, block: &Block) -> Result<(), RunError> {
        let text = texts::begin(self.texts.as_ref(), block.text)?;
        let (clock, before) = (self.clock.start(), thread_cpu_nanoseconds());
        let mut outcome = Ok(());
        let mut start = 0;
        while start < block.n && outcome.is_ok() {
            let rows = Rows::new(block.row(start), SECTION.min(block.n - start), block.stride, text);
            outcome = interruption::check().and_then(|()| self.take(rows, start));
            start += rows.n;
        }
        self.clock.stop(clock);
        self.counters.cpu_nanoseconds += thread_cpu_nanoseconds() - before;
        self.events += block.n as u64;
        outcome
    }

    fn finish(&mut self, seq: i64) -> Result<(), RunError> {
        let text = texts::begin(self.texts.as_ref(), Text::empty())?;
        let (clock, before) = (self.clock.start(), thread_cpu_nanoseconds());
        let Self { work, outputs, counters, .. } = self;
        let outcome = match work {
            // SAFETY: all rows were taken; no other replica has the cells.
            Work::Windows(windows) => unsafe { windows.finish((seq, text), outputs, counters) },
            Work::Line(line) => line.flush((seq, text), outputs, counters),
        };
        self.clock.stop(clock);
        self.counters.cpu_nanoseconds += thread_cpu_nanoseconds() - before;
        outcome
    }

    fn take_outputs(&mut self) -> (Vec<u8>, Vec<u32>) {
        (std::mem::take(&mut self.outputs.rows), std::mem::take(&mut self.outputs.positions))
    }

    fn take_ranks(&mut self) -> Vec<u128> {
        self.outputs.ranks.drain(..).map(Rank::order).collect()
    }

    fn metrics(&self) -> Metrics {
        let late = match &self.work {
            Work::Windows(windows) => windows.late(),
            Work::Line(_) => 0,
        };
        Metrics {
            events: self.events,
            counters: self.counters,
            seconds: self.clock.seconds(),
            late,
            ..Metrics::default()
        }
    }

    fn restore(&mut self, name: &str, image: &[u64]) -> Result<(), RunError> {
        let (number, of) = self.share;
        match &mut self.work {
            // SAFETY: no row was taken yet.
            Work::Windows(windows) => unsafe { windows.restore(image) },
            Work::Line(line) => {
                let Line { chain, lanes, .. } = &mut **line;
                let [stateful] = chain.stateful[..] else {
                    return Err(RunError::Invalid(format!("operator {name} has no state")));
                };
                // SAFETY: as above.
                unsafe { lanes[0].restore(&chain.operators[stateful], image, |hash| lane_of(hash, of) == number) }
            }
        }
    }

    fn resume(&mut self, standing: &Standing) -> Result<(), RunError> {
        match &mut self.work {
            // SAFETY: as for `restore`.
            Work::Windows(windows) => unsafe { windows.resume(standing) },
            Work::Line(_) => Ok(()),
        }
    }

    fn states(&mut self, operator: usize) -> Result<States, RunError> {
        match &self.work {
            // SAFETY: this thread alone uses the lanes.
            Work::Line(line) => unsafe { keyed_states(&line.chain, &line.lanes, operator) },
            Work::Windows(_) => Err(RunError::Invalid(format!("operator {operator} has no state"))),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
