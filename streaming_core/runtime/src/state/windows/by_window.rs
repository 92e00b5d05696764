//! What windows have that are open: few, next to each other.

use std::collections::VecDeque;

/// Something per window, by its number.
#[derive(Debug)]
pub struct ByWindow<T> {
    /// The window of the first of `some`.
    first: i64,
    /// Of the windows from there on; the first one has something, if there is any.
    some: VecDeque<Option<T>>,
}

impl<T> Default for ByWindow<T> {
    fn default() -> Self {
        Self { first: 0, some: VecDeque::new() }
    }
}

impl<T> ByWindow<T> {
    /// The earliest window that has something.
    #[inline]
    pub fn first(&self) -> Option<i64> {
        (!self.some.is_empty()).then_some(self.first)
    }

    #[inline]
    pub fn get_mut(&mut self, number: i64) -> Option<&mut T> {
        self.some.get_mut(number.wrapping_sub(self.first) as usize)?.as_mut()
    }

    /// What a window has, made if there is nothing; whether there was nothing.
    #[inline]
    pub fn get_or_make(&mut self, number: i64, make: impl FnOnce() -> T) -> (&mut T, bool) {
        if self.some.is_empty() {
            self.first = number;
        }
        while number < self.first {
            self.some.push_front(None);
            self.first -= 1;
        }
        let index = (number - self.first) as usize;
        if index >= self.some.len() {
            self.some.resize_with(index + 1, || None);
        }
        let place = &mut self.some[index];
        let is_new = place.is_none();
        (place.get_or_insert_with(make), is_new)
    }

    pub fn take(&mut self, number: i64) -> Option<T> {
        let taken = self.some.get_mut(number.wrapping_sub(self.first) as usize)?.take();
        while let Some(None) = self.some.front() {
            self.some.pop_front();
            self.first += 1;
        }
        taken
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (i64, &mut T)> {
        let numbered = self.some.iter_mut().zip(self.first..);
        numbered.filter_map(|(some, number)| some.as_mut().map(|some| (number, some)))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((-20_i64..20, any::<bool>()), 0..60)) {
            let (mut found, mut known) = (ByWindow::default(), BTreeMap::new());
            for (step, (number, adds)) in steps.into_iter().enumerate() {
                if adds {
                    let is_new = !known.contains_key(&number);
                    let kept = *known.entry(number).or_insert(step);
                    prop_assert_eq!(found.get_or_make(number, || step), (&mut { kept }, is_new));
                } else {
                    prop_assert_eq!(found.take(number), known.remove(&number));
                }
                prop_assert_eq!(found.first(), known.keys().next().copied());
                prop_assert_eq!(found.get_mut(number).copied(), known.get(&number).copied());
                let all: Vec<(i64, usize)> = found.iter_mut().map(|(number, some)| (number, *some)).collect();
                prop_assert_eq!(all, known.iter().map(|(&number, &some)| (number, some)).collect::<Vec<_>>());
            }
        }
    }
}
