use super::*;
use crate::threads::reorder::non_blocking::NonBlocking;
use crate::threads::sync::{AtomicU64, Ordering};
use proptest::prelude::*;
use std::sync::Mutex;

/// What a consumer of an ordered stream must see: 0, 1, 2, ...
fn first_out_of_order(delivered: &[u64]) -> Option<usize> {
    (0..delivered.len()).find(|&i| delivered[i] != i as u64)
}

proptest! {
    #[test]
    fn any_order_of_completion_leaves_in_serial_order(
        order in Just((0..64_u64).collect::<Vec<_>>()).prop_shuffle(), log in 0_u32..7, which in 0..BUFFERS.len(),
    ) {
        let window = 1_u64 << log;
        let buffer = (BUFFERS[which].1)(window as usize);
        let (mut waiting, mut delivered) = (order, Vec::new());
        while !waiting.is_empty() {
            let limit = buffer.released() + window;
            let next = waiting.iter().position(|&serial| serial < limit).expect("the first unreleased fits");
            buffer.complete_and_release(waiting.remove(next), &mut |serial| delivered.push(serial));
        }
        prop_assert_eq!(delivered.len(), 64);
        prop_assert_eq!(first_out_of_order(&delivered), None);
    }
}

fn run(buffer: &dyn ReorderBuffer, workers: usize, serials: u64, window: u64) -> Vec<u64> {
    let (next, delivered) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    // ORDERING: Relaxed: the counter only hands out numbers.
                    let serial = next.fetch_add(1, Ordering::Relaxed);
                    if serial >= serials {
                        break;
                    }
                    while serial >= buffer.released() + window {
                        std::thread::yield_now();
                    }
                    if serial % 3 == 0 {
                        std::thread::yield_now();
                    }
                    buffer.complete_and_release(serial, &mut |serial| delivered.lock().unwrap().push(serial));
                }
            });
        }
    });
    delivered.into_inner().unwrap()
}

#[test]
fn many_workers_release_everything_in_order() {
    for (name, make) in BUFFERS {
        for workers in [1, 2, 3, 8] {
            let buffer = make(8);
            let delivered = run(&*buffer, workers, 20_000, 8);
            assert_eq!((delivered.len(), first_out_of_order(&delivered)), (20_000, None), "{name}");
            assert_eq!(buffer.released(), 20_000);
        }
    }
}

#[test]
fn the_checker_notices_a_buffer_that_does_not_wait() {
    let buffer = NonBlocking::broken(4);
    let mut delivered = Vec::new();
    for serial in [1, 0, 3, 2] {
        buffer.complete_and_release(serial, &mut |serial| delivered.push(serial));
    }
    assert_eq!(first_out_of_order(&delivered), Some(0));
}
