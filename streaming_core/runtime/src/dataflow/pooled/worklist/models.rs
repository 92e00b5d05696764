use super::list::*;
use super::*;
use crate::dataflow::pooled::in_order::InOrder;
use crate::dataflow::pooled::input::Part;
use crate::error::RunError;
use crate::threads::idle::Idle;
use crate::threads::idle::Strategy;
use crate::threads::reorder::buffer::ReorderBuffer;
use crate::threads::reorder::{self, lock, non_blocking};
use crate::threads::sync::{Arc, AtomicBool, UnsafeCell, thread};
use crate::threads::testing::interleave;

/// One partitioned stage of two lanes.
struct StageModel {
    /// Per serial: the lanes that have rows.
    subsets: &'static [u64],
    queue: Box<dyn Worklist>,
    front: Box<dyn ReorderBuffer>,
    ready: InOrder,
    back: Box<dyn ReorderBuffer>,
    /// Per slot: the batch. Written by its owner, read by its lanes.
    batch: Vec<UnsafeCell<u64>>,
    /// Per lane: what it saw. Written by its holder.
    seen: Vec<UnsafeCell<Vec<u64>>>,
    idle: Idle,
    stopped: AtomicBool,
}

// SAFETY: the protocol orders all accesses to the cells; loom checks that.
unsafe impl Sync for StageModel {}
// SAFETY: as above.
unsafe impl Send for StageModel {}

impl Visitor for &StageModel {
    fn run(&mut self, lane: usize, serial: u64) -> Result<(), RunError> {
        // SAFETY: the batch was released, and cannot leave before this lane is done.
        let batch = self.batch[serial as usize % self.batch.len()].with(|batch| unsafe { *batch });
        // SAFETY: no other worker is at the lane.
        self.seen[lane].with_mut(|seen| unsafe { (*seen).push(batch) });
        Ok(())
    }

    fn finish(&mut self, serial: u64) {
        self.ready.offer(serial);
    }

    fn is_spent(&mut self) -> bool {
        false
    }

    fn wait(&mut self, wait: &mut dyn FnMut()) {
        wait();
    }
}

impl StageModel {
    fn new(queue: &QueueStrategy, reorder: reorder::Make, subsets: &'static [u64], window: usize) -> Self {
        Self {
            subsets,
            queue: (queue.make)(Shape { lanes: 2, workers: 2, window, owner: 0 }),
            front: reorder(window),
            ready: InOrder::new(window),
            back: reorder(window),
            batch: (0..window).map(|_| UnsafeCell::new(0)).collect(),
            seen: (0..2).map(|_| UnsafeCell::new(Vec::new())).collect(),
            idle: Idle::new(Strategy::Yield, 2, 2),
            stopped: AtomicBool::new(false),
        }
    }

    /// Starts what fits into the window, from serial `next` on; the next serial then.
    fn source(&self, mut next: u64) -> u64 {
        let window = self.batch.len();
        while next < self.subsets.len() as u64 && next < self.back.released() + window as u64 {
            // SAFETY: the slot's last batch has left.
            self.batch[next as usize % window].with_mut(|batch| unsafe { *batch = next });
            self.front.complete_and_release(next, &mut |serial| {
                let has_rows = |lane: &usize| self.subsets[serial as usize] >> lane & 1 == 1;
                let parts: Vec<Part> = (0..2).filter(has_rows).map(Part::of).collect();
                match parts[..] {
                    [] => self.ready.offer(serial),
                    _ => self.queue.add(serial, &parts),
                }
            });
            next += 1;
        }
        next
    }

    fn work(&self, worker: usize) {
        for reach in [Reach::Own, Reach::All] {
            let released = self.front.released();
            let visit = Visit { worker, reach, released, idle: &self.idle, stopped: &self.stopped };
            self.queue.work(&visit, &mut &*self).unwrap();
        }
        while let Some(serial) = self.ready.take() {
            let batch = &self.batch[serial as usize % self.batch.len()];
            // SAFETY: all lanes are done with it, and one worker takes it.
            batch.with_mut(|batch| assert_eq!(unsafe { *batch }, serial));
            self.back.complete_and_release(serial, &mut |_| ());
        }
    }
}

/// Every lane sees what is meant for it, once, in order; nothing is left behind.
fn model(queue: &'static QueueStrategy, subsets: &'static [u64], window: usize) {
    model_with(queue, non_blocking::make, subsets, window);
}

fn model_with(queue: &'static QueueStrategy, reorder: reorder::Make, subsets: &'static [u64], window: usize) {
    interleave(2, move || {
        let stage = Arc::new(StageModel::new(queue, reorder, subsets, window));
        let other = {
            let stage = stage.clone();
            thread::spawn(move || stage.work(1))
        };
        let mut next = stage.source(0);
        stage.work(0);
        next = stage.source(next);
        stage.work(0);
        other.join().unwrap();
        // Whatever a worker left behind is still there to be taken.
        for worker in [0, 1, 0, 1, 0, 1] {
            stage.work(worker);
            next = stage.source(next);
        }
        assert_eq!((next, stage.back.released()), (subsets.len() as u64, subsets.len() as u64));
        for (lane, seen) in stage.seen.iter().enumerate() {
            let expected: Vec<u64> = (0..next).filter(|&s| subsets[s as usize] >> lane & 1 == 1).collect();
            // SAFETY: the other thread has ended.
            assert_eq!(seen.with(|seen| unsafe { (*seen).clone() }), expected);
        }
    });
}

#[test]
fn lanes_a_slot_is_reused_while_a_lane_is_behind() {
    model(&lanes::QUEUE, &[0b01, 0b11], 1);
}

#[test]
fn lanes_a_lane_changes_hands_between_batches() {
    model(&lanes::QUEUE, &[0b01, 0b01], 2);
}

#[test]
fn lanes_an_empty_batch_passes() {
    model(&lanes::QUEUE, &[0b00, 0b01], 1);
}

#[test]
fn hybrid_a_slot_is_reused_while_a_partition_is_behind() {
    model(&hybrid::QUEUE, &[0b01, 0b11], 1);
}

#[test]
fn hybrid_a_part_is_delegated_or_its_partition_changes_hands() {
    model(&hybrid::QUEUE, &[0b01, 0b01], 2);
}

#[test]
fn hybrid_two_workers_finish_a_batch() {
    model(&hybrid::QUEUE, &[0b11], 1);
}

#[test]
fn hybrid_an_empty_batch_passes() {
    model(&hybrid::QUEUE, &[0b00, 0b01], 1);
}

#[test]
fn partitioned_a_slot_is_reused_while_a_lane_is_behind() {
    model(&partitioned::QUEUE, &[0b01, 0b11], 1);
}

#[test]
fn partitioned_two_workers_finish_a_batch() {
    model(&partitioned::QUEUE, &[0b11, 0b11], 2);
}

#[test]
fn partitioned_an_empty_batch_passes() {
    model(&partitioned::QUEUE, &[0b00, 0b10], 1);
}

#[test]
fn shared_a_slot_is_reused_while_the_head_is_behind() {
    model(&shared::QUEUE, &[0b01, 0b11], 1);
}

#[test]
fn shared_a_lane_changes_hands_between_batches() {
    model(&shared::QUEUE, &[0b01, 0b01], 2);
}

#[test]
fn shared_an_empty_batch_passes() {
    model(&shared::QUEUE, &[0b00, 0b01], 1);
}

#[test]
fn a_lane_changes_hands_between_batches_behind_a_lock() {
    model_with(&lanes::QUEUE, lock::make, &[0b01, 0b01], 2);
    model_with(&hybrid::QUEUE, lock::make, &[0b01, 0b01], 2);
}

#[test]
fn a_slot_is_reused_and_an_empty_batch_passes_behind_a_lock() {
    model_with(&partitioned::QUEUE, lock::make, &[0b10, 0b00, 0b01], 1);
}
