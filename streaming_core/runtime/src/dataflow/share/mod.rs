//! The `share` executor: one operator with a share of its keys, in a task of a cluster engine.
//!
//! The cluster engine runs each operator in tasks that share nothing (STRETCH, section 2.2). It deals rows to them by key, sorts
//! them, and puts the outputs of all tasks into one order. The task is this executor, on the calling thread. In it, each row is
//! an event of its own, so `seq` is the number of a row in the task. An output therefore names its input by `seq` and its place
//! among the outputs of that input by `sub`.
//!
//! * A partitioned operator flushes its keys in ascending order. The outputs of key number `k` have `seq` N + k.
//! * A windowed operator owns the cells of one share. Its outputs also have ranks (`channel/rank.rs`): their order among the
//!   outputs of the same row in all tasks. A `Dealer` says which tasks need a row.
//!
//! Stateless operators may come before the operator, to take streams apart. They may come behind it, unless it has windows.

mod dealer;
mod windows;

pub use dealer::Dealer;

use crate::dataflow::direct::Direct;
use crate::dataflow::flush::{due, flush_keys};
use crate::dataflow::lane::{Lanes, keyed_states};
use crate::dataflow::operator::Chain;
use crate::error::RunError;
use crate::executor::Executor;
use crate::interruption;
use crate::output::clock::Clock;
use crate::output::counters::Counters;
use crate::output::delivered::{Delivered, metrics};
use crate::output::metrics::Metrics;
use crate::output::sink::{Preparer, Sink};
use crate::program::options::Options;
use crate::program::{OperatorKind, Program};
use crate::rows::block::{Block, Text};
use crate::rows::texts::Texts;
use crate::rows::view::Rows;
use crate::state::states::States;
use crate::state::windows::CELLS;
use crate::threads::sync::Arc;
use crate::threads::team::thread_cpu_nanoseconds;

use windows::Windows;

/// Rows between two looks for a signal.
const SECTION: usize = 1 << 16;

/// See the module.
#[derive(Debug)]
struct Share {
    chain: Chain,
    lanes: Vec<Lanes>,
    windows: Option<Windows>,
    texts: Option<Arc<Texts>>,
    direct: Direct,
    delivered: Delivered,
    counters: Counters,
    clock: Clock,
    events: u64,
}

/// Makes the executor that `options` describe.
///
/// # Errors
/// `Invalid`: the program has two operators with state, or operators behind windows; or there is no such share.
pub(crate) fn make(program: Program, options: Options) -> Result<Box<dyn Executor>, RunError> {
    check(&program, options.share)?;
    // SAFETY: the creator of the program guarantees its addresses.
    let (chain, windows) = unsafe { (Chain::bind(&program)?, Windows::bind(&program, options.share)?) };
    Ok(Box::new(Share {
        lanes: chain.stateful.iter().map(|&at| Lanes::new(&chain.operators[at], 1)).collect(),
        direct: Direct::new(&chain),
        chain,
        windows,
        texts: program.texts.clone(),
        delivered: Delivered::new(Sink::of(Preparer::new(options.sink, program.hasher()?))),
        counters: Counters::default(),
        clock: Clock::default(),
        events: 0,
    }))
}

fn check(program: &Program, (number, of): (usize, usize)) -> Result<(), RunError> {
    let invalid = |what: String| Err(RunError::Invalid(format!("executor share: {what}")));
    if number >= of || of > CELLS {
        return invalid(format!("there are 1 to {CELLS} shares, numbered from 0; got share {number} of {of}"));
    }
    let with_state: Vec<usize> =
        (0..program.operators.len()).filter(|&at| program.operators[at].kind != OperatorKind::Stateless).collect();
    if with_state.len() > 1 {
        return invalid(format!("a program may have one operator with state, got {}", with_state.len()));
    }
    if program.is_windowed() && with_state.last() != Some(&(program.operators.len() - 1)) {
        return invalid("an operator with windows must be the last one".into());
    }
    Ok(())
}

impl Share {
    /// The text of rows, and of rows made from them.
    fn begin_text(&self, text: Text) -> Result<Text, RunError> {
        let Some(texts) = &self.texts else { return Ok(text) };
        texts.begin(text).ok_or_else(|| RunError::Invalid("the block's text is not where texts are made".into()))
    }

    fn take(&mut self, rows: Rows) -> Result<(), RunError> {
        let Self { chain, lanes, windows, direct, delivered, counters, .. } = self;
        let Some(windows) = windows else {
            // SAFETY: the block's rows are readable; the lanes are this thread's.
            return unsafe { direct.events(chain, lanes, rows, &mut delivered.sink, counters) };
        };
        // SAFETY: as above.
        unsafe { windows.take(chain, direct, rows, &mut delivered.sink, counters) }
    }

    /// Flushes the operator with state, key by key, and takes what it emits through the operators behind it.
    fn flush(&mut self, seq: i64, text: Text) -> Result<(), RunError> {
        let Self { chain, lanes, direct, delivered, counters, .. } = self;
        let (Some(&index), Some(lanes_of)) = (chain.stateful.first(), lanes.first()) else { return Ok(()) };
        let operator = &chain.operators[index];
        if !operator.has_flush() {
            return Ok(());
        }
        let nothing = Rows::new(std::ptr::null(), 0, chain.input_stride(0), text);
        // SAFETY: the lanes are this thread's.
        for (key, state) in unsafe { due(lanes_of) }.chunks(1).enumerate() {
            direct.clear();
            let out = direct.outputs(index);
            // SAFETY: as above; there are no events.
            unsafe {
                flush_keys(operator, lanes_of, state, seq + key as i64, out)?;
                counters.dropped += out.take_dropped();
                for later in index + 1..chain.operators.len() {
                    direct.operate(chain, lanes, later, nothing, counters)?;
                }
                direct.deliver(chain, nothing, &mut delivered.sink, counters)?;
            }
        }
        Ok(())
    }
}

impl Executor for Share {
    fn process(&mut self, block: &Block) -> Result<(), RunError> {
        let text = self.begin_text(block.text)?;
        let (clock, before) = (self.clock.start(), thread_cpu_nanoseconds());
        let mut outcome = Ok(());
        let mut start = 0;
        while start < block.n && outcome.is_ok() {
            let n = SECTION.min(block.n - start);
            outcome =
                interruption::check().and_then(|()| self.take(Rows::new(block.row(start), n, block.stride, text)));
            start += n;
        }
        self.clock.stop(clock);
        self.counters.cpu_nanoseconds += thread_cpu_nanoseconds() - before;
        self.events += block.n as u64;
        outcome
    }

    fn finish(&mut self, seq: i64) -> Result<(), RunError> {
        let text = self.begin_text(Text::empty())?;
        let (clock, before) = (self.clock.start(), thread_cpu_nanoseconds());
        let outcome = match &mut self.windows {
            // SAFETY: all rows were taken; nobody else has the cells.
            Some(windows) => unsafe { windows.finish(seq, text, &mut self.delivered.sink, &mut self.counters) },
            None => self.flush(seq, text),
        };
        self.clock.stop(clock);
        self.counters.cpu_nanoseconds += thread_cpu_nanoseconds() - before;
        outcome
    }

    fn take_outputs(&mut self) -> (Vec<u8>, Vec<u32>) {
        self.delivered.sink.take()
    }

    fn take_ranks(&mut self) -> Vec<u128> {
        self.windows.as_mut().map(Windows::take_ranks).unwrap_or_default()
    }

    fn metrics(&self) -> Metrics {
        Metrics {
            events: self.events,
            counters: self.counters,
            seconds: self.clock.seconds(),
            late: self.windows.as_ref().map_or(0, Windows::late),
            ..metrics(std::iter::once(&self.delivered))
        }
    }

    fn states(&mut self, operator: usize) -> Result<States, RunError> {
        // SAFETY: this thread alone uses the lanes.
        unsafe { keyed_states(&self.chain, &self.lanes, operator) }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
