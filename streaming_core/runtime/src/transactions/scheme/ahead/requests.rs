//! What each event of a batch has to ask for before it may run: every subject (a row, a partition) once, and in which
//! way. Worked out when a batch is planned, so that little is left to do while it is an event's turn to ask.

use std::ops::Range;

use crate::error::RunError;
use crate::program::TableSpec;
use crate::program::kernel::{Access, kind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub subject: u32,
    /// Whether some access of the event to the subject writes; else all of them read.
    pub writes: bool,
}

/// The requests of a batch's events, in event order.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    list: Vec<Request>,
    /// Per event, and one more: its first request.
    first: Vec<u32>,
    /// Per event, and one more: its first access.
    access: Vec<u32>,
    seen: Seen,
}

impl Requests {
    /// Replaces everything by the requests of `events` events with these accesses.
    pub fn collect(&mut self, accesses: &[Access], events: usize, request: impl Fn(&Access) -> Request) {
        self.list.clear();
        self.first.clear();
        self.access.clear();
        let mut at = 0;
        for event in 0..events as u32 {
            self.first.push(self.list.len() as u32);
            self.access.push(at as u32);
            let end = at + accesses[at..].iter().take_while(|access| access.event == event).count();
            self.seen.begin(end - at);
            for access in &accesses[at..end] {
                let wanted = request(access);
                let index = self.seen.index(wanted.subject, self.list.len());
                match self.list.get_mut(index) {
                    Some(known) => known.writes |= wanted.writes,
                    None => self.list.push(wanted),
                }
            }
            at = end;
        }
        self.first.push(self.list.len() as u32);
        self.access.push(at as u32);
    }

    #[inline]
    pub fn of(&self, events: Range<usize>) -> &[Request] {
        &self.list[self.numbers(events)]
    }

    /// The requests of some consecutive events, as numbers within the batch.
    #[inline]
    pub fn numbers(&self, events: Range<usize>) -> Range<usize> {
        self.first[events.start] as usize..self.first[events.end] as usize
    }

    /// The accesses of some consecutive events.
    #[inline]
    pub fn accesses(&self, events: Range<usize>) -> Range<usize> {
        self.access[events.start] as usize..self.access[events.end] as usize
    }
}

/// What the events of a group hold, or wait for: something per request.
#[derive(Debug)]
pub(crate) struct Holds<T> {
    list: Vec<T>,
    /// Per event of the group, and one more: its first one.
    first: Vec<u32>,
}

impl<T> Holds<T> {
    pub fn new() -> Self {
        Self { list: Vec::new(), first: Vec::new() }
    }

    /// Replaces everything by what `make` makes of the events' requests, in their order, given the event's place in the
    /// group.
    #[inline]
    pub fn take(&mut self, requests: &Requests, events: Range<usize>, mut make: impl FnMut(u64, &Request) -> T) {
        let begin = requests.first[events.start];
        self.first.clear();
        self.first.extend(requests.first[events.start..=events.end].iter().map(|first| first - begin));
        self.list.clear();
        for (place, event) in events.enumerate() {
            self.list.extend(requests.of(event..event + 1).iter().map(|request| make(place as u64, request)));
        }
    }

    #[inline]
    pub fn all(&self) -> &[T] {
        &self.list
    }

    /// Those of some consecutive events of the group.
    #[inline]
    pub fn of(&self, events: Range<usize>) -> &[T] {
        &self.list[self.first[events.start] as usize..self.first[events.end] as usize]
    }
}

/// Asks for a cache line in order to write it, before it is needed. Lines that cores write by turns would otherwise be asked
/// for twice, first to read and then to write, and one after the other.
#[inline(always)]
pub(crate) fn prefetch<T>(what: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint for any address; it changes nothing, and processors that do not know it do nothing. (The intrinsic
    // becomes a hint to read, unless the compiler is told of a newer processor.)
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) what, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}

/// Whether an access by itself writes.
#[inline]
pub(crate) fn writes(access: &Access) -> bool {
    access.kind == kind::MODIFY
}

/// The first row of each table, when the rows of all tables are numbered through; and how many there are.
///
/// # Errors
/// There are more than a request can name.
pub(crate) fn number_rows(tables: &[TableSpec]) -> Result<(Vec<usize>, usize), RunError> {
    let mut starts = Vec::new();
    let mut rows = 0;
    for table in tables {
        starts.push(rows);
        rows += table.rows;
    }
    if rows > u32::MAX as usize {
        return Err(RunError::Invalid(format!(
            "the tables have {rows} rows, more than the scheme has locks (2^32 - 1)"
        )));
    }
    Ok((starts, rows))
}

/// The subjects of one event, in a hash table that is emptied by counting on.
#[derive(Debug, Default)]
struct Seen {
    places: Vec<SeenPlace>,
    mask: usize,
    /// Places of other events are free.
    event: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct SeenPlace {
    event: u64,
    subject: u32,
    index: u32,
}

impl Seen {
    /// Forgets everything and makes room for `n` subjects.
    #[inline]
    fn begin(&mut self, n: usize) {
        self.event += 1;
        if self.places.len() < 2 * n {
            let places = (2 * n).next_power_of_two().max(64);
            self.places = vec![SeenPlace::default(); places];
            self.mask = places - 1;
        }
    }

    /// The index the subject was given first.
    #[inline]
    fn index(&mut self, subject: u32, index: usize) -> usize {
        let mut at = (subject.wrapping_mul(0x9E37_79B1) >> 8) as usize & self.mask;
        loop {
            let place = &mut self.places[at];
            if place.event != self.event {
                *place = SeenPlace { event: self.event, subject, index: index as u32 };
                return index;
            }
            if place.subject == subject {
                return place.index as usize;
            }
            at = (at + 1) & self.mask;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_asked_for_once_and_in_the_stronger_way() {
        let access = |event, row, kind| Access { event, row, kind, ..Access::default() };
        let accesses = [
            access(0, 7, kind::CONDITION),
            access(0, 9, kind::CAPTURE + 1),
            access(0, 7, kind::MODIFY),
            access(0, 7, kind::READ),
            access(2, 9, kind::READ),
            access(2, 71, kind::MODIFY),
        ];
        let mut requests = Requests::default();
        for _ in 0..2 {
            requests.collect(&accesses, 4, |access| Request { subject: access.row, writes: writes(access) });
            let request = |subject, writes| Request { subject, writes };
            assert_eq!(requests.of(0..1), [request(7, true), request(9, false)]);
            assert_eq!(requests.of(1..2), []);
            assert_eq!(requests.of(1..4), [request(9, false), request(71, true)]);
            assert_eq!((requests.accesses(0..1), requests.accesses(1..2), requests.accesses(2..4)), (0..4, 4..4, 4..6));
            assert_eq!(requests.numbers(2..3), 2..4);
        }
    }

    #[test]
    fn an_event_may_name_any_number_of_subjects() {
        let accesses: Vec<Access> =
            (0..3000).map(|i| Access { row: i * 64 % 1000, kind: kind::READ, ..Access::default() }).collect();
        let mut requests = Requests::default();
        requests.collect(&accesses, 1, |access| Request { subject: access.row, writes: false });
        let mut rows: Vec<u32> = requests.of(0..1).iter().map(|request| request.subject).collect();
        rows.sort_unstable();
        let mut wanted: Vec<u32> = accesses.iter().map(|access| access.row).collect();
        wanted.sort_unstable();
        wanted.dedup();
        assert_eq!(rows, wanted);
    }
}
