//! Functions over bytes that DataFusion lacks.
//!
//! - `u8(value, at)`, `i64be(value, at)`, `f32le(value, at)` and so on: the number stored at an offset in bytes, or
//!   null if the bytes end before it does.
//! - `interval_nanoseconds(interval)`: its length, by which intervals are compared.
//! - `starts_with`, `ends_with`, `contains` and `octet_length` of bytes. DataFusion has them for text alone.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, Int32Array, Int64Array, PrimitiveArray,
};
use datafusion::arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::common::cast::{as_binary_array, as_int64_array};
use datafusion::common::{ScalarValue, exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use rockmill_core::scan::{Number, NumberFormat};
use rockmill_layout::is_binary;

use crate::intervals::Length;

/// All functions.
pub fn all() -> Vec<ScalarUDF> {
    let numbers = NUMBERS.iter().map(|(name, data_type, number)| {
        ScalarUDF::from(NumberAt {
            name,
            data_type: data_type.clone(),
            number: *number,
            signature: Signature::exact(
                vec![DataType::Binary, DataType::Int64],
                Volatility::Immutable,
            ),
        })
    });
    let of_bytes = [
        (
            BytesFunction::StartsWith,
            datafusion::functions::string::starts_with(),
        ),
        (
            BytesFunction::EndsWith,
            datafusion::functions::string::ends_with(),
        ),
        (
            BytesFunction::Contains,
            datafusion::functions::string::contains(),
        ),
        (
            BytesFunction::OctetLength,
            datafusion::functions::string::octet_length(),
        ),
    ];
    let of_bytes = of_bytes.map(|(function, of_text)| {
        ScalarUDF::from(OfBytes {
            function,
            of_text,
            signature: Signature::user_defined(Volatility::Immutable),
        })
    });
    let length = ScalarUDF::from(Length::default());
    numbers.chain(of_bytes).chain([length]).collect()
}

/// Whether a function is one of [`all`], or one of these of DataFusion. They return a value or null for all arguments. Their
/// names do not tell, because a program may register a function of its own under any name.
pub fn is_known(function: &ScalarUDF) -> bool {
    use datafusion::functions::string;
    let of_text = [
        string::starts_with(),
        string::ends_with(),
        string::contains(),
        string::octet_length(),
    ];
    is_own(function) || of_text.iter().any(|known| **known == *function)
}

/// Whether a function is one of [`all`].
pub fn is_own(function: &ScalarUDF) -> bool {
    let function = function.inner();
    function.downcast_ref::<NumberAt>().is_some() || function.downcast_ref::<OfBytes>().is_some()
}

/// Storage of the number of a function, `u16be` and the like.
pub fn number_of(function: &str) -> Option<Number> {
    let mut all = NUMBERS.iter();
    all.find(|(name, ..)| *name == function)
        .map(|&(_, _, number)| number)
}

const fn number(bytes: u8, is_big_endian: bool, format: NumberFormat) -> Number {
    Number {
        bytes,
        is_big_endian,
        format,
    }
}

use NumberFormat::{Float, Signed, Unsigned};

/// Name, type and storage of each function of numbers.
static NUMBERS: [(&str, DataType, Number); 18] = [
    ("u8", DataType::UInt8, number(1, true, Unsigned)),
    ("i8", DataType::Int8, number(1, true, Signed)),
    ("u16be", DataType::UInt16, number(2, true, Unsigned)),
    ("u16le", DataType::UInt16, number(2, false, Unsigned)),
    ("i16be", DataType::Int16, number(2, true, Signed)),
    ("i16le", DataType::Int16, number(2, false, Signed)),
    ("u32be", DataType::UInt32, number(4, true, Unsigned)),
    ("u32le", DataType::UInt32, number(4, false, Unsigned)),
    ("i32be", DataType::Int32, number(4, true, Signed)),
    ("i32le", DataType::Int32, number(4, false, Signed)),
    ("u64be", DataType::UInt64, number(8, true, Unsigned)),
    ("u64le", DataType::UInt64, number(8, false, Unsigned)),
    ("i64be", DataType::Int64, number(8, true, Signed)),
    ("i64le", DataType::Int64, number(8, false, Signed)),
    ("f32be", DataType::Float32, number(4, true, Float)),
    ("f32le", DataType::Float32, number(4, false, Float)),
    ("f64be", DataType::Float64, number(8, true, Float)),
    ("f64le", DataType::Float64, number(8, false, Float)),
];

/// The number at an offset.
#[derive(Debug)]
struct NumberAt {
    name: &'static str,
    data_type: DataType,
    number: Number,
    signature: Signature,
}

impl PartialEq for NumberAt {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for NumberAt {}

impl std::hash::Hash for NumberAt {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for NumberAt {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.data_type.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [from, at] = &args.args[..] else {
            return internal_err!("{} takes two arguments", self.name);
        };
        let (from, at) = (from.to_array(rows)?, at.to_array(rows)?);
        let (from, at) = (as_binary_array(&from)?, as_int64_array(&at)?);
        let is_big_endian = self.number.is_big_endian;
        macro_rules! of {
            ($arrow:ty, $native:ty) => {
                numbers::<$arrow, _>(from, at, |bytes| {
                    let bytes = bytes.try_into().ok()?;
                    Some(match is_big_endian {
                        true => <$native>::from_be_bytes(bytes),
                        false => <$native>::from_le_bytes(bytes),
                    })
                })
            };
        }
        let array = match self.data_type {
            DataType::UInt8 => of!(UInt8Type, u8),
            DataType::Int8 => of!(Int8Type, i8),
            DataType::UInt16 => of!(UInt16Type, u16),
            DataType::Int16 => of!(Int16Type, i16),
            DataType::UInt32 => of!(UInt32Type, u32),
            DataType::Int32 => of!(Int32Type, i32),
            DataType::UInt64 => of!(UInt64Type, u64),
            DataType::Int64 => of!(Int64Type, i64),
            DataType::Float32 => of!(Float32Type, f32),
            DataType::Float64 => of!(Float64Type, f64),
            _ => return internal_err!("{} makes no number", self.name),
        };
        Ok(ColumnarValue::Array(array))
    }
}

fn numbers<T, F>(from: &BinaryArray, at: &Int64Array, read: F) -> ArrayRef
where
    T: ArrowPrimitiveType,
    F: Fn(&[u8]) -> Option<T::Native>,
{
    let rows = from.iter().zip(at.iter());
    let numbers = rows.map(|(bytes, at)| {
        let start = usize::try_from(at?).ok()?;
        let end = start.checked_add(size_of::<T::Native>())?;
        read(bytes?.get(start..end)?)
    });
    Arc::new(numbers.collect::<PrimitiveArray<T>>())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum BytesFunction {
    StartsWith,
    EndsWith,
    Contains,
    OctetLength,
}

/// A text function of DataFusion that takes bytes too.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfBytes {
    function: BytesFunction,
    of_text: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for OfBytes {
    fn name(&self) -> &str {
        self.of_text.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let count = match self.function {
            BytesFunction::OctetLength => 1,
            _ => 2,
        };
        if types.len() != count {
            return plan_err!(
                "{} takes {count} arguments, not {}",
                self.name(),
                types.len()
            );
        }
        // A literal next to bytes counts as bytes.
        let target = match types.iter().any(is_binary) {
            true => DataType::Binary,
            false => DataType::Utf8,
        };
        Ok(vec![target; count])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.function {
            BytesFunction::OctetLength => DataType::Int32,
            _ => DataType::Boolean,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if !args.args.iter().any(|arg| is_binary(&arg.data_type())) {
            return self.of_text.invoke_with_args(args);
        }
        let rows = args.number_rows;
        let of = args.args[0].to_array(rows)?;
        let of = as_binary_array(&of)?;
        if self.function == BytesFunction::OctetLength {
            let lengths = of.iter().map(|bytes| bytes.map(|bytes| bytes.len() as i32));
            return Ok(ColumnarValue::Array(Arc::new(
                lengths.collect::<Int32Array>(),
            )));
        }
        let matches: fn(&[u8], &[u8]) -> bool = match self.function {
            BytesFunction::StartsWith => |of, part| of.starts_with(part),
            BytesFunction::EndsWith => |of, part| of.ends_with(part),
            _ => |of, part| part.is_empty() || of.windows(part.len()).any(|window| window == part),
        };
        let Some(part) = args.args.get(1) else {
            return exec_err!("{} takes two arguments", self.name());
        };
        let array: BooleanArray = match part {
            ColumnarValue::Scalar(ScalarValue::Binary(Some(part))) => {
                of.iter().map(|of| Some(matches(of?, part))).collect()
            }
            part => {
                let part = part.to_array(rows)?;
                let parts = as_binary_array(&part)?.iter();
                of.iter()
                    .zip(parts)
                    .map(|(of, part)| Some(matches(of?, part?)))
                    .collect()
            }
        };
        Ok(ColumnarValue::Array(Arc::new(array)))
    }
}
