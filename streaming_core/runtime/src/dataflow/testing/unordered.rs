//! What reaches the sink in whatever order: how tests look at runs that keep none.

use crate::dataflow::testing::pipelines::{Events, Pipeline, Row};
use crate::executor::Executor;
use crate::program::Program;

/// A key and a value: what agrees without order.
pub type Pair = [i64; 2];

/// The pairs of rows, ascending.
pub fn pairs(rows: impl IntoIterator<Item = Row>) -> Vec<Pair> {
    let mut pairs: Vec<_> = rows.into_iter().map(|[_, key, value]| [key, value]).collect();
    pairs.sort_unstable();
    pairs
}

/// Runs the pipeline to its end on what `make` makes of its program; the executor then, and its pairs, ascending.
pub fn run<E: Executor>(pipeline: &Pipeline, blocks: &[Events], make: impl FnOnce(&Program) -> E) -> (E, Vec<Pair>) {
    let mut executor = make(&Program { unordered: Some(vec![0, 1]), ..pipeline.program() });
    blocks.iter().for_each(|block| executor.process(&block.block()).unwrap());
    executor.finish(blocks.iter().map(|block| block.rows.len() as i64).sum()).unwrap();
    let rows = executor.take_outputs().0;
    // SAFETY: a row of 24 bytes.
    let rows = rows.chunks(size_of::<Row>()).map(|row| unsafe { row.as_ptr().cast::<Row>().read_unaligned() });
    let pairs = pairs(rows);
    (executor, pairs)
}
