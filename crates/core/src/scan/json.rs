//! What a program takes from JSON.

use serde::{Deserialize, Serialize};

use super::{ValueKind, check};

/// Value to take from bytes that are a JSON object; null if they are not one. If members share a name, the last one
/// counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Json {
    /// That they are one: true.
    IsObject,
    /// Whether there is a member of this name, other than `null`.
    Has(String),
    /// The member of this name; null if there is none that is a value of this type.
    Member(String, JsonType),
}

/// Type of a member of a JSON object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JsonType {
    /// `true` or `false`.
    Boolean,
    /// A number without point and exponent.
    Integer {
        /// Bytes that it fits: 1, 2, 4 or 8.
        bytes: u8,
        /// Whether it may be negative.
        is_signed: bool,
    },
    /// The nearest IEEE 754 number of a number, if it is finite, as an integer of [`super::NumberFormat::Float`].
    Float {
        /// Its bytes: 4 or 8.
        bytes: u8,
    },
    /// A number, or a string that is one, without its point.
    Decimal {
        /// Most digits: 1 to 38.
        precision: u8,
        /// Digits behind the point.
        scale: u8,
    },
    /// A string, or the text of an object or of an array. It is UTF-8.
    Text,
}

impl Json {
    /// Kind of the values.
    pub(super) fn kind(&self) -> ValueKind {
        match self {
            Self::IsObject | Self::Has(_) | Self::Member(_, JsonType::Boolean) => {
                ValueKind::Boolean
            }
            Self::Member(_, JsonType::Text) => ValueKind::Bytes,
            Self::Member(..) => ValueKind::Integer,
        }
    }

    /// Whether its sizes are those that the types name.
    pub(super) fn is_known(&self) -> bool {
        match self {
            Self::Member(_, JsonType::Integer { bytes, .. }) => matches!(bytes, 1 | 2 | 4 | 8),
            Self::Member(_, JsonType::Float { bytes }) => check::is_float_size(*bytes),
            Self::Member(_, JsonType::Decimal { precision, scale }) => {
                matches!(precision, 1..=38) && scale <= precision
            }
            _ => true,
        }
    }
}
