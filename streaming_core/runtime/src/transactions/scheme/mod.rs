//! Schemes of the transactional executor: how the accesses of concurrent state transactions are ordered.
//!
//! One trait, one file per scheme, one registry. A scheme is called once per block and thread and works per batch.

use crate::error::RunError;
use crate::program::Program;
use crate::program::options::Options;
use crate::program::registry::find;
use crate::transactions::run::{Candidate, Scheme};

mod ahead;
mod assignment;
mod auto;
mod lock;
mod mvlk;
mod no_lock;
mod owners;
mod pat;
pub(crate) mod pool;
pub(crate) mod serial;
mod tstream;

type Make = fn(&Program, &Options) -> Result<Box<dyn Scheme>, RunError>;

#[derive(Clone, Copy)]
enum Strategy {
    /// As published, on all threads.
    Published(Make),
    /// Our own, on no more threads than cores.
    Ours(Make),
    /// The fastest of several, on as many threads as pay.
    Auto,
}

/// The registry: adding a scheme touches its file and this table.
const SCHEMES: &[(&str, Strategy)] = &[
    ("owners", Strategy::Ours(owners::make)),
    ("tstream", Strategy::Published(tstream::make)),
    ("serial", Strategy::Ours(serial::make)),
    ("lock", Strategy::Published(lock::make)),
    ("mvlk", Strategy::Published(mvlk::make)),
    ("pat", Strategy::Published(pat::make)),
    ("auto", Strategy::Auto),
    ("no_lock", Strategy::Published(no_lock::make)),
];

fn strategy(options: &Options) -> Result<Strategy, RunError> {
    find("scheme", "", options.scheme.as_deref(), SCHEMES)
}

/// The scheme the options name (the first one if they name none), or those between which `auto` chooses.
pub fn make(program: &Program, options: &Options) -> Result<Vec<Candidate>, RunError> {
    match strategy(options)? {
        Strategy::Auto => auto::make(program, options),
        Strategy::Published(make) | Strategy::Ours(make) => {
            Ok(Candidate::only(options.threads, make(program, options)?))
        }
    }
}

/// The options with the threads that the scheme uses: a published one all of them, ours no more than there are cores.
pub fn threads(options: Options) -> Result<Options, RunError> {
    Ok(if matches!(strategy(&options)?, Strategy::Published(_)) { options } else { options.within_cores() })
}
