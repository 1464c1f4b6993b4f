//! Codes of a scan's steps in kernels. Written by `make boundary` from `kernels/scan/program.hpp`; the build
//! compares them.

/// The code of each step. The table in crates/core/src/scan/instructions.rs names those of instructions.
/// `ScanCode`.
pub const SCAN_KEY: u32 = 0;
pub const SCAN_VALUE: u32 = 1;
pub const SCAN_LENGTH: u32 = 2;
pub const SCAN_LOAD: u32 = 3;
pub const SCAN_SLICE: u32 = 4;
pub const SCAN_PREFIXED: u32 = 5;
pub const SCAN_AFTER_PREFIXED: u32 = 6;
pub const SCAN_BIT: u32 = 7;
pub const SCAN_DECIMAL: u32 = 8;
pub const SCAN_DATE: u32 = 9;
pub const SCAN_STRING: u32 = 10;
pub const SCAN_STRING_SIZE: u32 = 11;
pub const SCAN_TRIM_END: u32 = 12;
pub const SCAN_TEXT: u32 = 13;
pub const SCAN_SELECT: u32 = 14;
pub const SCAN_COMPARE: u32 = 15;
pub const SCAN_AND: u32 = 16;
pub const SCAN_OR: u32 = 17;
pub const SCAN_NOT: u32 = 18;
pub const SCAN_IS_NULL: u32 = 19;
pub const SCAN_LIKE: u32 = 20;
pub const SCAN_ONE_OF: u32 = 21;
pub const SCAN_ADD: u32 = 22;
pub const SCAN_SUBTRACT: u32 = 23;
pub const SCAN_MULTIPLY: u32 = 24;
pub const SCAN_REQUIRE: u32 = 25;
pub const SCAN_CHECK: u32 = 26;
