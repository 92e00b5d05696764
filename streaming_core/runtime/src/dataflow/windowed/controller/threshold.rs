//! Controller `threshold`: by how much of the time replicas have worked (STRETCH, section 8.4).
//!
//! A thread of the paper has one replica and nothing else to do. Here a thread may also run sources, the sink and other
//! programs. So a replica that cannot keep up need not have worked all the time. If more events wait than were dealt in a
//! period, the controller counts the replica as fully loaded.

use crate::dataflow::windowed::controller::gauge::{Gauge, Load};

#[derive(Debug)]
pub(super) struct Threshold;

impl Gauge for Threshold {
    fn load(&mut self, seen: &Load) -> f64 {
        let worked = seen.worked as f64 / (seen.period as f64 * seen.replicas as f64);
        if seen.pending > seen.dealt { worked.max(1.0) } else { worked }
    }
}
