//! Failures of kernels: their order, and what follows from one for the other tasks.

use crate::dataflow::channel::outlet::Jumbo;
use crate::dataflow::channel::taken::Taken;
use crate::dataflow::pinned::task::Step;
use crate::error::RunError;
use crate::threads::sync::Ordering;

/// Orders a failure by the rank or the number of the input at which the kernel failed.
pub fn order(error: RunError, taken: &Taken) -> RunError {
    error.ordered(|position| {
        let number = || taken.subs.get(position as usize).copied().map_or(0, u128::from);
        taken.ranks.get(position as usize).map_or_else(number, |rank| rank.order())
    })
}

/// Notes the outcome of a kernel's call, and returns whether it has failed. The outputs of earlier events go on then, and
/// `jumbo` is the task's last.
pub fn note(outcome: Result<(), RunError>, operator: usize, step: &Step, jumbo: &mut Jumbo) -> Result<bool, RunError> {
    let failed = has_failed(outcome, operator, step)?;
    if failed {
        let block = step.job.block;
        (jumbo.upto, jumbo.last) = (block.seq(block.n - 1), true);
    }
    Ok(failed)
}

/// Returns whether a kernel's call has failed. If so, all tasks learn of it.
pub fn has_failed(outcome: Result<(), RunError>, operator: usize, step: &Step) -> Result<bool, RunError> {
    match outcome {
        Err(error @ (RunError::Kernel { .. } | RunError::TooManyRows { .. })) => {
            // ORDERING: Relaxed; a source that sees it late deals events for nothing.
            step.network.failed_at.fetch_min(error.rank().1, Ordering::Relaxed);
            step.job.frame.note(operator, error);
            Ok(true)
        }
        // A windowed replica cannot go on: another one has failed, and reports the failure.
        Err(RunError::Stopped) => Ok(true),
        other => other.map(|()| false),
    }
}
