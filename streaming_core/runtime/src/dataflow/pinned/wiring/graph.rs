//! The graph to wire: the operators of a program, their replicas, and the channel between them.

use crate::dataflow::channel::gate::Source;
use crate::dataflow::pinned::channels::Channel;
use crate::dataflow::pinned::numbering::is_numbered;
use crate::dataflow::pinned::plan::Plan;
use crate::dataflow::windowed::Replicated;
use crate::output::sink::Preparer;
use crate::program::{Key, Origin, Program};

/// Events between two announcements of a task. A batch of the default size has more.
pub const PERIOD: usize = 64;

/// An operator, or the sink, with its inputs.
#[derive(Debug)]
pub struct Consumer<'a> {
    pub inputs: &'a [Origin],
    pub replicas: usize,
    pub key: &'a [Key],
}

/// What the passes of the wiring read.
#[derive(Debug)]
pub struct Graph<'a> {
    pub program: &'a Program,
    pub plan: &'a Plan,
    pub channel: Channel,
    pub preparer: &'a Preparer,
    windows: &'a [Option<Replicated>],
    /// The operators, then the sink.
    pub consumers: Vec<Consumer<'a>>,
    /// Whether rows are numbered before the sink.
    pub numbered: bool,
}

impl<'a> Graph<'a> {
    /// The graph of `program`; `windows` has an entry for each operator.
    pub fn new(
        program: &'a Program,
        plan: &'a Plan,
        channel: Channel,
        preparer: &'a Preparer,
        windows: &'a [Option<Replicated>],
    ) -> Self {
        let consumers = (program.operators.iter().zip(&plan.operators))
            .map(|(operator, places)| (&operator.inputs[..], places.len(), &operator.key[..]))
            .chain([(&program.outputs[..], plan.sink.len(), &[][..])])
            .map(|(inputs, replicas, key)| Consumer { inputs, replicas, key })
            .collect();
        let numbered = channel == Channel::Gate && !preparer.keeps_rows() && is_numbered(program);
        Self { program, plan, channel, preparer, windows, consumers, numbered }
    }

    /// The sources of events, then the operators.
    pub fn origins(&self) -> impl Iterator<Item = Origin> + use<> {
        std::iter::once(Origin::Events).chain((0..self.program.operators.len()).map(Origin::Operator))
    }

    /// Whether a consumer is the sink.
    pub fn is_sink(&self, consumer: usize) -> bool {
        consumer == self.program.operators.len()
    }

    /// The replicas of a consumer, if it is a windowed operator.
    pub fn windowed(&self, consumer: usize) -> Option<&'a Replicated> {
        self.windows.get(consumer)?.as_ref()
    }

    /// The replicas of an origin, if it is a windowed operator.
    pub fn windowed_origin(&self, origin: Origin) -> Option<&'a Replicated> {
        match origin {
            Origin::Operator(index) => self.windowed(index),
            Origin::Events => None,
        }
    }

    /// The replicas of an origin, if they read an elastic ScaleGate and write one.
    pub fn elastic(&self, origin: Origin) -> Option<&'a Replicated> {
        self.windowed_origin(origin).filter(|windowed| windowed.operator.has_barrier)
    }

    /// Whether an elastic ScaleGate stands in front of a consumer.
    pub fn reads_elastic(&self, consumer: usize) -> bool {
        let inputs = self.consumers[consumer].inputs.iter().copied();
        inputs.chain([Origin::Operator(consumer)]).any(|origin| self.elastic(origin).is_some())
    }

    /// The operators with windows; an entry for each operator.
    pub fn windows(&self) -> &'a [Option<Replicated>] {
        self.windows
    }

    /// The number of replicas of an origin.
    pub fn producers(&self, origin: Origin) -> usize {
        self.plan.of(origin).len()
    }

    /// The number of events between two announcements of a task; 0: it announces each batch.
    pub fn period(&self) -> i64 {
        if self.channel.is_ordered() && self.windows.iter().all(Option::is_none) { PERIOD as i64 } else { 0 }
    }

    /// Whether each pair of producer and consumer has a queue.
    pub fn has_pair_queues(&self) -> bool {
        self.channel == Channel::PairQueue
    }

    /// The operator that alone feeds the sink, if there is one. Its replicas examine the rows for the sink. In Viper, and
    /// behind an elastic ScaleGate, sinks do this themselves.
    pub fn sink_producer(&self) -> Option<usize> {
        match self.program.outputs[..] {
            [origin @ Origin::Operator(index)] if !self.channel.is_vipers() && self.elastic(origin).is_none() => {
                Some(index)
            }
            _ => None,
        }
    }

    /// The source that reads replica `producer` of `origin`. A replica of a windowed operator need not announce that it puts
    /// out nothing.
    pub fn silence(&self, origin: Origin, producer: usize, source: Source) -> Source {
        match self.windowed_origin(origin) {
            Some(windowed) => source.silent(&windowed.operator.epochs, producer),
            None => source,
        }
    }
}

/// The number of an origin, in lists with an entry for each: events come first.
pub fn number(origin: Origin) -> usize {
    match origin {
        Origin::Events => 0,
        Origin::Operator(index) => index + 1,
    }
}
