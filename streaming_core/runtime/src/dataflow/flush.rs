//! The end of the stream: operators flush in topological order, keys ascending, each after it has taken in what was
//! flushed to it. One thread does it; all rows carry the seq of the end and are delivered after everything else.

use crate::dataflow::direct::Direct;
use crate::dataflow::lane::Lanes;
use crate::dataflow::operator::{Chain, Operator};
use crate::dataflow::windowed::Replicated;
use crate::dataflow::windowed::keys::Lister;
use crate::dataflow::windowed::operator::Out;
use crate::error::RunError;
use crate::output::counters::Counters;
use crate::output::sink::Sink;
use crate::program::Origin;
use crate::rows::block::Text;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;

/// Keys flushed before what they emitted goes on: bounds the rows in flight.
const KEYS: usize = 1024;

/// A key of a lane, to be flushed.
pub(super) struct Due {
    lane: usize,
    state: *mut u8,
}

/// Flushes every operator of `chain`; `lanes[i]` are those of the i-th stateful operator, `windows` are by operator. `text`
/// is what rows name that are made now.
///
/// # Errors
/// A kernel's failure, with the seq of the end.
///
/// # Safety
/// The lanes belong to the chain, and to this thread.
pub unsafe fn flush(
    chain: &Chain,
    lanes: &[Lanes],
    windows: &[Option<Replicated>],
    (seq, text): (i64, Text),
    sink: &mut Sink,
    counters: &mut Counters,
) -> Result<(), RunError> {
    let mut direct = Direct::new(chain);
    let nothing = Rows::new(std::ptr::null(), 0, chain.input_stride(0), text);
    if chain.has_unions() || windows.iter().any(Option::is_some) {
        // A union takes all that the end puts into its first stream, then all of the second: nothing goes on early.
        for (index, operator) in chain.operators.iter().enumerate() {
            if let Some(windowed) = &windows[index] {
                // SAFETY: the lanes, and the windows, are this thread's.
                unsafe { expire(&mut direct, windowed, index, &operator.inputs, (seq, text)) }?;
                counters.dropped += direct.outputs(index).take_dropped();
                continue;
            }
            // SAFETY: the lanes are this thread's; there are no events.
            unsafe { direct.operate(chain, lanes, index, nothing, counters) }?;
            if let Ok(stage) = chain.stateful.binary_search(&index)
                && operator.has_flush()
            {
                let out = direct.outputs(index);
                // SAFETY: as above.
                unsafe { flush_keys(operator, &lanes[stage], &due(&lanes[stage]), seq, out) }?;
                counters.dropped += out.take_dropped();
            }
        }
        // SAFETY: as above.
        return unsafe { direct.deliver(chain, nothing, sink, counters) };
    }
    for (stage, &index) in chain.stateful.iter().enumerate() {
        let operator = &chain.operators[index];
        if !operator.has_flush() {
            continue;
        }
        // What this operator emits goes on to later ones only: its own states do not change any more.
        // SAFETY: the lanes are this thread's.
        for keys in unsafe { due(&lanes[stage]) }.chunks(KEYS) {
            direct.clear();
            let out = direct.outputs(index);
            // SAFETY: the states are these lanes'.
            unsafe { flush_keys(operator, &lanes[stage], keys, seq, out) }?;
            counters.dropped += out.take_dropped();
            for later in index + 1..chain.operators.len() {
                // SAFETY: there are no events.
                unsafe { direct.operate(chain, lanes, later, nothing, counters) }?;
            }
            // SAFETY: as above.
            unsafe { direct.deliver(chain, nothing, sink, counters) }?;
        }
    }
    Ok(())
}

/// Has a windowed operator take what was flushed to it, then everything expires.
///
/// # Safety
/// Its replicas and cells are this thread's.
unsafe fn expire(
    direct: &mut Direct,
    windowed: &Replicated,
    index: usize,
    inputs: &[Origin],
    (seq, text): (i64, Text),
) -> Result<(), RunError> {
    let operator = &windowed.operator;
    // SAFETY: as the caller says.
    let mut replica = unsafe { windowed.all() }?;
    let mut lister = Lister::new(operator);
    let (mut words, mut meetings) = (Vec::new(), Vec::new());
    let (before, out) = direct.before(index);
    out.clear();
    operator.furnish(out);
    let mut out = Out { rows: out, inputs: None, ranks: &mut Vec::new() };
    for (input, origin) in inputs.iter().enumerate() {
        let Origin::Operator(from) = *origin else { continue };
        let rows = Rows::of(&before[from], text);
        // SAFETY: the rows are there, and are what the operator takes; the rest is as the caller says.
        unsafe {
            lister.list(operator, input, rows, &mut words, &mut meetings)?;
            let mut from = Some(0);
            while let Some(first) = from {
                from = replica.process(operator, (rows, i64::MIN), first, &meetings, &|| 0, &mut out)?;
            }
        }
    }
    // SAFETY: as the caller says.
    unsafe {
        replica.finish(operator, seq, text, &mut out)?;
        windowed.settle(replica);
    }
    Ok(())
}

/// The keys of these lanes, ascending.
///
/// # Safety
/// The lanes are this thread's.
pub(super) unsafe fn due(lanes: &Lanes) -> Vec<Due> {
    // SAFETY: as the caller says.
    unsafe { lanes.sorted() }.into_iter().map(|(_, lane, state)| Due { lane, state }).collect()
}

/// Flushes `keys`, appending to `out`.
///
/// # Safety
/// The lanes are the operator's and this thread's, the keys' states these lanes'.
pub(super) unsafe fn flush_keys(
    operator: &Operator,
    lanes: &Lanes,
    keys: &[Due],
    seq: i64,
    out: &mut RowBuffer,
) -> Result<(), RunError> {
    // One call for neighbours of one lane, which has the arena their containers grow in.
    for same_lane in keys.chunk_by(|a, b| a.lane == b.lane) {
        let states: Vec<*mut u8> = same_lane.iter().map(|due| due.state).collect();
        // SAFETY: as the caller says.
        unsafe { lanes.with(same_lane[0].lane, |lane| lane.flush(operator, &states, seq, out)) }?;
    }
    Ok(())
}
