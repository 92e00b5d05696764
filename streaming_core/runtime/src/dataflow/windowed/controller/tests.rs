use super::*;

const PERIOD: u64 = 100_000_000;

fn seen(load: f64, n: usize, most: usize) -> Load {
    let worked = (load * n as f64 * PERIOD as f64) as u64;
    Load { period: PERIOD, replicas: n, most, worked, arrived: 1000, dealt: 1000, ..Load::default() }
}

/// STRETCH, Table IV: from 70 % to 120 % of the replicas' capacity, and to 30 %. The paper removes one replica fewer than its
/// own target allows, except in the first row, which meets the target exactly.
#[test]
fn replicas_are_those_of_table_iv() {
    let starting = [1, 5, 9, 18, 30, 40, 60, 70];
    let mut controller = Controller::new("threshold", &[]).unwrap().unwrap();
    let mut then = |load: f64| starting.map(|n| controller.decide(&seen(load, n, 72)).1);
    assert_eq!(then(1.2), [2, 9, 16, 31, 52, 69, 72, 72].map(Some));
    assert_eq!(then(0.3), [None, Some(3), Some(4), Some(8), Some(13), Some(18), Some(26), Some(31)]);
    assert_eq!(then(0.7), [None; 8]);
}

/// What waits says what the clock does not, of replicas that share their threads.
#[test]
fn replicas_that_do_not_keep_up_are_loaded() {
    let mut controller = Controller::new("threshold", &[]).unwrap().unwrap();
    let mut decide = |pending| controller.decide(&Load { pending, ..seen(0.6, 2, 8) });
    assert_eq!([decide(1000).1, decide(1001).1], [None, Some(3)]);
}

#[test]
fn there_is_one_replica_at_least_and_no_more_than_there_are() {
    let thresholds = Thresholds { upper: 90, target: 70, lower: 45 };
    assert_eq!(thresholds.wanted(0.0, 3, 4), Some(1));
    assert_eq!(thresholds.wanted(7.0, 3, 4), Some(4));
    assert_eq!((thresholds.wanted(7.0, 4, 4), thresholds.wanted(0.0, 1, 4)), (None, None));
    // Nothing is won by fewer if these had too much to do, at once.
    assert_eq!(thresholds.wanted(0.44, 2, 4), None);
}

#[test]
fn thresholds_out_of_order_are_refused() {
    for percentages in [&[70, 90, 45][..], &[90, 70, 70], &[101, 70, 45], &[90, 70, 0], &[90, 70], &[90, 70, 45, 1]] {
        assert!(matches!(Controller::new("threshold", percentages), Err(RunError::Invalid(_))), "{percentages:?}");
    }
    assert!(matches!(Controller::new("other", &[]), Err(RunError::Invalid(_))));
}

/// STRETCH, question 5: phases of constant rate, of 100 to 300 s, over 20 minutes. The join's window is a minute, and the cost
/// of a row grows with the number of rows in the window. Within a phase replicas come or go until they are enough, and then
/// their number stays: no back and forth.
#[test]
fn rates_that_change_are_followed_without_oscillation() {
    const WINDOW: usize = 600; // periods
    // Rows a second; nanoseconds of a comparison; so that some 30 replicas are needed at most.
    for (name, seed) in [("model", 1_u64), ("model", 2), ("threshold", 3), ("threshold", 4)] {
        let mut controller = Controller::new(name, &[]).unwrap().unwrap();
        let mut random = seed;
        let mut draw = |from: u64, to: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            from + (random >> 33) % (to - from + 1)
        };
        let (mut replicas, mut pending, mut window) = (1, 0.0_f64, vec![0.0; WINDOW]);
        let (mut period, mut waited) = (0, 0);
        while period < 12_000 {
            let rate = draw(500, 8_000) as f64 / 10.0;
            let mut counts = Vec::new();
            for _ in 0..draw(1_000, 3_000) {
                window[period % WINDOW] = rate;
                let cost = window.iter().sum::<f64>() / 2.0 * 6.0; // ns a row, half of the window's rows looked at
                // What comes is worked off, if replicas can.
                let can = replicas as f64 * PERIOD as f64 / cost;
                let dealt = can.min(pending + rate);
                // Measured times are not exact.
                let noise = 0.98 + draw(0, 40) as f64 / 1_000.0;
                pending = (pending + rate - dealt).max(0.0);
                let seen = Load {
                    at: period as u64 * PERIOD,
                    period: PERIOD,
                    replicas,
                    most: 64,
                    worked: (dealt * cost * noise) as u64,
                    arrived: rate as u64,
                    dealt: dealt as u64,
                    pending: pending as u64,
                };
                if let Some(wanted) = controller.decide(&seen).1 {
                    replicas = wanted;
                    counts.push(wanted);
                }
                waited += usize::from(pending > 10.0 * rate);
                period += 1;
            }
            let turns = counts.windows(3).filter(|w| (w[1] > w[0]) != (w[2] > w[1])).count();
            assert!(turns <= 2, "{name} {seed}: {counts:?}");
        }
        assert!(waited < 120, "{name} {seed}: for {waited} of 12,000 periods, more than a second's rows waited");
    }
}
