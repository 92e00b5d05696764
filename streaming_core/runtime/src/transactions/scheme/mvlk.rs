//! `mvlk`: multiversion locking with low-water marks (TStream, section VI-A).
//!
//! Every row has a mark with its present version. A writer of a row waits until the mark shows the version before its own.
//! A reader waits until the mark shows the version that the reader's timestamp sees, or a later one. So readers wait for
//! earlier writers, but writers never wait for readers. An event that only reads a row can still see its version after later
//! events have written the row.
//!
//! **Versions.** The row in its table is the newest version. Suppose that a writer follows a reader that may not have read
//! yet. The writer keeps the version before in an *image*, linked to earlier images, and announces that it is about to
//! write. A reader copies the row. If a writer has announced itself meanwhile, the reader takes the image of its version
//! instead. Readers write nothing that other threads read, so reading a hot row costs no more than reading any other.
//!
//! An image lives in the memory of the writer's batch. A reader that needs it precedes the writer, so it reads before the
//! batch is completely applied. The memory is used again only after that. A writer learns from the low-water mark of the run
//! whether a reader may still have to read. That mark is the number of the first event that is not finished. Most images are
//! never made.
//!
//! **Copies.** An event never reads in place a row that it only reads. A READ copies the scalars to its result slot, and a
//! condition is evaluated on a copy. Rows that the event writes are its own while it runs, for its reads and conditions too.
//!
//! **Containers** point to memory that versions of a row would share. If a table holds containers, readers of its rows wait
//! like writers, and writers wait for readers.

use std::cell;
use std::ops::Range;
use std::ptr::null_mut;

use crate::error::RunError;
use crate::program::Program;
use crate::program::kernel::{Access, kind};
use crate::program::options::Options;
use crate::threads::sync::{AtomicPtr, AtomicU32, Ordering, UnsafeCell, fence};
use crate::transactions::run::Scheme;
use crate::transactions::scheme::ahead;
use crate::transactions::scheme::ahead::requests::{Holds, Request, Requests, number_rows, prefetch, writes};
use crate::transactions::scheme::ahead::turn::Progress;
use crate::transactions::scheme::ahead::{Group, Guard};

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    let (starts, rows) = number_rows(&program.tables)?;
    let strides: Vec<usize> = program.tables.iter().map(|table| table.stride).collect();
    let guard = Mvlk {
        starts,
        containers: program.tables.iter().map(|table| table.containers).collect(),
        image: size_of::<Image>().div_ceil(WORD) + strides.iter().max().map_or(0, |&stride| stride.div_ceil(WORD)),
        strides,
        reads: program.tables.iter().map(|table| table.read).collect(),
        result_stride: program.transaction.as_ref().map_or(0, |transaction| transaction.result_stride),
        rows: (0..rows).map(|_| Row::default()).collect(),
        progress: Progress::new(options.threads),
    };
    Ok(ahead::make(guard, program, options))
}

const WORD: usize = size_of::<u64>();

struct Mvlk {
    /// Number of the first row of each table.
    starts: Vec<usize>,
    strides: Vec<usize>,
    /// The bytes of a row that a READ copies.
    reads: Vec<(usize, usize)>,
    containers: Vec<bool>,
    result_stride: usize,
    /// The size of an image in words.
    image: usize,
    rows: Box<[Row]>,
    progress: Progress,
}

/// The versions of a row. Version v is the result of the first v writers. Numbers wrap around, so only close numbers are
/// compared.
#[derive(Debug, Default)]
#[repr(align(32))]
struct Row {
    asked: UnsafeCell<VersionState>,
    /// The number of writers that announced themselves, and of those that are done (the mark of the row). The writer of the
    /// next version writes both.
    begun: AtomicU32,
    done: AtomicU32,
    /// The newest image; the writer of the next version writes it before it announces itself.
    image: AtomicPtr<Image>,
}

/// The thread with the turn reads and writes this.
#[derive(Debug, Clone, Copy, Default)]
struct VersionState {
    /// One more than the number, in the run, of the last event that only reads the row; 0: none did.
    read: u64,
    /// The number of events that write it.
    writers: u32,
}

// SAFETY: only the thread with the turn uses `asked`; the turn is passed on with Release and taken with Acquire.
unsafe impl Sync for Row {}

/// A former version of a row; its bytes follow. It never changes once a row points to it.
#[derive(Debug)]
struct Image(UnsafeCell<Former>);

/// What an image is of.
#[derive(Debug, Clone, Copy)]
struct Former {
    /// The image of an earlier version. It may be gone if no event is going to read it.
    before: *mut Image,
    version: u32,
}

/// A requested row.
#[derive(Debug, Clone, Copy)]
struct VersionTicket {
    row: u32,
    /// The version that a reader sees, or that a writer replaces.
    version: u32,
    writes: bool,
    /// For a writer: whether a reader may still need that version.
    keeps: bool,
}

impl Row {
    /// Requests the row for event `number`. All events below `low` have run.
    ///
    /// # Safety
    /// The caller has the turn.
    #[inline]
    unsafe fn ask(&self, request: &Request, number: u64, low: u64) -> VersionTicket {
        self.asked.with_mut(|asked| {
            // SAFETY: as the caller says.
            let asked = unsafe { &mut *asked };
            let version = asked.writers;
            if request.writes {
                asked.writers = version.wrapping_add(1);
            } else {
                asked.read = number + 1;
            }
            VersionTicket {
                row: request.subject,
                version,
                writes: request.writes,
                keeps: request.writes && asked.read > low,
            }
        })
    }

    #[inline]
    fn is_granted(&self, ticket: &VersionTicket) -> bool {
        // ORDERING: Acquire takes over the row and its images from earlier writers.
        let done = self.done.load(Ordering::Acquire);
        if ticket.writes { done == ticket.version } else { done.wrapping_sub(ticket.version) as i32 >= 0 }
    }

    /// Announces a writer, which writes the row after `announced`.
    #[inline]
    fn begin(&self, ticket: &VersionTicket) {
        // ORDERING: Release, so that a reader that sees it finds the image.
        self.begun.store(ticket.version.wrapping_add(1), Ordering::Release);
    }

    /// Separates a writer's announcements from its first write.
    #[inline]
    fn announced() {
        // ORDERING: Release fence: a thread that reads something written from here on also sees the announcements.
        fence(Ordering::Release);
    }

    /// Links an image of the version before the writer's.
    ///
    /// # Safety
    /// `image` is memory for it that holds the row's bytes already, and stays until every event before the writer's has run.
    unsafe fn keep(&self, ticket: &VersionTicket, image: *mut Image) {
        // ORDERING: Relaxed; `done` has passed on the last writer's store.
        let before = self.image.load(Ordering::Relaxed);
        // SAFETY: as the caller says; no other thread knows it yet.
        unsafe { image.write(Image(UnsafeCell::new(Former { before, version: ticket.version }))) };
        // ORDERING: Release publishes the image's content.
        self.image.store(image, Ordering::Release);
    }

    /// Reads an existing version: in place if no writer announces itself meanwhile, else from its image.
    ///
    /// `copy` reads the row in place and may find it torn. Then `or_image` gets the image.
    #[inline]
    fn read(&self, version: u32, copy: impl FnOnce(), or_image: impl FnOnce(*const Image)) {
        // ORDERING: Acquire takes over the image from the writer that has announced itself.
        if self.begun.load(Ordering::Acquire) == version {
            copy();
            // ORDERING: Acquire fence, paired with the writer's Release fence: if `copy` saw anything the writer wrote, the
            // load below sees its announcement.
            fence(Ordering::Acquire);
            // ORDERING: Acquire, as above.
            if self.begun.load(Ordering::Acquire) == version {
                return;
            }
        }
        // ORDERING: Acquire takes over the image's content.
        let mut image: *const Image = self.image.load(Ordering::Acquire);
        // SAFETY: the next writer of the version kept it for us at its request. Every newer image leads to it. All these
        // images belong to batches that are not completely applied, because we are not done.
        let former = |image: *const Image| unsafe { (*image).0.with(|former| *former) };
        while former(image).version != version {
            image = former(image).before;
        }
        or_image(image);
    }

    #[inline]
    fn release(&self, ticket: &VersionTicket) {
        if ticket.writes {
            // ORDERING: Release passes the row on.
            self.done.store(ticket.version.wrapping_add(1), Ordering::Release);
        }
    }
}

/// The requests of a batch, and its accesses in two lists: those to rows that their event only reads, and all others.
#[derive(Debug, Default)]
struct VersionPlan {
    requests: Requests,
    /// Accesses to rows that the event only reads, with the number of the request.
    reads: Vec<(Access, u32)>,
    others: Vec<Access>,
    /// The first index of each event in `reads` and `others`, and the end of both.
    first: Vec<(u32, u32)>,
    /// Room for an image per request; its writer uses it. These are cells of std, not of the shim, because no model sees the
    /// writes of kernels.
    images: Vec<cell::UnsafeCell<u64>>,
}

// SAFETY: pointers lead to images, under the protocol of `Row`; everything else is only read.
unsafe impl Sync for VersionPlan {}

/// The requests that a thread holds, and its copies of rows for conditions.
struct Held {
    tickets: Holds<VersionTicket>,
    /// Per table: copied rows.
    copies: Vec<Vec<u64>>,
    /// The base addresses of the copies, like `Tables::bases`.
    bases: Vec<*mut u8>,
    /// Accesses to the copies.
    accesses: Vec<Access>,
}

// SAFETY: `bases` points into `copies`.
unsafe impl Send for Held {}

/// Copies `n` bytes that another thread may be writing.
///
/// # Safety
/// `from` and `to` have that many bytes, and no other thread uses `to`.
#[inline]
unsafe fn copy_racing(from: *const u8, to: *mut u8, n: usize) {
    // These are atomics of std, not of the shim, because the writers are kernels, which no model sees. Kernels write words of
    // up to eight bytes. The caller discards a copy that is torn between words.
    use std::sync::atomic::{AtomicU8 as Byte, AtomicU64 as Word, Ordering::Relaxed};
    let words = if from.addr().is_multiple_of(WORD) { n / WORD } else { 0 };
    for i in 0..words {
        // SAFETY: inside of both, `from` aligned; Relaxed is enough, as `Row::read` says.
        unsafe {
            to.cast::<u64>().add(i).write_unaligned(Word::from_ptr(from.cast::<u64>().add(i).cast_mut()).load(Relaxed))
        };
    }
    for i in words * WORD..n {
        // SAFETY: as above.
        unsafe { to.add(i).write(Byte::from_ptr(from.add(i).cast_mut()).load(Relaxed)) };
    }
}

impl Mvlk {
    /// Copies some bytes of the version of a row that a reader sees.
    ///
    /// # Safety
    /// The ticket is the caller's, a reader's, and granted; `to` has room for the bytes, which are the row's.
    #[inline]
    unsafe fn copy(
        &self,
        group: &Group<VersionPlan>,
        access: &Access,
        ticket: &VersionTicket,
        bytes: (usize, usize),
        to: *mut u8,
    ) {
        let (begin, n) = (bytes.0, bytes.1 - bytes.0);
        let stride = self.strides[usize::from(access.table)];
        // SAFETY: the plan kernel has checked that the row lies inside of its table.
        let row = unsafe {
            let base = *group.run.tables.bases().add(usize::from(access.table));
            base.add(access.row as usize * stride + begin)
        };
        self.rows[ticket.row as usize].read(
            ticket.version,
            // SAFETY: as the caller says.
            || unsafe { copy_racing(row, to, n) },
            // SAFETY: an image's bytes follow its head.
            |image| unsafe { image.add(1).cast::<u8>().add(begin).copy_to_nonoverlapping(to, n) },
        );
    }

    /// Applies the accesses to rows that the events only read.
    ///
    /// # Safety
    /// As for `Guard::apply`.
    unsafe fn read(
        &self,
        group: &Group<VersionPlan>,
        reads: &[(Access, u32)],
        held: &mut Held,
    ) -> Result<(), RunError> {
        let first = group.plan.requests.numbers(group.from..group.from).start;
        held.accesses.clear();
        for copies in &mut held.copies {
            copies.clear();
        }
        for (access, request) in reads {
            let ticket = held.tickets.all()[*request as usize - first];
            let stride = self.strides[usize::from(access.table)];
            if access.kind == kind::READ {
                let slot = access.slot as usize * self.result_stride;
                // SAFETY: the plan kernel reserved a slot for each of the event's reads.
                unsafe {
                    self.copy(
                        group,
                        access,
                        &ticket,
                        self.reads[usize::from(access.table)],
                        group.outcome.results(access.event).add(slot),
                    )
                };
                continue;
            }
            let copies = &mut held.copies[usize::from(access.table)];
            let row = held.accesses.len();
            copies.resize(((row + 1) * stride).div_ceil(WORD), 0);
            // SAFETY: room was just made.
            unsafe {
                self.copy(group, access, &ticket, (0, stride), copies.as_mut_ptr().cast::<u8>().add(row * stride))
            };
            held.accesses.push(Access { row: row as u32, ..*access });
        }
        if held.accesses.is_empty() {
            return Ok(());
        }
        for (base, copies) in held.bases.iter_mut().zip(&mut held.copies) {
            *base = copies.as_mut_ptr().cast();
        }
        // SAFETY: these are conditions only, on copies of the thread's own.
        unsafe { group.apply(&held.accesses, held.bases.as_ptr()) }
    }
}

impl Guard for Mvlk {
    type Plan = VersionPlan;
    type Held = Held;
    const GROUP: usize = 16;

    fn held(&self) -> Held {
        Held {
            tickets: Holds::new(),
            copies: self.strides.iter().map(|_| Vec::new()).collect(),
            bases: vec![null_mut(); self.strides.len()],
            accesses: Vec::new(),
        }
    }

    fn plan(&self, accesses: &[Access], events: usize, plan: &mut VersionPlan) {
        let VersionPlan { requests, reads, others, first, images } = plan;
        requests.collect(accesses, events, |access| {
            let table = usize::from(access.table);
            let row = self.starts[table] + access.row as usize;
            Request { subject: row as u32, writes: writes(access) || self.containers[table] }
        });
        reads.clear();
        others.clear();
        first.clear();
        for event in 0..events {
            first.push((reads.len() as u32, others.len() as u32));
            let (numbers, accesses) =
                (requests.numbers(event..event + 1), &accesses[requests.accesses(event..event + 1)]);
            let wanted = requests.of(event..event + 1);
            if wanted.iter().all(|request| request.writes) {
                others.extend_from_slice(accesses);
                continue;
            }
            let mut at = 0;
            for access in accesses {
                let row = (self.starts[usize::from(access.table)] + access.row as usize) as u32;
                // Accesses and requests are nearly always in the same order.
                if wanted.get(at).is_none_or(|request| request.subject != row) {
                    at = wanted
                        .iter()
                        .position(|request| request.subject == row)
                        .expect("an event requests every row that it accesses");
                }
                if wanted[at].writes {
                    others.push(*access);
                } else {
                    reads.push((*access, (numbers.start + at) as u32));
                }
                at += 1;
            }
        }
        first.push((reads.len() as u32, others.len() as u32));
        let words = requests.numbers(0..events).end * self.image;
        if images.len() < words {
            images.resize_with(words, cell::UnsafeCell::default);
        }
    }

    #[inline]
    fn request(&self, plan: &VersionPlan, events: Range<usize>, thread: usize, number: u64, held: &mut Held) {
        for request in plan.requests.of(events.clone()) {
            prefetch(&raw const self.rows[request.subject as usize]);
        }
        self.progress.enter(thread, number);
        let low = self.progress.low();
        held.tickets.take(&plan.requests, events, |event, request| {
            // SAFETY: the caller has the turn.
            unsafe { self.rows[request.subject as usize].ask(request, number + event, low) }
        });
    }

    #[inline]
    fn is_granted(&self, held: &Held, index: usize) -> bool {
        let mut tickets = held.tickets.of(index..index + 1).iter();
        tickets.all(|ticket| self.rows[ticket.row as usize].is_granted(ticket))
    }

    unsafe fn apply(&self, group: &Group<VersionPlan>, events: Range<usize>, held: &mut Held) -> Result<(), RunError> {
        let plan = group.plan;
        let ((reads, others), (reads_end, others_end)) = (plan.first[events.start], plan.first[events.end]);
        if reads != reads_end {
            // SAFETY: as the caller says.
            unsafe { self.read(group, &plan.reads[reads as usize..reads_end as usize], held)? };
        }
        let tickets = held.tickets.of(events.start - group.from..events.end - group.from);
        let numbers = plan.requests.numbers(events);
        for (ticket, number) in tickets.iter().zip(numbers) {
            if !ticket.writes {
                continue;
            }
            let row = &self.rows[ticket.row as usize];
            if ticket.keeps {
                let images = &plan.images[number * self.image..][..self.image];
                let image: *mut Image = cell::UnsafeCell::raw_get(images.as_ptr()).cast();
                let table = self.starts.partition_point(|&start| start <= ticket.row as usize) - 1;
                let stride = self.strides[table];
                // SAFETY: the memory belongs to this request. Only this writer may write the row, and it does not now.
                unsafe {
                    let base = *group.run.tables.bases().add(table);
                    let from = base.add((ticket.row as usize - self.starts[table]) * stride);
                    from.copy_to_nonoverlapping(image.add(1).cast::<u8>(), stride);
                    row.keep(ticket, image);
                }
            }
            row.begin(ticket);
        }
        Row::announced();
        // SAFETY: these rows are this thread's to write; what the events only read was done with above.
        unsafe { group.apply(&plan.others[others as usize..others_end as usize], group.run.tables.bases()) }
    }

    #[inline]
    fn release(&self, held: &Held, events: Range<usize>) {
        for ticket in held.tickets.of(events) {
            self.rows[ticket.row as usize].release(ticket);
        }
    }

    #[inline]
    fn advance(&self, thread: usize, number: u64) {
        self.progress.advance(thread, number);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::sync::{Arc, AtomicUsize, thread};
    use crate::transactions::scheme::ahead::turn::Turn;

    /// A row of two words, whose versions hold their number twice; and room for an image per event.
    struct VersionModel {
        turn: Turn,
        row: Row,
        progress: Progress,
        words: [AtomicUsize; 2],
        images: Vec<cell::UnsafeCell<[u64; size_of::<Image>() / 8 + 2]>>,
    }

    // SAFETY: images are used under the protocol that is being modelled.
    unsafe impl Sync for VersionModel {}
    // SAFETY: as above.
    unsafe impl Send for VersionModel {}

    impl VersionModel {
        fn write(&self, number: u64, ticket: &VersionTicket) {
            let load = |word: &AtomicUsize| word.load(Ordering::Relaxed);
            assert_eq!(self.words.each_ref().map(load), [ticket.version as usize; 2]);
            if ticket.keeps {
                let image: *mut Image = self.images[number as usize].get().cast();
                // SAFETY: this event's own memory.
                unsafe {
                    image.add(1).cast::<u64>().write(u64::from(ticket.version));
                    image.add(1).cast::<u64>().add(1).write(u64::from(ticket.version));
                    self.row.keep(ticket, image);
                }
            }
            self.row.begin(ticket);
            Row::announced();
            for word in &self.words {
                word.store(ticket.version as usize + 1, Ordering::Relaxed);
            }
        }

        fn read(&self, ticket: &VersionTicket) {
            let seen = cell::Cell::new([usize::MAX; 2]);
            let load = |word: &AtomicUsize| word.load(Ordering::Relaxed);
            self.row.read(
                ticket.version,
                || seen.set(self.words.each_ref().map(load)),
                // SAFETY: images hold two words behind their head.
                |image| seen.set(unsafe { *image.add(1).cast::<[u64; 2]>() }.map(|word| word as usize)),
            );
            assert_eq!(seen.get(), [ticket.version as usize; 2]);
        }

        fn work(&self, events: &[bool], me: usize) {
            while self.turn.look().0 < events.len() {
                let Some(event) = self.turn.take(|event| event < events.len()) else {
                    thread::yield_now();
                    continue;
                };
                self.progress.enter(me, event as u64);
                let low = self.progress.low();
                // SAFETY: it is the event's turn.
                let ticket = unsafe { self.row.ask(&Request { subject: 0, writes: events[event] }, event as u64, low) };
                self.turn.pass(event + 1);
                while !self.row.is_granted(&ticket) {
                    thread::yield_now();
                }
                if ticket.writes {
                    self.write(event as u64, &ticket)
                } else {
                    self.read(&ticket)
                }
                self.row.release(&ticket);
                self.progress.advance(me, u64::MAX);
            }
        }
    }

    fn model(events: &'static [bool]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let shared = Arc::new(VersionModel {
                turn: Turn::default(),
                row: Row::default(),
                progress: Progress::new(2),
                words: [AtomicUsize::new(0), AtomicUsize::new(0)],
                images: events.iter().map(|_| cell::UnsafeCell::new([0; _])).collect(),
            });
            let other = {
                let shared = shared.clone();
                thread::spawn(move || shared.work(events, 1))
            };
            shared.work(events, 0);
            other.join().unwrap();
        });
    }

    #[test]
    fn loom_a_reader_sees_its_version_whatever_later_writers_do() {
        model(&[false, true, true]);
    }

    #[test]
    fn loom_readers_wait_for_earlier_writers() {
        model(&[true, false, true]);
    }
}
