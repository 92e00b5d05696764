//! Signals that ask this process to end: a handler notes the signal, and working threads look between two batches.
//!
//! The handler is machine code, not Python. It may interrupt any thread anywhere, even one that compiles or holds a lock. So
//! it only writes one number, and sets an alarm. Python looks at the same number (`interruption.py`). An operator that
//! loops never looks: the alarm ends its process.

#[cfg(feature = "pyo3")]
use std::io;
// Not the shim's atomics: no model knows signals, and a static has to be made without one.
use std::sync::atomic::{AtomicI32, Ordering};

use crate::error::RunError;

/// The first signal that came, 0 if none did. Written by the handler, in any thread, once.
static NOTED: AtomicI32 = AtomicI32::new(0);

/// Seconds after which a process ends that has not reached a place to end by itself.
#[cfg(feature = "pyo3")]
const GRACE: libc::c_uint = 5;

/// From now on SIGTERM and SIGINT are noted, unless this process was told to ignore them. Python asks for it.
#[cfg(feature = "pyo3")]
pub fn heed() -> io::Result<()> {
    for (number, handler) in [
        (libc::SIGALRM, overdue as extern "C" fn(libc::c_int)),
        (libc::SIGTERM, note as extern "C" fn(libc::c_int)),
        (libc::SIGINT, note as extern "C" fn(libc::c_int)),
    ] {
        // SAFETY: all zeros is an action: the default one, with no flags and an empty mask.
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
        // SAFETY: asks for the action only.
        if unsafe { libc::sigaction(number, std::ptr::null(), &raw mut before) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if before.sa_sigaction == libc::SIG_IGN {
            continue;
        }
        action.sa_sigaction = handler as usize;
        // Reads and writes must not fail because of a signal that threads look at later.
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler only does what a handler may do (`note`), and is there as long as the library.
        if unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The first signal that came since `heed`; 0 if none did.
#[inline]
pub fn noted() -> i32 {
    // ORDERING: Relaxed; the number is all there is.
    NOTED.load(Ordering::Relaxed)
}

/// An error once a signal has come.
#[inline]
pub fn check() -> Result<(), RunError> {
    if noted() == 0 { Ok(()) } else { Err(RunError::Interrupted) }
}

/// POSIX lets a handler use a lock-free atomic, `alarm` and `_exit`. A second Ctrl-C ends the process at once.
#[cfg(feature = "pyo3")]
extern "C" fn note(number: libc::c_int) {
    // ORDERING: Relaxed; the number is all there is.
    let first = NOTED.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if first {
        // SAFETY: replaces an alarm of this process, and nothing in it sets another one.
        unsafe { libc::alarm(GRACE) };
    } else if number == libc::SIGINT {
        // SAFETY: ends the process without running anything more of it.
        unsafe { libc::_exit(128 + number) }
    }
}

/// Ends the process, `GRACE` seconds after the signal. What it has not published stays beside the target, as after a kill.
#[cfg(feature = "pyo3")]
extern "C" fn overdue(_: libc::c_int) {
    let line = match noted() {
        0 => return,
        libc::SIGINT => "stopped by SIGINT before its work could end\n",
        _ => "stopped by SIGTERM before its work could end\n",
    };
    // SAFETY: the line is there, and POSIX lets a handler use `write` and `_exit`.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
        libc::_exit(128 + noted())
    }
}
