//! The entries of operation chains, and how each depends on the conditions of its event.

use crate::program::kernel::Access;

/// The relation of a chain's entry to the conditions of its event. One word, because every operation has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Link(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// An operation that needs nothing but the operations before it in its chain.
    Plain,
    /// An operation that needs the conditions of this group, all on its own row.
    Own(usize),
    /// An operation that needs the conditions of this group, some on other rows: its chain depends on theirs.
    Dependent(usize),
    /// No operation: a condition, with the slot of its version.
    Version(usize),
    /// An operation that is a condition on a row with containers.
    Watched,
}

/// Marks of a chain: a condition of a group is in it, or an operation that needs one.
pub(super) const IS_TRACKED: u32 = 1;
/// One of its operations depends on another row.
pub(super) const IS_DEPENDENT: u32 = 2;

impl Link {
    // Roles are told apart by comparisons: a jump by a table is guessed wrong too often.
    const ROLE_BITS: u32 = 3;
    const PLAIN: u32 = 0;
    const OWN: u32 = 1;
    const DEPENDENT: u32 = 2;
    const VERSION: u32 = 3;
    const WATCHED: u32 = 4;

    pub fn new(role: Role) -> Self {
        let (tag, number) = match role {
            Role::Plain => (Self::PLAIN, 0),
            Role::Own(group) => (Self::OWN, group),
            Role::Dependent(group) => (Self::DEPENDENT, group),
            Role::Version(number) => (Self::VERSION, number),
            Role::Watched => (Self::WATCHED, 0),
        };
        let number = u32::try_from(number).ok().filter(|&number| number < 1 << (u32::BITS - Self::ROLE_BITS));
        Self(number.expect("an interval has fewer conditions") << Self::ROLE_BITS | tag)
    }

    #[cfg(all(test, not(loom)))]
    pub fn role(self) -> Role {
        let number = self.number();
        match self.tag() {
            Self::PLAIN => Role::Plain,
            Self::OWN => Role::Own(number),
            Self::DEPENDENT => Role::Dependent(number),
            Self::VERSION => Role::Version(number),
            _ => Role::Watched,
        }
    }

    #[inline(always)]
    fn tag(self) -> u32 {
        self.0 & ((1 << Self::ROLE_BITS) - 1)
    }

    /// The number of its group, or the slot of its version.
    #[inline(always)]
    pub fn number(self) -> usize {
        (self.0 >> Self::ROLE_BITS) as usize
    }

    /// Whether it is an operation that needs the conditions of its group.
    #[inline(always)]
    pub fn is_conditional(self) -> bool {
        self.tag() == Self::OWN || self.tag() == Self::DEPENDENT
    }

    #[inline(always)]
    pub fn is_dependent(self) -> bool {
        self.tag() == Self::DEPENDENT
    }

    #[inline(always)]
    pub fn is_version(self) -> bool {
        self.tag() == Self::VERSION
    }

    /// The marks of its chain.
    #[inline(always)]
    pub fn marks(self) -> u32 {
        (u32::from(self.tag() != Self::PLAIN) * IS_TRACKED) | (u32::from(self.is_dependent()) * IS_DEPENDENT)
    }
}

/// An entry of a chain, and the thread that decomposed its event.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Operation {
    pub access: Access,
    pub link: Link,
    pub thread: u32,
}
