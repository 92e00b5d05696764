//! A replica of a windowed operator at work. It implements language/window.py for the keys of its own cells.
//!
//! A replica notes rows that meet windows, looks up the keys of a few rows together, and calls the kernel for many rows
//! at once. It does so before a window with a `result` kernel expires, before rows of another stream, and at the end of
//! a batch. After that, it frees removed entries.
//!
//! Order: an output has a rank. The rank starts with that of the row of its event. Then it says whether a window expired (0)
//! or a row met a window (1). Next comes the number of the window. A meeting counts from the first window that the row
//! meets. An expiry counts from the first window that can have been open. Before the first watermark no replica knows that one, so
//! replicas count back from the last window that expires. Then comes the key group for an expiry, or the number of the key in its
//! row for a meeting. A running number ends the rank. So the
//! ranks of all replicas together are in the order of the language.

pub mod barrier;
mod expiry;
mod lookup;
mod merged;
mod met;
mod slices;

use crate::dataflow::channel::rank::{Path, Rank, path_too_long};
use crate::dataflow::operator::truncate;
use crate::dataflow::windowed::keys::Meeting;
use crate::dataflow::windowed::operator::{Out, Windowed};
use crate::dataflow::windowed::replica::merged::Merged;
use crate::dataflow::windowed::replica::met::Met;
use crate::dataflow::windowed::watermark::{NONE, Watermark};
use crate::error::RunError;
use crate::memory::fallible::boxed;
use crate::planted::{self, Fault};
use crate::program::kernel::{EntryHeader, WindowContext};
use crate::rows::block::Text;
use crate::rows::view::Rows;
use crate::state::windows::by_window::ByWindow;
use crate::state::windows::cell::Gone;
use crate::state::windows::pane::Pane;
use crate::state::windows::session::Earliest;
use crate::state::windows::{CELLS, OutOfMemory, Recent};

/// Planted faults of a replica, which tests must notice.
#[cfg(test)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Goes over so many events early. (Were it late, others would wait for it for ever.)
    pub early: i64,
    /// Does not take up what is open in the cells it gains.
    pub forgets: bool,
    /// Does not know how far time went while it was away.
    pub dreams: bool,
    /// Does not take the row at which it has gone over.
    pub loses: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Replica {
    #[cfg(test)]
    pub faults: Faults,
    number: usize,
    /// The epoch that it has gone over to.
    epoch: usize,
    /// The time since which it waits for the next one.
    waits: Option<u64>,
    /// Whether it owns each cell.
    owns: Box<[bool; CELLS]>,
    /// The numbers of the own keys that every row has. For single windows that expire without a kernel call, also their
    /// entries, because every row touches all of them. For windows that are not single, their entries in `every_window`.
    ///
    /// Invariant (`has_all_entries`): between two rows, an entry is null, or it is the key's entry in its cell. While a row
    /// is taken, the touch of one key may remove entries of later keys, whose `last` is then before the window. `find_every`
    /// reads this `last` and looks the key up again. It may read it, because removed entries are freed only by `meet`. An
    /// entry of a cell that another replica owned meanwhile may be freed, so `own` forgets all of them.
    every: Vec<(u32, *mut EntryHeader)>,
    /// First the own keys of the last rows, `pending` many. They are looked up together in their windows: number of the first
    /// window, and of windows.
    own: Vec<OwnKey>,
    pending: usize,
    windows: (i64, usize),
    /// Of the row at hand, the numbers of its own keys.
    numbers: Vec<u32>,
    /// Of the own keys, which have to be looked up in a later window too, and where.
    unlinked: Vec<(usize, *mut Pane)>,
    watermark: Watermark,
    /// The windows of the last mark, and of the last row: the first and the last.
    recent: [Recent; 3],
    /// The window whose entries `every` has; `NONE`: of none for sure.
    every_window: i64,
    /// Not all has expired yet of what does at the row that comes next.
    is_expiring: bool,
    late: u64,
    /// How often a row has met a window of an own key.
    calls: u64,
    /// Per window that is open its panes in own cells.
    open: ByWindow<Box<Open>>,
    /// By own cell, a time before which no session has its latest row.
    sessions: Earliest,
    /// Of windows that have expired: their room is used again.
    spare: Vec<Box<Open>>,
    met: Met,
    gone: Gone,
    /// Of windows that consist of slices.
    merged: Merged,
    /// Room for the entries of a pane.
    expired: Vec<*mut EntryHeader>,
    starts: Vec<i64>,
}

/// Own keys that are looked up together, at least: as many reads of memory overlap.
const TOGETHER: usize = 32;

/// A key of a row that a replica owns.
#[derive(Debug, Clone, Copy)]
struct OwnKey {
    hash: u64,
    /// Where its row would begin.
    row: *const u8,
    /// Its meeting in the first window, and how many own keys the row has: the meeting in the next window is so much further.
    at: usize,
    of: usize,
}

/// The panes of a window, so that a look-up need not go through the cells.
#[derive(Debug)]
struct Open {
    /// By cell; null: there is none.
    panes: [*mut Pane; CELLS],
    /// The cells that have one.
    cells: Vec<u16>,
}

impl Open {
    fn new() -> Result<Box<Self>, OutOfMemory> {
        boxed(Self { panes: [std::ptr::null_mut(); CELLS], cells: Vec::new() }).ok_or(OutOfMemory)
    }

    /// Notes the pane of a cell that has none yet.
    fn add(&mut self, cell: usize, pane: *mut Pane) -> Result<(), OutOfMemory> {
        self.cells.try_reserve(1)?;
        self.cells.push(cell as u16);
        self.panes[cell] = pane;
        Ok(())
    }
}

// SAFETY: addresses are used within the call that wrote them; nothing refers to a thread.
unsafe impl Send for Replica {}

impl Replica {
    /// Number `number` of an operator's, before the first row.
    pub fn new(operator: &Windowed, number: usize) -> Self {
        let first = operator.epochs.get(0).expect("there is a first epoch");
        Self::owning(operator, number, |cell| first.owner(cell) == number)
    }

    fn owning(operator: &Windowed, number: usize, owns: impl Fn(usize) -> bool) -> Self {
        let mut replica = Self {
            #[cfg(test)]
            faults: Faults::default(),
            number,
            epoch: 0,
            waits: None,
            every: Vec::new(),
            own: Vec::new(),
            pending: 0,
            windows: (0, 0),
            numbers: Vec::new(),
            unlinked: Vec::new(),
            owns: Box::new([false; CELLS]),
            watermark: Watermark::new(operator.streams.len()),
            recent: Default::default(),
            every_window: NONE,
            is_expiring: false,
            late: 0,
            calls: 0,
            open: ByWindow::default(),
            sessions: Earliest::default(),
            spare: Vec::new(),
            met: Met::default(),
            gone: Gone::default(),
            merged: Merged::default(),
            expired: Vec::new(),
            starts: Vec::new(),
        };
        replica.own(operator, owns);
        replica
    }

    /// Sets the cells that it owns from now on.
    fn own(&mut self, operator: &Windowed, owns: impl Fn(usize) -> bool) {
        for (cell, own) in self.owns.iter_mut().enumerate() {
            *own = owns(cell);
        }
        let own = |(_, (hash, _)): &(usize, &(u64, i64))| self.owns[operator.shape.cell_of(*hash)];
        self.every_window = NONE;
        self.every = operator
            .every
            .iter()
            .flatten()
            .enumerate()
            .filter(own)
            .map(|(number, _)| (number as u32, std::ptr::null_mut()))
            .collect();
    }

    /// Takes over the open windows of an own cell.
    ///
    /// # Safety
    /// No other replica is at the cell any more.
    unsafe fn take_up(&mut self, operator: &Windowed, cell: usize) -> Result<(), OutOfMemory> {
        // SAFETY: as the caller says.
        unsafe {
            operator.cells.with_mut(self.number, cell, |here| {
                for (number, pane) in here.open() {
                    self.open.get_or_make(number, Open::new)?.0.add(cell, pane)?;
                }
                self.sessions.set(cell, here.sessions.earliest());
                Ok(())
            })
        }
    }

    /// Drops the open windows of cells that it no longer owns.
    fn let_go(&mut self) {
        let Self { owns, open, sessions, .. } = self;
        (0..CELLS).filter(|&cell| !owns[cell]).for_each(|cell| sessions.set(cell, i64::MAX));
        let mut empty = Vec::new();
        for (number, window) in open.iter_mut() {
            window.cells.retain(|&cell| owns[usize::from(cell)]);
            for (pane, owns) in window.panes.iter_mut().zip(owns.iter()) {
                if !owns {
                    *pane = std::ptr::null_mut();
                }
            }
            if window.cells.is_empty() {
                empty.push(number);
            }
        }
        empty.into_iter().for_each(|number| self.spare.extend(open.take(number)));
    }

    /// Goes over to the next epoch after all rows of earlier events; false: not yet, because others must leave first.
    ///
    /// # Errors
    /// `Stopped`: it would gain cells that a failed replica has not left. `Engine`: there is no memory for state that is copied.
    ///
    /// # Safety
    /// Replicas keep to the epochs.
    unsafe fn go_over(&mut self, operator: &Windowed, now: &dyn Fn() -> u64) -> Result<bool, RunError> {
        let (epochs, cells, shape) = (&operator.epochs, &operator.cells, &operator.shape);
        let (number, next) = (self.number, self.epoch + 1);
        let (Some(old), Some(new)) = (epochs.get(self.epoch), epochs.get(next)) else { return Ok(true) };
        let transfers = operator.transfers.as_ref().filter(|_| epochs.members(next).any(|member| member == number));
        if let Some(transfers) = transfers
            && !epochs.has_left(number, next)
        {
            // SAFETY: as the caller says; it comes to the event just now.
            unsafe { transfers.pack(epochs, number, next, cells, shape) }?;
        }
        let had = self.owns.contains(&true);
        epochs.leave(number, next, had.then_some(&self.watermark));
        if !self.may_go_over(operator) {
            self.waits.get_or_insert_with(now);
            return Ok(false);
        }
        if epochs.gains_from_failed(number, next) {
            return Err(RunError::Stopped);
        }
        if let Some(transfers) = transfers
            && !transfers.is_ready(number, next)
        {
            // SAFETY: as the caller says; all who have state to give have stopped.
            unsafe { transfers.unpack(epochs, number, next, cells, (shape, operator.session)) }?;
            if !self.may_go_over(operator) {
                self.waits.get_or_insert_with(now);
                return Ok(false);
            }
        }
        self.own(operator, |cell| new.owner(cell) == number);
        self.let_go();
        for cell in 0..CELLS {
            let gained = self.owns[cell] && old.owner(cell) != self.number;
            let gained = gained && !(planted::has(Fault::LostHandover) && cell % 2 == 1);
            #[cfg(test)]
            let gained = gained && !self.faults.forgets;
            if gained {
                // SAFETY: as the caller says; who had it has gone over.
                unsafe { self.take_up(operator, cell) }?;
            }
        }
        self.epoch += 1;
        if self.owns.contains(&true) {
            // What went by while it had no cells may have raised it.
            #[cfg(test)]
            let raises = !self.faults.dreams;
            #[cfg(not(test))]
            let raises = true;
            if raises {
                epochs.raise(self.epoch, &mut self.watermark);
            }
        }
        epochs.note(self.number, self.epoch, now(), self.waits.take());
        Ok(true)
    }

    /// Whether one that has not taken all rows may go on: to the next epoch, one step nearer to it, or with what expires.
    pub fn may_go_on(&self, operator: &Windowed) -> bool {
        self.is_expiring || self.may_go_over(operator)
    }

    fn may_go_over(&self, operator: &Windowed) -> bool {
        let (epochs, next) = (&operator.epochs, self.epoch + 1);
        match &operator.transfers {
            Some(transfers) => transfers.may_go_on(epochs, self.number, next),
            None => epochs.may_go_over(self.number, next),
        }
    }

    /// At the end of the stream: the cells it owns, if it has them for itself, become the first replica's.
    ///
    /// # Safety
    /// No other replica is at the cells any more.
    pub unsafe fn give_cells(&self, operator: &Windowed) {
        for cell in (0..CELLS).filter(|&cell| self.owns[cell] && operator.transfers.is_some()) {
            // SAFETY: as the caller says.
            unsafe {
                let content = operator.cells.with_mut(self.number, cell, std::mem::take);
                operator.cells.with_mut(0, cell, |cell| *cell = content);
            }
        }
    }

    /// One that owns all cells, and stands where `other` stands, at a watermark that no other is behind.
    ///
    /// # Safety
    /// No other replica is at the cells any more.
    pub unsafe fn in_place_of(other: &Self, operator: &Windowed, watermark: Watermark) -> Result<Self, OutOfMemory> {
        let all = Self::owning(operator, other.number, |_| true);
        let mut all = Self { watermark, late: other.late, calls: other.calls, epoch: usize::MAX - 1, ..all };
        for cell in 0..CELLS {
            // SAFETY: as the caller says.
            unsafe { all.take_up(operator, cell) }?;
        }
        Ok(all)
    }

    /// Goes on from a watermark, and what its cells hold. `late` rows were counted before.
    ///
    /// # Errors
    /// `Memory`: there is none to list what is open. `Invalid`: the watermark is one of other streams.
    ///
    /// # Safety
    /// No other replica is at its cells.
    pub unsafe fn resume(&mut self, operator: &Windowed, watermark: &[i64], late: u64) -> Result<(), RunError> {
        if watermark.len() != self.watermark.words().count() {
            return Err(RunError::Invalid(format!("the watermark of {} is one of other streams", operator.name)));
        }
        self.watermark.words_mut().zip(watermark).for_each(|(word, &known)| *word = known);
        self.late = late;
        for cell in 0..CELLS {
            if self.owns[cell] {
                // SAFETY: as the caller says.
                unsafe { self.take_up(operator, cell) }?;
            }
        }
        Ok(())
    }

    pub fn watermark(&self) -> &Watermark {
        &self.watermark
    }

    /// Rows so far that came after all of their windows had expired, as far as it is the one to count them.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// How often so far a row has met a window of an own key: the calls of `update`.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Takes rows from number `from` on. After them there are no more rows of events up to `upto`. `meetings` has the meeting of
    /// each row, and `now` is the engine's time. Returns None if it took all rows, else the number of the first row that is
    /// left. The rest belongs to an epoch that other replicas must go over to first, or more windows expire than may be
    /// put out at once. After a failure, `out` holds the outputs of earlier events.
    ///
    /// # Safety
    /// The rows are readable, the meetings are theirs, listed for `operator`, whose replicas keep to its epochs.
    pub unsafe fn process(
        &mut self,
        operator: &Windowed,
        (rows, upto): (Rows, i64),
        from: usize,
        meetings: &[u64],
        now: &dyn Fn() -> u64,
        out: &mut Out,
    ) -> Result<Option<usize>, RunError> {
        let mut next = self.next_epoch(operator);
        for (index, &meeting) in meetings[..rows.n].iter().enumerate().skip(from) {
            // SAFETY: as the caller says.
            unsafe {
                #[cfg(test)]
                let is_lost = self.faults.loses && rows.seq(index) >= next;
                while rows.seq(index) >= next {
                    self.meet(operator, rows.text, out)?;
                    if !self.go_over(operator, now)? {
                        return Ok(Some(index));
                    }
                    next = self.next_epoch(operator);
                }
                #[cfg(test)]
                if is_lost {
                    continue;
                }
                let meeting = Meeting::at(meeting, operator);
                if !self.take(operator, rows, index, meeting, out)? {
                    return Ok(Some(index));
                }
            }
        }
        // SAFETY: as the caller says.
        unsafe {
            self.meet(operator, rows.text, out)?;
            // Not with an epoch that begins behind this: another may be done with the block, and not know of it.
            while next <= upto {
                if !self.go_over(operator, now)? {
                    return Ok(Some(rows.n));
                }
                next = self.next_epoch(operator);
            }
        }
        Ok(None)
    }

    /// The first event of the next epoch, if the replica goes over to it alone.
    fn next_epoch(&self, operator: &Windowed) -> i64 {
        if operator.has_barrier {
            return i64::MAX;
        }
        let next = operator.epochs.get(self.epoch + 1).map_or(i64::MAX, |epoch| epoch.event);
        #[cfg(test)]
        let next = next.saturating_sub(self.faults.early);
        next
    }

    /// Declares that it has failed, or stopped because another one has, so that no replica waits for it.
    pub fn give_up(&self, operator: &Windowed) {
        operator.epochs.fail(self.number);
        if let Some(transfers) = &operator.transfers {
            transfers.give_up(self.number);
        }
    }

    /// Ends the stream at `seq`: all windows expire.
    ///
    /// # Safety
    /// As for `process`, of all rows so far.
    pub unsafe fn finish(&mut self, operator: &Windowed, seq: i64, text: Text, out: &mut Out) -> Result<(), RunError> {
        // SAFETY: as the caller says.
        while unsafe { !self.expire(operator, i64::MAX, (seq, 0), text, out)? } {}
        Ok(())
    }

    /// Takes a row. Returns false if more windows have to expire first.
    #[inline]
    unsafe fn take(
        &mut self,
        operator: &Windowed,
        rows: Rows,
        index: usize,
        meeting: Meeting,
        out: &mut Out,
    ) -> Result<bool, RunError> {
        let bounds = operator.bounds;
        if meeting.failure.is_some() && !bounds.has_window(meeting.ts) {
            // SAFETY: as the caller says.
            return unsafe { self.fail(operator, rows, index, meeting, Path::default(), out) };
        }
        let open = self.watermark.after(meeting.stream, meeting.ts, &bounds, &mut self.recent[0]);
        if self.first_open(operator).is_some_and(|number| number < open) || self.sessions.least() < open {
            // SAFETY: as the caller says.
            let expired = unsafe { self.expire(operator, open, (rows.seq(index), index), rows.text, out) }?;
            self.is_expiring = !expired;
            if self.is_expiring {
                return Ok(false);
            }
        }
        self.watermark.advance(meeting.stream, meeting.ts, open);
        let first = bounds.first_beyond(meeting.ts, &mut self.recent[1]).max(open);
        let last = bounds.last_of(meeting.ts, &mut self.recent[2]);
        if first > last {
            // Of all replicas that see it the one counts it that owns the first cell.
            self.late += u64::from(meeting.counted.unwrap_or(self.owns[0] || planted::has(Fault::LateTwice)));
            return Ok(true);
        }
        if meeting.failure.is_some() {
            // Behind what expires at this row, before what it meets.
            // SAFETY: as the caller says.
            return unsafe { self.fail(operator, rows, index, meeting, Path::default().fixed(1, 1), out) };
        }
        if meeting.stream != self.met.stream || self.met.is_full() {
            // SAFETY: as the caller says.
            unsafe { self.meet(operator, rows.text, out) }?;
            self.met.stream = meeting.stream;
        }
        let windows = if operator.single { 1 } else { (last - first + 1) as usize };
        // Of the windows, the row meets their one slice, which has the number of the last one.
        let (first, windows) = if operator.slices.is_some() { (last, 1) } else { (first, windows) };
        // SAFETY: the row is there.
        let row = (index, unsafe { rows.row(index) });
        // SAFETY: as the caller says.
        unsafe {
            match operator.every.is_some() {
                true => self.take_every(operator, row, meeting.ts, (first, windows), out)?,
                false => self.take_own(operator, row, meeting, (first, windows), (rows.text, out))?,
            }
        }
        Ok(true)
    }

    /// Lets a row meet `count` windows from number `first` on, of every key that the replica owns.
    ///
    /// # Safety
    /// As for `take`.
    #[inline(always)]
    unsafe fn take_every(
        &mut self,
        operator: &Windowed,
        row: (usize, *const u8),
        ts: i64,
        (first, count): (i64, usize),
        out: &Out,
    ) -> Result<(), RunError> {
        let start = |window: i64| operator.bounds.start(first + window);
        let numbers = out.inputs.is_some().then(|| self.every.iter().map(|(number, _)| *number));
        let at = self.met.note(row, count, (self.every.len(), numbers), start)?;
        self.calls += (self.every.len() * count) as u64;
        if let (Some(counts), Some(every)) = (&operator.counts, &operator.every) {
            for &(number, _) in &self.every {
                counts.add(self.number, operator.shape.cell_of(every[number as usize].0), count as u64);
            }
        }
        // SAFETY: as the caller says.
        unsafe { self.find_every(operator, first..first + count as i64, ts, at) }
    }

    /// Lets a row meet `count` windows from number `first` on, of those of its keys that the replica owns.
    ///
    /// # Safety
    /// As for `take`.
    #[inline(always)]
    unsafe fn take_own(
        &mut self,
        operator: &Windowed,
        row: (usize, *const u8),
        meeting: Meeting,
        (first, count): (i64, usize),
        (text, out): (Text, &Out),
    ) -> Result<(), RunError> {
        if self.windows != (first, count) {
            // SAFETY: as the caller says.
            unsafe { self.find_own(operator, text) }?;
            self.windows = (first, count);
        }
        // A branch on the owner of a key would be mispredicted. So each key is written, and the next one overwrites it if the
        // replica does not own it.
        let (mut n, keys, before) = (0, meeting.keys, self.pending);
        if self.own.len() < before + keys {
            self.own.try_reserve(before + keys - self.own.len()).map_err(OutOfMemory::from)?;
            self.own.resize(before + keys, OwnKey { hash: 0, row: std::ptr::null(), at: 0, of: 0 });
        }
        if self.numbers.len() < keys {
            self.numbers.try_reserve(keys - self.numbers.len()).map_err(OutOfMemory::from)?;
            self.numbers.resize(keys, 0);
        }
        let (own, numbers) = (&mut self.own[before..before + keys], &mut self.numbers[..keys]);
        let at = self.met.len();
        for j in 0..keys {
            let (number, hash, key) = meeting.key(j, text);
            (own[n], numbers[n]) = (OwnKey { hash, row: key.row, at: at + n, of: 0 }, number as u32);
            n += usize::from(self.owns[operator.shape.cell_of(hash)]);
        }
        if n == 0 {
            return Ok(());
        }
        own[..n].iter_mut().for_each(|key| key.of = n);
        if before == 0 && !operator.single {
            // It is open from now on, so it expires in time.
            self.window(first)?;
        }
        let start = |window: i64| operator.bounds.start(first + window);
        let numbers = out.inputs.is_some().then(|| self.numbers[..n].iter().copied());
        self.met.note(row, count, (n, numbers), start)?;
        self.calls += (n * count) as u64;
        let own = &self.own[before..before + n];
        if let Some(counts) = &operator.counts {
            own.iter().for_each(|key| counts.add(self.number, operator.shape.cell_of(key.hash), count as u64));
        }
        if operator.single {
            // SAFETY: as the caller says.
            return unsafe { self.find_singles(operator, first, meeting.ts, text, n) };
        }
        self.pending += n;
        if self.pending >= TOGETHER {
            // SAFETY: as the caller says.
            unsafe { self.find_own(operator, text) }?;
        }
        Ok(())
    }

    /// The failure of a row whose keys could not be found, unless an earlier row has one.
    #[cold]
    unsafe fn fail(
        &mut self,
        operator: &Windowed,
        rows: Rows,
        index: usize,
        meeting: Meeting,
        path: Path,
        out: &mut Out,
    ) -> Result<bool, RunError> {
        // SAFETY: as the caller says.
        let seq = unsafe {
            self.meet(operator, rows.text, out)?;
            rows.seq(index)
        };
        let exception = meeting.failure.unwrap_or_default().to_vec();
        let order = out.order((index as u32, path));
        Err(operator.failed((seq, None), order, exception, out))
    }

    /// Has the rows meet their windows that were noted.
    unsafe fn meet(&mut self, operator: &Windowed, text: Text, out: &mut Out) -> Result<(), RunError> {
        // SAFETY: as the callers say.
        unsafe { self.find_own(operator, text) }?;
        let met = &mut self.met;
        let mut outcome = Ok(());
        if !met.is_empty() {
            let before = out.rows.len();
            let (n, rows, entries, starts) = met.parts();
            let mut context = WindowContext {
                rows,
                n: n as i64,
                entries: entries.cast(),
                starts,
                span: operator.bounds.size,
                text: text.pointer(),
                emitter: out.rows.emitter(),
                ..WindowContext::default()
            };
            // SAFETY: as the callers say; entries are of own cells.
            let called = unsafe { operator.streams[met.stream].update.call(&mut context) };
            let failed = called.map_err(|raised| {
                let at = usize::try_from(raised.at).unwrap_or(0);
                let (seq, entry, start) = met.at(at);
                let order = if out.inputs.is_some() { out.order(met.cause(at)) } else { 0 };
                // SAFETY: as above.
                let window = unsafe { operator.window_of(entry, start) };
                operator.failed((seq, Some(window)), order, raised.exception, out)
            });
            outcome = rank_more(out, before, |origin| met.cause(origin as usize)).and(failed);
        }
        met.clear();
        self.gone.clear();
        outcome
    }
}

/// Ranks the rows that were put out from `before` on, if ranks are asked for. `cause` names the row of the batch, and the path
/// from it. Rows of one path are numbered.
fn rank_more(out: &mut Out, before: usize, cause: impl Fn(u32) -> (u32, Path)) -> Result<(), RunError> {
    let Some(inputs) = out.inputs else { return Ok(()) };
    // A failure may have taken more than what was put out since.
    let before = before.min(out.rows.len());
    let outcome = rank_all(out, inputs, before, cause);
    if let Err(error @ RunError::TooManyRows { seq }) = &outcome {
        truncate(out.rows, *seq);
        out.ranks.truncate(out.rows.len());
        return Err(error.clone());
    }
    outcome
}

fn rank_all(out: &mut Out, inputs: &[Rank], before: usize, cause: impl Fn(u32) -> (u32, Path)) -> Result<(), RunError> {
    let mut last: Option<(u32, Rank)> = None;
    let mut number = 0;
    out.ranks.try_reserve(out.rows.len() - before).map_err(OutOfMemory::from)?;
    for (&origin, position) in out.rows.origins()[before..].iter().zip(before..) {
        let (index, path) = cause(origin);
        let input = inputs.get(index as usize).copied().unwrap_or(Rank::ONLY);
        let too_long = || path_too_long(out.rows.seq(position));
        let rank = input.along(path).ok_or_else(too_long)?;
        number = if last == Some((index, rank)) { number + 1 } else { 0 };
        last = Some((index, rank));
        out.ranks.push(rank.along(Path::default().number(number)).ok_or_else(too_long)?);
    }
    Ok(())
}
