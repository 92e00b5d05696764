//! The end of the stream: operators flush in topological order, keys ascending, each after it has taken in what was
//! flushed to it. One thread does it; all rows carry the seq of the end and are delivered after everything else.

use crate::batch::{RowBuffer, Text};
use crate::executor::direct::Direct;
use crate::kernel::RunError;
use crate::metrics::Counters;
use crate::sink::Sink;
use crate::stage::{Chain, Lanes, Rows};

/// Keys flushed before what they emitted goes on: bounds the rows in flight.
const KEYS: usize = 1024;

/// A key of a lane, to be flushed.
struct Due {
    lane: usize,
    state: *mut u8,
}

/// Flushes every operator of `chain`; `lanes[i]` are those of the i-th stateful operator.
///
/// # Errors
/// A kernel's failure, with the seq of the end.
///
/// # Safety
/// The lanes belong to the chain, and to this thread.
pub unsafe fn flush(
    chain: &Chain,
    lanes: &[Lanes],
    direct: &mut Direct,
    seq: i64,
    sink: &mut Sink,
    counters: &mut Counters,
) -> Result<(), RunError> {
    for (stage, &index) in chain.stateful.iter().enumerate() {
        let operator = &chain.operators[index];
        if !operator.has_flush() {
            continue;
        }
        // What this operator emits goes on to later ones only: its own states do not change any more.
        // SAFETY: the lanes are this thread's.
        let due: Vec<Due> =
            unsafe { lanes[stage].sorted() }.into_iter().map(|(_, lane, state)| Due { lane, state }).collect();
        let mut out = RowBuffer::new(operator.stride, false);
        for keys in due.chunks(KEYS) {
            out.clear();
            // One call for neighbours of one lane, which has the arena their containers grow in.
            for same_lane in keys.chunk_by(|a, b| a.lane == b.lane) {
                let states: Vec<*mut u8> = same_lane.iter().map(|due| due.state).collect();
                // SAFETY: the states are this lane's.
                unsafe { lanes[stage].with(same_lane[0].lane, |lane| lane.flush(operator, &states, seq, &mut out)) }?;
            }
            counters.dropped += out.take_dropped();
            let rows = Rows::of(&out, Text::empty());
            if index + 1 == chain.operators.len() {
                let prepared = sink.preparer().prepare(&out, Text::empty())?;
                sink.deliver(&out, &prepared, Text::empty())?;
            } else {
                // SAFETY: the rows are outputs of the operator before, and stay until the next chunk.
                unsafe { direct.pass(chain, lanes, index + 1, rows, sink, counters) }?;
            }
        }
    }
    Ok(())
}
