//! Sockets, nodes, cores, distances, caches; binding threads to cores.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Core {
    /// The operating system's number.
    pub id: usize,
    pub socket: usize,
    pub node: usize,
    /// Number of the physical core within its socket; hardware threads of one core share it.
    pub physical: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cache {
    pub level: usize,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    pub bytes: usize,
    /// Cores that share it, for each such cache.
    pub shared_by: Vec<Vec<usize>>,
}

/// The machine as this process may use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// Cores that this process may run on. Threads are bound to them in this order: one hardware thread per physical core
    /// first, node by node.
    pub cores: Vec<Core>,
    pub sockets: usize,
    pub nodes: Vec<usize>,
    /// ACPI distance between nodes, in the order of `nodes`.
    pub distances: Vec<Vec<usize>>,
    pub caches: Vec<Cache>,
    /// Whether nodes and distances were made up, because the machine has one node.
    pub is_mock: bool,
}

impl Topology {
    /// This machine.
    pub fn probe() -> Self {
        let allowed = affinity().unwrap_or_default();
        Self::read(Path::new("/sys/devices/system"), &allowed)
    }

    /// A machine of `nodes` sockets with one node each, for testing what depends on NUMA where there is none.
    pub fn mock(nodes: usize, cores_per_node: usize) -> Self {
        let core = |id: usize| Core {
            id,
            socket: id / cores_per_node,
            node: id / cores_per_node,
            physical: id % cores_per_node,
        };
        let distance = |a: usize, b: usize| if a == b { 10 } else { 21 };
        Self {
            cores: (0..nodes * cores_per_node).map(core).collect(),
            sockets: nodes,
            nodes: (0..nodes).collect(),
            distances: (0..nodes).map(|a| (0..nodes).map(|b| distance(a, b)).collect()).collect(),
            caches: Vec::new(),
            is_mock: true,
        }
    }

    /// From a sysfs tree; `allowed`: cores of this process (empty: all that are there).
    fn read(root: &Path, allowed: &[usize]) -> Self {
        let number = |path: &Path| -> Option<usize> { fs::read_to_string(path).ok()?.trim().parse().ok() };
        let mut node_of = BTreeMap::new();
        let mut nodes = numbered(&root.join("node"), "node");
        for &node in &nodes {
            let list = fs::read_to_string(root.join(format!("node/node{node}/cpulist"))).unwrap_or_default();
            node_of.extend(parse_list(&list).into_iter().map(|core| (core, node)));
        }
        let mut distances: Vec<Vec<usize>> = nodes
            .iter()
            .map(|node| {
                let line = fs::read_to_string(root.join(format!("node/node{node}/distance"))).unwrap_or_default();
                line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
            })
            .collect();
        if nodes.is_empty() || distances.iter().any(|row| row.len() != nodes.len()) {
            nodes = vec![0];
            distances = vec![vec![10]];
            node_of.clear();
        }
        let present = numbered(&root.join("cpu"), "cpu");
        let mut cores: Vec<Core> = present
            .iter()
            .filter(|core| allowed.is_empty() || allowed.contains(core))
            .map(|&id| {
                let topology = root.join(format!("cpu/cpu{id}/topology"));
                Core {
                    id,
                    socket: number(&topology.join("physical_package_id")).unwrap_or(0),
                    node: node_of.get(&id).copied().unwrap_or(nodes[0]),
                    physical: number(&topology.join("core_id")).unwrap_or(id),
                }
            })
            .collect();
        if cores.is_empty() {
            let ids = if allowed.is_empty() { &[0][..] } else { allowed };
            cores = ids.iter().map(|&id| Core { id, socket: 0, node: nodes[0], physical: id }).collect();
        }
        order_for_binding(&mut cores);
        let mut caches: BTreeMap<(usize, String), Cache> = BTreeMap::new();
        for core in &cores {
            let folder = root.join(format!("cpu/cpu{}/cache", core.id));
            for index in numbered(&folder, "index") {
                let read =
                    |name: &str| fs::read_to_string(folder.join(format!("index{index}/{name}"))).unwrap_or_default();
                let (Some(level), Some(bytes)) =
                    (number(&folder.join(format!("index{index}/level"))), size(&read("size")))
                else {
                    continue;
                };
                let kind = read("type").trim().to_string();
                let sharers = parse_list(&read("shared_cpu_list"));
                let cache = caches.entry((level, kind.clone())).or_insert_with(|| Cache {
                    level,
                    kind,
                    bytes,
                    shared_by: Vec::new(),
                });
                if !cache.shared_by.contains(&sharers) {
                    cache.shared_by.push(sharers);
                }
            }
        }
        let mut sockets: Vec<usize> = cores.iter().map(|core| core.socket).collect();
        sockets.sort_unstable();
        sockets.dedup();
        Self {
            sockets: sockets.len(),
            is_mock: nodes.len() == 1,
            cores,
            nodes,
            distances,
            caches: caches.into_values().collect(),
        }
    }
}

/// One hardware thread per physical core first, node by node; the siblings after all of them.
fn order_for_binding(cores: &mut [Core]) {
    cores.sort_by_key(|core| core.id);
    let mut seen: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut rank: BTreeMap<usize, usize> = BTreeMap::new();
    for core in cores.iter() {
        let siblings = seen.entry((core.socket, core.physical)).or_insert(0);
        rank.insert(core.id, *siblings);
        *siblings += 1;
    }
    cores.sort_by_key(|core| (rank[&core.id], core.node, core.id));
}

/// The numbers of entries `<prefix><number>` in a folder, ascending.
fn numbered(folder: &Path, prefix: &str) -> Vec<usize> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut numbers: Vec<usize> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// `0-3,8` as numbers.
fn parse_list(list: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(low), Ok(high)) = (low.parse::<usize>(), high.parse::<usize>()) {
            numbers.extend(low..=high);
        }
    }
    numbers
}

/// `48K` as bytes.
fn size(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    Some(digits.parse::<usize>().ok()? * unit)
}

/// Room for machines beyond the 1024 cores of `cpu_set_t`.
const MASK_WORDS: usize = 128;

/// The cores the calling thread may run on.
pub fn affinity() -> io::Result<Vec<usize>> {
    let mut mask = [0_u64; MASK_WORDS];
    // SAFETY: the kernel writes at most the size it is told.
    let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((0..MASK_WORDS * 64).filter(|core| mask[core / 64] >> (core % 64) & 1 == 1).collect())
}

/// Lets the calling thread run on these cores only.
pub fn bind(cores: &[usize]) -> io::Result<()> {
    let mut mask = [0_u64; MASK_WORDS];
    for &core in cores.iter().filter(|&&core| core < MASK_WORDS * 64) {
        mask[core / 64] |= 1 << (core % 64);
    }
    // SAFETY: the kernel reads the size it is told.
    let failed = unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) };
    if failed != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Binds the calling thread to a core until dropped, then lets it run where it could before.
#[derive(Debug)]
pub struct Bound {
    before: Vec<usize>,
}

impl Bound {
    pub fn to(core: usize) -> io::Result<Self> {
        let before = affinity()?;
        bind(&[core])?;
        Ok(Self { before })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // A failure has no consequence: the thread stays where it is.
        let _ = bind(&self.before);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn two_sockets_with_hardware_threads_are_read() {
        let root = std::env::temp_dir().join(format!("topology-{}", std::process::id()));
        for core in 0..8 {
            write(&root, &format!("cpu/cpu{core}/topology/physical_package_id"), &format!("{}\n", core / 2 % 2));
            write(&root, &format!("cpu/cpu{core}/topology/core_id"), &format!("{}\n", core % 2));
            write(&root, &format!("cpu/cpu{core}/cache/index0/level"), "1\n");
            write(&root, &format!("cpu/cpu{core}/cache/index0/type"), "Data\n");
            write(&root, &format!("cpu/cpu{core}/cache/index0/size"), "48K\n");
            let low = core % 4;
            write(&root, &format!("cpu/cpu{core}/cache/index0/shared_cpu_list"), &format!("{low},{}\n", low + 4));
        }
        write(&root, "node/node0/cpulist", "0-1,4-5\n");
        write(&root, "node/node1/cpulist", "2-3,6-7\n");
        write(&root, "node/node0/distance", "10 21\n");
        write(&root, "node/node1/distance", "21 10\n");
        let topology = Topology::read(&root, &[0, 1, 2, 3, 4, 6, 7]);
        fs::remove_dir_all(&root).unwrap();
        let ids: Vec<usize> = topology.cores.iter().map(|core| core.id).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 6, 7]);
        assert_eq!((topology.sockets, topology.nodes.len(), topology.is_mock), (2, 2, false));
        assert_eq!(topology.distances, [[10, 21], [21, 10]]);
        assert_eq!(topology.cores[2].node, 1);
        assert_eq!((topology.caches[0].bytes, topology.caches[0].shared_by.len()), (48 << 10, 4));
    }

    #[test]
    fn nothing_readable_is_one_node() {
        let topology = Topology::read(Path::new("/nonexistent"), &[3]);
        assert_eq!((topology.cores[0].id, topology.nodes.len(), topology.is_mock), (3, 1, true));
    }

    #[test]
    fn binding_is_undone() {
        let before = affinity().unwrap();
        let core = *before.last().unwrap();
        let bound = Bound::to(core).unwrap();
        assert_eq!(affinity().unwrap(), [core]);
        drop(bound);
        assert_eq!(affinity().unwrap(), before);
    }

    #[test]
    fn a_mock_has_distances() {
        let topology = Topology::mock(4, 10);
        assert_eq!((topology.cores.len(), topology.distances[1][3]), (40, 21));
    }
}
