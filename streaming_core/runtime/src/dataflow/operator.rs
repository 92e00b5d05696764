//! Stages: operators bound to their kernels and state, what a thread runs on a batch.
//!
//! Stateful operators divide a chain. Neighbouring stateless operators fuse into one step: the same thread runs them one after
//! the other on the same batch.
//!
//! Invariant: rows leave an operator in the order of the inputs that emitted them, so `seq` never decreases. After a
//! failure only the outputs of earlier events are left.

use std::ops::Range;

use crate::error::RunError;
use crate::program::kernel::{BatchContext, Kernel, Raised};
use crate::program::{Growing, Key, OperatorKind, Origin, Program};
use crate::rows::buffer::RowBuffer;
use crate::rows::texts::Texts;
use crate::rows::union::union;
use crate::rows::view::Rows;
use crate::state::image::RowShape;
use crate::threads::sync::Arc;

/// One operator of a chain.
#[derive(Debug)]
pub struct Operator {
    pub name: String,
    pub kind: OperatorKind,
    /// Whose rows it takes: of each event, those of the first come first.
    pub inputs: Vec<Origin>,
    /// A windowed operator has others (`dataflow/windowed`).
    kernel: Option<Kernel<BatchContext>>,
    pub(crate) flush: Option<Kernel<BatchContext>>,
    /// Bytes of an output row.
    pub stride: usize,
    /// As in the program.
    pub emits: (u64, Option<u64>),
    /// Partitioned operators: the fields of the key in the input rows.
    pub key: Vec<Key>,
    pub state_size: usize,
    growing: Vec<Growing>,
    /// Memory for new texts, if operators make any.
    texts: Option<Arc<Texts>>,
}

/// The operators of a dataflow program, in topological order.
#[derive(Debug)]
pub struct Chain {
    /// Bytes of an event row.
    event: usize,
    pub operators: Vec<Operator>,
    /// Whose rows the sink takes, likewise.
    pub outputs: Vec<Origin>,
    /// Positions of the operators with state, but for windowed ones.
    pub stateful: Vec<usize>,
    /// Per operator, whether a consumer after the next operator with state takes its rows, so that they must be kept.
    pub kept: Vec<bool>,
}

/// Whether an operator is one of those whose states lie in lanes.
fn has_state(kind: OperatorKind) -> bool {
    matches!(kind, OperatorKind::Partitioned | OperatorKind::Stateful)
}

impl Chain {
    /// Binds the kernels of `program`.
    ///
    /// # Safety
    /// The program's addresses are kernels with the layouts it states, and outlive the chain.
    pub unsafe fn bind(program: &Program) -> Result<Self, RunError> {
        let mut operators = Vec::new();
        for operator in &program.operators {
            operators.push(Operator {
                name: operator.name.clone(),
                kind: operator.kind,
                inputs: operator.inputs.clone(),
                // SAFETY: as the caller says.
                kernel: unsafe { Kernel::maybe_at(operator.kernel) }?,
                // SAFETY: as the caller says.
                flush: unsafe { Kernel::maybe_at(operator.flush) }?,
                stride: operator.stride,
                emits: operator.emits,
                key: operator.key.clone(),
                state_size: operator.state_size,
                growing: operator.growing.clone(),
                texts: program.texts.clone(),
            });
        }
        let stateful = (0..operators.len()).filter(|&i| has_state(operators[i].kind)).collect();
        let mut chain = Self {
            event: program.event.stride,
            kept: vec![false; operators.len()],
            operators,
            outputs: program.outputs.clone(),
            stateful,
        };
        // An operator's rows are there in the step that it belongs to, or in the one behind it if it has state.
        let step = |index: usize| chain.stateful.partition_point(|&stateful| stateful < index);
        let step_of_rows = |index: usize| step(index) + usize::from(chain.stateful.binary_search(&index).is_ok());
        let takers = (chain.operators.iter().enumerate()).map(|(index, operator)| (step(index), &operator.inputs));
        let mut kept = chain.kept.clone();
        for (at, inputs) in takers.chain([(chain.stateful.len(), &chain.outputs)]) {
            for origin in inputs {
                if let Origin::Operator(index) = *origin {
                    kept[index] |= step_of_rows(index) < at;
                }
            }
        }
        chain.kept = kept;
        Ok(chain)
    }

    /// Bytes of the input rows of operator `index`.
    pub fn input_stride(&self, index: usize) -> usize {
        self.stride(self.operators[index].inputs[0])
    }

    /// Bytes of the output rows.
    pub fn output_stride(&self) -> usize {
        self.stride(self.outputs[0])
    }

    fn stride(&self, origin: Origin) -> usize {
        match origin {
            Origin::Events => self.event,
            Origin::Operator(index) => self.operators[index].stride,
        }
    }

    /// Whether anybody takes several streams.
    pub fn has_unions(&self) -> bool {
        self.outputs.len() > 1 || self.operators.iter().any(|operator| operator.inputs.len() > 1)
    }

    /// The stateless operators before stage `index`, or behind the last stage.
    pub fn step(&self, index: usize) -> Range<usize> {
        let start = if index == 0 { 0 } else { self.stateful[index - 1] + 1 };
        start..self.stateful.get(index).copied().unwrap_or(self.operators.len())
    }
}

impl Operator {
    /// Runs a stateless operator, appending to `out`. After a failure `out` holds the outputs of earlier events.
    ///
    /// # Safety
    /// The rows have the operator's input layout and are readable; `out` has its output layout and belongs to this
    /// thread.
    #[inline]
    pub unsafe fn map(&self, rows: Rows, out: &mut RowBuffer) -> Result<(), RunError> {
        let context = BatchContext { emitter: out.emitter(), ..BatchContext::default() };
        // SAFETY: as the caller says; the emitter is `out`'s.
        unsafe { self.call(context, rows, out) }
    }

    /// Has kernels that emit into `out` give texts that lie anywhere.
    pub(crate) fn furnish(&self, out: &mut RowBuffer) {
        out.make_texts(self.texts.as_ref());
    }

    /// Calls the kernel on all rows.
    pub(crate) unsafe fn call(
        &self,
        mut context: BatchContext,
        rows: Rows,
        out: &mut RowBuffer,
    ) -> Result<(), RunError> {
        if rows.n == 0 {
            return Ok(());
        }
        context.rows = rows.start;
        context.n = rows.n as i64;
        context.places = rows.places;
        context.text = rows.text.pointer();
        self.furnish(out);
        let kernel = self.kernel.expect("every operator without windows has a kernel");
        // SAFETY: as the callers say.
        unsafe { kernel.call(&mut context) }.map_err(|raised| {
            let at = usize::try_from(raised.at).unwrap_or(0).min(rows.n - 1);
            // SAFETY: the row exists.
            let seq = unsafe { rows.seq(at) };
            self.fail(seq, raised, out)
        })
    }

    /// The failure of event `seq`, whose order is the position of its input.
    #[cold]
    pub(crate) fn fail(&self, seq: i64, raised: Raised, out: &mut RowBuffer) -> RunError {
        truncate(out, seq);
        let order = raised.at.max(0) as u128;
        RunError::Kernel { operator: self.name.clone(), seq, window: None, order, exception: raised.exception }
    }
}

/// The rows that `inputs` stand for: of one stream where they lie, of several in `out`. `stream` says where the rows of one
/// lie.
///
/// # Safety
/// As for `union`, while the result is used.
pub unsafe fn taken(inputs: &[Origin], stream: impl Fn(Origin) -> Rows, out: &mut RowBuffer) -> Result<Rows, RunError> {
    if let [only] = inputs {
        return Ok(stream(*only));
    }
    out.clear();
    let streams: Vec<Rows> = inputs.iter().map(|&origin| stream(origin)).collect();
    // SAFETY: as the caller says; a program's united rows have one stride.
    unsafe { union(&streams, out) }?;
    Ok(Rows::of(out, streams[0].text))
}

/// Forgets the rows of event `seq` and of later ones.
pub fn truncate(rows: &mut RowBuffer, seq: i64) {
    let mut len = rows.len();
    while len > 0 && rows.seq(len - 1) >= seq {
        len -= 1;
    }
    rows.truncate(len);
}

impl Operator {
    /// The shape of its states.
    pub fn shape(&self) -> RowShape<'_> {
        RowShape { bytes: self.state_size, growing: &self.growing }
    }

    pub fn has_flush(&self) -> bool {
        self.flush.is_some()
    }
}
