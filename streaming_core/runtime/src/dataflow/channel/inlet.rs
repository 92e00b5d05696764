//! Where a task takes its input: the outlets of all who put out something for it, as one stream.

use crate::dataflow::channel::elastic::ends::Taker;
use crate::dataflow::channel::gate::Gate;
use crate::dataflow::channel::merge_sort::MergeSort;
use crate::dataflow::channel::outlet::Outlet;
use crate::dataflow::channel::results::Results;
use crate::dataflow::channel::scale_gate::Reader;
use crate::dataflow::channel::taken::Taken;
use crate::error::RunError;
use crate::rows::block::Text;

#[derive(Debug)]
pub enum Inlet {
    Gate(Gate),
    ScaleGate(Reader),
    MergeSort(MergeSort),
    Elastic(Taker),
    Results(Results),
}

impl Inlet {
    /// The outlets that it reads.
    pub fn outlets(&self) -> Vec<usize> {
        match self {
            Self::Gate(gate) => gate.outlets(),
            Self::ScaleGate(reader) => reader.outlets(),
            Self::MergeSort(merger) => merger.outlets(),
            Self::Elastic(taker) => taker.outlets(),
            Self::Results(results) => results.outlets(),
        }
    }

    /// A block begins.
    pub fn begin(&mut self) {
        match self {
            Self::Gate(gate) => gate.begin(),
            Self::ScaleGate(reader) => reader.begin(),
            Self::MergeSort(merger) => merger.begin(),
            Self::Elastic(taker) => taker.begin(),
            Self::Results(results) => results.begin(),
        }
    }

    /// Whether there is something new for an inlet that had nothing to take.
    pub fn has_news(&self, outlets: &[Outlet]) -> bool {
        match self {
            Self::Gate(gate) => gate.has_news(outlets),
            Self::ScaleGate(reader) => reader.has_news(),
            Self::MergeSort(merger) => merger.has_news(outlets),
            Self::Elastic(taker) => taker.has_news(),
            Self::Results(results) => results.has_news(outlets),
        }
    }

    /// Takes what is ready; false: nothing, and nothing new is known either. The task uses it until `release`.
    ///
    /// # Safety
    /// The caller is the reader of every source, and has released what it took before.
    pub unsafe fn take(&mut self, outlets: &[Outlet], text: Text, taken: &mut Taken) -> Result<bool, RunError> {
        // SAFETY: as the caller says.
        unsafe {
            match self {
                Self::Gate(gate) => gate.take(outlets, text, taken),
                Self::ScaleGate(reader) => reader.take(text, taken),
                Self::MergeSort(merger) => merger.take(outlets, text, taken),
                Self::Elastic(taker) => taker.take(text, taken),
                Self::Results(results) => Ok(results.take(outlets, taken)),
            }
        }
    }

    /// Gives back what the task took, after its use.
    pub fn release(&mut self, outlets: &[Outlet]) {
        match self {
            Self::Gate(gate) => gate.release(outlets),
            Self::ScaleGate(reader) => reader.release(outlets),
            Self::MergeSort(merger) => merger.release(outlets),
            Self::Elastic(taker) => taker.release(),
            Self::Results(results) => results.release(outlets),
        }
    }
}
