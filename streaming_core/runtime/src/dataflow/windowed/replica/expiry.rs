//! Windows that expire: window by window, in each cell by cell, in steps of some entries, so that what they put out goes on,
//! and others have their turn, before all of a large window has.

use crate::dataflow::channel::rank::Path;
use crate::dataflow::windowed::operator::{Out, Windowed};
use crate::dataflow::windowed::replica::{Replica, rank_more};
use crate::dataflow::windowed::watermark::NONE;
use crate::error::RunError;
use crate::program::kernel::{BeforeEntry, EntryHeader, WindowContext};
use crate::rows::block::Text;
use crate::state::key_group::{GROUPS, group};
use crate::state::windows::pane::Pane;
use crate::state::windows::{OutOfMemory, cell_of};

/// When so many entries have expired, what they have put out goes on before others do.
const AT_ONCE: usize = if cfg!(test) { 2 } else { 1024 };

impl Replica {
    /// Windows before number `before` expire, at the event `at`: its seq, and which row of the batch it is. False: not all have
    /// yet, so that what they put out can go on, and others have their turn.
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
        if operator.is_told() || operator.session {
            // SAFETY: as the callers say.
            unsafe { self.meet(operator, text, out) }?;
        }
        if operator.session {
            // SAFETY: as the callers say.
            return unsafe { self.end_sessions(operator, before, at, text, out) };
        }
        let mut expired = 0;
        while let Some(number) = self.open.first()
            && number < before
        {
            let Some(window) = self.open.get_mut(number) else { break };
            // The first one to go is the last.
            window.cells.sort_unstable_by(|one, other| other.cmp(one));
            while let Some(window) = self.open.get_mut(number)
                && let Some(cell) = window.cells.pop()
            {
                let cell = usize::from(cell);
                window.panes[cell] = std::ptr::null_mut();
                // SAFETY: an own cell, as the callers say.
                let pane = unsafe { operator.cells.with_mut(self.number, cell, |cell| cell.take(number)) };
                let Some(pane) = pane else { continue };
                if !operator.is_told() {
                    self.gone.add(pane)?;
                    continue;
                }
                let path = Path::default().fixed(0, 1);
                let path = match self.watermark.open() {
                    NONE => path.back((before - 1).wrapping_sub(number) as u64),
                    open => path.number((number - open) as u64),
                };
                // SAFETY: as above.
                expired += unsafe { self.expire_pane(operator, cell, number, &pane, (at, path), text, out) }?;
                // SAFETY: as above.
                unsafe { operator.cells.with_mut(self.number, cell, |cell| cell.keep(pane)) };
                if expired >= AT_ONCE {
                    self.gone.clear();
                    return Ok(false);
                }
            }
            self.spare.extend(self.open.take(number));
        }
        if operator.is_told() {
            self.gone.clear();
        }
        Ok(true)
    }

    /// As `expire`, of sessions: those whose latest row is before `before`. None has one before the watermark, and there is a
    /// watermark as soon as there is a row: sessions wait for no stream.
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
                let cell = cell_of((*entry).hash);
                operator.cells.with_mut(*number, cell, |cell| cell.remove(entry, gone));
            }
        }
        gone.clear();
        outcome.map(|()| sessions.least() >= before)
    }

    /// How many entries expired.
    #[expect(clippy::too_many_arguments, reason = "what is expired, where, at which event, into what")]
    unsafe fn expire_pane(
        &mut self,
        operator: &Windowed,
        cell: usize,
        number: i64,
        pane: &Pane,
        ((seq, index), path): ((i64, usize), Path),
        text: Text,
        out: &mut Out,
    ) -> Result<usize, RunError> {
        let mut expired = std::mem::take(&mut self.expired);
        expired.clear();
        pane.entries(&operator.shape, &mut expired)?;
        let n = expired.len();
        let start = operator.bounds.start(number);
        let mut context = WindowContext {
            n: expired.len() as i64,
            entries: expired.as_ptr().cast(),
            span: operator.bounds.size,
            text: text.pointer(),
            emitter: out.rows.emitter(),
            seq,
            ..WindowContext::default()
        };
        self.starts.clear();
        self.starts.try_reserve(n).map_err(OutOfMemory::from)?;
        self.starts.resize(expired.len(), start);
        context.starts = self.starts.as_ptr();
        let cause = |entry: *mut EntryHeader| {
            // SAFETY: it is there, of an own cell.
            let group = group(unsafe { (*entry).hash });
            (index as u32, path.fixed(group as u64, GROUPS.trailing_zeros()))
        };
        let mut outcome = Ok(());
        if let Some(result) = operator.result {
            let before = out.rows.len();
            // SAFETY: the entries are of an own cell.
            let called = unsafe { result.call(&mut context) };
            let failed = called.map_err(|raised| {
                let at = usize::try_from(raised.at).unwrap_or(0);
                let order = out.order(cause(expired[at]));
                let window = (start, start + operator.bounds.size);
                (at, operator.failed((seq, Some(window)), order, raised.exception, out))
            });
            rank_more(out, before, |origin| cause(expired[origin as usize]))?;
            outcome = failed.map_err(|(at, error)| {
                // Those before it slide before it fails.
                expired.truncate(at);
                error
            });
        }
        if operator.single {
            let next = operator.bounds.start(number + 1);
            let gone = &mut self.gone;
            // SAFETY: the cell is an own one; its entries stood in the pane that is no list any more.
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
                for &entry in &expired {
                    (*self.pane(operator, cell, number + 1)?).stand(entry)?;
                }
            }
            if let Some(slide) = operator.slide
                && !expired.is_empty()
            {
                self.starts.fill(next);
                context.n = expired.len() as i64;
                context.entries = expired.as_ptr().cast();
                // SAFETY: as above.
                if let Err(raised) = unsafe { slide.call(&mut context) } {
                    let order = out.order(cause(expired[usize::try_from(raised.at).unwrap_or(0)]));
                    let window = (next, next + operator.bounds.size);
                    outcome = Err(operator.failed((seq, Some(window)), order, raised.exception, out));
                }
            }
        }
        self.expired = expired;
        outcome.map(|()| n)
    }
}
