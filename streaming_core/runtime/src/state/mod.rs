//! State: shared tables, the containers in their rows, and keyed state.

mod container;
pub mod image;
pub mod index;
pub mod key_group;
pub mod key_index;
pub mod key_range;
pub mod keyed;
pub mod states;
pub mod table;
pub mod windows;
