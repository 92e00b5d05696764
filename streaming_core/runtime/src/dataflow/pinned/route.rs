//! Routes: which replicas of the operators behind it get which of the rows that a task puts out.

use crate::dataflow::channel::outlet::Jumbo;
use crate::dataflow::lane::{Scratch, lane_of};
use crate::dataflow::windowed::epochs::Epochs;
use crate::error::RunError;
use crate::program::Key;
use crate::threads::sync::Arc;

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
}

/// Says whose each of the jumbo tuple's rows are; `serial` counts those of this outlet.
pub(super) fn route(edges: &[Edge], serial: u64, scratch: &mut Scratch, jumbo: &mut Jumbo) -> Result<(), RunError> {
    for edge in edges {
        match &edge.route {
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
