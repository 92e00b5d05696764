//! Faults of the pooled executor, made on purpose.

use super::*;
use crate::dataflow::testing::faults::{assert_found, outputs, search, without_a_flush};
use crate::threads::sync::{AtomicU64, Ordering};

/// Lets every other batch leave after the one behind it, in any order of completion.
#[derive(Debug)]
struct Swapping {
    buffer: Box<dyn ReorderBuffer>,
    /// The serials with which work ends: nothing comes behind those yet.
    last: Vec<u64>,
    /// Those below have left. Written by who delivers.
    left: AtomicU64,
}

impl ReorderBuffer for Swapping {
    fn released(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release below, as in the other buffers.
        self.left.load(Ordering::Acquire)
    }

    fn complete_and_release(&self, serial: u64, deliver: &mut dyn FnMut(u64)) -> usize {
        self.buffer.complete_and_release(serial, &mut |serial| {
            // ORDERING: Relaxed; the buffer lets one worker at a time deliver, after the one before it.
            let left = self.left.load(Ordering::Relaxed);
            if serial > left {
                deliver(serial);
                deliver(left);
            } else if self.last.contains(&serial) {
                deliver(serial);
            } else {
                return;
            }
            // ORDERING: Release publishes what was delivered.
            self.left.store(serial + 1, Ordering::Release);
        })
    }
}

const BATCH: usize = 7;

fn run_with(pipeline: &Pipeline, blocks: &[Events], is_faulty: bool) -> Vec<u8> {
    let mut executor = make_pooled(pipeline, options(2, BATCH), None).unwrap();
    let batches = blocks.iter().map(|block| block.rows.len().div_ceil(BATCH) as u64).filter(|&batches| batches > 0);
    let last = batches.scan(0, |sum, batches| {
        *sum += batches;
        Some(*sum - 1)
    });
    if is_faulty {
        let buffer = (BUFFERS[0].1)(executor.work.slots.len());
        executor.work.back = Box::new(Swapping { buffer, last: last.collect(), left: AtomicU64::new(0) });
    }
    outputs(blocks, &mut executor)
}

#[test]
fn without_a_fault_none_is_found() {
    assert_eq!(search(|pipeline, blocks| run_with(pipeline, blocks, false)), None);
}

#[test]
fn a_broken_reorder_buffer_is_found() {
    assert_found(|pipeline, blocks| run_with(pipeline, blocks, true));
}

#[test]
fn a_lost_flush_is_found() {
    assert_found(|pipeline, blocks| run_with(&without_a_flush(pipeline), blocks, false));
}
