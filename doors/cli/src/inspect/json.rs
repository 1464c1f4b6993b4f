//! Prints a file as one JSON document while reading it.

use std::io::Write;

use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output::Stop;
use serde::Serialize;
use serde_json::{Map, Value};

use super::layout::layout;
use super::properties::properties;
use super::{Extent, NotShown, blocks, end, range_deletions, summary};
use crate::sst::Sst;

/// Prints the document, which is complete in any case. `not_shown` names parts that are not understood. After damage,
/// the last field `error` describes it, and the error is returned as well.
pub fn print(out: &mut dyn Write, sst: &Sst, extent: Extent) -> Result<(), Stop> {
    let mut object = Object { out, fields: 0 };
    let printed = print_fields(&mut object, sst, extent);
    if let Err(Stop::Failed(failure @ (Failure::Data(_) | Failure::Environment(_)))) = &printed {
        object.field("error", &failure.to_string())?;
    }
    if object.fields > 0 {
        writeln!(object.out, "}}")?;
    }
    printed
}

fn print_fields(object: &mut Object<'_>, sst: &Sst, extent: Extent) -> Result<(), Stop> {
    let table = &sst.table;
    for (name, value) in summary(table) {
        object.field(name, &value)?;
    }
    let layout = layout(sst);
    let mut left_out: NotShown = layout.not_shown(sst);
    object.field("layout", &layout.regions)?;
    let properties: Map<String, Value> = properties(&table.meta.properties)
        .into_iter()
        .map(|property| (property.name, property.value))
        .collect();
    object.field("properties", &properties)?;
    left_out.extend(object.list("blocks", |push| {
        blocks::for_each_block(table, extent.blocks, push)
    })?);
    if let Some(limit) = extent.entries {
        let listed = object.list("entries", |push| blocks::for_each_entry(table, limit, push));
        left_out.extend(listed?);
        let (deletions, not_shown) = range_deletions(table)?;
        left_out.extend(not_shown);
        object.field("range_deletions", &deletions)?;
    }
    object.field("not_shown", &left_out)?;
    match layout.damage {
        Some(error) => Err(error.into()),
        None => end(table, &left_out),
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

    /// Writes an array of the values that `fill` pushes. The array is closed even if `fill` fails.
    fn list<T: Serialize>(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut dyn FnMut(&T) -> Result<(), Stop>) -> Result<NotShown, Stop>,
    ) -> Result<NotShown, Stop> {
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
