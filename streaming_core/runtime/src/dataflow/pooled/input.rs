//! A batch on its way through a stage: split by lane, and put in order again.
//!
//! A *part* is what a batch holds for one lane. Invariant: the rows of a part are adjacent and in total order. Outputs of the
//! parts are merged by the positions of their inputs.
//!
//! Cost: a few steps a row and a part, whatever the number of lanes. With several parts, each row is copied once on the way in
//! and once on the way out. With one part, it is not copied, if its rows stay with the batch. Outputs that lanes have digested
//! (`numbered`) are not copied again.

use crate::dataflow::operator::Chain;
use crate::dataflow::pooled::touched::touch;
use crate::error::RunError;
use crate::output::sink::Prepared;
use crate::planted::{self, Fault};
use crate::program::options::MOST_PARTITIONS;
use crate::rows::block::Text;
use crate::rows::buffer::{RowBuffer, copy_row};
use crate::rows::view::Rows;
use crate::threads::sync::UnsafeCell;

/// The largest number of lanes of a stage; numbers of lanes and of parts are bytes.
pub const MOST_LANES: usize = MOST_PARTITIONS;

/// A batch on its way into a stage.
#[derive(Debug)]
pub struct Input {
    /// The step before writes it, or the worker that releases the batch; the lanes read it.
    pub batch: UnsafeCell<Sorted>,
}

/// Rows of a batch, those of one part adjacent, in total order within a part.
#[derive(Debug)]
pub struct Sorted {
    /// The rows: in `sorted` by part, or where their producer has left them if there is only one part.
    pub rows: Rows,
    /// Room for the rows that the step makes.
    buffer: RowBuffer,
    sorted: RowBuffer,
    /// Per row, in the order of `rows`.
    hashes: Vec<u64>,
    /// Per row, in the order of `rows`, its number among the rows of its event; if the lanes digest their outputs.
    pub subs: Vec<u32>,
    pub n: usize,
    pub parts: Vec<Part>,
    /// Per row, in total order, its part; if there are several.
    part_of_row: Vec<u8>,
    /// Per lane its part, if that part is this lane's; else anything, so no batch clears it (Briggs and Torczon).
    part_of_lane: Box<[u8]>,
    /// Per part what became of it. The lane's holder writes it; the next step reads it.
    outcomes: Vec<UnsafeCell<Outcome>>,
    /// Per part the results of its outputs, if the lane has digested them. Written and read as `outcomes`.
    digests: Vec<UnsafeCell<Prepared>>,
    /// Per worker the outputs of all parts of the batch that it has run, once it has run any. So they lie in few cache lines,
    /// however many parts there are.
    outputs: Box<[UnsafeCell<Option<Box<Output>>>]>,
    /// The outputs of a batch without parts.
    nothing: RowBuffer,
    /// Distinguishes the batches that use this room.
    generation: u64,
}

/// What a batch holds for a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub lane: usize,
    /// Its rows; the first one is that of the part before.
    start: usize,
    end: usize,
}

/// What became of a part: outputs of the worker that ran it.
#[derive(Debug, Default)]
struct Outcome {
    worker: u32,
    start: u32,
    end: u32,
    /// Whether every input emitted exactly one row.
    one_each: bool,
}

/// The outputs of a worker.
#[derive(Debug)]
struct Output {
    rows: RowBuffer,
    /// The batch they are of.
    generation: u64,
}

/// A part for the holder of its lane.
#[derive(Debug)]
pub struct PartView<'a> {
    pub rows: Rows,
    /// Of the rows' keys; a stateful operator's rows have none.
    pub hashes: &'a [u64],
    pub subs: &'a [u32],
    batch: &'a Sorted,
    part: usize,
}

impl Input {
    /// For the stage of operator `index`.
    pub fn new(chain: &Chain, index: usize, lanes: usize, workers: usize) -> Self {
        let [buffer, sorted] = [0; 2].map(|_| RowBuffer::new(chain.input_stride(index), false));
        let batch = Sorted {
            rows: Rows::of(&buffer, Text::empty()),
            buffer,
            sorted,
            hashes: Vec::new(),
            subs: Vec::new(),
            n: 0,
            parts: Vec::new(),
            part_of_row: Vec::new(),
            part_of_lane: vec![0; lanes].into(),
            outcomes: Vec::new(),
            digests: Vec::new(),
            outputs: (0..workers).map(|_| UnsafeCell::new(None)).collect(),
            nothing: RowBuffer::new(chain.operators[index].stride, false),
            generation: 0,
        };
        Self { batch: UnsafeCell::new(batch) }
    }

    /// Lends the room for the rows that a step makes for the stage.
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
            for digest in &batch.digests[..batch.parts.len()] {
                // SAFETY: as above.
                digest.with(|digest| all.add(unsafe { &*digest }, &mut { i64::MIN }));
            }
            Some(all)
        })
    }
}

#[cfg(test)]
impl Part {
    /// A part for worklists, which look at no rows.
    pub fn of(lane: usize) -> Self {
        Self { lane, start: 0, end: 0 }
    }
}

impl Sorted {
    /// Another batch has come, with these parts.
    fn begin(&mut self) {
        self.generation += 1;
        let parts = self.parts.len();
        self.outcomes.resize_with(parts.max(self.outcomes.len()), || UnsafeCell::new(Outcome::default()));
        if self.is_numbered() {
            self.digests.resize_with(parts.max(self.digests.len()), || UnsafeCell::new(Prepared::nothing()));
        }
    }

    /// Takes rows as they are. They belong to the only lane, or `sort` must follow.
    pub fn whole(&mut self, rows: Rows) {
        self.rows = rows;
        self.n = rows.n;
        self.parts.clear();
        if rows.n > 0 {
            self.parts.push(Part { lane: 0, start: 0, end: rows.n });
            self.part_of_lane[0] = 0;
        }
        self.begin();
    }

    /// As `whole`, with the hashes of the rows' keys. They are exchanged for those of a former batch.
    pub fn whole_with(&mut self, rows: Rows, hashes: &mut Vec<u64>) {
        std::mem::swap(&mut self.hashes, hashes);
        self.whole(rows);
    }

    /// Puts rows in the order of parts; the parts are in the order of their first rows. `hashes` are those of the keys, `lane_of`
    /// says the lane of each row. `numbered`: the rows are also numbered within their events, in total order. `stay`: the rows
    /// stay where they are as long as the batch needs them, so those of a single part are not copied.
    ///
    /// # Safety
    /// The rows are readable and lie outside of `sorted`.
    pub unsafe fn sort(
        &mut self,
        rows: Rows,
        hashes: &mut Vec<u64>,
        numbered: bool,
        stay: bool,
        lane_of: impl Fn(&[u64], usize, usize) -> usize,
    ) -> Result<(), RunError> {
        let n = rows.n;
        self.part_of_row.resize(n.max(self.part_of_row.len()), 0);
        self.parts.clear();
        for (row, part_of_row) in self.part_of_row[..n].iter_mut().enumerate() {
            let lane = lane_of(hashes, row, self.part_of_lane.len());
            let mut part = usize::from(self.part_of_lane[lane]);
            touch(1);
            if self.parts.get(part).is_none_or(|part| part.lane != lane) {
                part = self.parts.len();
                self.part_of_lane[lane] = part as u8;
                self.parts.push(Part { lane, start: 0, end: 0 });
            }
            self.parts[part].start += 1;
            *part_of_row = part as u8;
        }
        // Counts become the places of the first rows. `end` runs up to the end of the part while rows are copied.
        let mut end = 0;
        for part in &mut self.parts {
            touch(1);
            let start = end;
            end += part.start;
            (part.start, part.end) = (start, start);
        }
        self.n = n;
        self.subs.resize(if numbered { n } else { 0 }, 0);
        self.begin();
        if let ([only], true, false) = (&mut self.parts[..], stay, numbered) {
            only.end = n;
            std::mem::swap(&mut self.hashes, hashes);
            self.rows = rows;
            return Ok(());
        }
        self.hashes.resize(n.max(self.hashes.len()), 0);
        self.sorted.clear();
        self.sorted.reserve(n)?;
        let to = self.sorted.pointer().cast_mut();
        let (mut seq, mut sub) = (0, 0);
        for (i, (&part, &hash)) in self.part_of_row[..n].iter().zip(&hashes[..n]).enumerate() {
            let next = &mut self.parts[usize::from(part)].end;
            let place = *next;
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
        Ok(())
    }

    /// Whether the rows are numbered, so that the lanes digest their outputs; not if there are none.
    pub fn is_numbered(&self) -> bool {
        !self.subs.is_empty()
    }

    /// The part of a lane that has one.
    pub fn lane(&self, lane: usize) -> PartView<'_> {
        let part = usize::from(self.part_of_lane[lane]);
        let Part { lane: this, start, end } = self.parts[part];
        debug_assert_eq!(this, lane);
        PartView {
            rows: self.rows.slice(start..end),
            hashes: self.hashes.get(start..end).unwrap_or_default(),
            subs: self.subs.get(start..end).unwrap_or_default(),
            batch: self,
            part,
        }
    }

    /// The outputs of a batch of one part, or of none.
    ///
    /// # Safety
    /// The lanes are done with the batch, so no worker writes their outputs before the slot is reused.
    pub unsafe fn only(&self) -> *const RowBuffer {
        if self.parts.is_empty() {
            return &raw const self.nothing;
        }
        // SAFETY: as the caller says.
        self.outcomes[0].with(|outcome| unsafe { self.rows_of((*outcome).worker) })
    }

    /// The outputs of `worker`, which has run a part of the batch.
    ///
    /// # Safety
    /// As for `only`.
    unsafe fn rows_of(&self, worker: u32) -> *const RowBuffer {
        // SAFETY: as the caller says.
        self.outputs[worker as usize]
            .with(|output| unsafe { &raw const (*output).as_ref().expect("the worker has run").rows })
    }
}

impl PartView<'_> {
    /// Lends the holder of the lane, `worker`, its outputs to append those of the part to.
    ///
    /// # Safety
    /// The part is this worker's, and so are the outputs.
    pub unsafe fn append<R>(&self, worker: usize, work: impl FnOnce(&mut RowBuffer) -> R) -> R {
        let Self { batch, .. } = self;
        batch.outputs[worker].with_mut(|output| {
            // Only with several lanes may outputs of several parts be merged by their origins.
            let fresh =
                || Output { rows: RowBuffer::new(batch.nothing.stride(), batch.part_of_lane.len() > 1), generation: 0 };
            // SAFETY: as the caller says.
            let output = unsafe { (*output).get_or_insert_with(|| Box::new(fresh())) };
            if output.generation != batch.generation {
                output.rows.clear();
                output.generation = batch.generation;
            }
            let start = output.rows.len();
            let result = work(&mut output.rows);
            if output.rows.len() < start {
                // A failure forgets the rows of later events, but not those of parts before this one.
                // SAFETY: the rows before `start` are there.
                unsafe { (*output.rows.emitter()).len = start as i64 };
            }
            let end = output.rows.len();
            let n = self.rows.n;
            let origins = output.rows.origins().get(start..).unwrap_or_default();
            let one_each = origins.len() == n
                && (planted::has(Fault::UnevenMerge)
                    || origins.iter().enumerate().fold(true, |same, (i, &origin)| same & (origin == i as u32)));
            let [worker, start, end] = [worker, start, end].map(|number| number as u32);
            let outcome = Outcome { worker, start, end, one_each };
            // SAFETY: as the caller says.
            batch.outcomes[self.part].with_mut(|place| unsafe { *place = outcome });
            result
        })
    }

    /// Notes what became of the part, whose outputs are digested.
    ///
    /// # Safety
    /// As for `append`.
    pub unsafe fn digested(&self, prepared: Prepared) {
        // SAFETY: as the caller says.
        self.batch.digests[self.part].with_mut(|digest| unsafe { *digest = prepared });
    }
}

/// A part's outputs while they are merged.
#[derive(Debug, Clone, Copy)]
pub struct PartCursor {
    row: *const u8,
    /// Origins of this row and of those behind it.
    origin: *const u32,
    end: *const u32,
    /// The next input of the part.
    input: u32,
}

// SAFETY: the addresses are written anew for each batch; nothing refers to the thread.
unsafe impl Send for PartCursor {}

/// Appends the outputs of all parts to `out` in the order of the inputs that emitted them. `cursors` is room of the worker.
///
/// # Safety
/// The lanes are done with the batch, so no worker writes their outputs.
pub unsafe fn merge(batch: &Sorted, cursors: &mut Vec<PartCursor>, out: &mut RowBuffer) -> Result<(), RunError> {
    let rows = &batch.part_of_row[..batch.n];
    cursors.clear();
    let (mut total, mut one_each) = (0, true);
    for outcome in &batch.outcomes[..batch.parts.len()] {
        touch(1);
        outcome.with(|outcome| {
            // SAFETY: no worker writes the outputs.
            let (outcome, rows) = unsafe { (&*outcome, &*batch.rows_of((*outcome).worker)) };
            let (start, end) = (outcome.start as usize, outcome.end as usize);
            total += end - start;
            one_each &= outcome.one_each;
            let origins = rows.origins().get(start..end).unwrap_or_default().as_ptr_range();
            cursors.push(PartCursor { row: rows.row(start), origin: origins.start, end: origins.end, input: 0 });
        });
    }
    out.reserve(total)?;
    let stride = out.stride();
    // SAFETY: there is room for `total` rows; the pointers run over the parts' rows and origins, one output row for
    // each of them.
    unsafe {
        let mut to = out.pointer().cast_mut().add(out.len() * stride);
        if one_each {
            debug_assert_eq!(total, rows.len());
            for &part in rows {
                let cursor = &mut cursors[usize::from(part)];
                copy_row(cursor.row, to, stride);
                cursor.row = cursor.row.add(stride);
                to = to.add(stride);
            }
        } else {
            for &part in rows {
                let cursor = &mut cursors[usize::from(part)];
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
