//! Finds the commit of the build. For build scripts of commands.

use std::path::Path;
use std::process::Command;

/// Sets `ROCKMILL_COMMIT` for the crate: the value of that variable, the commit that `git archive` wrote into
/// build/commit, or the checkout's. Cargo runs the build script again only when the checkout's HEAD has changed.
pub fn name() {
    println!("cargo:rerun-if-env-changed=ROCKMILL_COMMIT");
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file]);
        // Cargo would treat a missing file as changed at every build.
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let archived = include_str!("commit").trim();
    let commit = match std::env::var("ROCKMILL_COMMIT") {
        Ok(commit) if !commit.is_empty() => commit,
        _ if !archived.starts_with('$') => archived.to_owned(),
        _ => git(&["describe", "--always", "--dirty"]).unwrap_or_else(|| "unknown".to_owned()),
    };
    println!("cargo:rustc-env=ROCKMILL_COMMIT={commit}");
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
