//! sd: readings beside the moving average of their sensor.

use std::collections::HashMap;

use crate::input::{Block, Input, Row};
use crate::output::Digest;

const LINE: usize = 16;
const WINDOW: usize = 1_000;
const THRESHOLD: i64 = 300;
/// Sensors below this number have a place in an array.
const FEW: usize = 1 << 12;

/// The last readings of a sensor.
struct Window {
    recent: Vec<i64>,
    oldest: usize,
    total: i64,
}

pub fn run<const KEEP: bool>(input: &Input) -> Digest<KEEP> {
    let mut few: Vec<Window> = (0..FEW).map(|_| Window::new()).collect();
    let mut others = HashMap::new();
    let mut digest = Digest::default();
    for block in &input.blocks {
        for row in block.rows() {
            event(block, row, &mut few, &mut others, &mut digest);
        }
    }
    digest
}

#[inline(always)]
fn event<const KEEP: bool>(
    block: &Block,
    row: Row,
    few: &mut [Window],
    others: &mut HashMap<i64, Window>,
    digest: &mut Digest<KEEP>,
) {
    let Some((device, value)) = parse(block.text(row, LINE)) else { return };
    let window = match few.get_mut(device as usize) {
        Some(window) => window,
        None => others.entry(device).or_insert_with(Window::new),
    };
    let (total, size) = window.add(value);
    let distance = (value * size - total).abs() * 10_000;
    let is_spike = distance > THRESHOLD * total;
    digest.add(row.seq(), 0, [device, total.div_euclid(size), value, i64::from(is_spike)]);
}

/// Sensor and temperature, the fourth and fifth of at least eight fields.
#[inline(always)]
fn parse(line: &[u8]) -> Option<(i64, i64)> {
    let (mut start, mut device, mut value) = (0, None, None);
    for field in 0..7 {
        let stop = line[start..].iter().position(|&byte| byte == b' ').map(|at| start + at)?;
        if stop == start {
            return None;
        }
        match field {
            3 => device = natural(&line[start..stop]),
            4 => value = decimal(&line[start..stop]),
            _ => {}
        }
        start = stop + 1;
    }
    (start < line.len()).then_some((device?, value?))
}

#[inline(always)]
fn natural(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 9 {
        return None;
    }
    text.iter().try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0')))
}

/// In 1/10000, rounded towards 0.
#[inline(always)]
fn decimal(text: &[u8]) -> Option<i64> {
    let (is_negative, text) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
    let point = text.iter().position(|&byte| byte == b'.').unwrap_or(text.len());
    if point == 0 || point > 5 || point + 1 == text.len() {
        return None;
    }
    let mut number = natural(&text[..point])? * 10_000;
    let mut scale = 1_000;
    for byte in text.iter().skip(point + 1) {
        if !byte.is_ascii_digit() {
            return None;
        }
        number += i64::from(byte - b'0') * scale;
        scale /= 10;
    }
    Some(if is_negative { -number } else { number })
}

impl Window {
    fn new() -> Self {
        Self { recent: Vec::new(), oldest: 0, total: 0 }
    }

    /// Adds a reading. Returns the total of the window, and the number of its readings.
    #[inline(always)]
    fn add(&mut self, value: i64) -> (i64, i64) {
        self.total += value;
        if self.recent.len() < WINDOW {
            self.recent.push(value);
        } else {
            self.total -= std::mem::replace(&mut self.recent[self.oldest], value);
            self.oldest = if self.oldest + 1 == WINDOW { 0 } else { self.oldest + 1 };
        }
        (self.total, self.recent.len() as i64)
    }
}
