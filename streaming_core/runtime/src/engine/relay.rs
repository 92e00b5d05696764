//! Runs that one executor after another goes on with: after each block, the next one takes over the state.

use proptest::prelude::*;

use crate::dataflow::testing::pipelines::{any_blocks, any_pipeline, check};
use crate::dataflow::testing::windows::{Single, Windows, blocks, outputs, scheduled};
use crate::engine::make;
use crate::error::RunError;
use crate::executor::Executor;
use crate::output::metrics::{Metrics, Standing};
use crate::output::sink::SinkKind;
use crate::program::Program;
use crate::program::options::Options;
use crate::rows::block::Block;
use crate::state::states::States;
use crate::threads::testing::cases;

/// See the module.
struct Relay<P> {
    program: P,
    /// Of each executor; the first comes again after the last.
    options: Vec<Options>,
    turn: usize,
    executor: Box<dyn Executor>,
    /// Of executors before.
    outputs: (Vec<u8>, Vec<u32>),
}

impl<P: Fn() -> Program> Relay<P> {
    fn new(program: P, options: Vec<Options>) -> Self {
        let executor = make(program(), options[0].clone()).unwrap();
        Self { program, options, turn: 0, executor, outputs: Default::default() }
    }

    fn pass_on(&mut self) {
        let (rows, subs) = self.executor.take_outputs();
        self.outputs.0.extend(rows);
        self.outputs.1.extend(subs);
        self.turn += 1;
        let mut next = make((self.program)(), self.options[self.turn % self.options.len()].clone()).unwrap();
        let mut parts = Vec::new();
        let mut take = |name: &str, part: usize, image: &[u64]| {
            parts.push((part, name.to_owned(), image.to_vec()));
            Ok(())
        };
        self.executor.images(&mut take).unwrap();
        // Their order says nothing.
        parts.sort_by_key(|(part, ..)| part.wrapping_mul(self.turn) % 7);
        parts.iter().for_each(|(_, name, image)| next.restore(name, image).unwrap());
        let standing = serde_json::to_string(&self.executor.standing().unwrap()).unwrap();
        next.resume(&serde_json::from_str::<Standing>(&standing).unwrap()).unwrap();
        self.executor = next;
    }
}

impl<P: Fn() -> Program + Send> Executor for Relay<P> {
    fn process(&mut self, block: &Block) -> Result<(), RunError> {
        self.executor.process(block)?;
        self.pass_on();
        Ok(())
    }

    fn finish(&mut self, seq: i64) -> Result<(), RunError> {
        self.executor.finish(seq)
    }

    fn take_outputs(&mut self) -> (Vec<u8>, Vec<u32>) {
        let (mut rows, mut subs) = std::mem::take(&mut self.outputs);
        let last = self.executor.take_outputs();
        rows.extend(last.0);
        subs.extend(last.1);
        (rows, subs)
    }

    fn metrics(&self) -> Metrics {
        self.executor.metrics()
    }

    fn restore(&mut self, name: &str, image: &[u64]) -> Result<(), RunError> {
        self.executor.restore(name, image)
    }

    fn resume(&mut self, standing: &Standing) -> Result<(), RunError> {
        self.executor.resume(standing)
    }

    fn states(&mut self, operator: usize) -> Result<States, RunError> {
        self.executor.states(operator)
    }
}

fn options(executor: &str, threads: usize, batch: usize) -> Options {
    Options { executor: executor.into(), threads, batch, sink: SinkKind::Parquet, ..Options::default() }
}

/// One of each executor and parallelism of windowed operators.
fn windowed(threads: usize, batch: usize) -> Vec<Options> {
    let replicas = |n: usize| [("window".to_owned(), (0..n).map(|at| at % threads).collect())].into();
    let of = |parallelism: &str, n: usize| Options {
        parallelism: Some(parallelism.into()),
        plan: replicas(n),
        ..options("pinned", threads, batch)
    };
    let schedule = vec![scheduled(20, &[1, 0, 1]), scheduled(90, &[0])];
    vec![
        options("pinned", threads, batch),
        of("sn", 3),
        of("vsn_esg", 2),
        Options { schedule: schedule.clone(), ..of("vsn", 5) },
        Options { schedule, ..of("sn", 2) },
        options("pinned", 1, 7),
    ]
}

proptest! {
    #![proptest_config(cases(60))]
    #[test]
    fn any_executor_goes_on_with_the_state_of_another(
        (pipeline, blocks) in any_pipeline(false).prop_flat_map(|pipeline| {
            let blocks = any_blocks(pipeline.text_keys, false);
            (Just(pipeline), blocks)
        }),
        threads in 1_usize..4, batch in 1_usize..40, first in 0_usize..5,
    ) {
        let mut ways = vec![
            options("pooled", threads, batch), options("pinned", 3, 11), options("morsel", 2, batch),
            options("pooled", 1, 64), Options { channel: Some("scalegate".into()), ..options("pinned", threads, batch) },
        ];
        ways.rotate_left(first);
        let mut relay = Relay::new(|| pipeline.program(), ways.clone());
        check(&pipeline, &blocks, &mut relay, &ways);
    }

    #[test]
    fn windows_stay_open_from_one_executor_to_the_next(
        (advance, more, delay) in (1_i64..6, 0_i64..12, 0_i64..8),
        (n, step, keys, block) in (1_usize..200, 0_i64..5, 1_i64..40, 5_usize..100),
        (threads, batch, first, detour) in (1_usize..4, 1_usize..40, 0_usize..6, any::<bool>()),
    ) {
        let windows = Windows { advance, size: advance + more, delay };
        let blocks = blocks(&windows.events(n, step, keys), block);
        let mut ways = windowed(threads, batch);
        ways.rotate_left(first);
        let mut relay = Relay::new(|| windows.program(detour), ways);
        prop_assert_eq!(outputs(&blocks, &mut relay), windows.model(&blocks, detour));
        prop_assert_eq!(relay.metrics().late, windows.late(&blocks, detour));
    }

    #[test]
    fn single_windows_slide_on_in_the_next_executor(
        (advance, more) in (1_i64..6, 0_i64..12),
        (n, step, keys, block) in (1_usize..200, 0_i64..5, 1_i64..40, 5_usize..100),
        (every, joins) in (proptest::option::of(1_i64..20), any::<bool>()),
        (threads, batch, first) in (1_usize..4, 1_usize..40, 0_usize..6),
    ) {
        let single = Single { advance, size: advance + more, every, joins };
        let blocks = blocks(&Windows { advance, size: advance + more, delay: 0 }.events(n, step, keys), block);
        let mut ways = windowed(threads, batch);
        ways.rotate_left(first);
        prop_assert_eq!(outputs(&blocks, &mut Relay::new(|| single.program(), ways)), (single.model(&blocks), None));
    }
}
