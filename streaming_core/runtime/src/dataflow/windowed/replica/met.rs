//! Rows that have met windows of own keys, noted until the kernel is called for all of them.
//!
//! Of a row its windows follow each other ascending, in each of them its keys. Where something stands among what its event
//! puts out is worked out when a kernel has put something out: most only count.

use crate::dataflow::channel::rank::Path;
use crate::program::kernel::EntryHeader;
use crate::state::windows::OutOfMemory;

/// Rows that meet windows at once, about: their entries are still in the cache when the kernel comes to them.
const MOST: usize = 256;

/// See the module; all of one stream.
#[derive(Debug, Default)]
pub(super) struct Met {
    pub stream: usize,
    /// Per meeting the row, what its key has in the window, and where the window begins. Of a session: the latest row.
    rows: Vec<*const u8>,
    pub entries: Vec<*mut EntryHeader>,
    pub starts: Vec<i64>,
    /// Who met.
    who: Vec<Who>,
    /// Their keys, as numbers in their rows; of each row once.
    keys: Vec<u32>,
}

/// A row that met.
#[derive(Debug)]
struct Who {
    /// From which meeting on.
    from: usize,
    /// Which row of the batch.
    index: u32,
    /// Where its keys are.
    keys: std::ops::Range<usize>,
}

// SAFETY: addresses are used within the call that wrote them; nothing refers to a thread.
unsafe impl Send for Met {}

impl Met {
    /// Notes that a row, number `index` of the batch, meets `windows` windows, by `keys` keys each. `keys` has the number of keys,
    /// and the keys' own numbers if outputs are ranked. `start` says where each window begins. Returns the position in `entries`
    /// from which on the caller writes the entries that the row meets.
    ///
    /// # Errors
    /// There is no memory to note them.
    #[inline(always)]
    pub fn note(
        &mut self,
        (index, row): (usize, *const u8),
        windows: usize,
        (keys, numbers): (usize, Option<impl Iterator<Item = u32>>),
        start: impl Fn(i64) -> i64,
    ) -> Result<usize, OutOfMemory> {
        let from = self.entries.len();
        let more = keys.checked_mul(windows).ok_or(OutOfMemory)?;
        self.rows.try_reserve(more)?;
        self.entries.try_reserve(more)?;
        self.starts.try_reserve(more)?;
        if more == 1 {
            self.rows.push(row);
            self.entries.push(std::ptr::null_mut());
            self.starts.push(start(0));
        } else {
            self.rows.resize(from + more, row);
            self.entries.resize(from + more, std::ptr::null_mut());
            for i in 1..=windows {
                self.starts.resize(from + keys * i, start(i as i64 - 1));
            }
        }
        if let Some(numbers) = numbers {
            let first = self.keys.len();
            self.keys.try_reserve(keys)?;
            self.who.try_reserve(1)?;
            self.keys.extend(numbers);
            self.who.push(Who { from, index: index as u32, keys: first..self.keys.len() });
        }
        Ok(from)
    }

    pub fn is_full(&self) -> bool {
        self.entries.len() >= MOST
    }

    /// The number of meetings.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// As a kernel takes them: how many, their rows, their entries, where their windows begin.
    pub fn parts(&self) -> (usize, *const *const u8, *const *mut EntryHeader, *const i64) {
        (self.rows.len(), self.rows.as_ptr(), self.entries.as_ptr(), self.starts.as_ptr())
    }

    /// Of a meeting its row's seq, what its key has, and where its window begins.
    pub fn at(&self, meeting: usize) -> (i64, *mut EntryHeader, i64) {
        let meeting = meeting.min(self.rows.len() - 1);
        // SAFETY: rows begin with their seq, and are there until the call is over that noted them.
        let seq = unsafe { self.rows[meeting].cast::<i64>().read_unaligned() };
        (seq, self.entries[meeting], self.starts[meeting])
    }

    /// Of a meeting which row of the batch it is, and the path from there; of meetings whose keys were said.
    pub fn cause(&self, meeting: usize) -> (u32, Path) {
        let who = &self.who[self.who.partition_point(|who| who.from <= meeting) - 1];
        let (at, keys) = (meeting - who.from, &self.keys[who.keys.clone()]);
        let (window, key) = ((at / keys.len()) as u64, keys[at % keys.len()]);
        (who.index, Path::default().fixed(1, 1).number(window).number(u64::from(key)))
    }

    pub fn clear(&mut self) {
        self.rows.clear();
        self.entries.clear();
        self.starts.clear();
        self.who.clear();
        self.keys.clear();
    }
}
