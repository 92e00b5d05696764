//! Windows that expire: window by window, in each cell by cell, in steps of some entries, so that what they put out goes on,
//! and others have their turn, before all of a large window has.

use crate::dataflow::channel::rank::Path;
use crate::dataflow::windowed::operator::{Out, Windowed};
use crate::dataflow::windowed::replica::{Replica, rank_more};
use crate::error::RunError;
use crate::program::kernel::{BeforeEntry, WindowContext};
use crate::rows::block::Text;
use crate::state::key_group::{GROUPS, group};
use crate::state::windows::pane::Pane;

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
        if operator.is_told() {
            // SAFETY: as the callers say.
            unsafe { self.meet(operator, text, out) }?;
        }
        let open = self.watermark.map_or(0, |watermark| operator.bounds.first_beyond(watermark));
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
                    self.gone.add(pane);
                    continue;
                }
                let path = Path::default().fixed(0, 1).number((number - open) as u64);
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
        pane.entries(&operator.shape, &mut expired);
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
        self.starts.resize(expired.len(), start);
        context.starts = self.starts.as_ptr();
        let mut outcome = Ok(());
        if let Some(result) = operator.result {
            let before = out.rows.len();
            // SAFETY: the entries are of an own cell.
            let called = unsafe { result.call(&mut context) };
            if let Some(inputs) = out.inputs {
                // SAFETY: as above.
                let hash = |origin: u32| unsafe { (*expired[origin as usize]).hash };
                let cause =
                    |origin: u32| (index as u32, path.fixed(group(hash(origin)) as u64, GROUPS.trailing_zeros()));
                rank_more(out, inputs, before, cause)?;
            }
            outcome = called.map_err(|raised| operator.raised(seq, start, raised, out));
        }
        if operator.single && outcome.is_ok() {
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
                    (*self.pane(operator, cell, number + 1)).stand(entry);
                }
            }
            if let Some(slide) = operator.slide
                && !expired.is_empty()
            {
                self.starts.fill(next);
                context.n = expired.len() as i64;
                // SAFETY: as above.
                outcome = unsafe { slide.call(&mut context) }.map_err(|raised| operator.raised(seq, next, raised, out));
            }
        }
        self.expired = expired;
        outcome.map(|()| n)
    }
}
