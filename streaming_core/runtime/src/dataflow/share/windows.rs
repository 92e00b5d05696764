//! A windowed operator with the cells of one share.
//!
//! The executor takes the rows that a `Dealer` sends it, and finds their keys again. `Copies` leaves out the keys of other
//! shares. It also decides whether this share counts a late row.

use crate::dataflow::channel::rank::Rank;
use crate::dataflow::direct::Direct;
use crate::dataflow::operator::Chain;
use crate::dataflow::windowed::copies::Copies;
use crate::dataflow::windowed::epochs::Epochs;
use crate::dataflow::windowed::keys::Lister;
use crate::dataflow::windowed::operator::{Out, Windowed};
use crate::dataflow::windowed::replica::Replica;
use crate::error::RunError;
use crate::output::counters::Counters;
use crate::output::sink::Sink;
use crate::program::{Origin, Program};
use crate::rows::block::Text;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;
use crate::threads::sync::Arc;

/// A windowed operator of a program whose keys are dealt to shares, and the copies that it makes of the rows of each input.
#[derive(Debug)]
pub(super) struct Dealt {
    /// The position of the operator, and its inputs.
    index: usize,
    inputs: Vec<Origin>,
    pub operator: Windowed,
    lister: Lister,
    /// Per input.
    pub copies: Vec<Copies>,
}

impl Dealt {
    /// The windowed operator of `program`, if it has one, for so many shares.
    ///
    /// # Safety
    /// As for `Chain::bind`.
    pub unsafe fn bind(program: &Program, shares: usize) -> Result<Option<Self>, RunError> {
        let Some((index, spec)) = program.operators.iter().enumerate().find(|(_, spec)| spec.window.is_some()) else {
            return Ok(None);
        };
        let window = spec.window.as_ref().expect("it was found by its window");
        let epochs = Arc::new(Epochs::new(shares, window.streams.len()));
        // SAFETY: as the caller says.
        let operator = unsafe { Windowed::bind(program, spec, window, epochs, None, None) }?;
        let copies = |&origin: &Origin| Copies::new(&operator, program.stride(origin), shares);
        Ok(Some(Self {
            index,
            inputs: spec.inputs.clone(),
            lister: Lister::new(&operator),
            copies: spec.inputs.iter().map(copies).collect(),
            operator,
        }))
    }

    /// Runs the operators before the windows on these rows, and copies the rows of each input for each share.
    ///
    /// # Safety
    /// The rows are readable and have the layout of the program's events.
    pub unsafe fn deal(
        &mut self,
        chain: &Chain,
        direct: &mut Direct,
        rows: Rows,
        counters: &mut Counters,
    ) -> Result<(), RunError> {
        for before in 0..self.index {
            // SAFETY: as the caller says; these operators have no lanes.
            unsafe { direct.operate(chain, &[], before, rows, counters) }?;
        }
        let (buffers, _) = direct.before(self.index);
        for (input, &origin) in self.inputs.iter().enumerate() {
            let taken = match origin {
                Origin::Events => rows,
                Origin::Operator(index) => Rows::of(&buffers[index], rows.text),
            };
            // SAFETY: as the caller says; the buffers hold the rows of these operators.
            unsafe { self.copies[input].deal(&self.operator, &mut self.lister, input, (taken, &[])) }?;
        }
        Ok(())
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Windows {
    dealt: Dealt,
    share: usize,
    replica: Replica,
    out: RowBuffer,
    out_ranks: Vec<Rank>,
    /// Of the rows that the sink keeps.
    ranks: Vec<u128>,
}

impl Windows {
    /// The windowed operator of `program`, if it has one, with the cells of share `share` of so many.
    ///
    /// # Safety
    /// As for `Chain::bind`.
    pub unsafe fn bind(program: &Program, (share, shares): (usize, usize)) -> Result<Option<Self>, RunError> {
        // SAFETY: as the caller says.
        let Some(dealt) = (unsafe { Dealt::bind(program, shares) })? else { return Ok(None) };
        let mut out = RowBuffer::new(program.operators[dealt.index].stride, true);
        dealt.operator.furnish(&mut out);
        let replica = Replica::new(&dealt.operator, share);
        Ok(Some(Self { dealt, share, replica, out, out_ranks: Vec::new(), ranks: Vec::new() }))
    }

    pub fn late(&self) -> u64 {
        self.replica.late()
    }

    /// The ranks of the rows since the last call, in the order of delivery.
    pub fn take_ranks(&mut self) -> Vec<u128> {
        std::mem::take(&mut self.ranks)
    }

    /// Takes rows, and delivers what they become.
    ///
    /// # Safety
    /// The rows are readable and have the layout of the program's events.
    pub unsafe fn take(
        &mut self,
        chain: &Chain,
        direct: &mut Direct,
        rows: Rows,
        sink: &mut Sink,
        counters: &mut Counters,
    ) -> Result<(), RunError> {
        // SAFETY: as the caller says.
        unsafe { self.dealt.deal(chain, direct, rows, counters) }?;
        let mut own: Vec<(i64, *const u8, u64)> = Vec::new();
        for copies in &self.dealt.copies {
            let copied = &copies.of[self.share];
            let row = |at: usize| (copied.rows.seq(at), copied.rows.row(at), copied.meetings[at]);
            own.extend((0..copied.rows.len()).map(row));
        }
        // Each event belongs to one stream, so this is their total order. The rows of each input ascend already.
        own.sort_by_key(|&(seq, ..)| seq);
        let places: Vec<*const u8> = own.iter().map(|&(_, place, _)| place).collect();
        let meetings: Vec<u64> = own.iter().map(|&(.., meeting)| meeting).collect();
        let upto = own.last().map_or(i64::MIN, |&(seq, ..)| seq);
        let taken = Rows { places: places.as_ptr(), ..Rows::new(std::ptr::null(), own.len(), rows.stride, rows.text) };
        let mut from = Some(0).filter(|_| !own.is_empty());
        while let Some(first) = from {
            let Self { dealt, replica, out, out_ranks, .. } = self;
            let mut put_out = Out { rows: out, inputs: Some(&[]), ranks: out_ranks };
            // SAFETY: the copies keep the rows and their meetings until the next call of `deal`.
            from = unsafe { replica.process(&dealt.operator, (taken, upto), first, &meetings, &|| 0, &mut put_out) }?;
            self.deliver(rows.text, sink, counters)?;
        }
        Ok(())
    }

    /// The end of the stream: all windows expire.
    ///
    /// # Safety
    /// As for `Replica::finish`.
    pub unsafe fn finish(
        &mut self,
        seq: i64,
        text: Text,
        sink: &mut Sink,
        counters: &mut Counters,
    ) -> Result<(), RunError> {
        let Self { dealt, replica, out, out_ranks, .. } = self;
        let mut put_out = Out { rows: out, inputs: Some(&[]), ranks: out_ranks };
        // SAFETY: as the caller says.
        unsafe { replica.finish(&dealt.operator, seq, text, &mut put_out) }?;
        self.deliver(text, sink, counters)
    }

    fn deliver(&mut self, text: Text, sink: &mut Sink, counters: &mut Counters) -> Result<(), RunError> {
        let Self { out, out_ranks, ranks, .. } = self;
        counters.dropped += out.take_dropped();
        let prepared = sink.preparer().prepare(out, text)?;
        sink.deliver(out, &prepared, text)?;
        if sink.preparer().keeps_rows() {
            ranks.extend(out_ranks.iter().map(|rank| rank.order()));
        }
        out.clear();
        out_ranks.clear();
        Ok(())
    }
}
