//! Schemes of the transactional executor.
