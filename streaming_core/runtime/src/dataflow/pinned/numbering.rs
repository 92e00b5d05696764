//! Numbering: the `sub` of each output, counted where an event becomes several rows instead of at the sink.
//!
//! Every operator must have one input. One operator may emit several rows for an input, and all operators behind it must emit
//! exactly one. That operator sees all rows of an event at once. It numbers them as the sink would, and later operators pass
//! the numbers on. Replicas digest their outputs, and the sink adds integers
//! (`channel/results.rs`). Otherwise rows carry ranks, which order them without numbering them (`channel/rank.rs`).

use crate::error::RunError;
use crate::program::{Origin, Program};
use crate::rows::view::Rows;

/// The rows of an event where they are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfEvent {
    /// At most one.
    One,
    /// Several, each with its `sub`.
    Numbered,
}

/// Whether the rows of a program are numbered before the sink.
pub(super) fn is_numbered(program: &Program) -> bool {
    let mut outputs_of: Vec<OfEvent> = Vec::new();
    for operator in &program.operators {
        let before = match operator.inputs[..] {
            [Origin::Events] => OfEvent::One,
            [Origin::Operator(index)] => outputs_of[index],
            _ => return false,
        };
        outputs_of.push(match (before, operator.emits) {
            _ if operator.window.is_some() => return false,
            (OfEvent::One, (_, Some(0 | 1))) => OfEvent::One,
            (OfEvent::One, _) | (OfEvent::Numbered, (1, Some(1))) => OfEvent::Numbered,
            (OfEvent::Numbered, _) => return false,
        });
    }
    matches!(program.outputs[..], [Origin::Operator(_)])
}

/// Numbers outputs. `inputs` has the `sub` of each input; empty: each is the only row of its event. `origins` has the position
/// of each output's input. `outputs` stays empty if each output is the only row of its event.
///
/// # Errors
/// `Engine`: an operator drops or multiplies rows although the program says that it does not.
pub(super) fn number(
    emits: (u64, Option<u64>),
    (inputs, rows): (&[u32], Rows),
    origins: &[u32],
    outputs: &mut Vec<u32>,
) -> Result<(), RunError> {
    // Without a branch that depends on the rows, so that the compiler uses vectors.
    if origins.len() == rows.n && origins.iter().enumerate().fold(true, |same, (i, &at)| same & (at == i as u32)) {
        outputs.extend_from_slice(inputs);
        return Ok(());
    }
    let single = origins.windows(2).all(|pair| pair[0] != pair[1]);
    let (least, most) = emits;
    if (most == Some(1) && !single) || (least > 0 && origins.len() < rows.n) {
        return Err(RunError::Engine(format!(
            "an operator emitted {} rows for {} inputs, but its code says {least} to {most:?} for each",
            origins.len(),
            rows.n
        )));
    }
    if single {
        if !inputs.is_empty() {
            outputs.extend(origins.iter().map(|&origin| inputs[origin as usize]));
        }
        return Ok(());
    }
    let (mut last, mut next) = (u32::MAX, 0);
    outputs.extend(origins.iter().map(|&origin| {
        next = if origin == last { next + 1 } else { 0 };
        last = origin;
        next
    }));
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::rows::block::Text;

    fn numbered(emits: (u64, Option<u64>), inputs: &[u32], origins: &[u32]) -> Result<Vec<u32>, RunError> {
        let mut outputs = Vec::new();
        let rows = Rows::new(std::ptr::null(), 3, 8, Text::empty());
        number(emits, (inputs, rows), origins, &mut outputs).map(|()| outputs)
    }

    #[test]
    fn outputs_are_numbered_where_an_input_becomes_several() {
        assert_eq!(numbered((0, None), &[], &[0, 0, 2, 2, 2]).unwrap(), [0, 1, 0, 1, 2]);
        assert!(numbered((0, None), &[], &[0, 2]).unwrap().is_empty());
        assert_eq!(numbered((1, Some(1)), &[4, 0, 1], &[0, 1, 2]).unwrap(), [4, 0, 1]);
    }

    #[test]
    fn an_operator_that_breaks_its_bounds_ends_the_run() {
        for (emits, origins) in [((1, Some(1)), &[0, 2][..]), ((1, Some(1)), &[0, 1, 1, 2]), ((0, Some(1)), &[2, 2])] {
            assert!(matches!(numbered(emits, &[0, 0, 0], origins), Err(RunError::Engine(_))));
        }
    }
}
