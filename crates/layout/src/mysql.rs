//! Tables of MyRocks: `CREATE TABLE` as MySQL and MariaDB show it, to a layout.
//!
//! A key is the number of its index and the columns of the primary key, so that it sorts as they do; a table without one
//! has a number of each row instead. A value has a bit for each nullable column, the unpack info if the key alone does not
//! tell the columns of the key, and the other columns, of which those that are null take no bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use rockmill_core::scan::{
    Calendar, Comparison, Instruction, Literal, Number, NumberFormat, Operation, PackedDecimal,
    Prefix, Register, StringGroups, ValueKind,
};
use sqlparser::ast::{
    self, BinaryLength, CharacterLength, ColumnDef, ColumnOption, CreateTable, CreateTableOptions,
    ExactNumberInfo, Expr, Ident, IndexColumn, SqlOption, TableConstraint, TimezoneInfo,
};

use crate::form::{Cursor, Form};
use crate::{Layout, MysqlTable, Part, Push, arithmetic};

/// Bytes in front of the length of the unpack info.
pub const UNPACK_INFO_TAG_BYTES: u32 = 1;

/// The length of the unpack info, with its tag and itself.
pub const UNPACK_INFO_LENGTH: Number = Number {
    bytes: 2,
    is_big_endian: true,
    format: NumberFormat::Unsigned,
};

/// Bytes of the number that rows of a table without a primary key have.
const HIDDEN_KEY_BYTES: u32 = 8;

/// How a column is stored.
struct Stored {
    data_type: DataType,
    in_value: Form,
    in_key: InKey,
}

/// How a column of the primary key is stored.
enum InKey {
    /// In the key alone.
    Alone(Form),
    /// In the key alone, but for the number of its last spaces.
    Padded(StringGroups),
    /// In the value, and these bytes of the key sort as it does.
    AndInValue(Form),
    Unsupported,
}

/// How the characters of a column are stored.
struct Charset {
    name: String,
    /// Most bytes of a character.
    bytes: u32,
    collation: String,
}

impl Charset {
    fn is_latin1(&self) -> bool {
        self.name == "latin1"
    }
}

impl Layout {
    /// The layout of a table of MyRocks whose rows lie in the index of this number. That index is the primary key, or has a
    /// hidden number of each row if the table has no primary key.
    ///
    /// A column of a type that layouts do not have is [`Layout::unsupported`], and so are those behind it in values if its
    /// size is not known.
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
                        "and lies behind column {}, whose size is not known",
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

/// The parts of the keys of an index, whose columns are stored so. Without columns, each row has a hidden number.
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
        let missing = || format!("the primary key names {name}, which is no column");
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

/// Names of the primary key's columns; `None` if the statement has none. A prefix of a column is no name.
fn primary_key(table: &CreateTable) -> Option<Vec<String>> {
    let of_table = table
        .constraints
        .iter()
        .find_map(|constraint| match constraint {
            TableConstraint::PrimaryKey(key) => Some(&key.columns),
            _ => None,
        });
    if let Some(columns) = of_table {
        return Some(names(columns));
    }
    let is_key = |option: &ColumnOption| matches!(option, ColumnOption::PrimaryKey(_));
    columns_with(table, is_key).next()
}

/// Names of the columns of the unique key that is the primary key if the statement has none: the first one without
/// nullable columns and without prefixes of columns. `None` if there is none.
fn unique_key(table: &CreateTable) -> Option<Vec<String>> {
    let is_key = |option: &ColumnOption| matches!(option, ColumnOption::Unique(_));
    let of_table = (table.constraints.iter()).filter_map(|constraint| match constraint {
        TableConstraint::Unique(key) => Some(names(&key.columns)),
        _ => None,
    });
    let is_whole_and_set = |name: &String| {
        let mut columns = table.columns.iter();
        let column = columns.find(|column| column.name.value.eq_ignore_ascii_case(name));
        column.is_some_and(|column| has(column, &ColumnOption::NotNull))
    };
    let mut keys = columns_with(table, is_key).chain(of_table);
    keys.find(|columns| columns.iter().all(is_whole_and_set))
}

/// Names of a key's columns. A prefix of a column is no name.
fn names(columns: &[IndexColumn]) -> Vec<String> {
    let name = |column: &IndexColumn| match &column.column.expr {
        Expr::Identifier(name) => name.value.clone(),
        other => other.to_string(),
    };
    columns.iter().map(name).collect()
}

/// The names of the columns that have an option, each alone.
fn columns_with(
    table: &CreateTable,
    has_it: impl Fn(&ColumnOption) -> bool,
) -> impl Iterator<Item = Vec<String>> {
    let columns = table.columns.iter();
    let columns = columns.filter(move |column| column.options.iter().any(|of| has_it(&of.option)));
    columns.map(|column| vec![column.name.value.clone()])
}

fn integer(bytes: u8, is_signed: bool, is_big_endian: bool) -> Form {
    let format = match (is_signed, is_big_endian) {
        (false, _) => NumberFormat::Unsigned,
        (true, false) => NumberFormat::Signed,
        // Those of keys.
        (true, true) => NumberFormat::SignedInverted,
    };
    Form::Number(Number {
        bytes,
        is_big_endian,
        format,
    })
}

fn stored(
    column: &ColumnDef,
    table: &CreateTable,
    attribute: Option<&str>,
) -> Result<Stored, String> {
    use ast::DataType as Sql;
    if let Some(attribute) = attribute {
        let what = format!("with the attribute {attribute}, which is not supported");
        return Err(refused(column, &what));
    }
    let is_generated = |option: &ColumnOption| matches!(option, ColumnOption::Generated { .. });
    if column.options.iter().any(|of| is_generated(&of.option)) {
        return Err(refused(column, &"and is generated, which is not supported"));
    }
    let unsupported = || refused(column, &"which is not supported");
    let numbers = |bytes, is_signed, data_type| Stored {
        data_type,
        in_value: integer(bytes, is_signed, false),
        in_key: InKey::Alone(integer(bytes, is_signed, true)),
    };
    let float = |bytes, data_type| Stored {
        data_type,
        in_value: Form::Number(Number {
            bytes,
            is_big_endian: false,
            format: NumberFormat::Float,
        }),
        in_key: InKey::Unsupported,
    };
    Ok(match &column.data_type {
        Sql::TinyInt(_) => numbers(1, true, DataType::Int8),
        Sql::TinyIntUnsigned(_) => numbers(1, false, DataType::UInt8),
        Sql::SmallInt(_) => numbers(2, true, DataType::Int16),
        Sql::SmallIntUnsigned(_) => numbers(2, false, DataType::UInt16),
        Sql::MediumInt(_) => numbers(3, true, DataType::Int32),
        Sql::MediumIntUnsigned(_) => numbers(3, false, DataType::UInt32),
        Sql::Int(_) | Sql::Integer(_) => numbers(4, true, DataType::Int32),
        Sql::IntUnsigned(_) | Sql::IntegerUnsigned(_) => numbers(4, false, DataType::UInt32),
        Sql::BigInt(_) => numbers(8, true, DataType::Int64),
        Sql::BigIntUnsigned(_) => numbers(8, false, DataType::UInt64),
        Sql::Float(ExactNumberInfo::None | ExactNumberInfo::PrecisionAndScale(..)) => {
            float(4, DataType::Float32)
        }
        Sql::Double(_) => float(8, DataType::Float64),
        Sql::Decimal(digits) | Sql::DecimalUnsigned(digits) | Sql::Numeric(digits) => {
            let decimal = decimal(*digits).ok_or_else(unsupported)?;
            let scale = decimal.scale.cast_signed();
            Stored {
                data_type: DataType::Decimal128(decimal.precision, scale),
                in_value: Form::Decimal(decimal),
                in_key: InKey::Alone(Form::Decimal(decimal)),
            }
        }
        Sql::Date => {
            let time = |is_big_endian| Form::Time {
                number: Number {
                    bytes: 3,
                    is_big_endian,
                    format: NumberFormat::Unsigned,
                },
                calendar: Some(Calendar::Day),
                fraction: 0,
            };
            Stored {
                data_type: DataType::Date32,
                in_value: time(false),
                in_key: InKey::Alone(time(true)),
            }
        }
        Sql::Datetime(digits) => {
            let data_type = DataType::Timestamp(TimeUnit::Microsecond, None);
            time_of_day(5, Some(Calendar::Second), *digits, data_type).ok_or_else(unsupported)?
        }
        Sql::Timestamp(digits, TimezoneInfo::None) => {
            let utc = Some(Arc::from("+00:00"));
            let data_type = DataType::Timestamp(TimeUnit::Microsecond, utc);
            time_of_day(4, None, *digits, data_type).ok_or_else(unsupported)?
        }
        Sql::Char(_) | Sql::Character(_) => {
            let (charset, characters) = (charset(column, table)?, length(&column.data_type));
            let bytes = characters * charset.bytes;
            let in_key = match charset.collation.as_str() {
                "latin1_bin" => InKey::Alone(Form::Filled(bytes)),
                "utf8mb4_general_ci" | "utf8mb3_general_ci" => {
                    InKey::AndInValue(Form::Skip(2 * characters))
                }
                "utf8mb4_bin" => InKey::AndInValue(Form::Skip(3 * characters)),
                _ => InKey::Unsupported,
            };
            Stored {
                data_type: DataType::Utf8,
                in_value: Form::Filled(bytes),
                in_key,
            }
        }
        Sql::Varchar(_) => {
            let charset = charset(column, table)?;
            let bytes = length(&column.data_type) * charset.bytes;
            let in_key = match charset.collation.as_str() {
                "latin1_bin" => InKey::Padded(StringGroups::Padded { bytes: 8 }),
                "utf8mb4_general_ci" | "utf8mb4_unicode_ci" | "utf8mb3_general_ci"
                | "utf8mb3_unicode_ci" => {
                    InKey::AndInValue(Form::String(StringGroups::Padded { bytes: 8 }))
                }
                "utf8mb4_bin" => InKey::AndInValue(Form::String(StringGroups::Padded { bytes: 9 })),
                _ => InKey::Unsupported,
            };
            Stored {
                data_type: DataType::Utf8,
                in_value: prefixed(length_bytes(bytes)),
                in_key,
            }
        }
        Sql::Binary(length) => {
            let bytes = length.unwrap_or(1);
            let bytes = u32::try_from(bytes).map_err(|_| unsupported())?;
            Stored {
                data_type: DataType::Binary,
                in_value: Form::Bytes(bytes),
                in_key: InKey::Alone(Form::Bytes(bytes)),
            }
        }
        Sql::Varbinary(_) => Stored {
            data_type: DataType::Binary,
            in_value: prefixed(length_bytes(length(&column.data_type))),
            in_key: InKey::Alone(Form::String(StringGroups::Counted)),
        },
        long => Stored {
            in_value: prefixed(long_length_bytes(long).ok_or_else(unsupported)?),
            data_type: match long {
                Sql::TinyText | Sql::Text | Sql::MediumText | Sql::LongText => {
                    charset(column, table)?;
                    DataType::Utf8
                }
                _ => DataType::Binary,
            },
            in_key: InKey::Unsupported,
        },
    })
}

/// Bytes behind their length, which takes `bytes` bytes.
fn prefixed(bytes: u8) -> Form {
    Form::Prefixed(Prefix::Number(Number {
        bytes,
        is_big_endian: false,
        format: NumberFormat::Unsigned,
    }))
}

/// Bytes of the length of a BLOB or a TEXT.
fn long_length_bytes(data_type: &ast::DataType) -> Option<u8> {
    use ast::DataType as Sql;
    match data_type {
        Sql::TinyBlob | Sql::TinyText => Some(1),
        Sql::Blob(_) | Sql::Text => Some(2),
        Sql::MediumBlob | Sql::MediumText => Some(3),
        Sql::LongBlob | Sql::LongText => Some(4),
        _ => None,
    }
}

/// What is passed over of a value for a column that is not supported; `None` if that is not known.
fn unsupported_form(
    column: &ColumnDef,
    table: &CreateTable,
    attribute: Option<&str>,
) -> Option<Form> {
    use ast::DataType as Sql;
    // A compressed column has a byte more.
    let more = match attribute {
        None => 0,
        Some(text) if text.eq_ignore_ascii_case("COMPRESSED") => 1,
        Some(_) => return None,
    };
    let length = || length(&column.data_type);
    let character_bytes = || {
        let (name, collation) = charset_and_collation(column, table);
        let (bytes, _) = character_bytes(&charset_name(name, collation.as_deref())?)?;
        Some(bytes)
    };
    let fraction = |digits: Option<u64>| u32::try_from(digits.unwrap_or(0).div_ceil(2)).ok();
    Some(match &column.data_type {
        Sql::Enum(members, _) => Form::Skip(if members.len() < 1 << 8 { 1 } else { 2 }),
        Sql::Set(members) => Form::Skip(match members.len().div_ceil(8) as u32 {
            bytes @ 0..=4 => bytes,
            _ => 8,
        }),
        Sql::Bit(bits) => Form::Skip(u32::try_from(bits.unwrap_or(1).div_ceil(8)).ok()?),
        Sql::Time(digits, _) => Form::Skip(3 + fraction(*digits)?),
        Sql::Uuid => Form::Skip(16),
        Sql::Custom(name, _) => match name.to_string().to_ascii_lowercase().as_str() {
            "year" => Form::Skip(1),
            "inet4" => Form::Skip(4),
            "inet6" => Form::Skip(16),
            _ => return None,
        },
        Sql::Decimal(digits) | Sql::DecimalUnsigned(digits) | Sql::Numeric(digits) => {
            Form::Skip(packed(*digits, MAX_DIGITS)?.bytes())
        }
        Sql::Char(_) | Sql::Character(_) => Form::Skip(length() * character_bytes()?),
        Sql::Varchar(_) => prefixed(length_bytes(length() * character_bytes()? + more)),
        Sql::Varbinary(_) => prefixed(length_bytes(length() + more)),
        long => prefixed(long_length_bytes(long)?),
    })
}

/// Bytes of the length of a VARCHAR or VARBINARY with so many bytes at most.
fn length_bytes(bytes: u32) -> u8 {
    if bytes < 1 << 8 { 1 } else { 2 }
}

/// Most characters or bytes.
fn length(data_type: &ast::DataType) -> u32 {
    use ast::DataType as Sql;
    let length = match data_type {
        Sql::Char(Some(CharacterLength::IntegerLength { length, .. }))
        | Sql::Character(Some(CharacterLength::IntegerLength { length, .. }))
        | Sql::Varchar(Some(CharacterLength::IntegerLength { length, .. }))
        | Sql::Varbinary(Some(BinaryLength::IntegerLength { length })) => *length,
        _ => 1,
    };
    /// Of VARBINARY; of others it is less.
    const MAX: u32 = 65_535;
    u32::try_from(length).unwrap_or(MAX).min(MAX)
}

/// How the unpack info has the number of a key column's last spaces.
fn spaces(column: &ColumnDef) -> Number {
    /// More than this is stored in two bytes.
    const MAX_BYTES: u32 = 247;
    let bytes = if length(&column.data_type) > MAX_BYTES {
        2
    } else {
        1
    };
    Number {
        bytes,
        ..UNPACK_INFO_LENGTH
    }
}

/// Most digits of a decimal of MySQL.
const MAX_DIGITS: u8 = 65;

/// A decimal of so many digits as scans have.
fn decimal(digits: ExactNumberInfo) -> Option<PackedDecimal> {
    const MAX_PRECISION: u8 = 38;
    packed(digits, MAX_PRECISION)
}

/// A decimal with no more than so many digits.
fn packed(digits: ExactNumberInfo, most: u8) -> Option<PackedDecimal> {
    const DEFAULT_PRECISION: u64 = 10;
    let (precision, scale) = match digits {
        ExactNumberInfo::None => (DEFAULT_PRECISION, 0),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    let (precision, scale) = (u8::try_from(precision).ok()?, u8::try_from(scale).ok()?);
    let fits = (1..=most).contains(&precision) && scale <= precision;
    fits.then_some(PackedDecimal { precision, scale })
}

/// A time whose seconds are an integer of so many bytes, and have so many decimal digits behind the point.
fn time_of_day(
    bytes: u8,
    calendar: Option<Calendar>,
    digits: Option<u64>,
    data_type: DataType,
) -> Option<Stored> {
    const MAX_DIGITS: u8 = 6;
    let digits = u8::try_from(digits.unwrap_or(0)).ok()?;
    let time = || Form::Time {
        number: Number {
            bytes,
            is_big_endian: true,
            format: match calendar {
                Some(_) => NumberFormat::SignedInverted,
                None => NumberFormat::Unsigned,
            },
        },
        calendar,
        fraction: digits.div_ceil(2),
    };
    (digits <= MAX_DIGITS).then(|| Stored {
        data_type,
        in_value: time(),
        in_key: InKey::Alone(time()),
    })
}

/// The names of a column's character set and collation, as far as column and table name them.
fn charset_and_collation(
    column: &ColumnDef,
    table: &CreateTable,
) -> (Option<String>, Option<String>) {
    let of_column = |collates: bool| {
        let mut options = column.options.iter();
        options.find_map(|of| match &of.option {
            ColumnOption::CharacterSet(name) if !collates => Some(name.to_string()),
            ColumnOption::Collation(name) if collates => Some(name.to_string()),
            _ => None,
        })
    };
    let of_table = |ends_with: &[&str]| {
        let CreateTableOptions::Plain(options) = &table.table_options else {
            return None;
        };
        options.iter().find_map(|option| match option {
            SqlOption::KeyValue { key, value } => {
                let key: &Ident = key;
                let key = key.value.to_ascii_uppercase();
                let is_named = ends_with.iter().any(|end| key.ends_with(end));
                is_named.then(|| value.to_string())
            }
            _ => None,
        })
    };
    let (name, collation) = match (of_column(false), of_column(true)) {
        (None, None) => (
            of_table(&["CHARSET", "CHARACTER SET"]),
            of_table(&["COLLATE"]),
        ),
        of_column => of_column,
    };
    let clean = |text: String| {
        let text = text.to_ascii_lowercase();
        let text = text.trim_matches(['\'', '"', '`']).to_owned();
        // What MariaDB and MySQL call the same.
        match text
            .strip_prefix("utf8")
            .filter(|rest| !rest.starts_with("mb"))
        {
            Some(rest) => format!("utf8mb3{rest}"),
            None => text,
        }
    };
    (name.map(clean), collation.map(clean))
}

/// The name of a character set, or of that of a collation.
fn charset_name(name: Option<String>, collation: Option<&str>) -> Option<String> {
    name.or_else(|| collation?.split('_').next().map(str::to_owned))
}

/// Most bytes of a character of a character set, and whether scans have its text; `None` if it is not known.
fn character_bytes(charset: &str) -> Option<(u32, bool)> {
    Some(match charset {
        "latin1" | "ascii" => (1, true),
        "utf8mb3" => (3, true),
        "utf8mb4" => (4, true),
        "armscii8" | "cp1250" | "cp1251" | "cp1256" | "cp1257" | "cp850" | "cp852" | "cp866"
        | "dec8" | "geostd8" | "greek" | "hebrew" | "hp8" | "keybcs2" | "koi8r" | "koi8u"
        | "latin2" | "latin5" | "latin7" | "macce" | "macroman" | "swe7" | "tis620" => (1, false),
        "big5" | "cp932" | "euckr" | "gb2312" | "gbk" | "sjis" | "ucs2" => (2, false),
        "eucjpms" | "ujis" => (3, false),
        "utf16" | "utf16le" | "utf32" => (4, false),
        _ => return None,
    })
}

/// The character set of a column of text.
fn charset(column: &ColumnDef, table: &CreateTable) -> Result<Charset, String> {
    let (name, collation) = charset_and_collation(column, table);
    let Some(name) = charset_name(name, collation.as_deref()) else {
        let what = "and neither the column nor the table names a character set";
        return Err(refused(column, &what));
    };
    let Some((bytes, true)) = character_bytes(&name) else {
        let what = format!("with the character set {name}, which is not supported");
        return Err(refused(column, &what));
    };
    let default = match name.as_str() {
        "latin1" => "latin1_swedish_ci".to_owned(),
        name => format!("{name}_general_ci"),
    };
    let collation = collation.unwrap_or(default);
    Ok(Charset {
        name,
        bytes,
        collation,
    })
}

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
