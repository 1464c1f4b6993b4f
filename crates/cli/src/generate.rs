//! `rockmill generate`: manual pages and completions, which an installation contains.

use std::fs;
use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;
use rockmill_terminal::outcome::Failure;

/// Arguments of `rockmill generate`.
#[derive(Debug, clap::Args)]
pub struct GenerateArgs {
    /// The folder `share` of an installation.
    share: PathBuf,
}

/// Writes manual pages of `command` and its subcommands, and completions for shells, where systems look for them.
///
/// # Errors
/// Environment if a file cannot be written.
pub fn run(args: &GenerateArgs, mut command: Command) -> Result<(), Failure> {
    let name = command.get_name().to_owned();
    let folder = |path: &str| {
        let folder = args.share.join(path);
        fs::create_dir_all(&folder).map(|()| folder)
    };
    let write = || {
        for (shell, path) in [
            (Shell::Bash, "bash-completion/completions"),
            (Shell::Zsh, "zsh/site-functions"),
            (Shell::Fish, "fish/vendor_completions.d"),
        ] {
            let written = clap_complete::generate_to(shell, &mut command, &name, folder(path)?)?;
            if shell == Shell::Bash {
                // bash-completion looks for the name of the command.
                fs::rename(&written, written.with_extension(""))?;
            }
        }
        clap_mangen::generate_to(command.disable_help_subcommand(true), folder("man/man1")?)
    };
    write().map_err(|e: std::io::Error| {
        Failure::Environment(format!("cannot write below {}: {e}", args.share.display()))
    })
}
