//! The location of memory on a machine with several NUMA nodes, and the cost of fetching it from another node.
//!
//! Threads that are bound to cores belong to a node. A thread's own buffers lie on its node, because it touches them first.
//! The loading thread touches tables first, so the pages of tables are bound. If a scheme gives rows to one thread, their
//! pages go to that thread's node. Pages of other rows go to all nodes in turn.
//!
//! The cost of fetching is estimated as in BriskStream's model (section 3). It is the number of cache lines fetched from
//! another node, times the additional time per line. The runtime counts what threads pass to each other, and the rows of
//! planned accesses. An event that is executed at once has no list of accesses, so the runtime counts one row for it. If all
//! threads are on one node, nothing is remote, and nothing is counted.

use std::io;
use std::ops::Range;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::memory::fetching::Fetching;
use crate::threads::topology::Topology;

const LINE: usize = 64;
const PAGE: usize = 4096;

/// The rows of a table.
#[derive(Debug, Clone, Copy)]
pub struct TableRows {
    pub base: *mut u8,
    pub rows: usize,
    pub stride: usize,
}

/// The placement of a run. No thread writes it after the start of the run.
#[derive(Debug)]
pub struct Placement {
    /// The node of each thread.
    nodes: Vec<usize>,
    /// Per pair of threads: the additional nanoseconds to fetch a line from the node of the second. Empty if all threads are on
    /// one node.
    extra: Vec<Vec<f64>>,
    /// The average of these, for a line at an unknown place and an unknown thread.
    anywhere: f64,
    /// The reason why no memory is bound; None if it is bound.
    why: Option<String>,
    /// Whether rows lie on the node of their thread, unless `why` prevents it.
    homed: bool,
    /// Per table: lines of a row.
    lines: Vec<usize>,
}

impl Placement {
    /// One node, or threads without a node.
    pub fn flat(threads: usize, why: &str) -> Self {
        Self::of(vec![0; threads], Vec::new(), Some(why.into()))
    }

    /// The placement on this machine.
    pub fn probe(threads: usize, pinned: bool) -> Self {
        let topology = Topology::probe();
        if topology.nodes.len() == 1 {
            return Self::flat(threads, "this machine has one memory node");
        }
        if !pinned {
            return Self::flat(threads, "threads are not bound to cores");
        }
        Self::on(&topology, threads, || latencies(&topology))
    }

    /// The placement with thread i on core i of a machine. `latencies`: nanoseconds to fetch a line, by the node that fetches
    /// and the node of the line, in the order of the topology's nodes. Only called if threads are on several nodes.
    pub fn on(topology: &Topology, threads: usize, latencies: impl FnOnce() -> io::Result<Vec<Vec<f64>>>) -> Self {
        let cores = &topology.cores;
        let nodes: Vec<usize> = (0..threads).map(|thread| cores[thread % cores.len()].node).collect();
        let mut why = topology.is_mock.then(|| "the topology is a mock".to_string());
        let mut extra = Vec::new();
        if nodes.iter().any(|&node| node != nodes[0]) {
            match latencies() {
                Ok(latencies) => {
                    let at = |node: usize| topology.nodes.partition_point(|&other| other < node);
                    let between = |a: usize, b: usize| (latencies[at(a)][at(b)] - latencies[at(a)][at(a)]).max(0.0);
                    extra = nodes.iter().map(|&a| nodes.iter().map(|&b| between(a, b)).collect()).collect();
                }
                Err(error) => why = Some(format!("latencies between nodes cannot be measured: {error}")),
            }
        }
        Self::of(nodes, extra, why)
    }

    fn of(nodes: Vec<usize>, extra: Vec<Vec<f64>>, why: Option<String>) -> Self {
        let anywhere = extra.iter().flatten().sum::<f64>() / (nodes.len() * nodes.len()) as f64;
        Self { nodes, extra, anywhere, why, homed: false, lines: Vec::new() }
    }

    /// Whether nothing is remote.
    #[inline]
    pub fn is_flat(&self) -> bool {
        self.extra.is_empty()
    }

    /// Binds the memory of tables before rows are loaded: all of it is zero. `homes`: the owner of each equal part of every table;
    /// None if rows have no owner.
    pub fn bind(&mut self, tables: impl Iterator<Item = TableRows>, homes: Option<&[usize]>) {
        self.homed = homes.is_some();
        for TableRows { base, rows, stride } in tables {
            self.lines.push(stride.div_ceil(LINE));
            if self.why.is_some() {
                continue;
            }
            let bytes = rows * stride;
            let bound = match homes {
                Some(homes) => pieces(bytes, homes.len())
                    .zip(homes)
                    .try_for_each(|(piece, &thread)| bind(base as usize, piece, &self.nodes[thread..=thread])),
                None => pieces(bytes, 1).try_for_each(|piece| bind(base as usize, piece, &self.nodes)),
            };
            self.why = bound.err().map(|error| format!("the system cannot bind memory: {error}"));
        }
    }

    /// The additional nanoseconds for thread `to` to fetch adjacent bytes that thread `from` wrote.
    #[inline]
    pub fn fetch(&self, to: usize, from: usize, bytes: usize) -> u64 {
        if self.is_flat() { 0 } else { (bytes.div_ceil(LINE) as f64 * self.extra[to][from]) as u64 }
    }

    /// The same for a row of each of some tables, at an unknown place.
    #[inline]
    pub fn rows(&self, tables: impl Iterator<Item = u8>) -> u64 {
        if self.is_flat() {
            return 0;
        }
        let lines: usize = tables.map(|table| self.lines[usize::from(table)]).sum();
        (lines as f64 * self.anywhere) as u64
    }

    /// The same for one row of each event, unless rows lie on the node of their thread.
    #[inline]
    pub fn events(&self, events: usize) -> u64 {
        if self.homed { 0 } else { self.scattered(events) }
    }

    /// The same, of a thread that takes rows of all threads.
    #[inline]
    pub fn scattered(&self, events: usize) -> u64 {
        (events as f64 * self.anywhere) as u64
    }

    /// For the run report: the binding that took effect, or why none did.
    pub fn to_json(&self) -> Value {
        // The breakdown's time for remote memory comes from this model; it is not measured.
        let remote = (!self.is_flat()).then_some("estimated");
        let longest = self.extra.iter().flatten().fold(0.0, |most: f64, &extra| most.max(extra));
        match &self.why {
            Some(why) => json!({"nodes": null, "tables": null, "why": why, "extra_ns": longest, "remote": remote}),
            None => json!({
                "nodes": self.nodes,
                "tables": if self.homed { "with their threads" } else { "on all nodes in turn" },
                "why": null,
                "extra_ns": longest,
                "remote": remote,
            }),
        }
    }
}

/// Splits bytes into equal parts of whole pages; the rest of the last page is in no part.
fn pieces(bytes: usize, parts: usize) -> impl Iterator<Item = Range<usize>> {
    let cut = move |part: usize| (bytes as u128 * part as u128 / parts as u128) as usize / PAGE * PAGE;
    (0..parts).map(move |part| cut(part)..cut(part + 1))
}

/// Binds pages of zeros to nodes, in turn if there are several, and moves pages that are elsewhere.
fn bind(base: usize, piece: Range<usize>, nodes: &[usize]) -> io::Result<()> {
    const WORD: usize = usize::BITS as usize;
    // From linux/mempolicy.h; the libc crate lacks it.
    const MPOL_MF_MOVE: libc::c_uint = 1 << 1;
    if piece.is_empty() {
        return Ok(());
    }
    let mut mask = [0_usize; 1024 / WORD];
    for &node in nodes {
        *mask.get_mut(node / WORD).ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node % WORD);
    }
    let mode = if nodes.iter().any(|&node| node != nodes[0]) { libc::MPOL_INTERLEAVE } else { libc::MPOL_PREFERRED };
    let (address, flags) = (base + piece.start, MPOL_MF_MOVE);
    if mode == libc::MPOL_INTERLEAVE {
        // The allocator may reuse pages. The system moves none that lies on any of the nodes, so all could be on one. They are
        // given back instead, and new pages of zeros are taken in turn.
        // SAFETY: the pages hold zeros before and after. A system that refuses leaves them where they are.
        unsafe { libc::madvise(address as *mut libc::c_void, piece.len(), libc::MADV_DONTNEED) };
    }
    // SAFETY: says where pages lie, not what is in them; the kernel reads the mask that it is told of.
    let failed = unsafe {
        libc::syscall(libc::SYS_mbind, address, piece.len(), mode, mask.as_ptr(), mask.len() * WORD + 1, flags)
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Nanoseconds to fetch a line, by the node that fetches and the node where it lies; measured once in a process.
fn latencies(topology: &Topology) -> io::Result<Vec<Vec<f64>>> {
    static MEASURED: OnceLock<Result<Vec<Vec<f64>>, io::ErrorKind>> = OnceLock::new();
    let measure = || Ok(Fetching::between_nodes(topology, false)?.nanoseconds);
    MEASURED.get_or_init(|| measure().map_err(|error: io::Error| error.kind())).clone().map_err(io::Error::from)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Two nodes of two cores; a line of the other one takes 60 and 40 ns longer.
    fn two_nodes(threads: usize) -> Placement {
        Placement::on(&Topology::mock(2, 2), threads, || Ok(vec![vec![100.0, 160.0], vec![130.0, 90.0]]))
    }

    fn table(rows: usize, stride: usize) -> TableRows {
        TableRows { base: std::ptr::null_mut(), rows, stride }
    }

    #[test]
    fn fetching_costs_what_lines_of_another_node_take_longer() {
        let placement = two_nodes(4);
        assert_eq!(placement.nodes, [0, 0, 1, 1]);
        assert_eq!([placement.fetch(0, 1, 1000), placement.fetch(3, 3, 1000)], [0, 0]);
        assert_eq!([placement.fetch(0, 2, 64), placement.fetch(1, 3, 65), placement.fetch(2, 0, 1)], [60, 120, 40]);
    }

    #[test]
    fn rows_that_may_lie_anywhere_cost_the_average() {
        let (mut placement, tables) = (two_nodes(4), [table(10, 64), table(10, 200)]);
        placement.bind(tables.into_iter(), None);
        // Of the 16 pairs of threads, 4 fetch for 60 ns and 4 for 40.
        assert_eq!(placement.rows([0, 1, 1].into_iter()), 9 * 25);
        assert_eq!(placement.events(8), 200);
        placement.bind(tables.into_iter(), Some(&[0, 1, 2, 3]));
        assert_eq!(placement.events(8), 0, "they lie with their owners");
    }

    #[test]
    fn on_one_node_nothing_is_remote_and_nothing_is_measured() {
        let measured = || -> io::Result<Vec<Vec<f64>>> { panic!("there is nothing to be measured") };
        let placement = Placement::on(&Topology::mock(2, 4), 3, measured);
        assert_eq!((placement.fetch(0, 2, 1 << 20), placement.events(1 << 20)), (0, 0));
        let why = Placement::probe(2, false).to_json()["why"].clone();
        let is_single = Topology::probe().nodes.len() == 1;
        assert_eq!(why, if is_single { "this machine has one memory node" } else { "threads are not bound to cores" });
    }

    #[test]
    fn parts_are_whole_pages_and_leave_none_out() {
        for (bytes, parts) in [(0, 3), (4095, 2), (10 * PAGE + 5, 1), (10 * PAGE, 4), (1_000_003, 7)] {
            let pieces: Vec<_> = pieces(bytes, parts).collect();
            assert_eq!(pieces.len(), parts);
            assert_eq!((pieces[0].start, pieces[parts - 1].end), (0, bytes / PAGE * PAGE));
            assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(pieces.iter().all(|piece| piece.start % PAGE == 0 && piece.len().abs_diff(bytes / parts) <= PAGE));
        }
    }

    #[test]
    fn pages_are_bound_to_nodes_that_there_are() {
        let memory = vec![0_u64; 1 << 13];
        let base = (memory.as_ptr() as usize).next_multiple_of(PAGE);
        let node = Topology::probe().nodes[0];
        assert!(bind(base, 0..4 * PAGE, &[5000]).is_err());
        assert!(bind(base, 0..0, &[5000]).is_ok(), "no pages");
        match bind(base, 0..4 * PAGE, &[node]) {
            Ok(()) => assert!(bind(base, 0..4 * PAGE, &[1000]).is_err(), "no machine has a node 1000"),
            // Some containers forbid it.
            Err(error) => assert!([libc::EPERM, libc::ENOSYS].contains(&error.raw_os_error().unwrap()), "{error}"),
        }
    }
}
