//! What Python hands over as JSON: the program, layouts and kernel addresses.

use serde::Deserialize;

use crate::error::RunError;
use crate::output::digest::Hasher;
use crate::rows::block::SEQ_BYTES;
use crate::rows::column::{Column, ColumnKind};

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
    /// Of a dataflow: who puts out what the sink takes, in this order.
    #[serde(default)]
    pub outputs: Vec<Origin>,
    #[serde(default)]
    pub tables: Vec<TableSpec>,
    #[serde(default)]
    pub transaction: Option<TransactionSpec>,
    /// Equal ranges of rows that every table is cut into, where a scheme works by partition.
    #[serde(default = "partitions")]
    pub partitions: usize,
    pub columns: Vec<Column>,
    /// The numbers of those columns that have to agree when outputs come in no order; None: nobody has said so.
    #[serde(default)]
    pub unordered: Option<Vec<usize>>,
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

/// An operator of a dataflow; `stride` is the size of its output rows, `kernel` and `flush` are addresses.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorSpec {
    pub kind: OperatorKind,
    pub name: String,
    /// Whose rows it takes: of each event, those of the first come first.
    pub inputs: Vec<Origin>,
    pub kernel: u64,
    #[serde(default)]
    pub flush: u64,
    pub stride: usize,
    #[serde(default)]
    pub key: Option<Key>,
    #[serde(default)]
    pub state_size: usize,
}

/// The key field in the operator's *input* rows.
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
    /// The bytes of a row that a READ brings along: first and behind the last.
    pub read: (usize, usize),
}

/// Where in a row the head of a growing container lies, and whether an index stands behind its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Growing {
    pub offset: usize,
    pub indexed: bool,
}

impl Growing {
    /// Bytes of a head.
    const HEAD: usize = 32;
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
    /// What cannot be checked is the caller's word: its addresses are kernels as README.md has them, for the layouts that it
    /// states, and outlive every run of the program.
    pub unsafe fn parse(json: &str) -> Result<Self, RunError> {
        let program: Self =
            serde_json::from_str(json).map_err(|error| RunError::Invalid(format!("program: {error}")))?;
        program.check()?;
        Ok(program)
    }

    /// Size of an output row.
    pub fn output_stride(&self) -> usize {
        match &self.transaction {
            Some(transaction) => transaction.stride,
            None => self.outputs.first().map_or(self.event.stride, |&origin| self.stride(origin)),
        }
    }

    /// Size of the rows that come from there.
    pub fn stride(&self, origin: Origin) -> usize {
        match origin {
            Origin::Events => self.event.stride,
            Origin::Operator(index) => self.operators[index].stride,
        }
    }

    /// The stride of rows that come from several of the first `before` operators; None unless they have the same.
    fn united(&self, origins: &[Origin], before: usize) -> Option<usize> {
        let known = |origin: &Origin| !matches!(origin, Origin::Operator(index) if *index >= before);
        let stride = self.stride(*origins.first().filter(|origin| known(origin))?);
        origins.iter().all(|origin| known(origin) && self.stride(*origin) == stride).then_some(stride)
    }

    pub fn hasher(&self) -> Result<Hasher, RunError> {
        Hasher::new(&self.columns, self.output_stride())
    }

    /// The hasher of outputs that come in no order.
    ///
    /// # Errors
    /// `Invalid`: the program does not say what has to agree then.
    pub fn unordered_hasher(&self) -> Result<Hasher, RunError> {
        match &self.unordered {
            Some(columns) => Ok(self.hasher()?.unordered(columns)),
            None => Err(RunError::Invalid("the application does not say what agrees without order".into())),
        }
    }

    fn check(&self) -> Result<(), RunError> {
        let invalid = |what: String| Err(RunError::Invalid(format!("program: {what}")));
        if self.event.stride < SEQ_BYTES {
            return invalid(format!("event rows of {} bytes have no room for seq", self.event.stride));
        }
        for (index, operator) in self.operators.iter().enumerate() {
            let name = &operator.name;
            let Some(stride) = self.united(&operator.inputs, index) else {
                return invalid(format!("{name} takes rows of later operators, of several sizes or of nobody"));
            };
            if operator.stride < SEQ_BYTES {
                return invalid(format!("rows of {name} have no room for seq"));
            }
            if operator.kernel == 0 {
                return invalid(format!("{name} has no kernel"));
            }
            match (operator.kind, operator.key) {
                (OperatorKind::Partitioned, None) => return invalid(format!("{name} has no key")),
                (OperatorKind::Partitioned, Some(key)) => {
                    if key.kind == ColumnKind::F64 || key.offset + key.kind.bytes() > stride {
                        return invalid(format!("the key of {name} is no integer or text inside of its input rows"));
                    }
                }
                (_, Some(_)) => return invalid(format!("{name} has a key but is not partitioned")),
                (_, None) => {}
            }
        }
        for table in &self.tables {
            if table.read.0 > table.read.1 || table.read.1 > table.stride {
                return invalid(format!("a READ of table {} goes beyond its rows", table.name));
            }
            if table.stride == 0 || table.rows > u32::MAX as usize || table.rows.checked_mul(table.stride).is_none() {
                return invalid(format!("table {} has an impossible size", table.name));
            }
            if table
                .growing
                .iter()
                .any(|head| head.offset.checked_add(Growing::HEAD).is_none_or(|end| end > table.stride))
            {
                return invalid(format!("a container of table {} lies beyond its rows", table.name));
            }
        }
        if self.partitions == 0 {
            return invalid("partitions must be positive".into());
        }
        match self.kind {
            ProgramKind::Dataflow if self.operators.is_empty() => return invalid("no operators".into()),
            ProgramKind::Dataflow if self.transaction.is_some() => {
                return invalid("a dataflow has no transaction".into());
            }
            ProgramKind::Transaction => {
                let Some(transaction) = &self.transaction else { return invalid("no transaction".into()) };
                if [transaction.plan, transaction.apply, transaction.post, transaction.execute, transaction.place]
                    .contains(&0)
                {
                    return invalid(format!("{} lacks a kernel", transaction.name));
                }
                if self.tables.is_empty() || self.tables.len() > usize::from(u8::MAX) {
                    return invalid("a transaction needs 1 to 255 tables".into());
                }
            }
            ProgramKind::Dataflow => {
                if self.united(&self.outputs, self.operators.len()).is_none() {
                    return invalid("the sink takes rows of unknown operators, of several sizes or of nobody".into());
                }
            }
        }
        if self.unordered.iter().flatten().any(|&column| column >= self.columns.len()) {
            return invalid("a column that there is not has to agree without order".into());
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
         "key": {"kind": "text", "offset": 8}, "state_size": 8}],
        "outputs": [1], "columns": [{"kind": "text", "offset": 8, "count": 1}, {"kind": "i64", "offset": 16, "count": 1}]}"#;

    #[test]
    fn the_readme_example_parses() {
        // SAFETY: nothing is run.
        let program = unsafe { Program::parse(WORDS) }.unwrap();
        assert_eq!(program.output_stride(), 32);
        assert_eq!(program.operators[1].key.unwrap().kind, ColumnKind::Text);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (from, to) in [
            (r#""offset": 16"#, r#""offset": 25"#),
            (r#""key": {"kind": "text", "offset": 8}, "#, ""),
            (r#""key": {"kind": "text", "offset": 8}"#, r#""key": {"kind": "text", "offset": 20}"#),
            (r#""key": {"kind": "text""#, r#""key": {"kind": "f64""#),
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
