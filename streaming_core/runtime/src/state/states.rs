//! Keys with what they stand for, in the order of the keys: how states and tables leave the runtime.

/// Keys and their states or rows, ascending by key. A stateful operator has one state and no keys, and the rows of a dense
/// table are in the order of their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct States {
    pub keys: Keys,
    /// States or rows of one size. Containers in them point into memory that lives as long as the executor.
    pub states: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys {
    None,
    Integers(Vec<i64>),
    Texts(Vec<Vec<u8>>),
    /// Keys of several fields: a column for each.
    Fields(Vec<Keys>),
}

impl Keys {
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Integers(keys) => keys.len(),
            Self::Texts(keys) => keys.len(),
            Self::Fields(columns) => columns.first().map_or(0, Self::len),
        }
    }
}
