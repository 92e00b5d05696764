use super::places::Places;
use super::*;

/// Per place: has work, batches that wait, other workers, cost.
struct Given<'a>(&'a [(bool, u64, usize, f64)]);

impl Places for Given<'_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn has_work(&self, place: usize) -> bool {
        self.0[place].0
    }

    fn queue(&self, place: usize) -> u64 {
        self.0[place].1
    }

    fn workers(&self, place: usize) -> usize {
        self.0[place].2
    }

    fn cost(&self, place: usize) -> f64 {
        self.0[place].3
    }
}

fn choose(name: &str, places: &[(bool, u64, usize, f64)]) -> Option<usize> {
    let (_, make) = HEURISTICS.iter().find(|(known, _)| *known == name).unwrap();
    make(places.len(), 8).choose(&Given(places))
}

#[test]
fn ct_goes_where_throughput_is_lowest() {
    // 2 workers by 1 ns, 1 by 9 ns, 1 by 4 ns an event.
    assert_eq!(choose("ct", &[(true, 1, 2, 1.0), (true, 1, 1, 9.0), (true, 1, 1, 4.0)]), Some(1));
    assert_eq!(choose("ct", &[(true, 1, 2, 1.0), (true, 1, 4, 9.0), (true, 1, 1, 4.0)]), Some(2));
    // Nobody is there yet, whatever it costs; of two such places the stage.
    assert_eq!(choose("ct", &[(true, 1, 0, 1.0), (true, 1, 1, 9.0), (true, 1, 1, 4.0)]), Some(0));
    assert_eq!(choose("ct", &[(true, 1, 0, 1.0), (true, 1, 0, 9.0), (true, 1, 0, 0.0)]), Some(1));
    // Of two steps the later.
    assert_eq!(choose("ct", &[(true, 1, 0, 1.0), (false, 1, 0, 9.0), (true, 1, 0, 0.0)]), Some(2));
}

#[test]
fn lp_goes_to_the_end() {
    assert_eq!(choose("lp", &[(true, 9, 0, 9.0), (true, 1, 3, 1.0), (false, 1, 0, 1.0)]), Some(1));
}

#[test]
fn et_goes_where_the_queue_takes_longest() {
    assert_eq!(choose("et", &[(true, 3, 0, 2.0), (true, 2, 0, 4.0), (true, 1, 0, 7.0)]), Some(1));
    // Shared with two others it takes less.
    assert_eq!(choose("et", &[(true, 3, 0, 2.0), (true, 2, 2, 4.0), (true, 1, 0, 7.0)]), Some(2));
    assert_eq!(choose("et", &[(true, 1, 0, 0.0), (true, 2, 0, 4.0), (true, 1, 0, 7.0)]), Some(0));
}

#[test]
fn qst_stays_in_front_until_the_queue_behind_is_full() {
    // Room for 8 batches, 3 places: two batches fill a queue.
    assert_eq!(choose("qst", &[(true, 8, 0, 1.0), (true, 1, 0, 1.0), (true, 1, 0, 1.0)]), Some(0));
    assert_eq!(choose("qst", &[(true, 8, 0, 1.0), (true, 2, 0, 1.0), (true, 1, 0, 1.0)]), Some(1));
    assert_eq!(choose("qst", &[(true, 8, 0, 1.0), (true, 2, 0, 1.0), (true, 2, 0, 1.0)]), Some(2));
    // The queue behind is others' to empty.
    assert_eq!(choose("qst", &[(true, 8, 0, 1.0), (false, 2, 0, 1.0), (false, 0, 0, 1.0)]), Some(0));
}

#[test]
fn only_places_with_work_are_chosen_and_one_is_if_there_is_any() {
    for (name, _) in HEURISTICS {
        for places in [1, 3, 5, 7] {
            for mask in 0_u32..1 << places {
                let given: Vec<_> =
                    (0..places).map(|place| (mask >> place & 1 == 1, 5, place % 3, place as f64)).collect();
                match choose(name, &given) {
                    Some(place) => assert!(given[place].0, "{name} {given:?}"),
                    None => assert_eq!(mask, 0, "{name}"),
                }
            }
        }
    }
}
