//! How thoroughly tests look: `make test` sets less in the environment, and `make test-full` leaves each test its own numbers.

/// So many cases of a property test, or `PROPTEST_CASES` if that is fewer.
#[cfg(not(loom))]
pub fn cases(own: u32) -> proptest::test_runner::Config {
    use proptest::test_runner::Config;
    let most = std::env::var_os("PROPTEST_CASES").map_or(own, |_| Config::default().cases);
    Config::with_cases(own.min(most))
}

/// Every pair of one and the other. If `PROPTEST_CASES` is set, only enough pairs that each of either is in one.
#[cfg(not(loom))]
pub fn pairs(some: &[usize], others: &[usize]) -> Vec<(usize, usize)> {
    let step = if std::env::var_os("PROPTEST_CASES").is_some() { some.len().min(others.len()) } else { 1 };
    let pairs = some.iter().enumerate().flat_map(|(i, &value)| {
        others.iter().enumerate().filter(move |(j, _)| (i + j) % step == 0).map(move |(_, &other)| (value, other))
    });
    pairs.collect()
}

/// Runs a model under every interleaving with up to so many preemptions, or `LOOM_MAX_PREEMPTIONS` if that is fewer. Without
/// a bound it would take hours.
#[cfg(loom)]
pub fn interleave(own: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.map_or(own, |most| own.min(most)));
    // Threads that wait for each other look often.
    builder.max_branches = 20_000;
    builder.check(model);
}
