//! Measures how long this machine takes to fetch memory of another node, or memory that another core has written.
//!
//! Latency is measured by following pointers in an order that no prefetcher knows, so the core waits for each line. This is the
//! worst case, as in BriskStream's model (section 3.1). Bandwidth is measured by reading line after line. Each round also writes
//! the lines that others have read. A core that writes a line again must first get it back from their caches.

use std::io;
use std::time::Instant;

use serde::Serialize;

use crate::threads::topology::{Bound, Topology};

const LINE: usize = 64;

/// By the place that fetches, then the one where the memory lies.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fetching {
    /// Nanoseconds to fetch a line.
    pub nanoseconds: Vec<Vec<f64>>,
    pub bytes_per_s: Vec<Vec<f64>>,
}

/// Lines that are fetched to measure a latency in memory.
const STEPS: usize = 1 << 14;

impl Fetching {
    /// Between the nodes of this machine, in the topology's order: memory, more of it than caches hold. Infinite, and no
    /// bytes, from nodes and for nodes that have no core of this process. `streams`: bandwidths are wanted too.
    pub fn between_nodes(topology: &Topology, streams: bool) -> io::Result<Self> {
        let core = |node: &usize| topology.cores.iter().find(|core| core.node == *node).map(|core| core.id);
        let cores: Vec<Option<usize>> = topology.nodes.iter().map(core).collect();
        let lines = beyond_caches(topology);
        Self::between(&cores, |owner, fetches| {
            let memory = on_core(owner, || Ok(circle(lines)))?;
            let both = || Ok((follow(&memory, STEPS), if streams { stream(&memory) } else { 0.0 }));
            fetches.iter().map(|&core| on_core(core, both)).collect()
        })
    }

    /// `measure`: of memory of a core, what it takes each of these.
    fn between(
        cores: &[Option<usize>],
        mut measure: impl FnMut(usize, &[usize]) -> io::Result<Vec<(f64, f64)>>,
    ) -> io::Result<Self> {
        let there: Vec<usize> = cores.iter().copied().flatten().collect();
        let n = cores.len();
        let mut fetching = Self { nanoseconds: vec![vec![f64::INFINITY; n]; n], bytes_per_s: vec![vec![0.0; n]; n] };
        for (lies, owner) in cores.iter().enumerate() {
            let Some(owner) = *owner else { continue };
            let mut of_owner = measure(owner, &there)?.into_iter();
            for (fetches, _) in cores.iter().enumerate().filter(|(_, core)| core.is_some()) {
                let (nanoseconds, bytes_per_s) = of_owner.next().expect("there is a measurement for each core");
                fetching.nanoseconds[fetches][lies] = nanoseconds;
                fetching.bytes_per_s[fetches][lies] = bytes_per_s;
            }
        }
        Ok(fetching)
    }
}

/// Lines that no cache of this machine holds.
fn beyond_caches(topology: &Topology) -> usize {
    let cached = topology.caches.iter().map(|cache| cache.bytes).max().unwrap_or(0);
    (4 * cached).max(64 << 20).next_power_of_two() / LINE
}

/// Has a thread of its own do something on a core.
fn on_core<R: Send>(core: usize, work: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
    std::thread::scope(|scope| {
        let done = scope.spawn(move || {
            let _bound = Bound::to(core)?;
            work()
        });
        done.join().expect("the measurement does not panic")
    })
}

/// A line and the number of the one to go on with.
#[repr(align(64))]
struct Line(usize);

/// So many lines, a power of two, that form one circle in an order that no prefetcher knows: a congruential generator of
/// full period. They lie on the node of the calling thread, which touches them first.
fn circle(lines: usize) -> Vec<Line> {
    (0..lines).map(|line| Line((line.wrapping_mul(0x5DEE_CE66D) + 11) & (lines - 1))).collect()
}

/// Nanoseconds to fetch a line, on average over so many.
fn follow(circle: &[Line], steps: usize) -> f64 {
    let started = Instant::now();
    let mut at = 0;
    for _ in 0..steps {
        at = circle[at].0;
    }
    std::hint::black_box(at);
    started.elapsed().as_nanos() as f64 / steps as f64
}

/// Bytes per second of reading all lines, one after the other.
fn stream(circle: &[Line]) -> f64 {
    let started = Instant::now();
    let sum = circle.iter().fold(0_usize, |sum, line| sum.wrapping_add(line.0));
    std::hint::black_box(sum);
    size_of_val(circle) as f64 / started.elapsed().as_secs_f64()
}

/// What only `probe` asks for.
#[cfg(feature = "pyo3")]
pub use probing::{between_cores, node_bandwidths};

#[cfg(feature = "pyo3")]
mod probing {
    use std::sync::Barrier;

    use super::*;

    /// What passes between cores: by the core that takes what the other has written.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct Handing {
        #[serde(flatten)]
        pub fetching: Fetching,
        /// At which the other writes again what this one has read.
        pub rewritten_bytes_per_s: Vec<Vec<f64>>,
    }

    /// Lines that a core's own cache holds.
    const CACHED_LINES: usize = 1 << 11;
    /// How often what a core has written is fetched; the median counts.
    const ROUNDS: usize = 9;

    /// Between cores: what one has just written and still has in its cache.
    pub fn between_cores(cores: &[usize]) -> io::Result<Handing> {
        let known: Vec<Option<usize>> = cores.iter().copied().map(Some).collect();
        let mut rewritten = vec![Vec::new(); cores.len()];
        let fetching = Fetching::between(&known, |owner, fetches| {
            let mut memory = circle(CACHED_LINES);
            on_core(owner, || Ok(write(&mut memory)))?;
            let mut measured = Vec::new();
            for (fetches, &core) in fetches.iter().enumerate() {
                let [latency] = rounds(|| {
                    let taken = on_core(core, || Ok(follow(&memory, CACHED_LINES)))?;
                    on_core(owner, || Ok(write(&mut memory)))?;
                    Ok([taken])
                })?;
                let [reading, writing] = rounds(|| {
                    Ok([on_core(core, || Ok(stream(&memory)))?, on_core(owner, || Ok(write(&mut memory)))?])
                })?;
                rewritten[fetches].push(writing);
                measured.push((latency, reading));
            }
            Ok(measured)
        })?;
        Ok(Handing { fetching, rewritten_bytes_per_s: rewritten })
    }

    /// The median of each figure that a round measures.
    fn rounds<const N: usize>(mut round: impl FnMut() -> io::Result<[f64; N]>) -> io::Result<[f64; N]> {
        let measured = (0..ROUNDS).map(|_| round()).collect::<io::Result<Vec<_>>>()?;
        Ok(std::array::from_fn(|figure| {
            let mut of_rounds: Vec<f64> = measured.iter().map(|figures| figures[figure]).collect();
            of_rounds.sort_by(f64::total_cmp);
            of_rounds[ROUNDS / 2]
        }))
    }

    /// Per node, in the topology's order, the bytes per second that all of its cores together read of its memory.
    pub fn node_bandwidths(topology: &Topology) -> io::Result<Vec<f64>> {
        let of_node = |&node: &usize| {
            let cores: Vec<usize> =
                topology.cores.iter().filter(|core| core.node == node).map(|core| core.id).collect();
            // All of them together more than caches hold.
            let lines = (2 * beyond_caches(topology) / cores.len().max(1)).next_power_of_two();
            let together = Barrier::new(cores.len());
            std::thread::scope(|scope| {
                let reading = |core: usize| {
                    let together = &together;
                    scope.spawn(move || -> io::Result<f64> {
                        let bound = Bound::to(core);
                        let memory = circle(lines);
                        together.wait();
                        let bytes_per_s = stream(&memory);
                        bound.map(|_| bytes_per_s)
                    })
                };
                let all: Vec<_> = cores.iter().map(|&core| reading(core)).collect();
                all.into_iter().map(|thread| thread.join().expect("the measurement does not panic")).sum()
            })
        };
        topology.nodes.iter().map(of_node).collect()
    }

    /// Has the lines be in the cache of the calling thread's core alone: bytes per second of writing them.
    fn write(circle: &mut [Line]) -> f64 {
        let started = Instant::now();
        for line in &mut *circle {
            line.0 = std::hint::black_box(line.0);
        }
        size_of_val(circle) as f64 / started.elapsed().as_secs_f64()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_circle_has_all_lines() {
        let circle = circle(1 << 12);
        let (mut at, mut met) = (0, vec![false; circle.len()]);
        for _ in 0..circle.len() {
            assert!(!std::mem::replace(&mut met[at], true));
            at = circle[at].0;
        }
        assert_eq!(at, 0);
        assert!(follow(&circle, 100) > 0.0 && stream(&circle) > 0.0);
    }

    #[test]
    fn every_core_fetches_from_every_core_that_is_there() {
        let cores = [Some(7), None, Some(3)];
        let measure =
            |owner: usize, fetch: &[usize]| Ok(fetch.iter().map(|&core| (owner as f64, core as f64)).collect());
        let measured = Fetching::between(&cores, measure).unwrap();
        let infinite = f64::INFINITY;
        assert_eq!(measured.nanoseconds, [[7.0, infinite, 3.0], [infinite; 3], [7.0, infinite, 3.0]]);
        assert_eq!(measured.bytes_per_s, [[7.0, 0.0, 7.0], [0.0; 3], [3.0, 0.0, 3.0]]);
    }
}
