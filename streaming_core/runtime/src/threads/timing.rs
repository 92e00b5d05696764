//! Times of this machine that a benchmark states beside its results.
//!
//! They are the round trip of a cache line between two cores, and the longest pause of a thread that never waits.

use std::io;
use std::time::{Duration, Instant};

use crate::threads::sync::{AtomicBool, AtomicUsize, CachePadded, Ordering, hint};
use crate::threads::topology::Bound;

/// Round trips of one measurement.
const TRIPS: usize = 1000;
/// Measurements; the median counts, so that a preempted thread spoils only some of them.
const ROUNDS: usize = 9;

/// Returns the nanoseconds that a cache line takes from one core to another and back.
///
/// Each core has a thread. The threads take turns to write the same line.
///
/// # Errors
/// The system refuses to bind a thread to a core, or both cores are the same.
pub fn round_trip(near: usize, far: usize) -> io::Result<f64> {
    if near == far {
        let message = format!("a round trip needs two cores, got core {near} twice");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    // Counts the crossings of the line: even while the near core has the turn, odd while the far core has it.
    let crossings = CachePadded::new(AtomicUsize::new(0));
    let is_refused = AtomicBool::new(false);
    // Both threads are bound before either one starts. If a thread cannot be bound, the other one does not wait for it.
    let bound = std::sync::Barrier::new(2);
    let join = |core: usize| {
        let binding = Bound::to(core);
        if binding.is_err() {
            // The barrier orders this store before the loads behind it.
            is_refused.store(true, Ordering::Relaxed);
        }
        bound.wait();
        binding.map(|binding| (!is_refused.load(Ordering::Relaxed)).then_some(binding))
    };
    let wait_for = |crossing: usize| {
        // Relaxed is enough: the line carries nothing but its own value.
        while crossings.load(Ordering::Relaxed) != crossing {
            hint::spin_loop();
        }
    };
    let trips = TRIPS * ROUNDS;
    std::thread::scope(|scope| {
        let far = scope.spawn(|| {
            if let Some(_binding) = join(far)? {
                for trip in 0..trips {
                    wait_for(2 * trip + 1);
                    crossings.store(2 * trip + 2, Ordering::Relaxed);
                }
            }
            io::Result::Ok(())
        });
        let near = scope.spawn(|| {
            let mut rounds = Vec::with_capacity(ROUNDS);
            if let Some(_binding) = join(near)? {
                for round in 0..ROUNDS {
                    let started = Instant::now();
                    for trip in round * TRIPS..(round + 1) * TRIPS {
                        crossings.store(2 * trip + 1, Ordering::Relaxed);
                        wait_for(2 * trip + 2);
                    }
                    rounds.push(started.elapsed().as_nanos() as f64 / TRIPS as f64);
                }
            }
            io::Result::Ok(rounds)
        });
        far.join().expect("the measurement does not panic")?;
        let mut rounds = near.join().expect("the measurement does not panic")?;
        rounds.sort_by(f64::total_cmp);
        Ok(rounds[ROUNDS / 2])
    })
}

/// Returns the longest time that a spinning thread on one of these cores did not run.
///
/// Every core has a thread, which reads the clock for `lasts` without a break. A gap between two readings is a pause.
///
/// # Errors
/// The system refuses to bind a thread to a core.
pub fn longest_pause(cores: &[usize], lasts: Duration) -> io::Result<Duration> {
    let spin = |core: usize| {
        let _binding = Bound::to(core)?;
        let started = Instant::now();
        let (mut last, mut longest) = (started, Duration::ZERO);
        while last - started < lasts {
            let now = Instant::now();
            longest = longest.max(now - last);
            last = now;
        }
        io::Result::Ok(longest)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = cores.iter().map(|&core| scope.spawn(move || spin(core))).collect();
        let pauses = threads.into_iter().map(|thread| thread.join().expect("the measurement does not panic"));
        pauses.collect::<io::Result<Vec<_>>>().map(|pauses| pauses.into_iter().max().unwrap_or_default())
    })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::threads::topology::Topology;

    #[test]
    fn a_round_trip_between_two_cores_takes_time() {
        if let [near, far, ..] = &Topology::probe().cores[..] {
            let nanoseconds = round_trip(near.id, far.id).unwrap();
            assert!(nanoseconds.is_finite() && nanoseconds > 0.0, "{nanoseconds}");
        }
    }

    #[test]
    fn a_round_trip_without_two_cores_that_exist_is_an_error() {
        let core = Topology::probe().cores[0].id;
        assert_eq!(round_trip(core, core).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        for (near, far) in [(core, 1 << 15), (1 << 15, core)] {
            assert!(round_trip(near, far).is_err());
        }
    }

    #[test]
    fn the_longest_pause_lies_within_the_measurement() {
        let cores: Vec<usize> = Topology::probe().cores.iter().map(|core| core.id).collect();
        let started = Instant::now();
        let pause = longest_pause(&cores, Duration::from_millis(5)).unwrap();
        let elapsed = started.elapsed();
        assert!(elapsed >= Duration::from_millis(5));
        assert!(pause > Duration::ZERO && pause <= elapsed);
        assert_eq!(longest_pause(&[], Duration::from_millis(5)).unwrap(), Duration::ZERO);
        assert!(longest_pause(&[1 << 15], Duration::from_millis(5)).is_err());
    }
}
