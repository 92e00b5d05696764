//! Copies: the rows for replicas that share nothing (SN; STRETCH, sections 2.2 and 4.1).
//!
//! A finder of keys copies a row, with its meeting, into the queues of replicas. Each of these owns a key of the row in the epoch
//! of its event. The meeting has the replica's keys, with their numbers in the row, because outputs are ranked by these numbers. A row
//! that meets all keys goes to every replica that owns cells. The text in the block is not copied, because no task writes it.
//!
//! Three things depend on all rows and must be the same for all replicas, although no replica sees all rows:
//!
//! * *The watermark*, as far as windows expire by it. A row may move the mark of its stream beyond the end of another window, as
//!   far as this task knows. It then goes to all replicas that own cells. For replicas without a key of the row, the copy has no keys.
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
use crate::state::windows::{OutOfMemory, cell_of};

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
    /// The last row that it got, and where the number of that one's keys goes.
    last: Option<usize>,
    about: usize,
}

/// Per replica what goes into its queue; see the module.
#[derive(Debug)]
pub struct Copies {
    pub of: Vec<Copied>,
    /// Per stream how far its mark goes, as all who own cells have been told from here (`progress`).
    announced: Vec<i64>,
}

impl Copies {
    /// For `replicas` replicas of an operator, which take rows of `stride` bytes.
    pub fn new(windowed: &Windowed, stride: usize, replicas: usize) -> Self {
        let nothing = || Copied {
            rows: RowBuffer::new(stride, true),
            words: Vec::new(),
            meetings: Vec::new(),
            ranks: Vec::new(),
            last: None,
            about: 0,
        };
        Self { of: (0..replicas).map(|_| nothing()).collect(), announced: vec![NONE; windowed.streams.len()] }
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
            copied.rows.reserve(rows.n)?;
            copied.words.clear();
            copied.meetings.clear();
            copied.ranks.clear();
            copied.last = None;
        }
        if rows.n == 0 {
            return Ok(());
        }
        // SAFETY: as the caller says.
        let (epoch, until) = windowed.epochs.at(unsafe { rows.seq(0) });
        let mut dealing =
            Dealing { copies: self, windowed, rows, ranks, stream: windowed.of[input], epoch, until, row: 0, ts: 0 };
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
}

impl Dealing<'_> {
    /// How far the row at hand moves the mark of its stream: the earliest window that it leaves open. It is the row's time where a
    /// stream can be idle.
    #[inline(always)]
    fn progress(&self) -> i64 {
        let bounds = self.windowed.bounds;
        if bounds.idle.is_some() && self.copies.announced.len() > 1 {
            return self.ts;
        }
        bounds.first_beyond(self.ts - bounds.delay)
    }

    /// All who own cells get the row at hand.
    #[inline(always)]
    fn announce(&mut self, progress: i64) {
        let announced = &mut self.copies.announced[self.stream];
        *announced = progress.max(*announced);
    }

    /// The row at hand is a replica's too, if it is not yet; what is said of it.
    #[inline(always)]
    fn copy(&mut self, replica: usize, flags: u64) -> &mut Copied {
        let copied = &mut self.copies.of[replica];
        if copied.last != Some(self.row) {
            copied.last = Some(self.row);
            // SAFETY: `deal` has made sure of the row, and of room for it.
            unsafe { copied.rows.push(self.rows.row(self.row), self.row as u32) }
                .expect("`deal` has reserved room for the row");
            copied.meetings.push(copied.words.len() as u64);
            copied.about = copied.words.len() + 1;
            copied.words.extend([self.ts as u64, flags | (self.stream as u64) << 32]);
            if !self.ranks.is_empty() {
                copied.ranks.push(self.ranks[self.row]);
            }
        }
        copied
    }
}

impl Notes for Dealing<'_> {
    fn reserve(&mut self, keys: usize) -> Result<(), OutOfMemory> {
        let each = 2 + self.windowed.shape.key_words();
        for copied in &mut self.copies.of {
            copied.meetings.try_reserve(1)?;
            copied.ranks.try_reserve(1)?;
            copied.words.try_reserve(2 + keys * each)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn begin(&mut self, row: usize, ts: i64) {
        (self.row, self.ts) = (row, ts);
        // SAFETY: a row that `deal` was given.
        let seq = unsafe { self.rows.seq(row) };
        if seq >= self.until {
            (self.epoch, self.until) = self.windowed.epochs.at(seq);
        }
    }

    #[inline(always)]
    fn key(&mut self, number: usize, hash: u64, fields: &[u64]) {
        let counted = if number == 0 { COUNTED } else { 0 };
        let copied = self.copy(self.epoch.owner(cell_of(hash)), DEALT | counted);
        copied.words[copied.about] += 1;
        copied.words.push(hash);
        copied.words.extend_from_slice(fields);
        copied.words.push(number as u64);
    }

    #[inline(always)]
    fn end(&mut self, keys: usize) {
        let has_all = self.windowed.every.is_some();
        if !has_all && keys == 0 {
            self.copy(self.epoch.owner(0), DEALT | COUNTED);
        }
        let progress = self.progress();
        if has_all || progress > self.copies.announced[self.stream] {
            self.announce(progress);
            for &replica in self.epoch.owners.replicas() {
                // A replica with all keys of a row counts as usual.
                self.copy(replica, if has_all { 0 } else { DEALT });
            }
        }
    }

    fn fail(&mut self, exception: &[u8]) {
        let bounds = self.windowed.bounds;
        if bounds.has_window(self.ts) {
            let progress = self.progress();
            self.announce(progress);
        }
        for &replica in self.epoch.owners.replicas() {
            let counted = if replica == self.epoch.owner(0) { COUNTED } else { 0 };
            self.copy(replica, DEALT | FAILED | counted).words.extend(exception_words(exception));
        }
    }
}
