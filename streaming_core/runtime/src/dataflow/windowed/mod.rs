//! Windowed operators: the stateful operator O+ (STRETCH, section 4.2), as all replicas of one share it.
//!
//! *VSN* (section 5): a replica handles the keys that it owns. The windows of keys lie in cells, and each cell exists once
//! (`state/windows`). A replica knows the owner of each cell, and the watermark as far as windows expire by it.
//!
//! Finders of keys stand in front of the replicas, one on the thread of each. A finder takes ranges of events. It finds the
//! keys of a row once (`keys.rs`). Then it deals the row to the owners of its keys in the epoch of its event (`copies.rs`). Where
//! every row has the same keys, or there is one replica, all replicas that own cells read the same list of rows.
//!
//! *VSN as published* (sections 5 to 7): every replica reads every row from an elastic ScaleGate (`channel/elastic`). It has a
//! handle of its own, and finds the keys itself. A control tuple announces an epoch. At its first row all replicas meet at a
//! barrier (`replica/barrier.rs`). One of them adds and removes the readers there, and the sources of the elastic ScaleGate
//! that takes the outputs.
//!
//! *SN*, the baseline: every replica has cells of its own, and copies of all rows that it takes. When keys get other owners,
//! replicas copy state (`transfer.rs`). All else is the same code.

pub mod control;
pub mod controller;
pub mod copies;
pub mod counts;
pub mod epochs;
pub mod keys;
pub mod operator;
pub mod owners;
pub mod replica;
pub mod transfer;
pub mod watermark;

use crate::dataflow::windowed::control::Control;
use crate::dataflow::windowed::controller::{Controller, balance};
use crate::dataflow::windowed::counts::Counts;
use crate::dataflow::windowed::epochs::Epochs;
use crate::dataflow::windowed::operator::Windowed;
use crate::dataflow::windowed::owners::Owners;
use crate::dataflow::windowed::replica::Replica;
use crate::dataflow::windowed::watermark::Watermark;
use crate::error::RunError;
use crate::output::metrics::WindowStanding;
use crate::program::options::Options;
use crate::program::{OperatorSpec, Program, WindowSpec};
use crate::state::image::{PARTS, Take};
use crate::state::key_group::GROUPS;
use crate::state::windows::parcel::Parcel;
use crate::state::windows::{CELLS, OutOfMemory};
use crate::threads::own::Own;
use crate::threads::sync::Arc;

/// How replicas come by rows and state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parallelism {
    /// They share state, and each takes the rows that have a key of its own (VSN).
    VirtualSharedNothing,
    /// As published: they share all by way of an elastic ScaleGate.
    ElasticScaleGate,
    /// Each has copies of rows, and cells, of its own (SN).
    SharedNothing,
}

/// The registry of parallelisms.
pub const PARALLELISMS: &[(&str, Parallelism)] = &[
    ("vsn", Parallelism::VirtualSharedNothing),
    ("vsn_esg", Parallelism::ElasticScaleGate),
    ("sn", Parallelism::SharedNothing),
];

/// A windowed operator with its replicas.
#[derive(Debug)]
pub struct Replicated {
    pub operator: Windowed,
    pub control: Arc<Control>,
    /// Each its task's; whose cells are whose, they say.
    pub replicas: Own<Replica>,
}

impl Replicated {
    /// Operator `operator` of `program`, which has windows, dealt to `replicas` replicas, and by what `options` say from events
    /// on to some of them.
    ///
    /// # Safety
    /// As for `Chain::bind`.
    pub unsafe fn bind(
        program: &Program,
        operator: &OperatorSpec,
        spec: &WindowSpec,
        replicas: usize,
        options: &Options,
        parallelism: Parallelism,
    ) -> Result<Self, RunError> {
        let schedule =
            (options.schedule.iter()).filter_map(|at| Some((at.event, Owners::new(at.owners.get(&operator.name)?))));
        let controller = options.controller.as_deref().filter(|&name| name != "none");
        let counts = controller.filter(|&name| name == balance::NAME).map(|_| Arc::new(Counts::new(replicas)));
        let controller = controller.map(|name| Controller::new(name, &options.thresholds)).transpose()?.flatten();
        let epochs = Arc::new(Epochs::new(replicas, spec.streams.len()));
        let control = Control::new(&operator.name, epochs.clone(), schedule.collect(), controller, counts.clone());
        let apart = (parallelism == Parallelism::SharedNothing).then_some(replicas);
        // SAFETY: as the caller says.
        let mut operator = unsafe { Windowed::bind(program, operator, spec, epochs, apart, counts) }?;
        let is_open = options.schedule.is_empty() && options.controller.as_deref().is_none_or(|name| name == "none");
        if is_open {
            operator.have_few_cells(replicas);
        }
        operator.has_barrier = parallelism == Parallelism::ElasticScaleGate;
        let all = (0..replicas).map(|number| Replica::new(&operator, number)).collect();
        let replicated = Self { operator, control: Arc::new(control), replicas: all };
        if is_open && parallelism == Parallelism::VirtualSharedNothing {
            replicated.spread(replicas);
        }
        Ok(replicated)
    }

    /// Spreads the cells over the replicas of the first `threads` threads, unless a program has requested other owners. No more
    /// replicas own cells than there are keys, where every row has the same: the others get no rows.
    pub fn spread(&self, threads: usize) {
        let keys = self.operator.every.as_ref().map_or(usize::MAX, |every| every.len().max(1));
        self.control.choose(threads.min(keys));
    }

    /// A replica that owns all cells and stands where the others stand, who have stopped: for the end of the stream.
    ///
    /// # Errors
    /// There is no memory to list what is open.
    ///
    /// # Safety
    /// No other thread uses the replicas or the cells any more.
    pub unsafe fn all(&self) -> Result<Replica, OutOfMemory> {
        // SAFETY: as the caller says.
        unsafe {
            let watermark = self.watermark();
            // Of replicas with cells of their own the first one gets those of all.
            for number in 1..self.replicas.len() {
                self.replicas.with_mut(number, |replica| replica.give_cells(&self.operator));
            }
            self.replicas.with(0, |first| Replica::in_place_of(first, &self.operator, watermark))
        }
    }

    /// Takes back what `all` gave, when the stream has ended.
    ///
    /// # Safety
    /// As for `all`.
    pub unsafe fn settle(&self, all: Replica) {
        // SAFETY: as the caller says.
        unsafe { self.replicas.with_mut(0, |first| *first = all) };
    }

    /// The state in parts.
    ///
    /// # Errors
    /// `Memory`: there is none; and those of `take`.
    ///
    /// # Safety
    /// No replica is at work.
    pub unsafe fn images(&self, take: Take) -> Result<(), RunError> {
        let Windowed { cells, shape, .. } = &self.operator;
        for part in 0..PARTS {
            let mut parcel = Parcel::default();
            for index in 0..cells.count() {
                let cell = index % CELLS;
                if shape.first_group(cell) * PARTS / GROUPS == part {
                    // SAFETY: as the caller says. Of replicas with cells of their own, only the owner's has something.
                    unsafe {
                        cells.with_mut(0, index, |content| {
                            if content.is_empty() { Ok(()) } else { parcel.put(cell, content, shape) }
                        })
                    }?;
                }
            }
            if parcel.bytes() > 0 {
                take(part, parcel.words())?;
            }
        }
        Ok(())
    }

    /// Takes the state of an image into the cells of their first owners.
    ///
    /// # Errors
    /// `Memory`: there is none.
    ///
    /// # Safety
    /// The image is this operator's, of keys that are not there yet. No replica has been at work.
    pub unsafe fn restore(&self, image: &[u64]) -> Result<(), RunError> {
        // SAFETY: as the caller says.
        unsafe { self.operator.restore(image, |_| true) }
    }

    /// Goes on from where the watermark stood, and `late` rows had been counted, with the state that was restored.
    ///
    /// # Errors
    /// `Memory`: there is none to list what is open. `Invalid`: the watermark is one of other streams.
    ///
    /// # Safety
    /// As for `restore`.
    pub unsafe fn resume(&self, standing: &WindowStanding) -> Result<(), RunError> {
        for number in 0..self.replicas.len() {
            let late = if number == 0 { standing.late } else { 0 };
            // SAFETY: as the caller says.
            unsafe {
                self.replicas.with_mut(number, |replica| replica.resume(&self.operator, &standing.watermark, late))
            }?;
        }
        Ok(())
    }

    /// Where it stands.
    ///
    /// # Safety
    /// No replica is at work.
    pub unsafe fn standing(&self) -> WindowStanding {
        // SAFETY: as the caller says.
        unsafe { WindowStanding { watermark: self.watermark().words().collect(), late: self.late() } }
    }

    /// The watermark of all replicas.
    ///
    /// # Safety
    /// As for `standing`.
    unsafe fn watermark(&self) -> Watermark {
        let mut watermark = Watermark::new(self.operator.streams.len());
        for number in 0..self.replicas.len() {
            // SAFETY: as the caller says.
            unsafe { self.replicas.with(number, |replica| watermark.merge(replica.watermark())) };
        }
        watermark
    }

    /// Per replica, how often so far a row has met a window of one of its keys.
    ///
    /// # Safety
    /// As for `late`.
    pub unsafe fn calls(&self) -> Vec<u64> {
        // SAFETY: as the caller says.
        (0..self.replicas.len()).map(|number| unsafe { self.replicas.with(number, Replica::calls) }).collect()
    }

    /// Rows so far that came after all of their windows had expired.
    ///
    /// # Safety
    /// No replica is at work.
    pub unsafe fn late(&self) -> u64 {
        // SAFETY: as the caller says.
        unsafe { self.replicas.sum(Replica::late) }
    }
}
