//! A command as a user types it.

use std::path::Path;
use std::process::Command;

/// The exit code of a command that did its work.
pub const DONE: i32 = 0;
/// The exit code if the data is damaged or results differ.
pub const BAD_DATA: i32 = 1;
/// The exit code if the command was called incorrectly.
pub const WRONG_USAGE: i32 = 2;
/// The exit code if the system refused.
pub const ENVIRONMENT: i32 = 3;
/// The exit code if a part could not be read.
pub const INCOMPLETE: i32 = 4;
/// The exit code of a command that Control-C (SIGINT) has ended.
pub const INTERRUPTED: i32 = 130;
/// The exit code of a command that SIGTERM has ended.
pub const TERMINATED: i32 = 143;

/// Runs `program`, checks its exit code and returns what it printed on standard output and standard error.
///
/// # Panics
///
/// If it does not start or ends with another code.
#[must_use]
pub fn run(program: &str, code: i32, args: &[&str]) -> (String, String) {
    let output = Command::new(program).args(args).output();
    let output = output.expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
    (out, err)
}

/// A path as an argument.
///
/// # Panics
///
/// If it is not UTF-8.
#[must_use]
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}
