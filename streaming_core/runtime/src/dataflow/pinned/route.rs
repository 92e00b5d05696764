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
    /// Batch after batch the next one: shuffle grouping.
    Turn,
    /// The owner of the key's group; where in a jumbo tuple the hashes are kept.
    Key(Vec<Key>, usize),
    /// By the range of the event: the sink of the range, or the finder of keys, whose replica owns cells where it begins.
    Range(Option<Arc<Epochs>>),
}

/// Says whose each of the jumbo tuple's rows are; `serial` counts those of this outlet.
pub(super) fn route(edges: &[Edge], serial: u64, scratch: &mut Scratch, jumbo: &mut Jumbo) -> Result<(), RunError> {
    for edge in edges {
        match &edge.route {
            Route::Range(epochs) => by_range(edge, epochs.as_deref(), jumbo),
            Route::Turn => jumbo.shares[edge.first + serial as usize % edge.readers].whole = true,
            Route::Key(key, place) => {
                // The hashes stay in the jumbo tuple, and its former ones make room for the next.
                let hashes = &mut jumbo.hashes[*place];
                std::mem::swap(hashes, &mut scratch.hashes);
                // SAFETY: the rows have the layout that the key belongs to.
                let outcome = unsafe { scratch.hash(jumbo.rows, key) };
                std::mem::swap(hashes, &mut scratch.hashes);
                outcome?;
                let hashes = &hashes[..jumbo.rows.n];
                let shares = &mut jumbo.shares[edge.first..edge.first + edge.readers];
                if let [only] = shares {
                    only.whole = true;
                    continue;
                }
                for share in &mut *shares {
                    share.positions.reserve(hashes.len());
                    share.filled = 0;
                }
                for (position, &hash) in hashes.iter().enumerate() {
                    let share = &mut shares[lane_of(hash, edge.readers)];
                    // SAFETY: each share has room for all rows.
                    unsafe { share.positions.as_mut_ptr().add(share.filled).write(position as u32) };
                    share.filled += 1;
                }
                for share in shares {
                    // SAFETY: so many were written above.
                    unsafe { share.positions.set_len(share.filled) };
                }
            }
        }
    }
    Ok(())
}

/// Deals the rows to readers, by the ranges of their events.
fn by_range(edge: &Edge, epochs: Option<&Epochs>, jumbo: &mut Jumbo) {
    let (rows, readers) = (jumbo.rows, edge.readers);
    let shares = &mut jumbo.shares[edge.first..edge.first + readers];
    for (seq, run) in runs(rows, readers) {
        let reader = match epochs {
            Some(epochs) => epochs.in_turn(end_of(seq) - EVENTS, seq.div_euclid(EVENTS) as u64),
            None => sink_of(seq, readers),
        };
        let share = &mut shares[reader];
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
    let sinks = shares.len();
    for (seq, run) in runs(jumbo.rows, sinks) {
        // SAFETY: the rows were just made.
        let prepared = unsafe {
            match jumbo.subs.is_empty() {
                true => preparer.prepare_rows(jumbo.rows.slice(run), *put_out),
                false => preparer.prepare_numbered(jumbo.rows.slice(run.clone()), &jumbo.subs[run]),
            }
        }?;
        *put_out = Some(prepared.end());
        shares[sink_of(seq, sinks)].prepared.get_or_insert(Prepared::nothing()).join(&prepared);
    }
    Ok(())
}

/// The rows as runs of neighbours whose events belong to one range, each with its first event. With one reader, all rows are
/// one run.
fn runs(rows: Rows, readers: usize) -> impl Iterator<Item = (i64, Range<usize>)> {
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
        next = if readers == 1 || is_in(rows.n - 1) { rows.n } else { begin + 1 };
        while next < rows.n && is_in(next) {
            next += 1;
        }
        Some((seq(begin), begin..next))
    })
}
