//! Writes the Rust side of the boundary to the kernels: constants, records, and the table of functions, from the headers
//! in which the kernels declare them. A declaration that this file does not understand ends the build, so that no
//! record is left out or laid out differently.

mod declarations;
mod layout;
mod rust;

use std::path::Path;
use std::{env, fs};

use declarations::{Declaration, Header};

/// The headers, and what the host shares with them; `None` for all.
const SHARED: &[(&str, Option<&[&str]>)] = &[
    ("common/types.hpp", None),
    ("common/key.hpp", Some(&["KeyBytes"])),
    (
        "common/tuning.hpp",
        Some(&["WARPS_WITH_SHARED", "BLOCKS_WITH_SHARED"]),
    ),
    ("common/exec.hpp", Some(&["Exec"])),
    ("codec/codec.hpp", Some(&["MAX_BLOCK_BYTES"])),
    ("codec/zstd.hpp", Some(&["ZSTD_MAX_BLOCK"])),
    ("read/decompress.hpp", Some(&["RAW_ALIGNMENT"])),
    ("read/operands.hpp", Some(&["MergeFunction"])),
    (
        "view/slots.hpp",
        Some(&["BUCKET_SLOTS", "SLOT_ADDRESS_BITS"]),
    ),
    ("view/record.hpp", Some(&["RECORD_UNIT"])),
    (
        "view/probe.hpp",
        Some(&["KeyStatus", "SECTOR", "FETCHED_AHEAD"]),
    ),
    ("ring/ring.hpp", Some(&["RingOperation", "RING_ABORTED"])),
    ("ring/kv.hpp", Some(&["KV_ABI"])),
    ("table.hpp", None),
    ("faulty.cpp", Some(&["Kind", "Region", "Moment", "Hooks"])),
];

/// The header with the codes of a scan's steps, which the table of instructions in `crates/core` names.
const CODES: (&str, Option<&[&str]>) = ("scan/program.hpp", Some(&["ScanCode"]));

/// The variable with which a build writes the files.
const WRITE: &str = "ROCKMILL_WRITE_BOUNDARY";

/// Ends the build unless the files in the tree are what the headers declare.
pub fn check(kernels: &Path, crates: &Path) {
    println!("cargo:rerun-if-env-changed={WRITE}");
    let parse = |(path, names): (&str, Option<&[&str]>), declared: &[Declaration]| {
        let text = fs::read_to_string(kernels.join(path)).expect("the kernels can be read");
        Header::parse(path, &text, names, declared).declarations
    };
    let mut declared = Vec::new();
    for header in SHARED {
        declared.extend(parse(*header, &declared));
    }
    let codes = parse(CODES, &declared);
    compare(
        &crates.join("cuda/src/driver/ffi/boundary.rs"),
        &rust::boundary(&declared),
    );
    compare(&crates.join("core/src/scan/codes.rs"), &rust::codes(&codes));
    declared.extend(codes);
    compare(&kernels.join("stage_list.hpp"), &stage_list(&declared));
    compare(
        &kernels.join("layout_checks.hpp"),
        &layout::checks(&declared),
    );
}

fn compare(path: &Path, text: &str) {
    println!("cargo:rerun-if-changed={}", path.display());
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return;
    }
    assert!(
        env::var_os(WRITE).is_some(),
        "{} does not have what the headers of kernels/ declare: run `make boundary`, which writes it",
        path.display()
    );
    fs::write(path, text).expect("the file can be written");
}

/// The names of all stages, for tables of C++.
fn stage_list(declared: &[Declaration]) -> String {
    let mut text = String::from(
        "// The stages of table.hpp. Written by `make boundary`.\n#pragma once\n\n#define ROCKMILL_STAGES(each)",
    );
    let stages = declared.iter().flat_map(Declaration::stages);
    let mut num_stages = 0;
    for stage in stages {
        text.push_str(&format!(" \\\n  each({})", stage.name));
        num_stages += 1;
    }
    text.push_str(&format!("\n#define ROCKMILL_NUM_STAGES {num_stages}\n"));
    text
}
