//! The C ABI of compiled operators: contexts, calling them, and their errors. ABI.md has the byte layouts.

use std::marker::PhantomData;

use crate::error::RunError;
use crate::memory::arena::ArenaHeader;
use crate::rows::block::TEXT_PADDING;
use crate::rows::emitter::Emitter;

/// A context whose last fields hold what the kernel raised.
///
/// # Safety
/// `failure` must return the address and length a kernel wrote, which stay readable until the next call.
pub unsafe trait Context {
    /// Position of the input that raised, and the pickled exception.
    fn failure(&self) -> (i64, *const u8, i64);
}

/// The address of a compiled operator.
#[derive(Debug)]
pub struct Kernel<C> {
    call: extern "C" fn(*mut C) -> i64,
    context: PhantomData<fn(*mut C)>,
}

impl<C> Clone for Kernel<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Kernel<C> {}

/// What a kernel raised: the input's position and the pickled exception.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raised {
    pub at: i64,
    pub exception: Vec<u8>,
}

impl<C: Context> Kernel<C> {
    /// # Safety
    /// `address` is a function `i64 f(C*)` that follows ABI.md and outlives every use of this kernel.
    pub unsafe fn at(address: u64) -> Result<Self, RunError> {
        if address == 0 {
            return Err(RunError::Invalid("a kernel's address is null".into()));
        }
        // SAFETY: the caller says that a function of this type is there; it is not null.
        let call =
            unsafe { std::mem::transmute::<*const (), extern "C" fn(*mut C) -> i64>(address as usize as *const ()) };
        Ok(Self { call, context: PhantomData })
    }

    /// None where there is none: its address is 0.
    ///
    /// # Safety
    /// As for `at`.
    pub unsafe fn maybe_at(address: u64) -> Result<Option<Self>, RunError> {
        // SAFETY: as the caller says.
        (address != 0).then(|| unsafe { Self::at(address) }).transpose()
    }

    /// Runs the kernel on `context`.
    ///
    /// # Safety
    /// Every pointer in the context is valid for what ABI.md says that the kernel does with it.
    #[inline(always)]
    pub unsafe fn call(self, context: &mut C) -> Result<(), Raised> {
        if (self.call)(context) == 0 { Ok(()) } else { Err(Self::raised(context)) }
    }

    #[cold]
    fn raised(context: &C) -> Raised {
        let (at, error, len) = context.failure();
        let exception = if error.is_null() || len <= 0 {
            Vec::new()
        } else {
            // SAFETY: the kernel just wrote address and length of its exception, readable until its next call.
            unsafe { std::slice::from_raw_parts(error, len as usize) }.to_vec()
        };
        Raised { at, exception }
    }
}

/// Stateless, stateful and partitioned operators, and flushes.
#[repr(C)]
#[derive(Debug)]
pub struct BatchContext {
    pub rows: *const u8,
    pub n: i64,
    pub places: *const *const u8,
    pub states: *const *mut u8,
    pub text: *const u8,
    pub emitter: *mut Emitter,
    pub arena: *mut ArenaHeader,
    pub seq: i64,
    pub error_at: i64,
    pub error: *const u8,
    pub error_len: i64,
    pub reserved: i64,
}

impl Default for BatchContext {
    fn default() -> Self {
        // SAFETY: integers and pointers, for which all bits zero are a value.
        unsafe { std::mem::zeroed() }
    }
}

/// One operation of a state transaction.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    pub event: u32,
    pub row: u32,
    pub slot: u32,
    pub function: u16,
    pub table: u8,
    pub kind: u8,
}

/// What an access does; from `CAPTURE` on, `kind - CAPTURE` is the row's number within its condition.
pub mod kind {
    pub const CONDITION: u8 = 0;
    pub const MODIFY: u8 = 1;
    pub const READ: u8 = 2;
    pub const CAPTURE: u8 = 3;
}

impl Access {
    /// Whether this access has to wait until its event is decided.
    #[inline(always)]
    pub fn waits(&self) -> bool {
        self.kind == kind::MODIFY || self.kind == kind::READ
    }
}

/// The decision word of an event.
pub mod decision {
    pub const PENDING: u32 = 0xFFFF;
    pub const FAILED: u32 = 0x3FFF_0000;
    /// One condition that failed.
    pub const FAILURE: u32 = 0x0001_0000;
    pub const DROPPED: u32 = 0x8000_0000;

    /// All conditions were evaluated, or one failed: the event's outcome is known.
    #[inline(always)]
    pub fn is_decided(word: u32) -> bool {
        word & PENDING == 0 || word & FAILED != 0
    }
}

/// The part of a table's index that kernels see.
#[repr(C)]
#[derive(Debug)]
pub struct IndexHeader {
    /// The row of a key, which is an integer (the second argument is 0), or the address and the length of a text. Otherwise
    /// one of the numbers in `row`. The last argument is the address of the context's `lookups`.
    pub find: Find,
}

pub type Find = extern "C" fn(*const IndexHeader, i64, i64, *mut i64) -> i64;

/// What `IndexHeader::find` returns in place of a row.
pub mod row {
    pub const ABSENT: i64 = -1;
    pub const FULL: i64 = -2;
    pub const NO_MEMORY: i64 = -3;
}

/// Compute mode of a transaction.
#[repr(C)]
#[derive(Debug)]
pub struct PlanContext {
    pub rows: *const u8,
    pub begin: i64,
    pub end: i64,
    pub text: *const u8,
    pub accesses: *mut Access,
    pub len: i64,
    pub cap: i64,
    pub grow: extern "C" fn(*mut PlanContext) -> i64,
    pub decisions: *mut u32,
    pub results: *mut u64,
    pub first: *mut u32,
    pub next: *mut u8,
    pub limit: *mut u8,
    pub more: extern "C" fn(*mut PlanContext, i64) -> i64,
    pub captures: *mut u64,
    pub dropped: i64,
    pub error_at: i64,
    pub error: *const u8,
    pub error_len: i64,
    pub owner: *mut u8,
    pub indexes: *const *const IndexHeader,
    pub lookups: i64,
}

/// Rows that meet windows, windows that have expired, windows that have slid.
#[repr(C)]
#[derive(Debug)]
pub struct WindowContext {
    pub rows: *const *const u8,
    pub n: i64,
    pub entries: *const *mut u8,
    pub starts: *const i64,
    /// From where a window begins to where it ends.
    pub span: i64,
    pub text: *const u8,
    pub emitter: *mut Emitter,
    pub seq: i64,
    pub error_at: i64,
    pub error: *const u8,
    pub error_len: i64,
}

impl Default for WindowContext {
    fn default() -> Self {
        // SAFETY: integers and pointers, for which all bits zero are a value.
        unsafe { std::mem::zeroed() }
    }
}

/// State access mode of a transaction.
#[repr(C)]
#[derive(Debug)]
pub struct ApplyContext {
    pub rows: *const u8,
    pub text: *const u8,
    pub accesses: *const Access,
    pub n: i64,
    pub tables: *const *mut u8,
    pub decisions: *mut u32,
    pub results: *const u64,
    pub captures: *const u64,
    pub arena: *mut ArenaHeader,
    pub done: i64,
    pub shared: i64,
    pub error_at: i64,
    pub error: *const u8,
    pub error_len: i64,
}

impl Default for ApplyContext {
    fn default() -> Self {
        // SAFETY: integers and pointers, for which all bits zero are a value.
        unsafe { std::mem::zeroed() }
    }
}

/// Post-processing of a transaction.
#[repr(C)]
#[derive(Debug)]
pub struct PostContext {
    pub rows: *const u8,
    pub begin: i64,
    pub end: i64,
    pub text: *const u8,
    pub decisions: *const u32,
    pub results: *const u64,
    pub emitter: *mut Emitter,
    pub rejected: i64,
    pub error_at: i64,
    pub error: *const u8,
    pub error_len: i64,
}

impl Default for PostContext {
    fn default() -> Self {
        // SAFETY: integers and pointers, for which all bits zero are a value.
        unsafe { std::mem::zeroed() }
    }
}

/// A transaction from plan to outputs, for a thread that is alone with the tables.
#[repr(C)]
#[derive(Debug)]
pub struct ExecuteContext {
    pub rows: *const u8,
    pub begin: i64,
    pub end: i64,
    pub text: *const u8,
    pub tables: *const *mut u8,
    pub arena: *mut ArenaHeader,
    pub emitter: *mut Emitter,
    pub results: *mut u8,
    pub capacity: i64,
    pub more: extern "C" fn(*mut ExecuteContext, i64) -> i64,
    pub dropped: i64,
    pub rejected: i64,
    pub error_at: i64,
    pub error: *const u8,
    pub error_len: i64,
    pub selection: *const u32,
    pub indexes: *const *const IndexHeader,
    pub lookups: i64,
}

/// Where the rows of events lie.
#[repr(C)]
#[derive(Debug)]
pub struct PlaceContext {
    pub rows: *const u8,
    pub begin: i64,
    pub end: i64,
    pub text: *const u8,
    pub places: *mut u32,
    pub error_at: i64,
    pub error: *const u8,
    pub error_len: i64,
    pub indexes: *const *const IndexHeader,
    pub lookups: i64,
}

/// The start of an entry, the state of a key in a window. The fields of the key, its states and the bytes of its texts follow.
#[repr(C)]
#[derive(Debug)]
pub struct EntryHeader {
    /// The header is private to the runtime. This is the hash of the key.
    pub hash: u64,
    /// For single windows, the entry before it in a list. For others, the entry of the same key in the next window, which
    /// expires later; null: no look-up from here has found it yet.
    pub beside: *mut EntryHeader,
}

/// What lies before an entry: all of it if windows are single, of others the arena, if their states have containers.
#[repr(C)]
#[derive(Debug)]
pub struct BeforeEntry {
    /// The runtime's own: the latest `ts` of the key's rows.
    pub last: i64,
    /// Of a session the earliest `ts` of the key's rows. The runtime writes the first one, and `update` earlier ones.
    pub start: i64,
    /// The runtime's own: of a session how many of its cell began before it.
    pub order: i64,
    /// The runtime's own: the entry behind it in a list.
    pub next: *mut EntryHeader,
    /// Where its containers grow; null if there are none.
    pub arena: *mut ArenaHeader,
}

impl BeforeEntry {
    /// # Safety
    /// What is asked for lies before the entry.
    #[inline(always)]
    pub unsafe fn of(entry: *mut EntryHeader) -> *mut Self {
        entry.cast::<Self>().wrapping_sub(1)
    }
}

/// The structs of the ABI: what stands here is held against the structs above, and told to Python, which builds kernels.
macro_rules! layouts {
    ($($name:ident $size:literal { $($field:ident $offset:literal),* })*) => {
        const _: () = {
            $(
                assert!(size_of::<$name>() == $size);
                $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
            )*
        };
        /// Per struct its size, and the offset of each field.
        pub const LAYOUTS: &[(&str, usize, &[(&str, usize)])] =
            &[$((stringify!($name), $size, &[$((stringify!($field), $offset)),*])),*];
    };
}

layouts! {
    Emitter 64 { rows 0, len 8, cap 16, grow 24, origin 32, dropped 40, owner 48, home 56 }
    ArenaHeader 16 { alloc 0, texts 8 }
    BatchContext 96 {
        rows 0, n 8, places 16, states 24, text 32, emitter 40, arena 48, seq 56, error_at 64, error 72, error_len 80
    }
    WindowContext 88 {
        rows 0, n 8, entries 16, starts 24, span 32, text 40, emitter 48, seq 56, error_at 64, error 72, error_len 80
    }
    EntryHeader 16 { hash 0, beside 8 }
    BeforeEntry 40 { last 0, start 8, order 16, next 24, arena 32 }
    Access 16 { event 0, row 4, slot 8, function 12, table 14, kind 15 }
    IndexHeader 8 { find 0 }
    PlanContext 176 {
        rows 0, begin 8, end 16, text 24, accesses 32, len 40, cap 48, grow 56, decisions 64, results 72, first 80, next 88,
        limit 96, more 104, captures 112, dropped 120, error_at 128, error 136, error_len 144, owner 152,
        indexes 160, lookups 168
    }
    ApplyContext 112 {
        rows 0, text 8, accesses 16, n 24, tables 32, decisions 40, results 48, captures 56, arena 64, done 72, shared 80,
        error_at 88, error 96, error_len 104
    }
    PostContext 88 {
        rows 0, begin 8, end 16, text 24, decisions 32, results 40, emitter 48, rejected 56, error_at 64, error 72,
        error_len 80
    }
    ExecuteContext 144 {
        rows 0, begin 8, end 16, text 24, tables 32, arena 40, emitter 48, results 56, capacity 64, more 72, dropped 80,
        rejected 88, error_at 96, error 104, error_len 112, selection 120,
        indexes 128, lookups 136
    }
    PlaceContext 80 {
        rows 0, begin 8, end 16, text 24, places 32, error_at 40, error 48, error_len 56, indexes 64, lookups 72
    }
}

/// A kernel that takes selected events may look so many entries further, to fetch events ahead.
pub const SELECTION_AHEAD: usize = 8;

/// What the words of the ABI mean, told to Python likewise.
pub const CONSTANTS: &[(&str, u32)] = &[
    ("CONDITION", kind::CONDITION as u32),
    ("MODIFY", kind::MODIFY as u32),
    ("READ", kind::READ as u32),
    ("CAPTURE", kind::CAPTURE as u32),
    ("PENDING", decision::PENDING),
    ("FAILED", decision::FAILED),
    ("DROPPED", decision::DROPPED),
    ("ABSENT", -row::ABSENT as u32),
    ("FULL", -row::FULL as u32),
    ("NO_MEMORY", -row::NO_MEMORY as u32),
    ("TEXT_PADDING", TEXT_PADDING as u32),
    ("SELECTION_AHEAD", SELECTION_AHEAD as u32),
    ("TEXT_CONCAT", 0),
    ("TEXT_LOWER", 1),
    ("TEXT_UPPER", 2),
    ("TEXT_DECIMAL", 3),
    ("TEXT_INTEGER", 4),
    ("TEXT_FLOAT", 5),
    ("TEXT_RELEASE", 6),
];

macro_rules! context {
    ($($name:ident)*) => {$(
        // SAFETY: the fields are written by the kernel that failed, as ABI.md says.
        unsafe impl Context for $name {
            fn failure(&self) -> (i64, *const u8, i64) {
                (self.error_at, self.error, self.error_len)
            }
        }
    )*};
}

context!(BatchContext WindowContext PlanContext ApplyContext PostContext ExecuteContext PlaceContext);
