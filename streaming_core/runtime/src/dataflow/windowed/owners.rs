//! Owners: the replica that handles the keys of each cell (STRETCH, section 2.2: f_mu maps keys to instances).
//!
//! A pattern names them: a list of replicas, which repeats over the cells. Cell `c` belongs to the replica at place
//! `c mod length`. So `[0, 1]` deals the cells in turn, and `[0, 0, 0, 1]` gives the first replica three quarters of them. A
//! pattern with a place for each cell names every owner.

use crate::state::windows::CELLS;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owners {
    pattern: Vec<usize>,
    of: Box<[u16; CELLS]>,
    replicas: Vec<usize>,
}

impl Owners {
    /// Makes the owners that a checked pattern names (`check`).
    pub fn new(pattern: &[usize]) -> Self {
        let mut replicas = pattern.to_vec();
        replicas.sort_unstable();
        replicas.dedup();
        let of = Box::new(std::array::from_fn(|cell| pattern[cell % pattern.len()] as u16));
        Self { pattern: pattern.to_vec(), of, replicas }
    }

    /// Checks a pattern for `operator`, which has `replicas` replicas: it names only these, 1 to `CELLS` times.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(operator: &str, pattern: &[usize], replicas: usize) -> Result<(), String> {
        if pattern.is_empty() || pattern.len() > CELLS || pattern.iter().any(|&replica| replica >= replicas) {
            return Err(format!(
                "{operator} has replicas 0 to {}: name the owners of its cells, 1 to {CELLS} numbers, not {pattern:?}",
                replicas - 1
            ));
        }
        Ok(())
    }

    #[inline]
    pub fn of(&self, cell: usize) -> usize {
        usize::from(self.of[cell])
    }

    pub fn pattern(&self) -> &[usize] {
        &self.pattern
    }

    /// The replicas that own cells, ascending.
    pub fn replicas(&self) -> &[usize] {
        &self.replicas
    }

    /// The replicas that own cells here, and none in `other`.
    pub fn without(&self, other: &Self) -> Vec<usize> {
        self.replicas.iter().copied().filter(|&replica| !other.has(replica)).collect()
    }

    pub fn has(&self, replica: usize) -> bool {
        self.replicas.binary_search(&replica).is_ok()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn cells(owners: &Owners, replica: usize) -> usize {
        (0..CELLS).filter(|&cell| owners.of(cell) == replica).count()
    }

    #[test]
    fn a_pattern_repeats_over_the_cells() {
        let owners = Owners::new(&[2, 0, 2, 2]);
        assert_eq!([0, 1, 2, 3, 4, 5].map(|cell| owners.of(cell)), [2, 0, 2, 2, 2, 0]);
        assert_eq!([0, 1, 2].map(|replica| cells(&owners, replica)), [CELLS / 4, 0, 3 * CELLS / 4]);
        assert_eq!((owners.replicas(), owners.has(1), owners.has(2)), (&[0, 2][..], false, true));
        let dealt = Owners::new(&[0, 1, 2]);
        assert!((0..3).all(|replica| cells(&dealt, replica).abs_diff(CELLS / 3) <= 1));
    }

    #[test]
    fn a_pattern_that_does_not_fit_is_refused() {
        for pattern in [&[][..], &[4], &[0; CELLS + 1]] {
            let error = Owners::check("count", pattern, 4).unwrap_err();
            assert!(error.starts_with("count has replicas 0 to 3: name the owners of its cells, 1 to "), "{error}");
        }
        assert_eq!(Owners::check("count", &[3, 3, 0], 4), Ok(()));
    }
}
