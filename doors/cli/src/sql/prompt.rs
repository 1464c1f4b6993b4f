//! Statements typed at a terminal.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rockmill_terminal::outcome::Failure;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{
    Cmd, CompletionType, ConditionalEventHandler, Config, Editor, Event, EventContext,
    EventHandler, KeyEvent, RepeatCount,
};

use super::error::Source;
use super::script::{Script, offset};
use super::shell::{Flow, Shell};
use super::words::Words;

/// Reads statements until the end of input. A failing statement does not end it.
///
/// # Errors
/// Environment if the terminal cannot be read.
pub fn prompt(shell: &Arc<Shell>) -> Result<(), Failure> {
    let refused = |e: ReadlineError| Failure::Environment(format!("cannot read the terminal: {e}"));
    let config = Config::builder().completion_type(CompletionType::List);
    let editor = Editor::<Words, FileHistory>::with_config(config.build());
    let mut editor = editor.map_err(refused)?;
    // Control-C may come when the line is typed and the statement has not begun.
    let _interrupts = shell.interrupts()?;
    let was_empty = Arc::new(AtomicBool::new(false));
    let interrupts = EventHandler::Conditional(Box::new(Interrupts(Arc::clone(&was_empty))));
    editor.bind_sequence(KeyEvent::ctrl('C'), interrupts);
    editor.set_helper(Some(Words::of(shell)));
    let history = history_file();
    if let Some(history) = &history {
        // The first time, there is none.
        let _ = editor.load_history(history);
    }
    println!("Statements end with a semicolon. help shows more, and Control-D leaves.");
    let mut text = String::new();
    loop {
        let mark = if text.is_empty() {
            "rockmill> "
        } else {
            "       -> "
        };
        match editor.readline(mark) {
            Ok(line) => {
                text.push_str(&line);
                text.push('\n');
                let script = Script::of(&text);
                if script.items.is_empty() && script.is_open {
                    continue;
                }
                let entry = text.trim();
                if !entry.is_empty() {
                    let _ = editor.add_history_entry(entry);
                    if let Some(history) = &history {
                        let _ = editor.append_history(history);
                    }
                }
                match run(shell, script, &mut text) {
                    Ok(Flow::Next) => {}
                    Ok(Flow::Leave) => break,
                    Err(failure) => eprintln!("{failure}"),
                }
                // Statements may define names.
                editor.set_helper(Some(Words::of(shell)));
            }
            Err(ReadlineError::Interrupted) => {
                if text.is_empty() && was_empty.load(Ordering::Relaxed) {
                    println!("Control-D, exit or \\q leaves.");
                }
                text.clear();
            }
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(refused(error)),
        }
    }
    Ok(())
}

/// Runs the complete statements. The rest stays.
fn run(shell: &Arc<Shell>, script: Script, text: &mut String) -> Result<Flow, Failure> {
    let typed = std::mem::take(text);
    if script.is_open {
        let begin = script.rest.first().map(|token| token.span.start);
        // A comment or a string may have no token yet.
        let place = begin.or(script.trouble.as_ref().map(|trouble| trouble.location));
        text.push_str(place.map_or("", |place| &typed[offset(&typed, place)..]));
    }
    let source = Source {
        file: None,
        text: &typed,
    };
    let flow = match script.is_open {
        true => shell.run_items(script.items, source),
        false => shell.run(source),
    };
    if flow.is_err() {
        text.clear();
    }
    flow
}

/// Records whether Control-C comes in an empty line.
struct Interrupts(Arc<AtomicBool>);

impl ConditionalEventHandler for Interrupts {
    fn handle(
        &self,
        _: &Event,
        _: RepeatCount,
        _: bool,
        context: &EventContext<'_>,
    ) -> Option<Cmd> {
        self.0.store(context.line().is_empty(), Ordering::Relaxed);
        None
    }
}

/// File that keeps statements from session to session; `None` if there is no home folder.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state =
        state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    let folder = state.join("rockmill");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("sql_history"))
}
