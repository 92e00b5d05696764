//! The order of layers: what `lib.rs` and the `mod.rs` of the two families of executors list from the bottom up is read in
//! one direction only, and no two files use each other, directly or by way of others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom up; what is not listed within a folder may use all of its lower neighbours, as long as nothing is a circle.
const LAYERS: &[&str] = &[
    "error",
    "interruption",
    "threads",
    "rows",
    "memory",
    "output",
    "program",
    "state",
    "executor",
    "dataflow",
    "transactions",
    "engine",
    "python",
];
/// Executors, and schemes, know nothing of each other.
const APART: &[(&str, &[&str])] = &[
    ("dataflow", &["pooled", "pinned", "morsel"]),
    ("transactions/scheme", &["owners", "tstream", "serial", "ahead"]),
    ("transactions/scheme", &["lock", "mvlk", "pat", "owners", "tstream", "serial", "no_lock"]),
];

/// Every file of the crate that is no test's, by its module's path.
fn modules(folder: &Path, path: &str, found: &mut BTreeMap<String, String>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        let stem = entry.file_stem().unwrap().to_str().unwrap().to_owned();
        let below = if path.is_empty() { stem.clone() } else { format!("{path}/{stem}") };
        if entry.is_dir() {
            modules(&entry, &below, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") && stem != "lib" {
            let text = fs::read_to_string(&entry).unwrap();
            found.insert(if stem == "mod" { path.to_owned() } else { below }, production(&text));
        }
    }
    found
        .retain(|module, _| !["tests", "models", "testing"].iter().any(|test| module.split('/').any(|at| at == *test)));
}

/// A file without its modules of tests and its comments.
fn production(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_test = |pair: &[&str]| pair[0].starts_with("#[cfg(all(test") && pair[1].starts_with("mod ");
    let end = lines.windows(2).position(is_test).unwrap_or(lines.len());
    let code = lines[..end].iter().filter(|line| !line.trim_start().starts_with("//"));
    code.copied().collect::<Vec<_>>().join("\n")
}

/// What a file names of the crate: `crate::` paths, with what stands in braces, and children named without it.
fn paths(text: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let name =
            |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':').collect::<String>();
        let prefix = name(rest);
        match rest[prefix.len()..].strip_prefix('{') {
            Some(inner) => {
                let inner = &inner[..inner.find('}').unwrap()];
                paths.extend(inner.split(',').map(|one| format!("{prefix}{}", name(one.trim()))));
            }
            None => paths.push(prefix),
        }
    }
    paths.into_iter().map(|path| path.replace("::", "/")).collect()
}

/// The module that a path leads to, the longest there is.
fn module<'a>(path: &str, modules: &'a BTreeMap<String, String>) -> Option<&'a str> {
    let mut path = path.to_owned();
    loop {
        if let Some((module, _)) = modules.get_key_value(&path) {
            return Some(module);
        }
        path.truncate(path.rfind('/')?);
    }
}

/// Per module those that it uses.
fn graph() -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::new();
    modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut all);
    all.iter()
        .map(|(from, text)| {
            let mut uses: BTreeSet<String> =
                paths(text).iter().filter_map(|path| module(path, &all)).map(String::from).collect();
            // A folder's children, as `child::item`.
            for to in all.keys().filter(|to| to.strip_prefix(from.as_str()).is_some_and(|rest| rest.starts_with('/'))) {
                let child = to[from.len() + 1..].replace('/', "::");
                let named = format!("{child}::");
                let mut named = text.match_indices(&named);
                if named.any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')) {
                    uses.insert(to.clone());
                }
            }
            uses.remove(from);
            (from.clone(), uses)
        })
        .collect()
}

#[test]
fn nobody_uses_what_is_above() {
    let layer = |module: &str| {
        let top = module.split('/').next().unwrap();
        LAYERS.iter().position(|layer| *layer == top).unwrap_or_else(|| panic!("{top} is no layer"))
    };
    let mut broken = Vec::new();
    for (from, uses) in graph() {
        broken.extend(uses.into_iter().filter(|to| layer(to) > layer(&from)).map(|to| format!("{from} uses {to}")));
    }
    assert!(broken.is_empty(), "what is used stands above: {broken:#?}");
}

#[test]
fn executors_and_schemes_know_nothing_of_each_other() {
    let within = |module: &str, folder: &str| module == folder || module.starts_with(&format!("{folder}/"));
    for (from, uses) in graph() {
        for (folder, parts) in APART {
            let part = |module: &str| parts.iter().find(|part| within(module, &format!("{folder}/{part}")));
            for to in &uses {
                if let (Some(one), Some(other)) = (part(&from), part(to)) {
                    assert_eq!(one, other, "{from} uses {to}");
                }
            }
        }
    }
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let graph = graph();
    assert!(graph.len() > 60, "{} modules were found", graph.len());
    // Whoever comes back to itself is in a circle.
    let reaches_itself = |start: &String| {
        let (mut met, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(at) = next.pop() {
            next.extend(graph[at].iter().filter(|to| met.insert(*to)));
        }
        met.contains(start)
    };
    let circles: Vec<&String> = graph.keys().filter(|module| reaches_itself(module)).collect();
    assert!(circles.is_empty(), "{circles:#?}");
}
