//! The order of layers: a module uses only modules at or below its own layer. No two files use each other, directly or by way of
//! others. Test code counts: `#[cfg(test)]` modules, models for loom and shuttle, `testing/` folders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Bottom to top. Folders that are not split here may use each other, as long as no cycle results.
const LAYERS: &[&str] = &[
    "error",
    "interruption",
    "planted",
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
/// Executors are independent of each other, and so are schemes.
const APART: &[(&str, &[&str])] = &[
    ("dataflow", &["pooled", "pinned", "morsel", "share"]),
    ("transactions/scheme", &["owners", "tstream", "serial", "ahead"]),
    ("transactions/scheme", &["lock", "mvlk", "pat", "owners", "tstream", "serial", "no_lock"]),
];

/// A path of modules and items below the crate's root.
type Names = Vec<String>;

/// Every file below `folder`, by its module: `transactions/scheme/tstream` for `transactions/scheme/tstream/mod.rs`.
fn modules(folder: &Path, path: &[String], all: &mut BTreeMap<Names, TokenStream>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        let stem = entry.file_stem().unwrap().to_str().unwrap().to_owned();
        let below = [path, std::slice::from_ref(&stem)].concat();
        if entry.is_dir() {
            modules(&entry, &below, all);
        } else if entry.extension().is_some_and(|extension| extension == "rs") && stem != "lib" {
            let text = fs::read_to_string(&entry).unwrap();
            all.insert(if stem == "mod" { path.to_vec() } else { below }, text.parse().unwrap());
        }
    }
}

/// The paths a file names, as written; each with the module around it, which may be one within the file.
#[derive(Default)]
struct Paths {
    /// With the name that the import introduces.
    imports: Vec<(Names, Names, String)>,
    others: Vec<(Names, Names)>,
}

impl Paths {
    /// Reads the tokens of a file or a part of it. Comments and strings are no such tokens.
    fn read(&mut self, tokens: TokenStream, within: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = &tokens[..];
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            match first {
                TokenTree::Group(group) => self.read(group.stream(), within),
                TokenTree::Ident(word) if word == "pub" => {
                    // What may see an item says nothing of what the item uses.
                    if let [TokenTree::Group(group), ..] = rest
                        && group.delimiter() == Delimiter::Parenthesis
                    {
                        rest = &rest[1..];
                    }
                }
                TokenTree::Ident(word) if word == "mod" => {
                    if let [TokenTree::Ident(name), TokenTree::Group(body), ..] = rest {
                        self.read(body.stream(), &[within, &[name.to_string()]].concat());
                        rest = &rest[2..];
                    }
                }
                // Not the `use<...>` of a type.
                TokenTree::Ident(word) if word == "use" && !rest.first().is_some_and(|token| is(token, '<')) => {
                    let end = rest.iter().position(|token| is(token, ';')).unwrap_or(rest.len());
                    self.import(&rest[..end], &[], within);
                    rest = &rest[end..];
                }
                TokenTree::Ident(_) => {
                    let (names, after) = names(first, rest);
                    rest = after;
                    if names.len() > 1 {
                        self.others.push((within.to_vec(), names));
                    }
                }
                _ => {}
            }
        }
    }

    /// Reads what follows `use`, or one of the alternatives in braces.
    fn import(&mut self, tree: &[TokenTree], prefix: &[String], within: &[String]) {
        let Some((first, rest)) = tree.split_first() else { return };
        match first {
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for item in inner.split(|token| is(token, ',')) {
                    self.import(item, prefix, within);
                }
            }
            TokenTree::Ident(_) => {
                let (mut path, rest) = names(first, rest);
                if path == ["self"] && !prefix.is_empty() {
                    path.clear();
                }
                let path = [prefix, &path].concat();
                match rest {
                    [TokenTree::Punct(_), TokenTree::Punct(_), more @ ..] => self.import(more, &path, within),
                    [TokenTree::Ident(_), alias] => self.imports.push((within.to_vec(), path, alias.to_string())),
                    _ => {
                        let name = path.last().unwrap().clone();
                        self.imports.push((within.to_vec(), path, name));
                    }
                }
            }
            // `*`
            _ => self.others.push((within.to_vec(), prefix.to_vec())),
        }
    }
}

fn is(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

/// `first`, and the names that follow it after `::`; with the tokens after them.
fn names<'a>(first: &TokenTree, mut rest: &'a [TokenTree]) -> (Names, &'a [TokenTree]) {
    let mut names = vec![first.to_string()];
    while let [colon, second_colon, TokenTree::Ident(name), after @ ..] = rest
        && is(colon, ':')
        && is(second_colon, ':')
    {
        names.push(name.to_string());
        rest = after;
    }
    (names, rest)
}

/// Where a path leads that is written in module `within`; nowhere if it starts with a name of another crate.
fn absolute(path: &[String], within: &[String], all: &BTreeMap<Names, TokenStream>) -> Option<Names> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => absolute(rest, within, all).or_else(|| Some([within, rest].concat())),
        "super" => {
            let parent = &within[..within.len() - 1];
            let parents = rest.iter().take_while(|name| *name == "super").count();
            Some([&parent[..parent.len() - parents], &rest[parents..]].concat())
        }
        _ => {
            let child = [within, std::slice::from_ref(first)].concat();
            all.contains_key(&child).then(|| [within, path].concat())
        }
    }
}

/// The files that file `from` uses.
fn uses(from: &Names, all: &BTreeMap<Names, TokenStream>) -> BTreeSet<String> {
    let mut paths = Paths::default();
    paths.read(all[from].clone(), from);
    let (mut targets, mut imported) = (BTreeSet::new(), BTreeMap::<&str, BTreeSet<Names>>::new());
    for (within, path, name) in &paths.imports {
        if let Some(path) = absolute(path, within, all) {
            imported.entry(name).or_default().insert(path.clone());
            targets.insert(path);
        }
    }
    for (within, path) in &paths.others {
        targets.extend(absolute(path, within, all));
        // A path that begins with an imported name goes on from there.
        for import in imported.get(path[0].as_str()).into_iter().flatten() {
            targets.insert([import, &path[1..]].concat());
        }
    }
    let file = |path: &Names| {
        let length = (1..=path.len()).rev().find(|&length| all.contains_key(&path[..length]));
        path[..length.unwrap_or_else(|| panic!("{}: no file has {}", from.join("/"), path.join("::")))].join("/")
    };
    let mut uses: BTreeSet<String> = targets.iter().map(file).collect();
    uses.remove(&from.join("/"));
    uses
}

/// For each file, the files that it uses.
fn graph() -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::new();
    modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &[], &mut all);
    all.keys().map(|from| (from.join("/"), uses(from, &all))).collect()
}

#[test]
fn modules_use_only_their_own_layer_and_lower_ones() {
    let layer = |module: &str| {
        let top = module.split('/').next().unwrap();
        LAYERS.iter().position(|layer| *layer == top).unwrap_or_else(|| panic!("{top} is no layer"))
    };
    let mut broken = Vec::new();
    for (from, uses) in graph() {
        broken.extend(uses.into_iter().filter(|to| layer(to) > layer(&from)).map(|to| format!("{from} uses {to}")));
    }
    assert!(broken.is_empty(), "these modules use a higher layer: {broken:#?}");
}

#[test]
fn executors_and_schemes_are_independent() {
    let within = |module: &str, folder: &str| module == folder || module.starts_with(&format!("{folder}/"));
    for (from, uses) in graph() {
        for (folder, parts) in APART {
            let part = |module: &str| parts.iter().find(|part| within(module, &format!("{folder}/{part}")));
            for to in &uses {
                if let (Some(user), Some(used)) = (part(&from), part(to)) {
                    assert_eq!(user, used, "{from} uses {to}");
                }
            }
        }
    }
}

#[test]
fn no_files_use_each_other_in_a_cycle() {
    let graph = graph();
    assert!(graph.len() > 150, "only {} modules in the crate", graph.len());
    let reaches = |start: &str, end: &str| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(at) = next.pop() {
            next.extend(graph[at].iter().map(String::as_str).filter(|to| reached.insert(*to)));
        }
        reached.contains(end)
    };
    let mut cycles = Vec::new();
    for (from, uses) in &graph {
        cycles.extend(uses.iter().filter(|to| reaches(to, from)).map(|to| format!("{from} uses {to}")));
    }
    assert!(cycles.is_empty(), "these uses close a cycle: {cycles:#?}");
}

#[test]
fn the_graph_has_uses_of_tests_and_within_functions() {
    let tokens = r#"
        //! crate::in_a_comment::Item
        use crate::rows::{block::{self, Block}, texts::*, union::Union as All};
        pub(in crate::not_a_use) mod below;
        fn f() -> impl Iterator<Item = u8> + use<> {
            use crate::memory::arena::Arena;
            let text = "crate::in_a_string::Item";
            assert_eq!(crate::output::digest::of(text), super::neighbour::of(block::EMPTY));
        }
        #[cfg(all(test, loom))]
        mod loom_tests {
            use super::*;
            #[test]
            fn g() {
                crate::engine::make();
            }
        }
    "#;
    let file: Names = ["state", "table"].map(String::from).to_vec();
    let mut all = BTreeMap::new();
    let known = "rows/block rows/texts rows/union memory/arena output/digest state/neighbour engine in_a_comment in_a_string not_a_use";
    for module in known.split_whitespace() {
        all.insert(module.split('/').map(String::from).collect(), TokenStream::new());
    }
    all.insert(file.clone(), tokens.parse().unwrap());
    let wanted =
        ["engine", "memory/arena", "output/digest", "rows/block", "rows/texts", "rows/union", "state/neighbour"];
    assert_eq!(uses(&file, &all), wanted.map(String::from).into());
}
