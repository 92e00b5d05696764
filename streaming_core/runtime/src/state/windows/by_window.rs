//! What open windows have, by their number: few windows, mostly neighbours, sometimes far apart.

use std::collections::VecDeque;

use crate::state::windows::OutOfMemory;

/// Something per window, by its number; as much memory as there are windows that have something.
#[derive(Debug)]
pub struct ByWindow<T> {
    /// Ascending.
    some: VecDeque<(i64, T)>,
}

impl<T> Default for ByWindow<T> {
    fn default() -> Self {
        Self { some: VecDeque::new() }
    }
}

impl<T> ByWindow<T> {
    /// The earliest window that has something.
    #[inline]
    pub fn first(&self) -> Option<i64> {
        self.some.front().map(|&(number, _)| number)
    }

    /// Where a window is, or where it would be.
    #[inline(always)]
    fn place(&self, number: i64) -> Result<usize, usize> {
        let Some(first) = self.first() else { return Err(0) };
        // Numbers ascend, so a window is never behind this place. It is there if all windows between have something.
        let most = usize::try_from(number.wrapping_sub(first)).unwrap_or(usize::MAX);
        match self.some.get(most) {
            Some(&(at, _)) if at == number => Ok(most),
            _ => self.search(number),
        }
    }

    #[inline(never)]
    fn search(&self, number: i64) -> Result<usize, usize> {
        if self.some.back().is_some_and(|&(last, _)| last < number) {
            return Err(self.some.len());
        }
        self.some.binary_search_by_key(&number, |&(at, _)| at)
    }

    #[inline]
    pub fn get_mut(&mut self, number: i64) -> Option<&mut T> {
        let place = self.place(number).ok()?;
        self.some.get_mut(place).map(|(_, some)| some)
    }

    /// What a window has, made if there is nothing; whether there was nothing.
    ///
    /// # Errors
    /// There is no memory for one more.
    #[inline]
    pub fn get_or_make<E: From<OutOfMemory>>(
        &mut self,
        number: i64,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<(&mut T, bool), E> {
        let (place, is_new) = match self.place(number) {
            Ok(place) => (place, false),
            Err(place) => {
                self.some.try_reserve(1).map_err(OutOfMemory::from)?;
                self.some.insert(place, (number, make()?));
                (place, true)
            }
        };
        Ok((&mut self.some[place].1, is_new))
    }

    pub fn take(&mut self, number: i64) -> Option<T> {
        let place = self.place(number).ok()?;
        self.some.remove(place).map(|(_, some)| some)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (i64, &mut T)> {
        self.some.iter_mut().map(|(number, some)| (*number, some))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![-20_i64..20, prop::sample::select(vec![i64::MIN, -1 << 61, 1 << 40, i64::MAX - 1, i64::MAX])]
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((number(), any::<bool>()), 0..60)) {
            let (mut by_window, mut known) = (ByWindow::default(), BTreeMap::new());
            for (step, (number, adds)) in steps.into_iter().enumerate() {
                if adds {
                    let is_new = !known.contains_key(&number);
                    let kept = *known.entry(number).or_insert(step);
                    let entry = by_window.get_or_make(number, || Ok::<_, OutOfMemory>(step)).unwrap();
                    prop_assert_eq!(entry, (&mut { kept }, is_new));
                } else {
                    prop_assert_eq!(by_window.take(number), known.remove(&number));
                }
                prop_assert_eq!(by_window.first(), known.keys().next().copied());
                prop_assert_eq!(by_window.get_mut(number).copied(), known.get(&number).copied());
                let all: Vec<(i64, usize)> = by_window.iter_mut().map(|(number, some)| (number, *some)).collect();
                prop_assert_eq!(all, known.iter().map(|(&number, &some)| (number, some)).collect::<Vec<_>>());
            }
        }
    }
}
