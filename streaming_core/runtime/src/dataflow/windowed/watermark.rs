//! The watermark of a windowed operator (STRETCH, section 2.3), as far as windows expire by it: the earliest window that it
//! leaves open. It follows from the *marks*, which are the highest `ts` of each stream so far. It is the lowest mark less `delay`,
//! and it never falls. A stream without a mark holds it back. With `idle`, streams without a mark, and those whose mark
//! is more than `idle` below the highest one, do not.
//!
//! Times are in units of `ts`.

use crate::planted::{self, Fault};
use crate::state::windows::{Bounds, Recent};

/// Of a stream without a row, and of a watermark that leaves everything open.
pub const NONE: i64 = i64::MIN;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watermark {
    /// Per stream; `NONE`: it had no row.
    marks: Box<[i64]>,
    /// The earliest open window; `NONE`: no window has expired.
    open: i64,
}

impl Watermark {
    /// Of `streams` streams without rows.
    pub fn new(streams: usize) -> Self {
        Self { marks: vec![NONE; streams].into(), open: NONE }
    }

    /// The earliest open window; `NONE`: no window has expired.
    #[inline(always)]
    pub fn open(&self) -> i64 {
        self.open
    }

    /// The earliest open window after a row of `stream` at `ts`.
    #[inline(always)]
    pub fn after(&self, stream: usize, ts: i64, bounds: &Bounds, recent: &mut Recent) -> i64 {
        if ts <= self.marks[stream] {
            return self.open;
        }
        let low = if self.marks.len() == 1 { Some(ts) } else { self.low(stream, ts, bounds.idle) };
        let early = i64::from(planted::has(Fault::EarlyExpiry));
        low.map_or(self.open, |low| bounds.first_beyond(low - bounds.delay + early, recent).max(self.open))
    }

    /// The lowest mark that counts, with a row of `stream` at `ts`, which raises its mark.
    fn low(&self, stream: usize, ts: i64, idle: Option<i64>) -> Option<i64> {
        let marks = || self.marks.iter().enumerate().map(|(other, &mark)| if other == stream { ts } else { mark });
        let Some(idle) = idle else { return marks().min().filter(|&low| low != NONE) };
        let oldest = marks().max()? - idle;
        marks().filter(|&mark| mark >= oldest).min()
    }

    /// Takes in a row of `stream` at `ts`, after which `open` is the earliest open window.
    #[inline(always)]
    pub fn advance(&mut self, stream: usize, ts: i64, open: i64) {
        let mark = &mut self.marks[stream];
        *mark = ts.max(*mark);
        self.open = open;
    }

    /// Goes as far as another one, which has seen other rows of the same streams.
    pub fn merge(&mut self, other: &Self) {
        self.words_mut().zip(other.words()).for_each(|(word, other)| *word = other.max(*word));
    }

    /// As numbers, `words_of` many; a greater one is further on.
    pub fn words(&self) -> impl Iterator<Item = i64> {
        self.marks.iter().copied().chain([self.open])
    }

    /// The same, to be raised.
    pub fn words_mut(&mut self) -> impl Iterator<Item = &mut i64> {
        self.marks.iter_mut().chain([&mut self.open])
    }

    /// How many words the watermark of so many streams has.
    pub fn words_of(streams: usize) -> usize {
        streams + 1
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { advance: 1, size: 1, delay: 2, idle: None };

    fn after(rows: &[(usize, i64)], bounds: &Bounds) -> Vec<i64> {
        let (mut watermark, mut recent) = (Watermark::new(2), Recent::default());
        rows.iter()
            .map(|&(stream, ts)| {
                let open = watermark.after(stream, ts, bounds, &mut recent);
                watermark.advance(stream, ts, open);
                watermark.open()
            })
            .collect()
    }

    #[test]
    fn the_stream_that_is_furthest_behind_holds_the_watermark() {
        assert_eq!(after(&[(0, 9), (0, 50), (1, 7), (1, 20), (1, 6), (0, 51)], &BOUNDS), [NONE, NONE, 5, 18, 18, 18]);
    }

    #[test]
    fn an_idle_stream_does_not_hold_the_watermark_and_does_not_take_it_back() {
        let bounds = Bounds { idle: Some(10), ..BOUNDS };
        assert_eq!(after(&[(0, 9), (1, 5), (0, 15), (0, 16), (1, 10), (1, 17)], &bounds), [7, 7, 7, 14, 14, 14]);
        let extreme = Bounds { delay: 1 << 61, idle: Some(1 << 61), ..BOUNDS };
        assert_eq!(after(&[(0, -(1 << 61)), (1, 1 << 61)], &extreme), [-(1 << 62), 0]);
    }
}
