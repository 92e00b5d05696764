use super::*;
use crate::threads::reorder::lock::Locked;
use crate::threads::reorder::non_blocking::NonBlocking;
use crate::threads::sync::{Arc, UnsafeCell, thread};
use crate::threads::testing::interleave;

struct Stream {
    buffer: Box<dyn ReorderBuffer>,
    /// Written by the completer of the serial, read by its releaser.
    cells: Vec<UnsafeCell<u64>>,
    /// Written by releasers, one at a time.
    delivered: UnsafeCell<Vec<u64>>,
}

// SAFETY: the buffer orders all accesses to the cells; loom checks that.
unsafe impl Sync for Stream {}
// SAFETY: as above.
unsafe impl Send for Stream {}

fn model(build: fn() -> Box<dyn ReorderBuffer>, serials: &'static [&'static [u64]]) {
    interleave(3, move || {
        let total: usize = serials.iter().map(|own| own.len()).sum();
        let stream = Arc::new(Stream {
            buffer: build(),
            cells: (0..total).map(|_| UnsafeCell::new(0)).collect(),
            delivered: UnsafeCell::new(Vec::new()),
        });
        let work = |stream: &Stream, own: &[u64]| {
            for &serial in own {
                // SAFETY: only the completer touches the cell before it completes the serial.
                stream.cells[serial as usize].with_mut(|cell| unsafe { *cell = serial + 100 });
                stream.buffer.complete_and_release(serial, &mut |serial| {
                    // SAFETY: the serial is complete: its cell is written; releasers come one after the other.
                    let value = stream.cells[serial as usize].with(|cell| unsafe { *cell });
                    // SAFETY: as above.
                    stream.delivered.with_mut(|delivered| unsafe { (*delivered).push(value) });
                });
            }
        };
        let threads: Vec<_> = serials[1..]
            .iter()
            .map(|own| {
                let stream = stream.clone();
                thread::spawn(move || work(&stream, own))
            })
            .collect();
        work(&stream, serials[0]);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // Nothing is left behind, although no thread ever waited.
        // SAFETY: all other threads have ended.
        let delivered = stream.delivered.with(|delivered| unsafe { (*delivered).clone() });
        assert_eq!(delivered, (100..100 + total as u64).collect::<Vec<_>>());
    });
}

#[test]
fn two_workers() {
    model(|| Box::new(NonBlocking::new(4)), &[&[0, 3], &[1, 2]]);
}

#[test]
fn three_workers() {
    model(|| Box::new(NonBlocking::new(4)), &[&[1], &[0], &[2]]);
}

#[test]
fn two_workers_and_a_lock() {
    model(|| Box::new(Locked::new(4)), &[&[0, 3], &[1, 2]]);
}

#[test]
fn three_workers_and_a_lock() {
    model(|| Box::new(Locked::new(4)), &[&[1], &[0], &[2]]);
}

#[test]
#[should_panic]
fn a_buffer_that_does_not_wait_is_caught() {
    model(|| Box::new(NonBlocking::broken(4)), &[&[0], &[1]]);
}
