//! `rockmill config`: the options for compiling and linking programs in C, C++ and CUDA with the installed library.

use std::path::{Path, PathBuf};

use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;

/// Arguments of `rockmill config`.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub struct ConfigArgs {
    /// Print the compiler's options.
    #[arg(long)]
    cflags: bool,
    /// Print the linker's options.
    #[arg(long)]
    libs: bool,
}

/// Prints options in one line, for gcc, clang and nvcc.
///
/// # Errors
/// Environment if no library is installed beside the command, or the output cannot be written.
pub fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let prefix = installed()?;
    let of = |option: &str, folder: &str| format!("{option}{}", prefix.join(folder).display());
    let mut options = Vec::new();
    if args.cflags {
        options.push(of("-I", "include"));
    }
    if args.libs {
        options.extend([of("-L", "lib"), "-lrockmill".to_owned()]);
    }
    output::to_stdout(|out| Ok(writeln!(out, "{}", options.join(" "))?))
}

/// The prefix with this command in `bin`, and with headers and library.
fn installed() -> Result<PathBuf, Failure> {
    let command = std::env::current_exe().and_then(|command| command.canonicalize());
    let command = command
        .map_err(|e| Failure::Environment(format!("this command cannot be found on disk: {e}")))?;
    let prefix = command.ancestors().nth(2).unwrap_or(Path::new("/"));
    for file in ["include/rockmill/gpukv.cuh", "lib/librockmill.so"] {
        let path = prefix.join(file);
        if !path.exists() {
            let what = format!(
                "{} is missing: run `make install PREFIX=..` in the repository, and then the command in PREFIX/bin",
                path.display()
            );
            return Err(Failure::Environment(what));
        }
    }
    Ok(prefix.to_owned())
}
