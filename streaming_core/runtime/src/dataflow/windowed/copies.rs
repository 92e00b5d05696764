//! Copies: the rows that each replica takes, with its keys (STRETCH, sections 2.2 and 4.1).
//!
//! A finder of keys copies a row, with its meeting, into a queue of each replica. It chooses the replicas that own one
//! of the row's keys in the epoch of its event. The meeting has the replica's keys, with their numbers in the row,
//! because outputs are ranked by these numbers. A row that meets all keys goes to every replica that owns cells: only
//! replicas that share nothing need copies of it. The text in the block is not copied, because no task writes it.
//!
//! *Order.* A queue has the rows of its finder in the order of (seq, rank). The gate of the replica merges the queues
//! of all finders by (seq, stream, rank). So a replica takes its rows in the order in which it would take all rows.
//!
//! *Exactness.* An epoch begins behind all events that are dealt (`epochs.rs`). So a finder knows all epochs up to the
//! events that it takes. The owner of a key at a row is the same for the finder and for the replica. A replica goes
//! over to the epoch before its first row of it, or at the end of a batch. Rows of one batch may belong to several
//! epochs.
//!
//! *No deadlock.* A finder fills one slot in each queue at once, and needs room in all. A replica that has nothing in a
//! batch still gets its `upto`. So queues fill and empty together, as the one outlet did that all replicas read.
//!
//! *Cost.* The words of each key cross once from a finder to its owner. That is (row + 2 words + keys * (2 words +
//! key)) / 64 cache lines of a row per owner. Before, all keys of a row went to every replica, which looked through all of them.
//!
//! Three things depend on all rows and must be the same for all replicas, although no replica sees all rows:
//!
//! * *The watermark*, as far as windows expire by it. A row may move the mark of its stream beyond the end of another
//!   window, as far as this task knows. Then it goes to all replicas that own cells. For replicas without a key of the row, the copy has no keys.
//!   Other tasks find the keys of other rows. A row that moves a mark for all of them together moves it here. So all replicas
//!   stand at the same window before every row. Where a stream can be idle, its mark itself decides: a row that moves it at all
//!   goes to all.
//! * *Late rows*: the owner of the first key counts them.
//! * *A row without keys* goes to the owner of the first cell. That replica sees whether the row is late; this task does not.

use crate::dataflow::channel::rank::Rank;
use crate::dataflow::windowed::epochs::Epoch;
use crate::dataflow::windowed::keys::{COUNTED, DEALT, FAILED, Lister, Notes, exception_words, place};
use crate::dataflow::windowed::operator::Windowed;
use crate::dataflow::windowed::watermark::NONE;
use crate::error::RunError;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;
use crate::state::windows::{OutOfMemory, Recent};

/// Words of a meeting before its keys.
const HEADER: usize = 2;

/// What goes into a replica's queue, until it does.
#[derive(Debug)]
pub struct Copied {
    /// Each with its position among the rows that were dealt.
    pub rows: RowBuffer,
    pub words: Vec<u64>,
    /// Per row where its meeting begins.
    pub meetings: Vec<u64>,
    /// Per row, if they have any.
    pub ranks: Vec<Rank>,
    /// The last row that is for it, if any; where that one's meeting begins, and how many keys it has.
    last: usize,
    begin: usize,
    keys: u64,
}

/// Planted faults of a finder of keys, which tests must notice.
#[cfg(test)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Deals the keys of this row of each batch to the first replica, whichever replica owns them.
    pub misdeals: Option<usize>,
    /// Does not list the keys of this row of each batch.
    pub loses: Option<usize>,
    /// Deals all rows of a batch to the owners of its first event.
    pub delays: bool,
}

/// Per replica what goes into its queue; see the module.
#[derive(Debug)]
pub struct Copies {
    #[cfg(test)]
    pub faults: Faults,
    pub of: Vec<Copied>,
    /// First the replicas that the row at hand is for; with room for one more than there are.
    receivers: Vec<usize>,
    /// Per stream how far its mark goes, as all who own cells have been told from here (`progress`).
    announced: Vec<i64>,
    recent: Recent,
}

impl Copies {
    /// For `replicas` replicas of an operator, which take rows of `stride` bytes.
    pub fn new(windowed: &Windowed, stride: usize, replicas: usize) -> Self {
        let nothing = || Copied {
            rows: RowBuffer::new(stride, true),
            words: Vec::new(),
            meetings: Vec::new(),
            ranks: Vec::new(),
            last: usize::MAX,
            begin: 0,
            keys: 0,
        };
        Self {
            #[cfg(test)]
            faults: Faults::default(),
            of: (0..replicas).map(|_| nothing()).collect(),
            receivers: vec![0; replicas + 1],
            announced: vec![NONE; windowed.streams.len()],
            recent: Recent::default(),
        }
    }

    /// Copies rows of an input, which have these ranks or none.
    ///
    /// # Safety
    /// The rows are readable and have the layout of the input.
    pub unsafe fn deal(
        &mut self,
        windowed: &Windowed,
        lister: &mut Lister,
        input: usize,
        (rows, ranks): (Rows, &[Rank]),
    ) -> Result<(), RunError> {
        for copied in &mut self.of {
            copied.rows.clear();
            copied.words.clear();
            copied.meetings.clear();
            copied.ranks.clear();
            copied.last = usize::MAX;
        }
        if rows.n == 0 {
            return Ok(());
        }
        // SAFETY: as the caller says.
        let (epoch, until) = windowed.epochs.at(unsafe { rows.seq(0) });
        let stream = windowed.of[input];
        let mut dealing = Dealing {
            copies: self,
            windowed,
            rows,
            ranks,
            stream,
            epoch,
            until,
            row: 0,
            ts: 0,
            receivers: 0,
            first: 0,
        };
        // SAFETY: as the caller says.
        let outcome = unsafe { lister.find(windowed, input, rows, &mut dealing) };
        self.of.iter_mut().for_each(|copied| place(&copied.words, &mut copied.meetings));
        outcome
    }
}

/// Rows on their way into copies.
struct Dealing<'a> {
    copies: &'a mut Copies,
    windowed: &'a Windowed,
    rows: Rows,
    ranks: &'a [Rank],
    stream: usize,
    /// Of the row at hand; with which event the next one begins.
    epoch: &'a Epoch,
    until: i64,
    row: usize,
    ts: i64,
    /// How many replicas own its keys so far, and which one owns the first key.
    receivers: usize,
    first: usize,
}

impl Dealing<'_> {
    /// How far the row at hand moves the mark of its stream: the earliest window that it leaves open. It is the row's time where a
    /// stream can be idle.
    #[inline(always)]
    fn progress(&mut self) -> i64 {
        let bounds = self.windowed.bounds;
        if bounds.idle.is_some() && self.copies.announced.len() > 1 {
            return self.ts;
        }
        bounds.first_beyond(self.ts - bounds.delay, &mut self.copies.recent)
    }

    /// All who own cells get the row at hand.
    #[inline(always)]
    fn announce(&mut self, progress: i64) {
        let announced = &mut self.copies.announced[self.stream];
        *announced = progress.max(*announced);
    }

    /// Copies the row at hand for a replica, with `flags` in its meeting. It has its keys already, or gets none.
    #[inline(always)]
    fn copy(&mut self, replica: usize, flags: u64) -> Result<&mut Copied, OutOfMemory> {
        let copied = &mut self.copies.of[replica];
        if copied.last != self.row {
            (copied.last, copied.begin, copied.keys) = (self.row, copied.words.len(), 0);
            copied.words.try_reserve(HEADER)?;
            copied.words.extend([0; HEADER]);
        }
        copied.words[copied.begin] = self.ts as u64;
        copied.words[copied.begin + 1] = flags | (self.stream as u64) << 32 | copied.keys;
        copied.meetings.try_reserve(1)?;
        copied.meetings.push(copied.begin as u64);
        // SAFETY: a row that `deal` was given.
        unsafe { copied.rows.push(self.rows.row(self.row), self.row as u32) }.map_err(|_| OutOfMemory)?;
        if !self.ranks.is_empty() {
            copied.ranks.try_reserve(1)?;
            copied.ranks.push(self.ranks[self.row]);
        }
        Ok(copied)
    }
}

impl Notes for Dealing<'_> {
    #[inline(always)]
    fn begin(&mut self, row: usize, ts: i64, _: usize) -> Result<(), OutOfMemory> {
        (self.row, self.ts, self.receivers) = (row, ts, 0);
        // SAFETY: a row that `deal` was given.
        let seq = unsafe { self.rows.seq(row) };
        #[cfg(test)]
        let seq = if self.copies.faults.delays { i64::MIN } else { seq };
        if seq >= self.until {
            (self.epoch, self.until) = self.windowed.epochs.at(seq);
        }
        Ok(())
    }

    /// Whether a key is the first one for its owner is anyone's guess, so no branch depends on it.
    #[inline(always)]
    fn key(&mut self, number: usize, hash: u64, fields: &[u64]) -> Result<(), OutOfMemory> {
        let owner = self.epoch.owner(self.windowed.shape.cell_of(hash));
        #[cfg(test)]
        let owner = if self.copies.faults.misdeals == Some(self.row) { 0 } else { owner };
        #[cfg(test)]
        if self.copies.faults.loses == Some(self.row) {
            return Ok(());
        }
        if number == 0 {
            self.first = owner;
        }
        let Copies { of, receivers, .. } = &mut *self.copies;
        let copied = &mut of[owner];
        let is_first = copied.last != self.row;
        copied.last = self.row;
        receivers[self.receivers] = owner;
        self.receivers += usize::from(is_first);
        let (len, all) = (copied.words.len(), HEADER + fields.len() + 2);
        if copied.words.capacity() - len < all {
            copied.words.try_reserve(all)?;
        }
        copied.begin = if is_first { len } else { copied.begin };
        copied.keys = if is_first { 1 } else { copied.keys + 1 };
        let at = len + if is_first { HEADER } else { 0 };
        // SAFETY: there is room for a header, which `copy` fills, and for a key behind it.
        unsafe {
            let words = copied.words.as_mut_ptr();
            words.add(len).cast::<[u64; HEADER]>().write([0; HEADER]);
            words.add(at).write(hash);
            // A few words: a call to copy memory would cost more.
            fields.iter().enumerate().for_each(|(i, &field)| words.add(at + 1 + i).write(field));
            words.add(at + 1 + fields.len()).write(number as u64);
            copied.words.set_len(at + fields.len() + 2);
        }
        Ok(())
    }

    #[inline(always)]
    fn end(&mut self, keys: usize) -> Result<(), OutOfMemory> {
        for i in 0..self.receivers {
            let receiver = self.copies.receivers[i];
            self.copy(receiver, if receiver == self.first { DEALT | COUNTED } else { DEALT })?;
        }
        let has_all = self.windowed.every.is_some();
        if !has_all && keys == 0 {
            self.copy(self.epoch.owner(0), DEALT | COUNTED)?;
        }
        let progress = self.progress();
        if has_all || progress > self.copies.announced[self.stream] {
            self.announce(progress);
            for &replica in self.epoch.owners.replicas() {
                if self.copies.of[replica].last != self.row {
                    // A replica with all keys of a row counts as usual.
                    self.copy(replica, if has_all { 0 } else { DEALT })?;
                }
            }
        }
        Ok(())
    }

    fn fail(&mut self, exception: &[u8]) -> Result<(), OutOfMemory> {
        let bounds = self.windowed.bounds;
        if bounds.has_window(self.ts) {
            let progress = self.progress();
            self.announce(progress);
        }
        for &replica in self.epoch.owners.replicas() {
            let counted = if replica == self.epoch.owner(0) { COUNTED } else { 0 };
            self.copy(replica, DEALT | FAILED | counted)?.words.extend(exception_words(exception));
        }
        Ok(())
    }
}
