//! Controller `balance` shares the cells anew among the same replicas, so that they have equally much to do (STRETCH, section
//! 2.5: a load balancing reconfiguration). The load of a cell is how often rows met its keys in a period.
//!
//! Cells go from the replica with most to do to the one with least, the largest first that makes both more alike. So few
//! cells change their owner. It acts only if the most loaded replica has clearly more than the mean, because loads of
//! periods differ by chance.

use std::cmp::Reverse;

use crate::dataflow::windowed::owners::Owners;
use crate::state::windows::CELLS;

pub const NAME: &str = "balance";

/// The load of the most loaded replica, in percent of the mean, above which cells get other owners, and below which it is
/// good enough.
pub const UPPER: f64 = 110.0;
const TARGET: f64 = 102.0;

/// Other owners, if the present ones have clearly different loads. Also returns the load of the most loaded replica, in
/// percent of the mean.
pub fn rebalanced(loads: &[u64], owners: &Owners) -> Option<(Owners, f64)> {
    let replicas = owners.replicas();
    let mut of: Vec<usize> = (0..CELLS).map(|cell| owners.of(cell)).collect();
    let load = |of: &[usize], replica: usize| -> u64 {
        (0..CELLS).filter(|&cell| of[cell] == replica).map(|cell| loads[cell]).sum()
    };
    let mut sums: Vec<(u64, usize)> = replicas.iter().map(|&replica| (load(&of, replica), replica)).collect();
    let mean = sums.iter().map(|&(sum, _)| sum).sum::<u64>() as f64 / replicas.len() as f64;
    let percent = |sums: &[(u64, usize)]| 100.0 * sums.iter().map(|&(sum, _)| sum).max().unwrap_or(0) as f64 / mean;
    let before = percent(&sums);
    if !(mean > 0.0 && before > UPPER) {
        return None;
    }
    while percent(&sums) > TARGET {
        // Of equal sums the one of the smaller replica.
        let most = (0..sums.len()).max_by_key(|&at| (sums[at].0, Reverse(sums[at].1)))?;
        let least = (0..sums.len()).min_by_key(|&at| sums[at])?;
        let gap = sums[most].0 - sums[least].0;
        let moved = (0..CELLS)
            .filter(|&cell| of[cell] == sums[most].1 && 0 < loads[cell] && 2 * loads[cell] <= gap)
            .max_by_key(|&cell| (loads[cell], Reverse(cell)));
        let Some(cell) = moved else { break };
        of[cell] = sums[least].1;
        sums[most].0 -= loads[cell];
        sums[least].0 += loads[cell];
    }
    // Nothing is won where a single cell has the load.
    (percent(&sums) < before).then(|| (Owners::new(&of), before))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sums(loads: &[u64], owners: &Owners, replicas: usize) -> Vec<u64> {
        let mut sums = vec![0; replicas];
        (0..CELLS).for_each(|cell| sums[owners.of(cell)] += loads[cell]);
        sums
    }

    #[test]
    fn equal_loads_stay_where_they_are() {
        assert_eq!(rebalanced(&[7; CELLS], &Owners::new(&[0, 1, 2])), None);
        assert_eq!(rebalanced(&[0; CELLS], &Owners::new(&[0, 1])), None);
    }

    #[test]
    fn a_load_that_is_one_cell_s_stays_where_it_is() {
        let mut loads = [0; CELLS];
        loads[5] = 1_000;
        assert_eq!(rebalanced(&loads, &Owners::new(&[0, 1])), None);
        // Its owner gives away what else it has.
        loads[7] = 400;
        let (owners, percent) = rebalanced(&loads, &Owners::new(&[0, 1])).unwrap();
        assert_eq!(([owners.of(5), owners.of(7)], percent), ([1, 0], 200.0));
    }

    proptest! {
        #[test]
        fn the_same_replicas_share_more_evenly(
            loads in proptest::collection::vec(0_u64..1_000, CELLS),
            pattern in proptest::collection::vec(0_usize..4, 1..9),
        ) {
            let before = Owners::new(&pattern);
            let Some((after, percent)) = rebalanced(&loads, &before) else { return Ok(()) };
            prop_assert!(percent > UPPER);
            prop_assert_eq!(after.replicas(), before.replicas());
            let most = |owners: &Owners| sums(&loads, owners, 4).into_iter().max().unwrap();
            prop_assert!(most(&after) < most(&before));
            // Loads of a thousand cells can be dealt to within one of the largest.
            let mean = loads.iter().sum::<u64>() / before.replicas().len() as u64;
            prop_assert!(most(&after) <= mean * 102 / 100 + 1_000);
        }
    }
}
