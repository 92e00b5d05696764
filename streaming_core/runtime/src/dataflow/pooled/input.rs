//! A batch on its way through a stage: split by lane, and put in order again.
//!
//! Invariant: the rows of a lane are adjacent and in total order. Outputs of the lanes are merged by the positions of their
//! inputs.
//!
//! Cost: with several lanes each row is copied once on the way in and once on the way out; with one lane not at all. Outputs
//! that lanes have digested (`numbered`) are not copied again.

use std::ptr::null;

use crate::dataflow::operator::Chain;
use crate::error::RunError;
use crate::output::sink::Prepared;
use crate::program::options::MOST_PARTITIONS;
use crate::rows::block::Text;
use crate::rows::buffer::{RowBuffer, copy_row};
use crate::rows::view::Rows;
use crate::threads::sync::{CachePadded, UnsafeCell};

/// The largest number of lanes of a stage; lane numbers are bytes.
pub const MOST_LANES: usize = MOST_PARTITIONS;

/// A batch on its way into a stage.
#[derive(Debug)]
pub struct Input {
    /// Rows in lane order. The step before writes them; the lanes read them.
    pub batch: UnsafeCell<Sorted>,
    /// The outputs of each lane. The lane's holder writes them; the next step reads them.
    pub outputs: Box<[CachePadded<UnsafeCell<Output>>]>,
}

/// Rows of a batch, those of one lane adjacent, in total order within a lane.
#[derive(Debug)]
pub struct Sorted {
    /// The rows: those of `buffer`, or those of their producer if there is only one lane.
    pub rows: Rows,
    buffer: RowBuffer,
    /// Per row, in lane order.
    hashes: Vec<u64>,
    /// Per row, in lane order, its number among the rows of its event; if the lanes digest their outputs.
    pub subs: Vec<u32>,
    /// Per row, in total order.
    lanes: Vec<u8>,
    pub n: usize,
    /// The first row of each lane, and at the end the number of rows.
    pub starts: Vec<u32>,
}

#[derive(Debug)]
pub struct Output {
    pub rows: RowBuffer,
    /// Whether every input emitted exactly one row.
    pub one_each: bool,
    /// What the lane found out about its outputs, if it has digested them; then they are not here.
    pub prepared: Prepared,
}

impl Input {
    /// For the stage of operator `index`.
    pub fn new(chain: &Chain, index: usize, lanes: usize) -> Self {
        let buffer = RowBuffer::new(chain.input_stride(index), false);
        let stride = chain.operators[index].stride;
        let output =
            || Output { rows: RowBuffer::new(stride, lanes > 1), one_each: false, prepared: Prepared::nothing() };
        Self {
            batch: UnsafeCell::new(Sorted {
                rows: Rows::of(&buffer, Text::empty()),
                buffer,
                hashes: Vec::new(),
                subs: Vec::new(),
                lanes: Vec::new(),
                n: 0,
                starts: vec![0; lanes + 1],
            }),
            outputs: (0..lanes).map(|_| CachePadded::new(UnsafeCell::new(output()))).collect(),
        }
    }

    /// Lends the room for the rows that a step makes for the only lane.
    ///
    /// # Safety
    /// The batch is this worker's, and not yet released.
    pub unsafe fn with_buffer<R>(&self, work: impl FnOnce(&mut RowBuffer) -> R) -> R {
        // SAFETY: as the caller says.
        self.batch.with_mut(|batch| work(unsafe { &mut (*batch).buffer }))
    }

    /// The results of all outputs, if the lanes have digested them.
    ///
    /// # Safety
    /// The lanes are done with the batch, so no worker writes it or their outputs.
    pub unsafe fn prepared(&self) -> Option<Prepared> {
        self.batch.with(|batch| {
            // SAFETY: as the caller says.
            let batch = unsafe { &*batch };
            if !batch.is_numbered() {
                return None;
            }
            let mut all = Prepared::nothing();
            for (lane, output) in self.outputs.iter().enumerate() {
                if batch.starts[lane] < batch.starts[lane + 1] {
                    // SAFETY: as above.
                    output.with(|output| all.add(unsafe { &(*output).prepared }, &mut { i64::MIN }));
                }
            }
            Some(all)
        })
    }
}

impl Sorted {
    /// Takes rows as they are: all of them belong to the only lane. The hashes are exchanged for those of a former
    /// batch.
    pub fn whole(&mut self, rows: Rows, hashes: &mut Vec<u64>) {
        std::mem::swap(&mut self.hashes, hashes);
        self.rows = rows;
        self.n = rows.n;
        self.starts[1] = rows.n as u32;
    }

    /// Copies rows into lane order. `hashes` are those of their keys, `lane_of` says the lane of each. `numbered`: the rows are
    /// also numbered within their events, in total order.
    ///
    /// # Safety
    /// The rows are readable and lie outside of this batch.
    pub unsafe fn sort(
        &mut self,
        rows: Rows,
        hashes: &[u64],
        numbered: bool,
        lane_of: impl Fn(usize, usize) -> usize,
    ) -> Result<(), RunError> {
        let (n, count) = (rows.n, self.starts.len() - 1);
        let hashes = &hashes[..n];
        if self.lanes.len() < n {
            self.lanes.resize(n, 0);
        }
        if self.hashes.len() < n {
            self.hashes.resize(n, 0);
        }
        self.subs.resize(if numbered { n } else { 0 }, 0);
        let (mut seq, mut sub) = (0, 0);
        let mut next = [0_u32; MOST_LANES];
        for (row, lane) in self.lanes[..n].iter_mut().enumerate() {
            *lane = lane_of(row, count) as u8;
            next[usize::from(*lane)] += 1;
        }
        let mut start = 0;
        for (place, next) in self.starts.iter_mut().zip(&mut next[..count]) {
            *place = start;
            start += std::mem::replace(next, start);
        }
        self.starts[count] = start;
        self.buffer.clear();
        self.buffer.reserve(n)?;
        let to = self.buffer.pointer().cast_mut();
        for (i, (&lane, &hash)) in self.lanes[..n].iter().zip(hashes).enumerate() {
            let next = &mut next[usize::from(lane)];
            let place = *next as usize;
            *next += 1;
            self.hashes[place] = hash;
            if numbered {
                // SAFETY: the caller says that the rows are readable.
                let this = unsafe { rows.seq(i) };
                sub = if i > 0 && this == seq { sub + 1 } else { 0 };
                seq = this;
                self.subs[place] = sub;
            }
            // SAFETY: there is room for n rows of this stride.
            unsafe { copy_row(rows.row(i), to.add(place * rows.stride), rows.stride) };
        }
        self.rows = Rows::new(to, n, rows.stride, rows.text);
        self.n = n;
        Ok(())
    }

    /// Whether the rows are numbered, so that the lanes digest their outputs; not if there are none.
    pub fn is_numbered(&self) -> bool {
        !self.subs.is_empty()
    }

    /// The rows of a lane, the hashes of their keys, and their numbers.
    pub fn lane(&self, index: usize) -> (Rows, &[u64], &[u32]) {
        let range = self.starts[index] as usize..self.starts[index + 1] as usize;
        // A stateful operator's rows have no hashes.
        let hashes = self.hashes.get(range.clone()).unwrap_or_default();
        (self.rows.slice(range.clone()), hashes, self.subs.get(range).unwrap_or_default())
    }
}

/// A lane's outputs while they are merged.
#[derive(Clone, Copy)]
struct LaneCursor {
    row: *const u8,
    /// Origins of this row and of those behind it.
    origin: *const u32,
    end: *const u32,
    /// The next input of the lane.
    input: u32,
}

/// Appends the outputs of all lanes to `out` in the order of the inputs that emitted them.
///
/// # Safety
/// The lanes are done with the batch, so no worker writes their outputs.
pub unsafe fn merge(
    batch: &Sorted,
    outputs: &[CachePadded<UnsafeCell<Output>>],
    out: &mut RowBuffer,
) -> Result<(), RunError> {
    let lanes = &batch.lanes[..batch.n];
    let mut cursors = [LaneCursor { row: null(), origin: null(), end: null(), input: 0 }; MOST_LANES];
    let (mut total, mut one_each) = (0, true);
    for (lane, (cursor, output)) in cursors.iter_mut().zip(outputs).enumerate() {
        if batch.starts[lane] == batch.starts[lane + 1] {
            // The lane never saw this batch: these are outputs of an older one.
            continue;
        }
        output.with(|output| {
            // SAFETY: no worker writes the outputs.
            let output = unsafe { &*output };
            total += output.rows.len();
            one_each &= output.one_each;
            let origins = output.rows.origins().as_ptr_range();
            *cursor = LaneCursor { row: output.rows.pointer(), origin: origins.start, end: origins.end, input: 0 };
        });
    }
    out.reserve(total)?;
    let stride = out.stride();
    // SAFETY: there is room for `total` rows; the pointers run over the lanes' rows and origins, one output row for
    // each of them.
    unsafe {
        let mut to = out.pointer().cast_mut().add(out.len() * stride);
        if one_each {
            debug_assert_eq!(total, lanes.len());
            for &lane in lanes {
                let cursor = &mut cursors[usize::from(lane)];
                copy_row(cursor.row, to, stride);
                cursor.row = cursor.row.add(stride);
                to = to.add(stride);
            }
        } else {
            for &lane in lanes {
                let cursor = &mut cursors[usize::from(lane)];
                while cursor.origin < cursor.end && *cursor.origin == cursor.input {
                    copy_row(cursor.row, to, stride);
                    cursor.row = cursor.row.add(stride);
                    cursor.origin = cursor.origin.add(1);
                    to = to.add(stride);
                }
                cursor.input += 1;
            }
        }
        (*out.emitter()).len += total as i64;
    }
    Ok(())
}
