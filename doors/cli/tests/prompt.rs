//! The prompt of `rockmill sql`, through a pseudo-terminal.

#![cfg(feature = "sql")]

mod common;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rust_rocksdb::{DB, Options};

/// Columns of the terminal.
const COLUMNS: u16 = 60;

/// A program that takes longer hangs.
const HANGS: Duration = Duration::from_secs(120);

const CONTROL_C: &str = "\x03";
const CONTROL_D: &str = "\x04";
const PROMPT: &str = "\nrockmill> ";
const GOES_ON: &str = "\n       -> ";

/// The command at its own terminal, which `script` makes.
struct Terminal {
    child: Child,
    input: ChildStdin,
    output: Receiver<Vec<u8>>,
    /// Output that was not examined yet.
    printed: Vec<u8>,
}

impl Terminal {
    fn start(home: &Path, args: &[&str]) -> Self {
        let quoted = |text: &str| format!("'{text}'");
        let words = [&[env!("CARGO_BIN_EXE_rockmill")], args].concat();
        let words: Vec<_> = words.into_iter().map(quoted).collect();
        let command = format!("stty cols {COLUMNS} rows 24; exec {}", words.join(" "));
        // The end of the terminal ends the command, also where the tests run under nohup.
        let mut child = Command::new("env")
            .args([
                "--default-signal=HUP",
                "script",
                "--quiet",
                "--flush",
                "--return",
                "--command",
                &command,
                "/dev/null",
            ])
            .env("HOME", home)
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .env_remove("XDG_STATE_HOME")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script of util-linux");
        let input = child.stdin.take().unwrap();
        let mut reader = child.stdout.take().unwrap();
        let (sends, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if sends.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            input,
            output,
            printed: Vec::new(),
        }
    }

    fn types(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).unwrap();
        self.input.flush().unwrap();
    }

    /// Waits until the output ends with a text, and returns what is printed before it.
    fn until(&mut self, end: &str) -> String {
        self.wait_for(end, |text| text.ends_with(end));
        let text = plain(&std::mem::take(&mut self.printed));
        text.strip_suffix(end).expect("it ends so").to_owned()
    }

    /// Waits until a text is printed.
    fn wait(&mut self, text: &str) {
        self.wait_for(text, |printed| printed.contains(text));
    }

    fn wait_for(&mut self, text: &str, is_there: impl Fn(&str) -> bool) {
        loop {
            let printed = plain(&self.printed);
            if is_there(&printed) {
                return;
            }
            let Ok(more) = self.output.recv_timeout(HANGS) else {
                panic!("{text:?} was not printed behind {printed}");
            };
            self.printed.extend(more);
        }
    }

    /// Types a line, and returns what is printed before the next prompt, without the line itself.
    fn line(&mut self, line: &str) -> String {
        self.types(&format!("{line}\r"));
        let printed = self.until(PROMPT);
        let (_, answer) = printed.split_once('\n').unwrap_or((&printed, ""));
        let fits = |line: &str| line.chars().count() <= usize::from(COLUMNS);
        // The terminal breaks the sentence of an error.
        assert!(
            !answer.ends_with(" s.") || answer.lines().all(fits),
            "{answer}"
        );
        without_times(answer)
    }

    fn end(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

/// The lines that a terminal shows, without overwritten text.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut characters = text.chars();
    let (mut plain, mut line, mut at) = (String::new(), Vec::new(), 0);
    while let Some(c) = characters.next() {
        match c {
            '\x1b' => {
                let mut sequence = String::new();
                let end = characters.by_ref().skip(1).find(|&c| {
                    sequence.push(c);
                    c.is_ascii_alphabetic()
                });
                let count = sequence.trim_end_matches(char::is_alphabetic).parse();
                let count = count.unwrap_or(1);
                match end {
                    Some('C') => at += count,
                    Some('D') => at -= count.min(at),
                    Some('J' | 'K') => line.truncate(at),
                    _ => {}
                }
            }
            '\n' => {
                plain.extend(line.drain(..));
                plain.push('\n');
                at = 0;
            }
            '\r' => at = 0,
            '\x07' => {}
            c => {
                line.resize(line.len().max(at + 1), ' ');
                line[at] = c;
                at += 1;
            }
        }
    }
    plain.extend(line);
    plain
}

/// The same lines with `0.000 s` for each time.
fn without_times(text: &str) -> String {
    let words = text.split_inclusive([' ', '\n']).collect::<Vec<_>>();
    let mut without = String::new();
    for (at, word) in words.iter().enumerate() {
        let is_time = words
            .get(at + 1)
            .is_some_and(|next| next.trim_end() == "s.")
            && word.trim_end().parse::<f64>().is_ok();
        without.push_str(if is_time { "0.000 " } else { word });
    }
    without
}

/// A database with two column families.
fn database(dir: &Path) {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let db = DB::open_cf(&options, dir, ["default", "events"]).unwrap();
    for (key, value) in [("a", "first"), ("b", "second; with a semicolon"), ("c", "")] {
        db.put(key, value).unwrap();
    }
    let events = db.cf_handle("events").unwrap();
    db.put_cf(events, "e", "x".repeat(100)).unwrap();
    db.flush().unwrap();
    db.flush_cf(events).unwrap();
}

fn started() -> (tempfile::TempDir, Terminal) {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("db");
    database(&db);
    let mut terminal = Terminal::start(folder.path(), &["sql", db.to_str().unwrap()]);
    terminal.until(PROMPT);
    (folder, terminal)
}

#[test]
fn a_session_has_this_transcript() {
    let (folder, mut terminal) = started();
    let transcript = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/prompt.txt");
    let transcript = std::fs::read_to_string(transcript).unwrap();
    let mut happened = String::new();
    for line in transcript.lines() {
        if let Some(typed) = line.strip_prefix("rockmill> ") {
            happened += &format!("rockmill> {typed}\n");
            let answer = terminal.line(typed);
            happened += answer.trim_end();
            happened += if answer.is_empty() { "" } else { "\n" };
        }
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prompt.txt");
    std::fs::write(&path, &happened).unwrap();
    assert_eq!(happened, transcript, "{} has what happened", path.display());
    terminal.types("\\q\r");
    assert!(terminal.end().success());
    let history = std::fs::read_to_string(folder.path().join(".local/state/rockmill/sql_history"));
    assert!(history.unwrap().contains("select 1 as one; -- x"));
}

#[test]
fn a_statement_may_have_several_lines() {
    let (_folder, mut terminal) = started();
    for line in ["select ';", "' as a, /* ;", "*/ 'b;' as b -- ;"] {
        terminal.types(&format!("{line}\r"));
        terminal.until(GOES_ON);
    }
    // The first statement runs, and the second one begins.
    terminal.types("; select\r");
    let printed = terminal.until(GOES_ON);
    assert!(printed.contains(";\\n  b;\n1 row in "), "{printed}");
    let printed = terminal.line("2 as c; select 3 as d;");
    assert_eq!(
        printed,
        "c\n─\n2\n1 row in 0.000 s.\nd\n─\n3\n1 row in 0.000 s."
    );
    assert_eq!(terminal.line("-- nothing"), "");
    assert_eq!(terminal.line(""), "");
    // If one of them is not a statement, none runs.
    let printed = terminal.line("select 1; selec 2;");
    assert!(
        printed.starts_with("line 1, column 11: expected "),
        "{printed}"
    );
    terminal.types(CONTROL_D);
    assert!(terminal.end().success());
}

#[test]
fn control_c_ends_the_statement_and_not_the_program() {
    let (_folder, mut terminal) = started();
    let endless =
        "select 1; select count(*) from generate_series(1, 100000000000) a where a.value % 7 = 8;";
    terminal.types(&format!("{endless}\r"));
    // The first statement runs.
    terminal.wait("1 row in ");
    terminal.types(CONTROL_C);
    let printed = terminal.until(PROMPT);
    assert!(printed.ends_with("interrupted"), "{printed}");
    assert_eq!(
        terminal.line("select 2 as n;"),
        "n\n─\n2\n1 row in 0.000 s."
    );
    terminal.types(CONTROL_C);
    let printed = terminal.until(PROMPT);
    assert!(
        printed.ends_with("Control-D, exit or \\q leaves."),
        "{printed}"
    );
    // It drops the text typed so far.
    terminal.types("select 3\r");
    terminal.until(GOES_ON);
    terminal.types(CONTROL_C);
    assert!(!terminal.until(PROMPT).contains("leaves"));
    terminal.types("select 4");
    terminal.wait("select 4");
    terminal.types(CONTROL_C);
    assert!(!terminal.until(PROMPT).contains("leaves"));
    assert_eq!(
        terminal.line("select 5 as n;"),
        "n\n─\n5\n1 row in 0.000 s."
    );
    terminal.types("exit\r");
    assert!(terminal.end().success());
}

#[test]
fn control_c_leaves_nothing_of_a_progress_bar() {
    let (_folder, mut terminal) = started();
    // The scan of the table ends, and the series does not.
    let endless = "select count(*) from (select 1 from \"default\" union all \
        select value from generate_series(1, 100000000000) where value % 7 = 8);";
    terminal.types(&format!("{endless}\r"));
    terminal.wait(" B/");
    terminal.types(CONTROL_C);
    terminal.wait("interrupted");
    let printed = String::from_utf8_lossy(&terminal.printed).into_owned();
    let (before, _) = printed.split_once("^C").expect("the terminal prints it");
    let before = plain(before.as_bytes());
    let bar = before.lines().last().unwrap_or_default();
    // Else the terminal would print it in the next line.
    assert!(
        bar.contains(" B/") && bar.chars().count() + "^C".len() <= usize::from(COLUMNS),
        "{bar:?}"
    );
    let printed = terminal.until(PROMPT);
    assert!(
        printed.ends_with("\ninterrupted") && !printed.contains(" B/"),
        "{printed}"
    );
    terminal.types("exit\r");
    assert!(terminal.end().success());
}

#[test]
fn control_c_gives_the_prompt_back_from_a_statement_that_does_not_check_for_it() {
    // A batch of the second series meets all rows of the first before the join returns anything.
    const NEVER_CHECKS: &str = "select 1; select count(*) from generate_series(1, 3000000) a, \
        generate_series(1, 3000000) b where a.value + b.value = -1;";
    /// This one needs the threads of statements.
    const COUNTS: &str = "select count(*) from generate_series(1, 100000) a where a.value % 2 = 0;";
    let (_folder, mut terminal) = started();
    for signals in [1, 2] {
        terminal.types(&format!("{NEVER_CHECKS}\r"));
        terminal.wait("1 row in ");
        // The join begins.
        std::thread::sleep(Duration::from_secs(2));
        for _ in 0..signals {
            terminal.types(CONTROL_C);
            std::thread::sleep(Duration::from_millis(100));
        }
        terminal.wait("interrupted");
        terminal.printed.clear();
        terminal.types(&format!("{COUNTS}\r"));
        terminal.wait("\n   50000\n1 row in ");
        terminal.printed.clear();
    }
    terminal.types("exit\r");
    assert!(terminal.end().success());
}

#[test]
fn the_tab_key_completes_names() {
    let (_folder, mut terminal) = started();
    let printed = terminal.line("SEL\t octet_le\t(ke\t) as n from ev\t;");
    assert_eq!(printed, "n\n─\n1\n1 row in 0.000 s.");
    let printed = terminal.line("select count(*) as n from \"def\t;");
    assert_eq!(printed, "n\n─\n3\n1 row in 0.000 s.");
    terminal.line("create table made as select 1 as invented;");
    let printed = terminal.line("select inven\t from mad\t;");
    assert_eq!(printed, "invented\n────────\n       1\n1 row in 0.000 s.");
    terminal.types("quit\r");
    assert!(terminal.end().success());
}
