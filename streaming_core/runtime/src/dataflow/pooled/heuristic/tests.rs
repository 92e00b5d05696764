use super::places::Places;
use super::*;

/// A place as a heuristic sees it.
#[derive(Debug, Clone, Copy)]
struct Load {
    schedulable: bool,
    /// I, w, c, s and T.
    queue: f64,
    workers: usize,
    cost: Option<f64>,
    selectivity: f64,
    spent: u64,
}

const LOAD: Load = Load { schedulable: true, queue: 1.0, workers: 0, cost: Some(1.0), selectivity: 1.0, spent: 0 };
const CONSTANTS: Constants = Constants { slice: 50, capacity: 700 };

struct Loads<'a>(&'a [Load]);

impl Places for Loads<'_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn is_schedulable(&self, place: usize) -> bool {
        self.0[place].schedulable
    }

    fn queue(&self, place: usize) -> f64 {
        self.0[place].queue
    }

    fn workers(&self, place: usize) -> usize {
        self.0[place].workers
    }

    fn cost(&self, place: usize) -> Option<f64> {
        self.0[place].cost
    }

    fn selectivity(&self, place: usize) -> f64 {
        self.0[place].selectivity
    }

    fn spent(&self, place: usize) -> u64 {
        self.0[place].spent
    }

    fn per_event(&self, place: usize) -> f64 {
        let rows: f64 = self.0[..place].iter().map(|load| load.selectivity).product();
        rows * self.0[place].cost.unwrap_or(0.0)
    }
}

fn choose(name: &str, loads: &[Load]) -> Option<usize> {
    let (_, make) = HEURISTICS.iter().find(|(known, _)| *known == name).unwrap();
    make(CONSTANTS).choose(&Loads(loads))
}

/// The place of the least value, or of the greatest; of several the last.
fn last_of(values: &[f64], is_better: fn(f64, f64) -> bool) -> usize {
    (0..values.len()).reduce(|best, place| if is_better(values[best], values[place]) { best } else { place }).unwrap()
}

#[test]
fn ct_goes_where_normalised_throughput_is_lowest() {
    // T, w, c, s; slices of 50 ns. An event becomes 4 rows behind the first place, and 1 behind the second.
    let loads = [
        Load { spent: 600, workers: 1, cost: Some(10.0), selectivity: 4.0, ..LOAD },
        Load { spent: 900, workers: 2, cost: Some(5.0), selectivity: 0.25, ..LOAD },
        Load { spent: 100, workers: 0, cost: Some(2.0), selectivity: 1.0, ..LOAD },
    ];
    let n = [
        (600.0 + 1.0 * 50.0) / (10.0 * 4.0),
        (900.0 + 2.0 * 50.0) / (5.0 * 4.0 * 0.25),
        (100.0 + 0.0 * 50.0) / (2.0 * 4.0 * 0.25 * 1.0),
    ];
    assert_eq!(n, [16.25, 200.0, 50.0]);
    assert_eq!(choose("ct", &loads), Some(0));
    // Without the cumulative selectivity it would be the last one, without the time spent as well.
    let mut later = loads;
    later[0].spent = 2_400;
    assert_eq!((2_400.0 + 50.0) / 40.0, 61.25);
    assert_eq!(choose("ct", &later), Some(2));
    // Workers that are allotted count as a slice each.
    later[2].workers = 1;
    assert_eq!((100.0 + 50.0) / 2.0, 75.0);
    assert_eq!(choose("ct", &later), Some(0));
}

#[test]
fn ct_finds_out_what_nobody_knows_and_leaves_what_nothing_leaves() {
    let busy = Load { spent: 1_000, ..LOAD };
    let unknown = Load { cost: None, ..LOAD };
    assert_eq!(choose("ct", &[busy, unknown, busy]), Some(1));
    assert_eq!(choose("ct", &[busy, Load { workers: 1, ..unknown }, busy]), Some(2));
    let filter = Load { selectivity: 0.0, spent: 1, ..LOAD };
    assert_eq!(choose("ct", &[busy, filter]), Some(0));
    // At the beginning of a window.
    assert_eq!(choose("ct", &[LOAD, Load { schedulable: false, ..LOAD }, LOAD]), Some(2));
    assert_eq!(choose("ct", &[LOAD, Load { workers: 1, ..LOAD }]), Some(0));
}

#[test]
fn lp_goes_to_the_last_queue_that_is_not_empty() {
    let much = Load { queue: 900.0, cost: Some(9.0), ..LOAD };
    assert_eq!(choose("lp", &[much, Load { workers: 3, ..LOAD }, Load { schedulable: false, ..LOAD }]), Some(1));
}

#[test]
fn et_goes_where_the_queue_takes_longest_with_one_worker_more() {
    let of = |queue, cost, workers| Load { queue, cost: Some(cost), workers, ..LOAD };
    let loads = [of(300.0, 2.0, 0), of(200.0, 4.0, 0), of(100.0, 7.0, 0)];
    assert_eq!(last_of(&[300.0 * 2.0 / 1.0, 200.0 * 4.0 / 1.0, 100.0 * 7.0 / 1.0], |a, b| a > b), 1);
    assert_eq!(choose("et", &loads), Some(1));
    let shared = [of(300.0, 2.0, 0), of(200.0, 4.0, 2), of(100.0, 7.0, 0)];
    assert_eq!(last_of(&[300.0 * 2.0 / 1.0, 200.0 * 4.0 / 3.0, 100.0 * 7.0 / 1.0], |a, b| a > b), 2);
    assert_eq!(choose("et", &shared), Some(2));
    // A place that no worker has tried comes first, until a worker is there.
    let unknown = Load { cost: None, ..LOAD };
    assert_eq!(choose("et", &[unknown, of(200.0, 4.0, 0)]), Some(0));
    assert_eq!(choose("et", &[Load { workers: 1, ..unknown }, of(200.0, 4.0, 0)]), Some(1));
}

#[test]
fn qst_throttles_by_the_share_of_the_capacity() {
    // cs is 4, 2 and 1, of a capacity of 700: queues of 400, 200 and 100 behind the places.
    let [first, second, third] = [4.0, 0.5, 0.5].map(|selectivity| Load { selectivity, ..LOAD });
    assert_eq!([4.0, 2.0, 1.0].map(|cs| 700.0 * cs / (4.0 + 2.0 + 1.0)), [400.0, 200.0, 100.0]);
    let with = |queues: [f64; 2]| {
        choose("qst", &[first, Load { queue: queues[0], ..second }, Load { queue: queues[1], ..third }])
    };
    assert_eq!(with([399.0, 1.0]), Some(0));
    assert_eq!(with([400.0, 199.0]), Some(1));
    assert_eq!(with([400.0, 200.0]), Some(2));
    // The queue behind is others' to empty, and there is nothing else.
    let blocked = Load { schedulable: false, queue: 400.0, ..second };
    assert_eq!(choose("qst", &[first, blocked, Load { schedulable: false, ..third }]), None);
    // What nothing leaves is worked at all the same.
    assert_eq!(
        choose("qst", &[Load { selectivity: 0.0, ..LOAD }, Load { queue: 0.0, schedulable: false, ..LOAD }]),
        Some(0)
    );
}

#[test]
fn affinity_goes_where_throughput_is_lowest() {
    let of = |workers, cost| Load { workers, cost: Some(cost), ..LOAD };
    // 2 workers by 1 ns, 1 by 9 ns, 1 by 4 ns an event.
    assert_eq!(choose("affinity", &[of(2, 1.0), of(1, 9.0), of(1, 4.0)]), Some(1));
    assert_eq!(choose("affinity", &[of(2, 1.0), of(4, 9.0), of(1, 4.0)]), Some(2));
    // A place without a worker comes first, whatever it costs; of two such places, the stage.
    assert_eq!(choose("affinity", &[of(0, 1.0), of(1, 9.0), of(1, 4.0)]), Some(0));
    assert_eq!(choose("affinity", &[of(0, 1.0), of(0, 9.0), of(0, 0.0)]), Some(1));
    // Of two steps the later.
    assert_eq!(choose("affinity", &[of(0, 1.0), Load { schedulable: false, ..of(0, 9.0) }, of(0, 0.0)]), Some(2));
}

#[test]
fn only_schedulable_places_are_chosen_and_one_is_if_there_is_any() {
    for (name, _) in HEURISTICS {
        for places in [1, 3, 5, 7] {
            for mask in 0_u32..1 << places {
                let loads: Vec<_> = (0..places)
                    .map(|place| Load {
                        schedulable: mask >> place & 1 == 1,
                        queue: 5.0,
                        workers: place % 3,
                        cost: Some(place as f64),
                        ..LOAD
                    })
                    .collect();
                match choose(name, &loads) {
                    Some(place) => assert!(loads[place].schedulable, "{name} {loads:?}"),
                    None => assert_eq!(mask, 0, "{name}"),
                }
            }
        }
    }
}
