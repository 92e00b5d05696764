//! A batch as one thread works on it.

use crate::transactions::batch::Batch;
use crate::transactions::outcome::Outcome;
use crate::transactions::run::Run;

#[derive(Clone, Copy)]
pub(super) struct Assignment<'a> {
    pub thread: usize,
    /// Of so many.
    pub threads: usize,
    pub run: &'a Run<'a>,
    pub batch: &'a Batch<'a>,
    pub outcome: &'a Outcome,
}
