//! Reconfiguration as published (STRETCH, algorithm 4, lines 10 to 14): all replicas of the old epoch meet at the first row of
//! the new one. Then one of them adds the joining replicas, first to the sources of ESG_out and then to the readers of ESG_in.
//! One removes the leaving replicas, first from the readers of ESG_in and then from the sources of ESG_out. All go on when
//! readers and sources are the replicas of the new epoch.
//!
//! At the barrier, all sources of ESG_out have announced the last event before the epoch, and put out all rows up to it. So this
//! event is where new sources begin (lemma 3), and the flush of a leaving source holds back nothing.
//!
//! Where the paper is open: the trigger is cleared, because a replica that has gone over is in the epoch of the control
//! tuple. A joining replica takes the watermark from the epoch. A reconfiguration that keeps the number of replicas both adds
//! and removes. No thread blocks at the barrier: a task asks again when its thread comes back to it.
//!
//! Each replica calls all operations until they have happened. A call that comes late changes nothing. A caller that was
//! removed is no member any more. For all others nothing is left to add or remove. A source is added or removed once readers
//! have acknowledged enough of its marks. They wait for no one at the barrier, because all of these marks are ready.

use crate::dataflow::channel::elastic::Reader;
use crate::dataflow::channel::elastic::ends::Inserter;
use crate::dataflow::windowed::operator::Windowed;
use crate::dataflow::windowed::replica::Replica;
use crate::error::RunError;
use crate::state::windows::CELLS;

/// How far a replica has come with a reconfiguration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reconfigured {
    /// It waits for others.
    Waits,
    /// It has cells, and takes the rows at hand.
    Stays,
    /// It has no cells, and must drop the rows at hand.
    Leaves,
}

impl Replica {
    /// Whether all replicas of its epoch have come to the barrier of epoch `index`. A joining replica finds it open.
    pub fn is_barrier_open(&self, operator: &Windowed, index: usize) -> bool {
        let epochs = &operator.epochs;
        let members = epochs.get(self.epoch).map_or(&[][..], |old| old.owners.replicas());
        !self.owns.contains(&true) || members.iter().all(|&member| epochs.has_left(member, index))
    }

    /// Goes over to epoch `index`, at its first row, as a reader of ESG_in and as a source of ESG_out. `outputs` has its ends of
    /// ESG_out, one for each consumer of its rows.
    ///
    /// # Errors
    /// `Stopped`: a replica of the old epoch has failed. `Engine`: there is no memory.
    ///
    /// # Safety
    /// The ends are this replica's. `reader` is present or was removed. It has taken and used all rows before, and no other.
    pub unsafe fn reconfigure(
        &mut self,
        operator: &Windowed,
        index: usize,
        reader: &Reader,
        outputs: &[Inserter],
        now: &dyn Fn() -> u64,
    ) -> Result<Reconfigured, RunError> {
        let (epochs, number) = (&operator.epochs, self.number);
        let (Some(old), Some(new)) = (epochs.get(self.epoch), epochs.get(index)) else {
            return Err(RunError::Engine(format!("{}: a control tuple names an unknown epoch", operator.name)));
        };
        let is_member = self.owns.contains(&true);
        if !epochs.has_left(number, index) {
            epochs.leave(number, index, is_member.then_some(&self.watermark));
        }
        if !self.is_barrier_open(operator, index) {
            self.waits.get_or_insert_with(now);
            return Ok(Reconfigured::Waits);
        }
        if is_member {
            if old.owners.replicas().iter().any(|&member| epochs.has_failed(member, index)) {
                return Err(RunError::Stopped);
            }
            let (joining, leaving) = (new.owners.without(&old.owners), old.owners.without(&new.owners));
            for output in outputs {
                output.add_sources(&joining);
            }
            if outputs.iter().all(|output| joining.iter().all(|&replica| output.has(replica))) {
                reader.add_readers(&joining);
            }
            // Readers that have left cannot add others.
            if joining.iter().all(|&replica| reader.has(replica)) {
                // SAFETY: they stand at the barrier, and have left the epoch.
                unsafe { reader.remove_readers(&leaving) };
            }
            if leaving.iter().all(|&replica| !reader.has(replica)) {
                for output in outputs {
                    // SAFETY: as above.
                    unsafe { output.remove_sources(&leaving) };
                }
            }
        }
        let has_cells = new.owners.has(number);
        let is_member = |replica: usize| new.owners.has(replica);
        let is_complete = match has_cells {
            true => (0..epochs.replicas()).all(|replica| {
                reader.has(replica) == is_member(replica)
                    && outputs.iter().all(|output| output.has(replica) == is_member(replica))
            }),
            // Others may have gone on, and may even have added it again.
            false => !reader.is_present() && outputs.iter().all(|output| !output.is_present()),
        };
        if !is_complete {
            self.waits.get_or_insert_with(now);
            return Ok(Reconfigured::Waits);
        }
        let before = self.owns.clone();
        self.own(operator, |cell| new.owner(cell) == number);
        self.let_go();
        for cell in 0..CELLS {
            let gained = self.owns[cell] && !before[cell];
            #[cfg(test)]
            let gained = gained && !self.faults.forgets;
            if gained {
                // SAFETY: all replicas of the old epoch have left it.
                unsafe { self.take_up(operator, cell) }?;
            }
        }
        self.epoch = index;
        #[cfg(test)]
        let has_dreamt = self.faults.dreams;
        #[cfg(not(test))]
        let has_dreamt = false;
        if has_cells && !has_dreamt {
            // What went by while it had no cells may have raised it.
            epochs.raise(index, &mut self.watermark);
        }
        let (at, since) = (now(), self.waits.take());
        epochs.note(number, index, at, since);
        // An epoch that was passed over may have concerned a replica that is in neither of the others.
        let away = |replica: &usize| !new.owners.has(*replica) && !old.owners.has(*replica);
        (0..epochs.replicas()).filter(away).for_each(|replica| epochs.note(replica, index, at, None));
        Ok(if has_cells { Reconfigured::Stays } else { Reconfigured::Leaves })
    }

    /// Leaves all epochs of a block that is over, without cells in the last of them.
    pub fn pass(&mut self, operator: &Windowed) {
        self.epoch = operator.epochs.latest();
        operator.epochs.leave(self.number, self.epoch, None);
    }
}
