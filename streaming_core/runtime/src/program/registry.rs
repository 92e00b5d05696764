//! Registries: what the options' names stand for.

use crate::error::RunError;

/// What `name` stands for in a registry, whose first entry is the default. `axis`: what is chosen; `of`: by whom, if it is
/// not everybody's.
///
/// # Errors
/// `Invalid`: there is none of that name.
pub(crate) fn find<T: Copy>(axis: &str, of: &str, name: Option<&str>, known: &[(&str, T)]) -> Result<T, RunError> {
    let name = name.unwrap_or(known[0].0);
    known.iter().find(|(other, _)| *other == name).map(|(_, entry)| *entry).ok_or_else(|| {
        let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        RunError::Invalid(format!("unknown {axis} {name:?}{of}; known: {}", known.join(", ")))
    })
}
