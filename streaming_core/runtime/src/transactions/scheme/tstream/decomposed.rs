//! Tests of decomposition and insertion: threads decompose events, and the chains hold their operations.

use std::ptr::null;

use crate::program::kernel::{Access, kind};
use crate::program::options::Options;
use crate::transactions::scheme::tstream::chains::{Chain, Directory};
use crate::transactions::scheme::tstream::costs::Costs;
use crate::transactions::scheme::tstream::decomposition::Decomposition;
use crate::transactions::scheme::tstream::insertion::Insertion;
use crate::transactions::scheme::tstream::layout::{Layout, Partitioning, RowName, UNIT};
use crate::transactions::scheme::tstream::operation::{Link, Operation, Role};
use crate::transactions::scheme::tstream::tasks::Tasks;

/// Threads that decompose events on a table, and on one with containers.
pub struct Decomposed {
    pub layout: Layout,
    pub partitioning: Partitioning,
    pub threads: Vec<Decomposition>,
    directory: Directory,
    tasks: Tasks,
    pub costs: Costs,
}

impl Decomposed {
    pub fn new(threads: usize) -> Self {
        let tables = r#"[{"name": "t", "rows": 4000, "stride": 16, "read": [0, 16]},
            {"name": "c", "rows": 9, "stride": 24, "read": [0, 24], "containers": true}]"#;
        let layout = Layout::new(&serde_json::from_str::<Vec<crate::program::TableSpec>>(tables).unwrap());
        Self {
            partitioning: Partitioning::new(threads),
            threads: (0..threads).map(|_| Decomposition::new(threads, vec![false, true])).collect(),
            directory: Directory::new(&layout),
            tasks: Tasks::new(&Options { threads, ..Options::default() }).unwrap(),
            costs: Costs::default(),
            layout,
        }
    }

    /// A thread decomposes events of the interval.
    pub fn decompose(&mut self, thread: usize, accesses: &[Access]) {
        let into = Insertion {
            thread,
            is_alone: self.threads.len() == 1,
            partitioning: &self.partitioning,
            layout: &self.layout,
            directory: &self.directory,
            tasks: &self.tasks,
        };
        // SAFETY: there is no other thread.
        unsafe { self.threads[thread].decompose(accesses, into, &mut self.costs) };
        self.threads[thread].finish(&self.layout);
    }

    /// Ends the interval.
    pub fn end(&mut self) {
        for chain in self.chains() {
            // SAFETY: chains in the directory are of this interval.
            self.directory.clear(&self.layout, unsafe { (*chain).name() });
        }
        self.threads.iter_mut().for_each(Decomposition::clear);
        // SAFETY: there is no other thread.
        (0..self.threads.len()).for_each(|thread| unsafe { self.tasks.clear(thread, 0) });
    }

    pub fn chain(&self, table: u8, row: u32) -> *const Chain {
        self.directory.chain(&self.layout, RowName { table, row })
    }

    /// All chains, by rows.
    pub fn chains(&self) -> Vec<*const Chain> {
        let chains = [(0, 4000), (1, 9)].map(|(table, rows)| (0..rows).map(move |row| self.chain(table, row)));
        chains.into_iter().flatten().filter(|chain| !chain.is_null()).collect()
    }

    /// The chains in the pool of each thread.
    pub fn pools(&self) -> Vec<Vec<*const Chain>> {
        // SAFETY: there is no other thread.
        let pool = |thread| unsafe { self.tasks.take(thread, 0, 0).map(|task| task.0).collect() };
        (0..self.threads.len()).map(pool).collect()
    }
}

/// The entries of a chain, in their order.
pub fn entries(chain: *const Chain) -> Vec<(Access, Role)> {
    let mut entries = Vec::new();
    // SAFETY: a test's chain, which no thread inserts into.
    unsafe {
        let mut node = (*chain).after(null());
        while !node.is_null() {
            let Operation { access, link, .. } = (*node).operation();
            entries.push((access, link.role()));
            node = (*chain).after(node);
        }
    }
    entries
}

mod chains {
    use super::*;

    fn access(event: u32, row: u32, kind: u8) -> Access {
        Access { event, row, kind, ..Access::default() }
    }

    fn events(decomposed: &Decomposed, row: u32) -> Vec<u32> {
        entries(decomposed.chain(0, row)).iter().map(|entry| entry.0.event).collect()
    }

    #[test]
    fn a_row_has_one_chain_in_event_order_whoever_inserts_first() {
        let (first, second) = (
            [access(0, 2, kind::MODIFY), access(1, 0, kind::MODIFY), access(1, 2, kind::READ)],
            [access(4, 0, kind::READ), access(5, 2, kind::MODIFY), access(5, 2, kind::READ)],
        );
        let mut decomposed = Decomposed::new(2);
        for interval in 0..3 {
            decomposed.costs = Costs::default();
            decomposed.decompose(interval % 2, &second);
            assert_eq!(events(&decomposed, 2), [5, 5], "before the first thread has come");
            decomposed.decompose((interval + 1) % 2, &first);
            assert_eq!((events(&decomposed, 2), events(&decomposed, 0)), (vec![0, 1, 5, 5], vec![1, 4]));
            let Costs { operations, chains, dependent_chains, .. } = decomposed.costs;
            assert_eq!((operations, chains, dependent_chains), (6, 2, 0));
            decomposed.end();
            assert!(decomposed.chains().is_empty());
        }
    }

    #[test]
    fn a_chain_is_in_the_pool_of_its_row_s_partition_whoever_makes_it() {
        let mut decomposed = Decomposed::new(2);
        let rows: Vec<u32> = (0..100).map(|row| row * 40).collect();
        let accesses: Vec<Access> = rows.iter().map(|&row| access(row, row, kind::READ)).collect();
        decomposed.decompose(1, &accesses[50..]);
        decomposed.decompose(0, &accesses[..50]);
        for (thread, pool) in decomposed.pools().into_iter().enumerate() {
            let mut pool: Vec<u32> = pool.into_iter().map(|chain| entries(chain)[0].0.row).collect();
            pool.sort_unstable();
            let of = |row| decomposed.partitioning.of(RowName { table: 0, row });
            assert_eq!(pool, rows.iter().copied().filter(|&row| of(row) == thread).collect::<Vec<_>>());
            assert!(pool.len() > 20);
        }
    }

    #[test]
    fn chains_that_events_depend_on_or_that_depend_on_others_are_marked() {
        let mut decomposed = Decomposed::new(1);
        let first = [access(0, 1, kind::CONDITION), access(0, 2, kind::MODIFY), access(1, 3, kind::MODIFY)];
        decomposed.decompose(0, &first);
        decomposed.decompose(0, &[access(2, 2, kind::READ), access(3, 1, kind::MODIFY), access(4, 3, kind::READ)]);
        // SAFETY: there is no other thread.
        let is_plain = |row| unsafe { (*decomposed.chain(0, row)).is_plain() };
        assert_eq!([1, 2, 3].map(is_plain), [false, false, true]);
        assert_eq!((decomposed.costs.chains, decomposed.costs.dependent_chains), (3, 1));
    }

    #[test]
    fn what_was_passed_before_a_round_does_not_hang_on_the_round() {
        let chain = Chain::default();
        let passed = |round| (0..9).filter(|&event| chain.has_passed(event, round)).count();
        assert_eq!((passed(0), passed(1)), (0, 0));
        for (round, stopped) in [(0, 2), (1, 2), (2, 6)] {
            let before = passed(round);
            chain.stop(round, Some(stopped));
            assert_eq!((passed(round), passed(round + 1)), (before, stopped as usize + 1));
        }
        chain.stop(3, None);
        assert_eq!((passed(3), passed(4), passed(9)), (7, 9, 9), "it is done");
    }
}

mod decomposition {
    use super::*;

    fn access(event: u32, row: u32, table: u8, kind: u8) -> Access {
        Access { event, row, table, kind, ..Access::default() }
    }

    fn decomposed(accesses: &[Access]) -> Decomposed {
        let mut decomposed = Decomposed::new(1);
        for _ in 0..2 {
            decomposed.end();
            decomposed.decompose(0, accesses);
        }
        decomposed
    }

    /// Event, row, kind and role of each entry, by chains.
    fn entries(decomposed: &Decomposed) -> Vec<(u32, u32, u8, Role)> {
        let entries = decomposed.chains().into_iter().flat_map(super::entries);
        entries.map(|(access, role)| (access.event, access.row, access.kind, role)).collect()
    }

    #[test]
    fn a_link_keeps_role_and_number() {
        for role in [Role::Plain, Role::Own(0), Role::Dependent(7), Role::Version((1 << 29) - 1), Role::Watched] {
            assert_eq!(Link::new(role).role(), role);
        }
    }

    #[test]
    fn an_operation_depends_on_the_rows_of_its_event_s_conditions() {
        let decomposed = decomposed(&[
            access(3, 1, 0, kind::CONDITION),
            access(3, 1, 0, kind::MODIFY),
            access(3, 2, 0, kind::MODIFY),
            access(4, 5, 0, kind::MODIFY),
            access(4, 6, 0, kind::READ),
            access(5, 6, 0, kind::CONDITION),
            access(5, 7, 0, kind::CONDITION),
            access(5, 7, 0, kind::READ),
        ]);
        let wanted = [
            (3, 1, kind::CONDITION, Role::Version(0)),
            (3, 1, kind::MODIFY, Role::Own(0)),
            (3, 2, kind::MODIFY, Role::Dependent(0)),
            (4, 5, kind::MODIFY, Role::Plain),
            (4, 6, kind::READ, Role::Plain),
            (5, 6, kind::CONDITION, Role::Version(1)),
            (5, 7, kind::CONDITION, Role::Version(2)),
            (5, 7, kind::READ, Role::Dependent(1)),
        ];
        assert_eq!((entries(&decomposed), decomposed.costs.operations), (wanted.to_vec(), 2 * 5));
        let thread = &decomposed.threads[0];
        // Conditions name the slots of their versions.
        let rows = |group| thread.conditions(group).0.iter().map(|condition| condition.row).collect::<Vec<_>>();
        assert_eq!((rows(0), rows(1)), (vec![0], vec![1, 2]));
        assert_eq!(thread.seen(1), [decomposed.chain(0, 6), decomposed.chain(0, 7)]);
        assert!(thread.has_groups() && !thread.is_shared);
        // SAFETY: the slots are those of conditions on rows of table 0.
        let address = |slot| unsafe { thread.version(0, slot, &decomposed.layout) as usize };
        assert_eq!((address(1) - address(0), address(2) - address(0)), (16, 32));
    }

    #[test]
    fn conditions_are_operations_where_walking_their_chain_evaluates_them() {
        let one_row = [access(0, 1, 0, kind::CONDITION), access(0, 1, 0, kind::MODIFY)];
        let alone = decomposed(&one_row);
        assert_eq!(entries(&alone), [(0, 1, kind::CONDITION, Role::Plain), (0, 1, kind::MODIFY, Role::Plain)]);
        assert!(!alone.threads[0].has_groups() && !alone.threads[0].is_shared, "one chain decides the event");

        let nothing_else = decomposed(&[access(1, 1, 0, kind::CONDITION), access(1, 2, 0, kind::CONDITION)]);
        assert!(entries(&nothing_else).iter().all(|entry| entry.3 == Role::Plain));
        let thread = &nothing_else.threads[0];
        assert!(!thread.has_groups() && thread.is_shared, "two chains decide the event");

        let containers = decomposed(&[access(2, 1, 1, kind::CONDITION), access(2, 2, 0, kind::MODIFY)]);
        let wanted = [(2, 2, kind::MODIFY, Role::Dependent(0)), (2, 1, kind::CONDITION, Role::Watched)];
        assert_eq!(entries(&containers), wanted);
        let (conditions, has_others) = containers.threads[0].conditions(0);
        assert!(conditions.is_empty() && has_others && containers.threads[0].is_shared);
    }

    #[test]
    fn slots_next_to_each_other_are_of_one_partition() {
        let mut decomposed = Decomposed::new(2);
        let rows: Vec<u32> = (0..120).map(|number| number % 60 * 64).collect();
        let event =
            |(&row, event): (&u32, u32)| [access(event, row, 0, kind::CONDITION), access(event, 3, 0, kind::MODIFY)];
        decomposed.decompose(0, &rows.iter().zip(0..).flat_map(event).collect::<Vec<_>>());
        let mut slots: Vec<(u32, usize)> = (0..rows.len())
            .map(|group| {
                let partition = decomposed.partitioning.of(RowName { table: 0, row: rows[group] });
                (decomposed.threads[0].conditions(group).0[0].row, partition)
            })
            .collect();
        slots.sort_unstable();
        assert!(slots.windows(2).all(|pair| pair[0].0 < pair[1].0), "each has its own");
        assert!(
            slots.chunk_by(|a, b| a.0 / UNIT == b.0 / UNIT).all(|unit| unit.iter().all(|slot| slot.1 == unit[0].1))
        );
        assert!(slots.last().unwrap().0 < 120 + 2 * UNIT);
    }

    #[test]
    fn a_row_always_has_the_same_partition_and_shares_it_with_its_cache_line() {
        let partitioning = Partitioning::new(3);
        let of = |table, row| partitioning.of(RowName { table, row });
        assert!((0..160).all(|row| of(1, row) == of(1, row / UNIT * UNIT) && of(1, row) < 3));
        assert!((0..3).all(|partition| (0..100).any(|unit| of(0, unit * UNIT) == partition)));
    }
}
