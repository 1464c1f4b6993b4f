//! Which entries survive.

use rockmill_core::{DeclineReason, Error, Plan, Result};

use super::errors::{FirstError, first_error};
use crate::device::Device;
use crate::ffi::{Key, KeyBytes, RetainArgs, RetainRules, RetainTotals};
use crate::limits;
use crate::workspace::Workspace;

/// Error code of `types.hpp`.
const ERROR_SINGLE_DELETE: u64 = 10;

/// Entries in one order.
pub(super) struct Merged {
    pub(super) keys: *mut Key,
    pub(super) key_bytes: KeyBytes,
    pub(super) len: usize,
    /// Whether user keys are to be gone through one by one.
    pub(super) one_by_one: bool,
}

pub(super) fn retain(
    device: &Device,
    ws: &mut Workspace,
    plan: &Plan,
    merged: &Merged,
    survivors: *mut Key,
) -> Result<RetainTotals> {
    let (rules, n) = (&plan.rules, merged.len);
    let beneath = limits::beneath(&rules.beneath);
    if n == 0 {
        return Ok(RetainTotals::default());
    }
    let spans = beneath
        .spans
        .upload(&mut ws.beneath, &mut ws.beneath_bytes, &ws.stream)?;
    let args = RetainArgs {
        keys: merged.keys,
        n: n as u64,
        key_bytes: merged.key_bytes,
        values: ws.values.as_ptr(),
        hashes: ws.hashes.as_ptr(),
        rules: RetainRules {
            snapshots: ws.snapshots.upload(&rules.snapshots, &ws.stream)?,
            num_snapshots: rules.snapshots.len() as u64,
            earliest: rules.earliest(),
            beneath: spans,
            level_ends: ws.level_ends.upload(&beneath.level_ends, &ws.stream)?,
            num_levels: beneath.level_ends.len() as u32,
            bottommost: u32::from(rules.bottommost),
            beneath_unknown: u32::from(beneath.unknown),
            enforce_single_delete: u32::from(rules.enforce_single_del_contracts),
        },
        heads: ws.heads.room(n)?,
        has_older: ws.has_older.room(n)?,
        keep: ws.keep.room(n)?,
        places: ws.places.room(n)?,
        survivors,
        totals: ws.totals.room(1)?,
        errors: ws.errors.as_ptr().cast(),
        one_by_one: u32::from(merged.one_by_one),
        unused: 0,
    };
    ws.has_older.fill(0, n, 0, &ws.stream)?;
    ws.totals.fill(0, 1, 0, &ws.stream)?;
    // SAFETY: all buffers have room for n entries; keys name entries whose values and hashes were decoded.
    let code = unsafe { (device.table().retain)(&ws.exec(), &raw const args) };
    device.check(code, "retain")?;
    let totals = ws.totals.download(0, 1, &ws.stream)?[0];
    match merged.one_by_one.then(|| first_error(ws)).transpose()? {
        Some(Some(FirstError { code, .. })) if code == ERROR_SINGLE_DELETE => Err(Error::declined(
            DeclineReason::SingleDeleteContract,
            "a SingleDelete and a Delete of the same key",
        )),
        _ => Ok(totals),
    }
}
