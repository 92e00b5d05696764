//! The plan: how many replicas each operator has, and which thread runs each.

use std::collections::BTreeMap;

use crate::error::RunError;
use crate::program::{OperatorKind, Origin, Program};
use crate::state::key_group::GROUPS;

/// Names in a plan of what is no operator.
pub const SOURCE: &str = "source";
pub const SINK: &str = "sink";

/// Per operator, by name, the thread of each of its replicas; `source` and `sink` are there too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub source: Vec<usize>,
    pub operators: Vec<Vec<usize>>,
    /// Several sinks share the events by range (`output/ranges.rs`).
    pub sink: Vec<usize>,
}

impl Plan {
    /// The plan of `given`. An operator that is not in it gets a replica on each thread if it may have several, and so does
    /// the sink. Other operators get one replica, on threads in turn. The source is on the first thread.
    ///
    /// # Errors
    /// `Invalid`: a name that is no operator's, a thread that is none, or replicas of what cannot have several.
    pub fn new(program: &Program, replicas: &BTreeMap<String, Vec<usize>>, threads: usize) -> Result<Self, RunError> {
        let invalid = |what: String| Err(RunError::Invalid(format!("plan: {what}")));
        for (name, places) in replicas {
            let single = match program.operators.iter().find(|operator| operator.name == *name) {
                Some(operator) => operator.kind == OperatorKind::Stateful,
                None if name == SINK || name == SOURCE => false,
                None => {
                    let known: Vec<&str> = program.operators.iter().map(|operator| &operator.name[..]).collect();
                    return invalid(format!(
                        "unknown operator {name}; the operators are {SOURCE}, {}, {SINK}",
                        known.join(", ")
                    ));
                }
            };
            if places.is_empty() || (single && places.len() > 1) || places.len() > GROUPS {
                return invalid(format!("{name} cannot have {} replicas", places.len()));
            }
            if let Some(place) = places.iter().find(|&&place| place >= threads) {
                return invalid(format!("{name} is on thread {place}, but the threads are 0 to {}", threads - 1));
            }
        }
        let mut turn = 0;
        let operators = (program.operators.iter())
            .map(|operator| match (replicas.get(&operator.name), operator.kind) {
                (Some(places), _) => places.clone(),
                (None, OperatorKind::Stateful) => {
                    turn += 1;
                    vec![turn % threads]
                }
                (None, _) => (0..threads).collect(),
            })
            .collect();
        Ok(Self {
            source: replicas.get(SOURCE).cloned().unwrap_or_else(|| vec![0]),
            operators,
            sink: replicas.get(SINK).cloned().unwrap_or_else(|| (0..threads).collect()),
        })
    }

    /// How many replicas, the sink among them, take rows of several tasks.
    pub fn with_several_sources(&self, program: &Program) -> usize {
        let sources = |inputs: &[Origin]| inputs.iter().map(|&origin| self.of(origin).len()).sum::<usize>();
        let operators = program.operators.iter().zip(&self.operators);
        let takers = operators.map(|(operator, places)| (&operator.inputs[..], places.len()));
        let several =
            takers.chain([(&program.outputs[..], self.sink.len())]).filter(|&(inputs, _)| sources(inputs) > 1);
        several.map(|(_, replicas)| replicas).sum()
    }

    /// The number of threads, up to the last one that has a task.
    pub fn threads(&self) -> usize {
        let places = self.operators.iter().chain([&self.source, &self.sink]).flatten();
        places.max().map_or(1, |last| last + 1)
    }

    /// The threads of the producers of `origin`.
    pub fn of(&self, origin: Origin) -> &[usize] {
        match origin {
            Origin::Events => &self.source,
            Origin::Operator(index) => &self.operators[index],
        }
    }
}
