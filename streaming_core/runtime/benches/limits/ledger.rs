//! sl: deposits, and transfers on conditions.

use crate::input::{Input, Row};
use crate::output::Digest;

const TRANSFER: u8 = 1;
const KIND: usize = 16;
const SOURCE: usize = 20;
const TARGET: usize = 24;
const SOURCE_ASSET: usize = 28;
const TARGET_ASSET: usize = 32;
const AMOUNT: usize = 40;
const ASSET_AMOUNT: usize = 48;
const LEAST: usize = 56;

pub fn run(input: &Input) -> Digest {
    let (mut accounts, mut assets) = (input.integers(0), input.integers(1));
    let mut digest = Digest::default();
    for row in input.blocks.iter().flat_map(|block| block.rows()) {
        event(row, &mut accounts, &mut assets, &mut digest);
    }
    digest
}

#[inline(always)]
fn event(row: Row, accounts: &mut [i64], assets: &mut [i64], digest: &mut Digest) {
    let [source, target] = [SOURCE, TARGET].map(|at| row.u32(at) as usize);
    let [source_asset, target_asset] = [SOURCE_ASSET, TARGET_ASSET].map(|at| row.u32(at) as usize);
    let (kind, amount, asset_amount) = (row.u8(KIND), row.i64(AMOUNT), row.i64(ASSET_AMOUNT));
    let is_known = source.max(target) < accounts.len() && source_asset.max(target_asset) < assets.len();
    if !is_known || kind > TRANSFER || amount < 0 || asset_amount < 0 {
        return;
    }
    if kind != TRANSFER {
        accounts[target] += amount;
        assets[target_asset] += asset_amount;
        digest.add(row.seq(), 0, [i64::from(kind), 1, 0, accounts[target], 0, assets[target_asset]]);
        return;
    }
    let balance = accounts[source];
    let accepted = balance > row.i64(LEAST) && balance > amount && assets[source_asset] > asset_amount;
    if accepted {
        accounts[source] -= amount;
        accounts[target] += amount;
        assets[source_asset] -= asset_amount;
        assets[target_asset] += asset_amount;
    }
    let balances = [accounts[source], accounts[target], assets[source_asset], assets[target_asset]];
    let [a, b, c, d] = balances;
    digest.add(row.seq(), 0, [i64::from(kind), i64::from(accepted), a, b, c, d]);
}
