//! A windowed operator of a program: what its replicas have in common.

use crate::dataflow::channel::rank::{Path, Rank};
use crate::dataflow::operator::truncate;
use crate::dataflow::windowed::counts::Counts;
use crate::dataflow::windowed::epochs::Epochs;
use crate::dataflow::windowed::transfer::{Cells, Transfers};
use crate::error::RunError;
use crate::program::kernel::{BatchContext, BeforeEntry, EntryHeader, Kernel, WindowContext};
use crate::program::{Key, Merge, OperatorSpec, Program, WindowSpec};
use crate::rows::buffer::RowBuffer;
use crate::rows::texts::Texts;
use crate::state::windows::cell::Cell;
use crate::state::windows::entry::Shape;
use crate::state::windows::parcel::unpack_cells;
use crate::state::windows::{Bounds, cells_for};
use crate::threads::sync::Arc;

/// One of the streams that an operator takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    pub ts: Key,
    pub keys: Kernel<BatchContext>,
    pub update: Kernel<WindowContext>,
}

/// A windowed operator of a program: what its replicas have in common.
#[derive(Debug)]
pub struct Windowed {
    pub name: String,
    pub(super) bounds: Bounds,
    pub(super) shape: Shape,
    pub(super) key_stride: usize,
    pub(super) single: bool,
    pub(super) session: bool,
    /// The greatest length of a session.
    pub(super) most: Option<i64>,
    /// A key that a row has twice counts twice.
    pub bag: bool,
    /// Keys of every row, if they all have the same: hash and fields.
    pub(super) every: Option<Vec<(u64, i64)>>,
    /// Per input its stream.
    pub(super) of: Vec<usize>,
    pub(super) streams: Vec<Stream>,
    /// If rows meet slices in place of windows: how many slices a window has, and how their states become one.
    pub(super) slices: Option<(i64, Vec<Merge>)>,
    pub(super) result: Option<Kernel<WindowContext>>,
    pub(super) slide: Option<Kernel<WindowContext>>,
    pub epochs: Arc<Epochs>,
    /// Whether an epoch begins with a barrier of all replicas, which read an elastic ScaleGate.
    pub has_barrier: bool,
    /// For a controller that balances.
    pub(super) counts: Option<Arc<Counts>>,
    /// A cell is its owner's.
    pub(super) cells: Cells,
    /// Of replicas that share nothing.
    pub(super) transfers: Option<Transfers>,
    texts: Option<Arc<Texts>>,
}

/// What a replica puts out of rows.
pub struct Out<'a> {
    pub rows: &'a mut RowBuffer,
    /// If ranks are asked for, those of the rows that are taken: none at all, each is alone with its event.
    pub inputs: Option<&'a [Rank]>,
    /// Per row of `rows`, if ranks are asked for.
    pub ranks: &'a mut Vec<Rank>,
}

impl Out<'_> {
    /// Where a failure stands in its event, by the row of the batch and the path from it. 0: there are no other replicas.
    #[cold]
    pub(super) fn order(&self, (index, path): (u32, Path)) -> u128 {
        self.inputs.map_or(0, |inputs| {
            let input = inputs.get(index as usize).copied().unwrap_or(Rank::ONLY);
            input.along(path).unwrap_or(input).order()
        })
    }
}

impl Windowed {
    /// Binds the kernels of a windowed operator of `program`. `epochs` deals its cells to the replicas. The replicas share all
    /// cells; if `apart` has their number, they share nothing.
    ///
    /// # Safety
    /// As for `Chain::bind`.
    pub unsafe fn bind(
        program: &Program,
        operator: &OperatorSpec,
        spec: &WindowSpec,
        epochs: Arc<Epochs>,
        apart: Option<usize>,
        counts: Option<Arc<Counts>>,
    ) -> Result<Self, RunError> {
        let mut streams = Vec::new();
        for stream in &spec.streams {
            // SAFETY: as the caller says.
            let (keys, update) = unsafe { (Kernel::at(stream.keys)?, Kernel::at(stream.update)?) };
            streams.push(Stream { ts: stream.ts, keys, update });
        }
        let mut shape = Shape::new(&spec.key, operator.state_size, &operator.growing, spec.single);
        let every = spec.every.map(|n| (0..n).map(|index| (shape.hash_of_index(index), index)).collect());
        let has_slices = !spec.merge.is_empty() && spec.size > spec.advance && spec.size % spec.advance == 0;
        if has_slices {
            shape.set_numbered();
        }
        Ok(Self {
            name: operator.name.clone(),
            bounds: Bounds::of(spec),
            shape,
            key_stride: spec.key.stride,
            single: spec.single,
            session: spec.session,
            most: spec.most,
            bag: spec.bag,
            every,
            of: spec.of.clone(),
            streams,
            slices: has_slices.then(|| (spec.size / spec.advance, spec.merge.clone())),
            // SAFETY: as the caller says.
            result: unsafe { Kernel::maybe_at(spec.result) }?,
            // SAFETY: as the caller says.
            slide: unsafe { Kernel::maybe_at(spec.slide) }?,
            epochs,
            has_barrier: false,
            counts,
            cells: apart.map_or_else(Cells::shared, Cells::private),
            transfers: apart.map(Transfers::new),
            texts: program.texts.clone(),
        })
    }

    /// Takes the state of an image into the cells of their first owners, as far as `has` says of an owner.
    ///
    /// # Errors
    /// `Memory`: there is none.
    ///
    /// # Safety
    /// The image is this operator's, of keys that are not there yet. No replica has been at work.
    pub unsafe fn restore(&self, image: &[u64], has: impl Fn(usize) -> bool) -> Result<(), RunError> {
        let first = self.epochs.get(0).expect("there is a first epoch");
        // SAFETY: as the caller says.
        unsafe {
            unpack_cells(image.to_vec(), &self.shape, self.session, |cell, work| match first.owner(cell) {
                owner if has(owner) => self.cells.with_mut(owner, cell, work),
                _ => work(&mut Cell::default()),
            })
        }
    }

    /// Has it no more cells than so many replicas need. Single windows keep all: their entries stand in lists. So do keys that
    /// every row has, which are dealt to cells in turn.
    pub fn have_few_cells(&mut self, replicas: usize) {
        if !self.single && self.every.is_none() {
            self.shape.set_cells(cells_for(replicas));
        }
    }

    /// Whether finders deal each of so many replicas the rows that have keys of its own.
    pub fn deals_keys(&self, replicas: usize) -> bool {
        self.shares_nothing() || (self.every.is_none() && replicas > 1)
    }

    /// Whether its replicas share nothing.
    pub fn shares_nothing(&self) -> bool {
        self.transfers.is_some()
    }

    /// Whether a kernel is called when a window expires, or slides.
    pub(super) fn reports_expiry(&self) -> bool {
        self.result.is_some() || self.slide.is_some()
    }

    /// The window of an entry, for a message: a session begins where its entry says.
    ///
    /// # Safety
    /// The entry is there, and no other thread's.
    #[cold]
    pub(super) unsafe fn window_of(&self, entry: *mut EntryHeader, start: i64) -> (i64, i64) {
        // SAFETY: as the caller says; sessions are single windows.
        let begin = if self.session { unsafe { (*BeforeEntry::of(entry)).start } } else { start };
        (begin, start + self.bounds.size)
    }

    /// Has kernels that emit into `out` give texts that lie anywhere.
    pub fn furnish(&self, out: &mut RowBuffer) {
        out.make_texts(self.texts.as_ref());
    }

    /// The failure of event `seq`, in this window if it is one of a window.
    #[cold]
    pub(super) fn failed(
        &self,
        (seq, window): (i64, Option<(i64, i64)>),
        order: u128,
        exception: Vec<u8>,
        out: &mut Out,
    ) -> RunError {
        truncate(out.rows, seq);
        out.ranks.truncate(out.rows.len());
        RunError::Kernel { operator: self.name.clone(), seq, window, order, exception }
    }
}
