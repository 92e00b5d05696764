//! The rows that a task takes at once, from any inlet.

use crate::dataflow::channel::rank::{Counted, Rank};
use crate::error::RunError;
use crate::output::digest::Digest;
use crate::output::sink::{Prepared, Sink};
use crate::rows::view::Rows;

/// About how many rows a task takes at once: an inlet joins small batches.
pub(super) const MOST: usize = 1024;

/// The rows that a task took at once.
#[derive(Debug)]
pub struct Taken {
    /// The places of rows that are not adjacent.
    pub(super) places: Vec<*const u8>,
    /// The rows where their producers put them; in total order, if the gate keeps one.
    pub rows: Rows,
    /// If the task needs ranks: the rank of each row among those of its event, through all streams. Empty if each row is alone.
    pub ranks: Vec<Rank>,
    /// The `sub` of each row, if rows are numbered before the sink. Empty if each row is the only one of its event.
    pub subs: Vec<u32>,
    /// The results of rows that stayed with their sources.
    pub(super) results: Option<Prepared>,
    /// Per row, if wanted.
    pub hashes: Vec<u64>,
    /// The sink's results for the rows, if their producers computed them.
    pub(super) prepared: Option<Prepared>,
    /// The digest of the rows that their producers have summed.
    pub(super) summed: Digest,
    /// The places of rows that a digest includes, and that the sink has to examine all the same.
    pub(super) left_over: Vec<*const u8>,
    /// The task has taken all rows of events up to this one.
    pub upto: i64,
    /// Engine time when the processing of the earliest of these events began, also if the event has become nothing.
    pub started: u64,
    /// Nothing comes any more in this block.
    pub last: bool,
    /// The epoch that the first tuple triggers, if the task reads an elastic ScaleGate.
    pub reconfiguration: Option<usize>,
}

impl Taken {
    /// For rows of `stride` bytes.
    pub fn new(stride: usize) -> Self {
        Self {
            places: Vec::new(),
            rows: Rows::nothing(stride),
            ranks: Vec::new(),
            subs: Vec::new(),
            results: None,
            hashes: Vec::new(),
            prepared: None,
            summed: Digest::default(),
            left_over: Vec::new(),
            upto: i64::MIN,
            started: u64::MAX,
            last: false,
            reconfiguration: None,
        }
    }

    /// Delivers the rows to a sink, with the results that came with them, or examines them.
    ///
    /// # Safety
    /// They have not been given back.
    pub unsafe fn deliver(&self, sink: &mut Sink) -> Result<(), RunError> {
        if let Some(results) = &self.results {
            sink.add(results);
            return Ok(());
        }
        let places = self.left_over.as_ptr();
        let left_over = Rows { start: std::ptr::null(), places, n: self.left_over.len(), ..self.rows };
        // SAFETY: as the caller says.
        unsafe {
            sink.take_back(left_over)?;
            let prepared = match self.prepared {
                Some(prepared) => prepared,
                None => sink.preparer().prepare_rows(self.rows, sink.end())?,
            };
            sink.deliver_rows(self.rows, &prepared)
        }
    }

    /// Adds a row to those that are not adjacent.
    #[inline]
    pub(super) fn add(&mut self, place: *const u8, started: u64, hash: Option<u64>, rank: Option<Rank>) {
        self.places.push(place);
        self.started = self.started.min(started);
        self.hashes.extend(hash);
        self.ranks.extend(rank);
    }

    /// Ends the rows that were added; `united`: they come from several streams.
    pub(super) fn end(&mut self, united: bool) {
        if !united && self.ranks.iter().all(|&rank| rank == Rank::ONLY) {
            // Each row is the only one of its event.
            self.ranks.clear();
        }
        (self.rows.places, self.rows.n) = (self.places.as_ptr(), self.places.len());
    }

    /// Replaces the ranks of the rows by the numbers of the rows in their events, for a task that takes all rows of an event.
    pub fn count(&mut self, counted: &mut Counted) {
        for (index, rank) in self.ranks.iter_mut().enumerate() {
            // SAFETY: there is a rank of each row that the task took.
            *rank = counted.rank(unsafe { self.rows.seq(index) }, *rank);
        }
    }

    /// The number of rows, those included that stayed with their sources.
    pub fn rows(&self) -> usize {
        self.results.map_or(self.rows.n, |results| results.rows())
    }

    pub fn clear(&mut self) {
        self.places.clear();
        self.ranks.clear();
        self.subs.clear();
        self.hashes.clear();
        (self.prepared, self.summed) = (None, Digest::default());
        self.left_over.clear();
        self.rows = Rows::nothing(self.rows.stride);
        self.started = u64::MAX;
        self.reconfiguration = None;
    }
}
