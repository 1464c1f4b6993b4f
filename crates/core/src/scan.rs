//! A scan: which rows are selected, and what is computed from them.
//!
//! A [`ScanPlan`] is a small program in single assignment form. Every backend runs it for each row, and passes on the
//! same [`Batch`]es in the memory layout of Apache Arrow.

use serde::{Deserialize, Serialize};

use crate::error::Result;

mod batches;
mod cell;
mod check;
#[allow(missing_docs, reason = "the instructions document them")]
pub mod codes;
mod decimal;
mod groups;
mod instructions;
mod json;
mod kernels;
mod latin1;
mod schedule;
mod size;
mod strings;
mod temporal;

pub use batches::{Batches, too_many_bytes};
pub use cell::{Cell, Cells};
pub use decimal::PackedDecimal;
pub use groups::{Groups, Part, exceeds};
pub use instructions::{Instruction, Kernel};
pub use json::{Json, JsonType};
pub use kernels::lies_in_groups;
pub use latin1::utf8_of_latin1;
pub use schedule::{Schedule, Step};
pub use strings::StringGroups;
pub use temporal::Calendar;

/// Maximum rows of a batch.
pub const BATCH_ROWS: usize = 262_144;

/// Maximum bytes of a batch's columns, unless a single row has more. A row counts [`ColumnType::row_bytes`] for each
/// column plus the bytes of its byte columns. A batch ends before the row that would exceed the maximum of rows or
/// bytes.
pub const BATCH_BYTES: usize = 64 << 20;

/// Maximum bytes of the groups' keys and of the stored minima and maxima, before groups are passed on.
pub const GROUP_BYTES: usize = 4 << 20;

/// Maximum instructions of a plan: those of some 3,000 columns. Registers could number twice as many.
pub const MAX_INSTRUCTIONS: usize = 1 << 15;

/// The position of an instruction in its plan, which names the instruction's result.
pub type Register = u16;

/// A program that a scan runs for each row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScanPlan {
    /// Each computes one value from earlier results.
    pub instructions: Vec<Instruction>,
    /// Conditions that hold in every row that the snapshot sees, selected or not.
    pub checks: Vec<Check>,
    /// Selects the rows where this is true, not where it is false or null. Without a filter, all rows are selected.
    pub filter: Option<Register>,
    /// The results from the selected rows.
    pub output: ScanOutput,
}

/// A condition for the interpretation of a row: its bytes match the table's columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Satisfied if true, not if false or null.
    pub holds: Register,
    /// Text of the error if the check fails, as a clause. The error also gives the key.
    pub what: String,
    /// Whether rows that fail are counted instead of causing an error.
    pub counts: bool,
}

/// The results from the selected rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ScanOutput {
    /// A row for each, in the order of the keys. Without columns, the number of rows is the result.
    Rows(Vec<OutputColumn>),
    /// A row for each group.
    Groups(Aggregation),
}

impl Default for ScanOutput {
    fn default() -> Self {
        Self::Rows(Vec::new())
    }
}

/// Rows are grouped by the values of some columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Aggregation {
    /// Rows whose stored values are equal, nulls included, are one group. Without keys, all rows are one group, which
    /// exists even without rows.
    pub keys: Vec<OutputColumn>,
    /// The columns that follow the keys.
    pub aggregates: Vec<Aggregate>,
    /// Maximum number of groups in memory. If another one comes, the groups so far are passed on and forgotten; so a
    /// group may be passed on several times, each time with a part of its rows. The same happens if the keys and the
    /// stored minima and maxima exceed [`GROUP_BYTES`]. Groups are passed on in the order of their first rows.
    pub max_groups: u32,
}

/// An aggregate over the rows of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Aggregate {
    /// Number of rows, or of those in which a value is not null. An integer of 8 bytes.
    Count(Option<Register>),
    /// Sum of an integer's values that are not null; null without any.
    Sum {
        /// The integer.
        of: Register,
        /// Treatment of a sum that is out of range.
        range: IntegerRange,
        /// How it is stored.
        stored: ColumnType,
    },
    /// Minimum of the values that are not null; null if there are none.
    Min(OutputColumn),
    /// Maximum of the values that are not null; null if there are none.
    Max(OutputColumn),
}

/// A column of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputColumn {
    /// The value.
    pub register: Register,
    /// How it is stored.
    pub stored: ColumnType,
}

/// Memory layout of a column: that of Apache Arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ColumnType {
    /// A bit for each row, from the lowest bit of the first byte on.
    Boolean,
    /// The lowest bytes of an integer, little-endian.
    Integer {
        /// Bytes of a value: 1, 2, 4, 8 or 16.
        bytes: u8,
    },
    /// An IEEE 754 number, from an integer of [`NumberFormat::Float`].
    Float {
        /// Bytes of a value: 4 or 8.
        bytes: u8,
    },
    /// Bytes, with a 4-byte offset for each row's first byte, and one for the end.
    Bytes,
}

impl ColumnType {
    /// Bytes per row of a column; for a column of bytes, those of the offset.
    pub fn row_bytes(self) -> usize {
        match self {
            Self::Boolean => 1,
            Self::Integer { bytes } | Self::Float { bytes } => usize::from(bytes),
            Self::Bytes => size_of::<i32>(),
        }
    }
}

/// Type of a value while a program runs. Any value may be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ValueKind {
    /// True or false.
    Boolean,
    /// A signed integer of 128 bits: numbers, decimals without their point, dates. Floats are integers with the same
    /// order ([`NumberFormat::Float`]).
    Integer,
    /// Bytes.
    Bytes,
}

/// A constant value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Literal {
    /// Null, of some kind.
    Null(ValueKind),
    /// True or false.
    Boolean(bool),
    /// An integer.
    Integer(i128),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// How a number is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Number {
    /// Bytes: 1 to 8 or 16, of a float 4 or 8.
    pub bytes: u8,
    /// Order of the bytes.
    pub is_big_endian: bool,
    /// Their meaning.
    pub format: NumberFormat,
}

/// How the length of bytes is stored before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Prefix {
    /// LEB128, of at most 10 bytes and 64 bits.
    Varint,
    /// An unsigned number.
    Number(Number),
}

/// Meaning of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NumberFormat {
    /// An unsigned integer of at most 8 bytes.
    Unsigned,
    /// Two's complement.
    Signed,
    /// Two's complement with its highest bit inverted: as big-endian bytes, these sort in the order of the numbers.
    SignedInverted,
    /// An IEEE 754 number. Its bits become a signed integer of as many bits, whose lower bits are inverted if the
    /// highest one is set. These integers sort as Arrow orders floats: `totalOrder`.
    Float,
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Comparison {
    /// =
    Equal,
    /// <>
    NotEqual,
    /// <
    Less,
    /// <=
    LessOrEqual,
    /// >
    Greater,
    /// >=
    GreaterOrEqual,
}

/// An operation of two integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operation {
    /// +
    Add,
    /// -
    Subtract,
    /// *
    Multiply,
}

/// Treatment of an integer that is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IntegerRange {
    /// Its lowest bytes are kept, as two's complement.
    WrapSigned {
        /// Bytes of the result: 1, 2, 4, 8 or 16.
        bytes: u8,
    },
    /// Its lowest bytes are kept, as an unsigned number.
    WrapUnsigned {
        /// Bytes of the result: 1, 2, 4 or 8.
        bytes: u8,
    },
    /// Exceeding 128 bits is an error. For a sum, the total of all rows of a group counts.
    Exact,
}

/// A pattern for bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Pattern {
    /// They begin so.
    Prefix(Vec<u8>),
    /// They end so.
    Suffix(Vec<u8>),
    /// They contain these.
    Contains(Vec<u8>),
    /// Parts of a pattern of SQL's LIKE.
    Parts(Vec<PatternPart>),
}

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PatternPart {
    /// These bytes.
    Bytes(Vec<u8>),
    /// `_`: one character of UTF-8, or one byte that belongs to no character. It begins where a character does.
    AnyCharacter,
    /// `%`: any bytes, or none.
    AnyBytes,
}

/// Rows in columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Number of rows.
    pub rows: usize,
    /// The columns, in the order of the plan.
    pub columns: Vec<Column>,
}

/// A column of a batch, in the memory layout of [`ColumnType`]. Bits behind the last row's are 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Column {
    /// Values, or the bytes of all rows. A null has zeros, or no bytes.
    pub values: Vec<u8>,
    /// For a column of bytes: the offset of each row's value, and the end of the last one; one more than rows.
    pub offsets: Vec<i32>,
    /// A bit for each row, set if the value is not null; `None` if none is null.
    pub validity: Option<Vec<u8>>,
}

/// Receives batches, in the order of the keys.
pub trait BatchSink {
    /// Receives the next batch, which has at least one row.
    ///
    /// # Errors
    /// Any error; the task ends with it.
    fn batch(&mut self, batch: Batch) -> Result<()>;
}
