//! Properties that tests need from the machine: a file system of their own, another user, a wider processor.
//!
//! A test that the machine cannot run calls [`skipped`]. Cargo counts such a test as passed, so `make test` names them
//! all at its end. A test that needs another user runs itself again as that user: [`again_as_nobody`],
//! [`again_where_mounting_is_allowed`].

use std::env;
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// The file to which each skipped test adds a line, if there is one.
const SKIPS: &str = "ROCKMILL_SKIPS";
/// Environment variable of a test that runs again.
const AGAIN: &str = "ROCKMILL_TEST_AGAIN";
/// The user and group without rights.
const NOBODY: u32 = 65534;

/// Reports that the test of this thread did not run, or not completely, for the reason `why`. With `ROCKMILL_SKIPS` in
/// the environment, the file of that name gets a line as well.
///
/// # Panics
///
/// If that file cannot be written.
pub fn skipped(why: &str) {
    let program = env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    // Cargo adds a hash to the name.
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let thread = thread::current();
    let line = format!("{program}: {}: {why}\n", thread.name().unwrap_or("a test"));
    print!("skipped: {line}");
    if let Some(path) = env::var_os(SKIPS) {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let mut file = file.expect("ROCKMILL_SKIPS names a file that can be written");
        // One write is one line, even if several processes add lines.
        file.write_all(line.as_bytes()).expect("room for a line");
    }
}

/// Prometheus' program that checks metrics, rules and queries: the one on the path, or the one that `scripts/setup.sh
/// tests` has fetched. Otherwise the test counts as skipped.
#[must_use]
pub fn promtool() -> Option<Command> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let fetched = cache.or(home).unwrap_or_default();
    let fetched = fetched.join("rockmill/promtool/promtool");
    for program in [Path::new("promtool"), &fetched] {
        if Command::new(program).arg("--version").output().is_ok() {
            return Some(Command::new(program));
        }
    }
    skipped("there is no promtool; scripts/setup.sh tests fetches it");
    None
}

/// The seed of a random test, which is printed: the value of `ROCKMILL_SEED`, or another one each time if that is
/// `random` or not set.
///
/// # Panics
///
/// If the variable is no number.
#[must_use]
pub fn seed() -> u64 {
    let seed = match env::var("ROCKMILL_SEED").as_deref() {
        // Each of the standard library's hash states has other keys.
        Ok("random") | Err(_) => RandomState::new().hash_one(0),
        Ok(_) => number("ROCKMILL_SEED", 0),
    };
    println!("ROCKMILL_SEED={seed}");
    seed
}

/// The number that an environment variable has, or `default` if it is not set.
///
/// # Panics
///
/// If it is no number.
#[must_use]
pub fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |said| {
        let number = said.parse();
        number.unwrap_or_else(|_| panic!("{name} is no number: {said}"))
    })
}

/// The number of cases of a random test: `default`, or the value of `ROCKMILL_CASES`. It is a number, or a share of the
/// default such as `10%`.
///
/// # Panics
///
/// If the variable is neither.
#[must_use]
pub fn cases(default: u64) -> u64 {
    let said = env::var("ROCKMILL_CASES").ok();
    said.map_or(default, |said| {
        cases_from(&said, default)
            .unwrap_or_else(|| panic!("ROCKMILL_CASES is neither a number nor a share: {said}"))
    })
}

/// The same for proptest.
///
/// # Panics
///
/// Like [`cases`].
#[must_use]
pub fn few_cases(default: u32) -> u32 {
    u32::try_from(cases(default.into())).expect("ROCKMILL_CASES fits 32 bits")
}

fn cases_from(said: &str, default: u64) -> Option<u64> {
    match said.strip_suffix('%') {
        Some(percent) => Some((default * percent.parse::<u64>().ok()? / 100).max(1)),
        None => said.parse().ok(),
    }
}

/// Whether this process has the superuser's rights.
#[must_use]
pub fn is_superuser() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs the test named `test` of this program again as a user without rights, or skips it if that is not possible.
///
/// # Panics
///
/// If the test fails.
pub fn again_as_nobody(test: &str) {
    // The link leads to this program, even if that user may not enter its folder.
    let mut command = Command::new("/proc/self/exe");
    as_nobody(&mut command);
    again(test, &mut command);
}

/// Lets `command` run as a user without rights, in a folder that any user may enter. Only the superuser can start it.
pub fn as_nobody(command: &mut Command) {
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    // The folder for temporary files may belong to the user of this process.
    command.env_remove("TMPDIR");
}

/// Runs the test named `test` of this program again as the superuser of a user namespace, who may mount, or skips it if
/// that is not possible.
///
/// # Panics
///
/// If the test fails.
pub fn again_where_mounting_is_allowed(test: &str) {
    let is_again = env::var_os(AGAIN).is_some();
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]);
        command
    };
    let can_unshare = || {
        unshare()
            .arg("true")
            .output()
            .is_ok_and(|o| o.status.success())
    };
    if is_again || !can_unshare() {
        return skipped("mounting is not allowed here");
    }
    let program = env::current_exe().expect("this program has a path");
    again(test, unshare().arg(program));
}

fn again(test: &str, command: &mut Command) {
    let command = command
        .args(["--exact", test, "--nocapture"])
        .env(AGAIN, "1")
        // The file for skipped tests belongs to the user of this process. This process adds the lines below.
        .env_remove(SKIPS);
    let output = match command.output() {
        Ok(output) => output,
        Err(e) => return skipped(&format!("it cannot run as another user: {e}")),
    };
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let passed = output.status.success() && out.contains(" 1 passed;");
    assert!(passed, "{test}, run as another user:\n{out}{err}");
    for line in out.lines() {
        // The program and the test are those of this process.
        if let Some((_, said)) = line.split_once("skipped: ") {
            skipped(said.splitn(3, ": ").last().unwrap_or(said));
        }
    }
}

/// A mount, unmounted at the end.
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts `what` at the folder `path`, which is made, with these options of `mount`. `None` if mounting is not
    /// allowed.
    ///
    /// # Panics
    ///
    /// If the folder cannot be made.
    #[must_use]
    pub fn new(options: &[&str], what: &Path, path: PathBuf) -> Option<Self> {
        fs::create_dir_all(&path).expect("make a folder");
        let mut command = Command::new("mount");
        let output = command.args(options).arg(what).arg(&path).output();
        let is_mounted = output.is_ok_and(|o| o.status.success());
        is_mounted.then(|| Self(path))
    }

    /// Mounts a file system in memory of `size`, as `mount` reads it (`8m`), at the folder `path`, which is made.
    /// `None` if mounting is not allowed.
    ///
    /// # Panics
    ///
    /// If the folder cannot be made.
    #[must_use]
    pub fn memory(size: &str, path: PathBuf) -> Option<Self> {
        let size = format!("size={size}");
        Self::new(&["-t", "tmpfs", "-o", &size], Path::new("tmpfs"), path)
    }

    /// Path of the mount.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[cfg(test)]
mod tests {
    use super::cases_from;

    #[test]
    fn cases_are_a_number_or_a_share_of_the_default() {
        assert_eq!(cases_from("7", 1000), Some(7));
        assert_eq!(cases_from("10%", 1000), Some(100));
        assert_eq!(
            cases_from("10%", 3),
            Some(1),
            "a test without cases tests nothing"
        );
        for wrong in ["", "%", "ten", "-1", "1.5%"] {
            assert_eq!(cases_from(wrong, 1000), None, "{wrong}");
        }
    }
}
