//! The window whose slices are merged: the one that expires, or comes next to it.

use crate::dataflow::windowed::watermark::NONE;
use crate::state::windows::pane::Pane;

/// See the module.
#[derive(Debug)]
pub(super) struct Merged {
    pub number: i64,
    /// Its cells that are left, the first one last; `began`: those that it has are listed.
    pub cells: Vec<u16>,
    pub began: bool,
    /// Merged entries, until the kernel has taken them.
    pub pane: Pane,
}

impl Default for Merged {
    fn default() -> Self {
        Self { number: NONE, cells: Vec::new(), began: false, pane: Pane::default() }
    }
}
