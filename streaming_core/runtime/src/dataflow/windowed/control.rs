//! Requests for other owners of the cells of a windowed operator, and the epochs that follow from them (STRETCH, section 7).
//!
//! A schedule names events beforehand. A request names the owners from now on. A controller decides once a period. The
//! source takes all of them in when it deals events, because only the source knows the next event that no task has seen. The
//! new epoch begins with that event. If several requests come between two such times, the last one counts. So there are no
//! more epochs than batches. A replica learns of a reconfiguration only when it comes to an event of its epoch.
//!
//! Until a program requests owners, the executor chooses them by the number of threads that take part. These epochs are no
//! reconfigurations, and no report lists them.
//!
//! Writers: the holder of the lock writes everything behind `asking`. It holds the lock while it appends an epoch and raises
//! the bound of dealt events, so several sources do this one after the other. Each replica's own thread writes its `worked`.

use std::collections::VecDeque;

use crate::dataflow::windowed::controller::{Controller, Load, balance};
use crate::dataflow::windowed::counts::Counts;
use crate::dataflow::windowed::epochs::{Epochs, REPORTED, Reconfiguration, Request};
use crate::dataflow::windowed::owners::Owners;
use crate::error::RunError;
use crate::executor::Reconfigurable;
use crate::output::clock::{self, Running};
use crate::state::windows::CELLS;
use crate::threads::sync::{Arc, AtomicBool, AtomicU64, CachePadded, Mutex, Ordering, lock};

/// The period of a controller, in nanoseconds of engine time, while events come.
const PERIOD: u64 = if cfg!(test) { 1_000 } else { 100_000_000 };

/// The requester of epochs that follow the number of threads.
const THREADS: &str = "threads";

/// The number of events that have arrived, and that were dealt, since the run began.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offered {
    pub arrived: u64,
    pub dealt: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Control {
    operator: String,
    pub epochs: Arc<Epochs>,
    asking: Mutex<Asking>,
    /// Whether a request waits for the source. Written by the holder of the lock.
    is_asked: AtomicBool,
    /// Whether there is a controller, which needs the working time of replicas.
    pub watches: bool,
    /// The working time of each replica, in nanoseconds of processor time.
    worked: Box<[CachePadded<AtomicU64>]>,
    counts: Option<Arc<Counts>>,
}

#[derive(Debug)]
struct Asking {
    schedule: VecDeque<(i64, Owners)>,
    /// The time of the request, in engine time, and the owners.
    request: Option<(u64, Owners)>,
    /// Whether there was a request.
    is_requested: bool,
    /// The owners that the executor has chosen.
    chosen: Option<Owners>,
    /// The running clock of the present block, or of the last one.
    clock: Option<Running>,
    controller: Option<Controller>,
    /// The time of its last decision, the arrivals by then, and the working times of replicas.
    seen: (u64, Offered, u64),
    /// The first loads, and the number of the others.
    loads: Vec<Load>,
    omitted_loads: usize,
    /// The calls of each cell by its last decision.
    calls: Vec<u64>,
}

impl Control {
    /// Makes the control of an operator with these `epochs`. `schedule`: epochs to come, in the order of events.
    /// `counts`: the calls of cells, of a controller that balances.
    pub fn new(
        operator: &str,
        epochs: Arc<Epochs>,
        schedule: Vec<(i64, Owners)>,
        controller: Option<Controller>,
        counts: Option<Arc<Counts>>,
    ) -> Self {
        let watches = controller.is_some() || counts.is_some();
        let asking = Asking {
            schedule: schedule.into(),
            request: None,
            is_requested: false,
            chosen: None,
            clock: None,
            controller,
            seen: (0, Offered::default(), 0),
            loads: Vec::new(),
            omitted_loads: 0,
            calls: vec![0; CELLS],
        };
        let worked = (0..epochs.replicas()).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        Self {
            operator: operator.to_owned(),
            epochs,
            asking: Mutex::new(asking),
            is_asked: AtomicBool::new(false),
            watches,
            worked,
            counts,
        }
    }

    /// Adds `nanoseconds` to the working time of a replica.
    #[inline]
    pub fn add_work(&self, replica: usize, nanoseconds: u64) {
        let worked = &self.worked[replica];
        // ORDERING: Relaxed; a statistic that one thread writes.
        worked.store(worked.load(Ordering::Relaxed) + nanoseconds, Ordering::Relaxed);
    }

    /// Whether a request waits for the source, which cuts its batch then.
    pub fn is_asked(&self) -> bool {
        // ORDERING: Relaxed; it only says when a batch is cut.
        self.is_asked.load(Ordering::Relaxed)
    }

    /// The first `replicas` replicas own all cells from the next event on, unless a program has requested other owners.
    pub fn choose(&self, replicas: usize) {
        let mut asking = lock(&self.asking);
        if !asking.is_requested {
            asking.chosen = Some(Owners::new(&(0..replicas).collect::<Vec<_>>()));
        }
    }

    /// A block begins.
    ///
    /// # Safety
    /// No replica is at work, and no task that reads their outputs.
    pub unsafe fn begin(&self, clock: Running) {
        let mut asking = lock(&self.asking);
        // SAFETY: as the caller says. Other threads look at the epochs with the lock only.
        unsafe { self.epochs.forget() };
        asking.clock = Some(clock);
        if let Some((asked_at, _)) = &mut asking.request {
            // Between blocks the clock stood still.
            *asked_at = (*asked_at).min(clock.began());
        }
    }

    /// The source deals events from `first` up to `upto` at `now`. Other sources may have dealt some of them.
    pub fn deal(&self, (first, upto): (i64, i64), now: u64, offered: Offered) {
        let mut asking = lock(&self.asking);
        let asking = &mut *asking;
        let dealt = self.epochs.dealt();
        let next = if dealt > i64::MIN { dealt + 1 } else { first };
        if let Some(owners) = asking.chosen.take().filter(|owners| *owners != self.epochs.last().owners) {
            self.epochs.append(next, owners, Request { by: THREADS, ..Request::default() });
        }
        if let Some((asked_at, owners)) = asking.request.take() {
            // It may have come since `now`.
            let request = Request { by: "request", asked_at: Some(asked_at.min(now)), posted: Some(now), cause: None };
            self.epochs.append(next, owners, request);
            // ORDERING: Relaxed, as above.
            self.is_asked.store(false, Ordering::Relaxed);
        }
        self.ask_controller(asking, next, now, offered);
        while asking.schedule.front().is_some_and(|&(event, _)| event <= upto) {
            let Some((event, owners)) = asking.schedule.pop_front() else { break };
            let request = Request { by: "schedule", posted: Some(now), ..Request::default() };
            self.epochs.append(event.max(next), owners, request);
        }
        self.epochs.deal(upto.max(dealt));
    }

    /// Lets the controller decide, if there is one and its period is over.
    fn ask_controller(&self, asking: &mut Asking, next: i64, now: u64, offered: Offered) {
        let (at, before, worked_before) = asking.seen;
        if !self.watches || now < at + PERIOD {
            return;
        }
        // ORDERING: Relaxed; a figure.
        let worked = self.worked.iter().map(|worked| worked.load(Ordering::Relaxed)).sum::<u64>();
        let load = Load {
            at: now,
            period: now - at,
            replicas: self.epochs.last().owners.replicas().len(),
            most: self.epochs.replicas(),
            worked: worked - worked_before,
            arrived: offered.arrived.saturating_sub(before.arrived),
            dealt: offered.dealt.saturating_sub(before.dealt),
            pending: offered.arrived.saturating_sub(offered.dealt),
        };
        asking.seen = (now, offered, worked);
        match asking.loads.len() < REPORTED {
            true => asking.loads.push(load),
            false => asking.omitted_loads += 1,
        }
        let decision = match (&mut asking.controller, &self.counts) {
            (Some(controller), _) => {
                let (share, wanted) = controller.decide(&load);
                wanted.map(|wanted| {
                    let owners = Owners::new(&(0..wanted).collect::<Vec<_>>());
                    (controller.name, owners, controller.cause(share))
                })
            }
            (None, Some(counts)) => {
                let before = std::mem::replace(&mut asking.calls, counts.by_cell());
                let calls: Vec<u64> = asking.calls.iter().zip(before).map(|(now, before)| now - before).collect();
                balance::rebalanced(&calls, &self.epochs.last().owners).map(|(owners, percent)| {
                    let cause = format!("a replica has {percent:.0} % of the mean load, above {} %", balance::UPPER);
                    (balance::NAME, owners, cause)
                })
            }
            (None, None) => None,
        };
        if let Some((by, owners, cause)) = decision {
            let request = Request { by, cause: Some(cause), asked_at: Some(now), posted: Some(now) };
            self.epochs.append(next, owners, request);
        }
    }

    /// The results of the reconfigurations; scheduled ones that were not reached come last. No thread is at work.
    pub fn reconfigurations(&self) -> Vec<Reconfiguration> {
        let mut all = self.epochs.report(&self.operator);
        all.retain(|epoch| epoch.request.by != THREADS);
        let unreached = |(event, owners): &(i64, Owners)| Reconfiguration {
            operator: self.operator.clone(),
            event: *event,
            owners: owners.pattern().to_vec(),
            request: Request { by: "schedule", ..Request::default() },
            moved: 0,
            bytes: 0,
            cells: CELLS,
            gone_over: Vec::new(),
        };
        all.extend(lock(&self.asking).schedule.iter().map(unreached));
        all
    }

    /// The number of loads that the report omits.
    pub fn omitted_loads(&self) -> usize {
        lock(&self.asking).omitted_loads
    }

    /// The loads that a controller saw in the first periods.
    pub fn loads(&self) -> Vec<Load> {
        lock(&self.asking).loads.clone()
    }
}

impl Reconfigurable for Arc<Control> {
    fn request(&self, pattern: &[usize]) -> Result<(), RunError> {
        let now = clock::now();
        Owners::check(&self.operator, pattern, self.epochs.replicas()).map_err(RunError::Invalid)?;
        let mut asking = lock(&self.asking);
        let asked_at = asking.clock.map_or(0, |clock| clock.at(now));
        asking.request = Some((asked_at, Owners::new(pattern)));
        (asking.is_requested, asking.chosen) = (true, None);
        // ORDERING: Relaxed; it only says when a batch is cut.
        self.is_asked.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn is_settled(&self) -> bool {
        // While this thread holds the lock, no epoch is appended.
        lock(&self.asking).request.is_none() && self.epochs.is_settled()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::output::clock::Clock;

    fn control(schedule: &[(i64, Vec<usize>)], controller: Option<Controller>) -> Control {
        let schedule = schedule.iter().map(|(event, pattern)| (*event, Owners::new(pattern))).collect();
        Control::new("count", Arc::new(Epochs::new(4, 1)), schedule, controller, None)
    }

    #[test]
    fn replicas_that_are_out_of_balance_get_other_cells() {
        let counts = Arc::new(Counts::new(4));
        let control = Control::new("count", Arc::new(Epochs::new(4, 1)), Vec::new(), None, Some(counts.clone()));
        // The first replica has cells 0, 4, 8 and so on, whose keys have all calls.
        (0..8).for_each(|cell| counts.add(0, 4 * cell, 100));
        control.deal((0, 9), PERIOD, Offered::default());
        // In the next period all have as many.
        (0..CELLS).for_each(|cell| counts.add(0, cell, 100));
        control.deal((10, 19), 2 * PERIOD, Offered::default());
        let [change] = &control.reconfigurations()[..] else { panic!("one") };
        assert_eq!((change.request.by, change.event, change.moved), ("balance", 0, 6));
        assert_eq!(change.request.cause.as_deref(), Some("a replica has 400 % of the mean load, above 110 %"));
        assert!((0..4).all(|replica| (0..8).filter(|cell| change.owners[4 * cell] == replica).count() == 2));
    }

    fn events(control: &Control) -> Vec<(&'static str, i64, Vec<usize>)> {
        let epochs = control.reconfigurations().into_iter();
        epochs.map(|epoch| (epoch.request.by, epoch.event, epoch.owners)).collect()
    }

    #[test]
    fn what_is_asked_for_begins_with_the_first_event_that_is_not_dealt() {
        let control = Arc::new(control(&[(3, vec![1]), (20, vec![2]), (20, vec![3]), (40, vec![0])], None));
        let deal = |first, upto| control.deal((first, upto), 7, Offered::default());
        control.request(&[0, 2]).unwrap();
        deal(0, 9);
        // Another source deals the same events.
        deal(0, 9);
        control.request(&[1, 2]).unwrap();
        // The last one counts.
        control.request(&[3]).unwrap();
        deal(10, 29);
        let epochs = events(&control);
        let of = |by, event, replicas: &[usize]| (by, event, replicas.to_vec());
        assert_eq!(epochs[..3], [of("request", 0, &[0, 2]), of("schedule", 3, &[1]), of("request", 10, &[3])]);
        assert_eq!(epochs[3..], [of("schedule", 20, &[2]), of("schedule", 20, &[3]), of("schedule", 40, &[0])]);
        let reached: Vec<bool> =
            control.reconfigurations().iter().map(|change| change.request.posted.is_some()).collect();
        assert_eq!(reached, [true, true, true, true, true, false]);
    }

    #[test]
    fn the_executor_chooses_owners_until_there_is_a_request() {
        let control = Arc::new(control(&[], None));
        let owners = |event| control.epochs.at(event).0.owners.replicas().to_vec();
        control.choose(1);
        control.deal((0, 9), 7, Offered::default());
        control.choose(2);
        control.deal((10, 19), 7, Offered::default());
        assert_eq!([owners(9), owners(10)], [vec![0], vec![0, 1]]);
        control.choose(4);
        control.request(&[3]).unwrap();
        control.choose(1);
        control.deal((20, 29), 7, Offered::default());
        assert_eq!(owners(20), [3]);
        assert_eq!(events(&control), [("request", 20, vec![3])]);
    }

    #[test]
    fn a_request_is_settled_when_all_it_concerns_have_gone_over() {
        let control = Arc::new(control(&[], None));
        assert!(control.is_settled());
        control.request(&[0, 2]).unwrap();
        assert!(!control.is_settled());
        control.deal((0, 9), 7, Offered::default());
        for replica in 0..4 {
            assert!(!control.is_settled());
            control.epochs.note(replica, 1, 8, None);
        }
        assert!(control.is_settled());
        // No replica gains or loses cells.
        control.request(&[0, 2]).unwrap();
        control.deal((10, 19), 9, Offered::default());
        assert!(control.is_settled());
    }

    #[test]
    fn what_comes_between_blocks_came_when_the_clock_stopped() {
        let control = Arc::new(control(&[], None));
        let asked_at = |at: usize| control.reconfigurations()[at].request.asked_at.unwrap();
        control.request(&[0]).unwrap();
        // SAFETY: there is no other thread.
        unsafe { control.begin(Clock::default().start()) };
        control.deal((0, 9), u64::MAX, Offered::default());
        assert_eq!(asked_at(0), 0);
        // By this clock it comes later than the next block begins.
        // SAFETY: there is no other thread.
        unsafe { control.begin(Clock::after(1_000).start()) };
        control.request(&[1]).unwrap();
        // SAFETY: there is no other thread.
        unsafe { control.begin(Clock::after(1_000).start()) };
        control.deal((10, 19), u64::MAX, Offered::default());
        assert_eq!(asked_at(1), 1_000);
        control.request(&[2]).unwrap();
        control.deal((20, 29), u64::MAX, Offered::default());
        assert!(asked_at(2) >= 1_000);
        // Nor after it was heard.
        control.request(&[3]).unwrap();
        control.deal((30, 39), 1_000, Offered::default());
        assert_eq!(asked_at(3), 1_000);
    }

    #[test]
    fn requests_for_replicas_that_do_not_exist_are_refused() {
        assert!(matches!(Arc::new(control(&[], None)).request(&[4]), Err(RunError::Invalid(_))));
    }

    #[test]
    fn a_controller_is_asked_once_a_period_and_sees_what_replicas_have_worked() {
        let control = control(&[], Controller::new("threshold", &[]).unwrap());
        let offered = |arrived, dealt| Offered { arrived, dealt };
        control.deal((0, 9), PERIOD - 1, offered(10, 10));
        assert!(control.loads().is_empty());
        [100, 300, 200, 400].iter().enumerate().for_each(|(replica, &worked)| control.add_work(replica, worked));
        control.deal((10, 19), PERIOD, offered(30, 20));
        control.deal((20, 29), PERIOD + 1, offered(30, 30));
        control.add_work(0, 2 * PERIOD);
        control.deal((30, 39), 2 * PERIOD, offered(60, 40));
        let seen = |at, replicas, worked, (arrived, dealt, pending)| Load {
            at,
            period: PERIOD,
            replicas,
            most: 4,
            worked,
            arrived,
            dealt,
            pending,
        };
        let second = seen(2 * PERIOD, 2, 2 * PERIOD, (30, 20, 20));
        assert_eq!(control.loads(), [seen(PERIOD, 4, 1_000, (30, 20, 10)), second]);
        assert_eq!(events(&control), [("threshold", 10, vec![0, 1]), ("threshold", 30, vec![0, 1, 2])]);
        let cause = |at: usize| control.reconfigurations()[at].request.cause.clone().unwrap();
        assert_eq!([cause(0), cause(1)], ["load 25 % below 45 %", "load 100 % above 90 %"]);
    }
}
