//! Stages: operators bound to their kernels and state, what a thread runs on a batch.
//!
//! A chain of operators is cut at its stateful ones: neighbouring stateless operators fuse into one step, run one
//! after the other on the same batch by the same thread.
//! Invariant: rows leave an operator in the order of the inputs that emitted them, so `seq` never decreases; after a
//! failure only the outputs of earlier events are left.

use std::ops::Range;
use std::ptr::null_mut;

use crate::arena::Arena;
use crate::batch::{RowBuffer, Text};
use crate::kernel::{BatchContext, Kernel, Raised, RunError};
use crate::key_group::{GROUPS, group};
use crate::program::{Key, OperatorKind, Origin, Program};
use crate::rows::Rows;
use crate::state::keyed::{KeyRef, KeyedRows, KeyedState};
use crate::sync::{CachePadded, UnsafeCell};

/// One operator of a chain.
#[derive(Debug)]
pub struct Operator {
    pub name: String,
    pub kind: OperatorKind,
    /// Whose rows it takes: of each event, those of the first come first.
    pub inputs: Vec<Origin>,
    kernel: Kernel<BatchContext>,
    flush: Option<Kernel<BatchContext>>,
    /// Bytes of an output row.
    pub stride: usize,
    /// Partitioned operators: the key in the input rows.
    pub key: Option<Key>,
    pub state_size: usize,
}

/// The operators of a dataflow program, in topological order.
#[derive(Debug)]
pub struct Chain {
    /// Bytes of an event row.
    event: usize,
    pub operators: Vec<Operator>,
    /// Whose rows the sink takes, likewise.
    pub outputs: Vec<Origin>,
    /// Positions of the operators with state.
    pub stateful: Vec<usize>,
    /// Per operator whether somebody takes its rows behind the next operator with state: they have to be kept so long.
    pub kept: Vec<bool>,
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
                kernel: unsafe { Kernel::at(operator.kernel) }?,
                flush: match operator.flush {
                    0 => None,
                    // SAFETY: as the caller says.
                    address => Some(unsafe { Kernel::at(address) }?),
                },
                stride: operator.stride,
                key: operator.key,
                state_size: operator.state_size,
            });
        }
        let stateful = (0..operators.len()).filter(|&i| operators[i].kind != OperatorKind::Stateless).collect();
        let mut chain = Self {
            event: program.event.stride,
            kept: vec![false; operators.len()],
            operators,
            outputs: program.outputs.clone(),
            stateful,
        };
        // An operator's rows are there in the step that it belongs to, or in the one behind it if it has state.
        let step = |index: usize| chain.stateful.partition_point(|&stateful| stateful < index);
        let made = |index: usize| step(index) + usize::from(chain.stateful.binary_search(&index).is_ok());
        let takers = (chain.operators.iter().enumerate()).map(|(index, operator)| (step(index), &operator.inputs));
        let mut kept = chain.kept.clone();
        for (at, inputs) in takers.chain([(chain.stateful.len(), &chain.outputs)]) {
            for origin in inputs {
                if let Origin::Operator(index) = *origin {
                    kept[index] |= made(index) < at;
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

    /// Calls the kernel on all rows.
    unsafe fn call(&self, mut context: BatchContext, rows: Rows, out: &mut RowBuffer) -> Result<(), RunError> {
        if rows.n == 0 {
            return Ok(());
        }
        context.rows = rows.start;
        context.n = rows.n as i64;
        context.places = rows.places;
        context.text = rows.text.pointer();
        // SAFETY: as the callers say.
        unsafe { self.kernel.call(&mut context) }.map_err(|raised| {
            let at = usize::try_from(raised.at).unwrap_or(0).min(rows.n - 1);
            // SAFETY: the row exists.
            let seq = unsafe { rows.seq(at) };
            self.fail(seq, raised, out)
        })
    }

    #[cold]
    fn fail(&self, seq: i64, raised: Raised, out: &mut RowBuffer) -> RunError {
        truncate(out, seq);
        RunError::Kernel { operator: self.name.clone(), seq, exception: raised.exception }
    }
}

/// Forgets the rows of event `seq` and of later ones.
fn truncate(rows: &mut RowBuffer, seq: i64) {
    let mut len = rows.len();
    while len > 0 && rows.seq(len - 1) >= seq {
        len -= 1;
    }
    // SAFETY: the buffer is borrowed mutably; fewer rows than were written.
    unsafe { (*rows.emitter()).len = len as i64 };
}

/// The state of one lane (partition) of a stateful stage. One thread at a time works on a lane.
#[derive(Debug)]
pub struct Lane {
    states: States,
    /// Where growing containers of these states get memory.
    arena: Arena,
}

#[derive(Debug)]
enum States {
    Keyed(KeyedState),
    /// A stateful operator's only state: zeroed, 8-aligned, never moved.
    Single(Box<[u64]>),
}

/// The lanes of a stage.
#[derive(Debug)]
pub struct Lanes {
    lanes: Box<[CachePadded<UnsafeCell<Lane>>]>,
    /// Lanes of former groupings: their memory holds states that others use now.
    former: Vec<Lane>,
}

// SAFETY: `with` and `sorted` make their callers answer for touching a lane from one thread at a time.
unsafe impl Sync for Lanes {}
// SAFETY: a lane owns its memory; nothing in it refers to the thread that made it.
unsafe impl Send for Lanes {}

impl Lanes {
    /// `count` empty lanes of `operator`.
    pub fn new(operator: &Operator, count: usize) -> Self {
        let lanes = (0..count).map(|_| CachePadded::new(UnsafeCell::new(Lane::new(operator)))).collect();
        Self { lanes, former: Vec::new() }
    }

    pub fn count(&self) -> usize {
        self.lanes.len()
    }

    /// Keys of all lanes together; 0 if there are none, but one state.
    pub fn keys(&mut self) -> usize {
        let keys = |lane: &mut CachePadded<UnsafeCell<Lane>>| {
            // SAFETY: the lanes are borrowed mutably.
            lane.with_mut(|lane| match unsafe { &(*lane).states } {
                States::Keyed(keyed) => keyed.len(),
                States::Single(_) => 0,
            })
        };
        self.lanes.iter_mut().map(keys).sum()
    }

    /// Deals the keys to `count` lanes anew. States stay where they are.
    pub fn regroup(&mut self, operator: &Operator, count: usize) -> Result<(), RunError> {
        let mut fresh: Vec<Lane> = (0..count).map(|_| Lane::new(operator)).collect();
        for lane in std::mem::take(&mut self.lanes) {
            let mut lane = CachePadded::into_inner(lane).into_inner();
            if let States::Keyed(keyed) = &mut lane.states {
                keyed.give_away(|hash| match &mut fresh[lane_of(hash, count)].states {
                    States::Keyed(table) => &raw mut *table,
                    States::Single(_) => unreachable!("made for the same operator"),
                })?;
                self.former.push(lane);
            } else {
                // The only state of a stateful operator has the only lane.
                fresh[0] = lane;
            }
        }
        self.lanes = fresh.into_iter().map(|lane| CachePadded::new(UnsafeCell::new(lane))).collect();
        Ok(())
    }

    /// Hands out lane `index`.
    ///
    /// # Safety
    /// Nobody else uses the lane meanwhile, and what its last user wrote is visible.
    #[inline(always)]
    pub unsafe fn with<R>(&self, index: usize, work: impl FnOnce(&mut Lane) -> R) -> R {
        // SAFETY: as the caller says.
        self.lanes[index].with_mut(|lane| work(unsafe { &mut *lane }))
    }

    /// `Lane::sorted` of every lane together, ascending: (key, lane, state).
    ///
    /// # Safety
    /// Nobody else uses the lanes while the result is used.
    pub unsafe fn sorted(&self) -> Vec<(Option<KeyRef<'_>>, usize, *mut u8)> {
        let mut all = Vec::new();
        for (index, lane) in self.lanes.iter().enumerate() {
            // SAFETY: as the caller says.
            let sorted = lane.with(|lane| unsafe { (*lane).sorted() });
            all.extend(sorted.into_iter().map(|(key, state)| (key, index, state)));
        }
        // Each lane is sorted already, which a stable sort makes use of.
        all.sort_by_key(|&(key, ..)| key);
        all
    }
}

/// A thread's room for hashes and addresses, kept from batch to batch.
#[derive(Debug, Default)]
pub struct Scratch {
    pub hashes: Vec<u64>,
    states: Vec<*mut u8>,
}

// SAFETY: the addresses are written anew for each batch; nothing refers to the thread.
unsafe impl Send for Scratch {}

impl Scratch {
    /// The hashes of the rows' keys.
    ///
    /// # Safety
    /// The rows are readable and have the layout that `key` belongs to.
    #[inline]
    pub unsafe fn hash(&mut self, rows: Rows, key: Key) -> Result<(), RunError> {
        if self.hashes.len() < rows.n {
            self.hashes.resize(rows.n, 0);
        }
        // SAFETY: as the caller says.
        unsafe { KeyedRows::new(rows) }.hash(key, &mut self.hashes)
    }

    fn states(&mut self, n: usize) -> &mut [*mut u8] {
        if self.states.len() < n {
            self.states.resize(n, null_mut());
        }
        &mut self.states[..n]
    }
}

/// The lane of a key among `lanes`: as `OwnerMap::even` deals the key groups, without its table.
#[inline(always)]
pub fn lane_of(hash: u64, lanes: usize) -> usize {
    group(hash) * lanes / GROUPS
}

impl Lane {
    /// An empty lane of a partitioned or stateful operator.
    pub fn new(operator: &Operator) -> Self {
        let states = match operator.key {
            Some(key) => States::Keyed(KeyedState::new(key, operator.state_size)),
            None => States::Single(vec![0; operator.state_size.div_ceil(8)].into()),
        };
        Self { states, arena: Arena::new() }
    }

    /// Runs `operator` on rows of this lane, appending to `out`. `hashes` are those of the rows' keys; a stateful
    /// operator needs none. After a failure `out` holds the outputs of earlier events.
    ///
    /// # Safety
    /// The lane was made for `operator`; the rest as for `Operator::map`.
    #[inline]
    pub unsafe fn process(
        &mut self,
        operator: &Operator,
        rows: Rows,
        hashes: &[u64],
        scratch: &mut Scratch,
        out: &mut RowBuffer,
    ) -> Result<(), RunError> {
        let states = scratch.states(rows.n);
        match &mut self.states {
            // SAFETY: as the caller says.
            States::Keyed(keyed) => keyed.locate(&unsafe { KeyedRows::new(rows) }, hashes, states)?,
            States::Single(state) => states.fill(state.as_mut_ptr().cast()),
        }
        let context = BatchContext {
            states: states.as_ptr(),
            emitter: out.emitter(),
            arena: self.arena.header(),
            ..BatchContext::default()
        };
        // SAFETY: as the caller says; every state address belongs to this lane.
        unsafe { operator.call(context, rows, out) }
    }

    /// Every key with the address of its state, ascending; a stateful operator has one state and no key.
    pub fn sorted(&self) -> Vec<(Option<KeyRef<'_>>, *mut u8)> {
        match &self.states {
            States::Keyed(keyed) => keyed.sorted().into_iter().map(|(key, state)| (Some(key), state)).collect(),
            States::Single(state) => vec![(None, state.as_ptr().cast_mut().cast())],
        }
    }

    /// Flushes `states` of this lane at the end of the stream `seq`, appending to `out`.
    ///
    /// # Safety
    /// The lane was made for `operator`, the states are this lane's; all belong to this thread.
    pub unsafe fn flush(
        &mut self,
        operator: &Operator,
        states: &[*mut u8],
        seq: i64,
        out: &mut RowBuffer,
    ) -> Result<(), RunError> {
        let Some(flush) = operator.flush else { return Ok(()) };
        let mut context = BatchContext {
            n: states.len() as i64,
            states: states.as_ptr(),
            text: Text::empty().pointer(),
            emitter: out.emitter(),
            arena: self.arena.header(),
            seq,
            ..BatchContext::default()
        };
        // SAFETY: as the caller says.
        unsafe { flush.call(&mut context) }.map_err(|raised| operator.fail(seq, raised, out))
    }
}

impl Operator {
    pub fn has_flush(&self) -> bool {
        self.flush.is_some()
    }
}
