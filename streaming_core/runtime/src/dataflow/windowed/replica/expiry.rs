//! Windows that expire: one after the other, and each of them cell by cell.
//!
//! A replica expires some entries at a time. Between these steps its outputs go on, and other tasks have their turn. So a
//! large window does not block its thread.

use crate::dataflow::channel::rank::Path;
use crate::dataflow::windowed::operator::{Out, Windowed};
use crate::dataflow::windowed::replica::{Replica, rank_more};
use crate::dataflow::windowed::watermark::NONE;
use crate::error::RunError;
use crate::program::kernel::{BeforeEntry, EntryHeader, WindowContext};
use crate::rows::block::Text;
use crate::state::key_group::{GROUPS, group};
use crate::state::windows::OutOfMemory;
use crate::state::windows::pane::Pane;

/// When so many entries have expired, their outputs go on before others expire.
pub(super) const AT_ONCE: usize = if cfg!(test) { 2 } else { 1024 };

/// The row at which windows expire, by its event and its position in the batch, and the path from it to the window.
#[derive(Clone, Copy)]
pub(super) struct Cause {
    pub seq: i64,
    pub index: usize,
    pub path: Path,
}

impl Cause {
    /// The position of the row, and the path from it to an entry, which is there, of an own cell.
    pub fn of(&self, entry: *mut EntryHeader) -> (u32, Path) {
        // SAFETY: as the callers say.
        let group = group(unsafe { (*entry).hash });
        (self.index as u32, self.path.fixed(group as u64, GROUPS.trailing_zeros()))
    }
}

impl Replica {
    /// Expires windows before number `before`, at the event `at`: its seq, and the position of its row in the batch. Returns
    /// false if some are left: their turn comes when the outputs so far have gone on.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn expire(
        &mut self,
        operator: &Windowed,
        before: i64,
        at: (i64, usize),
        text: Text,
        out: &mut Out,
    ) -> Result<bool, RunError> {
        // SAFETY: as the callers say.
        unsafe {
            // Keys that wait are looked up in windows that are open still.
            self.find_own(operator, text)?;
            if operator.reports_expiry() || operator.session {
                self.meet(operator, text, out)?;
            }
        }
        if let Some((slices, merge)) = &operator.slices {
            // SAFETY: as the callers say.
            return unsafe { self.expire_slices(operator, (*slices, merge), before, at, text, out) };
        }
        if operator.session {
            // SAFETY: as the callers say.
            return unsafe { self.end_sessions(operator, before, at, text, out) };
        }
        self.every_window = NONE;
        let mut expired = 0;
        while let Some(number) = self.open.first()
            && number < before
        {
            let Some(window) = self.open.get_mut(number) else { break };
            // The first one to go is the last.
            window.cells.sort_unstable_by(|left, right| right.cmp(left));
            while let Some(window) = self.open.get_mut(number)
                && let Some(cell) = window.cells.pop()
            {
                let cell = usize::from(cell);
                window.panes[cell] = std::ptr::null_mut();
                // SAFETY: an own cell, as the callers say.
                let pane = unsafe { operator.cells.with_mut(self.number, cell, |cell| cell.take(number)) };
                let Some(pane) = pane else { continue };
                if !operator.reports_expiry() {
                    self.gone.add(pane)?;
                    continue;
                }
                let cause = Cause { seq: at.0, index: at.1, path: self.path_of(number, before) };
                // SAFETY: as above.
                expired += unsafe { self.expire_pane(operator, (cell, number), &pane, cause, text, out) }?;
                // SAFETY: as above.
                unsafe { operator.cells.with_mut(self.number, cell, |cell| cell.keep(pane)) };
                if expired >= AT_ONCE {
                    self.gone.clear();
                    return Ok(false);
                }
            }
            self.spare.extend(self.open.take(number));
        }
        if operator.reports_expiry() {
            self.gone.clear();
        }
        Ok(true)
    }

    /// The path from a row, before whose windows those before `before` expire, to window `number`.
    pub(super) fn path_of(&self, number: i64, before: i64) -> Path {
        let path = Path::default().fixed(0, 1);
        match self.watermark.open() {
            NONE => path.back((before - 1).wrapping_sub(number) as u64),
            open => path.number((number - open) as u64),
        }
    }

    /// Expires sessions whose latest row is before `before`; otherwise like `expire`. No session has its latest row before the
    /// watermark, and the first row sets a watermark: sessions wait for no stream.
    unsafe fn end_sessions(
        &mut self,
        operator: &Windowed,
        before: i64,
        (seq, index): (i64, usize),
        text: Text,
        out: &mut Out,
    ) -> Result<bool, RunError> {
        let open = self.watermark.open();
        let Self { number, sessions, expired, starts, gone, .. } = self;
        expired.clear();
        starts.clear();
        expired.try_reserve(AT_ONCE).map_err(OutOfMemory::from)?;
        starts.try_reserve(AT_ONCE).map_err(OutOfMemory::from)?;
        while sessions.least() < before && expired.len() < AT_ONCE {
            let cell = sessions.cell();
            // SAFETY: an own cell, as the callers say.
            unsafe {
                operator.cells.with_mut(*number, cell, |cell| {
                    if let Some(entry) = cell.sessions.next() {
                        expired.push(entry);
                        starts.push(sessions.least());
                    }
                });
                let earliest = operator.cells.with_mut(*number, cell, |cell| cell.sessions.earliest());
                sessions.set(cell, earliest);
            }
        }
        let cause = |at: usize| {
            // SAFETY: it is there, of an own cell.
            let group = group(unsafe { (*expired[at]).hash });
            let path = Path::default().fixed(0, 1).number((starts[at] - open) as u64);
            (index as u32, path.fixed(group as u64, GROUPS.trailing_zeros()))
        };
        let mut outcome = Ok(());
        if let Some(result) = operator.result {
            let mut context = WindowContext {
                n: expired.len() as i64,
                entries: expired.as_ptr().cast(),
                starts: starts.as_ptr(),
                span: operator.bounds.size,
                text: text.pointer(),
                emitter: out.rows.emitter(),
                seq,
                ..WindowContext::default()
            };
            let rows = out.rows.len();
            // SAFETY: the entries are of own cells.
            let called = unsafe { result.call(&mut context) };
            let failed = called.map_err(|raised| {
                let at = usize::try_from(raised.at).unwrap_or(0);
                let order = out.order(cause(at));
                // SAFETY: as above.
                let window = unsafe { operator.window_of(expired[at], starts[at]) };
                operator.failed((seq, Some(window)), order, raised.exception, out)
            });
            outcome = rank_more(out, rows, |origin| cause(origin as usize)).and(failed);
        }
        for &entry in &*expired {
            // SAFETY: it is of an own cell, and in no list any more.
            unsafe {
                let cell = operator.shape.cell_of((*entry).hash);
                operator.cells.with_mut(*number, cell, |cell| cell.remove(entry, gone));
            }
        }
        gone.clear();
        outcome.map(|()| sessions.least() >= before)
    }

    /// Expires the entries of a pane: `window` is its cell and the number of its window. Returns how many entries expired.
    unsafe fn expire_pane(
        &mut self,
        operator: &Windowed,
        window: (usize, i64),
        pane: &Pane,
        cause: Cause,
        text: Text,
        out: &mut Out,
    ) -> Result<usize, RunError> {
        let mut expired = std::mem::take(&mut self.expired);
        expired.clear();
        pane.entries(&operator.shape, &mut expired)?;
        let n = expired.len();
        let start = operator.bounds.start(window.1);
        self.starts.clear();
        self.starts.try_reserve(n).map_err(OutOfMemory::from)?;
        self.starts.resize(n, start);
        let mut context = WindowContext {
            n: n as i64,
            entries: expired.as_ptr().cast(),
            starts: self.starts.as_ptr(),
            span: operator.bounds.size,
            text: text.pointer(),
            emitter: out.rows.emitter(),
            seq: cause.seq,
            ..WindowContext::default()
        };
        let mut outcome = Ok(());
        if let Some(result) = operator.result {
            let before = out.rows.len();
            // SAFETY: the entries are of an own cell.
            let called = unsafe { result.call(&mut context) };
            let failed = called.map_err(|raised| {
                let at = usize::try_from(raised.at).unwrap_or(0);
                let order = out.order(cause.of(expired[at]));
                let window = (start, start + operator.bounds.size);
                (at, operator.failed((cause.seq, Some(window)), order, raised.exception, out))
            });
            rank_more(out, before, |origin| cause.of(expired[origin as usize]))?;
            outcome = failed.map_err(|(at, error)| {
                // The entries before it slide before it fails.
                expired.truncate(at);
                error
            });
        }
        if operator.single {
            // SAFETY: the cell is an own one; its entries were in the pane, which is in no list any more.
            let slides = unsafe { self.slide(operator, window, &mut expired, (&mut context, cause), out) };
            outcome = slides.and(outcome);
        }
        self.expired = expired;
        outcome.map(|()| n)
    }

    /// Moves entries that have rows in the next window on to that window, and removes the others. Leaves in `expired` the entries
    /// that moved.
    unsafe fn slide(
        &mut self,
        operator: &Windowed,
        (cell, number): (usize, i64),
        expired: &mut Vec<*mut EntryHeader>,
        (context, cause): (&mut WindowContext, Cause),
        out: &mut Out,
    ) -> Result<(), RunError> {
        let next = operator.bounds.start(number + 1);
        let gone = &mut self.gone;
        // SAFETY: as the caller says.
        unsafe {
            operator.cells.with_mut(self.number, cell, |cell| {
                expired.retain(|&entry| {
                    let stays = (*BeforeEntry::of(entry)).last >= next;
                    if !stays {
                        cell.remove(entry, gone);
                    }
                    stays
                });
            });
            for &entry in &*expired {
                (*self.pane(operator, cell, number + 1)?).stand(entry)?;
            }
        }
        let Some(slide) = operator.slide.filter(|_| !expired.is_empty()) else { return Ok(()) };
        self.starts.fill(next);
        context.n = expired.len() as i64;
        context.entries = expired.as_ptr().cast();
        // SAFETY: as above.
        unsafe { slide.call(context) }.map_err(|raised| {
            let order = out.order(cause.of(expired[usize::try_from(raised.at).unwrap_or(0)]));
            let window = (next, next + operator.bounds.size);
            operator.failed((cause.seq, Some(window)), order, raised.exception, out)
        })
    }
}
