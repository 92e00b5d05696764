//! Stalls: a fault that a run injects into itself. Its threads pause at random moments, so that rare schedules happen.
//!
//! A thread of its own chooses one thread of the engine after the other, and signals it. The handler sleeps, whatever the
//! interrupted thread was about to do. The seed decides thread, pause and gap; the system decides where a thread is then.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fs, io, thread};

/// The shortest and the longest pause, in nanoseconds. Gaps have the same bounds.
const BOUNDS: (f64, f64) = (50e3, 3e6);
/// The names of the team's threads begin with it.
const NAME: &str = "lockstep-";

/// Nanoseconds of the next pause, which the handler reads.
static PAUSE: AtomicU32 = AtomicU32::new(0);
/// Pauses so far, in this process.
static PAUSES: AtomicUsize = AtomicUsize::new(0);
static INSTALLED: Once = Once::new();

/// Stalls the thread that starts it and the threads of teams, until it is stopped or dropped.
#[derive(Debug)]
pub struct Stalls {
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stalls {
    /// Begins to stall.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(seed: u64) -> io::Result<Self> {
        INSTALLED.call_once(install);
        // SAFETY: it only returns a number.
        let (caller, stopped) = (unsafe { libc::gettid() }, Arc::new(AtomicBool::new(false)));
        let is_stopped = stopped.clone();
        let thread =
            thread::Builder::new().name("stalls".into()).spawn(move || stall(caller, Draws(seed), &is_stopped))?;
        Ok(Self { stopped, thread: Some(thread) })
    }

    /// Ends the stalls. A thread that pauses goes on by itself.
    pub fn stop(&mut self) {
        // ORDERING: Relaxed; the thread only leaves, and `join` orders the rest.
        self.stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().expect("the thread of stalls does not panic");
        }
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The number of pauses in this process so far.
pub fn pauses() -> usize {
    // ORDERING: Relaxed; the number is all there is.
    PAUSES.load(Ordering::Relaxed)
}

/// Random numbers (splitmix64).
struct Draws(u64);

impl Draws {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Nanoseconds within `BOUNDS`; each order of magnitude is as likely as any other.
    fn nanoseconds(&mut self) -> u32 {
        let (least, most) = BOUNDS;
        (least * (most / least).powf(self.number() as f64 / u64::MAX as f64)) as u32
    }
}

/// A real-time signal: such signals are queued, so each is a pause. Libraries use the first ones, so this is nearly the last.
fn number() -> libc::c_int {
    libc::SIGRTMAX() - 1
}

/// The handler stays to the end of the process, because a signal may be pending when the stalls stop.
fn install() {
    // SAFETY: all zeros is an action: the default one, with no flags and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = pause as extern "C" fn(libc::c_int) as usize;
    // System calls that a handler may restart are restarted. std, Python and Arrow repeat the others.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler only does what a handler may do (`pause`), and is there as long as the library.
    let result = unsafe { libc::sigaction(number(), &raw const action, std::ptr::null_mut()) };
    assert_eq!(result, 0, "the number is that of a signal with an action");
}

/// POSIX lets a handler use a lock-free atomic and `nanosleep`. It leaves `errno` as it was, and touches nothing else of the
/// thread, so the thread goes on as after any preemption.
extern "C" fn pause(_: libc::c_int) {
    // ORDERING: Relaxed; the number is all there is.
    let time = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(PAUSE.load(Ordering::Relaxed)) };
    PAUSES.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the address of this thread's `errno` is valid as long as the thread, and `time` as long as the call.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::nanosleep(&raw const time, std::ptr::null_mut());
        *errno = before;
    }
}

/// Signals one thread after the other. A gap grows with the pause and shrinks with more threads, so that no thread gets
/// signals faster than it can pause.
fn stall(caller: libc::pid_t, mut draws: Draws, stopped: &AtomicBool) {
    // SAFETY: it only returns a number.
    let process = unsafe { libc::getpid() };
    // ORDERING: Relaxed; it only says when to leave.
    while !stopped.load(Ordering::Relaxed) {
        let threads = engine_threads(caller);
        let (pause, gap) = (draws.nanoseconds(), draws.nanoseconds());
        let thread = threads[draws.number() as usize % threads.len()];
        // ORDERING: Relaxed; a handler that reads an earlier or a later pause sleeps for that.
        PAUSE.store(pause, Ordering::Relaxed);
        // SAFETY: the signal has a handler. A thread that has ended meanwhile gets none.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, number()) };
        thread::park_timeout(Duration::from_nanos(u64::from(gap) + u64::from(pause) / threads.len() as u64));
    }
}

/// The thread that started the stalls, then those of teams.
fn engine_threads(caller: libc::pid_t) -> Vec<libc::pid_t> {
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let is_of_team =
        |path: &std::path::Path| fs::read_to_string(path.join("comm")).is_ok_and(|name| name.starts_with(NAME));
    let team = entries.filter(|entry| is_of_team(&entry.path()));
    let numbers = team.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    std::iter::once(caller).chain(numbers).collect()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::threads::idle::Strategy;
    use crate::threads::team::Team;

    #[test]
    fn the_threads_of_a_team_pause_and_do_their_work() {
        let (mut team, mut stalls) = (Team::new(3, Strategy::Park, false).unwrap(), Stalls::start(7).unwrap());
        let (before, jobs) = (pauses(), AtomicUsize::new(0));
        let mut rounds = 0;
        while pauses() < before + 20 {
            rounds += 1;
            team.run(3, &|_| {
                jobs.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
        }
        stalls.stop();
        assert_eq!(jobs.load(Ordering::Relaxed), 3 * rounds);
    }

    #[test]
    fn draws_follow_from_the_seed_and_lie_within_the_bounds() {
        let draw = |seed| {
            let mut draws = Draws(seed);
            (0..1000).map(|_| f64::from(draws.nanoseconds())).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
        assert!(draw(3).iter().all(|&ns| (BOUNDS.0.floor()..=BOUNDS.1).contains(&ns)));
        assert!(draw(3).iter().filter(|&&ns| ns < 387e3).count().abs_diff(500) < 50);
    }

    #[test]
    fn an_interrupted_call_keeps_its_error_number() {
        install();
        // SAFETY: as in the handler.
        unsafe { *libc::__errno_location() = libc::EBADF };
        pause(number());
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    }
}
