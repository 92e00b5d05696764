//! State transfer: how replicas that share nothing are reconfigured (SN; STRETCH, sections 1 and 2.5): all stop, state is
//! copied, all go on.
//!
//! Who comes to an epoch's event packs the cells that it loses into parcels (`state/windows/parcel.rs`), one for each who
//! gains some of them, and *stops*. When all who own cells before or after have stopped, whoever gains cells makes them again
//! in memory of his own; when all have, all go on. So there is one transfer at a time.
//!
//! Who writes what: a parcel belongs to who loses what is in it until it has stopped (`Epochs::leave`), then to who gains it
//! until it is *ready*; `ready` its replica.
//! ORDERING: `ready` is stored with Release after the last touch of parcels, and loaded with Acquire before the first touch
//! for the next epoch; so it is with having stopped.
//!
//! No circle of waiting: as in `epochs.rs`; all wait for the same, and none who has stopped has rows of earlier events.

use crate::dataflow::windowed::epochs::Epochs;
use crate::error::RunError;
use crate::state::windows::cell::Cell;
use crate::state::windows::entry::Shape;
use crate::state::windows::parcel::Parcel;
use crate::state::windows::{CELLS, OutOfMemory};
use crate::threads::own::Own;
use crate::threads::sync::{AtomicU64, CachePadded, Ordering};

/// See the module.
#[derive(Debug)]
pub struct Transfers {
    /// By who loses and who gains.
    parcels: Own<Parcel>,
    /// Per replica up to which epoch it has made again what it gains.
    ready: Box<[CachePadded<AtomicU64>]>,
}

impl Transfers {
    /// Between `replicas` replicas.
    pub fn new(replicas: usize) -> Self {
        Self {
            parcels: Own::new(replicas * replicas, Parcel::default),
            ready: (0..replicas).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
        }
    }

    fn parcel(&self, from: usize, to: usize) -> usize {
        from * self.ready.len() + to
    }

    /// A replica packs the cells, of `cells` of its own, that it loses with epoch `index`; then it may leave the one before.
    ///
    /// # Errors
    /// There is no memory.
    ///
    /// # Safety
    /// The caller is the replica, owns cells before or after, and is at this epoch's event.
    pub unsafe fn pack(
        &self,
        epochs: &Epochs,
        replica: usize,
        index: usize,
        cells: &Cells,
        shape: &Shape,
    ) -> Result<(), OutOfMemory> {
        let (Some(old), Some(new)) = (epochs.get(index - 1), epochs.get(index)) else { return Ok(()) };
        let (mut bytes, mut given) = (0, vec![false; self.ready.len()]);
        for cell in (0..CELLS).filter(|&cell| old.owner(cell) == replica && new.owner(cell) != replica) {
            given[new.owner(cell)] = true;
            let parcel = self.parcel(replica, new.owner(cell));
            // SAFETY: the cell and the parcel are this replica's: all have been ready for the epoch before.
            unsafe {
                let content = cells.with_mut(replica, cell, std::mem::take);
                self.parcels.with_mut(parcel, |parcel| parcel.put(cell, content, shape))?;
            }
        }
        for to in (0..given.len()).filter(|&to| given[to]) {
            // SAFETY: as above.
            bytes += unsafe { self.parcels.with(self.parcel(replica, to), Parcel::bytes) };
        }
        epochs.copied(index, bytes);
        Ok(())
    }

    /// A replica makes the cells again that it gains with epoch `index`, and is ready.
    ///
    /// # Errors
    /// `Engine`: there is no memory.
    ///
    /// # Safety
    /// The caller is the replica, owns cells before or after; all who do have stopped.
    pub unsafe fn unpack(
        &self,
        epochs: &Epochs,
        replica: usize,
        index: usize,
        cells: &Cells,
        (shape, single): (&Shape, bool),
    ) -> Result<(), RunError> {
        let Some(old) = epochs.get(index - 1) else { return Ok(()) };
        for &from in &old.replicas {
            // SAFETY: who had the parcel has stopped; the cells are this replica's.
            unsafe {
                let place = |cell: usize, content: Cell| cells.with_mut(replica, cell, |cell| *cell = content);
                self.parcels.with_mut(self.parcel(from, replica), |parcel| {
                    let outcome = parcel.unpack(shape, single, place);
                    parcel.clear();
                    outcome
                })?;
            }
        }
        // ORDERING: Release; see the module.
        self.ready[replica].store(index as u64, Ordering::Release);
        Ok(())
    }

    pub fn is_ready(&self, replica: usize, index: usize) -> bool {
        // ORDERING: Acquire; see the module.
        self.ready[replica].load(Ordering::Acquire) >= index as u64
    }

    /// Whether a replica, which has stopped for epoch `index`, may go on with what comes next: making its cells again, or,
    /// when it is ready, rows. Who owns no cells before nor after does not wait.
    pub fn may_go_on(&self, epochs: &Epochs, replica: usize, index: usize) -> bool {
        let is_ready = self.is_ready(replica, index);
        let waited_for = |other| if is_ready { self.is_ready(other, index) } else { epochs.has_left(other, index) };
        epochs.members(index).all(|member| member != replica) || epochs.members(index).all(waited_for)
    }

    /// A replica has failed: nobody waits for it.
    pub fn give_up(&self, replica: usize) {
        // ORDERING: Release, as above.
        self.ready[replica].store(u64::MAX, Ordering::Release);
    }
}

/// Where cells are: once for all replicas who share them, or once for each of those who share nothing.
#[derive(Debug)]
pub struct Cells {
    all: Own<Cell>,
    /// Cells up to the next replica's; 0: they are the same.
    each: usize,
}

impl Cells {
    pub fn shared() -> Self {
        Self { all: Own::new(CELLS, Cell::default), each: 0 }
    }

    pub fn private(replicas: usize) -> Self {
        Self { all: Own::new(replicas * CELLS, Cell::default), each: CELLS }
    }

    /// Lends a cell to a replica.
    ///
    /// # Safety
    /// It is the replica's, and what its last owner did to it is visible.
    #[inline(always)]
    pub unsafe fn with_mut<R>(&self, replica: usize, cell: usize, work: impl FnOnce(&mut Cell) -> R) -> R {
        // SAFETY: as the caller says.
        unsafe { self.all.with_mut(replica * self.each + cell, work) }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::dataflow::windowed::epochs::Asked;
    use crate::program::KeySpec;
    use crate::threads::sync::{Arc, thread};

    /// Cells move back and forth between two replicas with their content. A replica touches only its own cells and
    /// parcels. Unless each side waits for the other to pack or unpack, loom finds two replicas at one parcel.
    #[test]
    fn loom_state_goes_to_its_next_owner() {
        struct Shared {
            epochs: Epochs,
            transfers: Transfers,
            cells: Cells,
            shape: Shape,
        }
        loom::model(|| {
            let epochs = Epochs::new(2);
            for (event, replica) in [(1, 0), (2, 1)] {
                epochs.append(event, &[replica], Asked::default());
            }
            let shared = Arc::new(Shared {
                epochs,
                transfers: Transfers::new(2),
                cells: Cells::private(2),
                shape: Shape::new(&KeySpec { stride: 16, fields: Vec::new() }, 0, &[], false),
            });
            let work = |replica: usize, shared: &Shared| {
                let Shared { epochs, transfers, cells, shape } = shared;
                let wait = |index| {
                    while !transfers.may_go_on(epochs, replica, index) {
                        thread::yield_now();
                    }
                };
                for event in 0..3 {
                    if event > 0 {
                        let index = event as usize;
                        // SAFETY: what is tested; all come to all events.
                        unsafe {
                            transfers.pack(epochs, replica, index, cells, shape).unwrap();
                            epochs.leave(replica, index, None);
                            wait(index);
                            transfers.unpack(epochs, replica, index, cells, (shape, false)).unwrap();
                            wait(index);
                        }
                    }
                    // The last cell is replica 1's in the beginning, then the other's, then its again.
                    if epochs.at(event).0.owner(CELLS - 1) == replica {
                        let open = |cell: &mut Cell| {
                            let found: Vec<i64> = cell.open().map(|(number, _)| number).collect();
                            assert_eq!(found, (0..event).collect::<Vec<_>>());
                            cell.pane(event).unwrap();
                        };
                        // SAFETY: as above.
                        unsafe { cells.with_mut(replica, CELLS - 1, open) };
                    }
                }
            };
            let other = shared.clone();
            let thread = thread::spawn(move || work(1, &other));
            work(0, &shared);
            thread.join().unwrap();
        });
    }
}
