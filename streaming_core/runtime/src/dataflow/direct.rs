//! The sequential pass: one thread takes rows through all operators, one after the other, to the sink.
//!
//! One thread needs nothing else, and flushed rows go this way too. The thread takes a few events at a time. So the outputs of
//! one operator are still in the first-level cache when the next one reads them.

use crate::dataflow::lane::{Lanes, Scratch, lane_of};
use crate::dataflow::operator::{Chain, taken};
use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::output::sink::Sink;
use crate::program::Origin;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;

/// Bytes of rows between two operators that leave room for the rest in a first-level cache.
const COMFORTABLE: usize = 16 << 10;

/// Buffers of a sequential pass.
#[derive(Debug)]
pub struct Direct {
    /// Per operator: its outputs.
    buffers: Vec<RowBuffer>,
    /// Per operator, and behind them for the sink: the union of what it takes, where that is several streams.
    unions: Vec<RowBuffer>,
    scratch: Scratch,
    /// Events taken at a time, adapted to what they turn into.
    events: usize,
}

impl Direct {
    pub fn new(chain: &Chain) -> Self {
        let buffers = chain.operators.iter().map(|operator| RowBuffer::new(operator.stride, false)).collect();
        let strides = (0..chain.operators.len()).map(|index| chain.input_stride(index)).chain([chain.output_stride()]);
        let unions = strides.map(|stride| RowBuffer::new(stride, false)).collect();
        Self { buffers, unions, scratch: Scratch::default(), events: 64 }
    }

    /// Takes events through the chain to the sink. `lanes[i]` are those of the i-th stateful operator.
    ///
    /// # Errors
    /// A kernel's failure is that of the earliest event; later events have then been left half-done.
    ///
    /// # Safety
    /// The rows are readable and have the layout of the program's events; no other thread uses the lanes meanwhile.
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
            let largest = unsafe { self.pass(chain, lanes, rows.slice(start..end), sink, counters) }?;
            let per_event = largest.div_ceil(end - start).max(1);
            self.events = (COMFORTABLE / per_event).clamp(16, 4096);
            start = end;
        }
        Ok(())
    }

    /// Takes events through all operators, and delivers what comes out; the most bytes between two operators.
    unsafe fn pass(
        &mut self,
        chain: &Chain,
        lanes: &[Lanes],
        events: Rows,
        sink: &mut Sink,
        counters: &mut Counters,
    ) -> Result<usize, RunError> {
        let mut clock = Stopwatch::start();
        let (mut failure, mut largest) = (None, 0);
        for index in 0..chain.operators.len() {
            // SAFETY: as the caller says.
            match unsafe { self.operate(chain, lanes, index, events, counters) } {
                Ok(()) => {}
                // Earlier events may still fail further on: go on with those.
                Err(error @ RunError::Kernel { .. }) if Some(error.rank()) < failure.as_ref().map(RunError::rank) => {
                    failure = Some(error);
                }
                Err(error @ RunError::Kernel { .. }) => failure = failure.or(Some(error)),
                Err(error) => return Err(error),
            }
            largest = largest.max(self.buffers[index].bytes().len());
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        clock.lap(&mut counters.time.useful);
        // SAFETY: as the caller says.
        unsafe { self.deliver(chain, events, sink, counters) }?;
        Ok(largest)
    }

    /// Runs operator `index` on what it takes of `events`, and of what those before it have put out; its outputs are in
    /// its buffer then. Errors as for `events`.
    ///
    /// # Safety
    /// As for `events`.
    pub unsafe fn operate(
        &mut self,
        chain: &Chain,
        lanes: &[Lanes],
        index: usize,
        events: Rows,
        counters: &mut Counters,
    ) -> Result<(), RunError> {
        let process = |stage: usize, rows: Rows, scratch: &mut Scratch, out: &mut RowBuffer| {
            // SAFETY: as the caller says; the lanes are this operator's.
            unsafe { keyed(chain, &lanes[stage], index, rows, scratch, out) }
        };
        // SAFETY: as the caller says.
        unsafe { self.operate_by(chain, index, events, counters, process) }
    }

    /// As `operate`, where `process(stage, rows, scratch, out)` runs the operator if it is one with state.
    ///
    /// # Safety
    /// As for `events`, but for the lanes, which are the caller's.
    pub unsafe fn operate_by(
        &mut self,
        chain: &Chain,
        index: usize,
        events: Rows,
        counters: &mut Counters,
        process: impl FnOnce(usize, Rows, &mut Scratch, &mut RowBuffer) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let operator = &chain.operators[index];
        let (before, behind) = self.buffers.split_at_mut(index);
        // SAFETY: as the caller says; the buffers stay as they are while the rows are used.
        let rows =
            unsafe { taken(&operator.inputs, |origin| rows_of(origin, events, before), &mut self.unions[index]) }?;
        let out = &mut behind[0];
        out.clear();
        let outcome = match chain.stateful.binary_search(&index) {
            // SAFETY: the rows are what the operator takes.
            Err(_) => unsafe { operator.map(rows, out) },
            Ok(stage) => process(stage, rows, &mut self.scratch, out),
        };
        counters.dropped += out.take_dropped();
        outcome
    }

    /// Forgets what operators have put out.
    pub fn clear(&mut self) {
        self.buffers.iter_mut().for_each(RowBuffer::clear);
    }

    /// What operator `index` has put out.
    pub fn outputs(&mut self, index: usize) -> &mut RowBuffer {
        &mut self.buffers[index]
    }

    /// What those before operator `index` have put out, and room for what it does.
    pub fn before(&mut self, index: usize) -> (&[RowBuffer], &mut RowBuffer) {
        let (before, behind) = self.buffers.split_at_mut(index);
        (before, &mut behind[0])
    }

    /// Delivers what the sink takes of `events` and of what the operators have put out.
    ///
    /// # Safety
    /// As for `events`.
    pub unsafe fn deliver(
        &mut self,
        chain: &Chain,
        events: Rows,
        sink: &mut Sink,
        counters: &mut Counters,
    ) -> Result<(), RunError> {
        let mut clock = Stopwatch::start();
        // SAFETY: as the caller says.
        let out = unsafe { self.taken_by_sink(chain, events) }?;
        let prepared = sink.preparer().prepare(out, events.text)?;
        clock.lap(&mut counters.time.useful);
        sink.deliver(out, &prepared, events.text)?;
        clock.lap(&mut counters.time.other);
        Ok(())
    }

    /// What the sink takes of `events` and of what the operators have put out.
    ///
    /// # Safety
    /// As for `events`.
    pub unsafe fn taken_by_sink(&mut self, chain: &Chain, events: Rows) -> Result<&RowBuffer, RunError> {
        let union = self.unions.last_mut().expect("the last union is the sink's");
        match chain.outputs[..] {
            [Origin::Operator(index)] => return Ok(&self.buffers[index]),
            [Origin::Events] => {
                union.clear();
                // SAFETY: as the caller says.
                unsafe { union.extend(events.start, events.n, |_| 0) }?;
            }
            _ => {
                // SAFETY: as the caller says.
                unsafe { taken(&chain.outputs, |origin| rows_of(origin, events, &self.buffers), union) }?;
            }
        }
        Ok(union)
    }
}

/// Where the rows of one stream lie.
fn rows_of(origin: Origin, events: Rows, buffers: &[RowBuffer]) -> Rows {
    match origin {
        Origin::Events => events,
        Origin::Operator(index) => Rows::of(&buffers[index], events.text),
    }
}

/// Runs a stateful operator on rows of all its lanes, in order.
///
/// # Safety
/// As for `Direct::events`.
pub unsafe fn keyed(
    chain: &Chain,
    lanes: &Lanes,
    index: usize,
    rows: Rows,
    scratch: &mut Scratch,
    out: &mut RowBuffer,
) -> Result<(), RunError> {
    let operator = &chain.operators[index];
    if operator.key.is_empty() {
        // SAFETY: as the caller says.
        return unsafe { lanes.with(0, |lane| lane.process(operator, rows, &[], scratch, out)) };
    }
    // SAFETY: as the caller says.
    unsafe { scratch.hash(rows, &operator.key) }?;
    if lanes.ranges().is_some() {
        // SAFETY: as the caller says.
        unsafe { scratch.place(rows, &operator.key) }?;
    }
    let (hashes, positions) = (std::mem::take(&mut scratch.hashes), std::mem::take(&mut scratch.positions));
    let count = lanes.count();
    let lane_of = |row: usize| match lanes.ranges() {
        None => lane_of(hashes[row], count),
        Some(ranges) => ranges.range(positions[row]),
    };
    let mut start = 0;
    let mut outcome = Ok(());
    while start < rows.n && outcome.is_ok() {
        let lane = lane_of(start);
        let end = if count == 1 { rows.n } else { (start + 1..rows.n).find(|&i| lane_of(i) != lane).unwrap_or(rows.n) };
        // SAFETY: as the caller says.
        outcome = unsafe {
            lanes.with(lane, |lane| lane.process(operator, rows.slice(start..end), &hashes[start..end], scratch, out))
        };
        start = end;
    }
    (scratch.hashes, scratch.positions) = (hashes, positions);
    outcome
}
