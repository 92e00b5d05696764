//! The keys of rows (f_MK of STRETCH, section 4.2), found once for all replicas, and what they see of a row: its *meeting*.
//!
//! A meeting lies beside the rows, in words: `ts`; the stream and the number of keys; then of each key its hash and its
//! fields. Where every row has the same keys, none are listed. If a row has a key several times, the first counts,
//! unless the operator takes bags.
//!
//! A meeting may be *dealt* (`copies.rs`). It has the keys of its reader, and the number of each in the row. It also says
//! whether this reader counts the row if the row is late.
//!
//! If the keys function raises, the meeting holds the exception in place of keys. The replicas report it: only they know what
//! expires before that row, and whether the row is late and needs no keys.

use crate::dataflow::windowed::operator::Windowed;
use crate::error::RunError;
use crate::program::Key;
use crate::program::kernel::BatchContext;
use crate::rows::block::SEQ_BYTES;
use crate::rows::block::Text;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;
use crate::state::windows::OutOfMemory;
use crate::state::windows::entry::{KeyFields, Shape};

/// Room to find keys in.
#[derive(Debug)]
pub struct Lister {
    keys: RowBuffer,
    hashes: Vec<u64>,
    /// Keys of the row at hand by their hashes, where there are many: what row it was, which key.
    seen: Vec<(u64, u32)>,
    row: u64,
    /// Of a row with few keys, eight bits of each hash seen so far: a new key is nearly always known for one by them.
    bits: [u64; 4],
}

/// A replica's own lister, and what it has listed (f_MK in the readers, as published).
#[derive(Debug)]
pub struct Finder {
    lister: Lister,
    words: Vec<u64>,
    meetings: Vec<u64>,
}

impl Finder {
    pub fn new(windowed: &Windowed) -> Self {
        Self { lister: Lister::new(windowed), words: Vec::new(), meetings: Vec::new() }
    }

    /// Replaces the inputs of rows, one for each, by the addresses of their meetings. These are valid until the next call.
    ///
    /// # Safety
    /// The rows are readable and have the layouts of their inputs.
    pub unsafe fn find(&mut self, windowed: &Windowed, rows: Rows, inputs: &mut Vec<u64>) -> Result<(), RunError> {
        let Self { lister, words, meetings } = self;
        // SAFETY: as the caller says.
        unsafe { lister.list_mixed(windowed, inputs, rows, words, meetings) }?;
        std::mem::swap(inputs, meetings);
        Ok(())
    }
}

/// Up to so many keys of a row are compared with each other, if need be.
const FEW: usize = 48;

/// A receiver of the keys of rows, row by row.
pub(super) trait Notes {
    /// A row, which has up to so many keys.
    fn begin(&mut self, row: usize, ts: i64, keys: usize) -> Result<(), OutOfMemory>;
    /// A key, number `number` of the row's.
    fn key(&mut self, number: usize, hash: u64, fields: &[u64]) -> Result<(), OutOfMemory>;
    /// It has so many keys.
    fn end(&mut self, keys: usize) -> Result<(), OutOfMemory>;
    /// In place of keys: their function raised this.
    fn fail(&mut self, exception: &[u8]) -> Result<(), OutOfMemory>;
}

/// Of a meeting that is dealt; and whether its reader counts the row if it is late.
pub(super) const DEALT: u64 = 1 << 63;
pub(super) const COUNTED: u64 = 1 << 62;
/// Of a meeting that holds an exception: its bytes in one word, then the exception.
pub(super) const FAILED: u64 = 1 << 61;

/// The words of an exception in a meeting.
pub(super) fn exception_words(exception: &[u8]) -> impl Iterator<Item = u64> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    };
    std::iter::once(exception.len() as u64).chain(exception.chunks(8).map(word))
}

/// What replicas see of a row beside its fields.
#[derive(Debug, Clone, Copy)]
pub struct Meeting<'a> {
    pub ts: i64,
    pub stream: usize,
    pub keys: usize,
    /// If it is dealt, whether its reader counts the row.
    pub counted: Option<bool>,
    /// What the keys function raised.
    pub failure: Option<&'a [u8]>,
    words: &'a [u64],
    each: usize,
}

impl<'a> Meeting<'a> {
    /// # Safety
    /// A meeting that was listed for `windowed` begins at `address`, and stays there while this is used.
    #[inline(always)]
    pub unsafe fn at(address: u64, windowed: &Windowed) -> Self {
        let start = address as usize as *const u64;
        // SAFETY: as the caller says.
        let (ts, about) = unsafe { (start.read() as i64, start.add(1).read()) };
        let is_dealt = about & DEALT != 0;
        let (stream, keys) = ((about & !(DEALT | COUNTED | FAILED)) >> 32, about as u32 as usize);
        let each = 1 + windowed.shape.key_words() + usize::from(is_dealt);
        // SAFETY: so many words follow.
        let words = unsafe { std::slice::from_raw_parts(start.add(2), keys * each) };
        let failure = (about & FAILED != 0).then(|| {
            // SAFETY: as above, with these words in place of keys.
            unsafe { std::slice::from_raw_parts(start.add(3).cast::<u8>(), start.add(2).read() as usize) }
        });
        Self {
            ts,
            stream: stream as usize,
            keys,
            counted: is_dealt.then_some(about & COUNTED != 0),
            failure,
            words,
            each,
        }
    }

    /// A key's number in the row, its hash, and the key.
    #[inline(always)]
    pub fn key(&self, index: usize, text: Text) -> (usize, u64, KeyFields) {
        let words = &self.words[index * self.each..(index + 1) * self.each];
        let key = KeyFields { row: words[1..].as_ptr().cast::<u8>().wrapping_sub(SEQ_BYTES), text };
        let number = if self.counted.is_some() { words[self.each - 1] as usize } else { index };
        (number, words[0], key)
    }
}

impl Lister {
    pub fn new(windowed: &Windowed) -> Self {
        let mut keys = RowBuffer::new(windowed.key_stride, true);
        windowed.furnish(&mut keys);
        Self { keys, hashes: Vec::new(), seen: Vec::new(), row: 0, bits: [0; 4] }
    }

    /// Lists the meetings of rows of an input: `words` holds them, `meetings` says where each begins.
    ///
    /// # Safety
    /// The rows are readable and have the layout of the input.
    pub unsafe fn list(
        &mut self,
        windowed: &Windowed,
        input: usize,
        rows: Rows,
        words: &mut Vec<u64>,
        meetings: &mut Vec<u64>,
    ) -> Result<(), RunError> {
        words.clear();
        meetings.clear();
        let each = 1 + windowed.shape.key_words();
        let mut listed = Listed { words, meetings, stream: windowed.of[input], about: 0, each };
        // SAFETY: as the caller says.
        let outcome = unsafe { self.find(windowed, input, rows, &mut listed) };
        place(words, meetings);
        outcome
    }

    /// As `list`, of rows of several inputs. `inputs` has the input of each row.
    ///
    /// # Safety
    /// As for `list`.
    pub unsafe fn list_mixed(
        &mut self,
        windowed: &Windowed,
        inputs: &[u64],
        rows: Rows,
        words: &mut Vec<u64>,
        meetings: &mut Vec<u64>,
    ) -> Result<(), RunError> {
        words.clear();
        meetings.clear();
        let each = 1 + windowed.shape.key_words();
        let mut from = 0;
        for run in inputs.chunk_by(|a, b| a == b) {
            let input = run[0] as usize;
            let mut listed = Listed { words, meetings, stream: windowed.of[input], about: 0, each };
            // SAFETY: as the caller says.
            unsafe { self.find(windowed, input, rows.slice(from..from + run.len()), &mut listed) }?;
            from += run.len();
        }
        place(words, meetings);
        Ok(())
    }

    /// Finds the keys of rows of an input, or what their function raised.
    ///
    /// # Safety
    /// As for `list`.
    pub(super) unsafe fn find(
        &mut self,
        windowed: &Windowed,
        input: usize,
        rows: Rows,
        notes: &mut impl Notes,
    ) -> Result<(), RunError> {
        let stream = &windowed.streams[windowed.of[input]];
        let mut from = 0;
        while from < rows.n {
            let rest = rows.slice(from..rows.n);
            self.keys.clear();
            let mut context = BatchContext {
                rows: rest.start,
                n: rest.n as i64,
                places: rest.places,
                text: rest.text.pointer(),
                emitter: self.keys.emitter(),
                ..BatchContext::default()
            };
            // SAFETY: as the caller says.
            let outcome = unsafe { stream.keys.call(&mut context) };
            let failed = outcome.as_ref().err().map(|raised| usize::try_from(raised.at).unwrap_or(0).min(rest.n - 1));
            let n = failed.unwrap_or(rest.n);
            // SAFETY: as above.
            unsafe { self.note(windowed, (rest.slice(0..n), from), stream.ts, notes) }?;
            from += n;
            if let Err(raised) = outcome {
                // SAFETY: the row is there, ts an integer in it.
                let ts = unsafe { stream.ts.kind.load(rows.row(from).add(stream.ts.offset)) };
                notes.begin(from, ts as i64, 0)?;
                notes.fail(&raised.exception)?;
                from += 1;
            }
        }
        Ok(())
    }

    /// Notes the keys of rows. The first of these rows has number `first` among all rows.
    unsafe fn note(
        &mut self,
        windowed: &Windowed,
        (rows, first): (Rows, usize),
        ts: Key,
        notes: &mut impl Notes,
    ) -> Result<(), RunError> {
        let shape = &windowed.shape;
        let text = rows.text;
        self.hashes.clear();
        let key_words = shape.key_words();
        let mut next = 0;
        for i in 0..rows.n {
            // SAFETY: the row is there, ts an integer in it.
            let ts = unsafe { ts.kind.load(rows.row(i).add(ts.offset)) };
            let begin = next;
            next += self.keys.origins()[begin..].iter().take_while(|&&origin| origin as usize == i).count();
            self.hashes.try_reserve(next - begin).map_err(OutOfMemory::from)?;
            notes.begin(first + i, ts as i64, next - begin)?;
            let mut keys = 0;
            for index in begin..next {
                let key = KeyFields { row: self.keys.row(index), text };
                let hash = shape.hash(key).ok_or_else(|| {
                    RunError::Invalid(format!(
                        "a key of event {} refers to text outside its block",
                        self.keys.seq(index)
                    ))
                })?;
                self.hashes.push(hash);
                if next - begin > 1 && !windowed.bag && self.is_known(shape, begin..index, next - begin, key, text)? {
                    continue;
                }
                // SAFETY: the fields of a key lie behind its seq.
                let fields = unsafe { std::slice::from_raw_parts(key.row.add(SEQ_BYTES).cast::<u64>(), key_words) };
                notes.key(keys, hash, fields)?;
                keys += 1;
            }
            notes.end(keys)?;
        }
        Ok(())
    }

    /// Whether a key, the next one behind `before`, is among these; the row has `n` in all.
    #[inline]
    fn is_known(
        &mut self,
        shape: &Shape,
        before: std::ops::Range<usize>,
        n: usize,
        key: KeyFields,
        text: Text,
    ) -> Result<bool, OutOfMemory> {
        let Self { keys, hashes, seen, row, bits } = self;
        let (index, begin) = (before.end, before.start);
        let same =
            |other: usize| hashes[other] == hashes[index] && shape.equal(KeyFields { row: keys.row(other), text }, key);
        if n <= FEW {
            if index == begin {
                *bits = [0; 4];
            }
            let (word, bit) = ((hashes[index] >> 62) as usize, 1 << (hashes[index] >> 56 & 63));
            let is_new = bits[word] & bit == 0;
            bits[word] |= bit;
            return Ok(!is_new && before.into_iter().any(same));
        }
        if index == begin {
            *row += 1;
            let places = (2 * n).next_power_of_two();
            if seen.len() < places {
                seen.clear();
                seen.try_reserve(places)?;
                seen.resize(places, (0, 0));
            }
        }
        let mask = seen.len() - 1;
        let mut place = hashes[index] as usize & mask;
        while seen[place].0 == *row {
            if same(seen[place].1 as usize) {
                return Ok(true);
            }
            place = (place + 1) & mask;
        }
        seen[place] = (*row, index as u32);
        Ok(false)
    }
}

/// Meetings as all replicas read them.
struct Listed<'a> {
    words: &'a mut Vec<u64>,
    meetings: &'a mut Vec<u64>,
    stream: usize,
    /// Where the number of keys goes.
    about: usize,
    /// Words of a key.
    each: usize,
}

impl Notes for Listed<'_> {
    #[inline(always)]
    fn begin(&mut self, _: usize, ts: i64, keys: usize) -> Result<(), OutOfMemory> {
        self.meetings.try_reserve(1)?;
        self.words.try_reserve(2 + keys * self.each)?;
        self.meetings.push(self.words.len() as u64);
        self.about = self.words.len() + 1;
        self.words.extend([ts as u64, 0]);
        Ok(())
    }

    #[inline(always)]
    fn key(&mut self, _: usize, hash: u64, fields: &[u64]) -> Result<(), OutOfMemory> {
        self.words.push(hash);
        // A few words: as many calls to copy memory would cost more.
        fields.iter().for_each(|&field| self.words.push(field));
        Ok(())
    }

    #[inline(always)]
    fn end(&mut self, keys: usize) -> Result<(), OutOfMemory> {
        self.words[self.about] = (self.stream as u64) << 32 | keys as u64;
        Ok(())
    }

    fn fail(&mut self, exception: &[u8]) -> Result<(), OutOfMemory> {
        self.words[self.about] = (self.stream as u64) << 32 | FAILED;
        self.words.extend(exception_words(exception));
        Ok(())
    }
}

/// Says of meetings where they begin, which said in which word: the words do not move any more.
pub(super) fn place(words: &[u64], meetings: &mut [u64]) {
    let start = words.as_ptr() as usize as u64;
    meetings.iter_mut().for_each(|meeting| *meeting = start + 8 * *meeting);
}
