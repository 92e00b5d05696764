//! The sequential pass: one thread takes rows through the whole chain, operator by operator, to the sink.
//!
//! It is all there is to do with one thread, and the way of flushed rows. Rows are taken a few events at a time, so
//! that what one operator writes is still in the first-level cache when the next one reads it.

use crate::batch::RowBuffer;
use crate::kernel::RunError;
use crate::metrics::{Counters, Stopwatch};
use crate::sink::Sink;
use crate::stage::{Chain, Lanes, Rows, Scratch, lane_of};

/// Bytes of rows between two operators that leave room for the rest in a first-level cache.
const COMFORTABLE: usize = 16 << 10;

/// Buffers of a sequential pass.
#[derive(Debug)]
pub struct Direct {
    /// Per operator: its outputs.
    buffers: Vec<RowBuffer>,
    scratch: Scratch,
    /// Events taken at a time, adapted to what they turn into.
    events: usize,
}

impl Direct {
    pub fn new(chain: &Chain) -> Self {
        let buffers = chain.operators.iter().map(|operator| RowBuffer::new(operator.stride, false)).collect();
        Self { buffers, scratch: Scratch::default(), events: 64 }
    }

    /// Takes events through the chain to the sink. `lanes[i]` are those of the i-th stateful operator.
    ///
    /// # Errors
    /// A kernel's failure is that of the earliest event; later events have then been left half-done.
    ///
    /// # Safety
    /// The rows are readable and have the layout of the program's events; nobody else uses the lanes meanwhile.
    pub unsafe fn events(
        &mut self,
        chain: &Chain,
        lanes: &[Lanes],
        rows: Rows,
        sink: &mut Sink,
        counters: &mut Counters,
    ) -> Result<(), RunError> {
        let mut start = 0;
        while start < rows.n {
            let end = rows.n.min(start + self.events);
            // SAFETY: as the caller says.
            let largest = unsafe { self.pass(chain, lanes, 0, rows.slice(start..end), sink, counters) }?;
            let per_event = largest.div_ceil(end - start).max(1);
            self.events = (COMFORTABLE / per_event).clamp(16, 4096);
            start = end;
        }
        Ok(())
    }

    /// Takes rows through the operators from `first` on, and delivers what comes out; the most bytes between two
    /// operators. Errors and safety as for `events`, the rows being inputs of operator `first`.
    pub unsafe fn pass(
        &mut self,
        chain: &Chain,
        lanes: &[Lanes],
        first: usize,
        mut rows: Rows,
        sink: &mut Sink,
        counters: &mut Counters,
    ) -> Result<usize, RunError> {
        let mut clock = Stopwatch::start();
        let text = rows.text;
        let (mut failure, mut largest) = (None, 0);
        for index in first..chain.operators.len() {
            let operator = &chain.operators[index];
            let out = &mut self.buffers[index];
            out.clear();
            let outcome = match chain.stateful.binary_search(&index) {
                // SAFETY: the rows are the caller's or the last operator's outputs, which stay as they are.
                Err(_) => unsafe { operator.map(rows, out) },
                // SAFETY: as above; the lanes are this operator's.
                Ok(stage) => unsafe { keyed(chain, &lanes[stage], index, rows, &mut self.scratch, out) },
            };
            match outcome {
                Ok(()) => {}
                // Earlier events may still fail further on: go on with those.
                Err(error @ RunError::Kernel { .. }) => failure = Some(error),
                Err(error) => return Err(error),
            }
            counters.dropped += out.take_dropped();
            rows = Rows::of(out, text);
            largest = largest.max(rows.n * rows.stride);
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        let Some(out) = self.buffers.last().filter(|_| first < chain.operators.len()) else { return Ok(largest) };
        let prepared = sink.preparer().prepare(out, text)?;
        clock.lap(&mut counters.time.useful);
        sink.deliver(out, &prepared, text)?;
        clock.lap(&mut counters.time.other);
        Ok(largest)
    }
}

/// Runs a stateful operator on rows of all its lanes, in order.
unsafe fn keyed(
    chain: &Chain,
    lanes: &Lanes,
    index: usize,
    rows: Rows,
    scratch: &mut Scratch,
    out: &mut RowBuffer,
) -> Result<(), RunError> {
    let operator = &chain.operators[index];
    let Some(key) = operator.key else {
        // SAFETY: as the caller says.
        return unsafe { lanes.with(0, |lane| lane.process(operator, rows, &[], scratch, out)) };
    };
    // SAFETY: as the caller says.
    unsafe { scratch.hash(rows, key) }?;
    let hashes = std::mem::take(&mut scratch.hashes);
    let count = lanes.count();
    let mut start = 0;
    let mut outcome = Ok(());
    while start < rows.n && outcome.is_ok() {
        let lane = lane_of(hashes[start], count);
        let end = if count == 1 {
            rows.n
        } else {
            (start + 1..rows.n).find(|&i| lane_of(hashes[i], count) != lane).unwrap_or(rows.n)
        };
        // SAFETY: as the caller says.
        outcome = unsafe {
            lanes.with(lane, |lane| lane.process(operator, rows.slice(start..end), &hashes[start..end], scratch, out))
        };
        start = end;
    }
    scratch.hashes = hashes;
    outcome
}
