//! The threads of a run: they persist over blocks, and every one of them leaves when one fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::RunError;
use crate::threads::bells::Bells;
use crate::threads::idle::{Idle, Strategy};
use crate::threads::sync::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, CachePadded, Mutex, Ordering, Shared, UnsafeCell, fence, lock, thread,
};
use crate::threads::topology::{Bound, Topology};

type Job = Shared<dyn Fn(usize) -> Result<(), RunError> + Sync>;

/// `threads` threads, the caller of `run` being number 0.
#[derive(Debug)]
pub struct Team {
    shared: Arc<TeamState>,
    handles: Vec<thread::JoinHandle<()>>,
    /// Core of thread 0 while a job runs, if threads are pinned.
    caller: Option<usize>,
    /// The number of threads that have a core if threads are pinned; others have one if cores are left.
    bound: usize,
}

/// How threads within a job wait for each other and learn that one has failed.
#[derive(Debug)]
pub struct Signals {
    /// Where threads wait if any thread may make the change. A notification wakes all of them.
    pub idle: Idle,
    /// Where threads wait if each change concerns few threads.
    pub bells: Bells,
    /// Set by any thread that fails; never reset: a failed run is over.
    pub stopped: AtomicBool,
}

#[derive(Debug)]
struct TeamState {
    /// Per worker: the number of its current job. The caller writes it, and only for workers that the job is for, so the
    /// others sleep on.
    numbers: Vec<CachePadded<AtomicUsize>>,
    /// Workers still at the current job: set by the caller, counted down by each worker.
    running: CachePadded<AtomicUsize>,
    /// Written by the caller before the numbers move. A worker reads it after it saw its number move.
    job: UnsafeCell<Option<Job>>,
    /// Set by the caller once, with the last job numbers.
    leaving: AtomicBool,
    error: Mutex<Option<RunError>>,
    /// Per worker, for waits between jobs. Blocks may be far apart, while Python reads files, so a wait always ends up asleep.
    between: Vec<Idle>,
    signals: Arc<Signals>,
    /// Per thread: CPU nanoseconds spent in jobs, written by that thread.
    cpu: Vec<CachePadded<AtomicU64>>,
    /// Per thread: its core + 1 if it was bound; written by that thread.
    cores: Vec<AtomicUsize>,
}

// SAFETY: `job` is the only part that is not Sync by itself. The caller writes it while no worker runs, after all have
// counted down `running`. Workers read it between the change of their number and their count-down.
unsafe impl Sync for TeamState {}
// SAFETY: as above.
unsafe impl Send for TeamState {}

impl Team {
    /// Starts `threads - 1` threads. With `pin`, thread i runs on the i-th core that this process may use.
    pub fn new(threads: usize, strategy: Strategy, pin: bool) -> Result<Self, RunError> {
        Self::with_more(threads, 0, strategy, pin)
    }

    /// Starts `threads - 1` threads, and `more` threads behind them. With `pin`, a thread behind them gets a core that no other
    /// thread has. If none is left, it is not bound, so that it delays no thread in particular.
    pub fn with_more(threads: usize, more: usize, strategy: Strategy, pin: bool) -> Result<Self, RunError> {
        let (bound, threads) = (threads, threads + more);
        let topology = Topology::probe();
        let cores = topology.cores.len();
        let between = if strategy == Strategy::Spin && threads <= cores { Strategy::Spin } else { Strategy::Park };
        let shared = Arc::new(TeamState {
            numbers: (1..threads).map(|_| CachePadded::new(AtomicUsize::new(0))).collect(),
            running: CachePadded::new(AtomicUsize::new(0)),
            job: UnsafeCell::new(None),
            leaving: AtomicBool::new(false),
            error: Mutex::new(None),
            between: (1..threads).map(|_| Idle::new(between, threads, cores)).collect(),
            signals: Arc::new(Signals {
                idle: Idle::new(strategy, threads, cores),
                bells: Bells::new(strategy, threads, cores),
                stopped: AtomicBool::new(false),
            }),
            cpu: (0..threads).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            cores: (0..threads).map(|_| AtomicUsize::new(0)).collect(),
        });
        let core = |index: usize| {
            let place = if index < bound { index % cores } else { index };
            topology.cores.get(place).filter(|_| pin).map(|core| core.id)
        };
        let mut team = Self { shared, handles: Vec::new(), caller: core(0), bound };
        for index in 1..threads {
            let (shared, core) = (team.shared.clone(), core(index));
            let handle = thread::Builder::new()
                .name(format!("lockstep-{index}"))
                .spawn(move || shared.work(index, core))
                .map_err(|error| RunError::Engine(format!("cannot start thread {index}: {error}")))?;
            team.handles.push(handle);
        }
        Ok(team)
    }

    /// For jobs: a thread that waits or loops looks at `stopped`, and leaves with `RunError::Stopped`.
    pub fn signals(&self) -> Arc<Signals> {
        self.shared.signals.clone()
    }

    /// The number of threads.
    pub fn len(&self) -> usize {
        self.handles.len() + 1
    }

    /// Runs `job(thread)` on the first `threads` threads, and returns when all have left it. The others sleep on. After a
    /// failure, the team cannot run another job.
    ///
    /// # Errors
    /// The failure of lowest rank; a panic is an `Engine` error.
    pub fn run(
        &mut self,
        threads: usize,
        job: &(dyn Fn(usize) -> Result<(), RunError> + Sync),
    ) -> Result<(), RunError> {
        let workers = threads - 1;
        let shared = &*self.shared;
        // ORDERING: Relaxed; set by threads that have since counted down `running`.
        if shared.signals.stopped.load(Ordering::Relaxed) {
            return Err(RunError::Engine("the run has already failed".into()));
        }
        // The mask is restored after each job: the thread belongs to the caller.
        let bound = self.caller.map(|core| Bound::to(core).map(|bound| (core, bound)));
        if let Some(Ok((core, _))) = &bound {
            // ORDERING: Relaxed; read by this thread only, between jobs.
            shared.cores[0].store(core + 1, Ordering::Relaxed);
        }
        if workers == 0 {
            shared.attempt(0, job);
        } else {
            // SAFETY: only the lifetime changes: this call returns only after every worker is done with the job.
            let job: &'static (dyn Fn(usize) -> Result<(), RunError> + Sync) = unsafe { std::mem::transmute(job) };
            let pointer: *const (dyn Fn(usize) -> Result<(), RunError> + Sync) = job;
            // SAFETY: only ever used as a shared reference to a `Sync` function.
            let shared_job = unsafe { Shared::new(pointer.cast_mut()) };
            // SAFETY: no worker is at a job, so no thread reads the cell.
            shared.job.with_mut(|cell| unsafe { *cell = Some(shared_job) });
            // ORDERING: Relaxed; published by the next store.
            shared.running.store(workers, Ordering::Relaxed);
            shared.call(workers);
            shared.attempt(0, job);
            // ORDERING: Acquire takes over everything the workers wrote before they counted down.
            shared.signals.idle.wait(|| shared.running.load(Ordering::Acquire) == 0);
        }
        match lock(&shared.error).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// CPU time all threads spent in jobs.
    pub fn cpu_nanoseconds(&self) -> u64 {
        // ORDERING: Relaxed; between jobs no thread writes them.
        self.shared.cpu.iter().map(|cpu| cpu.load(Ordering::Relaxed)).sum()
    }

    /// Core of each thread as it really took effect, without threads behind the others; None unless every one is bound.
    pub fn binding(&self) -> Option<Vec<usize>> {
        // ORDERING: Relaxed; written before the threads' first job, read between jobs.
        self.shared.cores[..self.bound].iter().map(|core| core.load(Ordering::Relaxed).checked_sub(1)).collect()
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // ORDERING: Relaxed; published by the next store.
        self.shared.leaving.store(true, Ordering::Relaxed);
        self.shared.call(self.handles.len());
        for handle in self.handles.drain(..) {
            // Panics inside of jobs were caught; nothing else can panic.
            let _ = handle.join();
        }
    }
}

impl TeamState {
    /// Calls the first `workers` workers to the job, or to leave.
    fn call(&self, workers: usize) {
        for number in &self.numbers[..workers] {
            // ORDERING: Release publishes `job`, `running` and `leaving` to the worker that sees its new number.
            number.fetch_add(1, Ordering::Release);
        }
        // ORDERING: SeqCst fence, paired with the one in `Idle::sleep`: a worker sees its number, or is seen asleep.
        fence(Ordering::SeqCst);
        self.between[..workers].iter().for_each(Idle::wake);
    }

    fn work(&self, index: usize, core: Option<usize>) {
        let bound = core.map(|core| Bound::to(core).map(|bound| (core, bound)));
        if let Some(Ok((core, _))) = &bound {
            // ORDERING: Relaxed; published with the count-down of the first job.
            self.cores[index].store(core + 1, Ordering::Relaxed);
        }
        let mut done = 0;
        loop {
            // ORDERING: Acquire takes over `job`, `running` and `leaving`.
            self.between[index - 1].wait(|| self.numbers[index - 1].load(Ordering::Acquire) != done);
            done += 1;
            // ORDERING: Relaxed; published by the number.
            if self.leaving.load(Ordering::Relaxed) {
                return;
            }
            // SAFETY: published by the number; not written until we count down.
            let job = self.job.with(|cell| unsafe { *cell }).expect("the caller publishes a job before its number");
            // SAFETY: the caller keeps the function alive until all have counted down.
            self.attempt(index, unsafe { &*job.get() });
            // ORDERING: Release passes everything that this thread wrote to the caller.
            self.running.fetch_sub(1, Ordering::Release);
            self.signals.idle.notify();
        }
    }

    fn attempt(&self, index: usize, job: &(dyn Fn(usize) -> Result<(), RunError> + Sync)) {
        let before = thread_cpu_nanoseconds();
        // Whatever a panicking thread left half-done is not used again: the run is over.
        let outcome = catch_unwind(AssertUnwindSafe(|| job(index)));
        let error = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(payload) => {
                let text = payload
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_string())
                    .or_else(|| payload.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "unknown".into());
                Some(RunError::Engine(format!("thread {index} panicked: {text}")))
            }
        };
        if let Some(error) = error {
            let mut first = lock(&self.error);
            if first.as_ref().is_none_or(|other| error.rank() < other.rank()) {
                *first = Some(error);
            }
            drop(first);
            // ORDERING: Release; threads that leave because of it need nothing else from this thread.
            self.signals.stopped.store(true, Ordering::Release);
            self.signals.idle.notify();
            self.signals.bells.ring_all();
        }
        // ORDERING: Relaxed; read between jobs.
        self.cpu[index].fetch_add(thread_cpu_nanoseconds().saturating_sub(before), Ordering::Relaxed);
    }
}

/// Processor time of the calling thread in nanoseconds.
pub fn thread_cpu_nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    if failed != 0 {
        return 0;
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::threads::barrier::Barrier;

    #[test]
    fn every_thread_runs_every_job() {
        for strategy in [Strategy::Spin, Strategy::Yield, Strategy::Park] {
            for threads in [1, 2, 3, 8] {
                let mut team = Team::new(threads, strategy, false).unwrap();
                let counts: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
                for _ in 0..50 {
                    team.run(threads, &|index| {
                        counts[index].fetch_add(1, Ordering::Relaxed);
                        Ok(())
                    })
                    .unwrap();
                }
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 50));
            }
        }
    }

    #[test]
    fn threads_that_a_job_is_not_for_run_the_next_one() {
        for strategy in [Strategy::Spin, Strategy::Yield, Strategy::Park] {
            let mut team = Team::new(4, strategy, false).unwrap();
            let counts: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
            for threads in [1, 4, 2, 1, 3, 4, 2, 2, 4] {
                team.run(threads, &|index| {
                    counts[index].fetch_add(1, Ordering::Relaxed);
                    Ok(())
                })
                .unwrap();
            }
            let counts: Vec<usize> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
            assert_eq!(counts, [9, 7, 4, 3]);
        }
    }

    #[test]
    fn a_panic_is_an_error_and_frees_those_at_the_barrier() {
        let mut team = Team::new(3, Strategy::Park, false).unwrap();
        let barrier = Barrier::new(3);
        let signals = team.signals();
        let outcome = team.run(3, &|index| {
            if index == 1 {
                panic!("on purpose");
            }
            barrier.wait(index, &signals.idle, &signals.stopped)
        });
        assert_eq!(outcome, Err(RunError::Engine("thread 1 panicked: on purpose".into())));
        assert!(team.run(3, &|_| Ok(())).is_err());
    }

    #[test]
    fn the_earliest_event_s_failure_is_reported() {
        let mut team = Team::new(4, Strategy::Yield, false).unwrap();
        let failure =
            |seq| RunError::Kernel { operator: "op".into(), seq, window: None, order: 0, exception: Vec::new() };
        let barrier = Barrier::new(4);
        let signals = team.signals();
        let outcome = team.run(4, &|index| {
            barrier.wait(index, &signals.idle, &signals.stopped)?;
            Err(failure(10 - index as i64))
        });
        assert_eq!(outcome, Err(failure(7)));
    }

    #[test]
    fn a_thread_behind_the_others_gets_a_free_core_or_none() {
        let cores = crate::threads::topology::affinity().unwrap().len();
        let mut team = Team::with_more(1, cores, Strategy::Yield, true).unwrap();
        team.run(1 + cores, &|_| Ok(())).unwrap();
        let bound: Vec<usize> = team.shared.cores.iter().map(|core| core.load(Ordering::Relaxed)).collect();
        assert!(bound[..cores].iter().all(|&core| core > 0) && bound[cores] == 0);
        let different: std::collections::BTreeSet<_> = bound.iter().collect();
        assert_eq!(different.len(), cores + 1);
        assert_eq!(team.binding().unwrap().len(), 1);
    }

    #[test]
    fn pinned_threads_say_where() {
        let before = crate::threads::topology::affinity().unwrap();
        let mut team = Team::new(2, Strategy::Yield, true).unwrap();
        team.run(2, &|_| Ok(())).unwrap();
        let binding = team.binding().unwrap();
        assert!(binding.len() == 2 && binding.iter().all(|core| before.contains(core)));
        assert_eq!(crate::threads::topology::affinity().unwrap(), before);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::own::Own;
    use crate::threads::testing::interleave;

    /// The caller writes a job, both threads do it, and the caller reads the result. The model fails if a job starts before
    /// the caller publishes it, or goes on after `run`. There are two jobs, because the first one finds threads that start.
    /// Between them the caller does a job alone, which the other thread must not see.
    #[test]
    fn loom_a_job_is_handed_out_and_what_it_did_comes_back() {
        interleave(2, || {
            let mut team = Team::new(2, Strategy::Yield, false).unwrap();
            let parts = Own::new(2, || 0);
            for round in 1..=2 {
                for part in 0..2 {
                    // SAFETY: between jobs; loom checks that no other thread is at it.
                    unsafe { parts.with_mut(part, |part| *part += 1) };
                }
                team.run(2, &|index| {
                    // SAFETY: the thread's own part.
                    unsafe { parts.with_mut(index, |part| *part *= 10) };
                    Ok(())
                })
                .unwrap();
                team.run(1, &|_| {
                    for part in 0..2 {
                        // SAFETY: the other thread has left its job; loom checks that it sees no other one.
                        assert_eq!(unsafe { parts.with_mut(part, |part| *part) }, [10, 110][round - 1]);
                    }
                    Ok(())
                })
                .unwrap();
            }
        });
    }
}
