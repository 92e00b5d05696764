//! Row buffers: growing arrays of rows that kernels emit into.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::ptr::{copy_nonoverlapping, null_mut};

use crate::error::RunError;
use crate::rows::block::SEQ_BYTES;
use crate::rows::emitter::Emitter;
use crate::rows::texts::{Room, Texts};
use crate::threads::sync::Arc;

const ALIGN: usize = 64;

/// A growing array of rows that kernels emit into; memory is kept when it is cleared.
#[derive(Debug)]
pub struct RowBuffer {
    inner: Box<BufferState>,
}

#[repr(C)]
#[derive(Debug)]
struct BufferState {
    emitter: Emitter,
    stride: usize,
    origins: bool,
    /// Where texts go that rows emitted here are to name, if kernels give such.
    room: Option<Room>,
}

// SAFETY: the buffer owns its memory; nothing in it refers to the thread that made it.
unsafe impl Send for RowBuffer {}
// SAFETY: a shared reference only reads; the emitting thread holds it alone.
unsafe impl Sync for RowBuffer {}

impl RowBuffer {
    /// Rows of `stride` bytes; with `origins`, each beside the position of the input that emitted it.
    pub fn new(stride: usize, origins: bool) -> Self {
        assert!(stride >= SEQ_BYTES, "a row must have room for its seq");
        let emitter = Emitter {
            rows: ALIGN as *mut u8,
            len: 0,
            cap: 0,
            grow,
            origin: null_mut(),
            dropped: 0,
            owner: null_mut(),
            home,
        };
        Self { inner: Box::new(BufferState { emitter, stride, origins, room: None }) }
    }

    /// From now on kernels that emit here may give texts that lie anywhere.
    pub fn make_texts(&mut self, texts: Option<&Arc<Texts>>) {
        if let Some(texts) = texts {
            self.inner.room.get_or_insert_with(|| Room::new(texts.clone()));
        }
    }

    /// The address for a context, valid as long as the buffer, while no other thread uses it.
    pub fn emitter(&mut self) -> *mut Emitter {
        (&raw mut *self.inner).cast()
    }

    pub fn stride(&self) -> usize {
        self.inner.stride
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.inner.emitter.len as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets the rows, keeps the memory.
    pub fn clear(&mut self) {
        self.inner.emitter.len = 0;
    }

    /// Forgets all rows but the first `len`; there are at least as many.
    pub fn truncate(&mut self, len: usize) {
        debug_assert!(len <= self.len());
        self.inner.emitter.len = len as i64;
    }

    /// Inputs declared invalid since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.inner.emitter.dropped) as u64
    }

    pub fn pointer(&self) -> *const u8 {
        self.inner.emitter.rows
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` rows were written at `rows`.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.len() * self.inner.stride) }
    }

    #[inline(always)]
    pub fn row(&self, index: usize) -> *const u8 {
        debug_assert!(index <= self.len());
        // SAFETY: at most one past the last row.
        unsafe { self.pointer().add(index * self.inner.stride) }
    }

    /// The seq of row `index < len`.
    #[inline(always)]
    pub fn seq(&self, index: usize) -> i64 {
        assert!(index < self.len());
        // SAFETY: the row exists and starts with its seq.
        unsafe { self.row(index).cast::<i64>().read_unaligned() }
    }

    /// Per row the position of the input that emitted it; empty if the buffer keeps none.
    pub fn origins(&self) -> &[u32] {
        if !self.inner.origins || self.is_empty() {
            return &[];
        }
        // SAFETY: kernels write `origin` beside each row.
        unsafe { std::slice::from_raw_parts(self.inner.emitter.origin, self.len()) }
    }

    /// Says that rows from `from` on come from inputs that are `by` places further on.
    pub fn shift_origins(&mut self, from: usize, by: usize) {
        if !self.inner.origins || by == 0 || from >= self.len() {
            return;
        }
        // SAFETY: kernels write `origin` beside each row; the buffer is lent exclusively.
        let origins = unsafe { std::slice::from_raw_parts_mut(self.inner.emitter.origin, self.len()) };
        origins[from..].iter_mut().for_each(|origin| *origin += by as u32);
    }

    /// Makes room for `more` rows behind those that are there.
    pub fn reserve(&mut self, more: usize) -> Result<(), RunError> {
        let wanted = self.len() + more;
        if wanted > self.inner.emitter.cap as usize && !self.inner.resize(wanted) {
            return Err(RunError::Memory(format!("{wanted} rows of {} bytes", self.inner.stride)));
        }
        Ok(())
    }

    /// Appends a copy of a row.
    ///
    /// # Safety
    /// `row` has `stride` readable bytes outside of this buffer.
    #[inline]
    pub unsafe fn push(&mut self, row: *const u8, origin: u32) -> Result<(), RunError> {
        let len = self.len();
        if len == self.inner.emitter.cap as usize {
            self.reserve(len.max(1))?;
        }
        // SAFETY: there is room for a row (and its origin) behind the last one.
        unsafe {
            copy_row(row, self.inner.emitter.rows.add(len * self.inner.stride), self.inner.stride);
            if self.inner.origins {
                self.inner.emitter.origin.add(len).write(origin);
            }
        }
        self.inner.emitter.len += 1;
        Ok(())
    }

    /// Appends copies of `n` adjacent rows; `origin(i)` is the origin of the i-th.
    ///
    /// # Safety
    /// `rows` has `n * stride` readable bytes outside of this buffer.
    pub unsafe fn extend(&mut self, rows: *const u8, n: usize, origin: impl Fn(usize) -> u32) -> Result<(), RunError> {
        let len = self.len();
        if len + n > self.inner.emitter.cap as usize {
            self.reserve(n.max(len))?;
        }
        // SAFETY: there is room for n rows (and origins) behind the last one.
        unsafe {
            copy_nonoverlapping(rows, self.inner.emitter.rows.add(len * self.inner.stride), n * self.inner.stride);
            if self.inner.origins {
                for i in 0..n {
                    self.inner.emitter.origin.add(len + i).write(origin(i));
                }
            }
        }
        self.inner.emitter.len += n as i64;
        Ok(())
    }

    /// Appends copies of `n` rows, wherever they lie; their origin is 0.
    ///
    /// # Safety
    /// `row(i)` has `stride` readable bytes outside of this buffer.
    #[inline]
    pub unsafe fn gather(&mut self, n: usize, row: impl Fn(usize) -> *const u8) -> Result<(), RunError> {
        let (len, stride) = (self.len(), self.inner.stride);
        if len + n > self.inner.emitter.cap as usize {
            self.reserve(n.max(len))?;
        }
        // SAFETY: there is room for n rows (and origins) behind the last one; a loop of its own for every common size.
        unsafe {
            let to = self.inner.emitter.rows.add(len * stride);
            match stride {
                16 => gather(to, 16, n, row),
                24 => gather(to, 24, n, row),
                32 => gather(to, 32, n, row),
                40 => gather(to, 40, n, row),
                _ => gather(to, stride, n, row),
            }
            if self.inner.origins {
                self.inner.emitter.origin.add(len).write_bytes(0, n);
            }
        }
        self.inner.emitter.len += n as i64;
        Ok(())
    }
}

/// Copies `n` rows to adjacent places.
///
/// # Safety
/// `row(i)` has `stride` readable bytes apart from the `n * stride` writable ones at `to`.
#[inline(always)]
unsafe fn gather(to: *mut u8, stride: usize, n: usize, row: impl Fn(usize) -> *const u8) {
    for i in 0..n {
        // SAFETY: as the caller says.
        unsafe { copy_row(row(i), to.add(i * stride), stride) };
    }
}

/// Copies one row; rows are mostly a few words.
///
/// # Safety
/// `stride` readable bytes at `from`, as many writable ones at `to`, apart from each other.
#[inline(always)]
pub unsafe fn copy_row(from: *const u8, to: *mut u8, stride: usize) {
    // SAFETY: as the caller says.
    unsafe {
        match stride {
            16 => to.cast::<[u64; 2]>().write_unaligned(from.cast::<[u64; 2]>().read_unaligned()),
            24 => to.cast::<[u64; 3]>().write_unaligned(from.cast::<[u64; 3]>().read_unaligned()),
            32 => to.cast::<[u64; 4]>().write_unaligned(from.cast::<[u64; 4]>().read_unaligned()),
            40 => to.cast::<[u64; 5]>().write_unaligned(from.cast::<[u64; 5]>().read_unaligned()),
            _ => std::ptr::copy_nonoverlapping(from, to, stride),
        }
    }
}

impl BufferState {
    fn layout(&self, cap: usize) -> Option<(Layout, Layout)> {
        let rows = Layout::from_size_align(cap.checked_mul(self.stride)?, ALIGN).ok()?;
        Some((rows, Layout::array::<u32>(cap).ok()?))
    }

    /// False: no memory; the rows are then as they were.
    fn resize(&mut self, wanted: usize) -> bool {
        let cap = self.emitter.cap as usize;
        let wanted = wanted.max(64).max(4096 / self.stride);
        if wanted <= cap {
            return true;
        }
        let (Some(old), Some(new)) = (self.layout(cap), self.layout(wanted)) else { return false };
        // The origins first: if the rows then fail, the larger array of origins would not be freed as such.
        // So both are allocated anew and the old ones freed last.
        // SAFETY: sizes are not zero (stride >= 8, wanted >= 64); old blocks were allocated with these layouts; the
        // kernel wrote `len <= cap` rows.
        unsafe {
            let origin = if self.origins { alloc(new.1).cast::<u32>() } else { null_mut() };
            if self.origins && origin.is_null() {
                return false;
            }
            let rows = if cap == 0 { alloc(new.0) } else { realloc(self.emitter.rows, old.0, new.0.size()) };
            if rows.is_null() {
                if self.origins {
                    dealloc(origin.cast(), new.1);
                }
                return false;
            }
            if self.origins {
                if cap > 0 {
                    copy_nonoverlapping(self.emitter.origin, origin, self.emitter.len as usize);
                    dealloc(self.emitter.origin.cast(), old.1);
                }
                self.emitter.origin = origin;
            }
            self.emitter.rows = rows;
        }
        self.emitter.cap = wanted as i64;
        true
    }
}

impl Drop for BufferState {
    fn drop(&mut self) {
        let cap = self.emitter.cap as usize;
        if cap > 0
            && let Some((rows, origin)) = self.layout(cap)
        {
            // SAFETY: allocated with these layouts, freed once.
            unsafe {
                dealloc(self.emitter.rows, rows);
                if self.origins {
                    dealloc(self.emitter.origin.cast(), origin);
                }
            }
        }
    }
}

extern "C" fn grow(emitter: *mut Emitter) -> i64 {
    // SAFETY: kernels hand back the emitter they were given, the first field of an `Inner` that only this thread
    // uses while the kernel runs.
    let inner = unsafe { &mut *emitter.cast::<BufferState>() };
    let wanted = (inner.emitter.cap as usize).saturating_mul(2);
    i64::from(!inner.resize(wanted.max(inner.emitter.len as usize + 1)))
}

extern "C" fn home(emitter: *mut Emitter, text: *const u8, bytes: i64) -> i64 {
    // SAFETY: as for `grow`; the kernel says that so many bytes are there.
    let (inner, text) = unsafe {
        let text = std::slice::from_raw_parts(text, bytes as usize);
        (&mut *emitter.cast::<BufferState>(), text)
    };
    inner.room.as_mut().and_then(|room| room.put(text)).map_or(-1, |at| at as i64)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn rows_and_origins_survive_growing() {
        let mut buffer = RowBuffer::new(16, true);
        let emitter = buffer.emitter();
        for i in 0..10_000_i64 {
            // SAFETY: as a kernel does: room is made before it is used.
            unsafe {
                let emitter = &mut *emitter;
                if emitter.len == emitter.cap {
                    assert_eq!((emitter.grow)(emitter), 0);
                }
                emitter.rows.add(emitter.len as usize * 16).cast::<[i64; 2]>().write([i, -i]);
                emitter.origin.add(emitter.len as usize).write(i as u32);
                emitter.len += 1;
            }
        }
        assert_eq!(buffer.len(), 10_000);
        assert!((0..10_000).all(|i| buffer.seq(i) == i as i64 && buffer.origins()[i] == i as u32));
        buffer.clear();
        // SAFETY: 16 bytes are there.
        unsafe { buffer.push([7_i64, 8].as_ptr().cast(), 3).unwrap() };
        assert_eq!((buffer.len(), buffer.seq(0), buffer.origins()), (1, 7, &[3_u32][..]));
    }
}
