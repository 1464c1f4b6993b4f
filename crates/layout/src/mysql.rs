//! Tables of MyRocks: a layout from `CREATE TABLE` as MySQL and MariaDB show it.
//!
//! A key is the number of its index and the columns of the primary key, so that it sorts as they do; a table without
//! one has a number of each row instead. A value has a bit for each nullable column, the unpack info, and the other
//! columns. The unpack info is there if the key alone does not determine its columns. Columns that are null take no
//! bytes.

mod charset;
mod keys;
mod stored;
mod time;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use rockmill_core::scan::{Number, NumberFormat};
use sqlparser::ast::{ColumnDef, ColumnOption, CreateTable};

use self::charset::charset;
use self::keys::{primary_key, unique_key};
use self::stored::{InKey, spaces, stored, unsupported_form};
use crate::form::Form;
use crate::{Layout, MysqlTable, Part};

pub use self::time::time;

/// Bytes in front of the length of the unpack info.
pub const UNPACK_INFO_TAG_BYTES: u32 = 1;

/// The length of the unpack info, which includes the tag and the length itself.
pub const UNPACK_INFO_LENGTH: Number = Number {
    bytes: 2,
    is_big_endian: true,
    format: NumberFormat::Unsigned,
};

/// Size of the hidden number of a row in a table without a primary key.
const HIDDEN_KEY_BYTES: u32 = 8;

impl Layout {
    /// The layout of a table of MyRocks whose rows are in the index of this number. That index is the primary key, or
    /// has a hidden number of each row if the table has no primary key.
    ///
    /// A column of a type that layouts lack is [`Layout::unsupported`]. If its size is not known, the columns behind it
    /// in values are unsupported as well.
    ///
    /// # Errors
    /// One sentence if the statement is not understood or does not fit the index, or if a column of the primary key is not
    /// supported.
    pub fn mysql(table: &MysqlTable, index: u32, is_hidden: bool) -> Result<Self, String> {
        let (described, table) = (table, table.statement()?);
        let key_columns = match (primary_key(table), is_hidden) {
            (Some(_), true) => {
                return Err(
                    "the directory has it without a primary key, which the statement has"
                        .to_owned(),
                );
            }
            (None, true) => Vec::new(),
            (Some(columns), false) => columns,
            (None, false) => unique_key(table)
                .ok_or("the directory has it with a primary key, which the statement lacks")?,
        };
        let (mut fields, mut null_bits, mut bits) = (Vec::new(), Vec::new(), 0);
        let (mut latin1, mut unsupported) = (BTreeSet::new(), BTreeMap::new());
        let mut value = Vec::new();
        // A column whose size is not known, so that columns behind it cannot be found.
        let mut hides_others: Option<&ColumnDef> = None;
        let mut in_key: Vec<Option<InKey>> = key_columns.iter().map(|_| None).collect();
        for (position, column) in table.columns.iter().enumerate() {
            let name = &column.name.value;
            let attribute = described.attribute(position);
            let place = key_columns
                .iter()
                .position(|key| key.eq_ignore_ascii_case(name));
            let is_nullable = place.is_none() && !has(column, &ColumnOption::NotNull);
            null_bits.push(is_nullable.then_some(bits));
            bits += u32::from(is_nullable);
            let stored = match (stored(column, table, attribute), place) {
                (Ok(stored), _) => stored,
                (Err(why), Some(_)) => return Err(why),
                (Err(why), None) => {
                    unsupported.insert(position, why);
                    // Nothing reads it.
                    fields.push(Field::new(name, DataType::Utf8, true));
                    if hides_others.is_none() {
                        let form = unsupported_form(column, table, attribute);
                        let column_of_part = form.is_some().then_some(position);
                        hides_others = form.is_none().then_some(column);
                        value.push(Part {
                            form: form.unwrap_or(Form::Rest { behind: 0 }),
                            column: column_of_part,
                        });
                    }
                    continue;
                }
            };
            // MySQL has dates that do not exist, which are null here.
            let is_time = matches!(stored.in_value, Form::Time { .. });
            if stored.data_type == DataType::Utf8 && charset(column, table)?.is_latin1() {
                latin1.insert(position);
            }
            let field = Field::new(name, stored.data_type, is_nullable || is_time);
            fields.push(field);
            let is_in_value = match (&stored.in_key, place) {
                (InKey::Unsupported, Some(_)) => {
                    let what = "which is not supported in a primary key";
                    return Err(refused(column, &what));
                }
                (InKey::AndInValue(_), _) | (_, None) => true,
                (InKey::Alone(_) | InKey::Padded(_), Some(_)) => false,
            };
            match hides_others.filter(|_| is_in_value) {
                Some(other) => {
                    let what = format!(
                        "and is behind column {}, whose size is not known",
                        other.name.value
                    );
                    unsupported.insert(position, refused(column, &what));
                }
                None if is_in_value => value.push(Part {
                    form: stored.in_value,
                    column: Some(position),
                }),
                None => {}
            }
            if let Some(place) = place {
                in_key[place] = Some(stored.in_key);
            }
        }
        let is_padded = |in_key: &Option<InKey>| matches!(in_key, Some(InKey::Padded(_)));
        let has_unpack_info = in_key.iter().any(is_padded);
        let key = key_parts(table, index, &key_columns, in_key)?;
        let mut first = Vec::new();
        if bits > 0 {
            first.push(Form::Nulls(bits.div_ceil(8)));
        }
        if has_unpack_info {
            first.push(Form::UnpackInfo);
        }
        let first = first.into_iter().map(|form| Part { form, column: None });
        Ok(Self {
            schema: Arc::new(Schema::new(fields)),
            key,
            value: first.chain(value).collect(),
            null_bits,
            leaves_out_nulls: true,
            latin1,
            unsupported,
            nulls_what_is_malformed: false,
            name: String::new(),
        })
    }
}

/// The parts of the keys of an index with these stored columns. Without columns, each row has a hidden number.
fn key_parts(
    table: &CreateTable,
    index: u32,
    columns: &[String],
    in_key: Vec<Option<InKey>>,
) -> Result<Vec<Part>, String> {
    let mut key = vec![Part {
        form: Form::Literal(index.to_be_bytes().to_vec()),
        column: None,
    }];
    if columns.is_empty() {
        key.push(Part {
            form: Form::Skip(HIDDEN_KEY_BYTES),
            column: None,
        });
    }
    let mut spaces_at = UNPACK_INFO_TAG_BYTES + u32::from(UNPACK_INFO_LENGTH.bytes);
    for (name, in_key) in columns.iter().zip(in_key) {
        let missing = || format!("the primary key names {name}, which is not a column");
        let in_key = in_key.ok_or_else(missing)?;
        let column =
            (table.columns.iter()).position(|column| column.name.value.eq_ignore_ascii_case(name));
        key.push(match in_key {
            InKey::Alone(form) => Part { form, column },
            InKey::Padded(groups) => {
                let column = column.ok_or_else(missing)?;
                let spaces = spaces(&table.columns[column]);
                let form = Form::Padded {
                    groups,
                    spaces_at,
                    spaces,
                };
                spaces_at += u32::from(spaces.bytes);
                let column = Some(column);
                Part { form, column }
            }
            InKey::AndInValue(form) => Part { form, column: None },
            // Refused above.
            InKey::Unsupported => continue,
        });
    }
    Ok(key)
}

fn refused(column: &ColumnDef, what: &dyn Display) -> String {
    format!(
        "column {} has the type {}, {what}",
        column.name.value, column.data_type
    )
}

fn has(column: &ColumnDef, option: &ColumnOption) -> bool {
    column.options.iter().any(|of| of.option == *option)
}
