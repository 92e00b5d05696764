//! The decisions of the executor: what heuristics see of a real pool, and what follows from it.
//!
//! One thread plays all workers, so every run is the same.

use std::sync::{Arc, Mutex};

use super::*;
use crate::dataflow::frame::Job;
use crate::dataflow::pooled::heuristic::places::{Heuristic, Places};
use crate::dataflow::pooled::place::Allotment;
use crate::dataflow::pooled::places::Place;
use crate::output::clock::{Clock, Running};

/// What a heuristic sees of a place. Symbols are those of Prasaad et al., section 6.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Load {
    is_schedulable: bool,
    /// I, w, c, s and T.
    queue: f64,
    workers: usize,
    cost: Option<f64>,
    selectivity: f64,
    spent: u64,
}

/// Notes what it sees, and chooses the place that the test sets.
#[derive(Debug, Default, Clone)]
struct Spy {
    views: Arc<Mutex<Vec<Vec<Load>>>>,
    choice: Arc<Mutex<Option<usize>>>,
}

impl Heuristic for Spy {
    fn choose(&self, places: &dyn Places) -> Option<usize> {
        let load = |place| Load {
            is_schedulable: places.is_schedulable(place),
            queue: places.queue(place),
            workers: places.workers(place),
            cost: places.cost(place),
            selectivity: places.selectivity(place),
            spent: places.spent(place),
        };
        self.views.lock().unwrap().push((0..places.count()).map(load).collect());
        *self.choice.lock().unwrap()
    }
}

/// The time of engine 10 ms after its start, within a window of time that does not end.
fn later() -> Running {
    Clock::after(10_000_000).start()
}

/// Batches of 5 events, partitions of the paper, and long windows of time.
fn published(threads: usize) -> Options {
    let [heuristic, queue] = ["ct", "hybrid"].map(|name| Some(name.into()));
    Options { heuristic, queue, partitions: 2, throughput_window: 1_000_000_000, ..options(threads, 5) }
}

/// Query 1 of the paper: a stateless operator, two partitioned ones, and a stateful one.
fn q1() -> Pipeline {
    Pipeline::chain(&[stateless(0), partitioned(8, false), partitioned(4, false), stateful(8, false)], false)
}

/// A pool whose workers the test plays.
struct Rehearsal {
    executor: Pooled,
    events: Events,
    spy: Spy,
}

impl Rehearsal {
    /// `events` events of one key.
    fn new(pipeline: &Pipeline, options: Options, events: usize) -> Self {
        let mut executor = make_pooled(pipeline, options, None).unwrap();
        let events = Events::integers(0, &vec![(7, 1); events]);
        executor.work.begin(&mut executor.frame, events.rows.len(), &executor.choice).unwrap();
        Self { executor, events, spy: Spy::default() }
    }

    /// With the spy in place of the heuristic.
    fn with_spy(mut self) -> Self {
        self.executor.work.heuristic = Box::new(self.spy.clone());
        self
    }

    fn play(&self, work: impl FnOnce(&Player<'_>)) {
        let block = self.events.block();
        let mut job = self.executor.frame.job(&block);
        job.clock = later();
        work(&Player { pool: &self.executor.work, job: &job, spy: &self.spy });
    }
}

struct Player<'a> {
    pool: &'a Pool,
    job: &'a Job<'a>,
    spy: &'a Spy,
}

impl Player<'_> {
    /// Asks the scheduler for worker `me`.
    fn ask(&self, me: usize) -> Allotment {
        // SAFETY: this thread plays all workers; none of them is at its own part now.
        unsafe { self.pool.workers.with_mut(me, |worker| self.pool.allot(me, worker, self.job)) }
    }

    /// Sends worker `me` to `place`, and returns what the heuristic saw.
    fn send(&self, me: usize, place: Option<usize>) -> Vec<Load> {
        *self.spy.choice.lock().unwrap() = place;
        self.ask(me);
        self.spy.views.lock().unwrap().pop().expect("the scheduler asks the heuristic")
    }

    /// One piece of work of worker `me` at `place`.
    fn run(&self, me: usize, place: usize) -> bool {
        let mut clock = Stopwatch::start();
        let run = |worker: &mut Worker| self.pool.run(place, Reach::All, me, worker, self.job, &mut clock);
        // SAFETY: as above.
        unsafe { self.pool.workers.with_mut(me, run) }.unwrap()
    }

    /// Sets the costs in nanoseconds a row, and the selectivities, that worker 0 measured.
    fn estimate(&self, costs_and_selectivities: &[(u64, f64)]) {
        for (place, &(cost, selectivity)) in costs_and_selectivities.iter().enumerate() {
            self.pool.estimates.forget(0, place);
            self.pool.estimates.record(0, place, cost * 1000, 1000, (selectivity * 1000.0) as usize);
        }
    }
}

fn queues(view: &[Load]) -> Vec<f64> {
    view.iter().map(|load| load.queue).collect()
}

fn workers(view: &[Load]) -> Vec<usize> {
    view.iter().map(|load| load.workers).collect()
}

fn schedulable(view: &[Load]) -> Vec<bool> {
    view.iter().map(|load| load.is_schedulable).collect()
}

#[test]
fn the_paper_s_heuristics_see_the_operators_of_query_1() {
    let places = |pipeline: &Pipeline, options| make_pooled(pipeline, options, None).unwrap().work.places;
    let stage = |index, sends| Place::Stage { index, starts: false, sends };
    let [first, second, third] = [0, 1, 2].map(|index| stage(index, true));
    assert_eq!(places(&q1(), published(2)), [Place::Step(0), first, second, third]);
    // A step with operators is one, also behind a stage; neighbours without state are fused.
    let q2 =
        [stateless(0), partitioned(4, false), stateless(0), stateless(2), partitioned(4, false), stateful(4, false)];
    let expected = [Place::Step(0), stage(0, false), Place::Step(1), second, third];
    assert_eq!(places(&Pipeline::chain(&q2, false), published(2)), expected);
    // Without a step in front, the first stage starts batches.
    let only = [Place::Stage { index: 0, starts: true, sends: true }];
    assert_eq!(places(&Pipeline::chain(&[partitioned(4, false)], false), published(2)), only);
    // Ours sees the steps between the stages, where another worker may merge outputs.
    assert_eq!(places(&q1(), options(2, 5)).len(), 7);
}

#[test]
fn the_view_has_the_worklists_and_workers_of_the_pool() {
    Rehearsal::new(&q1(), published(3), 25).with_spy().play(|player| {
        // Five batches of five events can start.
        let view = player.send(0, Some(0));
        assert_eq!((queues(&view), workers(&view)), (vec![25.0, 0.0, 0.0, 0.0], vec![0; 4]));
        assert_eq!(schedulable(&view), [true, false, false, false]);
        assert!(view.iter().all(|load| load.cost.is_none() && load.selectivity == 1.0 && load.spent == 0));
        assert!(player.run(0, 0) && player.run(0, 0));
        // Worker 0 is still there. It is not among the others that it sees itself.
        let view = player.send(1, Some(1));
        assert_eq!((queues(&view), workers(&view)), (vec![15.0, 10.0, 0.0, 0.0], vec![1, 0, 0, 0]));
        assert_eq!(schedulable(&view), [true, true, false, false]);
        let view = player.send(0, Some(0));
        assert_eq!(workers(&view), [0, 1, 0, 0]);
        // Another worker may join a partitioned operator until there are as many as partitions.
        player.send(2, Some(1));
        let view = player.send(0, Some(0));
        assert_eq!((workers(&view), schedulable(&view)), (vec![0, 2, 0, 0], vec![true, false, false, false]));
        player.send(2, None);
        // The worker takes its slice of one part, since the cost is unknown. Its outputs are in the next worklist.
        assert!(player.run(1, 1));
        let view = player.send(0, Some(0));
        assert_eq!(queues(&view), [15.0, 5.0, 5.0, 0.0]);
        assert_eq!(schedulable(&view), [true, true, true, false]);
    });
}

#[test]
fn a_worklist_does_not_contain_the_rows_that_a_worker_is_at() {
    Rehearsal::new(&q1(), published(3), 25).with_spy().play(|player| {
        player.send(0, Some(0));
        (0..3).for_each(|_| assert!(player.run(0, 0)));
        player.send(1, Some(1));
        let (pool, spy) = (&raw const *player.pool, player.spy.clone());
        let views = Arc::new(Mutex::new(Vec::new()));
        let noted = views.clone();
        let (address, job) = (pool as usize, &raw const *player.job as usize);
        PROBE.set(Some(Box::new(move |_| {
            // SAFETY: pool and job outlive the call of `run` below, which alone runs the operator.
            let (pool, job) = unsafe { (&*(address as *const Pool), &*(job as *const Job<'_>)) };
            *spy.choice.lock().unwrap() = None;
            // SAFETY: worker 2 does nothing else meanwhile.
            unsafe { pool.workers.with_mut(2, |worker| pool.allot(2, worker, job)) };
            noted.lock().unwrap().push(spy.views.lock().unwrap().pop().unwrap());
        })));
        assert!(player.run(1, 1));
        PROBE.set(None);
        // While worker 1 is at the first batch, the others wait: ten of fifteen rows.
        let views = views.lock().unwrap();
        assert_eq!(views.len(), 5);
        for view in &*views {
            assert_eq!((queues(view), workers(view)), (vec![10.0, 10.0, 0.0, 0.0], vec![1, 1, 0, 0]));
        }
    });
}

#[test]
fn a_stateful_operator_has_one_worker() {
    let pipeline = Pipeline::chain(&[stateless(0), stateful(4, false)], false);
    Rehearsal::new(&pipeline, published(3), 25).with_spy().play(|player| {
        player.send(0, Some(0));
        (0..3).for_each(|_| assert!(player.run(0, 0)));
        assert_eq!(schedulable(&player.send(1, Some(1))), [true, true]);
        assert_eq!(schedulable(&player.send(2, None)), [true, false]);
        assert_eq!(schedulable(&player.send(1, None)), [true, true]);
    });
}

#[test]
fn the_view_has_the_estimates_and_the_times_that_workers_report() {
    Rehearsal::new(&q1(), published(2), 25).with_spy().play(|player| {
        player.estimate(&[(10, 1.0), (40, 0.5), (20, 3.0), (5, 1.0)]);
        player.send(0, Some(2));
        // SAFETY: this thread plays all workers.
        unsafe { player.pool.workers.with_mut(0, |worker| worker.slice = (2, 5_000)) };
        let view = player.send(0, Some(2));
        assert_eq!(view.iter().map(|load| load.cost).collect::<Vec<_>>(), [10.0, 40.0, 20.0, 5.0].map(Some));
        assert_eq!(view.iter().map(|load| load.selectivity).collect::<Vec<_>>(), [1.0, 0.5, 3.0, 1.0]);
        assert_eq!(view.iter().map(|load| load.spent).collect::<Vec<_>>(), [0, 0, 5_000, 0]);
    });
}

/// The places that one worker goes to, a piece of work at a time, with these costs and selectivities.
fn trace(player: &Player<'_>, estimates: &[(u64, f64)], pieces: usize) -> Vec<usize> {
    let go = |_| match player.ask(0) {
        Allotment::Place(place) => {
            // The time of this run must not count.
            assert!(player.run(0, place));
            player.estimate(estimates);
            place
        }
        Allotment::Nothing(_) => panic!("there is work"),
    };
    player.estimate(estimates);
    (0..pieces).map(go).collect()
}

/// Options with a heuristic, and slices that hold any work here.
fn by_heuristic(name: &str, threads: usize) -> Options {
    Options { heuristic: Some(name.into()), slice: 1_000_000, ..published(threads) }
}

#[test]
fn qst_fills_queues_up_to_the_thresholds_of_equation_1() {
    // Eight threads have a window of 16 batches of 50 events: C is 800. Four operators of selectivity 1 have T = 800 / 4,
    // which is four batches. With seven places it would be three.
    let options = || Options { batch: 50, ..by_heuristic("qst", 8) };
    Rehearsal::new(&q1(), options(), 4000).play(|player| {
        assert_eq!(player.pool.window, 16);
        // The second operator takes all four batches at once. When both queues are full, the third operator is next. Then
        // there is room behind the second.
        let expected = [0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 1, 0];
        assert_eq!(trace(player, &[(1, 1.0); 4], 12), expected);
    });
    // Cumulative selectivities of 1, 1/2, 1/4 and 1/4: T is 400, 200, 100 and 100.
    Rehearsal::new(&q1(), options(), 4000).play(|player| {
        let estimates = [(1, 1.0), (1, 0.5), (1, 0.5), (1, 1.0)];
        assert_eq!(trace(player, &estimates, 9), [0, 0, 0, 0, 0, 0, 0, 0, 1]);
    });
}

#[test]
fn lp_takes_each_batch_to_the_end_before_the_next() {
    Rehearsal::new(&q1(), by_heuristic("lp", 2), 25).play(|player| {
        assert_eq!(trace(player, &[(1, 1.0); 4], 8), [0, 1, 2, 3, 0, 1, 2, 3]);
    });
}

#[test]
fn et_goes_where_the_worklist_of_the_pool_takes_longest() {
    Rehearsal::new(&q1(), by_heuristic("et", 2), 25).play(|player| {
        // 25 rows of 10 ns against 0 of 50; then 20 against 5, which are 250 ns.
        assert_eq!(trace(player, &[(10, 1.0), (50, 1.0), (1, 1.0), (1, 1.0)], 2), [0, 1]);
    });
    Rehearsal::new(&q1(), by_heuristic("et", 2), 25).play(|player| {
        // 20 rows of 10 ns against 5 of 30.
        assert_eq!(trace(player, &[(10, 1.0), (30, 1.0), (1, 1.0), (1, 1.0)], 2), [0, 0]);
    });
}

#[test]
fn ct_goes_to_the_lowest_normalised_throughput_of_the_pool() {
    let options = Options { slice: 50, ..by_heuristic("ct", 3) };
    Rehearsal::new(&q1(), options, 25).play(|player| {
        (0..2).for_each(|_| assert!(player.run(0, 0)));
        player.estimate(&[(10, 1.0); 4]);
        // SAFETY: this thread plays all workers.
        let report = |me: usize, place, spent| unsafe {
            player.pool.workers.with_mut(me, |worker| worker.slice = (place, spent));
        };
        // T is 400 ns at the first operator, and 0 at the second.
        report(0, 0, 400);
        assert_eq!(player.ask(0), Allotment::Place(1));
        // Worker 0 is allotted to the second one for a slice, which is more than 400 ns.
        assert_eq!(player.ask(1), Allotment::Place(0));
        // Now both have a worker; the first has 400 ns more.
        assert_eq!(player.ask(2), Allotment::Place(1));
    });
}

#[test]
fn a_slice_bounds_a_stateful_operator() {
    let pipeline = Pipeline::chain(&[stateless(0), stateful(4, false)], false);
    for name in ["ct", "affinity"] {
        let options = Options { heuristic: Some(name.into()), slice: 1, ..published(2) };
        Rehearsal::new(&pipeline, options, 25).with_spy().play(|player| {
            let waiting = || player.pool.stages[0].waiting_rows();
            (0..3).for_each(|_| assert!(player.run(0, 0)));
            let place = player.pool.place_of_stage(0);
            // A microsecond is enough for one row of a microsecond, so for a batch at a time.
            player.pool.estimates.record(0, place, 1_000_000, 1000, 1000);
            assert_eq!(waiting(), 15);
            for left in [10, 5, 0] {
                assert!(player.run(0, place));
                assert_eq!(waiting(), left, "{name}");
            }
        });
    }
}

#[test]
fn a_resting_worker_does_not_evaluate_the_heuristic() {
    Rehearsal::new(&q1(), published(2), 25).with_spy().play(|player| {
        let looks = || player.spy.views.lock().unwrap().len();
        let Allotment::Nothing(nothing) = player.ask(1) else { panic!("the spy sends workers nowhere") };
        let before = looks();
        (0..1000).for_each(|_| assert!(!player.pool.should_ask(&nothing, player.job)));
        assert_eq!(looks(), before);
        // A worker that is sent somewhere changes nothing yet; one that has been there does.
        player.send(0, Some(0));
        assert!(!player.pool.should_ask(&nothing, player.job));
        player.send(0, Some(0));
        assert!(player.pool.should_ask(&nothing, player.job));
        // While workers rest, so does a piece of work.
        let Allotment::Nothing(nothing) = ({
            *player.spy.choice.lock().unwrap() = None;
            player.ask(1)
        }) else {
            panic!("the spy sends workers nowhere")
        };
        player.pool.scheduler.rest(|| {
            assert!(!player.pool.should_ask(&nothing, player.job));
            let mut clock = Stopwatch::start();
            let slice = |worker: &mut Worker| player.pool.spend_slice(0, Reach::All, 0, worker, player.job, &mut clock);
            // SAFETY: this thread plays all workers.
            assert!(unsafe { player.pool.workers.with_mut(0, slice) }.unwrap());
            assert!(player.pool.should_ask(&nothing, player.job));
        });
    });
}

#[test]
fn one_thread_runs_the_published_strategies_through_the_same_machinery() {
    let block = integers(300, 40);
    let lanes = |options: Options| {
        let mut executor = make_pooled(&q1(), options, None).unwrap();
        executor.process(&block[0].block()).unwrap();
        let is_estimated = executor.work.estimates.averages(0).cost().is_some();
        (executor.work.is_direct, executor.work.stages[0].lanes, is_estimated)
    };
    assert_eq!(lanes(published(1)), (false, 2, true));
    assert_eq!(lanes(options(1, 5)), (true, 1, false));
    let some = |name: &str| Some(name.to_string());
    assert_eq!(lanes(Options { reorder: some("lock"), ..options(1, 5) }), (false, 1, true));
    assert_eq!(lanes(Options { queue: some("partitioned"), ..options(1, 5) }), (false, 1, true));
    let named =
        Options { heuristic: some("affinity"), queue: some("lanes"), reorder: some("non_blocking"), ..options(1, 5) };
    assert_eq!(lanes(named), (true, 1, false));
}

#[test]
fn small_batches_leave_as_many_events_in_flight_as_one_of_the_default() {
    assert_eq!([1, 7, 32, 256].map(|batch| pool::window(2, batch)), [256, 64, 8, 8]);
    assert_eq!([1, 256].map(|batch| pool::window(100, batch)), [256, 256]);
}
