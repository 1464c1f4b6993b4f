//! Declarations as Rust.

use std::fmt::Write as _;

use super::declarations::{Constant, Declaration, Field, Kind, Parameter, Record, Type};

/// The record whose functions fail together with others of a call, and may be called by safe code.
const HOOKS: &str = "Hooks";
/// The record of the kernels' functions.
const TABLE: &str = "KernelTable";
/// The stage whose error code is read by its caller.
const PROBE: &str = "probe";
/// Rust implements `Default` for shorter arrays.
const MAX_DEFAULT_ARRAY: u64 = 32;

/// The module.
pub fn boundary(declared: &[Declaration]) -> String {
    let mut text = String::from(
        "//! The constants, records and functions that the host and the kernels share. Written by `make boundary` from the\n\
         //! headers of `kernels/`; the build compares them.\n\n\
         use std::ffi::{c_char, c_int, c_void};\n\n\
         use rockmill_core::Result;\n\n\
         use super::Stages;\n",
    );
    for declaration in declared {
        match declaration {
            Declaration::Constant(found) => constant(&mut text, found),
            Declaration::Record(found) => record(&mut text, found, declared),
        }
    }
    stages(&mut text, declared);
    text
}

/// The module of a scan's codes.
pub fn codes(declared: &[Declaration]) -> String {
    let mut text = String::from(
        "//! Codes of a scan's steps in kernels. Written by `make boundary` from `kernels/scan/program.hpp`; the build\n\
         //! compares them.\n",
    );
    for declaration in declared {
        if let Declaration::Constant(found) = declaration {
            constant(&mut text, found);
        }
    }
    text
}

/// Comments become documentation. Signs that rustdoc would read are escaped.
fn docs(text: &mut String, indent: &str, lines: &[String]) {
    for line in lines {
        let line = line
            .replace('[', "\\[")
            .replace(']', "\\]")
            .replace('<', "\\<")
            .replace('>', "\\>");
        let line = line.replace('*', "\\*");
        _ = writeln!(text, "{indent}/// {line}");
    }
}

fn constant(text: &mut String, constant: &Constant) {
    let Constant {
        docs: lines,
        name,
        kind,
        value,
    } = constant;
    if !lines.is_empty() {
        text.push('\n');
    }
    docs(text, "", lines);
    // All ones, and single bits, are easier to read so.
    let value = match *value {
        u64::MAX => "u64::MAX".to_owned(),
        value if value == u64::from(u32::MAX) && kind == "u32" => "u32::MAX".to_owned(),
        value => value.to_string(),
    };
    _ = writeln!(text, "pub const {name}: {kind} = {value};");
}

fn record(text: &mut String, record: &Record, declared: &[Declaration]) {
    text.push('\n');
    docs(text, "", &record.docs);
    if record.docs.is_empty() {
        _ = writeln!(text, "/// `{}`.", record.name);
    }
    let has_functions = record
        .fields
        .iter()
        .any(|field| matches!(field.kind, Kind::Function { .. }));
    if !has_functions {
        let derived = match traits(record, declared) {
            Traits::Addresses => "Debug, Clone, Copy",
            Traits::Floats => "Debug, Clone, Copy, Default, PartialEq",
            Traits::Numbers => "Debug, Clone, Copy, Default, PartialEq, Eq",
        };
        _ = writeln!(text, "#[derive({derived})]");
    }
    _ = writeln!(text, "#[repr(C)]\npub struct {} {{", record.name);
    for field in &record.fields {
        docs(text, "    ", &field.docs);
        let kind = match &field.kind {
            Kind::Plain(kind) => rust_type(kind),
            Kind::Array(kind, len) => format!("[{}; {len}]", rust_type(kind)),
            Kind::Function { returns, takes } => function(&record.name, returns, takes),
        };
        _ = writeln!(text, "    pub {}: {kind},", field.name);
    }
    text.push_str("}\n");
}

/// The kinds of a record's fields, which decide about its traits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Traits {
    Numbers,
    Floats,
    Addresses,
}

fn traits(record: &Record, declared: &[Declaration]) -> Traits {
    let of = |kind: &Type| {
        if kind.stars > 0 {
            return Traits::Addresses;
        }
        let inner = declared.iter().find_map(|declaration| match declaration {
            Declaration::Record(inner) if inner.name == kind.base => Some(inner),
            _ => None,
        });
        match (inner, kind.base.as_str()) {
            (Some(inner), _) => traits(inner, declared),
            (None, "double" | "float") => Traits::Floats,
            (None, _) => Traits::Numbers,
        }
    };
    let all = record.fields.iter().map(|field| match &field.kind {
        Kind::Plain(kind) => of(kind),
        Kind::Array(_, len) if *len > MAX_DEFAULT_ARRAY => Traits::Addresses,
        Kind::Array(kind, _) => of(kind),
        Kind::Function { .. } => Traits::Addresses,
    });
    all.max().unwrap_or(Traits::Numbers)
}

fn function(record: &str, returns: &Type, takes: &[Parameter]) -> String {
    let takes: Vec<_> = takes
        .iter()
        .map(|parameter| rust_type(&address(parameter)))
        .collect();
    let returns = match (returns.base.as_str(), returns.stars) {
        ("void", 0) => String::new(),
        _ => format!(" -> {}", rust_type(returns)),
    };
    let is_unsafe = if record == HOOKS { "" } else { "unsafe " };
    format!("{is_unsafe}extern \"C\" fn({}){returns}", takes.join(", "))
}

/// The type of a parameter; an array is an address.
fn address(parameter: &Parameter) -> Type {
    let stars = parameter.kind.stars + usize::from(parameter.is_array);
    Type {
        stars,
        ..parameter.kind.clone()
    }
}

fn rust_type(kind: &Type) -> String {
    let base = match kind.base.as_str() {
        "int" => "c_int",
        "char" => "c_char",
        "void" => "c_void",
        "float" => "f32",
        "double" => "f64",
        base => base,
    };
    let inner = match (kind.stars, kind.is_const) {
        (0, _) => return base.to_owned(),
        (_, true) => format!("*const {base}"),
        (_, false) => format!("*mut {base}"),
    };
    "*mut ".repeat(kind.stars - 1) + &inner
}

/// A checked function for each stage.
fn stages(text: &mut String, declared: &[Declaration]) {
    let tables = declared.iter().filter_map(|declaration| match declaration {
        Declaration::Record(record) if record.name == TABLE => Some(record),
        _ => None,
    });
    text.push_str(
        "\n/// The stages. Each queues work, and returns an error of the device.\n///\n/// # Safety\n\
         /// Memory that the arguments name exists with the size that the headers state, until the stream has reached\n\
         /// this point.\nimpl Stages<'_> {\n",
    );
    let fields = tables.flat_map(|table| &table.fields);
    let fields = fields.filter(|field| field.is_stage() && field.name != PROBE);
    for (at, field) in fields.enumerate() {
        if at > 0 {
            text.push('\n');
        }
        stage(text, field);
    }
    text.push_str("}\n");
}

/// Maximum parameters of a function without a remark of clippy.
const MAX_PARAMETERS: usize = 7;

fn stage(text: &mut String, field: &Field) {
    let Kind::Function { takes, .. } = &field.kind else {
        return;
    };
    let name = &field.name;
    let (mut parameters, mut passed) = (String::new(), String::new());
    for parameter in &takes[1..] {
        let kind = address(parameter);
        let is_of_host = |given: &str| given.starts_with("host_");
        let given = match &parameter.name {
            Some(given) => given.as_str(),
            None if kind.base.ends_with("Args") => "host_args",
            None => panic!("table.hpp: a parameter of {name} has no name"),
        };
        let own = given.strip_prefix("host_").unwrap_or(given);
        let own_kind = match (
            is_of_host(given) && !parameter.is_array,
            kind.stars,
            kind.is_const,
        ) {
            (true, 1, true) => format!("&{}", rust_type(&Type { stars: 0, ..kind })),
            (true, 2, _) => format!("&mut {}", rust_type(&Type { stars: 1, ..kind })),
            _ => rust_type(&kind),
        };
        _ = write!(parameters, ", {own}: {own_kind}");
        _ = write!(passed, ", {own}");
    }
    docs(text, "    ", &field.docs);
    if takes.len() > MAX_PARAMETERS {
        text.push_str(
            "    #[expect(clippy::too_many_arguments, reason = \"it is a function of C\")]\n",
        );
    }
    _ = writeln!(
        text,
        "    pub unsafe fn {name}(&self{parameters}) -> Result<()> {{"
    );
    text.push_str("        // SAFETY: the caller guarantees it.\n");
    _ = writeln!(
        text,
        "        let code = unsafe {{ (self.device.table().{name})(&raw const self.exec{passed}) }};"
    );
    _ = writeln!(
        text,
        "        self.device.check(code, \"{}\")\n    }}",
        name.replace('_', " ")
    );
}
