//! scalejoin: pairs of rows of two streams within a window, by a nested loop over columns.
//!
//! Several threads share the work as ScaleJoin does. Every thread reads all rows, and stores the next row in its turn. It
//! compares each row with the rows that it stores. The rows lie in memory, so the threads wait for nothing but each other's end. This is
//! a bound: ScaleJoin's threads take their rows from a ScaleGate, and put their pairs into another one.

use std::thread;

use crate::input::{Input, Row};
use crate::output::{Digest, Hash};

const BAND: i64 = 10;
/// Offsets in a row: `seq` lies at 0, then the columns of both streams.
const TS: usize = 8;
const LEFT: (usize, usize) = (16, 24);
const RIGHT: (usize, usize) = (32, 40);
const C: usize = 48;
const D: usize = 56;
const STREAM: usize = 57;
/// Rows that are compared before any is looked at: few of them meet.
const CHUNK: usize = 64;
/// Expired rows that may lie before the first one of the window.
const EXPIRED: usize = 1 << 14;

/// The parameters of the application, and the threads.
#[derive(Clone, Copy)]
pub struct Join {
    pub threads: u64,
    pub keys: u64,
    /// The length of a window in milliseconds.
    pub size: i64,
}

/// The rows of a stream in the window, as columns.
#[derive(Default)]
struct Side {
    first: usize,
    ts: Vec<i64>,
    seq: Vec<i64>,
    /// The key that stores the row, by which the outputs of an event are sorted.
    key: Vec<u64>,
    x: Vec<i64>,
    y: Vec<f64>,
    c: Vec<f64>,
    d: Vec<u8>,
}

/// A row of either stream: its two columns, and what only right rows have.
#[derive(Clone, Copy)]
struct Columns {
    x: i64,
    y: f64,
    c: f64,
    d: u8,
}

/// Two rows that meet. A key compares a row with the rows that it stores, and keys do so one after the other. So the pairs of an
/// event are sorted by key.
struct Pair {
    seq: i64,
    key: u64,
    ts: i64,
    earlier: i64,
    left: Columns,
    right: Columns,
}

impl Join {
    pub fn run<const KEEP: bool>(self, input: &Input) -> Digest<KEEP> {
        let mut pairs = thread::scope(|scope| {
            let others: Vec<_> = (1..self.threads).map(|share| scope.spawn(move || self.pairs(input, share))).collect();
            let mut pairs = self.pairs(input, 0);
            for other in others {
                pairs.extend(other.join().expect("a thread of the join does not fail"));
            }
            pairs
        });
        // Stable: the pairs of a key stay in the order in which it stored their rows.
        pairs.sort_by_key(|pair| (pair.seq, pair.key));
        let (mut digest, mut before, mut sub) = (Digest::default(), i64::MIN, 0);
        for pair in pairs {
            sub = if pair.seq == before { sub + 1 } else { 0 };
            before = pair.seq;
            digest.finish(pair.hash(sub));
        }
        digest
    }

    /// The pairs of all rows with those that one thread stores: the rows of every `threads`-th key.
    fn pairs(self, input: &Input, share: u64) -> Vec<Pair> {
        let mut sides = [Side::default(), Side::default()];
        let (mut pairs, mut hits, mut seen, mut before) = (Vec::new(), Vec::new(), 0, i64::MIN);
        for block in &input.blocks {
            for row in block.rows() {
                let ts = row.i64(TS);
                if before < ts - self.size + 1 {
                    // No row of the window is left, so all keys start anew.
                    seen = 0;
                }
                (before, seen) = (ts, seen + 1);
                let key = seen % self.keys;
                let stored_as = (key % self.threads == share).then_some(key);
                event(row, ts, ts - self.size + 1, stored_as, &mut sides, &mut hits, &mut pairs);
            }
        }
        pairs
    }
}

#[inline(always)]
fn event(
    row: Row,
    ts: i64,
    start: i64,
    stored_as: Option<u64>,
    sides: &mut [Side; 2],
    hits: &mut Vec<usize>,
    pairs: &mut Vec<Pair>,
) {
    let is_right = row.u8(STREAM) == 1;
    let (x, y) = if is_right { RIGHT } else { LEFT };
    let columns = Columns { x: row.i64(x), y: row.f64(y), c: row.f64(C), d: row.u8(D) };
    let [own, other] = match (sides, is_right) {
        ([left, right], false) => [left, right],
        ([left, right], true) => [right, left],
    };
    other.purge(start);
    hits.clear();
    other.near(columns.x, columns.y, hits);
    pairs.extend(hits.iter().map(|&at| {
        let (left, right) = if is_right { (other.columns(at), columns) } else { (columns, other.columns(at)) };
        Pair { seq: row.seq(), key: other.key[at], ts, earlier: other.seq[at], left, right }
    }));
    if let Some(key) = stored_as {
        own.add(row.seq(), ts, key, columns);
    }
}

impl Pair {
    fn hash<const KEEP: bool>(&self, sub: u64) -> Hash<KEEP> {
        let Self { left, right, .. } = self;
        let mut hash = Hash::of(self.seq, sub);
        for column in [self.ts + 1, self.earlier, left.x, left.y.to_bits() as i64, right.x, right.y.to_bits() as i64] {
            hash.word(column as u64);
        }
        hash.word(right.c.to_bits());
        hash.word(u64::from(right.d));
        hash
    }
}

impl Side {
    #[inline(always)]
    fn add(&mut self, seq: i64, ts: i64, key: u64, columns: Columns) {
        self.ts.push(ts);
        self.seq.push(seq);
        self.key.push(key);
        self.x.push(columns.x);
        self.y.push(columns.y);
        self.c.push(columns.c);
        self.d.push(columns.d);
    }

    #[inline(always)]
    fn purge(&mut self, start: i64) {
        while self.ts.get(self.first).is_some_and(|&ts| ts < start) {
            self.first += 1;
        }
        if self.first > EXPIRED && self.first > self.ts.len() / 2 {
            self.forget();
        }
    }

    #[cold]
    fn forget(&mut self) {
        let first = std::mem::take(&mut self.first);
        self.ts.drain(..first);
        self.seq.drain(..first);
        self.key.drain(..first);
        self.x.drain(..first);
        self.y.drain(..first);
        self.c.drain(..first);
        self.d.drain(..first);
    }

    fn columns(&self, at: usize) -> Columns {
        Columns { x: self.x[at], y: self.y[at], c: self.c[at], d: self.d[at] }
    }

    /// Adds the rows of the window whose columns are close to these.
    #[inline(always)]
    fn near(&self, x: i64, y: f64, hits: &mut Vec<usize>) {
        let (xs, ys) = (&self.x[self.first..], &self.y[self.first..]);
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has these instructions.
            unsafe { scan_avx2(xs, ys, x, y, self.first, hits) };
            return;
        }
        scan(xs, ys, x, y, self.first, hits);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn scan_avx2(xs: &[i64], ys: &[f64], x: i64, y: f64, first: usize, hits: &mut Vec<usize>) {
    scan(xs, ys, x, y, first, hits);
}

/// Compares a chunk without branches, and looks for the rows in it only if there is one.
#[inline(always)]
fn scan(xs: &[i64], ys: &[f64], x: i64, y: f64, first: usize, hits: &mut Vec<usize>) {
    let near = |other_x: i64, other_y: f64| {
        let (dx, dy) = (other_x.wrapping_sub(x).wrapping_abs(), (other_y - y).abs());
        (dx <= BAND) & (dy <= BAND as f64)
    };
    let (x_chunks, x_rest) = xs.as_chunks::<CHUNK>();
    let (y_chunks, y_rest) = ys.as_chunks::<CHUNK>();
    for (number, (xs, ys)) in x_chunks.iter().zip(y_chunks).enumerate() {
        let is_any = (0..CHUNK).fold(false, |any, at| any | near(xs[at], ys[at]));
        if is_any {
            let begin = first + number * CHUNK;
            hits.extend((0..CHUNK).filter(|&at| near(xs[at], ys[at])).map(|at| begin + at));
        }
    }
    let begin = first + x_chunks.len() * CHUNK;
    hits.extend((0..x_rest.len()).filter(|&at| near(x_rest[at], y_rest[at])).map(|at| begin + at));
}
