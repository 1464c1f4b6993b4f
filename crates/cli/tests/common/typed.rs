//! The command as a user types it.

#![allow(dead_code, reason = "each of the tests uses its part")]

use std::path::Path;
use std::process::Command;

pub const DONE: i32 = 0;
pub const BAD_DATA: i32 = 1;
pub const WRONG_USAGE: i32 = 2;
pub const ENVIRONMENT: i32 = 3;
pub const INCOMPLETE: i32 = 4;

/// Runs the command, checks its exit code and returns what it printed.
pub fn expect(code: i32, args: &[&str]) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rockmill"))
        .args(args)
        .output()
        .expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
    (out, err)
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}
