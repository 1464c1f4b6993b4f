//! Groups that are formed on the device.

use rockmill_core::Result;
use rockmill_core::scan::{Aggregate, Cell, Part, Register, ValueKind};

use super::Scan;
use super::encode::{EncodedGroups, SUM_WORDS};
use super::returned::words;
use crate::driver::altered;
use crate::driver::ffi::{self, ScanGroups};

/// Words of a group's keys.
pub const KEY_WORDS: u64 = ffi::SCAN_KEY_WORDS as u64;

/// The first row of a slot without a group.
const NO_ROW: u64 = u64::MAX;

/// The device's states of groups, in the order of their first rows.
#[derive(Debug)]
pub struct Parts<'a> {
    encoded: &'a EncodedGroups,
    words: Vec<u64>,
}

impl<'a> Scan<'a> {
    /// Groups the selected rows. Then only the first row of each group is selected. Returns `None` and changes nothing
    /// if the plan has no groups, if there are too many for the device or for the plan, or if keys are long.
    pub fn group(&mut self) -> Result<Option<Parts<'a>>> {
        let encoded = self.encoded;
        let (Some(groups), 1..) = (&encoded.groups, self.args.num_selected) else {
            return Ok(None);
        };
        let (read, buffers) = (&*self.read, &mut *self.buffers);
        let stream = &read.ws.stream;
        let num_slots = groups.num_slots(self.args.num_selected);
        let (slots, num_words) = (num_slots as usize, groups.num_words as usize);
        let keys_len = slots * KEY_WORDS as usize;
        let args = ScanGroups {
            keys: buffers.group_keys.upload(&groups.keys, stream)?,
            arguments: buffers.arguments.upload(&groups.arguments, stream)?,
            num_keys: groups.keys.len() as u32,
            num_arguments: groups.arguments.len() as u32,
            num_words: groups.num_words,
            has_wide: groups.has_wide().into(),
            num_slots,
            most: groups.most,
            found: buffers.found.room(1)?,
            table: buffers.table.room(keys_len)?,
            firsts: buffers.firsts.room(slots)?,
            words: buffers.words.room(slots * num_words)?,
        };
        buffers.found.fill(0, 1, 0, stream)?;
        buffers.table.fill(0, keys_len, 0, stream)?;
        buffers.firsts.fill(0, slots, u8::MAX, stream)?;
        buffers.words.fill(0, slots * num_words, 0, stream)?;
        // SAFETY: there is room for all slots, and the operands are those of the program.
        unsafe { read.ws.stages().scan_group(&self.args, &args) }?;
        let buffers = &self.buffers;
        let parts = [
            buffers.found.view(0..1).into(),
            buffers.firsts.view(0..slots).into(),
        ];
        let parts = self.fetch(&parts)?;
        let [found, firsts] = [0, 1].map(|i| words(&parts[i]));
        let found = found[0];
        if found > groups.most {
            self.read.mark("give groups up", 0)?;
            return Ok(None);
        }
        let mut order: Vec<_> = (0..)
            .zip(&firsts)
            .filter(|(_, first)| **first != NO_ROW)
            .map(|(slot, first)| (*first, slot))
            .collect();
        order.sort_unstable();
        let is_row = |&(first, _): &(u64, u32)| first < self.args.n;
        if order.len() as u64 != found || !order.iter().all(is_row) {
            return Err(altered("groups are not those that were found"));
        }
        let (rows, order): (Vec<_>, Vec<_>) = (order.iter())
            .map(|&(first, slot)| (first as u32, slot))
            .unzip();
        let (read, buffers) = (&*self.read, &mut *self.buffers);
        let stream = &read.ws.stream;
        self.args.num_selected = found;
        self.args.selected = buffers.selected.upload(&rows, stream)?;
        let slots = buffers.slots.upload(&order, stream)?;
        let num_words = order.len() * num_words;
        let taken = buffers.taken.room(num_words)?;
        // SAFETY: the slots are some of the table, and there is room for their words.
        unsafe {
            read.ws
                .stages()
                .scan_take_groups(&args, slots, found, taken)
        }?;
        let taken = buffers.taken.view(0..num_words).into();
        let words = words(&self.fetch(&[taken])?[0]);
        self.read.mark("put groups together", 0)?;
        Ok(Some(Parts {
            encoded: groups,
            words,
        }))
    }
}

impl Parts<'_> {
    /// Number of bytes copied back.
    pub fn bytes(&self) -> u64 {
        size_of_val(self.words.as_slice()) as u64
    }

    /// The value of an aggregate for a group.
    pub fn part(&self, group: usize, aggregate: &Aggregate) -> Part {
        let num_words = self.encoded.num_words as usize;
        let words = &self.words[group * num_words..][..num_words];
        match *aggregate {
            Aggregate::Count(None) => Part::Count(words[0]),
            Aggregate::Count(Some(of)) => Part::Count(words[self.argument(of).0]),
            Aggregate::Sum { of, .. } => {
                let at = self.argument(of).0;
                sum(words[at] > 0, &words[at + 1..][..SUM_WORDS])
            }
            Aggregate::Min(column) => self.extreme(words, column.register, true),
            Aggregate::Max(column) => self.extreme(words, column.register, false),
        }
    }

    /// Start of an argument's words, and its position.
    fn argument(&self, of: Register) -> (usize, usize) {
        let is = |(register, _): &(Register, ValueKind)| *register == of;
        let i = self
            .encoded
            .registers
            .iter()
            .position(is)
            .unwrap_or_default();
        (self.encoded.arguments[i].at as usize, i)
    }

    fn extreme(&self, words: &[u64], of: Register, is_least: bool) -> Part {
        let (at, i) = self.argument(of);
        let argument = &self.encoded.arguments[i];
        if words[at] == 0 {
            return Part::Extreme(Cell::Null);
        }
        let at = at
            + if is_least {
                argument.least_at()
            } else {
                argument.greatest_at()
            };
        let value = |word: u64| if is_least { !word } else { word };
        let upper = (value(words[at]) ^ 1 << (u64::BITS - 1)) as i64;
        let integer = match argument.is_wide() {
            true => i128::from(upper) << u64::BITS | i128::from(value(words[at + 1])),
            false => upper.into(),
        };
        Part::Extreme(match self.encoded.registers[i].1 {
            ValueKind::Boolean => Cell::Boolean(integer != 0),
            _ => Cell::Integer(integer),
        })
    }
}

/// The sum from the sums of the four 32-bit parts of the integers, and of their signs.
fn sum(is_any: bool, words: &[u64]) -> Part {
    let (mut low, mut high) = (0u128, -(words[4] as i64));
    for (word, at) in words[..4].iter().zip([0, 32, 64, 96]) {
        let number = u128::from(*word);
        let (sum, is_over) = low.overflowing_add(number << at);
        low = sum;
        high += i64::from(is_over) + number.checked_shr(u128::BITS - at).unwrap_or_default() as i64;
    }
    let low = low as i128;
    Part::Sum {
        low,
        high: high + i64::from(low < 0),
        is_any,
    }
}
