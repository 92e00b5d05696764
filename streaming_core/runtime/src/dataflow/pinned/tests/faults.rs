//! Faults of the pinned executor, made on purpose. One thread runs all tasks, so that the same happens each time.

use super::*;
use crate::dataflow::channel::inlet::Inlet;
use crate::dataflow::testing::faults::{assert_found, outputs, search, without_a_flush};
use crate::dataflow::testing::pipelines::Op;
use crate::program::OperatorKind;

/// What a pipeline delivers, several replicas of everything, when `spoil` has been at every task.
fn spoilt(pipeline: &Pipeline, blocks: &[Events], spoil: impl Fn(&mut Task)) -> Vec<u8> {
    let replicas = |op: &Op| if op.kind == OperatorKind::Stateful { 1 } else { 3 };
    let mut plan: BTreeMap<_, _> =
        pipeline.ops.iter().enumerate().map(|(i, op)| (pipeline.name(i), vec![0; replicas(op)])).collect();
    plan.insert("source".into(), vec![0; 2]);
    let mut executor = pinned(&pipeline.program(), &Options { plan, ..options(1, 7, "gate") }).unwrap();
    executor.work.tasks.each_mut(|tasks| tasks.iter_mut().for_each(&spoil));
    outputs(blocks, &mut executor)
}

#[test]
fn without_a_fault_none_is_found() {
    assert_eq!(search(|pipeline, blocks| spoilt(pipeline, blocks, |_| ())), None);
}

#[test]
fn ties_broken_by_replica_are_found() {
    assert_found(|pipeline, blocks| spoilt(pipeline, blocks, |task| task.ranked = false));
}

#[test]
fn ties_broken_against_the_order_of_streams_are_found() {
    assert_found(|pipeline, blocks| spoilt(pipeline, blocks, |task| reverse_streams(&mut task.inlet)));
}

#[test]
fn a_lost_flush_is_found() {
    assert_found(|pipeline, blocks| spoilt(&without_a_flush(pipeline), blocks, |_| ()));
}

fn reverse_streams(inlet: &mut Inlet) {
    if let Inlet::Gate(gate) = inlet {
        gate.reverse_streams();
    }
}
