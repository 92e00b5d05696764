//! Several streams as one: by event, and of each event in the order of the streams.
//!
//! Invariant: every stream ascends by seq, and so does their union; rows of one event and one stream keep their order.
//! Costs one copy of each row; a stream alone is no union and is not copied.

use crate::error::RunError;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;

/// Appends the union of `streams` to `out`.
///
/// # Safety
/// The rows are readable, have `out`'s stride and lie outside of it.
pub unsafe fn union(streams: &[Rows], out: &mut RowBuffer) -> Result<(), RunError> {
    // Few streams meet in one place: looking at the head of each is cheaper than a heap of them.
    let mut at = vec![0; streams.len()];
    // SAFETY: looked up only while rows are left.
    let head = |stream: usize, at: &[usize]| unsafe { streams[stream].seq(at[stream]) };
    loop {
        let left = |stream: &usize| at[*stream] < streams[*stream].n;
        let Some(seq) = (0..streams.len()).filter(left).map(|stream| head(stream, &at)).min() else {
            return Ok(());
        };
        for (stream, rows) in streams.iter().enumerate() {
            let begin = at[stream];
            while at[stream] < rows.n && head(stream, &at) == seq {
                at[stream] += 1;
            }
            let same = rows.slice(begin..at[stream]);
            // SAFETY: as the caller says.
            unsafe { out.extend(same.start, same.n, |_| 0) }?;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::rows::block::Text;

    #[test]
    fn of_an_event_the_first_stream_comes_first() {
        let streams: [&[[i64; 2]]; 4] =
            [&[[1, 10], [1, 11], [4, 12]], &[[0, 20], [1, 21], [3, 22], [4, 23], [4, 24]], &[], &[[3, 30]]];
        let rows = streams.map(|rows| Rows::new(rows.as_ptr().cast(), rows.len(), 16, Text::empty()));
        let mut out = RowBuffer::new(16, false);
        // SAFETY: the arrays outlive the call.
        unsafe { union(&rows, &mut out).unwrap() };
        let united: Vec<i64> =
            out.bytes().chunks(16).map(|row| i64::from_le_bytes(row[8..].try_into().unwrap())).collect();
        assert_eq!(united, [20, 10, 11, 21, 22, 30, 12, 23, 24]);
    }
}
