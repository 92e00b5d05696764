//! Routes: which replicas of the operators behind it get which of the rows that a task puts out.

use crate::dataflow::channel::outlet::Jumbo;
use crate::dataflow::lane::{Scratch, lane_of};
use crate::dataflow::windowed::epochs::Epochs;
use crate::error::RunError;
use crate::output::ranges::{EVENTS, end_of, sink_of};
use crate::output::sink::{Prepared, Preparer};
use crate::program::Key;
use crate::rows::view::Rows;
use crate::threads::sync::Arc;

use std::ops::Range;

/// Where the rows that a task puts out go: to one operator's replicas, or the sink.
#[derive(Debug, Clone)]
pub(super) struct Edge {
    /// The first of the outlet's readers that belong to it, and their number.
    pub first: usize,
    pub readers: usize,
    pub route: Route,
}

/// Which replica gets a row.
#[derive(Debug, Clone)]
pub(super) enum Route {
    /// Batch after batch the next one: shuffle grouping. In front of a windowed operator, of those that own cells.
    Turn(Option<Arc<Epochs>>),
    /// The owner of the key's group; where in a jumbo tuple the hashes are kept.
    Key(Key, usize),
    /// The sink of the event's range.
    Range,
}

/// Says whose each of the jumbo tuple's rows are; `serial` counts those of this outlet.
pub(super) fn route(edges: &[Edge], serial: u64, scratch: &mut Scratch, jumbo: &mut Jumbo) -> Result<(), RunError> {
    for edge in edges {
        match &edge.route {
            Route::Range => by_range(edge, jumbo),
            Route::Turn(None) => jumbo.shares[edge.first + serial as usize % edge.readers].whole = true,
            Route::Turn(Some(epochs)) => {
                jumbo.shares[edge.first + epochs.in_turn(jumbo.upto, serial)].whole = true;
            }
            &Route::Key(key, place) => {
                // SAFETY: the rows have the layout that the key belongs to.
                unsafe { scratch.hash(jumbo.rows, key) }?;
                let hashes = &mut jumbo.hashes[place];
                hashes.clear();
                hashes.extend_from_slice(&scratch.hashes[..jumbo.rows.n]);
                let shares = &mut jumbo.shares[edge.first..edge.first + edge.readers];
                if let [only] = shares {
                    only.whole = true;
                    continue;
                }
                // Everybody has room for all rows, and a row is written without asking.
                for share in &mut *shares {
                    share.positions.resize(hashes.len(), 0);
                    share.filled = 0;
                }
                for (position, &hash) in hashes.iter().enumerate() {
                    let share = &mut shares[lane_of(hash, edge.readers)];
                    share.positions[share.filled] = position as u32;
                    share.filled += 1;
                }
                for share in shares {
                    share.positions.truncate(share.filled);
                }
            }
        }
    }
    Ok(())
}

/// Deals the rows to sinks, by the ranges of their events.
fn by_range(edge: &Edge, jumbo: &mut Jumbo) {
    let (rows, sinks) = (jumbo.rows, edge.readers);
    let shares = &mut jumbo.shares[edge.first..edge.first + sinks];
    for (sink, run) in runs(rows, sinks) {
        let share = &mut shares[sink];
        share.whole = run.len() == rows.n;
        if !share.whole {
            share.positions.extend(run.map(|position| position as u32));
        }
    }
}

/// Examines the rows for the sinks that read the shares `readers`, where the rows were just made. Only the sink itself sees how
/// many rows there are of an event whose rows part, so it examines those.
///
/// `put_out`: the event of the last row that the task has emitted, and the next `sub` of that event.
pub(super) fn prepare(
    preparer: &Preparer,
    readers: Range<usize>,
    jumbo: &mut Jumbo,
    put_out: &mut Option<(i64, u64)>,
) -> Result<(), RunError> {
    if !jumbo.ranks.is_empty() {
        return Ok(());
    }
    let shares = &mut jumbo.shares[readers];
    for (sink, run) in runs(jumbo.rows, shares.len()) {
        // SAFETY: the rows were just made.
        let prepared = unsafe { preparer.prepare_rows(jumbo.rows.slice(run), *put_out) }?;
        *put_out = Some(prepared.end());
        shares[sink].prepared.get_or_insert(Prepared::nothing()).join(&prepared);
    }
    Ok(())
}

/// The rows as runs of neighbours whose events belong to one range, each with its sink. With one sink, all rows are one run.
fn runs(rows: Rows, sinks: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    // SAFETY: the caller's rows are readable.
    let seq = move |at: usize| unsafe { rows.seq(at) };
    let mut next = 0;
    std::iter::from_fn(move || {
        let begin = next;
        if begin == rows.n {
            return None;
        }
        let end = end_of(seq(begin));
        let is_in = |at: usize| (end - EVENTS..end).contains(&seq(at));
        // Rows are in the order of events wherever a channel keeps one, so the last row decides for all.
        next = if sinks == 1 || is_in(rows.n - 1) { rows.n } else { begin + 1 };
        while next < rows.n && is_in(next) {
            next += 1;
        }
        Some((sink_of(seq(begin), sinks), begin..next))
    })
}
