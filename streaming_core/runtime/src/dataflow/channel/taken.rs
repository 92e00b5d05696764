//! What a task takes at once, from whichever inlet.

use crate::dataflow::channel::rank::Rank;
use crate::error::RunError;
use crate::output::digest::Digest;
use crate::output::sink::{Prepared, Sink};
use crate::rows::view::Rows;

/// Rows taken at once, about: small batches are taken together.
pub(super) const MOST: usize = 1024;

/// What was taken at once.
#[derive(Debug)]
pub struct Taken {
    /// Where rows lie that were not put out one behind the other.
    pub(super) places: Vec<*const u8>,
    /// In total order, if the gate keeps one; in the place where they were put out.
    pub rows: Rows,
    /// Per row, if ranks are asked for, its rank among the rows of its event, through all streams; none: each is alone.
    pub ranks: Vec<Rank>,
    /// The `sub` of each row, if rows are numbered before the sink. Empty if each row is the only one of its event.
    pub subs: Vec<u32>,
    /// The results of rows that stayed with their sources.
    pub(super) results: Option<Prepared>,
    /// Per row, if wanted.
    pub hashes: Vec<u64>,
    /// What the sink needs to know of the rows, if they came with it.
    pub(super) prepared: Option<Prepared>,
    /// What has been summed of them.
    pub(super) summed: Digest,
    /// Where rows lie that had been summed, and now are to be examined when they are taken.
    pub(super) left_over: Vec<*const u8>,
    /// All rows of events up to this one have been taken.
    pub upto: i64,
    /// Engine time when the processing of the earliest event started that these are of, or that has become nothing.
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
