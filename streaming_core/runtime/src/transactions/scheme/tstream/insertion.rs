//! Insertion of operations into their chains while the interval is open (TStream, section IV-C1).

use std::ptr::null_mut;

use crate::threads::sync::Ordering;
use crate::transactions::scheme::tstream::arena::Arena;
use crate::transactions::scheme::tstream::chains::{Chain, Directory, Target};
use crate::transactions::scheme::tstream::costs::Costs;
use crate::transactions::scheme::tstream::layout::{Layout, Partitioning, RowName};
use crate::transactions::scheme::tstream::operation::{IS_DEPENDENT, Operation};
use crate::transactions::scheme::tstream::skip_list::{Index, Node, height, link};
use crate::transactions::scheme::tstream::tasks::{Task, Tasks};

/// What all threads insert with.
#[derive(Clone, Copy)]
pub(super) struct Insertion<'a> {
    pub thread: usize,
    /// Whether there is no other thread.
    pub is_alone: bool,
    pub partitioning: &'a Partitioning,
    pub layout: &'a Layout,
    pub directory: &'a Directory,
    pub tasks: &'a Tasks,
}

/// The chains that a thread has made in an interval, and what it has inserted into any chain.
pub(super) struct Chains {
    chains: Arena<Chain>,
    nodes: Arena<Node>,
    indexes: Arena<Index>,
}

impl Chains {
    pub fn new() -> Self {
        Self { chains: Arena::new(), nodes: Arena::new(), indexes: Arena::new() }
    }

    /// Forgets everything, and keeps the memory. No thread uses it any more.
    pub fn clear(&mut self) {
        self.chains.clear();
        self.nodes.clear();
        self.indexes.clear();
    }

    /// Inserts an operation into the chain of its row, and returns the chain.
    ///
    /// # Safety
    /// It is compute mode. Only this thread inserts operations of the event, which lasts as long as the interval.
    #[inline(always)]
    pub unsafe fn insert(&mut self, operation: Operation, into: Insertion, costs: &mut Costs) -> *const Chain {
        let name = RowName::of(&operation.access);
        let (marks, event) = (operation.link.marks(), operation.access.event);
        let entry = into.directory.entry(into.layout, name);
        let node = self.nodes.draw();
        // ORDERING: Acquire takes over the chain from the thread that made it.
        let mut chain = entry.load(Ordering::Acquire).cast_const();
        // SAFETY: what was drawn only this thread knows; a chain in the directory is of this interval, and filled.
        unsafe {
            (*node).fill(operation);
            if chain.is_null() {
                chain = self.chains.draw();
                let partition = into.partitioning.of(name);
                (*chain).start(Target { name, partition: partition as u32 }, node, marks);
                if link(entry, null_mut(), chain, into.is_alone) {
                    into.tasks.add(into.thread, partition, Task(chain));
                    costs.chains += 1;
                    costs.dependent_chains += u64::from(marks & IS_DEPENDENT != 0);
                    return chain;
                }
                self.chains.take_back();
                // ORDERING: Acquire, as above.
                chain = entry.load(Ordering::Acquire);
            }
            costs.dependent_chains += u64::from((*chain).mark(marks) & IS_DEPENDENT != 0);
            (*chain).operations.insert(node, height(event), &mut self.indexes, into.is_alone);
        }
        chain
    }
}
