//! Limits of protobuf messages, before they are decoded.
//!
//! A decoder makes a value of some hundred bytes for each message in a message, also for one of two bytes. So 64 MiB can
//! take gigabytes. This reads messages without a schema: every field with a length may be a message, which ends where it is
//! malformed. So it counts at least the messages, texts and bytes that a decoder finds. Fields of other types take little
//! more memory than they have bytes.

/// Maximum number of messages, texts and bytes in a message, and in those.
const MAX_VALUES: usize = 1 << 20;

/// Maximum number of messages in one another. Decoders allow 100, and a plan has plans of other nodes as bytes.
const MAX_DEPTH: usize = 256;

/// Maximum number of operands of one operator, such as AND. A decoder makes a tree of that depth.
/// Only messages count, because names and constants may have the bytes of such fields.
const MAX_OPERANDS: usize = 512;

/// Number of the field of operands. Plans repeat messages in a field of this number for few other things.
const OPERANDS: u64 = 4;

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer.
    Integer(u64),
    /// A text, bytes, integers or a message.
    Bytes(&'a [u8]),
    /// A number of 4 or 8 bytes, or the mark of a group.
    Other,
}

/// The fields of a message with their numbers, up to its end or a malformed one.
#[derive(Debug, Clone)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn integer(&mut self) -> Option<u64> {
        const BITS: u32 = 7;
        let mut value = 0;
        for at in 0..u64::BITS.div_ceil(BITS) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << (at * BITS);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self, length: u64) -> Option<&'a [u8]> {
        let length = usize::try_from(length).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.integer()?;
        let value = match tag & 7 {
            0 => Value::Integer(self.integer()?),
            1 => self.bytes(8).map(|_| Value::Other)?,
            2 => {
                let length = self.integer()?;
                Value::Bytes(self.bytes(length)?)
            }
            3 | 4 => Value::Other,
            5 => self.bytes(4).map(|_| Value::Other)?,
            _ => return None,
        };
        Some((tag >> 3, value)).filter(|(number, _)| *number > 0)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        field
    }
}

/// A message that may be in another one, while its fields are read.
struct Open<'a> {
    fields: Fields<'a>,
    operands: usize,
    is_operand: bool,
}

impl<'a> Open<'a> {
    fn new(message: &'a [u8], is_operand: bool) -> Self {
        Self {
            fields: Fields(message),
            operands: 0,
            is_operand,
        }
    }
}

/// Number of messages, texts and bytes that a decoder may find in a message.
///
/// # Errors
/// A sentence if there are too many, too many in one another, or too many operands.
pub fn count(message: &[u8]) -> Result<usize, String> {
    count_checked(message, |_| Ok(()))
}

/// The number of [`count`], if `check` accepts each message, text and bytes.
///
/// # Errors
/// The errors of [`count`] and of `check`.
pub fn count_checked(
    message: &[u8],
    check: impl Fn(&[u8]) -> Result<(), String>,
) -> Result<usize, String> {
    let mut values = 0;
    let mut open = vec![Open::new(message, false)];
    while let Some(innermost) = open.last_mut() {
        let is_at_end = innermost.fields.0.is_empty();
        let (number, bytes) = match innermost.fields.next() {
            Some((number, Value::Bytes(bytes))) => (number, bytes),
            Some(_) => continue,
            None => {
                let done = open.pop();
                // Texts are not well formed, and a decoder chains no operands of a message that is not.
                if let Some(done) = done.filter(|_| is_at_end) {
                    close(&done, open.last_mut())?;
                }
                continue;
            }
        };
        check(bytes)?;
        values += 1;
        if values > MAX_VALUES {
            return Err(format!("a message has more than {MAX_VALUES} values"));
        }
        if !bytes.is_empty() {
            if open.len() == MAX_DEPTH {
                return Err(format!(
                    "a message has more than {MAX_DEPTH} others in one another"
                ));
            }
            open.push(Open::new(bytes, number == OPERANDS));
        }
    }
    Ok(values)
}

/// Ends a well-formed message, which may be an operand of the one around it.
fn close(done: &Open<'_>, around: Option<&mut Open<'_>>) -> Result<(), String> {
    if done.operands > MAX_OPERANDS {
        return Err(format!("an operator has more than {MAX_OPERANDS} operands"));
    }
    if let Some(around) = around.filter(|_| done.is_operand) {
        around.operands += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with one field of bytes.
    fn around(message: &[u8]) -> Vec<u8> {
        let mut all = vec![0x0a];
        let mut length = message.len();
        while length >= 0x80 {
            all.push(length as u8 | 0x80);
            length >>= 7;
        }
        all.push(length as u8);
        all.extend(message);
        all
    }

    fn is_refused(message: &[u8], what: &str) -> bool {
        count(message).is_err_and(|why| why.contains(what))
    }

    #[test]
    fn fields_end_where_a_message_is_malformed() {
        let message = [0x08, 0x96, 0x01, 0x12, 2, 7, 8, 0x1d, 1, 2, 3, 4, 0x20];
        let fields: Vec<_> = Fields(&message).collect();
        let expected = [
            (1, Value::Integer(150)),
            (2, Value::Bytes(&[7, 8])),
            (3, Value::Other),
        ];
        assert_eq!(fields, expected);
        for malformed in [
            &[0x0a, 3, 1, 2][..],
            &[0x07],
            &[0x00, 1],
            &[0xff; 11],
            &[0x09, 1],
        ] {
            assert_eq!(Fields(malformed).count(), 0, "{malformed:?}");
            assert_eq!(count(malformed), Ok(0));
        }
    }

    #[test]
    fn a_message_of_many_values_is_refused_wherever_they_are() {
        let fields = |number: usize| [0x0a, 0].repeat(number);
        assert_eq!(count(&fields(MAX_VALUES)), Ok(MAX_VALUES));
        assert!(is_refused(&fields(MAX_VALUES + 1), "values"));
        assert!(is_refused(&around(&around(&fields(MAX_VALUES))), "values"));
        // Long constants are no messages.
        for text in [b"x", b"b", b" ", b"0", b"\0"] {
            let text = around(&text.repeat(8 << 20));
            assert!(count(&text).expect("a text") <= text.len() / 50);
        }
        // A decoder makes values for those before the end of a malformed message.
        let malformed = [fields(MAX_VALUES), vec![0xff]].concat();
        assert!(is_refused(&around(&malformed), "values"));
    }

    #[test]
    fn operands_of_an_operator_are_limited_apart_from_those_of_others() {
        let operands = |number: usize| [0x22, 2, 0x08, 1].repeat(number);
        let most = around(&operands(MAX_OPERANDS));
        assert_eq!(count(&most.repeat(3)), Ok(3 * (MAX_OPERANDS + 1)));
        let more = around(&operands(MAX_OPERANDS + 1));
        assert!(is_refused(&more, "operands"));
        // A decoder refuses an operator that is malformed before it chains operands.
        let malformed = [operands(MAX_OPERANDS + 1), vec![0x07]].concat();
        assert!(count(&around(&malformed)).is_ok());
        let behind = [more, vec![0x07]].concat();
        assert!(count(&around(&behind)).is_err());
    }

    #[test]
    fn quotes_in_names_and_texts_are_no_operands() {
        // A quote is the tag of a field of operands, and the next byte its length.
        const TIMES: usize = 2 * MAX_OPERANDS;
        for text in [
            "\"\0",
            "\"\u{1}a",
            "\"\ncolumn 123",
            "\",\"",
            "{\"name\":\"a \"\" b\"},",
        ] {
            let text = text.repeat(TIMES);
            assert!(count(&around(text.as_bytes())).is_ok(), "{text}");
        }
        // With some of these lengths, the text ends where the last field does.
        for length in 36 * TIMES..36 * TIMES + 36 {
            assert!(count(&around(&b"\"".repeat(length))).is_ok(), "{length}");
        }
        let names: Vec<_> = (0..TIMES)
            .map(|name| around(format!("\"\"{name}\"").as_bytes()))
            .collect();
        assert!(count(&around(&names.concat())).is_ok());
    }

    #[test]
    fn messages_in_one_another_are_refused_below_a_depth() {
        let mut message = vec![0x08, 1];
        for _ in 1..MAX_DEPTH {
            message = around(&message);
        }
        assert_eq!(count(&message), Ok(MAX_DEPTH - 1));
        assert!(is_refused(&around(&message), "in one another"));
    }
}
