//! The output side of a kernel.

/// The output side of a kernel; always the first field of a `batch::RowBuffer`.
#[repr(C)]
#[derive(Debug)]
pub struct Emitter {
    pub rows: *mut u8,
    pub len: i64,
    pub cap: i64,
    pub grow: extern "C" fn(*mut Emitter) -> i64,
    pub origin: *mut u32,
    pub dropped: i64,
    pub owner: *mut u8,
    /// Puts a text where output rows can name it: its place there, -1 if there is no room.
    pub home: extern "C" fn(*mut Emitter, *const u8, i64) -> i64,
}
