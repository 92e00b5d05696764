//! What Python hands over as JSON: the program (layouts and kernel addresses) and the options of a run.

use serde::Deserialize;

use crate::batch::SEQ_BYTES;
use crate::digest::{Column, ColumnKind, Hasher};
use crate::idle::Strategy;
use crate::kernel::RunError;
use crate::sink::SinkKind;

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
    pub event: Event,
    #[serde(default)]
    pub operators: Vec<Operator>,
    #[serde(default)]
    pub tables: Vec<Table>,
    #[serde(default)]
    pub transaction: Option<Transaction>,
    /// Equal ranges of rows that every table is cut into, where a scheme works by partition.
    #[serde(default = "partitions")]
    pub partitions: usize,
    pub columns: Vec<Column>,
}

fn partitions() -> usize {
    40
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub stride: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OperatorKind {
    Stateless,
    Partitioned,
    Stateful,
}

/// An operator of a dataflow chain; `stride` is the size of its output rows, `kernel` and `flush` are addresses.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operator {
    pub kind: OperatorKind,
    pub name: String,
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
pub struct Table {
    pub name: String,
    pub rows: usize,
    pub stride: usize,
    #[serde(default)]
    pub containers: bool,
    /// The bytes of a row that a READ brings along: first and behind the last.
    pub read: (usize, usize),
}

/// A state transaction: addresses of its kernels; `result_stride` bytes per READ.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transaction {
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
    pub fn parse(json: &str) -> Result<Self, RunError> {
        let program: Self =
            serde_json::from_str(json).map_err(|error| RunError::Invalid(format!("program: {error}")))?;
        program.check()?;
        Ok(program)
    }

    /// Size of an output row.
    pub fn output_stride(&self) -> usize {
        match &self.transaction {
            Some(transaction) => transaction.stride,
            None => self.operators.last().map_or(self.event.stride, |operator| operator.stride),
        }
    }

    pub fn hasher(&self) -> Result<Hasher, RunError> {
        Hasher::new(&self.columns, self.output_stride())
    }

    fn check(&self) -> Result<(), RunError> {
        let invalid = |what: String| Err(RunError::Invalid(format!("program: {what}")));
        let mut stride = self.event.stride;
        if stride < SEQ_BYTES {
            return invalid(format!("event rows of {stride} bytes have no room for seq"));
        }
        for operator in &self.operators {
            let name = &operator.name;
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
            stride = operator.stride;
        }
        for table in &self.tables {
            if table.read.0 > table.read.1 || table.read.1 > table.stride {
                return invalid(format!("a READ of table {} goes beyond its rows", table.name));
            }
            if table.stride == 0 || table.rows > u32::MAX as usize || table.rows.checked_mul(table.stride).is_none() {
                return invalid(format!("table {} has an impossible size", table.name));
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
            ProgramKind::Dataflow => {}
        }
        self.hasher().map(|_| ())
    }
}

/// How a program is run; the names are the RunSpec's.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct Options {
    pub executor: String,
    pub scheme: Option<String>,
    pub pool: Option<String>,
    pub stealing: bool,
    pub heuristic: Option<String>,
    pub queue: Option<String>,
    pub reorder: Option<String>,
    pub threads: usize,
    pub punctuation: usize,
    pub batch: usize,
    /// Events per second offered; 0 = everything is there at once.
    pub rate: f64,
    pub pin: bool,
    pub idle: Strategy,
    pub sink: SinkKind,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            executor: String::new(),
            scheme: None,
            pool: None,
            stealing: false,
            heuristic: None,
            queue: None,
            reorder: None,
            threads: 1,
            punctuation: 500,
            batch: 256,
            rate: 0.0,
            pin: false,
            idle: Strategy::Yield,
            sink: SinkKind::Digest,
        }
    }
}

impl Options {
    pub fn parse(json: &str) -> Result<Self, RunError> {
        let options: Self =
            serde_json::from_str(json).map_err(|error| RunError::Invalid(format!("options: {error}")))?;
        options.check()?;
        Ok(options)
    }

    pub fn check(&self) -> Result<(), RunError> {
        let invalid = |what: &str| Err(RunError::Invalid(format!("options: {what}")));
        if !(1..=1024).contains(&self.threads) {
            return invalid("threads must lie in 1..1024");
        }
        if self.punctuation == 0 || self.batch == 0 {
            return invalid("punctuation and batch must be positive");
        }
        if !self.rate.is_finite() || self.rate < 0.0 {
            return invalid("rate must be finite and not negative");
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const WORDS: &str = r#"{"kind": "dataflow", "event": {"stride": 16}, "operators": [
        {"kind": "stateless", "name": "split", "kernel": 1, "stride": 24},
        {"kind": "partitioned", "name": "count", "kernel": 1, "flush": 0, "stride": 32,
         "key": {"kind": "text", "offset": 8}, "state_size": 8}],
        "columns": [{"kind": "text", "offset": 8, "count": 1}, {"kind": "i64", "offset": 16, "count": 1}]}"#;

    #[test]
    fn the_readme_example_parses() {
        let program = Program::parse(WORDS).unwrap();
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
        ] {
            assert!(WORDS.contains(from));
            let program = Program::parse(&WORDS.replace(from, to));
            assert!(matches!(program, Err(RunError::Invalid(_))), "{from} -> {to}");
        }
        for options in [r#"{"threads": 0}"#, r#"{"batch": 0}"#, r#"{"rate": -1}"#, r#"{"idle": "sleep"}"#] {
            assert!(matches!(Options::parse(options), Err(RunError::Invalid(_))), "{options}");
        }
    }
}
