//! Columns: how the bytes of a row's fields are read.

use serde::Deserialize;

/// How the bytes of a field are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnKind {
    Text,
    Boolean,
    /// Whether the field before this one has a value. It adds a word to the digest only if it has none.
    Valid,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    F64,
}

impl ColumnKind {
    pub fn bytes(self) -> usize {
        match self {
            Self::Boolean | Self::Valid | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 => 4,
            Self::I64 | Self::F64 | Self::Text => 8,
        }
    }

    /// The field at `field` as 64 bits: integers extended, doubles as bits.
    ///
    /// # Safety
    /// `field` has `self.bytes()` readable bytes; `self` is not Text.
    #[inline(always)]
    pub unsafe fn load(self, field: *const u8) -> u64 {
        // SAFETY: as the caller says.
        unsafe {
            match self {
                Self::Boolean | Self::Valid | Self::U8 => u64::from(field.read()),
                Self::I8 => field.cast::<i8>().read() as u64,
                Self::I16 => field.cast::<i16>().read_unaligned() as u64,
                Self::I32 => field.cast::<i32>().read_unaligned() as u64,
                Self::U16 => u64::from(field.cast::<u16>().read_unaligned()),
                Self::U32 => u64::from(field.cast::<u32>().read_unaligned()),
                Self::I64 | Self::F64 | Self::Text => field.cast::<u64>().read_unaligned(),
            }
        }
    }
}

/// A column of the output rows: `count` adjacent fields at `offset` (an array if more than one).
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub kind: ColumnKind,
    pub offset: usize,
    #[serde(default = "scalar_count")]
    pub count: usize,
}

pub(crate) fn scalar_count() -> usize {
    1
}
