//! Memory stays bounded while a task stands still.
//!
//! Every executor runs operators that turn one row into fifty, and one operator that stops now and then. It waits until all other
//! threads are asleep, because nothing can go on without it.
//!
//! The test compares two numbers with bounds. One is the number of events by which the first operator is ahead then. The other
//! is the largest number of bytes that the run held at once. The bounds depend only on the configuration. Ten times the events change neither.
#![cfg(all(target_os = "linux", not(any(loom, shuttle))))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use _runtime::{BatchContext, Block, Options, Program, Strategy, Text, make};
use serde_json::{Value, json};

/// Counts the bytes that are held, and were at most.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does it; counting touches nothing of it. `realloc` and `alloc_zeroed` come through here.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(HELD.fetch_add(layout.size(), SeqCst) + layout.size(), SeqCst);
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), SeqCst);
        // SAFETY: as the caller says.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Seq, key, value.
type Row = [i64; 3];
const STRIDE: usize = 24;
const FAN: usize = 50;
const KEYS: i64 = 16;
/// Events between two of those that make an operator stop.
const STOPS: i64 = 500;
const EVENTS: i64 = 1000;
const THREADS: usize = 3;
const BATCH: usize = 4;
/// Of `pooled`, which has more batches in flight if they are smaller.
const POOLED_BATCH: usize = 32;
/// Of `pinned`, whose outlets have more slots for smaller batches.
const PINNED_BATCH: usize = 32;
// The numbers of the executors: batches in flight, jumbo tuples in an outlet, and rows that a gate takes at once. These rows
// come from one source, without those of its last jumbo tuple.
const WINDOW: usize = 8;
const SLOTS: usize = 8;
const TAKEN_AT_ONCE: usize = 1024;
/// Bytes of threads, latencies, states and what else does not hang on rows.
const FIXED: usize = 2 << 20;
/// Bytes of a row, its rank, its key's hash, its origin and whose it is.
const HELD_PER_ROW: usize = STRIDE + 16 + 8 + 4 + 4 * THREADS;
/// A slot of `pooled` keeps two buffers before each of two stages, and one for each worker behind it.
const POOLED_BUFFERS: usize = 2 * (2 + THREADS);

/// Events that `fan` has taken.
static TAKEN: AtomicI64 = AtomicI64::new(0);
/// How far it was ahead at most when everybody slept, and how often they did.
static AHEAD: AtomicI64 = AtomicI64::new(0);
static STOPPED: AtomicI64 = AtomicI64::new(0);
/// The thread that processes blocks.
static CALLER: AtomicI64 = AtomicI64::new(0);

fn myself() -> i64 {
    // SAFETY: it takes nothing and only answers.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

/// How often each other thread of the team has left its core, if all of them are asleep.
fn others() -> Option<Vec<(i64, u64)>> {
    let mut switches = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let thread: i64 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        // A thread that has just ended, one of the test harness say, has no status any more, or an empty one.
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        if status.is_empty() {
            continue;
        }
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(':').trim().to_string()
        };
        let is_of_team = thread == CALLER.load(SeqCst) || field("Name").starts_with("lockstep-");
        if is_of_team && thread != myself() {
            if !field("State").starts_with('S') {
                return None;
            }
            let counts = ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"].map(field);
            switches.push((thread, counts.iter().map(|count| count.parse::<u64>().unwrap()).sum()));
        }
    }
    Some(switches)
}

/// Returns when every other thread of the team sleeps, and none has been awake between two looks at all of them. Then only this
/// thread can go on.
fn wait_for_standstill() {
    loop {
        let before = others();
        if before.is_some() && before == others() {
            return;
        }
        std::thread::yield_now();
    }
}

/// Calls `each` with every row, and a function that emits one.
unsafe fn for_rows(context: *mut BatchContext, mut each: impl FnMut(Row, &mut i64, &mut dyn FnMut(Row))) -> i64 {
    // SAFETY: the runtime calls kernels with contexts as the ABI says; rows are `Row`s, states a word.
    unsafe {
        let context = &mut *context;
        for i in 0..context.n as usize {
            let row = if context.places.is_null() { context.rows.add(i * STRIDE) } else { *context.places.add(i) };
            let row = row.cast::<Row>().read_unaligned();
            let mut nothing = 0;
            let state = if context.states.is_null() { &mut nothing } else { &mut *(*context.states.add(i)).cast() };
            let emitter = &mut *context.emitter;
            each(row, state, &mut |row| {
                if emitter.len == emitter.cap {
                    assert_eq!((emitter.grow)(emitter), 0);
                }
                emitter.rows.add(emitter.len as usize * STRIDE).cast::<Row>().write_unaligned(row);
                if !emitter.origin.is_null() {
                    emitter.origin.add(emitter.len as usize).write(i as u32);
                }
                emitter.len += 1;
            });
        }
        0
    }
}

extern "C" fn fan(context: *mut BatchContext) -> i64 {
    // SAFETY: as the ABI says.
    unsafe {
        for_rows(context, |row, _, emit| {
            TAKEN.fetch_add(1, SeqCst);
            (0..FAN as i64).for_each(|i| emit([row[0], row[1], i]));
        })
    }
}

extern "C" fn count(context: *mut BatchContext) -> i64 {
    // SAFETY: as the ABI says.
    unsafe {
        for_rows(context, |row, state, emit| {
            *state += 1;
            emit(row);
        })
    }
}

extern "C" fn stop(context: *mut BatchContext) -> i64 {
    // SAFETY: as the ABI says.
    unsafe {
        for_rows(context, |row, _, emit| {
            if row[0] % STOPS == 0 && row[2] == 0 {
                wait_for_standstill();
                STOPPED.fetch_add(1, SeqCst);
                AHEAD.fetch_max(TAKEN.load(SeqCst) - row[0], SeqCst);
            }
            emit(row);
        })
    }
}

fn operator(name: &str, kind: &str, inputs: &[i64]) -> Value {
    type Kernel = extern "C" fn(*mut BatchContext) -> i64;
    let kernel: Kernel = match name {
        "fan" => fan,
        "count" => count,
        _ => stop,
    };
    let mut operator =
        json!({"name": name, "kind": kind, "inputs": inputs, "kernel": kernel as usize, "stride": STRIDE});
    if kind != "stateless" {
        operator["state_size"] = json!(8);
    }
    if kind == "partitioned" {
        operator["key"] = json!([{"kind": "i64", "offset": 8}]);
    }
    operator
}

fn program(operators: &[Value], outputs: &[i64]) -> Program {
    let program = json!({
        "kind": "dataflow", "event": {"stride": STRIDE}, "operators": operators, "outputs": outputs,
        "columns": [{"kind": "i64", "offset": 8}, {"kind": "i64", "offset": 16}], "unordered": [0, 1],
    });
    // SAFETY: the kernels are functions of this file, for its rows and states.
    unsafe { Program::parse(&program.to_string()) }.unwrap()
}

/// What is in front of the sink stops.
fn slow_end() -> Program {
    let ops = [
        operator("fan", "stateless", &[-1]),
        operator("count", "partitioned", &[0]),
        operator("stop", "stateful", &[1]),
    ];
    program(&ops, &[2])
}

/// One lane of several stops, that of key 0.
fn slow_replica() -> Program {
    let ops = [operator("fan", "stateless", &[-1]), operator("stop", "partitioned", &[0])];
    program(&ops, &[1])
}

/// A branch with few rows stops; a plan can put it on the sink's thread.
fn slow_branch() -> Program {
    let ops = [operator("fan", "stateless", &[-1]), operator("stop", "stateful", &[-1])];
    program(&ops, &[0, 1])
}

/// Runs with `n` events. `fan` gets at most `ahead` events ahead. The run holds at most `FIXED` bytes and every row that may be
/// in flight then. Without order, workers may overtake the operator that stands still with other rows, but hold no more.
fn check(program: Program, options: &Options, n: i64, ahead: usize) {
    let buffers = if options.executor == "pooled" { POOLED_BUFFERS } else { 1 };
    let rows: Vec<Row> = (0..n).map(|seq| [seq, if seq % STOPS == 0 { 0 } else { seq % KEYS }, 0]).collect();
    // SAFETY: the rows outlive the block.
    let block = unsafe { Block::new(rows.as_ptr().cast(), rows.len(), STRIDE, Text::empty()) };
    [&TAKEN, &AHEAD, &STOPPED].iter().for_each(|count| count.store(0, SeqCst));
    CALLER.store(myself(), SeqCst);
    let before = HELD.load(SeqCst);
    MOST.store(before, SeqCst);
    let mut executor = make(program, options.clone()).unwrap();
    executor.process(&block).unwrap();
    executor.finish(n).unwrap();
    assert_eq!((TAKEN.load(SeqCst), STOPPED.load(SeqCst)), (n, n / STOPS));
    assert!(executor.metrics().digest.rows >= n as u64 * FAN as u64);
    let (events, bytes) = (AHEAD.load(SeqCst) as usize, MOST.load(SeqCst) - before);
    let overtakes = options.executor == "morsel" && options.order.as_deref() == Some("none");
    assert!(events <= ahead || overtakes, "{events} events ahead, not {ahead}: {n} events, {options:?}");
    let most = FIXED + ahead * FAN * HELD_PER_ROW * buffers;
    assert!(bytes <= most, "{bytes} bytes held, not {most}: {n} events, {options:?}");
}

/// Lets one run at a time use the static variables.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options(executor: &str) -> Options {
    let executor = executor.into();
    Options { executor, threads: THREADS, batch: BATCH, idle: Strategy::Park, ..Options::default() }
}

#[test]
fn pooled() {
    let _alone = alone();
    for queue in ["lanes", "hybrid", "partitioned", "shared"] {
        for reorder in ["non_blocking", "lock"] {
            for program in [slow_end, slow_replica, slow_branch] {
                for n in [EVENTS, 10 * EVENTS] {
                    let [queue, reorder] = [queue, reorder].map(|name| Some(name.to_string()));
                    // A partition without rows holds something, too: not so many that it matters beside the rows.
                    let options =
                        Options { queue, reorder, partitions: 4 * THREADS, batch: POOLED_BATCH, ..options("pooled") };
                    check(program(), &options, n, WINDOW * POOLED_BATCH);
                }
            }
        }
    }
}

#[test]
fn morsel() {
    let _alone = alone();
    for order in ["total", "none"] {
        for program in [slow_end, slow_replica, slow_branch] {
            for n in [EVENTS, 10 * EVENTS] {
                let options = Options { order: Some(order.into()), ..options("morsel") };
                check(program(), &options, n, THREADS * BATCH);
            }
        }
    }
}

#[test]
fn pinned() {
    let _alone = alone();
    // Rows of a jumbo tuple: of `fan`, of the consumers of all its replicas, and of the consumers of all of theirs. With
    // `merge_sort` there may be two of those one after the other.
    let taken = |rows: usize| THREADS * (TAKEN_AT_ONCE + rows);
    let (first, then) = (taken(PINNED_BATCH * FAN), taken(taken(PINNED_BATCH * FAN)));
    let ahead = SLOTS * (THREADS * PINNED_BATCH + (2 * first + then) / FAN);
    let on_the_thread_of_the_sink = [("source", vec![0]), ("fan", vec![0, 1]), ("stop", vec![2]), ("sink", vec![2])];
    for channel in ["gate", "scalegate", "merge_sort", "shared_ring", "pair_queue"] {
        for (program, plan) in
            [(slow_end as fn() -> Program, &[][..]), (slow_replica, &[]), (slow_branch, &on_the_thread_of_the_sink)]
        {
            for n in [EVENTS, 10 * EVENTS] {
                // Every sink with a ScaleGate keeps nodes for whole jumbo tuples. The bound counts those of one sink.
                let one_sink = (channel == "scalegate").then(|| ("sink", vec![THREADS - 1]));
                let places = plan.iter().cloned().chain(one_sink);
                let plan = places.map(|(name, places)| (name.to_string(), places)).collect();
                let channel = Some(channel.into());
                check(program(), &Options { channel, plan, batch: PINNED_BATCH, ..options("pinned") }, n, ahead);
            }
        }
    }
}
