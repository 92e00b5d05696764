//! A windowed operator with the cells of one share.
//!
//! The executor takes the rows that a `Dealer` sends it, and finds their keys again. `Copies` leaves out the keys of other
//! shares. It also decides whether this share counts a late row.

use crate::dataflow::channel::rank::Rank;
use crate::dataflow::share::outputs::{Outputs, at};
use crate::dataflow::windowed::copies::Copies;
use crate::dataflow::windowed::epochs::Epochs;
use crate::dataflow::windowed::keys::Lister;
use crate::dataflow::windowed::operator::{Out, Windowed};
use crate::dataflow::windowed::replica::Replica;
use crate::error::RunError;
use crate::output::counters::Counters;
use crate::output::metrics::Standing;
use crate::program::{Origin, Program};
use crate::rows::block::Text;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;
use crate::threads::sync::Arc;

/// A windowed operator of a program whose keys are dealt to shares, and the copies that it makes of the rows of each stream.
#[derive(Debug)]
pub(super) struct Dealt {
    pub operator: Windowed,
    lister: Lister,
    streams: Vec<Stream>,
    /// Bytes of an output.
    stride: usize,
}

/// The rows of one stream in a block: their places, and their positions in the block.
#[derive(Debug)]
struct Stream {
    places: Vec<*const u8>,
    positions: Vec<u32>,
    copies: Copies,
}

// SAFETY: the places are used within the call that wrote them.
unsafe impl Send for Stream {}

impl Dealt {
    /// The windowed operator of `program`, if it has one, for so many shares.
    ///
    /// # Safety
    /// As for `Chain::bind`.
    pub unsafe fn bind(program: &Program, shares: usize) -> Result<Option<Self>, RunError> {
        let [spec] = &program.operators[..] else { return Ok(None) };
        let Some(window) = &spec.window else { return Ok(None) };
        let epochs = Arc::new(Epochs::new(shares, window.streams.len()));
        // SAFETY: as the caller says.
        let operator = unsafe { Windowed::bind(program, spec, window, epochs, None, None) }?;
        let stream = |_: &Origin| Stream {
            places: Vec::new(),
            positions: Vec::new(),
            copies: Copies::new(&operator, program.event.stride, shares),
        };
        Ok(Some(Self {
            lister: Lister::new(&operator),
            streams: spec.inputs.iter().map(stream).collect(),
            stride: spec.stride,
            operator,
        }))
    }

    /// Copies the rows of each stream for each share.
    ///
    /// # Safety
    /// The rows are readable and have the layout of the program's events.
    pub unsafe fn deal(&mut self, rows: Rows) -> Result<(), RunError> {
        let several = self.streams.len() > 1;
        for stream in &mut self.streams {
            stream.places.clear();
            stream.positions.clear();
        }
        for position in 0..rows.n {
            // SAFETY: as the caller says; the stream is the last word of a row.
            let (row, stream) = unsafe {
                let row = rows.row(position);
                (row, if several { row.add(rows.stride - 8).cast::<u64>().read_unaligned() as usize } else { 0 })
            };
            let Some(stream) = self.streams.get_mut(stream) else {
                return Err(RunError::Invalid(format!("executor share: there is no stream {stream}")));
            };
            stream.places.push(row);
            stream.positions.push(position as u32);
        }
        for (input, Stream { places, copies, .. }) in self.streams.iter_mut().enumerate() {
            let taken = Rows { places: places.as_ptr(), n: places.len(), ..rows };
            // SAFETY: as the caller says; the rows of a stream have its layout.
            unsafe { copies.deal(&self.operator, &mut self.lister, input, (taken, &[])) }?;
        }
        Ok(())
    }

    /// The copies for a share: per row its position in the block that was dealt, its place, and its meeting.
    pub fn copies_of(&self, share: usize) -> impl Iterator<Item = (u32, *const u8, u64)> {
        self.streams.iter().flat_map(move |Stream { positions, copies, .. }| {
            let copied = &copies.of[share];
            let origins = copied.rows.origins().iter().enumerate();
            origins.map(move |(at, &origin)| (positions[origin as usize], copied.rows.row(at), copied.meetings[at]))
        })
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Windows {
    dealt: Dealt,
    share: usize,
    replica: Replica,
    out: RowBuffer,
    ranks: Vec<Rank>,
}

impl Windows {
    /// The windowed operator of `program`, if it has one, with the cells of share `share` of so many.
    ///
    /// # Safety
    /// As for `Chain::bind`.
    pub unsafe fn bind(program: &Program, (share, shares): (usize, usize)) -> Result<Option<Self>, RunError> {
        // SAFETY: as the caller says.
        let Some(dealt) = (unsafe { Dealt::bind(program, shares) })? else { return Ok(None) };
        let mut out = RowBuffer::new(dealt.stride, true);
        dealt.operator.furnish(&mut out);
        let replica = Replica::new(&dealt.operator, share);
        Ok(Some(Self { dealt, share, replica, out, ranks: Vec::new() }))
    }

    pub fn late(&self) -> u64 {
        self.replica.late()
    }

    /// Takes rows. The first one is at this position of the block.
    ///
    /// # Safety
    /// The rows are readable and have the layout of the program's events.
    pub unsafe fn take(
        &mut self,
        rows: Rows,
        first: usize,
        outputs: &mut Outputs,
        counters: &mut Counters,
    ) -> Result<(), RunError> {
        // SAFETY: as the caller says.
        unsafe { self.dealt.deal(rows) }?;
        let mut own: Vec<(u32, *const u8, u64)> = self.dealt.copies_of(self.share).collect();
        // Each event belongs to one stream, so this is their total order. The rows of each stream ascend already.
        own.sort_by_key(|&(position, ..)| position);
        let inputs: Vec<Rank> = own.iter().map(|&(position, ..)| at(position as usize)).collect();
        let places: Vec<*const u8> = own.iter().map(|&(_, place, _)| place).collect();
        let meetings: Vec<u64> = own.iter().map(|&(.., meeting)| meeting).collect();
        let taken = Rows { places: places.as_ptr(), ..Rows::new(std::ptr::null(), own.len(), rows.stride, rows.text) };
        let mut from = Some(0).filter(|_| !own.is_empty());
        while let Some(next) = from {
            let Self { dealt, replica, out, ranks, .. } = self;
            let mut put_out = Out { rows: out, inputs: Some(&inputs), ranks };
            // There is no other epoch, whatever the last event is.
            // SAFETY: the copies keep the rows and their meetings until the next call of `deal`.
            from = unsafe { replica.process(&dealt.operator, (taken, 0), next, &meetings, &|| 0, &mut put_out) }?;
            self.put_out(outputs, counters, |outputs, rank| outputs.split(rank, first));
        }
        Ok(())
    }

    /// Takes the state of an image, as far as it is of own cells.
    ///
    /// # Errors
    /// `Memory`: there is none.
    ///
    /// # Safety
    /// The image is the operator's, of keys that are not there yet. No row was taken.
    pub unsafe fn restore(&mut self, image: &[u64]) -> Result<(), RunError> {
        // SAFETY: as the caller says.
        unsafe { self.dealt.operator.restore(image, |owner| owner == self.share) }
    }

    /// Goes on from where a run stood, with the state that was restored.
    ///
    /// # Errors
    /// As for `Replica::resume`; or the run had no such operator.
    ///
    /// # Safety
    /// As for `restore`.
    pub unsafe fn resume(&mut self, standing: &Standing) -> Result<(), RunError> {
        let Self { dealt: Dealt { operator, .. }, replica, share, .. } = self;
        let known = standing.windows.get(&operator.name);
        let known = known.ok_or_else(|| RunError::Invalid(format!("{} stands nowhere", operator.name)))?;
        // SAFETY: as the caller says.
        unsafe { replica.resume(operator, &known.watermark, if *share == 0 { known.late } else { 0 }) }
    }

    /// The end of the stream: all windows expire.
    ///
    /// # Safety
    /// As for `Replica::finish`.
    pub unsafe fn finish(
        &mut self,
        (seq, text): (i64, Text),
        outputs: &mut Outputs,
        counters: &mut Counters,
    ) -> Result<(), RunError> {
        let Self { dealt, replica, out, ranks, .. } = self;
        let mut put_out = Out { rows: out, inputs: Some(&[Rank::ONLY]), ranks };
        // SAFETY: as the caller says.
        unsafe { replica.finish(&dealt.operator, seq, text, &mut put_out) }?;
        self.put_out(outputs, counters, |outputs, rank| {
            outputs.positions.push(0);
            outputs.ranks.push(rank);
        });
        Ok(())
    }

    fn put_out(&mut self, outputs: &mut Outputs, counters: &mut Counters, add: impl Fn(&mut Outputs, Rank)) {
        counters.dropped += self.out.take_dropped();
        outputs.rows.extend_from_slice(self.out.bytes());
        self.ranks.drain(..).for_each(|rank| add(outputs, rank));
        self.out.clear();
    }
}
