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
pub fn run(args: &GenerateArgs, command: Command) -> Result<(), Failure> {
    let name = command.get_name().to_owned();
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    // Completions would also show hidden arguments.
    let mut completed = Command::new(name.clone())
        .version("")
        .subcommands(shown.cloned());
    let folder = |path: &str| {
        let folder = args.share.join(path);
        fs::create_dir_all(&folder).map(|()| folder)
    };
    let mut write = || {
        for (shell, path) in [
            (Shell::Bash, "bash-completion/completions"),
            (Shell::Zsh, "zsh/site-functions"),
            (Shell::Fish, "fish/vendor_completions.d"),
        ] {
            let written = clap_complete::generate_to(shell, &mut completed, &name, folder(path)?)?;
            if shell == Shell::Bash {
                // bash-completion looks for the name of the command.
                fs::rename(&written, written.with_extension(""))?;
            }
        }
        // `rockmill help verify` is `rockmill verify --help`, and has no page.
        let without_help = command.clone().disable_help_subcommand(true);
        clap_mangen::generate_to(without_help, folder("man/man1")?)
    };
    write().map_err(|e: std::io::Error| {
        Failure::Environment(format!("cannot write below {}: {e}", args.share.display()))
    })
}
