//! Hand-written loops of eight applications: what a systems programmer would write for one thread, with default parameters
//! built in. `bench --suite limits` races the engine against them.
//!
//! A loop reads the same rows as the engine, and executes one event after the other. It adds the hash of every output to the
//! digest (ABI.md), so the caller can compare results.
//!
//! Usage: `limits APP FILE`. For every line on standard input, it runs once on fresh state and prints one line. The line has
//! the nanoseconds, the number of outputs and the sum of their hashes, divided by blanks.

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

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::Instant;

use input::Input;
use output::Digest;

/// Runs all events on fresh state.
type Loop = fn(&Input) -> Digest;

const LOOPS: [(&str, Loop); 8] = [
    ("gs", grep::run),
    ("sl", ledger::run),
    ("ob", books::run),
    ("wc", words::run),
    ("fd", fraud::run),
    ("sd", spikes::run),
    ("scalejoin", joins::run),
    ("wordcount", tweets::run),
];

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
    let [app, file] = arguments else { return Err("usage: limits APP FILE".into()) };
    let known = LOOPS.map(|(name, _)| name).join(", ");
    let run = LOOPS.iter().find(|(name, _)| name == app).ok_or(format!("unknown application {app}; known: {known}"))?.1;
    let input = Input::read(file).map_err(|error| format!("{file}: {error}"))?;
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        line.map_err(|error| error.to_string())?;
        let since = Instant::now();
        let digest = run(&input);
        let nanoseconds = since.elapsed().as_nanos();
        writeln!(output, "{nanoseconds} {} {:016x}", digest.rows, digest.sum).map_err(|error| error.to_string())?;
        output.flush().map_err(|error| error.to_string())?;
    }
    Ok(())
}
