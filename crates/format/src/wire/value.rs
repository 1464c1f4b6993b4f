//! Texts of single values in a message.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::output_file::OutputFile;
use crate::error::Result;
use crate::manifest::Temperature;
use crate::options_file::text::TextSlice;
use crate::versions::{Release, reads_field};

/// Separator of the elements of a vector.
const SEPARATOR: char = ':';

/// Fields that releases added to a struct.
pub(super) type Added = fn(&Release) -> &'static [&'static str];

/// A text for RocksDB of one version.
#[derive(Debug, Default)]
pub(super) struct Out {
    pub text: String,
    /// The version; zeros for the newest.
    pub version: [u32; 3],
}

impl Out {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }
}

/// A value of one field.
pub(super) trait Value: Sized {
    fn write(&self, out: &mut Out);
    fn read(text: TextSlice<'_>) -> Result<Self>;
}

/// A struct: named fields.
pub(super) trait Record: Default {
    fn write_fields(&self, out: &mut Out);
    fn read_fields(fields: &Fields<'_>) -> Result<Self>;
}

/// Defines a record whose C++ members have the names of its fields. `added` lists those that some version lacks.
macro_rules! record {
    ($(added: $added:ident;)? $(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $crate::wire::value::Record for $name {
            fn write_fields(&self, out: &mut $crate::wire::value::Out) {
                let added: &[$crate::wire::value::Added] = &[$(|release| release.$added)?];
                $($crate::wire::value::write_known(out, added, stringify!($field), &self.$field);)*
            }

            fn read_fields(fields: &$crate::wire::value::Fields<'_>) -> $crate::Result<Self> {
                let mut record = Self::default();
                $(fields.read(stringify!($field), &mut record.$field)?;)*
                Ok(record)
            }
        }
    };
}
pub(super) use record;

/// Appends `name=value;`.
pub(super) fn write_field(out: &mut Out, name: &str, value: &impl Value) {
    out.push(name);
    out.push("=");
    value.write(out);
    out.push(";");
}

/// The same, unless the reader does not know the field.
pub(super) fn write_known(out: &mut Out, added: &[Added], name: &str, value: &impl Value) {
    if added
        .iter()
        .all(|&added| reads_field(added, name, out.version))
    {
        write_field(out, name, value);
    }
}

/// The fields of one struct. If two have the same name, the last counts (`StringToMap`).
pub(super) struct Fields<'a>(BTreeMap<&'a str, TextSlice<'a>>);

impl<'a> Fields<'a> {
    pub(super) fn parse(text: TextSlice<'a>) -> Result<Self> {
        Ok(Self(text.fields()?.into_iter().collect()))
    }

    pub(super) fn get(&self, name: &str) -> Option<TextSlice<'a>> {
        self.0.get(name).copied()
    }

    /// Names and values, in the order of the names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a str, TextSlice<'a>)> {
        self.0.iter().map(|(name, value)| (*name, *value))
    }

    /// Replaces `value` by the field's, if the field exists.
    pub(super) fn read<T: Value>(&self, name: &str, value: &mut T) -> Result<()> {
        if let Some(piece) = self.get(name) {
            *value = T::read(piece).map_err(|mut error| {
                error.what = format!("{name}: {}", error.what).into();
                error
            })?;
        }
        Ok(())
    }
}

impl<T: Record> Value for T {
    fn write(&self, out: &mut Out) {
        out.push("{");
        self.write_fields(out);
        out.push("}");
    }

    fn read(text: TextSlice<'_>) -> Result<Self> {
        Self::read_fields(&Fields::parse(text)?)
    }
}

/// Reads a decimal integer; a pair of braces around it is tolerated, as in RocksDB.
fn integer<T: std::str::FromStr>(text: TextSlice<'_>) -> Result<T> {
    let inner = text.without_braces()?.trim();
    inner
        .text
        .parse()
        .map_err(|_| inner.corruption("not an integer in range"))
}

impl Value for u64 {
    fn write(&self, out: &mut Out) {
        write_decimal(out, self);
    }

    fn read(text: TextSlice<'_>) -> Result<Self> {
        integer(text)
    }
}

impl Value for i32 {
    fn write(&self, out: &mut Out) {
        write_decimal(out, self);
    }

    fn read(text: TextSlice<'_>) -> Result<Self> {
        integer(text)
    }
}

fn write_decimal(out: &mut Out, value: &impl std::fmt::Display) {
    write!(out.text, "{value}").expect("writing to a String cannot fail");
}

impl Value for bool {
    fn write(&self, out: &mut Out) {
        out.push(if *self { "true" } else { "false" });
    }

    fn read(text: TextSlice<'_>) -> Result<Self> {
        let inner = text.without_braces()?.trim();
        match inner.text {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(inner.corruption("not a truth value")),
        }
    }
}

/// A string of any bytes, in hex.
impl Value for Vec<u8> {
    fn write(&self, out: &mut Out) {
        write_hex(&mut out.text, self);
    }

    fn read(text: TextSlice<'_>) -> Result<Self> {
        let inner = text.without_braces()?.trim();
        decode_hex(inner.text.as_bytes()).ok_or_else(|| inner.corruption("not a hex string"))
    }
}

pub(super) fn write_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.reserve(2 * bytes.len());
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 0xf)]));
    }
}

fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    const RADIX: u32 = 16;
    let digit = |c: u8| char::from(c).to_digit(RADIX);
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs
        .iter()
        .map(|&[high, low]| Some((digit(high)? << 4 | digit(low)?) as u8))
        .collect()
}

/// The base name of a file, and not a path, because a worker joins it to a directory.
impl Value for String {
    fn write(&self, out: &mut Out) {
        write_hex(&mut out.text, self.as_bytes());
    }

    fn read(text: TextSlice<'_>) -> Result<Self> {
        let name = String::from_utf8(Vec::<u8>::read(text)?)
            .map_err(|_| text.corruption("file name is not UTF-8"))?;
        if matches!(name.as_str(), "" | "." | "..") || name.contains(['/', '\0']) {
            return Err(text.corruption("not the base name of a file"));
        }
        Ok(name)
    }
}

fn write_vector<T: Value>(out: &mut Out, values: &[T]) {
    for (i, value) in values.iter().enumerate() {
        if i > 0 {
            out.text.push(SEPARATOR);
        }
        value.write(out);
    }
}

fn read_vector<T: Value>(text: TextSlice<'_>) -> Result<Vec<T>> {
    text.elements(SEPARATOR)?.into_iter().map(T::read).collect()
}

impl Value for Vec<u64> {
    fn write(&self, out: &mut Out) {
        write_vector(out, self);
    }

    fn read(text: TextSlice<'_>) -> Result<Self> {
        read_vector(text)
    }
}

impl Value for Vec<String> {
    fn write(&self, out: &mut Out) {
        write_vector(out, self);
    }

    fn read(text: TextSlice<'_>) -> Result<Self> {
        read_vector(text)
    }
}

impl Value for [u64; 2] {
    fn write(&self, out: &mut Out) {
        write_vector(out, self);
    }

    fn read(text: TextSlice<'_>) -> Result<Self> {
        let values = read_vector(text)?;
        Self::try_from(values).map_err(|_| text.corruption("not two integers"))
    }
}

impl Value for Temperature {
    fn write(&self, out: &mut Out) {
        out.push(self.name());
    }

    fn read(text: TextSlice<'_>) -> Result<Self> {
        let inner = text.without_braces()?.trim();
        Self::from_name(inner.text).ok_or_else(|| inner.corruption("not a temperature"))
    }
}

/// A vector of structs, in the braces that RocksDB's writer puts around it
/// (`options_type.h:SerializeVector`): `{{{..}}:{{..}}}`.
impl Value for Vec<OutputFile> {
    fn write(&self, out: &mut Out) {
        if self.is_empty() {
            return;
        }
        out.push("{");
        for (i, file) in self.iter().enumerate() {
            out.push(if i > 0 { ":{" } else { "{" });
            file.write(out);
            out.push("}");
        }
        out.push("}");
    }

    fn read(text: TextSlice<'_>) -> Result<Self> {
        read_vector(text)
    }
}
