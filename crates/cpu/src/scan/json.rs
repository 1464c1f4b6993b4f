//! Values that a program extracts from JSON objects.
//!
//! serde_json checks whether bytes are JSON, and reads strings. It gives neither the digits of a number, which a
//! decimal needs, nor the nearest double. So the members are extracted as text.

use std::borrow::Cow;
use std::ops::Range;

use rockmill_core::scan::{Instruction, Json, JsonType, Number, NumberFormat, Register, ScanPlan};
use serde::de::IgnoredAny;

use super::value::{Memory, Span, Value};

/// All values that a plan extracts from the JSON object at a register, so that it is parsed once.
#[derive(Debug)]
pub struct ExtractedValues {
    pub from: Register,
    /// Names of the members.
    names: Vec<String>,
    /// The values to extract, and their registers.
    all: Vec<(Register, Take)>,
}

/// A [`Json`], in which a member has the position of its name.
#[derive(Debug)]
enum Take {
    IsObject,
    Has(usize),
    Member(usize, JsonType),
}

impl ExtractedValues {
    pub fn new(plan: &ScanPlan, from: Register) -> Self {
        let mut names: Vec<String> = Vec::new();
        let mut position = |name: &String| {
            let known = names.iter().position(|known| known == name);
            known.unwrap_or_else(|| {
                names.push(name.clone());
                names.len() - 1
            })
        };
        let mut all = Vec::new();
        for (register, instruction) in plan.instructions.iter().enumerate() {
            let Instruction::Json { from: of, takes } = instruction else {
                continue;
            };
            if *of == from {
                let take = match takes {
                    Json::IsObject => Take::IsObject,
                    Json::Has(name) => Take::Has(position(name)),
                    Json::Member(name, of_type) => Take::Member(position(name), *of_type),
                };
                all.push((register as Register, take));
            }
        }
        Self { from, names, all }
    }

    /// The registers of the results.
    pub fn registers(&self) -> impl Iterator<Item = Register> {
        self.all.iter().map(|(register, _)| *register)
    }

    /// Parses the object of a row. Returns the result for each register.
    pub fn parse(&self, memory: &Memory, from: Option<Span>) -> Vec<Value> {
        let json = from.and_then(|span| Some((span, memory.bytes(span)?)));
        let object = json.and_then(|(span, json)| Some((span, json, members(json, &self.names)?)));
        let result = |(_, take): &(Register, Take)| {
            object.as_ref().map_or(Value::Null, |(span, json, found)| {
                let part = |name: usize| {
                    let found = found[name].clone()?;
                    let part = span.part(found.start, found.end);
                    Some((part, &json[found]))
                };
                match *take {
                    Take::IsObject => Value::Boolean(true),
                    Take::Has(name) => Value::Boolean(part(name).is_some()),
                    Take::Member(name, of_type) => part(name)
                        .and_then(|(part, json)| member(json, part, of_type))
                        .unwrap_or(Value::Null),
                }
            })
        };
        self.all.iter().map(result).collect()
    }
}

/// Positions of the members with these names that are not `null`; `None` if the bytes are not a JSON object.
fn members(json: &[u8], names: &[String]) -> Option<Vec<Option<Range<usize>>>> {
    let mut at = behind_spaces(json, 0);
    if json.get(at) != Some(&b'{') {
        return None;
    }
    let text = std::str::from_utf8(json).ok()?;
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    at += 1;
    let mut found = vec![None; names.len()];
    loop {
        at = behind_spaces(json, at);
        match *json.get(at)? {
            b'}' => return Some(found),
            b',' => at = behind_spaces(json, at + 1),
            _ => {}
        }
        let end = end_of_value(json, at)?;
        let name = json.get(at..end)?;
        let colon = behind_spaces(json, end);
        at = behind_spaces(json, colon + 1);
        let end = end_of_value(json, at)?;
        let name = string(name);
        let is_it = |of: &String| name.as_deref() == Some(of.as_bytes());
        if let Some(position) = names.iter().position(is_it) {
            let value = at..end;
            found[position] = Some(value).filter(|value| &json[value.clone()] != b"null");
        }
        at = end;
    }
}

fn behind_spaces(json: &[u8], at: usize) -> usize {
    let rest = json.get(at..).unwrap_or_default().iter();
    let spaces = rest.take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    at + spaces.count()
}

/// The end of the value that begins at an offset of valid JSON.
fn end_of_value(json: &[u8], at: usize) -> Option<usize> {
    let (mut depth, mut is_string, mut is_escaped) = (0u64, false, false);
    for (end, byte) in json.iter().enumerate().skip(at) {
        if is_string {
            is_string = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
            if !is_string && depth == 0 {
                return Some(end + 1);
            }
            continue;
        }
        match byte {
            b'"' => is_string = true,
            b'{' | b'[' => depth += 1,
            b',' | b'}' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return Some(end),
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(end + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The bytes of a string in quotes; `None` if it is not a string, or has an escaped half of a surrogate pair.
fn string(json: &[u8]) -> Option<Cow<'_, [u8]>> {
    let inner = json.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if !inner.contains(&b'\\') {
        return Some(inner.into());
    }
    let text = serde_json::from_slice::<String>(json).ok()?;
    Some(text.into_bytes().into())
}

/// The value of a member at a span; `None` if it has another type.
fn member(json: &[u8], span: Span, of_type: JsonType) -> Option<Value> {
    match of_type {
        JsonType::Boolean => match json {
            b"true" => Some(Value::Boolean(true)),
            b"false" => Some(Value::Boolean(false)),
            _ => None,
        },
        JsonType::Text => match json.first()? {
            b'{' | b'[' => Some(Value::Bytes(span)),
            _ => Some(match string(json)? {
                Cow::Borrowed(inner) => Value::Bytes(span.part(1, 1 + inner.len())),
                Cow::Owned(text) => Value::String(text),
            }),
        },
        JsonType::Integer { bytes, is_signed } => {
            let integer: i128 = std::str::from_utf8(json).ok()?.parse().ok()?;
            let values = 1i128 << (8 * u32::from(bytes));
            let least = if is_signed { -values / 2 } else { 0 };
            let fits = (least..least + values).contains(&integer);
            fits.then_some(Value::Integer(integer))
        }
        JsonType::Float { bytes } => {
            let is_number = json
                .first()
                .is_some_and(|first| b"-0123456789".contains(first));
            let text = std::str::from_utf8(json).ok().filter(|_| is_number)?;
            let number = Number {
                bytes,
                is_big_endian: false,
                format: NumberFormat::Float,
            };
            let integer = match bytes {
                4 => {
                    let float = text.parse::<f32>().ok().filter(|float| float.is_finite())?;
                    number.read(&float.to_le_bytes())
                }
                _ => {
                    let float = text.parse::<f64>().ok().filter(|float| float.is_finite())?;
                    number.read(&float.to_le_bytes())
                }
            };
            integer.map(Value::Integer)
        }
        JsonType::Decimal { precision, scale } => {
            let text = string(json).unwrap_or(Cow::Borrowed(json));
            let decimal = decimal(std::str::from_utf8(&text).ok()?, precision, scale);
            decimal.map(Value::Integer)
        }
    }
}

/// A number without its point; `None` if it is not a number, or has more digits.
fn decimal(text: &str, precision: u8, scale: u8) -> Option<i128> {
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let digits = number.strip_prefix('-').unwrap_or(number);
    let (whole, behind) = match digits.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (digits, ""),
    };
    let is_digit = |byte: u8| byte.is_ascii_digit();
    if whole.is_empty() || !whole.bytes().chain(behind.bytes()).all(is_digit) {
        return None;
    }
    let all = [whole, behind].concat();
    let significant = all.trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let zeros = (all.len() - significant.len()) as i64 + i64::from(scale) - behind.len() as i64;
    let zeros = u32::try_from(zeros.checked_add(exponent)?).ok()?;
    let significant = significant.trim_start_matches('0').parse::<i128>().ok()?;
    let number_of = significant.checked_mul(10i128.checked_pow(zeros)?)?;
    let fits = number_of < 10i128.pow(u32::from(precision));
    fits.then_some(if number.starts_with('-') {
        -number_of
    } else {
        number_of
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        for (text, says) in [
            ("0", Some(0)),
            ("-0.00", Some(0)),
            ("12.5", Some(1250)),
            ("-12.34", Some(-1234)),
            ("012.340000", Some(1234)),
            ("1.234e1", Some(1234)),
            ("1234E-2", Some(1234)),
            ("120e-1", Some(1200)),
            ("999.99", Some(99_999)),
            ("1000", None),
            ("1e3", None),
            ("12.345", None),
            ("1e-3", None),
            ("1e99999999999", None),
            ("1e9223372036854775807", None),
            ("", None),
            ("-", None),
            (".5", None),
            ("5.", None),
            ("1 ", None),
            ("+1", None),
            ("1.2.3", None),
            ("--1", None),
        ] {
            assert_eq!(decimal(text, 5, 2), says, "{text}");
        }
        let most = "9".repeat(38);
        assert_eq!(decimal(&most, 38, 0), most.parse().ok());
        assert_eq!(decimal(&format!("{most}0"), 38, 0), None);
    }

    #[test]
    fn members_are_cut_out() {
        let names = ["a", "b\"", "é"].map(str::to_owned);
        let found = |json: &'static str| {
            let found = members(json.as_bytes(), &names)?;
            let text = |range: Option<Range<usize>>| range.map(|range| &json[range]);
            Some(found.into_iter().map(text).collect::<Vec<_>>())
        };
        for (json, says) in [
            ("{}", Some([None; 3])),
            (
                " {\"x\" : {\"a\":1}, \"a\" :\n[1,{\"}\":\"]\"}] } ",
                Some([Some("[1,{\"}\":\"]\"}]"), None, None]),
            ),
            ("{\"a\":1,\"a\":null}", Some([None; 3])),
            (
                "{\"a\":null,\"a\":-1.5e3}",
                Some([Some("-1.5e3"), None, None]),
            ),
            (
                "{\"b\\\"\":\"\\\\\",\"\\u00e9\":true}",
                Some([None, Some("\"\\\\\""), Some("true")]),
            ),
            (
                "{\"a\":\"\\\\\\\"}\"}",
                Some([Some("\"\\\\\\\"}\""), None, None]),
            ),
            ("[]", None),
            ("", None),
            ("\"{}\"", None),
            ("{} {}", None),
            ("{\"a\":1,}", None),
            ("{\"a\"}", None),
            ("{\"a\":01}", None),
            ("{\"a\":1", None),
        ] {
            assert_eq!(found(json), says.map(|says| says.to_vec()), "{json}");
        }
        let deep = ["{\"a\":", &"[".repeat(100_000), &"]".repeat(100_000), "}"].concat();
        assert!(members(deep.as_bytes(), &names).is_some());
    }
}
