//! Statements typed at a terminal.

use std::path::PathBuf;

use datafusion::sql::sqlparser::keywords::ALL_KEYWORDS;
use rockmill_terminal::outcome::Failure;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Context, Editor, Helper, Highlighter, Hinter, Validator};

use super::Shell;

/// Reads statements until the end of input. A failing statement does not end it.
///
/// # Errors
/// Environment if the terminal cannot be read.
pub fn prompt(shell: &Shell) -> Result<(), Failure> {
    let refused = |e: ReadlineError| Failure::Environment(format!("cannot read the terminal: {e}"));
    let mut editor = Editor::<Words, FileHistory>::new().map_err(refused)?;
    editor.set_helper(Some(Words::of(shell)));
    let history = history_file();
    if let Some(history) = &history {
        // There is none the first time.
        let _ = editor.load_history(history);
    }
    println!("Statements end with a semicolon. Control-D ends the session.");
    let mut statement = String::new();
    loop {
        let mark = if statement.is_empty() {
            "rockmill> "
        } else {
            "       -> "
        };
        match editor.readline(mark) {
            Ok(line) => {
                statement.push_str(&line);
                statement.push('\n');
                if !line.trim_end().ends_with(';') {
                    continue;
                }
                let _ = editor.add_history_entry(statement.trim());
                if let Err(failure) = shell.run(&std::mem::take(&mut statement)) {
                    eprintln!("{failure}");
                }
            }
            Err(ReadlineError::Interrupted) => statement.clear(),
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(refused(error)),
        }
    }
    if let Some(history) = &history {
        let _ = editor.save_history(history);
    }
    Ok(())
}

/// Where statements are kept from session to session; `None` if there is no home folder.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state =
        state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    let folder = state.join("rockmill");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("sql_history"))
}

/// Completes keywords, tables and columns.
#[derive(Helper, Highlighter, Hinter, Validator)]
struct Words(Vec<String>);

impl Words {
    fn of(shell: &Shell) -> Self {
        let mut words: Vec<String> = ALL_KEYWORDS
            .iter()
            .map(|word| word.to_lowercase())
            .collect();
        let state = shell.context.state();
        words.extend(state.scalar_functions().keys().cloned());
        words.extend(state.aggregate_functions().keys().cloned());
        words.extend(["key", "value"].map(str::to_owned));
        for catalog in shell.context.catalog_names() {
            let Some(catalog) = shell.context.catalog(&catalog) else {
                continue;
            };
            let schemas = catalog.schema_names();
            let schemas = schemas.iter().filter_map(|name| catalog.schema(name));
            words.extend(schemas.flat_map(|schema| schema.table_names()));
        }
        words.sort_unstable();
        words.dedup();
        Self(words)
    }
}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let typed = &line[..position];
        let start = typed.rfind(|c| !is_part(c)).map_or(0, |at| {
            at + typed[at..].chars().next().map_or(1, char::len_utf8)
        });
        let begun = typed[start..].to_lowercase();
        let fits = |word: &&String| !begun.is_empty() && word.starts_with(&begun);
        Ok((start, self.0.iter().filter(fits).cloned().collect()))
    }
}
