//! The program that Python passes as JSON: layouts and kernel addresses.

use serde::Deserialize;

use crate::error::RunError;
use crate::output::digest::Hasher;
use crate::rows::block::SEQ_BYTES;
use crate::rows::built;
use crate::rows::column::{Column, ColumnKind};
use crate::rows::texts::Texts;
use crate::threads::sync::Arc;

pub mod kernel;
pub mod options;
pub mod registry;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgramKind {
    Dataflow,
    Transaction,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub kind: ProgramKind,
    pub event: EventSpec,
    /// In topological order.
    #[serde(default)]
    pub operators: Vec<OperatorSpec>,
    /// The producers of the sink's rows, in this order; dataflows only.
    #[serde(default)]
    pub outputs: Vec<Origin>,
    #[serde(default)]
    pub tables: Vec<TableSpec>,
    #[serde(default)]
    pub transaction: Option<TransactionSpec>,
    /// The number of equal ranges of rows of every table, for schemes that work by partition.
    #[serde(default = "partitions")]
    pub partitions: usize,
    pub columns: Vec<Column>,
    /// The numbers of the columns that must agree without order; None: the application does not declare any.
    #[serde(default)]
    pub unordered: Option<Vec<usize>>,
    /// Memory for texts that outlive their block; Python passes it in addition to the program.
    #[serde(skip)]
    pub texts: Option<Arc<Texts>>,
    /// The address of the table of the functions that build texts; 0: kernels call none.
    #[serde(default)]
    pub text_functions: usize,
}

fn partitions() -> usize {
    40
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventSpec {
    pub stride: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OperatorKind {
    Stateless,
    Partitioned,
    Stateful,
    Windowed,
}

/// Where rows come from: the number of an operator, or -1 for the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(from = "i64")]
pub enum Origin {
    Events,
    Operator(usize),
}

impl From<i64> for Origin {
    fn from(number: i64) -> Self {
        usize::try_from(number).map_or(Self::Events, Self::Operator)
    }
}

/// The largest `ts`, advance, size and delay, so that their sums fit into an i64.
const MOST_TS: i64 = 1 << 61;
/// The largest number of keys that every row has.
const MOST_EVERY: i64 = 1 << 24;

/// An operator of a dataflow; `stride` is the size of its output rows, `kernel` and `flush` are addresses.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorSpec {
    pub kind: OperatorKind,
    pub name: String,
    /// The producers of its rows. Of one event, rows of the first producer come first.
    pub inputs: Vec<Origin>,
    /// 0 for a windowed operator, which has several kernels.
    #[serde(default)]
    pub kernel: u64,
    #[serde(default)]
    pub flush: u64,
    pub stride: usize,
    /// The least and the most rows that the kernel emits for an input; None without a bound. Whatever is not known is 0 and None.
    #[serde(default)]
    pub emits: (u64, Option<u64>),
    /// The fields of a partitioned operator's key, in its *input* rows; else none.
    #[serde(default)]
    pub key: Vec<Key>,
    /// For a windowed operator, the size of all states of a key.
    #[serde(default)]
    pub state_size: usize,
    /// The growing containers of a key's state, or of its states in a window, with offsets from the first one.
    #[serde(default)]
    pub growing: Vec<Growing>,
    #[serde(default)]
    pub window: Option<WindowSpec>,
}

/// Windows: `[l * advance, l * advance + size)` for every integer l (STRETCH, section 2.1).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowSpec {
    /// Whether every key has one set of states, whose window slides; else it has a set for each window.
    pub single: bool,
    /// Whether it is a session, the only window of its key: it has no `advance` but 1, and `size` is the gap.
    #[serde(default)]
    pub session: bool,
    pub advance: i64,
    pub size: i64,
    /// How far the watermark stays behind the latest `ts` of the stream that is furthest behind.
    pub delay: i64,
    /// How far a stream may be behind the others and still hold the watermark back; None: as far as it is.
    #[serde(default)]
    pub idle: Option<i64>,
    /// The greatest length of a session; None: any.
    #[serde(default)]
    pub most: Option<i64>,
    /// Every row has the keys 0 to this, exclusively.
    #[serde(default)]
    pub every: Option<i64>,
    /// Whether a key that a row has twice counts twice.
    pub bag: bool,
    /// How the states of a key in two parts of a window become one, word by word; empty: they cannot.
    #[serde(default)]
    pub merge: Vec<Merge>,
    /// The stream of each input.
    pub of: Vec<usize>,
    pub streams: Vec<StreamSpec>,
    pub key: KeySpec,
    /// Kernels for expired windows, and for windows that slid; 0: there is none.
    pub result: u64,
    pub slide: u64,
}

/// How two words of states, which are i64, become one.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Merge {
    Add,
    Min,
    Max,
}

/// One of the streams that a windowed operator takes.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// Of its rows.
    pub ts: Key,
    /// Kernels: the keys of rows, and rows that meet windows.
    pub keys: u64,
    pub update: u64,
}

/// The fields of a key, in a row of `stride` bytes of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySpec {
    pub stride: usize,
    pub fields: Vec<Key>,
}

/// A field of a key, in the rows that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    pub kind: ColumnKind,
    pub offset: usize,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSpec {
    pub name: String,
    pub rows: usize,
    pub stride: usize,
    #[serde(default)]
    pub containers: bool,
    /// The growing containers of a row.
    #[serde(default)]
    pub growing: Vec<Growing>,
    /// The bytes of a row that a READ copies: the first one, and one past the last.
    pub read: (usize, usize),
    /// None: the key of a row is its number.
    #[serde(default)]
    pub index: Option<IndexSpec>,
}

/// The index of a table whose rows have keys of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexSpec {
    pub key: KeyKind,
    /// Whether the first access of a key inserts its row. The table then starts empty.
    pub inserts: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    Integer,
    Text,
}

/// Something that grows in a row: a container or a text. The offset of its head, and whether an index follows its entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Growing {
    pub offset: usize,
    #[serde(default)]
    pub indexed: bool,
    /// For a queue, which has no entries, the widths of its columns.
    #[serde(default)]
    pub columns: Vec<usize>,
    /// Which of these are texts: the key (0) and the value (1) of entries, or columns of a queue, by number.
    #[serde(default)]
    pub texts: Vec<usize>,
    /// Whether it is no container but a text: one word.
    #[serde(default)]
    pub plain: bool,
}

impl Growing {
    /// The bytes of a head.
    pub const HEAD: usize = 32;

    /// Bytes of its head in a row.
    pub fn head(&self) -> usize {
        if self.plain { 8 } else { Self::HEAD }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.offset.checked_add(self.head()).is_some_and(|end| end <= bytes)
    }
}

/// A state transaction: addresses of its kernels; `result_stride` bytes per READ.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransactionSpec {
    pub name: String,
    pub plan: u64,
    pub apply: u64,
    pub post: u64,
    pub execute: u64,
    pub place: u64,
    pub stride: usize,
    pub result_stride: usize,
}

impl Program {
    /// Parses and checks a program.
    ///
    /// # Safety
    /// The caller guarantees what cannot be checked: the addresses are kernels as in ABI.md, for the layouts in the program.
    /// They outlive every run of the program.
    pub unsafe fn parse(json: &str) -> Result<Self, RunError> {
        let program: Self =
            serde_json::from_str(json).map_err(|error| RunError::Invalid(format!("program: {error}")))?;
        program.check()?;
        if program.text_functions != 0 {
            // SAFETY: as the caller says.
            unsafe { built::fill(std::ptr::with_exposed_provenance_mut(program.text_functions)) };
        }
        Ok(program)
    }

    /// Size of an output row.
    pub fn output_stride(&self) -> usize {
        match &self.transaction {
            Some(transaction) => transaction.stride,
            None => self.outputs.first().map_or(self.event.stride, |&origin| self.stride(origin)),
        }
    }

    /// The size of the rows of an origin.
    pub fn stride(&self, origin: Origin) -> usize {
        match origin {
            Origin::Events => self.event.stride,
            Origin::Operator(index) => self.operators[index].stride,
        }
    }

    /// The common stride of rows from several of the first `before` operators; None if strides differ.
    fn united(&self, origins: &[Origin], before: usize) -> Option<usize> {
        let known = |origin: &Origin| !matches!(origin, Origin::Operator(index) if *index >= before);
        let stride = self.stride(*origins.first().filter(|origin| known(origin))?);
        origins.iter().all(|origin| known(origin) && self.stride(*origin) == stride).then_some(stride)
    }

    pub fn hasher(&self) -> Result<Hasher, RunError> {
        Hasher::new(&self.columns, self.output_stride())
    }

    /// The hasher of outputs without order.
    ///
    /// # Errors
    /// `Invalid`: the program does not declare what agrees without order.
    pub fn unordered_hasher(&self) -> Result<Hasher, RunError> {
        match &self.unordered {
            Some(columns) => Ok(self.hasher()?.unordered(columns)),
            None => Err(RunError::Invalid(
                "the application must declare what agrees without order, with `agrees_unordered`".into(),
            )),
        }
    }

    /// Whether any operator has windows.
    pub fn is_windowed(&self) -> bool {
        self.operators.iter().any(|operator| operator.window.is_some())
    }

    fn check_window(&self, operator: &OperatorSpec, window: &WindowSpec, before: usize) -> Result<(), String> {
        let invalid = |what: &str| Err(format!("program: {}: {what}", operator.name));
        if operator.kind != OperatorKind::Windowed || !operator.key.is_empty() {
            return invalid("only an operator of kind windowed has windows, and it has no other key");
        }
        if !(1..=window.size).contains(&window.advance)
            || window.size > MOST_TS
            || !(0..=MOST_TS).contains(&window.delay)
            || window.idle.is_some_and(|idle| !(0..=MOST_TS).contains(&idle))
        {
            return invalid("advance, size, delay or idle of the window is out of bounds");
        }
        if window.single && (window.delay, window.idle) != (0, Some(0)) {
            return invalid("a single window slides with the latest row: its delay and its idle must be 0");
        }
        if window.session && (!window.single || window.advance != 1 || window.slide != 0) {
            return invalid("a session is a single window with advance 1 that does not slide");
        }
        if window.most.is_some_and(|most| !window.session || !(window.size..=MOST_TS).contains(&most)) {
            return invalid("only a session has a greatest length, which is at least its gap");
        }
        if window.every.is_some_and(|every| !(1..=MOST_EVERY).contains(&every)) {
            return invalid("the number of keys of every row is out of bounds");
        }
        if window.of.len() != operator.inputs.len() || window.of.iter().any(|&stream| stream >= window.streams.len()) {
            return invalid("every input must belong to a stream");
        }
        let fits = |key: &Key, stride: usize| key.offset >= SEQ_BYTES && key.offset + key.kind.bytes() <= stride;
        for (&origin, &stream) in operator.inputs.iter().zip(&window.of) {
            if matches!(origin, Origin::Operator(index) if index >= before) {
                return invalid("an input comes from a later operator");
            }
            let stream = &window.streams[stream];
            if !fits(&stream.ts, self.stride(origin)) || matches!(stream.ts.kind, ColumnKind::F64 | ColumnKind::Text) {
                return invalid("ts must be an integer inside the rows");
            }
            if stream.keys == 0 || stream.update == 0 {
                return invalid("a kernel is missing");
            }
        }
        if !window.merge.is_empty()
            && (window.single
                || window.every.is_some()
                || window.streams.len() != 1
                || 8 * window.merge.len() != operator.state_size
                || window.result == 0)
        {
            return invalid("only states of i64 of one stream, in windows that report their end, merge");
        }
        let key = &window.key;
        if !key.stride.is_multiple_of(8)
            || key.fields.is_empty()
            || !operator.state_size.is_multiple_of(8)
            || operator.stride < SEQ_BYTES
        {
            return invalid("keys, states or outputs have an invalid size");
        }
        if key.fields.iter().any(|field| !fits(field, key.stride) || field.kind == ColumnKind::F64) {
            return invalid("a field of the key must be an integer or a text inside the key");
        }
        Ok(())
    }

    fn check(&self) -> Result<(), RunError> {
        let invalid = |what: String| Err(RunError::Invalid(format!("program: {what}")));
        if self.event.stride < SEQ_BYTES {
            return invalid(format!("event rows of {} bytes are too small for seq", self.event.stride));
        }
        for (index, operator) in self.operators.iter().enumerate() {
            let name = &operator.name;
            if !operator.growing.iter().all(|head| head.fits(operator.state_size) && head.offset.is_multiple_of(8)) {
                return invalid(format!("{name}: a container lies outside the states"));
            }
            if let Some(window) = &operator.window {
                self.check_window(operator, window, index).map_err(RunError::Invalid)?;
                continue;
            }
            let Some(stride) = self.united(&operator.inputs, index) else {
                return invalid(format!("the inputs of {name} must be earlier operators, with rows of one size"));
            };
            if operator.stride < SEQ_BYTES {
                return invalid(format!("rows of {name} are too small for seq"));
            }
            if operator.kind == OperatorKind::Windowed {
                return invalid(format!("windowed operator {name} has no windows"));
            }
            if operator.kernel == 0 {
                return invalid(format!("{name} has no kernel"));
            }
            match (operator.kind == OperatorKind::Partitioned, operator.key.is_empty()) {
                (true, true) => return invalid(format!("partitioned operator {name} has no key")),
                (false, false) => return invalid(format!("{name} has a key but is not partitioned")),
                _ => {}
            }
            if operator.key.iter().any(|key| key.kind == ColumnKind::F64 || key.offset + key.kind.bytes() > stride) {
                return invalid(format!("the key of {name} must be an integer or a text inside its input rows"));
            }
        }
        for table in &self.tables {
            if table.read.0 > table.read.1 || table.read.1 > table.stride {
                return invalid(format!("a READ of table {} reaches outside its rows", table.name));
            }
            if table.stride == 0 || table.rows > u32::MAX as usize || table.rows.checked_mul(table.stride).is_none() {
                return invalid(format!("table {} has an invalid size", table.name));
            }
            if !table
                .growing
                .iter()
                .all(|head| head.fits(table.stride) && head.columns.is_empty() && head.texts.is_empty() && !head.plain)
            {
                return invalid(format!("a container of table {} lies outside its rows or is a queue", table.name));
            }
        }
        if self.partitions == 0 {
            return invalid("partitions must be at least 1".into());
        }
        match self.kind {
            ProgramKind::Dataflow if self.operators.is_empty() => {
                return invalid("a dataflow needs an operator".into());
            }
            ProgramKind::Dataflow if self.transaction.is_some() => {
                return invalid("a dataflow cannot have a transaction".into());
            }
            ProgramKind::Transaction => {
                let Some(transaction) = &self.transaction else { return invalid("the transaction is missing".into()) };
                if [transaction.plan, transaction.apply, transaction.post, transaction.execute, transaction.place]
                    .contains(&0)
                {
                    return invalid(format!("transaction {} lacks a kernel", transaction.name));
                }
                if self.tables.is_empty() || self.tables.len() > usize::from(u8::MAX) {
                    return invalid("a transaction needs 1 to 255 tables".into());
                }
            }
            ProgramKind::Dataflow => {
                if self.united(&self.outputs, self.operators.len()).is_none() {
                    return invalid("the inputs of the sink must be known operators, with rows of one size".into());
                }
            }
        }
        if self.unordered.iter().flatten().any(|&column| column >= self.columns.len()) {
            return invalid("`unordered` names a column that does not exist".into());
        }
        self.hasher().map(|_| ())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::program::options::Options;

    const WORDS: &str = r#"{"kind": "dataflow", "event": {"stride": 16}, "operators": [
        {"kind": "stateless", "name": "split", "inputs": [-1], "kernel": 1, "stride": 24},
        {"kind": "partitioned", "name": "count", "inputs": [0], "kernel": 1, "flush": 0, "stride": 32,
         "key": [{"kind": "text", "offset": 8}], "state_size": 8}],
        "outputs": [1], "columns": [{"kind": "text", "offset": 8, "count": 1}, {"kind": "i64", "offset": 16, "count": 1}]}"#;

    #[test]
    fn the_readme_example_parses() {
        // SAFETY: nothing is run.
        let program = unsafe { Program::parse(WORDS) }.unwrap();
        assert_eq!(program.output_stride(), 32);
        assert_eq!(program.operators[1].key[0].kind, ColumnKind::Text);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (from, to) in [
            (r#""offset": 16"#, r#""offset": 25"#),
            (r#""key": [{"kind": "text", "offset": 8}], "#, ""),
            (r#""key": [{"kind": "text", "offset": 8}]"#, r#""key": [{"kind": "text", "offset": 20}]"#),
            (r#""key": [{"kind": "text""#, r#""key": [{"kind": "f64""#),
            (r#""stride": 16"#, r#""stride": 4"#),
            (r#""kernel": 1"#, r#""kernel": 0"#),
            (r#""kind": "dataflow""#, r#""kind": "transaction""#),
            (r#""event": {"#, r#""partitions": 0, "event": {"#),
            (r#""inputs": [0]"#, r#""inputs": [1]"#),
            (r#""inputs": [0]"#, r#""inputs": []"#),
            (r#""inputs": [0]"#, r#""inputs": [0, -1]"#),
            (r#""outputs": [1]"#, r#""outputs": [2]"#),
            (r#""outputs": [1]"#, r#""outputs": [1, 0]"#),
            (r#""outputs": [1], "#, ""),
        ] {
            assert!(WORDS.contains(from));
            // SAFETY: as above.
            let program = unsafe { Program::parse(&WORDS.replace(from, to)) };
            assert!(matches!(program, Err(RunError::Invalid(_))), "{from} -> {to}");
        }
        for options in
            [r#"{"threads": 0}"#, r#"{"batch": 0}"#, r#"{"rate": -1}"#, r#"{"idle": "sleep"}"#, r#"{"colour": 1}"#]
        {
            assert!(matches!(Options::parse(options), Err(RunError::Invalid(_))), "{options}");
        }
    }
}
