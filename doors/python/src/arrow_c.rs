//! Arrow's C data interface: schemas, arrays and streams as other libraries of a Python process take them.
//!
//! The crates of Arrow have this behind a feature that nothing else here needs, and with which all of DataFusion would be
//! compiled a second time. <https://arrow.apache.org/docs/format/CDataInterface.html> has the formats.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayData, RecordBatch, StructArray, layout};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use datafusion::arrow::datatypes::{
    DataType, Field, IntervalUnit, Schema, SchemaRef, TimeUnit, UnionMode,
};

/// `struct ArrowSchema`.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut Self,
    dictionary: *mut Self,
    release: Option<unsafe extern "C" fn(*mut Self)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray`.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Self,
    dictionary: *mut Self,
    release: Option<unsafe extern "C" fn(*mut Self)>,
    private_data: *mut c_void,
}

/// `struct ArrowArrayStream`.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut Self, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Self, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Self) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Self)>,
    private_data: *mut c_void,
}

// SAFETY: what they point to is theirs alone, and may be used and released on any thread.
unsafe impl Send for ArrowSchema {}
// SAFETY: as above.
unsafe impl Send for ArrowArray {}
// SAFETY: as above; the batches of a stream are `Send`.
unsafe impl Send for ArrowArrayStream {}

/// `ARROW_FLAG_DICTIONARY_ORDERED`, `ARROW_FLAG_NULLABLE`, `ARROW_FLAG_MAP_KEYS_SORTED`.
const DICTIONARY_ORDERED: i64 = 1;
const NULLABLE: i64 = 2;
const MAP_KEYS_SORTED: i64 = 4;

/// What a schema owns.
struct SchemaParts {
    _format: CString,
    _name: CString,
    _metadata: Option<Vec<u8>>,
    children: Vec<*mut ArrowSchema>,
    dictionary: *mut ArrowSchema,
}

/// What an array owns.
struct ArrayParts {
    _buffers: Vec<Option<Buffer>>,
    _pointers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
    dictionary: *mut ArrowArray,
}

impl Drop for ArrowSchema {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: it is not released yet.
            unsafe { release(self) };
        }
    }
}

impl Drop for ArrowArray {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: it is not released yet.
            unsafe { release(self) };
        }
    }
}

impl Drop for ArrowArrayStream {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: it is not released yet.
            unsafe { release(self) };
        }
    }
}

/// # Safety
/// `schema` is one of [`ArrowSchema::of`] that is not released.
unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: the caller says so; `of` has made the parts.
    unsafe {
        let parts = Box::from_raw((*schema).private_data.cast::<SchemaParts>());
        // A consumer may have moved a child away, which it releases itself.
        parts
            .children
            .iter()
            .for_each(|&child| drop(Box::from_raw(child)));
        if !parts.dictionary.is_null() {
            drop(Box::from_raw(parts.dictionary));
        }
        (*schema).release = None;
    }
}

/// # Safety
/// `array` is one of [`ArrowArray::of`] that is not released.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: the caller says so; `of` has made the parts.
    unsafe {
        let parts = Box::from_raw((*array).private_data.cast::<ArrayParts>());
        parts
            .children
            .iter()
            .for_each(|&child| drop(Box::from_raw(child)));
        if !parts.dictionary.is_null() {
            drop(Box::from_raw(parts.dictionary));
        }
        (*array).release = None;
    }
}

/// Without zero bytes, which C's strings do not have.
fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| {
        format!("the name {text:?} has a zero byte, which Arrow's C interface does not pass")
    })
}

impl ArrowSchema {
    /// The columns of batches.
    ///
    /// # Errors
    /// One sentence if the interface does not have a name.
    pub fn of(schema: &Schema) -> Result<Self, String> {
        let whole = Field::new("", DataType::Struct(schema.fields().clone()), false);
        Self::of_field(&whole.with_metadata(schema.metadata().clone()))
    }

    fn of_field(field: &Field) -> Result<Self, String> {
        let data_type = field.data_type();
        let (stored, dictionary) = match data_type {
            DataType::Dictionary(keys, values) => (&**keys, Some(&**values)),
            other => (other, None),
        };
        let format = c_string(&format(stored))?;
        let name = c_string(field.name())?;
        let children = children(stored).into_iter().map(Self::of_field);
        // An error drops all of them, so all are made before the first leaves.
        let children = children.collect::<Result<Vec<_>, _>>()?;
        let dictionary =
            dictionary.map(|values| Self::of_field(&Field::new("", values.clone(), true)));
        let dictionary = dictionary.transpose()?;
        let mut flags = 0;
        if field.is_nullable() {
            flags |= NULLABLE;
        }
        if field.dict_is_ordered() == Some(true) {
            flags |= DICTIONARY_ORDERED;
        }
        if matches!(data_type, DataType::Map(_, true)) {
            flags |= MAP_KEYS_SORTED;
        }
        let metadata = (!field.metadata().is_empty()).then(|| {
            let mut pairs: Vec<_> = field.metadata().iter().collect();
            pairs.sort_unstable();
            metadata(&pairs)
        });
        let owned = |schema| Box::into_raw(Box::new(schema));
        let mut parts = Box::new(SchemaParts {
            children: children.into_iter().map(owned).collect(),
            dictionary: dictionary.map_or(ptr::null_mut(), owned),
            _format: format,
            _name: name,
            _metadata: metadata,
        });
        Ok(Self {
            format: parts._format.as_ptr(),
            name: parts._name.as_ptr(),
            metadata: parts
                ._metadata
                .as_ref()
                .map_or(ptr::null(), |bytes| bytes.as_ptr().cast()),
            flags,
            n_children: parts.children.len() as i64,
            children: parts.children.as_mut_ptr(),
            dictionary: parts.dictionary,
            release: Some(release_schema),
            private_data: Box::into_raw(parts).cast(),
        })
    }

    /// The columns that a schema of another library describes.
    ///
    /// # Errors
    /// One sentence if it describes no columns, or a type that layouts do not have.
    ///
    /// # Safety
    /// `schema` is null or a schema of the C data interface.
    pub unsafe fn read(schema: *const Self) -> Result<SchemaRef, String> {
        // SAFETY: the caller says so.
        let Some(schema) = (unsafe { schema.as_ref() }).filter(|schema| schema.release.is_some())
        else {
            return Err("the schema was released already".to_owned());
        };
        // SAFETY: the interface says so.
        let format = unsafe { text(schema.format) }?;
        if format != "+s" {
            return Err(format!(
                "the schema is of one array of format {format:?}, and not of a table's columns"
            ));
        }
        let mut fields = Vec::new();
        if schema.children.is_null() && schema.n_children != 0 {
            return Err("the schema has no columns where it says so".to_owned());
        }
        for at in 0..usize::try_from(schema.n_children).unwrap_or(0) {
            // SAFETY: the interface says that there are so many.
            let child = unsafe { (*schema.children.add(at)).as_ref() };
            let Some(child) = child.filter(|child| child.release.is_some()) else {
                return Err("a column of the schema was released already".to_owned());
            };
            // SAFETY: the interface says so.
            let (name, format) = unsafe { (text(child.name)?, text(child.format)?) };
            let plain = child.dictionary.is_null();
            let data_type = scalar(&format).filter(|_| plain);
            let data_type = data_type
                .ok_or_else(|| format!("column {name} has a type that layouts do not have"))?;
            fields.push(Field::new(name, data_type, child.flags & NULLABLE != 0));
        }
        Ok(Arc::new(Schema::new(fields)))
    }
}

/// # Safety
/// `text` is null or a string of C.
unsafe fn text(text: *const c_char) -> Result<String, String> {
    if text.is_null() {
        return Ok(String::new());
    }
    // SAFETY: the caller says so.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text
        .to_str()
        .map_err(|_| "the schema has a name that is not UTF-8".to_owned());
    text.map(str::to_owned)
}

/// Pairs as the interface stores them.
fn metadata(pairs: &[(&String, &String)]) -> Vec<u8> {
    let mut bytes = (pairs.len() as i32).to_ne_bytes().to_vec();
    for text in pairs.iter().flat_map(|(key, value)| [key, value]) {
        bytes.extend((text.len() as i32).to_ne_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

fn children(data_type: &DataType) -> Vec<&Field> {
    match data_type {
        DataType::List(child)
        | DataType::LargeList(child)
        | DataType::ListView(child)
        | DataType::LargeListView(child)
        | DataType::FixedSizeList(child, _)
        | DataType::Map(child, _) => vec![child],
        DataType::Struct(fields) => fields.iter().map(|field| &**field).collect(),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| &**field).collect(),
        DataType::RunEndEncoded(ends, values) => vec![ends, values],
        _ => Vec::new(),
    }
}

/// A type in the interface's words.
fn format(data_type: &DataType) -> String {
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 's',
        TimeUnit::Millisecond => 'm',
        TimeUnit::Microsecond => 'u',
        TimeUnit::Nanosecond => 'n',
    };
    let plain = match data_type {
        DataType::Null => "n",
        DataType::Boolean => "b",
        DataType::Int8 => "c",
        DataType::UInt8 => "C",
        DataType::Int16 => "s",
        DataType::UInt16 => "S",
        DataType::Int32 => "i",
        DataType::UInt32 => "I",
        DataType::Int64 => "l",
        DataType::UInt64 => "L",
        DataType::Float16 => "e",
        DataType::Float32 => "f",
        DataType::Float64 => "g",
        DataType::Binary => "z",
        DataType::LargeBinary => "Z",
        DataType::BinaryView => "vz",
        DataType::Utf8 => "u",
        DataType::LargeUtf8 => "U",
        DataType::Utf8View => "vu",
        DataType::Date32 => "tdD",
        DataType::Date64 => "tdm",
        DataType::Interval(IntervalUnit::YearMonth) => "tiM",
        DataType::Interval(IntervalUnit::DayTime) => "tiD",
        DataType::Interval(IntervalUnit::MonthDayNano) => "tin",
        DataType::List(_) => "+l",
        DataType::LargeList(_) => "+L",
        DataType::ListView(_) => "+vl",
        DataType::LargeListView(_) => "+vL",
        DataType::Struct(_) => "+s",
        DataType::Map(..) => "+m",
        DataType::RunEndEncoded(..) => "+r",
        DataType::Timestamp(of, zone) => {
            return format!("ts{}:{}", unit(of), zone.as_deref().unwrap_or_default());
        }
        DataType::Time32(of) | DataType::Time64(of) => return format!("tt{}", unit(of)),
        DataType::Duration(of) => return format!("tD{}", unit(of)),
        DataType::FixedSizeBinary(bytes) => return format!("w:{bytes}"),
        DataType::FixedSizeList(_, items) => return format!("+w:{items}"),
        DataType::Decimal32(precision, scale) => return format!("d:{precision},{scale},32"),
        DataType::Decimal64(precision, scale) => return format!("d:{precision},{scale},64"),
        DataType::Decimal128(precision, scale) => return format!("d:{precision},{scale}"),
        DataType::Decimal256(precision, scale) => return format!("d:{precision},{scale},256"),
        DataType::Union(fields, mode) => {
            let mode = match mode {
                UnionMode::Dense => 'd',
                UnionMode::Sparse => 's',
            };
            let ids: Vec<_> = fields.iter().map(|(id, _)| id.to_string()).collect();
            return format!("+u{mode}:{}", ids.join(","));
        }
        DataType::Dictionary(keys, _) => return format(keys),
    };
    plain.to_owned()
}

/// Types of columns that layouts may have, without the parameters of some.
const SCALARS: [DataType; 19] = [
    DataType::Boolean,
    DataType::Int8,
    DataType::UInt8,
    DataType::Int16,
    DataType::UInt16,
    DataType::Int32,
    DataType::UInt32,
    DataType::Int64,
    DataType::UInt64,
    DataType::Float32,
    DataType::Float64,
    DataType::Date32,
    DataType::Binary,
    DataType::LargeBinary,
    DataType::BinaryView,
    DataType::Utf8,
    DataType::LargeUtf8,
    DataType::Utf8View,
    DataType::Null,
];

/// The type of a column that a layout may have.
fn scalar(text: &str) -> Option<DataType> {
    if let Some(plain) = SCALARS.iter().find(|plain| format(plain) == text) {
        return Some(plain.clone());
    }
    if let Some(numbers) = text.strip_prefix("d:") {
        let (precision, scale) = numbers.split_once(',')?;
        return Some(DataType::Decimal128(
            precision.parse().ok()?,
            scale.parse().ok()?,
        ));
    }
    let (unit, zone) = text.strip_prefix("ts")?.split_once(':')?;
    let unit = match unit {
        "s" => TimeUnit::Second,
        "m" => TimeUnit::Millisecond,
        "u" => TimeUnit::Microsecond,
        "n" => TimeUnit::Nanosecond,
        _ => return None,
    };
    Some(DataType::Timestamp(
        unit,
        (!zone.is_empty()).then(|| zone.into()),
    ))
}

impl ArrowArray {
    /// A batch as an array of structs. Its buffers are shared, and not copied.
    pub fn of(batch: RecordBatch) -> Self {
        Self::of_data(&StructArray::from(batch).into_data())
    }

    fn of_data(data: &ArrayData) -> Self {
        let layout = layout(data.data_type());
        let mut buffers = Vec::new();
        if layout.can_contain_null_mask {
            buffers.push(nulls_at(data.offset(), data.nulls()));
        }
        buffers.extend(data.buffers().iter().cloned().map(Some));
        if layout.variadic {
            // The lengths of all buffers behind the one of views.
            let lengths = data
                .buffers()
                .iter()
                .skip(1)
                .map(|buffer| buffer.len() as i64);
            buffers.push(Some(Buffer::from_iter(lengths)));
        }
        let pointer = |buffer: &Option<Buffer>| {
            buffer
                .as_ref()
                .map_or(ptr::null(), |buffer| buffer.as_ptr().cast())
        };
        let owned = |data: &ArrayData| Box::into_raw(Box::new(Self::of_data(data)));
        let (children, dictionary) = match (data.data_type(), data.child_data()) {
            (DataType::Dictionary(..), [values]) => (Vec::new(), owned(values)),
            (_, children) => (children.iter().map(owned).collect(), ptr::null_mut()),
        };
        let mut parts = Box::new(ArrayParts {
            _pointers: buffers.iter().map(pointer).collect(),
            _buffers: buffers,
            children,
            dictionary,
        });
        Self {
            length: data.len() as i64,
            null_count: match data.data_type() {
                DataType::Null => data.len() as i64,
                _ => data.null_count() as i64,
            },
            offset: data.offset() as i64,
            n_buffers: parts._pointers.len() as i64,
            n_children: parts.children.len() as i64,
            buffers: parts._pointers.as_mut_ptr(),
            children: parts.children.as_mut_ptr(),
            dictionary: parts.dictionary,
            release: Some(release_array),
            private_data: Box::into_raw(parts).cast(),
        }
    }
}

/// The bits of nulls, from which an array's offset counts.
fn nulls_at(offset: usize, nulls: Option<&NullBuffer>) -> Option<Buffer> {
    let nulls = nulls?;
    Some(if nulls.offset() == offset {
        nulls.buffer().clone()
    } else if offset == 0 {
        nulls.inner().sliced()
    } else {
        let bits = (0..offset).map(|_| false).chain(nulls.iter());
        BooleanBuffer::from_iter(bits).into_inner()
    })
}

/// Batches that come one after another.
pub trait Batches: Send {
    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// One sentence.
    fn next(&mut self) -> Result<Option<RecordBatch>, String>;
}

struct Stream {
    schema: SchemaRef,
    batches: Box<dyn Batches>,
    error: CString,
}

/// `EIO`, for all errors. `get_last_error` has the sentence.
const FAILED: c_int = 5;

impl Stream {
    fn fail(&mut self, error: &str) -> c_int {
        self.error = CString::new(error.replace('\0', " ")).unwrap_or_default();
        FAILED
    }
}

impl ArrowArrayStream {
    /// A stream of batches with these columns.
    pub fn new(schema: SchemaRef, batches: Box<dyn Batches>) -> Self {
        let stream = Stream {
            schema,
            batches,
            error: CString::default(),
        };
        Self {
            get_schema: Some(get_schema),
            get_next: Some(get_next),
            get_last_error: Some(get_last_error),
            release: Some(release_stream),
            private_data: Box::into_raw(Box::new(stream)).cast(),
        }
    }
}

/// # Safety
/// `stream` is one of [`ArrowArrayStream::new`], and `out` may be written to.
unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: the caller says so.
    let stream = unsafe { &mut *(*stream).private_data.cast::<Stream>() };
    match ArrowSchema::of(&stream.schema) {
        Ok(schema) => {
            // SAFETY: the caller says so. What is there needs no release.
            unsafe { ptr::write(out, schema) };
            0
        }
        Err(error) => stream.fail(&error),
    }
}

/// # Safety
/// `stream` is one of [`ArrowArrayStream::new`], and `out` may be written to.
unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: the caller says so.
    let stream = unsafe { &mut *(*stream).private_data.cast::<Stream>() };
    let next = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Ok(match stream.batches.next()? {
            Some(batch) => ArrowArray::of(batch),
            None => ArrowArray {
                length: 0,
                null_count: 0,
                offset: 0,
                n_buffers: 0,
                n_children: 0,
                buffers: ptr::null_mut(),
                children: ptr::null_mut(),
                dictionary: ptr::null_mut(),
                release: None,
                private_data: ptr::null_mut(),
            },
        })
    }));
    match next.unwrap_or_else(|_| Err("internal error, please report it".to_owned())) {
        Ok(array) => {
            // SAFETY: the caller says so. What is there needs no release.
            unsafe { ptr::write(out, array) };
            0
        }
        Err(error) => stream.fail(&error),
    }
}

/// # Safety
/// `stream` is one of [`ArrowArrayStream::new`].
unsafe extern "C" fn get_last_error(stream: *mut ArrowArrayStream) -> *const c_char {
    // SAFETY: the caller says so.
    let stream = unsafe { &*(*stream).private_data.cast::<Stream>() };
    stream.error.as_ptr()
}

/// # Safety
/// `stream` is one of [`ArrowArrayStream::new`] that is not released.
unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    // SAFETY: the caller says so.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<Stream>()));
        (*stream).release = None;
    }
}
