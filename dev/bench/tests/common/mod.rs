//! The command, and folders in which `rockmill-bench system` runs.

#![allow(dead_code, reason = "each of the tests uses its part")]

use std::fs;
use std::path::PathBuf;

use rockmill_testkit::command;
use serde_json::Value;
use tempfile::TempDir;

#[allow(unused_imports, reason = "each of the tests uses its part")]
pub use rockmill_testkit::command::{BAD_DATA, DONE, ENVIRONMENT, WRONG_USAGE, text};

/// Runs the command, checks its exit code and returns what it printed.
pub fn expect(code: i32, args: &[&str]) -> (String, String) {
    command::run(env!("CARGO_BIN_EXE_rockmill-bench"), code, args)
}

/// A folder in which an experiment runs.
pub struct Folder(pub TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    pub fn out(&self) -> PathBuf {
        self.0.path().join("out")
    }

    /// Folder of the databases.
    pub fn databases(&self) -> PathBuf {
        let databases = self.0.path().join("databases");
        fs::create_dir_all(&databases).expect("make a folder");
        databases
    }

    /// Returns the arguments for an experiment with two threads and, where it has clients, two clients.
    pub fn arguments(&self, experiment: &str, more: &[&str]) -> Vec<String> {
        let (out, databases) = (self.out(), self.databases());
        let args = ["system", "--experiment", experiment];
        let places = ["--out", text(&out), "--dir", text(&databases)];
        let threads = ["--threads", "2"];
        let clients = ["--clients", "2"];
        let clients = &clients[..if experiment == "scaling" { 0 } else { 2 }];
        let all = [&args[..], &places, &threads, clients, more].concat();
        all.into_iter().map(str::to_owned).collect()
    }

    /// Runs an experiment, and checks that no database is left.
    pub fn run(&self, code: i32, experiment: &str, more: &[&str]) -> (String, String) {
        let args = self.arguments(experiment, more);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let done = expect(code, &args);
        let mut left = fs::read_dir(self.databases()).expect("list");
        assert!(left.next().is_none());
        done
    }

    /// Returns the results of an experiment, by file name.
    pub fn results(&self, experiment: &str) -> Vec<(PathBuf, Value)> {
        let files = fs::read_dir(self.out().join(experiment)).expect("list");
        let mut files: Vec<_> = files.map(|file| file.expect("list").path()).collect();
        files.sort();
        let read = |path: PathBuf| {
            let value = serde_json::from_slice(&fs::read(&path).expect("read")).expect("JSON");
            (path, value)
        };
        files.into_iter().map(read).collect()
    }

    /// Returns the lines of the table without head and rule, and the plot.
    pub fn report(&self, experiment: &str) -> (Vec<String>, String) {
        let read = |extension: &str| {
            let path = self.out().join(format!("{experiment}.{extension}"));
            fs::read_to_string(path).expect("a report")
        };
        let lines = read("md");
        let lines = lines.lines().filter(|line| line.starts_with('|')).skip(2);
        (lines.map(str::to_owned).collect(), read("svg"))
    }
}

/// Phases of a result.
pub fn phases(result: &Value) -> Vec<&Value> {
    let phases = result["outcome"]["phases"].as_array().expect("phases");
    phases.iter().collect()
}

/// A number of a phase.
pub fn number(phase: &Value, path: &str) -> f64 {
    let found = phase.pointer(path).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("{path}: {phase}"))
}
