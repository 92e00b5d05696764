//! Times: what workers have spent at each place in the current window of time, as the central scheduler knows it.
//!
//! A window begins when the one before is over and a worker asks. The worker reports the time of its last slice; of a slice that
//! began in the window before, what lies in this one counts. Source: Prasaad et al., section 6.4.

/// The times of one window, in nanoseconds.
#[derive(Debug)]
pub struct Times {
    length: u64,
    began: u64,
    /// Per place.
    spent: Vec<u64>,
}

impl Times {
    pub fn new(length: u64, places: usize) -> Self {
        Self { length, began: 0, spent: vec![0; places] }
    }

    /// At `now`, of engine time, a worker has just spent `nanoseconds` at `place`.
    pub fn add(&mut self, now: u64, place: usize, nanoseconds: u64) {
        if now.saturating_sub(self.began) >= self.length {
            self.began = now - (now - self.began) % self.length;
            self.spent.fill(0);
        }
        self.spent[place] += nanoseconds.min(now.saturating_sub(self.began));
    }

    /// Per place, what was spent there within the window.
    pub fn spent(&self) -> &[u64] {
        &self.spent
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_current_window() {
        let mut times = Times::new(1000, 2);
        times.add(300, 0, 100);
        times.add(900, 1, 250);
        times.add(999, 0, 50);
        assert_eq!(times.spent(), [150, 250]);
        // The third window has begun 40 ago: the rest of this slice lies before it.
        times.add(2040, 1, 100);
        assert_eq!(times.spent(), [0, 40]);
        times.add(2100, 1, 60);
        assert_eq!(times.spent(), [0, 100]);
        // A clock that was read before another worker began the window.
        times.add(1990, 0, 60);
        assert_eq!(times.spent(), [0, 100]);
    }
}
