//! Schemes of the transactional executor: how the accesses of concurrent state transactions are ordered.
//!
//! One trait, one file per scheme, one registry. A scheme is called once per block and thread and works per batch.

use crate::error::RunError;
use crate::program::Program;
use crate::program::options::Options;
use crate::program::registry::find;
use crate::transactions::run::Scheme;

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

/// The registry: adding a scheme touches its file and this table.
const SCHEMES: &[(&str, Make)] = &[
    ("owners", owners::make),
    ("tstream", tstream::make),
    ("serial", serial::make),
    ("lock", lock::make),
    ("mvlk", mvlk::make),
    ("pat", pat::make),
    ("auto", auto::make),
    ("no_lock", no_lock::make),
];

/// The scheme the options name (the first one if they name none).
pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    find("scheme", "", options.scheme.as_deref(), SCHEMES)?(program, options)
}
