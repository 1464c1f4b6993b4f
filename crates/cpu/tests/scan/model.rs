//! The output of a plan for rows, written as plainly as possible: values are computed anew wherever they are needed.

use std::cmp::Ordering;

use rockmill_core::scan::{
    Aggregate, Aggregation, Batch, Calendar, Column, ColumnType, Comparison, Instruction,
    IntegerRange, Json, JsonType, Literal, Number, NumberFormat, Operation, PackedDecimal, Pattern,
    PatternPart, Prefix, Register, ScanOutput, ScanPlan, StringGroups,
};

use rockmill_core::BatchOutput;

/// A number is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfRange;

type Found<T> = Result<T, OutOfRange>;

/// A value; `None` is null.
type Value = Option<Literal>;

/// Batches, none of which is full, and the counts.
pub fn scan(plan: &ScanPlan, rows: &[(Vec<u8>, Vec<u8>)]) -> Found<(Vec<Batch>, BatchOutput)> {
    let mut selected = Vec::new();
    let mut malformed = 0;
    for (key, value) in rows {
        let row = Row { plan, key, value };
        let holds = plan.checks.iter().map(|check| row.boolean(check.holds));
        let holds = holds.collect::<Found<Vec<_>>>()?;
        malformed += u64::from(holds.iter().any(|holds| *holds != Some(true)));
        if plan
            .filter
            .map_or(Ok(true), |filter| row.is_wanted(filter))?
        {
            selected.push(row);
        }
    }
    let batches = match &plan.output {
        ScanOutput::Rows(columns) => {
            let cells = |row: &Row<'_>| columns.iter().map(|c| row.value(c.register)).collect();
            let rows: Vec<Vec<Value>> = selected.iter().map(cells).collect::<Found<_>>()?;
            batch(&plan.output.columns(), &rows).into_iter().collect()
        }
        ScanOutput::Groups(aggregation) => groups(aggregation, &plan.output.columns(), &selected)?,
    };
    let counts = BatchOutput {
        rows: rows.len() as u64,
        selected: selected.len() as u64,
        malformed,
    };
    Ok((batches, counts))
}

struct Row<'a> {
    plan: &'a ScanPlan,
    key: &'a [u8],
    value: &'a [u8],
}

impl Row<'_> {
    fn is_wanted(&self, filter: Register) -> Found<bool> {
        match self.plan.instructions[usize::from(filter)] {
            Instruction::And(left, right) => Ok(self.is_wanted(left)? && self.is_wanted(right)?),
            _ => Ok(self.value(filter)? == Some(Literal::Boolean(true))),
        }
    }

    fn boolean(&self, register: Register) -> Found<Option<bool>> {
        Ok(self.value(register)?.map(|value| match value {
            Literal::Boolean(is_true) => is_true,
            other => panic!("{other:?} is no boolean"),
        }))
    }

    fn integer(&self, register: Register) -> Found<Option<i128>> {
        Ok(self.value(register)?.map(|value| match value {
            Literal::Integer(integer) => integer,
            other => panic!("{other:?} is no integer"),
        }))
    }

    fn bytes(&self, register: Register) -> Found<Option<Vec<u8>>> {
        Ok(self.value(register)?.map(|value| match value {
            Literal::Bytes(bytes) => bytes,
            other => panic!("{other:?} are no bytes"),
        }))
    }

    /// Start and end of bytes that are stored behind their length.
    fn prefixed(bytes: &[u8], at: i128, prefix: Prefix) -> Option<(i128, i128)> {
        let rest = part(bytes, at, (bytes.len() as i128).checked_sub(at)?)?;
        let (length, size) = match prefix {
            Prefix::Number(number) => {
                let stored = part(rest, 0, i128::from(number.bytes))?;
                (load(number, stored), i128::from(number.bytes))
            }
            Prefix::Varint => {
                let last = rest.iter().take(10).position(|byte| *byte < 0x80)?;
                let sevens = rest[..=last].iter().rev();
                let length = sevens.fold(0, |length, byte| length << 7 | i128::from(byte & 0x7f));
                (length, last as i128 + 1)
            }
        };
        let begin = at + size;
        let is_one = length <= i128::from(u64::MAX);
        is_one.then(|| part(bytes, begin, length))??;
        Some((begin, begin + length))
    }

    fn rest(&self, from: Register, at: Register) -> Found<Option<Vec<u8>>> {
        let (bytes, at) = (self.bytes(from)?, self.integer(at)?);
        let (Some(bytes), Some(at)) = (bytes, at) else {
            return Ok(None);
        };
        let at = usize::try_from(at).ok();
        Ok(at.and_then(|at| bytes.get(at..).map(<[u8]>::to_vec)))
    }

    fn value(&self, register: Register) -> Found<Value> {
        Ok(match &self.plan.instructions[usize::from(register)] {
            Instruction::Key => Some(Literal::Bytes(self.key.to_vec())),
            Instruction::Value => Some(Literal::Bytes(self.value.to_vec())),
            Instruction::Constant(Literal::Null(_)) => None,
            Instruction::Constant(literal) => Some(literal.clone()),
            Instruction::Length(of) => {
                (self.bytes(*of)?).map(|bytes| Literal::Integer(bytes.len() as i128))
            }
            Instruction::Load { from, at, number } => {
                let (bytes, at) = (self.bytes(*from)?, self.integer(*at)?);
                let (Some(bytes), Some(at)) = (bytes, at) else {
                    return Ok(None);
                };
                let stored = part(&bytes, at, i128::from(number.bytes));
                stored.map(|stored| Literal::Integer(load(*number, stored)))
            }
            Instruction::Slice { from, at, length } => {
                let bytes = self.bytes(*from)?;
                let (at, length) = (self.integer(*at)?, self.integer(*length)?);
                let (Some(bytes), Some(at), Some(length)) = (bytes, at, length) else {
                    return Ok(None);
                };
                part(&bytes, at, length).map(|bytes| Literal::Bytes(bytes.to_vec()))
            }
            Instruction::Prefixed { from, at, prefix } => {
                let (bytes, at) = (self.bytes(*from)?, self.integer(*at)?);
                let (Some(bytes), Some(at)) = (bytes, at) else {
                    return Ok(None);
                };
                let found = Self::prefixed(&bytes, at, *prefix);
                found.map(|(begin, end)| {
                    Literal::Bytes(bytes[begin as usize..end as usize].to_vec())
                })
            }
            Instruction::AfterPrefixed {
                from,
                at,
                prefix,
                count,
            } => {
                let (bytes, at) = (self.bytes(*from)?, self.integer(*at)?);
                let (Some(bytes), Some(at)) = (bytes, at) else {
                    return Ok(None);
                };
                let mut at = Some(at);
                for _ in 0..*count {
                    at = at.and_then(|at| Some(Self::prefixed(&bytes, at, *prefix)?.1));
                }
                at.map(Literal::Integer)
            }
            Instruction::Bit { from, at } => {
                let (bytes, at) = (self.bytes(*from)?, self.integer(*at)?);
                let (Some(bytes), Some(at)) = (bytes, at) else {
                    return Ok(None);
                };
                let bits = bytes
                    .iter()
                    .flat_map(|byte| (0..8).map(move |bit| byte & (1 << bit) != 0));
                let bit = usize::try_from(at).ok().and_then(|at| bits.clone().nth(at));
                bit.map(Literal::Boolean)
            }
            Instruction::Decimal { from, at, decimal } => {
                (self.rest(*from, *at)?).and_then(|rest| packed(*decimal, &rest))
            }
            Instruction::Date { of, calendar } => {
                let date = self.integer(*of)?.and_then(|of| date(*calendar, of));
                date.map(Literal::Integer)
            }
            Instruction::String {
                from,
                at,
                groups,
                spaces,
            } => {
                let groups = (self.rest(*from, *at)?).and_then(|rest| string(*groups, &rest));
                let string = groups.map(|groups| groups.concat());
                let Some(spaces) = spaces else {
                    return Ok(string.map(Literal::Bytes));
                };
                let (Some(mut string), Some(spaces)) = (string, self.integer(*spaces)?) else {
                    return Ok(None);
                };
                if spaces >= 65_536 || string.len() as i128 + spaces < 8 {
                    return Ok(None);
                }
                for _ in spaces..8 {
                    string.pop();
                }
                string.extend((8..spaces).map(|_| b' '));
                Some(Literal::Bytes(string))
            }
            Instruction::StringSize { from, at, groups } => {
                let bytes = match groups {
                    StringGroups::Counted => 9,
                    StringGroups::Padded { bytes } => i128::from(*bytes) + 1,
                };
                let groups = (self.rest(*from, *at)?).and_then(|rest| string(*groups, &rest));
                groups.map(|groups| Literal::Integer(groups.len() as i128 * bytes))
            }
            Instruction::TrimEnd(of) => (self.bytes(*of)?).map(|mut bytes| {
                while bytes.pop_if(|byte| *byte == b' ').is_some() {}
                Literal::Bytes(bytes)
            }),
            Instruction::Text(of) => (self.bytes(*of)?)
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .map(|text| Literal::Bytes(text.into_bytes())),
            Instruction::Latin1(of) => (self.bytes(*of)?).map(|bytes| {
                let text: String = bytes.into_iter().map(latin1).collect();
                Literal::Bytes(text.into_bytes())
            }),
            Instruction::Json { from, takes } => {
                (self.bytes(*from)?).and_then(|bytes| taken(&bytes, takes))
            }
            Instruction::Select {
                when,
                then,
                otherwise,
            } => {
                let (then, otherwise) = (self.value(*then)?, self.value(*otherwise)?);
                match self.boolean(*when)? {
                    Some(true) => then,
                    _ => otherwise,
                }
            }
            Instruction::Compare {
                comparison,
                left,
                right,
            } => match (self.value(*left)?, self.value(*right)?) {
                (Some(left), Some(right)) => {
                    let accepted: &[Ordering] = match comparison {
                        Comparison::Equal => &[Ordering::Equal],
                        Comparison::NotEqual => &[Ordering::Less, Ordering::Greater],
                        Comparison::Less => &[Ordering::Less],
                        Comparison::LessOrEqual => &[Ordering::Less, Ordering::Equal],
                        Comparison::Greater => &[Ordering::Greater],
                        Comparison::GreaterOrEqual => &[Ordering::Greater, Ordering::Equal],
                    };
                    Some(Literal::Boolean(accepted.contains(&left.cmp(&right))))
                }
                _ => None,
            },
            Instruction::And(left, right) => match (self.boolean(*left)?, self.boolean(*right)?) {
                (Some(false), _) | (_, Some(false)) => Some(Literal::Boolean(false)),
                (Some(true), Some(true)) => Some(Literal::Boolean(true)),
                _ => None,
            },
            Instruction::Or(left, right) => match (self.boolean(*left)?, self.boolean(*right)?) {
                (Some(true), _) | (_, Some(true)) => Some(Literal::Boolean(true)),
                (Some(false), Some(false)) => Some(Literal::Boolean(false)),
                _ => None,
            },
            Instruction::Not(of) => self.boolean(*of)?.map(|is_true| Literal::Boolean(!is_true)),
            Instruction::IsNull(of) => Some(Literal::Boolean(self.value(*of)?.is_none())),
            Instruction::Like { of, pattern } => {
                (self.bytes(*of)?).map(|bytes| Literal::Boolean(is_like(&bytes, pattern)))
            }
            Instruction::OneOf { of, values } => {
                (self.value(*of)?).map(|value| Literal::Boolean(values.contains(&value)))
            }
            Instruction::Arithmetic {
                operation,
                left,
                right,
                range,
            } => match (self.integer(*left)?, self.integer(*right)?) {
                (Some(left), Some(right)) => {
                    let exact = match operation {
                        Operation::Add => left.checked_add(right),
                        Operation::Subtract => left.checked_sub(right),
                        Operation::Multiply => left.checked_mul(right),
                    };
                    let wrapped = match operation {
                        Operation::Add => left.wrapping_add(right),
                        Operation::Subtract => left.wrapping_sub(right),
                        Operation::Multiply => left.wrapping_mul(right),
                    };
                    Some(Literal::Integer(match range {
                        IntegerRange::Exact => exact.ok_or(OutOfRange)?,
                        range => wrap(*range, wrapped),
                    }))
                }
                _ => None,
            },
        })
    }
}

/// The value in a JSON object. Its numbers have so few digits that they are exact doubles, or shortest ones.
fn taken(bytes: &[u8], takes: &Json) -> Option<Literal> {
    let serde_json::Value::Object(members) = serde_json::from_slice(bytes).ok()? else {
        return None;
    };
    let (name, of_type) = match takes {
        Json::IsObject => return Some(Literal::Boolean(true)),
        Json::Has(name) => {
            let has = members.get(name).is_some_and(|member| !member.is_null());
            return Some(Literal::Boolean(has));
        }
        Json::Member(name, of_type) => (name, of_type),
    };
    let member = members.get(name)?;
    let float = |bytes: &[u8]| {
        let number = Number {
            bytes: bytes.len() as u8,
            is_big_endian: false,
            format: NumberFormat::Float,
        };
        Literal::Integer(load(number, bytes))
    };
    match *of_type {
        JsonType::Boolean => member.as_bool().map(Literal::Boolean),
        JsonType::Integer { bytes, is_signed } => {
            let integer = member.as_i64().map(i128::from);
            let integer = integer.or(member.as_u64().map(i128::from))?;
            let range = match is_signed {
                true => IntegerRange::WrapSigned { bytes },
                false => IntegerRange::WrapUnsigned { bytes },
            };
            (wrap(range, integer) == integer).then_some(Literal::Integer(integer))
        }
        JsonType::Float { bytes: 4 } => Some(float(&(member.as_f64()? as f32).to_le_bytes())),
        JsonType::Float { .. } => Some(float(&member.as_f64()?.to_le_bytes())),
        JsonType::Decimal { precision, scale } => {
            let text = match member {
                serde_json::Value::Number(number) if number.is_f64() => {
                    number.as_f64()?.to_string()
                }
                serde_json::Value::Number(number) => number.to_string(),
                serde_json::Value::String(text) => text.clone(),
                _ => return None,
            };
            let (whole, behind) = text.split_once('.').unwrap_or((&text, ""));
            whole.parse::<i128>().ok()?;
            let behind = behind.trim_end_matches('0');
            let zeros = usize::from(scale).checked_sub(behind.len())?;
            let digits = format!("{whole}{behind}{}", "0".repeat(zeros));
            let number: i128 = digits.parse().ok()?;
            (number.abs() < 10i128.pow(u32::from(precision))).then_some(Literal::Integer(number))
        }
        JsonType::Text => match member {
            serde_json::Value::String(text) => Some(Literal::Bytes(text.clone().into_bytes())),
            serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
                let text = String::from_utf8_lossy(bytes);
                let texts = ["[1,[2],{\"a\":3}]", "{ }", "{\"a\":\"]}\"}"];
                let is_it = |text: &&str| {
                    serde_json::from_str::<serde_json::Value>(text)
                        .ok()
                        .as_ref()
                        == Some(member)
                };
                let found = texts.into_iter().find(is_it)?;
                assert!(text.contains(found));
                Some(Literal::Bytes(found.as_bytes().to_vec()))
            }
            _ => None,
        },
    }
}

/// Digits as text, group for group.
fn packed(decimal: PackedDecimal, bytes: &[u8]) -> Option<Literal> {
    const GROUP_BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
    let mut bytes = bytes.to_vec();
    let is_negative = *bytes.first()? < 0x80;
    if is_negative {
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
    }
    bytes[0] ^= 0x80;
    let before = usize::from(decimal.precision - decimal.scale);
    let behind = usize::from(decimal.scale);
    let mut groups = vec![before % 9];
    groups.extend(std::iter::repeat_n(9, before / 9 + behind / 9));
    groups.push(behind % 9);
    let mut text = String::new();
    let mut at = 0;
    for digits in groups.into_iter().filter(|digits| *digits > 0) {
        let group = bytes.get(at..at + GROUP_BYTES[digits])?;
        let group = group.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
        let group = format!("{group:0digits$}");
        if group.len() > digits {
            return None;
        }
        text += &group;
        at += GROUP_BYTES[digits];
    }
    let number: i128 = text.parse().ok()?;
    Some(Literal::Integer(if is_negative { -number } else { number }))
}

fn date(calendar: Calendar, of: i128) -> Option<i128> {
    let day = |year: i128, month: i128, day: i128| {
        let is_leap = |year: i128| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        let days = |year| {
            [
                31,
                if is_leap(year) { 29 } else { 28 },
                31,
                30,
                31,
                30,
                31,
                31,
                30,
                31,
                30,
                31,
            ]
        };
        let month = usize::try_from(month).ok()?.checked_sub(1)?;
        (1..=*days(year).get(month)?).contains(&day).then_some(())?;
        let before: i128 = days(year)[..month].iter().sum();
        let leaps = |year: i128| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        let years = 365 * (year - 1970) + leaps(year - 1) - leaps(1969);
        Some(years + before + day - 1)
    };
    match calendar {
        Calendar::Day if (0..1 << 24).contains(&of) => day(of / 512, of / 32 % 16, of % 32),
        Calendar::Second if (0..1 << 40).contains(&of) => {
            let (months, time) = (of >> 22, of % (1 << 17));
            let (hour, minute, second) = (time >> 12, time >> 6 & 63, time & 63);
            (hour < 24 && minute < 60 && second < 60).then_some(())?;
            let days = day(months / 13, months % 13, of >> 17 & 31)?;
            Some(((days * 24 + hour) * 60 + minute) * 60 + second)
        }
        _ => None,
    }
}

/// The bytes of each group.
/// Windows-1252, and control characters for its bytes without a character.
fn latin1(byte: u8) -> char {
    let special = "€\u{81}‚ƒ„…†‡ˆ‰Š‹Œ\u{8d}Ž\u{8f}\u{90}‘’“”•–—˜™š›œ\u{9d}žŸ";
    match byte {
        0x80..0xa0 => special.chars().nth(usize::from(byte - 0x80)).unwrap(),
        _ => char::from(byte),
    }
}

fn string(groups: StringGroups, stored: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (size, last): (usize, &[u8]) = match groups {
        StringGroups::Counted => (8, &[0, 1, 2, 3, 4, 5, 6, 7, 8]),
        StringGroups::Padded { bytes } => (usize::from(bytes), &[2]),
    };
    let more: &[u8] = match groups {
        StringGroups::Counted => &[9],
        StringGroups::Padded { .. } => &[1, 3],
    };
    let marker = *stored.get(size)?;
    if last.contains(&marker) {
        let len = if groups == StringGroups::Counted {
            usize::from(marker)
        } else {
            size
        };
        return Some(vec![stored[..len].to_vec()]);
    }
    more.contains(&marker).then_some(())?;
    let mut all = vec![stored[..size].to_vec()];
    all.extend(string(groups, &stored[size + 1..])?);
    Some(all)
}

fn part(bytes: &[u8], at: i128, length: i128) -> Option<&[u8]> {
    let len = bytes.len() as i128;
    if at < 0 || length < 0 || at > len || length > len - at {
        return None;
    }
    Some(&bytes[at as usize..][..length as usize])
}

fn load(number: Number, stored: &[u8]) -> i128 {
    let mut bytes = stored.to_vec();
    if number.is_big_endian {
        bytes.reverse();
    }
    if number.format == NumberFormat::SignedInverted {
        bytes[stored.len() - 1] ^= 0x80;
    }
    let is_negative = number.format != NumberFormat::Unsigned && bytes[stored.len() - 1] >= 0x80;
    let rest = if is_negative { 0xff } else { 0 };
    if number.format == NumberFormat::Float && is_negative {
        let last = bytes.len() - 1;
        bytes[..last].iter_mut().for_each(|byte| *byte = !*byte);
        bytes[last] ^= 0x7f;
    }
    bytes.resize(16, rest);
    i128::from_le_bytes(bytes.try_into().expect("16 bytes"))
}

fn wrap(range: IntegerRange, integer: i128) -> i128 {
    match range {
        IntegerRange::WrapSigned { bytes: 1 } => integer as i8 as i128,
        IntegerRange::WrapSigned { bytes: 2 } => integer as i16 as i128,
        IntegerRange::WrapSigned { bytes: 4 } => integer as i32 as i128,
        IntegerRange::WrapSigned { bytes: 8 } => integer as i64 as i128,
        IntegerRange::WrapUnsigned { bytes: 1 } => integer as u8 as i128,
        IntegerRange::WrapUnsigned { bytes: 2 } => integer as u16 as i128,
        IntegerRange::WrapUnsigned { bytes: 4 } => integer as u32 as i128,
        IntegerRange::WrapUnsigned { bytes: 8 } => integer as u64 as i128,
        _ => integer,
    }
}

fn is_like(bytes: &[u8], pattern: &Pattern) -> bool {
    match pattern {
        Pattern::Prefix(own) => bytes.len() >= own.len() && bytes[..own.len()] == own[..],
        Pattern::Suffix(own) => {
            bytes.len() >= own.len() && bytes[bytes.len() - own.len()..] == own[..]
        }
        Pattern::Contains(own) => (0..=bytes.len())
            .any(|at| bytes[at..].len() >= own.len() && bytes[at..][..own.len()] == own[..]),
        Pattern::Parts(parts) => has_parts(bytes, &begins(bytes), 0, parts),
    }
}

/// Starts of the characters, and the end.
fn begins(bytes: &[u8]) -> Vec<usize> {
    let mut begins = vec![0];
    let mut at = 0;
    while at < bytes.len() {
        let is_character = |len: &usize| {
            let text = bytes.get(at..at + len).map(std::str::from_utf8);
            text.is_some_and(|text| text.is_ok_and(|text| text.chars().count() == 1))
        };
        at += (1..=4).find(is_character).unwrap_or(1);
        begins.push(at);
    }
    begins
}

fn has_parts(bytes: &[u8], begins: &[usize], at: usize, parts: &[PatternPart]) -> bool {
    match parts.split_first() {
        None => at == bytes.len(),
        Some((PatternPart::Bytes(own), rest)) => {
            bytes[at..].starts_with(own) && has_parts(bytes, begins, at + own.len(), rest)
        }
        Some((PatternPart::AnyCharacter, rest)) => {
            let place = begins.iter().position(|begin| *begin == at);
            let next = place.and_then(|place| begins.get(place + 1));
            next.is_some_and(|next| has_parts(bytes, begins, *next, rest))
        }
        Some((PatternPart::AnyBytes, rest)) => {
            (at..=bytes.len()).any(|at| has_parts(bytes, begins, at, rest))
        }
    }
}

/// One batch of some rows, if there are any.
pub fn batch(types: &[ColumnType], rows: &[Vec<Value>]) -> Option<Batch> {
    let column = |(i, stored): (usize, &ColumnType)| {
        let cells: Vec<_> = rows.iter().map(|row| row[i].as_ref()).collect();
        column(*stored, &cells)
    };
    (!rows.is_empty()).then(|| Batch {
        rows: rows.len(),
        columns: types.iter().enumerate().map(column).collect(),
    })
}

fn bits(bits: impl Iterator<Item = bool>) -> Vec<u8> {
    let bits: Vec<_> = bits.collect();
    let byte = |bits: &[bool]| (0..bits.len()).map(|i| u8::from(bits[i]) << i).sum();
    bits.chunks(8).map(byte).collect()
}

fn column(stored: ColumnType, cells: &[Option<&Literal>]) -> Column {
    let mut column = Column::default();
    if cells.iter().any(Option::is_none) {
        column.validity = Some(bits(cells.iter().map(Option::is_some)));
    }
    if stored == ColumnType::Boolean {
        column.values = bits(
            cells
                .iter()
                .map(|cell| *cell == Some(&Literal::Boolean(true))),
        );
        return column;
    }
    if stored == ColumnType::Bytes {
        column.offsets.push(0);
    }
    for cell in cells {
        column.values.extend(stored_bytes(stored, *cell));
        if stored == ColumnType::Bytes {
            column.offsets.push(column.values.len() as i32);
        }
    }
    column
}

fn stored_bytes(stored: ColumnType, cell: Option<&Literal>) -> Vec<u8> {
    let integer = match cell {
        Some(Literal::Bytes(bytes)) => return bytes.clone(),
        Some(Literal::Boolean(is_true)) => i128::from(*is_true),
        Some(Literal::Integer(integer)) => *integer,
        _ => 0,
    };
    let lowest = |integer: i128, bytes: u8| integer.to_le_bytes()[..usize::from(bytes)].to_vec();
    match stored {
        ColumnType::Boolean => lowest(integer, 1),
        ColumnType::Integer { bytes } => lowest(integer, bytes),
        ColumnType::Float { bytes: 4 } => {
            let bits = integer as i32;
            let bits = if bits < 0 { bits ^ i32::MAX } else { bits };
            bits.to_le_bytes().to_vec()
        }
        ColumnType::Float { .. } => {
            let bits = integer as i64;
            let bits = if bits < 0 { bits ^ i64::MAX } else { bits };
            bits.to_le_bytes().to_vec()
        }
        ColumnType::Bytes => Vec::new(),
    }
}

/// Stored keys, and rows.
type Group<'a> = (Vec<Option<Vec<u8>>>, Vec<&'a Row<'a>>);

fn groups(aggregation: &Aggregation, types: &[ColumnType], rows: &[Row<'_>]) -> Found<Vec<Batch>> {
    let mut batches = Vec::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    if aggregation.keys.is_empty() {
        groups.push((Vec::new(), Vec::new()));
    }
    for row in rows {
        let key = |key: &rockmill_core::scan::OutputColumn| {
            let value = row.value(key.register)?;
            Ok(value.map(|value| stored_bytes(key.stored, Some(&value))))
        };
        let key: Vec<_> = aggregation.keys.iter().map(key).collect::<Found<_>>()?;
        // All values of a row that are needed are computed when it comes.
        for aggregate in &aggregation.aggregates {
            arguments(aggregate, &[row])?;
        }
        match groups.iter_mut().find(|group| group.0 == key) {
            Some(group) => group.1.push(row),
            None => {
                if groups.len() == aggregation.max_groups as usize {
                    batches.extend(batch(types, &results(aggregation, &groups)?));
                    groups.clear();
                }
                groups.push((key, vec![row]));
            }
        }
    }
    batches.extend(batch(types, &results(aggregation, &groups)?));
    Ok(batches)
}

fn results(aggregation: &Aggregation, groups: &[Group<'_>]) -> Found<Vec<Vec<Value>>> {
    let mut out = Vec::new();
    for (_, rows) in groups {
        let mut cells = Vec::new();
        for key in &aggregation.keys {
            cells.push(rows[0].value(key.register)?);
        }
        for aggregate in &aggregation.aggregates {
            cells.push(result(aggregate, rows)?);
        }
        out.push(cells);
    }
    Ok(out)
}

/// An aggregate's arguments over some rows, without nulls.
fn arguments(aggregate: &Aggregate, rows: &[&Row<'_>]) -> Found<Vec<Literal>> {
    let register = match aggregate {
        Aggregate::Count(None) => return Ok(vec![Literal::Boolean(true); rows.len()]),
        Aggregate::Count(Some(of)) | Aggregate::Sum { of, .. } => *of,
        Aggregate::Min(column) | Aggregate::Max(column) => column.register,
    };
    let values: Vec<_> = rows
        .iter()
        .map(|row| row.value(register))
        .collect::<Found<_>>()?;
    Ok(values.into_iter().flatten().collect())
}

fn result(aggregate: &Aggregate, rows: &[&Row<'_>]) -> Found<Value> {
    let values = arguments(aggregate, rows)?;
    Ok(match aggregate {
        Aggregate::Count(_) => Some(Literal::Integer(values.len() as i128)),
        Aggregate::Sum { .. } if values.is_empty() => None,
        Aggregate::Sum { range, .. } => {
            // Digits of 64 bits: a sum of some thousand numbers does not exceed them.
            let (mut high, mut low) = (0i128, 0i128);
            for value in values {
                let Literal::Integer(integer) = value else {
                    panic!("{value:?} is summed")
                };
                high += integer >> 64;
                low += integer & i128::from(u64::MAX);
            }
            high += low >> 64;
            low &= i128::from(u64::MAX);
            let fits = high == i128::from(high as i64);
            if *range == IntegerRange::Exact && !fits {
                return Err(OutOfRange);
            }
            Some(Literal::Integer(wrap(*range, high << 64 | low)))
        }
        Aggregate::Min(_) => values.into_iter().min(),
        Aggregate::Max(_) => values.into_iter().max(),
    })
}
