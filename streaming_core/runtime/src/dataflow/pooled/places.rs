//! The places of a chain: its steps and stages in topological order.
//!
//! For a heuristic of the paper, a place is an operator. A step without operators is then no place. The stage in front of it
//! sends its batches on, as an operator of the paper does. The first stage starts batches if no step is in front of it.
//! `affinity` sees all steps, so that another worker can merge the outputs of a stage.

use crate::dataflow::operator::Chain;

/// A part of the chain that workers are sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Step(usize),
    Stage {
        index: usize,
        /// Its workers start batches: the step in front has no operators.
        starts: bool,
        /// Its workers send batches on: the step behind has no operators.
        sends: bool,
    },
}

/// The places of a chain, from the source to the sink. `with_empty_steps`: steps without operators are places too.
pub fn places(chain: &Chain, with_empty_steps: bool) -> Vec<Place> {
    let stages = chain.stateful.len();
    // A chain without operators has one place all the same.
    let is_place = |step: usize| with_empty_steps || stages == 0 || !chain.step(step).is_empty();
    let mut places = Vec::new();
    for index in 0..=stages {
        if is_place(index) {
            places.push(Place::Step(index));
        }
        if index < stages {
            places.push(Place::Stage { index, starts: index == 0 && !is_place(0), sends: !is_place(index + 1) });
        }
    }
    places
}
