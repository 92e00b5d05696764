//! Lanes: the state of one partition of an operator, and what a thread runs on its rows.

use std::ptr::null_mut;

use crate::dataflow::operator::{Chain, Operator};
use crate::error::RunError;
use crate::memory::arena::Arena;
use crate::planted::{self, Fault};
use crate::program::Key;
use crate::program::kernel::BatchContext;
use crate::rows::block::Text;
use crate::rows::buffer::RowBuffer;
use crate::rows::column::ColumnKind;
use crate::rows::view::Rows;
use crate::state::image::{PARTS, Reader, Take, part_of, put_key};
use crate::state::key_group::{GROUPS, group};
use crate::state::key_range::KeyRanges;
use crate::state::keyed::{KeyRef, KeyedRows, KeyedState, is_text, split, unpacked};
use crate::state::states::{Keys, States};
use crate::threads::sync::{CachePadded, UnsafeCell};

/// The state of one lane (partition) of a stateful stage. One thread at a time works on a lane.
#[derive(Debug)]
pub struct Lane {
    states: LaneStates,
    /// Where growing containers of these states get memory.
    arena: Arena,
}

#[derive(Debug)]
enum LaneStates {
    Keyed(KeyedState),
    /// A stateful operator's only state: zeroed, 8-aligned, never moved.
    Single(Box<[u64]>),
}

/// How keys are dealt to lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partitioning {
    /// By their hash.
    Hash,
    /// In ranges of equal width of the keys that there are when that is done.
    Range,
}

/// The registry, the default first.
pub const PARTITIONINGS: &[(&str, Partitioning)] = &[("hash", Partitioning::Hash), ("range", Partitioning::Range)];

/// The lanes of a stage.
#[derive(Debug)]
pub struct Lanes {
    lanes: Box<[CachePadded<UnsafeCell<Lane>>]>,
    /// The ranges of keys of the lanes, if keys are not dealt by hash.
    ranges: Option<KeyRanges>,
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
        Self { lanes, ranges: None, former: Vec::new() }
    }

    pub fn count(&self) -> usize {
        self.lanes.len()
    }

    pub fn ranges(&self) -> Option<&KeyRanges> {
        self.ranges.as_ref()
    }

    /// Keys of all lanes together; 0 if there are none, but one state.
    pub fn keys(&mut self) -> usize {
        let keys = |lane: &mut CachePadded<UnsafeCell<Lane>>| {
            // SAFETY: the lanes are borrowed mutably.
            lane.with_mut(|lane| match unsafe { &(*lane).states } {
                LaneStates::Keyed(keyed) => keyed.len(),
                LaneStates::Single(_) => 0,
            })
        };
        self.lanes.iter_mut().map(keys).sum()
    }

    /// Deals the keys to `count` lanes anew. States stay where they are.
    pub fn regroup(&mut self, operator: &Operator, count: usize, partitioning: Partitioning) -> Result<(), RunError> {
        let mut fresh: Vec<Lane> = (0..count).map(|_| Lane::new(operator)).collect();
        self.ranges = match partitioning {
            Partitioning::Range if count > 1 => self.extent().map(|(low, high)| KeyRanges::new(low, high, count)),
            _ => None,
        };
        let owner = |hash, position| match &self.ranges {
            Some(ranges) => ranges.range(position),
            None => lane_of(hash, count),
        };
        for lane in std::mem::take(&mut self.lanes) {
            let mut lane = CachePadded::into_inner(lane).into_inner();
            if let LaneStates::Keyed(keyed) = &mut lane.states {
                keyed.give_away(|hash, position| match &mut fresh[owner(hash, position)].states {
                    LaneStates::Keyed(table) => &raw mut *table,
                    LaneStates::Single(_) => unreachable!("all lanes hold states of the same operator"),
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

    /// The positions of the first key and of the last one, if there are any.
    fn extent(&mut self) -> Option<(u64, u64)> {
        let extents = self.lanes.iter_mut().filter_map(|lane| {
            // SAFETY: the lanes are borrowed mutably.
            lane.with_mut(|lane| match unsafe { &(*lane).states } {
                LaneStates::Keyed(keyed) => keyed.extent(),
                LaneStates::Single(_) => None,
            })
        });
        extents.reduce(|(low, high), (first, last)| (low.min(first), high.max(last)))
    }

    /// Hands out lane `index`.
    ///
    /// # Safety
    /// No other thread uses the lane meanwhile, and what its last user wrote is visible.
    #[inline(always)]
    pub unsafe fn with<R>(&self, index: usize, work: impl FnOnce(&mut Lane) -> R) -> R {
        // SAFETY: as the caller says.
        self.lanes[index].with_mut(|lane| work(unsafe { &mut *lane }))
    }

    /// `Lane::sorted` of every lane together, ascending: (key, lane, state).
    ///
    /// # Safety
    /// No other thread uses the lanes while the result is used.
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

impl Lanes {
    /// The states of `operator` in parts.
    ///
    /// # Errors
    /// `Memory`: there is none; and those of `take`.
    ///
    /// # Safety
    /// The lanes are the operator's, and no thread uses them.
    pub unsafe fn images(&self, operator: &Operator, take: Take) -> Result<(), RunError> {
        let (shape, mut image) = (operator.shape(), Vec::new());
        let mut parts: [Vec<*mut u8>; PARTS] = std::array::from_fn(|_| Vec::new());
        for lane in &self.lanes {
            // SAFETY: as the caller says.
            lane.with(|lane| match unsafe { &(*lane).states } {
                LaneStates::Keyed(keyed) => {
                    keyed.entries().for_each(|(hash, entry)| parts[part_of(hash)].push(entry));
                    Ok(())
                }
                // SAFETY: as above.
                LaneStates::Single(state) => unsafe {
                    shape.put(state.as_ptr().cast(), &mut image)?;
                    take(0, &image)
                },
            })?;
        }
        for (part, entries) in parts.into_iter().enumerate().filter(|(_, entries)| !entries.is_empty()) {
            image.clear();
            for entry in entries {
                // SAFETY: entries of this operator.
                unsafe {
                    let (key, state) = split(&operator.key, entry);
                    put_key(key, &mut image);
                    shape.put(state, &mut image)?;
                }
            }
            take(part, &image)?;
        }
        Ok(())
    }

    /// Takes the states of an image, as far as `has` says of the hash of their key.
    ///
    /// # Errors
    /// `Memory`: there is none.
    ///
    /// # Safety
    /// The lanes and the image are the operator's, and no thread uses the lanes. No key is there yet.
    pub unsafe fn restore(
        &mut self,
        operator: &Operator,
        image: &[u64],
        has: impl Fn(u64) -> bool,
    ) -> Result<(), RunError> {
        let (shape, mut image, mut ignored) = (operator.shape(), Reader(image), vec![0_u64; operator.state_size / 8]);
        let (mut nowhere, count) = (Arena::new(), self.lanes.len());
        let mut loses = planted::has(Fault::LostKey);
        while !image.is_done() {
            let (number, key) = match &operator.key[..] {
                [] => (0, None),
                fields => {
                    let key = image.key(is_text(fields))?;
                    let hash = key.hash();
                    if !has(hash) || std::mem::take(&mut loses) {
                        // SAFETY: room for a state.
                        unsafe { shape.take(&mut image, ignored.as_mut_ptr().cast(), |bytes| nowhere.alloc(bytes)) }?;
                        continue;
                    }
                    (lane_of(hash, count), Some(key))
                }
            };
            // SAFETY: as the caller says.
            unsafe {
                self.with(number, |Lane { states, arena }| {
                    let state = match (states, key) {
                        (LaneStates::Keyed(keyed), Some(key)) => keyed.add(key)?,
                        (LaneStates::Single(state), None) => state.as_mut_ptr().cast(),
                        _ => unreachable!("lanes have keys if the operator has"),
                    };
                    shape.take(&mut image, state, |bytes| arena.alloc(bytes))
                })
            }?;
        }
        Ok(())
    }
}

/// A thread's room for hashes and addresses, kept from batch to batch.
#[derive(Debug, Default)]
pub struct Scratch {
    pub hashes: Vec<u64>,
    pub positions: Vec<u64>,
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
    pub unsafe fn hash(&mut self, rows: Rows, key: &[Key]) -> Result<(), RunError> {
        if self.hashes.len() < rows.n {
            self.hashes.resize(rows.n, 0);
        }
        // SAFETY: as the caller says.
        unsafe { KeyedRows::new(rows) }.hash(key, &mut self.hashes)
    }

    /// The positions of the rows' keys.
    ///
    /// # Safety
    /// As for `hash`.
    pub unsafe fn place(&mut self, rows: Rows, key: &[Key]) -> Result<(), RunError> {
        if self.positions.len() < rows.n {
            self.positions.resize(rows.n, 0);
        }
        // SAFETY: as the caller says.
        unsafe { KeyedRows::new(rows) }.positions(key, &mut self.positions)
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
        let states = if operator.key.is_empty() {
            LaneStates::Single(vec![0; operator.state_size.div_ceil(8)].into())
        } else {
            LaneStates::Keyed(KeyedState::new(&operator.key, operator.state_size))
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
            LaneStates::Keyed(keyed) => keyed.locate(&unsafe { KeyedRows::new(rows) }, hashes, states)?,
            LaneStates::Single(state) => states.fill(state.as_mut_ptr().cast()),
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
            LaneStates::Keyed(keyed) => keyed.sorted().into_iter().map(|(key, state)| (Some(key), state)).collect(),
            LaneStates::Single(state) => vec![(None, state.as_ptr().cast_mut().cast())],
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
        operator.furnish(out);
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

/// The states of operator number `operator`, whose lanes are among `lanes`: one entry per operator with state.
///
/// # Safety
/// No other thread uses the lanes meanwhile; they belong to the chain.
pub unsafe fn keyed_states(chain: &Chain, lanes: &[Lanes], operator: usize) -> Result<States, RunError> {
    let Ok(stage) = chain.stateful.binary_search(&operator) else {
        return Err(RunError::Invalid(format!("operator {operator} has no state")));
    };
    let size = chain.operators[operator].state_size;
    let (mut integers, mut texts, mut states) = (Vec::new(), Vec::new(), Vec::new());
    // SAFETY: as the caller says.
    for (key, _, state) in unsafe { lanes[stage].sorted() } {
        match key {
            Some(KeyRef::Integer(key)) => integers.push(key),
            Some(KeyRef::Text(key)) => texts.push(key.to_vec()),
            None => {}
        }
        // SAFETY: a state of this operator.
        states.extend_from_slice(unsafe { std::slice::from_raw_parts(state, size) });
    }
    let keys = match &chain.operators[operator].key[..] {
        [] => Keys::None,
        [Key { kind: ColumnKind::Text, .. }] => Keys::Texts(texts),
        [_] => Keys::Integers(integers),
        fields => unpacked(fields, &texts),
    };
    Ok(States { keys, states })
}
