//! The producer's end of a queue between two replicas, whose jumbo tuples are refilled (BriskStream, section 5.2).
//!
//! The queue is an outlet with one reader. The producer copies the rows for its consumer into the open jumbo tuple, batch
//! after batch. It publishes the tuple under one header when the tuple is full, and at the end of a block. The open tuple is
//! the slot that is published next: once there is room for it, it belongs to the producer until it is published.

use crate::dataflow::channel::outlet::{Jumbo, Outlet};
use crate::error::RunError;
use crate::rows::block::Text;
use crate::rows::view::Rows;

#[derive(Debug)]
pub struct Refill {
    /// Rows of a full jumbo tuple.
    size: usize,
    /// Where the producer's outputs keep the hashes of the keys, if the consumer is chosen by key.
    hashes: Option<usize>,
    /// The rows in the open jumbo tuple.
    open: usize,
    /// The number of rows that were copied of the outputs at hand.
    copied: usize,
    /// All rows of the outputs at hand are in the queue or in the open tuple.
    is_done: bool,
    /// All rows of events up to this one are in the queue or in the open tuple.
    upto: i64,
}

impl Refill {
    pub fn new(size: usize, hashes: Option<usize>) -> Self {
        Self { size, hashes, open: 0, copied: 0, is_done: true, upto: i64::MIN }
    }

    /// There are new outputs.
    pub fn start(&mut self) {
        (self.copied, self.is_done) = (0, false);
    }

    /// Whether rows, or the end of the block, wait for room.
    pub fn is_waiting(&self) -> bool {
        !self.is_done
    }

    /// Copies the rows of `outputs` that belong to `reader` there, as far as there is room in the queue. Returns whether
    /// something was published.
    ///
    /// # Safety
    /// The caller is the queue's writer. The outputs are the same since `start`.
    pub unsafe fn pour(&mut self, queue: &Outlet, outputs: &Jumbo, reader: usize) -> Result<bool, RunError> {
        let (share, mut has_published) = (&outputs.shares[reader], false);
        let n = share.len(outputs.rows.n);
        while !self.is_done {
            if self.copied == n && !outputs.last {
                (self.is_done, self.upto) = (true, outputs.upto);
                break;
            }
            if !queue.has_room() {
                break;
            }
            let from = self.copied;
            let to = n.min(from + self.size - self.open);
            let copy = |jumbo: &mut Jumbo| {
                if self.open == 0 {
                    jumbo.clear();
                    jumbo.hashes.iter_mut().for_each(Vec::clear);
                    jumbo.started = outputs.started;
                }
                if let Some(place) = self.hashes {
                    let hashes = &outputs.hashes[place];
                    jumbo.hashes[0].extend((from..to).map(|i| hashes[share.position(i)]));
                }
                // SAFETY: the outputs have these rows.
                unsafe { jumbo.made.gather(to - from, |i| outputs.rows.row(share.position(from + i))) }
            };
            // SAFETY: the caller is the writer, and there is room.
            unsafe { queue.fill(copy) }?;
            self.open += to - from;
            self.copied = to;
            self.is_done = to == n;
            if self.is_done {
                self.upto = outputs.upto;
            }
            let is_last = self.is_done && outputs.last;
            if is_last || self.open == self.size {
                // SAFETY: as above.
                unsafe { self.publish(queue, outputs.rows.text, is_last) };
                has_published = true;
            }
        }
        Ok(has_published)
    }

    /// Publishes the open jumbo tuple, if it has rows. Returns whether it has.
    ///
    /// # Safety
    /// The caller is the queue's writer.
    pub unsafe fn flush(&mut self, queue: &Outlet, text: Text) -> bool {
        let has_rows = self.open > 0;
        if has_rows {
            // SAFETY: the slot is open, so there was room.
            unsafe { self.publish(queue, text, false) };
        }
        has_rows
    }

    /// # Safety
    /// The caller is the queue's writer, and there is room.
    unsafe fn publish(&mut self, queue: &Outlet, text: Text, is_last: bool) {
        let close = |jumbo: &mut Jumbo| {
            jumbo.rows = Rows::of(&jumbo.made, text);
            jumbo.shares[0].whole = true;
            (jumbo.upto, jumbo.last) = (self.upto, is_last);
        };
        // SAFETY: as the caller says.
        unsafe { queue.fill(close) };
        queue.publish();
        self.open = 0;
    }
}
