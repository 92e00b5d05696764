//! State transfer: the reconfiguration of replicas that share nothing (SN; STRETCH, sections 1 and 2.5). All replicas stop,
//! state is copied, and all go on.
//!
//! A replica that comes to the event of an epoch packs the cells that it loses into parcels (`state/windows/parcel.rs`).
//! There is one parcel for each new owner. Then the replica *stops*. When all former and new owners of cells have stopped, each new owner unpacks its cells in
//! its own memory. When all have done so, all go on. So there is one transfer at a time.
//!
//! Writers: a parcel belongs to the replica that loses its cells until that replica has stopped (`Epochs::leave`). Then it
//! belongs to the replica that gains them, until that one is *ready*. A replica writes its own `ready`.
//! ORDERING: a replica stores `ready` with Release after it last touches parcels. Others load it with Acquire before they
//! first touch them for the next epoch. The same holds for stopping.
//!
//! No deadlock: as in `epochs.rs`. All wait for the same replicas, and none that has stopped has rows of earlier events.

use crate::dataflow::windowed::epochs::Epochs;
use crate::error::RunError;
use crate::state::windows::cell::Cell;
use crate::state::windows::entry::Shape;
use crate::state::windows::parcel::{Parcel, unpack_cells};
use crate::state::windows::{CELLS, OutOfMemory};
use crate::threads::own::Own;
use crate::threads::sync::{AtomicU64, CachePadded, Ordering};

/// See the module.
#[derive(Debug)]
pub struct Transfers {
    /// By the replica that loses the cells, and the one that gains them.
    parcels: Own<Parcel>,
    /// Per replica, the last epoch for which it has unpacked its cells.
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

    /// Packs the cells that a replica loses with epoch `index`. Then the replica may leave the epoch before.
    ///
    /// # Errors
    /// There is no memory.
    ///
    /// # Safety
    /// The caller is the replica, owns cells before or after, and is at the event of this epoch.
    pub unsafe fn pack(
        &self,
        epochs: &Epochs,
        replica: usize,
        index: usize,
        cells: &Cells,
        shape: &Shape,
    ) -> Result<(), OutOfMemory> {
        let (Some(old), Some(new)) = (epochs.get(index - 1), epochs.get(index)) else { return Ok(()) };
        let (mut bytes, mut receives) = (0, vec![false; self.ready.len()]);
        for cell in (0..CELLS).filter(|&cell| old.owner(cell) == replica && new.owner(cell) != replica) {
            receives[new.owner(cell)] = true;
            let parcel = self.parcel(replica, new.owner(cell));
            // SAFETY: the cell and the parcel are this replica's, because all were ready for the epoch before.
            unsafe {
                let mut content = cells.with_mut(replica, cell, std::mem::take);
                self.parcels.with_mut(parcel, |parcel| parcel.put(cell, &mut content, shape))?;
            }
        }
        for to in (0..receives.len()).filter(|&to| receives[to]) {
            // SAFETY: as above.
            bytes += unsafe { self.parcels.with(self.parcel(replica, to), Parcel::bytes) };
        }
        epochs.copied(index, bytes);
        Ok(())
    }

    /// Unpacks the cells that a replica gains with epoch `index`, and declares it ready.
    ///
    /// # Errors
    /// `Engine`: there is no memory.
    ///
    /// # Safety
    /// The caller is the replica, and owns cells before or after. All replicas that do have stopped.
    pub unsafe fn unpack(
        &self,
        epochs: &Epochs,
        replica: usize,
        index: usize,
        cells: &Cells,
        (shape, session): (&Shape, bool),
    ) -> Result<(), RunError> {
        let Some(old) = epochs.get(index - 1) else { return Ok(()) };
        for &from in old.owners.replicas() {
            // SAFETY: the former owner of the parcel has stopped; the cells are this replica's, and empty.
            unsafe {
                let words = self.parcels.with_mut(self.parcel(from, replica), Parcel::take);
                unpack_cells(words, shape, session, |cell, work| cells.with_mut(replica, cell, work))?;
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

    /// Whether a replica that has stopped for epoch `index` may go on: with unpacking its cells, or with rows if it is ready.
    /// A replica without cells before and after does not wait.
    pub fn may_go_on(&self, epochs: &Epochs, replica: usize, index: usize) -> bool {
        let is_ready = self.is_ready(replica, index);
        let waited_for = |other| if is_ready { self.is_ready(other, index) } else { epochs.has_left(other, index) };
        epochs.members(index).all(|member| member != replica) || epochs.members(index).all(waited_for)
    }

    /// Declares that a replica has failed, so that no replica waits for it.
    pub fn give_up(&self, replica: usize) {
        // ORDERING: Release, as above.
        self.ready[replica].store(u64::MAX, Ordering::Release);
    }
}

/// The cells: once for all replicas that share them, or once for each replica that shares nothing.
#[derive(Debug)]
pub struct Cells {
    all: Own<Cell>,
    /// The distance, in cells, to those of the next replica; 0: all replicas have the same cells.
    each: usize,
}

impl Cells {
    pub fn shared() -> Self {
        Self { all: Own::new(CELLS, Cell::default), each: 0 }
    }

    pub fn private(replicas: usize) -> Self {
        Self { all: Own::new(replicas * CELLS, Cell::default), each: CELLS }
    }

    /// Their number, over all replicas that have some of their own.
    pub fn count(&self) -> usize {
        self.all.len()
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
    use crate::dataflow::windowed::epochs::Request;
    use crate::dataflow::windowed::owners::Owners;
    use crate::program::KeySpec;
    use crate::state::key_group::{GROUPS, with_group};
    use crate::state::windows::entry::KeyFields;
    use crate::threads::sync::{Arc, thread};
    use crate::threads::testing::interleave;

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
        interleave(3, || {
            let epochs = Epochs::new(2, 1);
            for (event, replica) in [(1, 0), (2, 1)] {
                epochs.append(event, Owners::new(&[replica]), Request::default());
            }
            let shared = Arc::new(Shared {
                epochs,
                transfers: Transfers::new(2),
                cells: Cells::private(2),
                shape: Shape::new(&KeySpec { stride: 16, fields: Vec::new() }, 0, &[], false),
            });
            let hash = with_group(0, GROUPS - 1);
            let work = move |replica: usize, shared: &Shared| {
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
                            let windows: Vec<i64> = cell.open().map(|(number, _)| number).collect();
                            assert_eq!(windows, (0..event).collect::<Vec<_>>());
                            let pane = cell.pane(event).unwrap();
                            // SAFETY: a pane that is there; an empty one would stay behind.
                            unsafe { (*pane).find(shape, hash, KeyFields::index(&0)) }.unwrap();
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
