//! The text of a layout.

use arrow_schema::Schema;
use rockmill_core::scan::{Number, NumberFormat, Prefix, StringGroups};

use crate::Part;
use crate::form::Form;

/// Maximum bytes of a part with a stated size.
const MAX_PART_BYTES: u32 = 1 << 20;

/// Parses the parts of a key or a value.
///
/// # Errors
/// One sentence that quotes the part.
pub fn parts(text: &str, schema: &Schema) -> Result<Vec<Part>, String> {
    let texts = split(text)?;
    let parts = texts.into_iter().map(|text| part(text.trim(), schema));
    let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
    let is_rest = |part: &Part| matches!(part.form, Form::Rest { .. });
    let Some(rest) = parts.iter().position(is_rest) else {
        return Ok(parts);
    };
    let mut behind = 0u32;
    for part in &parts[rest + 1..] {
        let bytes = part.form.fixed_bytes();
        let sum = bytes.and_then(|bytes| behind.checked_add(bytes));
        behind =
            sum.ok_or("only parts of a fixed length may follow rest, such as u64be or bytes(4)")?;
    }
    parts[rest].form = Form::Rest { behind };
    Ok(parts)
}

/// Splits at commas that are in neither quotes nor brackets.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut depth, mut is_quoted) = (Vec::new(), 0, 0, false);
    for (at, character) in text.char_indices() {
        match character {
            '\'' => is_quoted = !is_quoted,
            '(' if !is_quoted => depth += 1,
            ')' if !is_quoted => depth -= 1,
            ',' if !is_quoted && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if is_quoted || depth != 0 {
        return Err(format!(
            "the layout {text:?} has a quote or a bracket without its end"
        ));
    }
    parts.push(&text[start..]);
    Ok(parts)
}

fn part(text: &str, schema: &Schema) -> Result<Part, String> {
    if let Some(literal) = literal(text)? {
        return Ok(Part {
            form: Form::Literal(literal),
            column: None,
        });
    }
    let mut words = text.split_whitespace();
    let (form, name) = match (words.next(), words.next(), words.next()) {
        (Some(form), name, None) => (form, name),
        _ => {
            return Err(format!(
                "{text:?} is not a part of a layout; say a form and a column, such as u32be id"
            ));
        }
    };
    let unknown = || {
        format!(
            "{form:?} is no form of a layout; forms are u8, i8, u16be .. i64le, ordered(i32), ordered(string), \
             f32be .. f64le, bytes(n), varint, len16be .. len32le, rest, nulls(n), skip(n), 'text' and x'00ff'"
        )
    };
    let parsed = self::form(form).ok_or_else(unknown)?;
    let column = match (&parsed, name) {
        (Form::Nulls(_) | Form::Skip(_), None) => None,
        (Form::Nulls(_) | Form::Skip(_), Some(name)) => {
            return Err(format!(
                "{form} holds no column, so {name} cannot follow it"
            ));
        }
        (_, None) => return Err(format!("{form:?} needs the name of a column")),
        (_, Some(name)) => {
            let column = schema.index_of(name);
            Some(column.map_err(|_| {
                format!("the layout names {name}, which is not a column of the table")
            })?)
        }
    };
    Ok(Part {
        form: parsed,
        column,
    })
}

/// The bytes of a literal; `None` if the text is not a literal.
fn literal(text: &str) -> Result<Option<Vec<u8>>, String> {
    if let Some(text) = text.strip_prefix('\'') {
        return Ok(text.strip_suffix('\'').map(|text| text.as_bytes().to_vec()));
    }
    let Some(digits) = text
        .strip_prefix("x'")
        .and_then(|text| text.strip_suffix('\''))
    else {
        return Ok(None);
    };
    let wrong = || format!("{text} has digits that are not pairs of hexadecimal digits");
    let pairs = digits.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2);
        pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())
    });
    pairs
        .collect::<Option<Vec<_>>>()
        .map(Some)
        .ok_or_else(wrong)
}

fn form(text: &str) -> Option<Form> {
    if let Some(argument) = text.strip_suffix(')') {
        let (name, argument) = argument.split_once('(')?;
        if name == "ordered" {
            return match argument {
                "string" | "bytes" => Some(Form::String(StringGroups::Counted)),
                integer => ordered(integer).map(Form::Number),
            };
        }
        let bytes = argument
            .parse()
            .ok()
            .filter(|&bytes| bytes <= MAX_PART_BYTES)?;
        return match name {
            "bytes" => Some(Form::Bytes(bytes)),
            "nulls" => Some(Form::Nulls(bytes)),
            "skip" => Some(Form::Skip(bytes)),
            _ => None,
        };
    }
    match text {
        "varint" => return Some(Form::Prefixed(Prefix::Varint)),
        "rest" => return Some(Form::Rest { behind: 0 }),
        _ => {}
    }
    if let Some(length) = text.strip_prefix("len") {
        let number = number(&format!("u{length}"))?;
        return Some(Form::Prefixed(Prefix::Number(number)));
    }
    number(text).map(Form::Number)
}

/// `i8`, `u16be`, `f64le` and the like.
fn number(text: &str) -> Option<Number> {
    let (format, rest) = match text.split_at_checked(1)? {
        ("u", rest) => (NumberFormat::Unsigned, rest),
        ("i", rest) => (NumberFormat::Signed, rest),
        ("f", rest) => (NumberFormat::Float, rest),
        _ => return None,
    };
    let (bits, is_big_endian) = match rest {
        "8" => ("8", true),
        rest => match rest.strip_suffix("be") {
            Some(bits) => (bits, true),
            None => (rest.strip_suffix("le")?, false),
        },
    };
    let bytes = match bits {
        "8" if rest == "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => return None,
    };
    if format == NumberFormat::Float && bytes < 4 {
        return None;
    }
    Some(Number {
        bytes,
        is_big_endian,
        format,
    })
}

fn ordered(text: &str) -> Option<Number> {
    let bytes = match text {
        "i8" => 1,
        "i16" => 2,
        "i32" => 4,
        "i64" => 8,
        _ => return None,
    };
    Some(Number {
        bytes,
        is_big_endian: true,
        format: NumberFormat::SignedInverted,
    })
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field};

    use super::*;

    fn schema() -> Schema {
        let column = |name, data_type| Field::new(name, data_type, false);
        Schema::new(vec![
            column("id", DataType::UInt32),
            column("at", DataType::Int64),
            column("body", DataType::Utf8),
        ])
    }

    #[test]
    fn parts_are_read_in_order() {
        let parts = parts(
            "x'00Ff', 'a,b', u32be id, ordered(i64) at, nulls(1), varint body",
            &schema(),
        );
        let parts = parts.unwrap();
        let columns: Vec<_> = parts.iter().map(|part| part.column).collect();
        assert_eq!(columns, [None, None, Some(0), Some(1), None, Some(2)]);
        assert_eq!(parts[0].form, Form::Literal(vec![0, 255]));
        assert_eq!(parts[1].form, Form::Literal(b"a,b".to_vec()));
        assert_eq!(parts[4].form, Form::Nulls(1));
    }

    #[test]
    fn what_is_wrong_is_quoted() {
        for (text, says) in [
            ("u33be id", "\"u33be\" is no form"),
            ("f16be id", "\"f16be\" is no form"),
            ("u32 id", "\"u32\" is no form"),
            ("u32be", "needs the name of a column"),
            ("u32be missing", "names missing"),
            ("skip(4) id", "id cannot follow it"),
            ("bytes(99999999999) id", "is no form"),
            ("x'0' , rest body", "not pairs of hexadecimal digits"),
            ("'a, rest body", "without its end"),
            ("u32be id at", "is not a part"),
        ] {
            let error = parts(text, &schema()).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
