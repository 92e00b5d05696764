//! The Python module of the runtime. Only this file uses Python. ABI.md lists its functions.

use pyo3::buffer::PyBuffer;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::dataflow::share;
use crate::dataflow::windowed::controller;
use crate::engine::make;
use crate::error::RunError;

use crate::executor::{Executor, Reconfigurable};
use crate::interruption;
use crate::memory::fetching::{Fetching, between_cores, node_bandwidths};
use crate::output::clock;
use crate::output::metrics::Standing;
use crate::program::Program;
use crate::program::kernel::{CONSTANTS, LAYOUTS};
use crate::program::options::Options;
use crate::rows::block::{Block, SEQ_BYTES, TEXT_PADDING, Text};
use crate::rows::column::Column;
use crate::rows::fill::{self, Values};
use crate::rows::texts::Texts;
use crate::state::states::{Keys, States};
use crate::threads::sync::Arc;
use crate::threads::topology::Topology;
use crate::threads::{stall, timing};
use crate::transactions::scheme;

create_exception!(
    streaming_core._runtime,
    KernelFailed,
    PyException,
    "An operator raised: args are its name, the event's seq, the window's (start, end) or None, and the pickled exception."
);

create_exception!(
    streaming_core._runtime,
    TooManyRows,
    PyException,
    "An event becomes more rows than the executor can keep in order."
);

create_exception!(
    streaming_core._runtime,
    Interrupted,
    PyException,
    "A signal interrupted the run: args are its number."
);

fn python_error(error: RunError) -> PyErr {
    Python::attach(|py| match error {
        RunError::Kernel { operator, seq, window, exception, .. } => {
            KernelFailed::new_err((operator, seq, window, PyBytes::new(py, &exception).unbind()))
        }
        RunError::TooManyRows { .. } => TooManyRows::new_err(error.to_string()),
        RunError::Invalid(message) => PyValueError::new_err(message),
        RunError::Interrupted => Interrupted::new_err(interruption::noted()),
        RunError::Memory(_) => PyMemoryError::new_err(error.to_string()),
        other => PyRuntimeError::new_err(other.to_string()),
    })
}

/// Turns a panic into an error, so that the process neither hangs nor aborts.
fn guarded<R>(work: impl FnOnce() -> Result<R, RunError>) -> PyResult<R> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(python_error),
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_string());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
            Err(PyRuntimeError::new_err(format!("the runtime panicked: {text}")))
        }
    }
}

/// A contiguous buffer of bytes, kept alive and in place while it is held.
struct Bytes(PyBuffer<u8>);

impl Bytes {
    fn of(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Self> {
        let refused = |_| PyValueError::new_err(format!("{what} must be a buffer of bytes"));
        let buffer = PyBuffer::<u8>::get(object).map_err(refused)?;
        if !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err(format!("{what} must be contiguous")));
        }
        Ok(Self(buffer))
    }

    fn pointer(&self) -> *const u8 {
        self.0.buf_ptr().cast::<u8>().cast_const()
    }

    fn len(&self) -> usize {
        self.0.len_bytes()
    }

    fn as_texts(&self) -> PyResult<Arc<Texts>> {
        if self.0.readonly() || self.len() < TEXT_PADDING {
            return Err(PyValueError::new_err(format!(
                "texts must be writable and end with {TEXT_PADDING} bytes of padding"
            )));
        }
        // SAFETY: the buffer is held as long as the engine, and only the engine writes it while the engine is at work.
        Ok(Arc::new(unsafe { Texts::new(self.0.buf_ptr().cast(), self.len() - TEXT_PADDING) }))
    }
}

/// Keys as Python passes them: a list of bytes (text), or the bytes of i64s.
fn keys_of(keys: &Bound<'_, PyAny>) -> PyResult<Keys> {
    if let Ok(texts) = keys.cast::<PyList>() {
        return Ok(Keys::Texts(texts.extract()?));
    }
    let bytes = Bytes::of(keys, "keys")?;
    // SAFETY: the buffer is held, and Python does not run meanwhile: the GIL is not released.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.pointer(), bytes.len()) };
    let words = bytes.chunks_exact(8);
    if !words.remainder().is_empty() {
        return Err(PyValueError::new_err("integer keys must have eight bytes each"));
    }
    Ok(Keys::Integers(
        words.map(|word| i64::from_le_bytes(word.try_into().expect("chunks have eight bytes"))).collect(),
    ))
}

/// Keys and states as Python takes them.
fn exported(py: Python<'_>, states: States) -> PyResult<(Bound<'_, PyAny>, Bound<'_, PyBytes>)> {
    Ok((columns(py, &states.keys)?, PyBytes::new(py, &states.states)))
}

/// Keys as Python takes them.
fn columns<'py>(py: Python<'py>, keys: &Keys) -> PyResult<Bound<'py, PyAny>> {
    Ok(match keys {
        Keys::None => py.None().into_bound(py),
        Keys::Integers(keys) => {
            let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
            PyBytes::new(py, &bytes).into_any()
        }
        Keys::Texts(keys) => PyList::new(py, keys.iter().map(|key| PyBytes::new(py, key)))?.into_any(),
        Keys::Fields(fields) => {
            let columns = fields.iter().map(|keys| columns(py, keys)).collect::<PyResult<Vec<_>>>()?;
            PyTuple::new(py, columns)?.into_any()
        }
    })
}

/// Makes a block of `n` rows of `stride` bytes and their text. Rejects sizes that do not fit.
fn rows(rows: &Bytes, n: usize, stride: usize, text: &Bytes) -> PyResult<Block> {
    let bytes = n.checked_mul(stride).ok_or_else(|| PyValueError::new_err("too many rows"))?;
    if rows.len() != bytes {
        let message = format!("{n} rows of {stride} bytes take {bytes} bytes, got {}", rows.len());
        return Err(PyValueError::new_err(message));
    }
    let text = if text.len() == 0 {
        Text::empty()
    } else if text.len() < TEXT_PADDING {
        return Err(PyValueError::new_err(format!("text must end with {TEXT_PADDING} bytes of padding")));
    } else {
        // SAFETY: the caller of this function holds the buffer as long as it uses the block.
        unsafe { Text::new(text.pointer(), text.len() - TEXT_PADDING) }
    };
    // SAFETY: as above; the length was checked.
    Ok(unsafe { Block::new(rows.pointer(), n, stride, text) })
}

/// One run of a program. With `threads` = T, the thread that calls `process` is one of the T.
#[pyclass(module = "streaming_core._runtime")]
struct Engine {
    /// None once stopped.
    executor: Option<Box<dyn Executor>>,
    event_stride: usize,
    /// Whether the run has failed. It is then over, but its metrics can still be read.
    failed: bool,
    /// The memory for new texts, held as long as the engine.
    _texts: Option<Bytes>,
}

// SAFETY: pyo3 lends an Engine to one thread at a time (`&mut self`), or to several for methods that only read.
unsafe impl Sync for Engine {}

impl Engine {
    fn running(&mut self) -> PyResult<&mut Box<dyn Executor>> {
        if self.failed {
            return Err(PyRuntimeError::new_err("the run has failed; only `metrics` and `stop` still work"));
        }
        self.executor.as_mut().ok_or_else(|| PyRuntimeError::new_err("the engine was stopped"))
    }

    fn attempt<R: Send>(
        &mut self,
        py: Python<'_>,
        work: impl FnOnce(&mut dyn Executor) -> Result<R, RunError> + Send,
    ) -> PyResult<R> {
        let executor = self.running()?;
        let outcome = py.detach(|| guarded(|| work(&mut **executor)));
        self.failed |= outcome.is_err();
        outcome
    }
}

#[pymethods]
impl Engine {
    /// `texts`, for a program with windows or with texts in states: writable bytes. They start with every block's text, have room for new texts, and end
    /// with 64 bytes of padding.
    #[new]
    #[pyo3(signature = (program, options, texts = None))]
    fn new(program: &str, options: &str, texts: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        // SAFETY: Python compiles the kernels and keeps them as long as the engine that runs them (kernels/program.py).
        let mut program = unsafe { Program::parse(program) }.map_err(python_error)?;
        let texts = texts.map(|texts| Bytes::of(texts, "texts")).transpose()?;
        program.texts = texts.as_ref().map(Bytes::as_texts).transpose()?;
        let options = Options::parse(options).map_err(python_error)?;
        let event_stride = program.event.stride;
        let executor = guarded(|| make(program, options))?;
        Ok(Self { executor: Some(executor), event_stride, failed: false, _texts: texts })
    }

    /// Replaces all rows of a table. An indexed table takes a key for each row, in the form of `table`. If it inserts rows, it
    /// takes only the row that new rows start with.
    #[pyo3(signature = (index, rows, keys = None))]
    fn load_table(&mut self, index: usize, rows: &Bound<'_, PyAny>, keys: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let keys = keys.map_or(Ok(Keys::None), keys_of)?;
        let bytes = Bytes::of(rows, "rows")?;
        // SAFETY: the buffer is held, and Python does not run meanwhile: the GIL is not released.
        let rows = unsafe { std::slice::from_raw_parts(bytes.pointer(), bytes.len()) };
        let executor = self.running()?;
        guarded(|| executor.load_table(index, &keys, rows))
    }

    /// Processes one block without the GIL; returns when all its outputs are delivered.
    ///
    /// `rows`: n event rows; `text`: the block's text followed by 64 bytes of padding, or empty.
    fn process(&mut self, py: Python<'_>, rows: &Bound<'_, PyAny>, n: usize, text: &Bound<'_, PyAny>) -> PyResult<()> {
        let (row_bytes, text_bytes) = (Bytes::of(rows, "rows")?, Bytes::of(text, "text")?);
        let block = self::rows(&row_bytes, n, self.event_stride, &text_bytes)?;
        self.attempt(py, move |executor| executor.process(&block))
    }

    /// Ends the stream: flushes, with `seq` = the number of its events.
    fn finish(&mut self, py: Python<'_>, seq: i64) -> PyResult<()> {
        self.attempt(py, move |executor| executor.finish(seq))
    }

    /// Returns `(rows, subs, n)`: the outputs since the last call, in the order of delivery. Empty unless the sink is `parquet`.
    fn take_outputs<'py>(&mut self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>, usize)> {
        let (rows, subs) = self.running()?.take_outputs();
        let n = subs.len();
        // SAFETY: `n` numbers of four bytes, read as bytes.
        let subs = unsafe { std::slice::from_raw_parts(subs.as_ptr().cast::<u8>(), n * 4) };
        Ok((PyBytes::new(py, &rows), PyBytes::new(py, subs), n))
    }

    /// Returns the ranks of the outputs that `take_outputs` returned last: 16 bytes each, big-endian. Only executor `share` with
    /// a windowed operator has any.
    fn take_ranks<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let ranks: Vec<[u8; 16]> = self.running()?.take_ranks().into_iter().map(u128::to_be_bytes).collect();
        Ok(PyBytes::new(py, ranks.as_flattened()))
    }

    /// Returns `(keys, rows)` of a table, ascending by key, as `states` does; keys are None for a dense table.
    fn table<'py>(&mut self, py: Python<'py>, index: usize) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyBytes>)> {
        let executor = self.running()?;
        exported(py, guarded(|| executor.table(index))?)
    }

    /// Returns the position of the run between blocks, as JSON, for `resume`.
    fn standing(&mut self) -> PyResult<String> {
        let executor = self.running()?;
        let standing = guarded(|| executor.standing())?;
        serde_json::to_string(&standing).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// Calls `take(name, part, image)` for each part of the state that has something. `name` is that of a table or an operator,
    /// `part` a number, and `image` bytes for `restore`.
    fn images(&mut self, py: Python<'_>, take: &Bound<'_, PyAny>) -> PyResult<()> {
        let executor = self.running()?;
        let mut raised = None;
        let outcome = guarded(|| {
            executor.images(&mut |name, part, image| {
                // SAFETY: words are bytes.
                let bytes = unsafe { std::slice::from_raw_parts(image.as_ptr().cast::<u8>(), 8 * image.len()) };
                take.call1((name, part, PyBytes::new(py, bytes))).map(|_| ()).map_err(|error| {
                    raised = Some(error);
                    RunError::Stopped
                })
            })
        });
        raised.map_or(outcome, Err)
    }

    /// Takes a part of the state, after `load_table` and before the first block.
    fn restore(&mut self, name: &str, image: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = Bytes::of(image, "image")?;
        if !bytes.len().is_multiple_of(8) {
            return Err(PyValueError::new_err("an image is a whole number of words"));
        }
        let mut words = vec![0_u64; bytes.len() / 8];
        // SAFETY: the buffer is held, and Python does not run meanwhile: the GIL is not released.
        unsafe { std::ptr::copy_nonoverlapping(bytes.pointer(), words.as_mut_ptr().cast(), bytes.len()) };
        let executor = self.running()?;
        guarded(|| executor.restore(name, &words))
    }

    /// Goes on from a position, whatever the executor of that run, once all parts are restored.
    fn resume(&mut self, standing: &str) -> PyResult<()> {
        let standing: Standing =
            serde_json::from_str(standing).map_err(|error| PyValueError::new_err(format!("standing: {error}")))?;
        let executor = self.running()?;
        guarded(|| executor.resume(&standing))
    }

    /// Returns a handle that changes the replicas of a windowed operator while the engine is at work.
    fn control(&mut self, operator: &str) -> PyResult<Control> {
        let reconfigurable = self.running()?.reconfigurable(operator);
        reconfigurable
            .map(Control)
            .ok_or_else(|| PyValueError::new_err(format!("{operator} is not a windowed operator of this run")))
    }

    /// Returns `(keys, states)` of operator number `operator`, ascending by key. Keys are a list of bytes (text), the bytes of
    /// i64s, a tuple of these for several fields, or None for a stateful operator.
    fn states<'py>(&mut self, py: Python<'py>, operator: usize) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyBytes>)> {
        let executor = self.running()?;
        exported(py, guarded(|| executor.states(operator))?)
    }

    /// Returns the metrics of the run as JSON, with the names of the run report's samples.
    fn metrics(&self) -> PyResult<String> {
        match &self.executor {
            Some(executor) => Ok(executor.metrics().to_json().to_string()),
            None => Err(PyRuntimeError::new_err("the engine was stopped")),
        }
    }

    /// Joins the threads and frees the memory.
    fn stop(&mut self, py: Python<'_>) {
        let executor = self.executor.take();
        py.detach(|| drop(executor));
    }
}

/// Deals the rows of an operator with keys to shares of them.
#[pyclass(module = "streaming_core._runtime")]
struct Dealer(share::Dealer, usize, #[expect(dead_code, reason = "held as long as the dealer")] Bytes);

// SAFETY: pyo3 lends a Dealer to one thread at a time (`&mut self`).
unsafe impl Sync for Dealer {}

#[pymethods]
impl Dealer {
    /// `program`: one that executor `share` runs; `shares`: the number of shares; `texts`: as for `Engine`.
    #[new]
    fn new(program: &str, shares: usize, texts: &Bound<'_, PyAny>) -> PyResult<Self> {
        // SAFETY: Python compiles the kernels and keeps them as long as the dealer (kernels/program.py).
        let mut program = unsafe { Program::parse(program) }.map_err(python_error)?;
        let texts = Bytes::of(texts, "texts")?;
        program.texts = Some(texts.as_texts()?);
        let stride = program.event.stride;
        Ok(Self(guarded(|| share::Dealer::new(&program, shares))?, stride, texts))
    }

    /// Returns pairs of u32 as bytes: the position of a row in the block, and a share that needs the row. Rows come in
    /// ascending order, block after block; `rows` and `text` are as for `Engine.process`.
    fn deal<'py>(
        &mut self,
        py: Python<'py>,
        rows: &Bound<'_, PyAny>,
        n: usize,
        text: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (row_bytes, text_bytes) = (Bytes::of(rows, "rows")?, Bytes::of(text, "text")?);
        let block = self::rows(&row_bytes, n, self.1, &text_bytes)?;
        let pairs = py.detach(|| guarded(|| self.0.deal(&block)))?;
        let bytes: Vec<u8> = pairs.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(PyBytes::new(py, &bytes))
    }
}

/// A windowed operator of an engine, for any thread.
#[pyclass(module = "streaming_core._runtime", frozen)]
struct Control(Box<dyn Reconfigurable>);

#[pymethods]
impl Control {
    /// Requests other owners of the operator's cells, by their pattern, from the next event that is not dealt yet. It
    /// replaces a request that the source has not taken in yet.
    fn request(&self, owners: Vec<usize>) -> PyResult<()> {
        guarded(|| self.0.request(&owners))
    }

    /// Returns whether the source has taken in the last request, and all affected replicas have gone over.
    fn is_settled(&self) -> PyResult<bool> {
        guarded(|| Ok(self.0.is_settled()))
    }
}

/// A controller without an engine, to see its decisions.
#[pyclass(module = "streaming_core._runtime")]
struct Controller(controller::Controller);

#[pymethods]
impl Controller {
    /// `thresholds`: upper, target and lower threshold in percent; empty: those of the paper.
    #[new]
    #[pyo3(signature = (name, thresholds = Vec::new()))]
    fn new(name: &str, thresholds: Vec<u32>) -> PyResult<Self> {
        let controller = guarded(|| controller::Controller::new(name, &thresholds))?;
        let refusal = || PyValueError::new_err(format!("controller {name} does not decide on a number of replicas"));
        Ok(Self(controller.ok_or_else(refusal)?))
    }

    /// Returns the number of replicas for the load of a period (JSON as in `loads`); None: no change.
    fn decide(&mut self, seen: &str) -> PyResult<Option<usize>> {
        let seen = serde_json::from_str(seen).map_err(|error| PyValueError::new_err(format!("load: {error}")))?;
        Ok(self.0.decide(&seen).1)
    }
}

/// Pauses of this thread and of the engine's threads at random moments, until `stop`.
#[pyclass(module = "streaming_core._runtime")]
struct Stalls(stall::Stalls);

#[pymethods]
impl Stalls {
    #[new]
    fn new(seed: u64) -> PyResult<Self> {
        Ok(Self(stall::Stalls::start(seed)?))
    }

    /// Ends them, and returns the number of pauses in this process so far.
    fn stop(&mut self, py: Python<'_>) -> usize {
        py.detach(|| self.0.stop());
        stall::pauses()
    }
}

/// Lets the engine's clock jump ahead.
#[pyfunction]
fn jump_clock(seconds: u64) {
    clock::jump(Duration::from_secs(seconds));
}

/// From now on SIGTERM and SIGINT are only noted: threads at work leave with `Interrupted`.
#[pyfunction]
fn heed_signals() -> PyResult<()> {
    Ok(interruption::heed()?)
}

/// Returns the first of these signals that came, or 0.
#[pyfunction]
fn signalled() -> i32 {
    interruption::noted()
}

/// Returns the topology of the machine as JSON.
#[pyfunction]
fn probe() -> PyResult<String> {
    serde_json::to_string(&Topology::probe()).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// Returns the number of each thread's pool of operation chains. On a machine with one socket, `shared_per_socket` uses two
/// made-up sockets. If no two threads have the same number, the pool equals `shared_nothing`.
#[pyfunction]
fn pools(pool: &str, threads: usize) -> PyResult<Vec<usize>> {
    guarded(|| scheme::pool::pools(Some(pool), threads))
}

/// Measures memory access and returns JSON. On several nodes: between nodes, and the bytes per second that all cores of a
/// node read together. On one node: between these cores, for lines that another core has just written.
#[pyfunction]
fn measure_fetching(py: Python<'_>, cores: Vec<usize>) -> PyResult<String> {
    let measure = || -> io::Result<serde_json::Value> {
        let topology = Topology::probe();
        let several = topology.nodes.len() > 1;
        Ok(serde_json::json!({
            "between_cores": (!several).then(|| between_cores(&cores)).transpose()?,
            "between_nodes": several.then(|| Fetching::between_nodes(&topology, true)).transpose()?,
            "node_bytes_per_s": several.then(|| node_bandwidths(&topology)).transpose()?,
        }))
    };
    Ok(py.detach(measure)?.to_string())
}

/// Returns the nanoseconds that a cache line takes from one core to another and back.
#[pyfunction]
fn round_trip(py: Python<'_>, near: usize, far: usize) -> PyResult<f64> {
    Ok(py.detach(|| timing::round_trip(near, far))?)
}

/// Returns the seconds of the longest pause of threads that spin on these cores for `seconds`.
#[pyfunction]
fn longest_pause(py: Python<'_>, cores: Vec<usize>, seconds: f64) -> PyResult<f64> {
    let lasts = Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(py.detach(|| timing::longest_pause(&cores, lasts))?.as_secs_f64())
}

/// Returns the ABI of kernels: the `size` and field offsets of each struct, and the constants under `constants`.
#[pyfunction]
fn abi() -> BTreeMap<&'static str, BTreeMap<&'static str, u64>> {
    let layout = |&(name, size, fields): &(&'static str, usize, &[(&'static str, usize)])| {
        let fields = fields.iter().map(|&(field, offset)| (field, offset as u64));
        (name, fields.chain([("size", size as u64)]).collect())
    };
    let constants = CONSTANTS.iter().map(|&(name, value)| (name, u64::from(value))).collect();
    LAYOUTS.iter().map(layout).chain([("constants", constants)]).collect()
}

/// Fills rows with columns, and returns the sum of their hashes modulo 2^64.
///
/// `shape` is the number of rows and their stride in bytes; `numbers` has the `seq` and the `sub` of each row. `columns` are
/// those of a program, and `values` their values. The values of a text are offsets, and `bases` says where its first text
/// begins in `text`.
#[pyfunction]
fn fill_rows(
    py: Python<'_>,
    rows: &Bound<'_, PyAny>,
    shape: (usize, usize),
    text: &Bound<'_, PyAny>,
    numbers: (Bound<'_, PyAny>, Option<Bound<'_, PyAny>>),
    columns: &str,
    values: Vec<Bound<'_, PyAny>>,
    bases: Vec<u32>,
) -> PyResult<u64> {
    let (n, stride) = shape;
    let refused = |message: &str| PyValueError::new_err(message.to_string());
    let layout: Vec<Column> =
        serde_json::from_str(columns).map_err(|error| PyValueError::new_err(format!("columns: {error}")))?;
    let (row_bytes, text_bytes) = (Bytes::of(rows, "rows")?, Bytes::of(text, "text")?);
    let block = self::rows(&row_bytes, n, stride, &text_bytes)?;
    if row_bytes.0.readonly() {
        return Err(refused("rows must be writable"));
    }
    let eight_bytes_each = |numbers: &Bound<'_, PyAny>| {
        let bytes = Bytes::of(numbers, "seq and sub")?;
        if bytes.len() == n * 8 { Ok(bytes) } else { Err(refused("seq and sub must have eight bytes for each row")) }
    };
    let (seq, sub) = (eight_bytes_each(&numbers.0)?, numbers.1.as_ref().map(eight_bytes_each).transpose()?);
    if stride < SEQ_BYTES || layout.len() != values.len() || layout.len() != bases.len() {
        return Err(refused("rows need room for seq, and each column values and a base"));
    }
    let held = values.iter().map(|values| Bytes::of(values, "values")).collect::<PyResult<Vec<_>>>()?;
    let columns = layout.into_iter().zip(&held).zip(bases).map(|((column, values), base)| {
        let (bytes, values) = (values.len(), Values { column, values: values.pointer(), base });
        let fits = values.lies_in(stride) && values.bytes(n) == Some(bytes);
        if fits { Ok(values) } else { Err(refused("each column must lie in a row and have a value for each")) }
    });
    let columns = columns.collect::<PyResult<Vec<_>>>()?;
    let rows = fill::Rows {
        rows: row_bytes.pointer().cast_mut(),
        n,
        stride,
        text: block.text,
        seq: seq.pointer().cast(),
        sub: sub.as_ref().map(|sub| sub.pointer().cast()),
    };
    py.detach(|| {
        guarded(|| {
            // SAFETY: buffers are held, and their sizes were checked. The caller lets no thread use the rows meanwhile.
            let sum = unsafe { fill::fill(rows, &columns) };
            sum.ok_or_else(|| RunError::Invalid("a row refers to text outside its block".into()))
        })
    })
}

#[pymodule]
fn _runtime(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Engine>()?;
    module.add_class::<Dealer>()?;
    module.add_class::<Control>()?;
    module.add_class::<Controller>()?;
    module.add_class::<Stalls>()?;
    module.add("KernelFailed", module.py().get_type::<KernelFailed>())?;
    module.add("TooManyRows", module.py().get_type::<TooManyRows>())?;
    module.add("Interrupted", module.py().get_type::<Interrupted>())?;
    module.add_function(wrap_pyfunction!(heed_signals, module)?)?;
    module.add_function(wrap_pyfunction!(signalled, module)?)?;
    module.add_function(wrap_pyfunction!(jump_clock, module)?)?;
    module.add_function(wrap_pyfunction!(probe, module)?)?;
    module.add_function(wrap_pyfunction!(pools, module)?)?;
    module.add_function(wrap_pyfunction!(measure_fetching, module)?)?;
    module.add_function(wrap_pyfunction!(round_trip, module)?)?;
    module.add_function(wrap_pyfunction!(longest_pause, module)?)?;
    module.add_function(wrap_pyfunction!(abi, module)?)?;
    module.add_function(wrap_pyfunction!(fill_rows, module)?)
}
