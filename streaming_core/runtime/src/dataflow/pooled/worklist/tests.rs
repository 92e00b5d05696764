use super::list::*;
use super::*;
use crate::dataflow::pooled::in_order::InOrder;
use crate::dataflow::pooled::input::Part;
use crate::error::RunError;
use crate::threads::idle::Idle;
use crate::threads::idle::Strategy;
use crate::threads::reorder::BUFFERS;
use crate::threads::sync::{AtomicBool, AtomicU64, Ordering};
use crate::threads::testing::cases;
use proptest::prelude::*;
use std::sync::Mutex;

/// Notes what each lane saw, and hands on what is finished.
struct Note<'a> {
    seen: &'a [Mutex<Vec<u64>>],
    ready: &'a InOrder,
    /// Parts that a slice is still enough for.
    left: usize,
}

impl Visitor for Note<'_> {
    fn run(&mut self, lane: usize, serial: u64) -> Result<(), RunError> {
        self.seen[lane].try_lock().expect("one worker a lane").push(serial);
        self.left = self.left.saturating_sub(1);
        Ok(())
    }

    fn finish(&mut self, serial: u64) {
        self.ready.offer(serial);
    }

    fn is_spent(&mut self) -> bool {
        self.left == 0
    }

    fn wait(&mut self, wait: &mut dyn FnMut()) {
        wait();
    }
}

/// Batches of random subsets of lanes through reorder buffer, lanes, and in-order take; what each lane saw.
fn run(
    queue: &QueueStrategy,
    subsets: &[u64],
    lanes: usize,
    workers: usize,
    window: usize,
) -> (Vec<Vec<u64>>, Vec<u64>) {
    let (queue, ready) = ((queue.make)(Shape { lanes, workers, window, owner: 0 }), InOrder::new(window));
    let [front, back] = [0, 1].map(|other| (BUFFERS[(lanes + other) % BUFFERS.len()].1)(window));
    let source = AtomicU64::new(0);
    let seen: Vec<_> = (0..lanes).map(|_| Mutex::new(Vec::new())).collect();
    let delivered = Mutex::new(Vec::new());
    let total = subsets.len() as u64;
    let (idle, stopped) = (Idle::new(Strategy::Yield, workers, 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (queue, ready, front, back, source) = (&*queue, &ready, &*front, &*back, &source);
            let (seen, delivered, idle, stopped) = (&seen, &delivered, &idle, &stopped);
            scope.spawn(move || {
                while back.released() < total {
                    let mut did = false;
                    let serial = source.load(Ordering::Relaxed);
                    if serial < total.min(back.released() + window as u64)
                        && source.compare_exchange(serial, serial + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
                    {
                        did = true;
                        front.complete_and_release(serial, &mut |serial| {
                            let has_rows = |lane: &usize| subsets[serial as usize] >> (lane % 64) & 1 == 1;
                            let parts: Vec<Part> = (0..lanes).filter(has_rows).map(Part::of).collect();
                            match parts[..] {
                                [] => ready.offer(serial),
                                _ => queue.add(serial, &parts),
                            }
                        });
                    }
                    for reach in [Reach::Own, Reach::All] {
                        let visit = Visit { worker, reach, released: front.released(), idle, stopped };
                        did |= queue.work(&visit, &mut Note { seen, ready, left: 1 + worker }).unwrap();
                    }
                    while let Some(serial) = ready.take() {
                        did = true;
                        back.complete_and_release(serial, &mut |serial| delivered.lock().unwrap().push(serial));
                    }
                    if !did {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    (seen.into_iter().map(|seen| seen.into_inner().unwrap()).collect(), delivered.into_inner().unwrap())
}

fn check(subsets: &[u64], lanes: usize, workers: usize, window: usize) {
    for (name, queue) in QUEUES {
        let (seen, delivered) = run(queue, subsets, lanes, workers, window);
        for (lane, seen) in seen.iter().enumerate() {
            let expected: Vec<u64> =
                (0..subsets.len() as u64).filter(|&s| subsets[s as usize] >> (lane % 64) & 1 == 1).collect();
            assert_eq!(seen, &expected, "{name}, lane {lane}");
        }
        assert_eq!(delivered, (0..subsets.len() as u64).collect::<Vec<_>>(), "{name}");
    }
}

proptest! {
    #![proptest_config(cases(64))]
    #[test]
    fn each_lane_sees_its_batches_in_order(
        subsets in proptest::collection::vec(any::<u64>(), 0..200), lanes in 1_usize..70, workers in 1_usize..4,
        log in 0_u32..4,
    ) {
        check(&subsets, lanes, workers, 1 << log);
    }
}

#[test]
fn a_single_hot_lane_and_empty_batches() {
    for workers in [1, 2, 3, 8] {
        check(&[1; 5000], 8, workers, 4);
        check(&[0; 1000], 8, workers, 4);
        check(&(0..5000).map(|s| 1 << (s % 9)).collect::<Vec<_>>(), 8, workers, 2);
    }
}

/// A run that fails, in a lane that another worker waits for.
#[test]
fn a_failed_run_ends_the_work_and_frees_those_who_wait() {
    struct Fail;
    impl Visitor for Fail {
        fn run(&mut self, _: usize, _: u64) -> Result<(), RunError> {
            Err(RunError::Engine("on purpose".into()))
        }
        fn finish(&mut self, _: u64) {
            panic!("nothing is ever done");
        }
        fn is_spent(&mut self) -> bool {
            false
        }
        fn wait(&mut self, wait: &mut dyn FnMut()) {
            wait();
        }
    }
    for (name, queue) in QUEUES {
        let queue = (queue.make)(Shape { lanes: 1, workers: 2, window: 4, owner: 0 });
        let (idle, stopped) = (Idle::new(Strategy::Yield, 2, 1), AtomicBool::new(true));
        for serial in 0..2 {
            queue.add(serial, &[Part::of(0)]);
        }
        let visit = Visit { worker: 0, reach: Reach::Own, released: 2, idle: &idle, stopped: &stopped };
        assert_eq!(queue.work(&visit, &mut Fail), Err(RunError::Engine("on purpose".into())), "{name}");
        // No worker gets the lane: the next one has nothing to do, leaves it to the worker that failed, or is told to
        // leave.
        let next = queue.work(&Visit { worker: 1, reach: Reach::Own, ..visit }, &mut Fail);
        assert!(next.is_ok() || next == Err(RunError::Stopped), "{name}: {next:?}");
    }
}

#[test]
fn every_lane_is_looked_after_by_one_worker() {
    for workers in [1, 2, 3, 8, 300] {
        for lanes in [1, 2, 7, 32, 256] {
            let shape = Shape { lanes, workers, window: 8, owner: workers - 1 };
            let all: Vec<usize> = (0..workers).flat_map(|worker| shape.home(worker)).collect();
            assert_eq!(all, (0..lanes).collect::<Vec<_>>());
        }
    }
}

/// A part that a worker has run: worker, partition, batch.
type Run = (usize, usize, u64);

/// A worker at a queue that notes its runs. While it is at its first part, `guest` works at the queue as worker 1.
struct Turn<'a> {
    worker: usize,
    runs: &'a Mutex<Vec<Run>>,
    guest: Option<&'a dyn Fn()>,
    /// Parts that a slice is still enough for.
    left: usize,
}

impl Visitor for Turn<'_> {
    fn run(&mut self, lane: usize, serial: u64) -> Result<(), RunError> {
        self.runs.lock().unwrap().push((self.worker, lane, serial));
        self.left = self.left.saturating_sub(1);
        if let Some(guest) = self.guest.take() {
            guest();
        }
        Ok(())
    }

    fn finish(&mut self, _: u64) {}

    fn is_spent(&mut self) -> bool {
        self.left == 0
    }

    fn wait(&mut self, _: &mut dyn FnMut()) {
        panic!("worker {} waits for another one", self.worker);
    }
}

/// Worker 0 works at a queue of two partitions with these parts, one a batch. While it is at its first part, worker 1 comes.
/// `slices`: the parts that the slice of each is enough for. Returns all runs.
fn with_a_guest(queue: &QueueStrategy, partitions: &[usize], slices: [usize; 2]) -> Vec<Run> {
    let queue = (queue.make)(Shape { lanes: 2, workers: 2, window: 8, owner: 0 });
    let (idle, stopped) = (Idle::new(Strategy::Yield, 2, 2), AtomicBool::new(false));
    for (serial, &partition) in partitions.iter().enumerate() {
        queue.add(serial as u64, &[Part::of(partition)]);
    }
    let runs = Mutex::new(Vec::new());
    let visit =
        |worker| Visit { worker, reach: Reach::All, released: partitions.len() as u64, idle: &idle, stopped: &stopped };
    let guest = || {
        queue.work(&visit(1), &mut Turn { worker: 1, runs: &runs, guest: None, left: slices[1] }).unwrap();
    };
    queue.work(&visit(0), &mut Turn { worker: 0, runs: &runs, guest: Some(&guest), left: slices[0] }).unwrap();
    runs.into_inner().unwrap()
}

#[test]
fn hybrid_leaves_a_part_of_a_busy_partition_to_its_active_worker() {
    // Worker 1 takes the numbers behind the first. It leaves 0 to worker 0, runs 1, and leaves 0 again.
    assert_eq!(with_a_guest(&hybrid::QUEUE, &[0, 0, 1, 0], [9, 9]), [(0, 0, 0), (1, 1, 2), (0, 0, 1), (0, 0, 3)]);
    // The master queue has the numbers in the order of the parts: worker 1 runs batch 1 before batch 2.
    assert_eq!(with_a_guest(&hybrid::QUEUE, &[0, 1, 1], [9, 9]), [(0, 0, 0), (1, 1, 1), (1, 1, 2)]);
}

#[test]
fn hybrid_lets_an_active_worker_finish_delegated_parts_beyond_its_slice() {
    // The slice of worker 0 is over after one part. Two are delegated to it meanwhile.
    assert_eq!(with_a_guest(&hybrid::QUEUE, &[0, 0, 0], [1, 9]), [(0, 0, 0), (0, 0, 1), (0, 0, 2)]);
    // Worker 1 leaves between two numbers, after one part. Worker 0 is not active in partition 1, so it leaves as well.
    assert_eq!(with_a_guest(&hybrid::QUEUE, &[0, 1, 1, 0], [1, 1]), [(0, 0, 0), (1, 1, 1)]);
}

#[test]
fn partitioned_leaves_the_parts_of_a_partition_to_its_worker() {
    let parts = [0, 1, 1, 0];
    assert_eq!(with_a_guest(&partitioned::QUEUE, &parts, [9, 9]), [(0, 0, 0), (1, 1, 1), (1, 1, 2), (0, 0, 3)]);
    // Worker 1 has no partition with work, and helps with none.
    assert_eq!(with_a_guest(&partitioned::QUEUE, &[0, 0, 0], [9, 9]), [(0, 0, 0), (0, 0, 1), (0, 0, 2)]);
}

#[test]
fn lanes_leave_the_work_of_a_held_lane_to_its_holder() {
    assert_eq!(with_a_guest(&lanes::QUEUE, &[0, 0, 0], [9, 9]), [(0, 0, 0), (0, 0, 1), (0, 0, 2)]);
}

#[test]
fn a_slice_bounds_every_queue_and_the_rest_stays_in_order() {
    for (name, queue) in QUEUES {
        let queue = (queue.make)(Shape { lanes: 1, workers: 1, window: 8, owner: 0 });
        let (idle, stopped) = (Idle::new(Strategy::Yield, 1, 1), AtomicBool::new(false));
        for serial in 0..5 {
            queue.add(serial, &[Part::of(0)]);
        }
        let runs = Mutex::new(Vec::new());
        let visit = Visit { worker: 0, reach: Reach::Own, released: 5, idle: &idle, stopped: &stopped };
        let mut lengths = Vec::new();
        while queue.is_waiting(0, Reach::All, 5) {
            queue.work(&visit, &mut Turn { worker: 0, runs: &runs, guest: None, left: 2 }).unwrap();
            lengths.push(runs.lock().unwrap().len());
        }
        assert_eq!(lengths, [2, 4, 5], "{name}");
        assert_eq!(runs.into_inner().unwrap(), [0, 1, 2, 3, 4].map(|serial| (0, 0, serial)), "{name}");
    }
}
