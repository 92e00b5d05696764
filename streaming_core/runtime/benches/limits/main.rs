//! Hand-written loops of eight applications: what a systems programmer would write for one thread, with default parameters
//! built in. `bench --suite limits` races the engine against them. The loop of scalejoin takes its parameters and a number of
//! threads; `bench --suite stretch` has it as the ad-hoc join.
//!
//! A loop reads the same rows as the engine, and executes one event after the other. It adds the hash of every output to the
//! digest (ABI.md), so the caller can compare results.
//!
//! Usage: `limits APP FILE [THREADS KEYS SIZE]`, the numbers for scalejoin. For every line on standard input, it runs once on fresh state and prints one line. The line has
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
use joins::Join;
use output::Digest;

/// Runs all events on fresh state.
type Loop = Box<dyn Fn(&Input) -> Digest>;

/// The loop of an application, with its numbers.
fn find(app: &str, numbers: &[u64]) -> Option<Loop> {
    Some(match (app, numbers) {
        ("gs", []) => Box::new(grep::run),
        ("sl", []) => Box::new(ledger::run),
        ("ob", []) => Box::new(books::run),
        ("wc", []) => Box::new(words::run),
        ("fd", []) => Box::new(fraud::run),
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
        line.map_err(|error| error.to_string())?;
        let since = Instant::now();
        let digest = run(&input);
        let nanoseconds = since.elapsed().as_nanos();
        writeln!(output, "{nanoseconds} {} {:016x}", digest.rows, digest.sum).map_err(|error| error.to_string())?;
        output.flush().map_err(|error| error.to_string())?;
    }
    Ok(())
}
