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
    /// On all threads.
    Scheme(Make),
    /// The fastest of several, on as many threads as pay.
    Auto,
}

/// The registry: adding a scheme touches its file and this table.
const SCHEMES: &[(&str, Strategy)] = &[
    ("owners", Strategy::Scheme(owners::make)),
    ("tstream", Strategy::Scheme(tstream::make)),
    ("serial", Strategy::Scheme(serial::make)),
    ("lock", Strategy::Scheme(lock::make)),
    ("mvlk", Strategy::Scheme(mvlk::make)),
    ("pat", Strategy::Scheme(pat::make)),
    ("auto", Strategy::Auto),
    ("no_lock", Strategy::Scheme(no_lock::make)),
];

fn strategy(options: &Options) -> Result<Strategy, RunError> {
    find("scheme", "", options.scheme.as_deref(), SCHEMES)
}

/// The scheme the options name (the first one if they name none), or those between which `auto` chooses.
pub fn make(program: &Program, options: &Options) -> Result<Vec<Candidate>, RunError> {
    match strategy(options)? {
        Strategy::Auto => auto::make(program, options),
        Strategy::Scheme(make) => Ok(Candidate::only(options.threads, make(program, options)?)),
    }
}

/// The options with the threads that the scheme uses: `auto` no more than there are cores, any other scheme all of them.
pub fn threads(options: Options) -> Result<Options, RunError> {
    let is_auto = matches!(strategy(&options)?, Strategy::Auto);
    Ok(if is_auto { options.within_cores() } else { options })
}
