//! Prints a file as text tables.

use std::io::Write;

use comfy_table::CellAlignment;
use rockmill_core::InputTable;
use rockmill_terminal::output::{self, Stop};

use super::blocks::BlockContents;
use super::layout::layout;
use super::properties::properties;
use super::{Extent, NotShown, blocks, end, range_deletions, summary};
use crate::sst::Sst;

/// Columns of a key in the list of blocks; a line has two keys.
const BLOCK_KEY_COLUMNS: usize = 13;
/// Columns of a key in the list of entries, at least and at most; and those beside it.
const ENTRY_KEY_COLUMNS: (usize, usize) = (9, 29);
const BESIDE_ENTRY_KEY: usize = 51;
/// Columns of each of the two keys in the list of range tombstones, at least and at most; and those beside them.
const RANGE_KEY_COLUMNS: (usize, usize) = (17, 30);
const BESIDE_RANGE_KEYS: usize = 19;

/// Columns of each key if `room` is left for them.
fn key_columns(room: usize, (least, most): (usize, usize)) -> usize {
    room.clamp(least, most)
}

/// Prints everything. Returns damage at the end, or at once if it hides the rest.
pub fn print(out: &mut dyn Write, sst: &Sst, extent: Extent) -> Result<(), Stop> {
    let table = &sst.table;
    for (name, value) in summary(table) {
        let shown = match &value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Null => "none".to_owned(),
            serde_json::Value::Number(size) if name == "file_size" => {
                output::bytes(size.as_u64().unwrap_or_default())
            }
            other => other.to_string(),
        };
        writeln!(out, "{name:<22} {shown}")?;
    }
    let layout = layout(sst);
    let mut left_out = layout.not_shown(sst);
    let mut rows = output::table(["region", "offset", "size", "note"]);
    for region in layout.regions {
        rows.add_row([
            region.name,
            region.offset.to_string(),
            output::bytes(region.size),
            region.note,
        ]);
    }
    for column in rows.column_iter_mut().skip(1).take(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    writeln!(out, "\nLayout\n{rows}")?;
    let mut rows = output::table(["property", "value"]);
    for property in properties(&table.meta.properties) {
        rows.add_row([property.name, property.shown]);
    }
    writeln!(out, "\nProperties\n{rows}")?;
    left_out.extend(print_blocks(out, table, extent.blocks)?);
    if let Some(limit) = extent.entries {
        left_out.extend(print_entries(out, table, limit)?);
        left_out.extend(print_range_deletions(out, table)?);
    }
    if !left_out.is_empty() {
        writeln!(out, "\nNot shown")?;
    }
    for what in &left_out {
        writeln!(out, "{what}")?;
    }
    match layout.damage {
        Some(error) => Err(error.into()),
        None => end(table, &left_out),
    }
}

fn print_blocks(out: &mut dyn Write, table: &InputTable, limit: usize) -> Result<NotShown, Stop> {
    let all = table.meta.index.len();
    let shown = if all > limit {
        format!("the first {limit} of {all}; --all-blocks lists all")
    } else {
        format!("all {all}")
    };
    writeln!(out, "\nData blocks ({shown})")?;
    const KEY: usize = BLOCK_KEY_COLUMNS;
    // A narrow terminal gets no compression and no size, which properties show for the whole file.
    let is_narrow = output::columns() < output::USUAL_COLUMNS;
    let middle = |compression: &str, size: &str| match is_narrow {
        true => String::new(),
        false => format!(" {compression:<13} {size:>8}"),
    };
    writeln!(
        out,
        "{:>12} {:>8}{} {:>7} {:<KEY$} {:<KEY$}",
        "offset",
        "stored B",
        middle("compression", "size B"),
        "entries",
        "first key",
        "last key"
    )?;
    let or_dash = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |n| n.to_string());
    blocks::for_each_block(table, limit, &mut |row| {
        let holds = row.holds.as_ref();
        let key = |key: fn(&BlockContents) -> &Vec<u8>| {
            holds.map_or_else(|| "-".to_owned(), |h| output::escape_short(key(h), KEY))
        };
        writeln!(
            out,
            "{:>12} {:>8}{} {:>7} {:<KEY$} {}",
            row.offset,
            row.stored_size,
            middle(&row.compression, &or_dash(holds.map(|h| h.size))),
            or_dash(holds.map(|h| h.entries)),
            key(|h| &h.first_key),
            key(|h| &h.last_key)
        )?;
        Ok(())
    })
}

fn print_entries(out: &mut dyn Write, table: &InputTable, limit: usize) -> Result<NotShown, Stop> {
    writeln!(out, "\nEntries")?;
    let room = usize::from(output::columns()).saturating_sub(BESIDE_ENTRY_KEY);
    let key = key_columns(room, ENTRY_KEY_COLUMNS);
    writeln!(
        out,
        "{:<key$} {:>17} {:<21} {:>10}",
        "user key", "sequence", "type", "value B"
    )?;
    blocks::for_each_entry(table, limit, &mut |row| {
        writeln!(
            out,
            "{:<key$} {:>17} {:<21} {:>10}",
            output::escape_short(&row.user_key, key),
            row.sequence,
            row.kind,
            row.value_size
        )?;
        Ok(())
    })
}

fn print_range_deletions(out: &mut dyn Write, table: &InputTable) -> Result<NotShown, Stop> {
    let (deletions, not_shown) = range_deletions(table)?;
    if deletions.is_empty() {
        return Ok(not_shown);
    }
    writeln!(out, "\nRange deletions")?;
    let room = usize::from(output::columns()).saturating_sub(BESIDE_RANGE_KEYS) / 2;
    let key = key_columns(room, RANGE_KEY_COLUMNS);
    writeln!(
        out,
        "{:<key$} {:<key$} {:>17}",
        "from user key", "to before user key", "sequence"
    )?;
    for row in deletions {
        writeln!(
            out,
            "{:<key$} {:<key$} {:>17}",
            output::escape_short(&row.start, key),
            output::escape_short(&row.end, key),
            row.sequence
        )?;
    }
    Ok(not_shown)
}
