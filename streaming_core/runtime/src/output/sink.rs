//! Where outputs end: numbered per seq, checked for order, digested, and kept if the sink keeps rows.

use serde::{Deserialize, Serialize};

use crate::error::RunError;
use crate::output::digest::{Digest, Hasher};
use crate::rows::block::Text;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SinkKind {
    /// Digest, and the rows are kept until they are taken.
    Parquet,
    Digest,
    /// Number and order only.
    Count,
}

/// Rows hashed together.
const TILE: usize = 8;

/// What can be found out about a batch of outputs before its turn comes; made by any thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Prepared {
    rows: usize,
    /// The `sub` that the first row is taken to have.
    begin: u64,
    /// Digest with that.
    digest: Digest,
    first: i64,
    last: i64,
    /// How many rows at the start share the first row's seq, and at the end the last one's.
    leading: usize,
    trailing: usize,
    ordered: bool,
}

impl Prepared {
    /// The results for rows that are each the only output of their event, so their hashes may be summed in any order. `digest`
    /// has the sum so far. Two rows of one event count as out of order.
    ///
    /// # Safety
    /// The rows are readable, and there is one.
    pub unsafe fn alone(rows: Rows, digest: Digest) -> Self {
        // SAFETY: as the caller says.
        let seq_of = |i: usize| unsafe { rows.seq(i) };
        let ordered = (1..rows.n).fold(true, |ordered, i| ordered & (seq_of(i - 1) < seq_of(i)));
        let (first, last) = (seq_of(0), seq_of(rows.n - 1));
        Self { rows: rows.n, begin: 0, digest, first, last, leading: 1, trailing: 1, ordered }
    }

    /// Of no rows.
    pub fn nothing() -> Self {
        Self { ordered: true, ..Self::default() }
    }

    /// Sum of the hashes of the rows.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Takes in rows that are delivered together with these, all in the order of their seq. All rows of a seq are among these
    /// or among those. Neither goes on with an earlier batch.
    pub fn join(&mut self, more: &Self) {
        if more.rows == 0 {
            return;
        }
        if self.rows == 0 {
            *self = *more;
            return;
        }
        self.ordered &= more.ordered && self.first != more.first && self.last != more.last;
        if more.first < self.first {
            (self.first, self.leading) = (more.first, more.leading);
        }
        if more.last > self.last {
            (self.last, self.trailing) = (more.last, more.trailing);
        }
        self.rows += more.rows;
        self.digest += more.digest;
    }

    /// Adds the results of rows that a source delivers beside those of others, numbered. `last`: the event of the source's last
    /// row before them, and then of theirs.
    pub fn add(&mut self, more: &Self, last: &mut i64) {
        if more.rows > 0 {
            self.ordered &= more.ordered && *last <= more.first;
            *last = more.last;
            let ends = (more.first, more.last);
            let (first, known) = if self.rows == 0 { ends } else { (self.first, self.last) };
            (self.first, self.last) = (first.min(more.first), known.max(more.last));
            self.rows += more.rows;
            self.digest += more.digest;
        }
    }

    /// The event of the last row, and its next `sub`; of no rows, those before.
    pub fn end(&self) -> (i64, u64) {
        let whole = self.trailing == self.rows;
        (self.last, self.trailing as u64 + if whole { self.begin } else { 0 })
    }
}

/// Rows that a sink keeps, in the order of delivery, with the `sub` of each.
#[derive(Debug, Default)]
pub struct Kept {
    rows: Vec<u8>,
    subs: Vec<u32>,
}

impl Kept {
    /// Appends copies of rows. The first one has number `sub` among those of its event.
    ///
    /// # Safety
    /// The rows are readable.
    unsafe fn append(&mut self, rows: Rows, sub: u64) -> Result<(), RunError> {
        // SAFETY: as the caller says.
        let bytes = |row: *const u8, n: usize| unsafe { std::slice::from_raw_parts(row, n * rows.stride) };
        // SAFETY: as above.
        let row = |i: usize| unsafe { rows.row(i) };
        match rows.places.is_null() {
            true => self.rows.extend_from_slice(bytes(rows.start, rows.n)),
            false => (0..rows.n).for_each(|i| self.rows.extend_from_slice(bytes(row(i), 1))),
        }
        self.subs.reserve(rows.n);
        let (mut seq, mut next) = (None, sub);
        for i in 0..rows.n {
            // SAFETY: as above; rows start with their seq.
            let this = unsafe { rows.seq(i) };
            if seq.is_some_and(|seq| seq != this) {
                next = 0;
            }
            seq = Some(this);
            let number = u32::try_from(next)
                .map_err(|_| RunError::Invalid(format!("event {this} has more than 2^32 outputs")))?;
            self.subs.push(number);
            next += 1;
        }
        Ok(())
    }
}

/// The part of a sink that all threads may use at once.
#[derive(Debug, Clone)]
pub struct Preparer {
    kind: SinkKind,
    hasher: Hasher,
}

impl Preparer {
    pub fn new(kind: SinkKind, hasher: Hasher) -> Self {
        Self { kind, hasher }
    }

    /// The bytes of a row.
    pub fn stride(&self) -> usize {
        self.hasher.stride()
    }

    /// Whether the sink keeps the rows that it delivers.
    pub fn keeps_rows(&self) -> bool {
        self.kind == SinkKind::Parquet
    }

    /// Copies rows that were prepared, if the sink keeps any: before their turn comes, so that the sink only has to take them
    /// over (`Sink::take_over`).
    ///
    /// # Safety
    /// The rows are readable.
    pub unsafe fn keep(&self, rows: Rows, prepared: &Prepared) -> Result<Kept, RunError> {
        assert_eq!(rows.n, prepared.rows, "the sink must keep the rows that it prepared");
        let mut kept = Kept::default();
        if self.keeps_rows() {
            // SAFETY: as the caller says.
            unsafe { kept.append(rows, prepared.begin) }?;
        }
        Ok(kept)
    }

    /// Examines a batch of outputs whose rows are in the order in which they will be delivered.
    pub fn prepare(&self, rows: &RowBuffer, text: Text) -> Result<Prepared, RunError> {
        // SAFETY: a buffer's rows are readable.
        unsafe { self.prepare_rows(Rows::of(rows, text), None) }
    }

    /// Like `prepare`, wherever the rows lie.
    ///
    /// `before` is the last event that will be delivered before these rows, and the next `sub` of that event. If it is wrong or
    /// unknown, the sink examines rows again that continue this event.
    ///
    /// # Safety
    /// The rows are readable.
    pub unsafe fn prepare_rows(&self, rows: Rows, before: Option<(i64, u64)>) -> Result<Prepared, RunError> {
        assert_eq!(rows.stride, self.hasher.stride(), "the rows must have the layout of the sink");
        // SAFETY: as the caller says; for either way of lying a loop of its own.
        unsafe {
            match rows.places.is_null() {
                true => self.examine(rows, before, |i| rows.start.wrapping_add(i * rows.stride)),
                false => self.examine(rows, before, |i| *rows.places.add(i)),
            }
        }
    }

    /// Examines rows that are numbered already: `subs` has the `sub` of each.
    ///
    /// # Safety
    /// The rows are readable.
    pub unsafe fn prepare_numbered(&self, rows: Rows, subs: &[u32]) -> Result<Prepared, RunError> {
        assert_eq!(
            (rows.stride, rows.n),
            (self.hasher.stride(), subs.len()),
            "each row of the sink must have a number"
        );
        if rows.n == 0 {
            return Ok(Prepared::nothing());
        }
        // SAFETY: as the caller says; rows start with their seq.
        let seq_of = |i: usize| unsafe { rows.seq(i) };
        let (mut ordered, mut before) = (true, (i64::MIN, 0));
        for (i, &sub) in subs.iter().enumerate() {
            let seq = seq_of(i);
            ordered &= (before.0 < seq) | ((before.0 == seq) & (before.1 < sub));
            before = (seq, sub);
        }
        let mut sum = 0_u64;
        let hashed = if self.kind == SinkKind::Count { &[] } else { subs };
        let whole = hashed.len() / TILE * TILE;
        for i in (0..whole).step_by(TILE) {
            let numbers = std::array::from_fn(|j| u64::from(hashed[i + j]));
            // SAFETY: the rows exist and have the hasher's stride.
            sum = sum.wrapping_add(unsafe { self.hash::<TILE>(|j| rows.row(i + j), numbers, rows.text) }?);
        }
        for (i, &number) in hashed.iter().enumerate().skip(whole) {
            // SAFETY: as above.
            sum = sum.wrapping_add(unsafe { self.hash(|_| rows.row(i), [u64::from(number)], rows.text) }?);
        }
        let digest = Digest { rows: rows.n as u64, sum };
        let (first, last) = (seq_of(0), seq_of(rows.n - 1));
        Ok(Prepared { rows: rows.n, begin: 0, digest, first, last, leading: 1, trailing: 1, ordered })
    }

    /// `row(i)` is the i-th of `rows`.
    #[inline(always)]
    unsafe fn examine(
        &self,
        rows: Rows,
        before: Option<(i64, u64)>,
        row: impl Fn(usize) -> *const u8 + Copy,
    ) -> Result<Prepared, RunError> {
        let n = rows.n;
        if n == 0 {
            return Ok(Prepared::nothing());
        }
        // SAFETY: the caller says that the rows are readable; they start with their seq.
        let seq_of = |i: usize| unsafe { row(i).cast::<i64>().read_unaligned() };
        let begin = before.filter(|&(last, _)| last == seq_of(0)).map_or(0, |(_, sub)| sub);
        let mut prepared = Prepared { rows: n, begin, first: seq_of(0), ordered: true, ..Prepared::default() };
        let (mut seq, mut sub, mut leading) = (prepared.first, begin, None);
        let mut sum = 0_u64;
        let mut number = |i: usize, this: i64| {
            if this != seq {
                prepared.ordered &= this > seq;
                leading.get_or_insert(i);
                (seq, sub) = (this, 0);
            }
            sub += 1;
            sub - 1
        };
        let whole = n / TILE * TILE;
        for i in (0..whole).step_by(TILE) {
            let seqs: [i64; TILE] = std::array::from_fn(|j| seq_of(i + j));
            // Most events have one output. Then the first row and the last one say all of the numbers.
            let rise = (1..TILE).fold(i > 0 && seqs[0] > seq_of(i - 1), |rise, j| rise & (seqs[j] > seqs[j - 1]));
            let subs = if rise {
                number(i, seqs[0]);
                number(i + TILE - 1, seqs[TILE - 1]);
                [0; TILE]
            } else {
                std::array::from_fn(|j| number(i + j, seqs[j]))
            };
            if self.kind != SinkKind::Count {
                // SAFETY: the rows exist and have the hasher's stride.
                sum = sum.wrapping_add(unsafe { self.hash::<TILE>(|j| row(i + j), subs, rows.text) }?);
            }
        }
        for i in whole..n {
            let subs = [number(i, seq_of(i))];
            if self.kind != SinkKind::Count {
                // SAFETY: as above.
                sum = sum.wrapping_add(unsafe { self.hash(|_| row(i), subs, rows.text) }?);
            }
        }
        prepared.digest = Digest { rows: n as u64, sum };
        prepared.last = seq;
        prepared.leading = leading.unwrap_or(n);
        prepared.trailing = (sub - if leading.is_none() { begin } else { 0 }) as usize;
        Ok(prepared)
    }

    /// Sum of the hashes of `N` rows.
    ///
    /// # Safety
    /// As for `Hasher::rows`.
    #[inline(always)]
    unsafe fn hash<const N: usize>(
        &self,
        row: impl Fn(usize) -> *const u8,
        subs: [u64; N],
        text: Text,
    ) -> Result<u64, RunError> {
        // SAFETY: as the caller says.
        let hash = unsafe { self.hasher.rows(&row, subs, text) };
        hash.ok_or_else(|| {
            // SAFETY: as the caller says.
            let seq = unsafe { row(0).cast::<i64>().read_unaligned() };
            RunError::Invalid(format!("an output at or soon after event {seq} refers to text outside its block"))
        })
    }
}

/// What was delivered so far, as far as later outputs depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    digest: Digest,
    last: Option<i64>,
    /// The next `sub` of `last`.
    sub: u64,
    in_order: bool,
}

impl Tally {
    /// Adds what another sink has delivered, of other events.
    pub fn join(&mut self, other: &Self) {
        if other.last > self.last {
            (self.last, self.sub) = (other.last, other.sub);
        }
        self.digest += other.digest;
        self.in_order &= other.in_order;
    }
}

/// Takes batches of outputs one after the other, in the order of delivery.
#[derive(Debug)]
pub struct Sink {
    preparer: Preparer,
    so_far: Tally,
    /// In the order of delivery; joined when they are taken.
    kept: Vec<Kept>,
}

impl Sink {
    pub fn new(kind: SinkKind, hasher: Hasher) -> Self {
        Self::of(Preparer::new(kind, hasher))
    }

    /// A sink whose outputs this preparer examines.
    pub fn of(preparer: Preparer) -> Self {
        Self {
            preparer,
            so_far: Tally { digest: Digest::default(), last: None, sub: 0, in_order: true },
            kept: Vec::new(),
        }
    }

    pub fn preparer(&self) -> &Preparer {
        &self.preparer
    }

    /// The event of the last row delivered, and its next `sub`.
    pub fn end(&self) -> Option<(i64, u64)> {
        self.so_far.last.map(|last| (last, self.so_far.sub))
    }

    /// Delivers a batch that `prepare` has examined.
    pub fn deliver(&mut self, rows: &RowBuffer, prepared: &Prepared, text: Text) -> Result<(), RunError> {
        // SAFETY: a buffer's rows are readable.
        unsafe { self.deliver_rows(Rows::of(rows, text), prepared) }
    }

    /// As `deliver`, wherever the rows lie.
    ///
    /// # Safety
    /// The rows are readable.
    pub unsafe fn deliver_rows(&mut self, rows: Rows, prepared: &Prepared) -> Result<(), RunError> {
        assert_eq!(rows.n, prepared.rows, "the sink must deliver the rows that it prepared");
        if prepared.rows == 0 {
            return Ok(());
        }
        // SAFETY: as the caller says.
        let offset = unsafe { self.number(rows, prepared) }?;
        if self.preparer.keeps_rows() {
            if self.kept.is_empty() {
                self.kept.push(Kept::default());
            }
            let kept = self.kept.last_mut().expect("one was pushed");
            // SAFETY: as the caller says.
            unsafe { kept.append(rows, offset) }?;
        }
        Ok(())
    }

    /// As `deliver_rows`, with what `Preparer::keep` made of the rows. The cost does not depend on their number, unless the
    /// first ones go on with the last event before.
    ///
    /// # Safety
    /// As for `deliver_rows`.
    pub unsafe fn take_over(&mut self, rows: Rows, prepared: &Prepared, mut kept: Kept) -> Result<(), RunError> {
        assert_eq!(rows.n, prepared.rows, "the sink must deliver the rows that it prepared");
        if prepared.rows == 0 {
            return Ok(());
        }
        // SAFETY: as the caller says.
        let offset = unsafe { self.number(rows, prepared) }?;
        if self.preparer.keeps_rows() {
            assert_eq!(kept.subs.len(), rows.n, "the sink must keep the rows that it delivers");
            if offset != prepared.begin {
                for (sub, number) in kept.subs[..prepared.leading].iter_mut().zip(offset..) {
                    *sub = u32::try_from(number).map_err(|_| {
                        RunError::Invalid(format!("event {} has more than 2^32 outputs", prepared.first))
                    })?;
                }
            }
            self.kept.push(kept);
        }
        Ok(())
    }

    /// Adds a batch of rows to what was delivered. Returns the `sub` of the first one.
    ///
    /// # Safety
    /// The rows are readable.
    unsafe fn number(&mut self, rows: Rows, prepared: &Prepared) -> Result<u64, RunError> {
        let offset = self.offset(prepared);
        self.tally(prepared);
        if offset != prepared.begin && self.preparer.kind != SinkKind::Count {
            // The batch goes on with the seq the last one ended with, or does not: its first rows get other numbers.
            for i in 0..prepared.leading {
                // SAFETY: as the caller says, and `prepare` has seen their stride.
                let hash = |sub| unsafe { self.preparer.hash(|_| rows.row(i), [sub], rows.text) };
                let (assumed, real) = (hash(prepared.begin + i as u64)?, hash(offset + i as u64)?);
                self.so_far.digest.sum = self.so_far.digest.sum.wrapping_sub(assumed).wrapping_add(real);
            }
        }
        Ok(offset)
    }

    /// The `sub` of the first row of the next batch.
    fn offset(&self, prepared: &Prepared) -> u64 {
        if self.so_far.last == Some(prepared.first) { self.so_far.sub } else { 0 }
    }

    /// Delivers a batch without its rows, to a sink that keeps none.
    ///
    /// # Errors
    /// `Engine`: the first rows belong to the last event before, so their numbers are not those that `prepare` assumed.
    pub fn admit(&mut self, prepared: &Prepared) -> Result<(), RunError> {
        if prepared.rows > 0 && self.offset(prepared) != prepared.begin {
            return Err(RunError::Engine(format!("the outputs of event {} come in two batches", prepared.first)));
        }
        self.tally(prepared);
        Ok(())
    }

    /// Adds the results of outputs that were numbered before the sink. For a sink that keeps no rows.
    pub fn add(&mut self, results: &Prepared) {
        self.so_far.digest += results.digest;
        self.so_far.in_order &= results.ordered;
        if results.rows > 0 {
            let last = results.last.max(self.so_far.last.unwrap_or(i64::MIN));
            // No later output is of this event.
            (self.so_far.last, self.so_far.sub) = (Some(last), 0);
        }
    }

    /// Adds a batch to what was delivered.
    fn tally(&mut self, prepared: &Prepared) {
        if prepared.rows == 0 {
            return;
        }
        let offset = self.offset(prepared);
        self.so_far.in_order &= prepared.ordered && self.so_far.last.is_none_or(|last| last <= prepared.first);
        self.so_far.digest += prepared.digest;
        let whole = prepared.trailing == prepared.rows;
        self.so_far.sub = prepared.trailing as u64 + if whole { offset } else { 0 };
        self.so_far.last = Some(prepared.last);
    }

    /// Takes rows out of the digest that are in it before their time, each its event's only output.
    ///
    /// # Safety
    /// The rows are readable.
    pub unsafe fn take_back(&mut self, rows: Rows) -> Result<(), RunError> {
        for i in 0..rows.n {
            // SAFETY: as the caller says.
            let prepared = unsafe { self.preparer.prepare_rows(rows.slice(i..i + 1), None) }?;
            self.so_far.digest -= prepared.digest;
        }
        Ok(())
    }

    /// The rows delivered since the last call and their subs; only the parquet sink keeps any.
    pub fn take(&mut self) -> (Vec<u8>, Vec<u32>) {
        let mut kept = std::mem::take(&mut self.kept);
        if let [only] = &mut kept[..] {
            return (std::mem::take(&mut only.rows), std::mem::take(&mut only.subs));
        }
        let bytes = kept.iter().map(|kept| kept.rows.len()).sum();
        let n = kept.iter().map(|kept| kept.subs.len()).sum();
        let (mut rows, mut subs) = (Vec::with_capacity(bytes), Vec::with_capacity(n));
        for kept in kept {
            rows.extend_from_slice(&kept.rows);
            subs.extend_from_slice(&kept.subs);
        }
        (rows, subs)
    }

    pub fn digest(&self) -> Digest {
        self.so_far.digest
    }

    /// What a later sink of the same kind goes on from.
    pub fn so_far(&self) -> Tally {
        self.so_far
    }

    /// Goes on from what another sink had delivered.
    pub fn go_on(&mut self, so_far: Tally) {
        self.so_far = so_far;
    }

    /// Whether everything so far came in the order of seq.
    pub fn in_order(&self) -> bool {
        self.so_far.in_order
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::rows::column::{Column, ColumnKind};
    use proptest::prelude::*;

    fn sink(kind: SinkKind) -> Sink {
        Sink::new(kind, Hasher::new(&[Column { kind: ColumnKind::I64, offset: 8, count: 1 }], 16).unwrap())
    }

    fn batch(rows: &[(i64, i64)]) -> RowBuffer {
        let mut buffer = RowBuffer::new(16, false);
        for &(seq, value) in rows {
            // SAFETY: 16 bytes.
            unsafe { buffer.push([seq, value].as_ptr().cast(), 0).unwrap() };
        }
        buffer
    }

    fn deliver(sink: &mut Sink, rows: &[(i64, i64)]) {
        deliver_behind(sink, rows, None);
    }

    fn deliver_behind(sink: &mut Sink, rows: &[(i64, i64)], before: Option<(i64, u64)>) -> Option<(i64, u64)> {
        let rows = batch(rows);
        // SAFETY: a buffer's rows.
        let prepared = unsafe { sink.preparer().prepare_rows(Rows::of(&rows, Text::empty()), before) }.unwrap();
        sink.deliver(&rows, &prepared, Text::empty()).unwrap();
        Some(prepared.end())
    }

    proptest! {
        #[test]
        fn batches_do_not_matter(counts in proptest::collection::vec(0_usize..6, 1..30), cuts: u64) {
            let rows: Vec<(i64, i64)> =
                counts.iter().enumerate().flat_map(|(s, &n)| (0..n).map(move |i| (s as i64, i as i64 * 7))).collect();
            let (mut whole, mut parts) = (sink(SinkKind::Parquet), sink(SinkKind::Parquet));
            deliver(&mut whole, &rows);
            let mut rest = &rows[..];
            let (mut bits, mut end) = (cuts, None);
            while !rest.is_empty() {
                let n = (bits as usize % 4).min(rest.len());
                bits = bits.rotate_right(3).wrapping_add(1);
                // What comes before is known, not known, or taken for something else.
                let before = [end, None, Some((rest[0].0, bits % 5))][bits as usize % 3];
                if n > 0 {
                    end = deliver_behind(&mut parts, &rest[..n], before);
                }
                rest = &rest[n..];
            }
            // Not adjacent, and put down the other way round.
            let mut scattered = sink(SinkKind::Parquet);
            let backwards: Vec<(i64, i64)> = rows.iter().rev().copied().collect();
            let buffer = batch(&backwards);
            let places: Vec<*const u8> = (0..rows.len()).rev().map(|i| buffer.row(i)).collect();
            for places in places.chunks(1 + cuts as usize % 40) {
                let rows = Rows { places: places.as_ptr(), n: places.len(), ..Rows::nothing(16) };
                // SAFETY: rows of the buffer.
                unsafe {
                    let prepared = scattered.preparer().prepare_rows(rows, None).unwrap();
                    scattered.deliver_rows(rows, &prepared).unwrap();
                }
            }
            // Copied before their turn, with numbers that may turn out wrong.
            let mut handed_over = sink(SinkKind::Parquet);
            for rows in rows.chunks(1 + cuts as usize % 7) {
                let buffer = batch(rows);
                let rows = Rows::of(&buffer, Text::empty());
                // SAFETY: a buffer's rows.
                unsafe {
                    let prepared = handed_over.preparer().prepare_rows(rows, None).unwrap();
                    let kept = handed_over.preparer().keep(rows, &prepared).unwrap();
                    handed_over.take_over(rows, &prepared, kept).unwrap();
                }
            }
            prop_assert_eq!(whole.digest(), handed_over.digest());
            prop_assert_eq!(whole.digest(), scattered.digest());
            prop_assert!(scattered.in_order());
            prop_assert_eq!(whole.digest(), parts.digest());
            prop_assert!(parts.in_order());
            let subs: Vec<u32> = counts.iter().flat_map(|&n| 0..n as u32).collect();
            let taken = parts.take();
            prop_assert_eq!(&taken.1, &subs);
            prop_assert_eq!(&taken, &scattered.take());
            prop_assert_eq!(&taken, &handed_over.take());
            prop_assert_eq!(taken, whole.take());
        }
    }

    #[test]
    fn a_delivery_does_not_look_at_rows() {
        let events = [(1, 0), (1, 1), (2, 5)];
        for kind in [SinkKind::Digest, SinkKind::Parquet] {
            let (mut sink, mut expected) = (sink(kind), sink(kind));
            deliver(&mut expected, &events);
            let buffer = batch(&events);
            let rows = Rows::of(&buffer, Text::empty());
            // No row could be read there.
            let nowhere = Rows { start: std::ptr::without_provenance(8), ..rows };
            // SAFETY: a buffer's rows; and those that are nowhere begin no batch that goes on with an earlier event.
            unsafe {
                let prepared = sink.preparer().prepare_rows(rows, None).unwrap();
                let kept = sink.preparer().keep(rows, &prepared).unwrap();
                sink.take_over(nowhere, &prepared, kept).unwrap();
            }
            assert_eq!((sink.digest(), sink.take()), (expected.digest(), expected.take()));
        }
    }

    #[test]
    fn disorder_is_noticed_within_and_between_batches() {
        let mut within = sink(SinkKind::Count);
        deliver(&mut within, &[(1, 0), (0, 0)]);
        assert!(!within.in_order());
        let mut between = sink(SinkKind::Digest);
        deliver(&mut between, &[(5, 0)]);
        deliver(&mut between, &[(4, 0)]);
        assert!(!between.in_order());
    }

    #[test]
    fn order_and_values_change_the_digest() {
        let of = |rows: &[(i64, i64)]| {
            let mut sink = sink(SinkKind::Digest);
            deliver(&mut sink, rows);
            sink.digest()
        };
        assert_ne!(of(&[(1, 5), (1, 6)]), of(&[(1, 6), (1, 5)]));
        assert_ne!(of(&[(1, 5)]), of(&[(1, 6)]));
        assert_ne!(of(&[(1, 5)]), of(&[(1, 5), (1, 5)]));
    }
}
