//! Times as instructions.

use rockmill_core::scan::{
    Calendar, Comparison, Instruction, Literal, Number, Operation, Register, ValueKind,
};

use super::UNPACK_INFO_LENGTH;
use crate::form::Cursor;
use crate::{Push, arithmetic};

/// Adds the instructions that compute a time: days, or microseconds since 1970.
pub fn time(
    number: Number,
    calendar: Option<Calendar>,
    fraction: u8,
    from: Register,
    at: Cursor,
    push: Push<'_>,
) -> Register {
    const DIGITS_OF_BYTE: u32 = 2;
    const MICROSECOND_DIGITS: u32 = 6;
    let constant = |integer, push: Push<'_>| push(Instruction::Constant(Literal::Integer(integer)));
    let place = at.register(from, push);
    let stored = push(Instruction::Load {
        from,
        at: place,
        number,
    });
    let seconds = match calendar {
        Some(calendar) => push(Instruction::Date {
            of: stored,
            calendar,
        }),
        None => {
            let right = constant(0, push);
            let when = push(Instruction::Compare {
                comparison: Comparison::Equal,
                left: stored,
                right,
            });
            let then = push(Instruction::Constant(Literal::Null(ValueKind::Integer)));
            push(Instruction::Select {
                when,
                then,
                otherwise: stored,
            })
        }
    };
    if calendar == Some(Calendar::Day) {
        return seconds;
    }
    let factor = constant(10i128.pow(MICROSECOND_DIGITS), push);
    let whole = push(arithmetic(Operation::Multiply, seconds, factor));
    if fraction == 0 {
        return whole;
    }
    let place = at.plus(u32::from(number.bytes), from, push);
    let place = place.register(from, push);
    let part = push(Instruction::Load {
        from,
        at: place,
        number: Number {
            bytes: fraction,
            ..UNPACK_INFO_LENGTH
        },
    });
    let digits = MICROSECOND_DIGITS - DIGITS_OF_BYTE * u32::from(fraction);
    let factor = constant(10i128.pow(digits), push);
    let part = push(arithmetic(Operation::Multiply, part, factor));
    push(arithmetic(Operation::Add, whole, part))
}
