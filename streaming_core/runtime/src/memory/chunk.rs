//! Chunks: memory for growing containers, on huge pages where the system has them, kept for reuse.
//!
//! The first access to a new page costs a fault, which takes longer than filling the page (2 us for 4 KiB here). It takes several
//! times that where a hypervisor has to find the page first. So the process keeps a chunk that is given back, as `malloc` keeps
//! freed blocks. A run does not pay again for memory that an earlier run has touched. The system gets back the chunks beyond
//! `MOST_KEPT`.
//!
//! The length of a chunk is a power of two. A chunk smaller than a huge page is half of a chunk twice as long, so small chunks
//! share huge pages. Halves are not joined again.

use std::ops::Range;
use std::ptr::null_mut;
// Not the shim's: models need not see it, and no thread waits for another while it holds this lock.
use std::sync::{Mutex, MutexGuard, PoisonError};

const PAGE: usize = 4 << 10;
const HUGE_PAGE: usize = 2 << 20;
const SMALLEST: usize = 16 << 10;
/// Larger ones are not kept.
const LARGEST: usize = 16 << 20;
const SIZES: usize = (LARGEST / SMALLEST).ilog2() as usize + 1;
/// Bytes that wait for the next use at most.
const MOST_KEPT: usize = 1 << 30;

static KEPT: Mutex<Kept> = Mutex::new(Kept { pieces: [const { Vec::new() }; SIZES], bytes: 0 });

/// Page-aligned memory; given back when dropped.
#[derive(Debug)]
pub struct Chunk(Piece);

#[derive(Debug, Clone, Copy)]
struct Piece {
    start: usize,
    bytes: usize,
    /// Bytes from the start that may hold what an earlier user left; those behind are zero.
    used: usize,
}

impl Chunk {
    /// At least `bytes` bytes, for `make_ready` to fill with zeros. None: memory ran out.
    pub fn take(bytes: usize) -> Option<Self> {
        if bytes > LARGEST {
            return Piece::map(bytes.checked_next_multiple_of(HUGE_PAGE)?).map(Self);
        }
        let size = bytes.max(SMALLEST).next_power_of_two().ilog2() - SMALLEST.ilog2();
        kept().take(size as usize).map(Self)
    }

    pub fn start(&self) -> usize {
        self.0.start
    }

    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Makes bytes `range` ready: zero, and there without a fault. Ranges follow each other from 0 on, and nothing behind
    /// them is in use.
    pub fn make_ready(&mut self, range: Range<usize>) {
        let Piece { start, bytes, used } = self.0;
        assert!(range.start <= range.end && range.end <= bytes);
        let old = used.clamp(range.start, range.end);
        // SAFETY: inside of this chunk, behind everything that is in use.
        unsafe { std::ptr::write_bytes((start + range.start) as *mut u8, 0, old - range.start) };
        if old < range.end {
            let first = (start + old) / PAGE * PAGE;
            // SAFETY: advice about this chunk's memory. A system that does not know it refuses, and pages come when touched.
            unsafe { libc::madvise(first as *mut libc::c_void, start + range.end - first, libc::MADV_POPULATE_WRITE) };
            self.0.used = range.end;
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.0.bytes > LARGEST {
            self.0.unmap();
        } else {
            kept().give(self.0);
        }
    }
}

impl Piece {
    /// New zeroed memory: whole huge pages.
    fn map(bytes: usize) -> Option<Self> {
        let length = bytes.checked_add(HUGE_PAGE)?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping touches nothing that is there.
        let address = unsafe { libc::mmap(null_mut(), length, access, kind, -1, 0) };
        if address == libc::MAP_FAILED {
            return None;
        }
        let start = (address as usize).next_multiple_of(HUGE_PAGE);
        let before = start - address as usize;
        for (start, bytes) in [(address as usize, before), (start + bytes, HUGE_PAGE - before)] {
            if bytes > 0 {
                Self { start, bytes, used: 0 }.unmap();
            }
        }
        // SAFETY: advice about memory mapped above. A system without huge pages refuses it, and nothing is lost.
        unsafe { libc::madvise(start as *mut libc::c_void, bytes, libc::MADV_HUGEPAGE) };
        Some(Self { start, bytes, used: 0 })
    }

    fn halves(self) -> [Self; 2] {
        let bytes = self.bytes / 2;
        let used = self.used.min(bytes);
        [Self { bytes, used, ..self }, Self { start: self.start + bytes, bytes, used: self.used - used }]
    }

    /// Gives the pages back, and their addresses.
    fn unmap(self) {
        // SAFETY: mapped in `map`; the former owner guarantees that no thread uses it any more.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.bytes) };
    }

    /// Gives the pages back: zeroed ones come instead.
    fn empty(self) -> Self {
        // SAFETY: as above. A system that refuses leaves what was there.
        let refused = unsafe { libc::madvise(self.start as *mut libc::c_void, self.bytes, libc::MADV_DONTNEED) } != 0;
        Self { used: if refused { self.used } else { 0 }, ..self }
    }
}

/// Pieces that wait for their next use.
struct Kept {
    /// By size.
    pieces: [Vec<Piece>; SIZES],
    /// Bytes of them that were used.
    bytes: usize,
}

fn kept() -> MutexGuard<'static, Kept> {
    // Nothing in here panics half-way.
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    fn take(&mut self, size: usize) -> Option<Piece> {
        if let Some(piece) = self.pieces[size].pop() {
            self.bytes -= piece.used;
            return Some(piece);
        }
        let bytes = SMALLEST << size;
        if bytes >= HUGE_PAGE {
            return Piece::map(bytes);
        }
        let [piece, rest] = self.take(size + 1)?.halves();
        self.keep(rest);
        Some(piece)
    }

    fn give(&mut self, piece: Piece) {
        if self.bytes + piece.used <= MOST_KEPT {
            self.keep(piece);
        } else if piece.bytes >= HUGE_PAGE {
            piece.unmap();
        } else {
            self.keep(piece.empty());
        }
    }

    fn keep(&mut self, piece: Piece) {
        self.bytes += piece.used;
        self.pieces[(piece.bytes / SMALLEST).ilog2() as usize].push(piece);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn memory(chunk: &mut Chunk, range: Range<usize>) -> &mut [u8] {
        // SAFETY: inside of the chunk, which the caller has alone.
        unsafe { std::slice::from_raw_parts_mut((chunk.start() + range.start) as *mut u8, range.len()) }
    }

    #[test]
    fn what_an_earlier_user_left_is_zeroed_and_nothing_is_had_twice() {
        for bytes in [1, SMALLEST, SMALLEST + 1, 300_000, HUGE_PAGE, LARGEST, LARGEST + 1] {
            for _ in 0..3 {
                let mut chunks: Vec<Chunk> = (0..3).map(|_| Chunk::take(bytes).unwrap()).collect();
                for (number, chunk) in chunks.iter_mut().enumerate() {
                    assert!(chunk.bytes() >= bytes && chunk.start() % PAGE == 0);
                    // Not to the end: what lies behind has never been used.
                    let mut from = 0;
                    for to in [1, 5000, bytes / 2, bytes] {
                        chunk.make_ready(from..to.max(from));
                        let fresh = memory(chunk, from..to.max(from));
                        assert!(fresh.iter().all(|&byte| byte == 0));
                        fresh.fill(number as u8 + 1);
                        from = to.max(from);
                    }
                }
                for (number, chunk) in chunks.iter_mut().enumerate() {
                    assert!(memory(chunk, 0..bytes).iter().all(|&byte| byte == number as u8 + 1));
                }
            }
        }
    }

    #[test]
    fn only_so_much_is_kept() {
        let mut kept = Kept { pieces: [const { Vec::new() }; SIZES], bytes: 0 };
        let mut taken: Vec<Piece> = (0..2 * MOST_KEPT / LARGEST).map(|_| kept.take(SIZES - 1).unwrap()).collect();
        taken.extend((0..100).map(|size| kept.take(size % 7).unwrap()));
        for piece in taken {
            // As if all of it had been used.
            kept.give(Piece { used: piece.bytes, ..piece });
            assert!(kept.bytes <= MOST_KEPT);
        }
        assert_eq!(kept.bytes, MOST_KEPT);
        assert_eq!(kept.pieces[SIZES - 1].len(), MOST_KEPT / LARGEST);
        kept.pieces.iter().flatten().filter(|piece| piece.bytes >= HUGE_PAGE).for_each(|piece| piece.unmap());
    }
}
