//! The tests of the property tests: executors with a fault, which random pipelines have to bring to light, soon and small.

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};

use crate::dataflow::testing::pipelines::{Events, Model, Pipeline, any_blocks, any_pipeline};
use crate::executor::Executor;

/// Cases among which a fault must be found, and tries to make the one that was found smaller.
const CASES: u32 = 100;
const TRIES: u32 = 500;

/// What an executor delivers of some blocks, in order.
pub fn outputs(blocks: &[Events], executor: &mut dyn Executor) -> Vec<u8> {
    blocks.iter().for_each(|block| executor.process(&block.block()).unwrap());
    executor.finish(blocks.iter().map(|block| block.rows.len() as i64).sum()).unwrap();
    executor.take_outputs().0
}

/// The smallest case in which what `run` delivers is not the model's; None: there was none, in as many as there are.
pub fn search(run: impl Fn(&Pipeline, &[Events]) -> Vec<u8>) -> Option<(Pipeline, Vec<Events>)> {
    let cases = any_pipeline(false).prop_flat_map(|pipeline| {
        let blocks = any_blocks(pipeline.text_keys, false);
        (Just(pipeline), blocks)
    });
    let config =
        ProptestConfig { failure_persistence: None, max_shrink_iters: TRIES, ..ProptestConfig::with_cases(CASES) };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let outcome = runner.run(&cases, |(pipeline, blocks)| {
        let rows = Model::run(&pipeline, &blocks).outcomes.rows;
        let expected: Vec<u8> = rows.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        prop_assert!(run(&pipeline, &blocks) == expected);
        Ok(())
    });
    match outcome {
        Ok(()) => None,
        Err(TestError::Fail(_, case)) => Some(case),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

/// Fails unless the fault is found, in a pipeline of few operators and with few events.
pub fn assert_found(run: impl Fn(&Pipeline, &[Events]) -> Vec<u8>) {
    let (pipeline, blocks) = search(run).expect("the fault is found");
    let n = blocks.iter().map(|block| block.rows.len()).sum::<usize>();
    assert!(pipeline.ops.len() <= 4 && n <= 40, "found in {pipeline:?} and {n} events only");
}

/// The pipeline whose last operator that flushes does not.
pub fn without_a_flush(pipeline: &Pipeline) -> Pipeline {
    let mut pipeline = pipeline.clone();
    if let Some(op) = pipeline.ops.iter_mut().rev().find(|op| op.flushes) {
        op.flushes = false;
    }
    pipeline
}
