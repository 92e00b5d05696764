//! Hand-written loops of eight applications: what a systems programmer would write for one thread, with default parameters
//! built in. `bench --suite scaling` races the engine against them. The loop of scalejoin takes its parameters and a number of
//! threads; `bench --suite stretch` has it as the ad-hoc join.
//!
//! A loop reads the same rows as the engine, and executes one event after the other. It adds the hash of every output to the
//! digest (ABI.md), so the caller can compare results.
//!
//! Usage: `limits APP FILE [THREADS KEYS SIZE]`, the numbers for scalejoin. For every line on standard input, it runs once
//! on fresh state, and prints one line. The line has the nanoseconds, the number of outputs and the sum of their hashes,
//! divided by blanks. For a line `keep FILE`, it also writes the outputs into that file (output.rs).

mod books;
mod fraud;
mod grep;
mod input;
mod joins;
mod ledger;
mod output;
mod spikes;
mod tweets;
mod words;

use std::fs::File;
use std::io::{self, BufRead, BufWriter, Write};
use std::process::ExitCode;
use std::time::Instant;

use input::Input;
use joins::Join;
use output::Digest;

/// Runs all events on fresh state.
type Loop<const KEEP: bool = false> = Box<dyn Fn(&Input) -> Digest<KEEP>>;

/// The loop of an application, with its numbers.
fn find(app: &str, numbers: &[u64]) -> Option<Loop> {
    Some(match (app, numbers) {
        ("gs", []) => Box::new(grep::run),
        ("sl", []) => Box::new(ledger::run),
        ("ob", []) => Box::new(books::run),
        ("fd", []) => Box::new(fraud::run),
        _ => return stream(app, numbers),
    })
}

/// The loop of an application without tables, which can keep its outputs.
fn stream<const KEEP: bool>(app: &str, numbers: &[u64]) -> Option<Loop<KEEP>> {
    Some(match (app, numbers) {
        ("wc", []) => Box::new(words::run),
        ("sd", []) => Box::new(spikes::run),
        ("scalejoin", &[threads, keys, size]) if threads > 0 && keys > 0 => {
            let join = Join { threads, keys, size: i64::try_from(size).ok()? };
            Box::new(move |input| join.run(input))
        }
        ("wordcount", []) => Box::new(tweets::run),
        _ => return None,
    })
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match start(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn start(arguments: &[String]) -> Result<(), String> {
    let [app, file, numbers @ ..] = arguments else { return Err("usage: limits APP FILE [THREADS KEYS SIZE]".into()) };
    let numbers: Result<Vec<u64>, _> = numbers.iter().map(|number| number.parse()).collect();
    let numbers = numbers.map_err(|error| error.to_string())?;
    let run = find(app, &numbers).ok_or(format!("no loop for {app} with numbers {numbers:?}"))?;
    let input = Input::read(file).map_err(|error| format!("{file}: {error}"))?;
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let since = Instant::now();
        let (rows, sum) = match line.strip_prefix("keep ") {
            Some(path) => keep(app, &numbers, &input, path)?,
            None => {
                let digest = run(&input);
                (digest.rows, digest.sum)
            }
        };
        let nanoseconds = since.elapsed().as_nanos();
        writeln!(output, "{nanoseconds} {rows} {sum:016x}").map_err(|error| error.to_string())?;
        output.flush().map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Runs once, and writes the outputs into a file. Returns their number, and the sum of their hashes.
fn keep(app: &str, numbers: &[u64], input: &Input, path: &str) -> Result<(u64, u64), String> {
    let run = stream::<true>(app, numbers).ok_or(format!("the loop of {app} does not keep its outputs"))?;
    let digest = run(input);
    let file = File::create(path).map_err(|error| format!("{path}: {error}"))?;
    digest.write(BufWriter::new(file)).map_err(|error| format!("{path}: {error}"))?;
    Ok((digest.rows, digest.sum))
}
