//! Assertions for the compilers of C++ that records and numbers are as Rust has them.

use std::fmt::Write as _;

use super::declarations::{Declaration, Kind, Type};

/// Declared in `faulty.cpp`, which no header includes.
const OF_FAULTY: [&str; 5] = ["Hooks", "CALL_", "REGION_", "MOMENT_", "KernelTable"];

/// The header.
pub fn checks(declared: &[Declaration]) -> String {
    let mut text = String::from(
        "// Numbers, sizes and offsets as Rust has them. Written by `make boundary`.\n#pragma once\n\n#include <cstddef>\n\n\
         #include \"table.hpp\"\n\nnamespace rockmill::ROCKMILL_TARGET {\n\n",
    );
    for declaration in declared {
        match declaration {
            Declaration::Constant(constant) if !is_of_faulty(&constant.name) => {
                let (name, value) = (&constant.name, constant.value);
                _ = writeln!(text, "static_assert(u64({name}) == {value}u);");
            }
            Declaration::Record(record) if !is_of_faulty(&record.name) => {
                let name = &record.name;
                let (size, offsets) = layout(name, declared);
                _ = writeln!(text, "static_assert(sizeof({name}) == {size});");
                for (field, offset) in record.fields.iter().zip(offsets) {
                    let field = &field.name;
                    _ = writeln!(
                        text,
                        "static_assert(offsetof({name}, {field}) == {offset});"
                    );
                }
            }
            _ => {}
        }
    }
    text.push_str("\n}  // namespace rockmill::ROCKMILL_TARGET\n");
    text
}

fn is_of_faulty(name: &str) -> bool {
    OF_FAULTY.iter().any(|start| name.starts_with(start))
}

/// The size of a record, and the offsets of its fields, by the rules of `repr(C)`.
fn layout(name: &str, declared: &[Declaration]) -> (u64, Vec<u64>) {
    let (mut end, mut most, mut offsets) = (0u64, 1, Vec::new());
    for field in fields(name, declared) {
        let (size, align) = match &field {
            Kind::Plain(kind) => size_of(kind, declared),
            Kind::Array(kind, len) => {
                let (size, align) = size_of(kind, declared);
                (size * len, align)
            }
            Kind::Function { .. } => (8, 8),
        };
        let offset = end.next_multiple_of(align);
        offsets.push(offset);
        (end, most) = (offset + size, most.max(align));
    }
    (end.next_multiple_of(most), offsets)
}

fn fields(name: &str, declared: &[Declaration]) -> Vec<Kind> {
    let found = declared.iter().find_map(|declaration| match declaration {
        Declaration::Record(record) if record.name == name => Some(record),
        _ => None,
    });
    let record = found.unwrap_or_else(|| panic!("{name} is no type that both sides share"));
    record
        .fields
        .iter()
        .map(|field| field.kind.clone())
        .collect()
}

/// Size and alignment of a type on machines of 64 bits.
fn size_of(kind: &Type, declared: &[Declaration]) -> (u64, u64) {
    if kind.stars > 0 {
        return (8, 8);
    }
    match kind.base.as_str() {
        "u8" | "char" => (1, 1),
        "u16" => (2, 2),
        "u32" | "i32" | "int" | "float" => (4, 4),
        "u64" | "i64" | "double" => (8, 8),
        record => {
            let fields = fields(record, declared);
            let aligns = fields.iter().map(|field| match field {
                Kind::Plain(kind) | Kind::Array(kind, _) => size_of(kind, declared).1,
                Kind::Function { .. } => 8,
            });
            (layout(record, declared).0, aligns.max().unwrap_or(1))
        }
    }
}
