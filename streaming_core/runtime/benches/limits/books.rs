//! ob: bids on conditions, and orders that change twenty items.

use crate::input::{Input, Row};
use crate::output::Digest;

const LENGTH: usize = 20;
const BID: u8 = 0;
const ALTER: u8 = 1;
const TOP: u8 = 2;
const KIND: usize = 20;
const AUTH: usize = 21;
const N: usize = 22;
const ITEMS: usize = 24;
const PRICES: usize = 104;
const QUANTITIES: usize = 264;

#[derive(Clone, Copy)]
struct Item {
    ask: i64,
    quantity: i64,
}

pub fn run(input: &Input) -> Digest {
    let mut goods: Vec<Item> =
        input.integers(0).chunks_exact(2).map(|item| Item { ask: item[0], quantity: item[1] }).collect();
    let mut digest = Digest::default();
    for row in input.blocks.iter().flat_map(|block| block.rows()) {
        event(row, &mut goods, &mut digest);
    }
    digest
}

#[inline(always)]
fn event(row: Row, goods: &mut [Item], digest: &mut Digest) {
    let (kind, n) = (row.u8(KIND), usize::from(row.u8(N)));
    let item = |i: usize| row.u32(ITEMS + 4 * i) as usize;
    let [price, quantity] = [PRICES, QUANTITIES].map(|at| move |i: usize| row.i64(at + 8 * i));
    if kind > TOP || !(1..=LENGTH).contains(&n) {
        return;
    }
    if (0..n).any(|i| item(i) >= goods.len() || price(i) < 0 || quantity(i) < 0) {
        return;
    }
    if kind == BID && (1..n).any(|i| (0..i).any(|j| item(i) == item(j))) {
        return;
    }
    let has_rights = row.u8(AUTH) != 0;
    let (mut ask, mut left, mut accepted) = (0, 0, true);
    if has_rights {
        match kind {
            BID => {
                accepted = (0..n).all(|i| price(i) >= goods[item(i)].ask && quantity(i) <= goods[item(i)].quantity);
                for i in 0..n {
                    let good = &mut goods[item(i)];
                    good.quantity -= if accepted { quantity(i) } else { 0 };
                    ask += good.ask;
                    left += good.quantity;
                }
            }
            ALTER => (0..n).for_each(|i| goods[item(i)].ask = price(i)),
            _ => (0..n).for_each(|i| goods[item(i)].quantity += quantity(i)),
        }
    }
    let flags = [i64::from(kind), i64::from(has_rights), i64::from(has_rights && accepted)];
    digest.add(row.seq(), 0, [flags[0], flags[1], flags[2], ask, left]);
}
