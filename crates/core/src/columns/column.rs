//! A column in memory.

use std::ops::Range;

use crate::hash::kv_hash;

/// Values of one kind, each of which may be null.
///
/// ```text
///   nulls, if there are some: a byte for each row, 1 for a null
///   booleans: a byte for each row
///   integers: 0, 1, 2, 4 or 8 bytes for each row, which are added to the smallest one; or 16 bytes
///   bytes: 4 bytes for the end of each row's bytes, then the bytes
/// ```
#[derive(Debug, Clone)]
pub struct Column {
    rows: usize,
    form: Form,
    has_nulls: bool,
    stored: Box<[u8]>,
    sum: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Booleans,
    Integers {
        smallest: i64,
        largest: i64,
        width: u8,
    },
    Wide,
    Bytes,
}

const END_BYTES: usize = size_of::<u32>();

impl Column {
    fn new(rows: usize, form: Form, has_nulls: bool, stored: Vec<u8>) -> Self {
        let mut column = Self {
            rows,
            form,
            has_nulls,
            stored: stored.into(),
            sum: 0,
        };
        column.sum = column.computed_sum();
        column
    }

    /// A column of booleans, each of which is any byte.
    pub fn of_booleans(values: &[u8]) -> Self {
        Self::new(values.len(), Form::Booleans, false, values.to_vec())
    }

    /// A column of integers.
    pub fn of_integers(values: &[i64], nulls: Option<&[bool]>) -> Self {
        let is_null = |row: usize| nulls.is_some_and(|nulls| nulls[row]);
        let rows = || values.iter().copied().enumerate();
        let set = || {
            rows()
                .filter(|(row, _)| !is_null(*row))
                .map(|(_, value)| value)
        };
        let smallest = set().min().unwrap_or(0);
        let largest = set().max().unwrap_or(0);
        let width = match largest.wrapping_sub(smallest) as u64 {
            0 => 0,
            1..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => 8,
        };
        let mut stored = null_bytes(nulls);
        let above = rows().map(|(row, value)| match is_null(row) {
            true => 0,
            false => value.wrapping_sub(smallest),
        });
        match width {
            0 => {}
            1 => stored.extend(above.map(|above| above as u8)),
            2 => stored.extend(above.flat_map(|above| (above as u16).to_le_bytes())),
            4 => stored.extend(above.flat_map(|above| (above as u32).to_le_bytes())),
            _ => stored.extend(above.flat_map(i64::to_le_bytes)),
        }
        let form = Form::Integers {
            smallest,
            largest,
            width,
        };
        Self::new(values.len(), form, nulls.is_some(), stored)
    }

    /// A column of integers of which some exceed 64 bits.
    pub fn of_wide(values: &[i128], nulls: Option<&[bool]>) -> Self {
        let mut stored = null_bytes(nulls);
        stored.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        Self::new(values.len(), Form::Wide, nulls.is_some(), stored)
    }

    /// A column of bytes, from the end of each row's bytes. `None` if it has 4 GiB or more.
    pub fn of_bytes(ends: &[usize], bytes: &[u8], nulls: Option<&[bool]>) -> Option<Self> {
        u32::try_from(bytes.len()).ok()?;
        let mut stored = null_bytes(nulls);
        stored.reserve_exact(ends.len() * END_BYTES + bytes.len());
        stored.extend(ends.iter().flat_map(|end| (*end as u32).to_le_bytes()));
        stored.extend_from_slice(bytes);
        Some(Self::new(ends.len(), Form::Bytes, nulls.is_some(), stored))
    }

    fn computed_sum(&self) -> u64 {
        let (kind, [smallest, largest], width) = match self.form {
            Form::Booleans => (0, [0; 2], 0),
            Form::Integers {
                smallest,
                largest,
                width,
            } => (1, [smallest, largest], width),
            Form::Wide => (2, [0; 2], 0),
            Form::Bytes => (3, [0; 2], 0),
        };
        let head = [self.rows as u64, smallest as u64, largest as u64].map(u64::to_le_bytes);
        let head = [head.as_flattened(), &[kind, width, self.has_nulls.into()]].concat();
        kv_hash(&head, &self.stored)
    }

    pub(super) fn sum(&self) -> u64 {
        self.sum
    }

    /// Whether its bytes are those that it had at first.
    pub fn is_sound(&self) -> bool {
        self.sum == self.computed_sum()
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> u64 {
        (self.stored.len() + size_of::<Self>()) as u64
    }

    /// Whether these are integers of which some exceed 64 bits.
    pub fn is_wide(&self) -> bool {
        self.form == Form::Wide
    }

    fn values(&self) -> &[u8] {
        match self.has_nulls {
            true => &self.stored[self.rows..],
            false => &self.stored,
        }
    }

    /// A byte for each of some rows, 1 if it is null; `None` if no row of the column is.
    pub fn nulls(&self, rows: Range<usize>) -> Option<&[u8]> {
        self.has_nulls.then(|| &self.stored[rows])
    }

    /// The booleans of some rows.
    pub fn booleans(&self, rows: Range<usize>) -> &[u8] {
        match self.form {
            Form::Booleans => &self.stored[rows],
            _ => &[],
        }
    }

    /// The smallest and the largest of the integers that are not null, unless they are wide.
    pub fn bounds(&self) -> Option<[i64; 2]> {
        match self.form {
            Form::Integers {
                smallest, largest, ..
            } => Some([smallest, largest]),
            _ => None,
        }
    }

    /// Adds the integers of some rows to others, unless they are wide.
    pub fn integers(&self, rows: Range<usize>, to: &mut Vec<i64>) {
        let Form::Integers {
            smallest, width, ..
        } = self.form
        else {
            return;
        };
        let values = self.values();
        match width {
            0 => to.resize(to.len() + rows.len(), smallest),
            1 => to.extend(
                values[rows]
                    .iter()
                    .map(|above| smallest.wrapping_add((*above).into())),
            ),
            2 => {
                let (above, _) = values[2 * rows.start..2 * rows.end].as_chunks();
                let above = above.iter().map(|above| u16::from_le_bytes(*above));
                to.extend(above.map(|above| smallest.wrapping_add(above.into())));
            }
            4 => {
                let (above, _) = values[4 * rows.start..4 * rows.end].as_chunks();
                let above = above.iter().map(|above| u32::from_le_bytes(*above));
                to.extend(above.map(|above| smallest.wrapping_add(above.into())));
            }
            _ => {
                let (above, _) = values[8 * rows.start..8 * rows.end].as_chunks();
                let above = above.iter().map(|above| i64::from_le_bytes(*above));
                to.extend(above.map(|above| smallest.wrapping_add(above)));
            }
        }
    }

    /// An integer, unless it is null.
    pub fn integer(&self, row: usize) -> Option<i128> {
        if self.nulls(row..row + 1).is_some_and(|nulls| nulls == [1]) {
            return None;
        }
        if self.is_wide() {
            let (wide, _) = self.values().as_chunks();
            return Some(i128::from_le_bytes(wide[row]));
        }
        let mut integers = Vec::with_capacity(1);
        self.integers(row..row + 1, &mut integers);
        integers.first().map(|integer| i128::from(*integer))
    }

    /// The range of a row in [`Column::all_bytes`]; `None` if it is null.
    #[inline]
    pub fn span(&self, row: usize) -> Option<Range<usize>> {
        if self.form != Form::Bytes || (self.has_nulls && self.stored[row] == 1) {
            return None;
        }
        let (ends, _) = self.values()[..END_BYTES * self.rows].as_chunks();
        let end = |row: usize| u32::from_le_bytes(ends[row]) as usize;
        let start = row.checked_sub(1).map_or(0, end);
        Some(start..end(row))
    }

    /// The bytes of all rows.
    #[inline]
    pub fn all_bytes(&self) -> &[u8] {
        match self.form {
            Form::Bytes => &self.values()[END_BYTES * self.rows..],
            _ => &[],
        }
    }

    /// The bytes of a row.
    #[inline]
    pub fn row(&self, row: usize) -> Option<&[u8]> {
        Some(&self.all_bytes()[self.span(row)?])
    }

    /// Inverts a bit of its bytes, as faulty memory would.
    #[doc(hidden)]
    pub fn flip(&mut self, bit: usize) {
        let bits = 8 * self.stored.len();
        if bits > 0 {
            self.stored[bit % bits / 8] ^= 1 << (bit % 8);
        }
    }
}

fn null_bytes(nulls: Option<&[bool]>) -> Vec<u8> {
    nulls.map_or_else(Vec::new, |nulls| {
        nulls.iter().map(|is_null| u8::from(*is_null)).collect()
    })
}
