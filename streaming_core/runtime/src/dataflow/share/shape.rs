//! The programs that executor `share` runs.

use crate::error::RunError;
use crate::program::{OperatorKind, Origin, Program};
use crate::state::windows::CELLS;

/// Checks that a program fits, and that there is such a share.
///
/// # Errors
/// `Invalid`: the program is neither a chain nor an operator with windows, or there is no such share.
pub(super) fn check(program: &Program, (number, of): (usize, usize)) -> Result<(), RunError> {
    let invalid = |what: String| Err(RunError::Invalid(format!("executor share: {what}")));
    if number >= of || of > CELLS {
        return invalid(format!("there are 1 to {CELLS} shares, numbered from 0; got share {number} of {of}"));
    }
    let operators = &program.operators;
    let with_state = operators.iter().filter(|operator| operator.kind != OperatorKind::Stateless).count();
    if with_state > 1 {
        return invalid(format!("a program may have one operator with state, got {with_state}"));
    }
    let is_windowed = matches!(&operators[..], [only] if only.window.is_some());
    let fits = |(index, inputs): (usize, &[Origin])| match *inputs {
        [Origin::Events] => index == 0,
        [Origin::Operator(before)] => before + 1 == index,
        _ => is_windowed && index == 0 && inputs.iter().all(|input| *input == Origin::Events),
    };
    let inputs = operators.iter().map(|operator| &operator.inputs[..]).chain([&program.outputs[..]]);
    if operators.is_empty() || !inputs.enumerate().all(fits) || (program.is_windowed() && !is_windowed) {
        return invalid("a program must be a chain of operators, or one operator with windows".into());
    }
    Ok(())
}
