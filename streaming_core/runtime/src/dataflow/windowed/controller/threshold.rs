//! Controller `threshold`: by how much of the time replicas have worked (STRETCH, section 8.4).

use crate::dataflow::windowed::controller::{Gauge, Load};

#[derive(Debug)]
pub(super) struct Threshold;

impl Gauge for Threshold {
    fn load(&mut self, seen: &Load) -> f64 {
        seen.worked as f64 / (seen.period as f64 * seen.replicas as f64)
    }
}
