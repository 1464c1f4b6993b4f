//! A file as one JSON document, written as it is read.

use std::io::Write;

use rockmill_core::InputTable;
use serde::Serialize;
use serde_json::{Map, Value};

use super::layout::layout;
use super::properties::properties;
use super::{Extent, blocks, summary};
use crate::output::Stop;
use crate::sst;

/// Prints the document. It is whole in any case; after damage its last field `error` says what is
/// wrong, and the error is returned as well.
pub fn print(out: &mut dyn Write, table: &InputTable, extent: Extent) -> Result<(), Stop> {
    let mut object = Object { out, fields: 0 };
    let printed = print_fields(&mut object, table, extent);
    if let Err(Stop::Failed(failure)) = &printed {
        object.field("error", &failure.to_string())?;
    }
    if object.fields > 0 {
        writeln!(object.out, "}}")?;
    }
    printed
}

fn print_fields(object: &mut Object<'_>, table: &InputTable, extent: Extent) -> Result<(), Stop> {
    for (name, value) in summary(table) {
        object.field(name, &value)?;
    }
    let layout = layout(table);
    object.field("layout", &layout.regions)?;
    let properties: Map<String, Value> = properties(&table.meta.properties)
        .into_iter()
        .map(|property| (property.name, property.value))
        .collect();
    object.field("properties", &properties)?;
    object.list("blocks", |push| {
        blocks::for_each_block(table, extent.blocks, push)
    })?;
    if let Some(limit) = extent.entries {
        object.list("entries", |push| blocks::for_each_entry(table, limit, push))?;
        let deletions: Vec<_> = sst::range_deletions(table)?
            .into_iter()
            .map(blocks::RangeDeletionRow::from)
            .collect();
        object.field("range_deletions", &deletions)?;
    }
    match layout.damage {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// A JSON object that is being written.
struct Object<'a> {
    out: &'a mut dyn Write,
    fields: usize,
}

impl Object<'_> {
    fn name(&mut self, name: &str) -> Result<(), Stop> {
        self.out
            .write_all(if self.fields == 0 { b"{" } else { b",\n" })?;
        self.fields += 1;
        serde_json::to_writer(&mut *self.out, name)?;
        Ok(self.out.write_all(b": ")?)
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Stop> {
        self.name(name)?;
        Ok(serde_json::to_writer(&mut *self.out, value)?)
    }

    /// An array of what `fill` pushes; it is closed also if `fill` fails.
    fn list<T: Serialize>(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut dyn FnMut(&T) -> Result<(), Stop>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.name(name)?;
        let out = &mut *self.out;
        out.write_all(b"[")?;
        let mut separator: &[u8] = b"\n";
        let filled = fill(&mut |row| {
            out.write_all(separator)?;
            separator = b",\n";
            Ok(serde_json::to_writer(&mut *out, row)?)
        });
        out.write_all(b"]")?;
        filled
    }
}
