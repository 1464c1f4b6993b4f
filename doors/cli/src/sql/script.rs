//! Typed text: statements, and commands of the prompt.

use std::borrow::Cow;

use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenizerError};
use rockmill_sql::statements::{Split, Tokens};

/// A command, which takes a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Help,
    Exit,
    /// Lists the tables.
    Tables,
    /// Shows the columns of a table.
    Describe(String),
    /// None of these.
    Unknown(String),
}

/// Commands that are words.
const WORDS: [&str; 3] = ["help", "exit", "quit"];

/// Help text of the prompt.
pub const HELP: &str = "\
Statements end with a semicolon; they may have several
lines. Names with capitals or signs have double quotes.

  show tables;               the tables
  \\d, .tables                the same
  \\d TABLE                   the columns of a table
  explain analyze select ..; what a statement does
  copy (select ..) to 'a.parquet';
                             writes rows to a file
  help, \\?                   this text
  exit, quit, \\q, Control-D  leaves

The tab key completes names. Control-C ends a statement.";

impl Command {
    /// The command in a line; `None` if the line is not a command.
    fn of(line: &str) -> Option<Self> {
        let line = line.trim().trim_end_matches(';').trim_end();
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let name = name.to_lowercase();
        let is_command = name.starts_with(['\\', '.']);
        if !is_command && !rest.is_empty() {
            return None;
        }
        Some(match (name.as_str(), rest) {
            ("help" | "\\?" | "\\h" | ".help", _) => Self::Help,
            ("exit" | "quit" | "\\q" | ".exit" | ".quit", _) => Self::Exit,
            ("\\d" | "\\dt" | ".tables", "") => Self::Tables,
            ("\\d", table) => Self::Describe(table.to_owned()),
            _ if is_command => Self::Unknown(line.to_owned()),
            _ => return None,
        })
    }
}

/// A part of the typed text.
#[derive(Debug, Clone)]
pub enum Item {
    Command(Command),
    Statement(Tokens),
}

/// The parts of the typed text.
#[derive(Debug)]
pub struct Script {
    /// Commands, and statements that a semicolon ends.
    pub items: Vec<Item>,
    /// Text behind them.
    pub rest: Tokens,
    /// Whether more lines have to follow.
    pub is_open: bool,
    pub trouble: Option<TokenizerError>,
}

impl Script {
    /// Parses a text. A command is possible where a statement would begin.
    pub fn of(text: &str) -> Self {
        let mut text = Cow::Borrowed(text);
        let mut commands: Vec<(Location, Command)> = Vec::new();
        loop {
            let split = Split::of(&text);
            let found = command(&text, &split);
            if let Some((place, line, command)) = found {
                // The rest is parsed as if the line was empty, because the line may have an unpaired quote.
                let blank = " ".repeat(line.len());
                text.to_mut().replace_range(line, &blank);
                commands.push((place, command));
                continue;
            }
            let is_open = match split.trouble {
                Some(_) => split.is_open(),
                None => split.rest.first().is_some(),
            };
            let statements = split.ended.into_iter().filter_map(|tokens| {
                let place = tokens.first()?.span.start;
                Some((place, Item::Statement(tokens)))
            });
            let commands = commands.into_iter();
            let mut items: Vec<_> = commands
                .map(|(place, command)| (place, Item::Command(command)))
                .chain(statements)
                .collect();
            items.sort_by_key(|(place, _)| *place);
            return Self {
                items: items.into_iter().map(|(_, item)| item).collect(),
                rest: split.rest,
                is_open,
                trouble: split.trouble,
            };
        }
    }
}

/// The first command of a text, with its position and its bytes.
fn command(text: &str, split: &Split) -> Option<(Location, std::ops::Range<usize>, Command)> {
    let statements = split.ended.iter().chain([&split.rest]);
    for tokens in statements {
        let Some(first) = tokens.first() else {
            continue;
        };
        let begins = match &first.token {
            Token::Backslash | Token::Period => true,
            Token::Word(word) => WORDS.contains(&word.value.to_lowercase().as_str()),
            _ => false,
        };
        if !begins {
            continue;
        }
        let place = first.span.start;
        let start = offset(text, place);
        let line = text[start..].lines().next().unwrap_or_default();
        if let Some(command) = Command::of(line) {
            return Some((place, start..start + line.len(), command));
        }
    }
    None
}

/// The byte offset of a position in a text.
pub fn offset(text: &str, place: Location) -> usize {
    let line = usize::try_from(place.line.saturating_sub(1)).unwrap_or(usize::MAX);
    let column = usize::try_from(place.column.saturating_sub(1)).unwrap_or(usize::MAX);
    let start = match line {
        0 => 0,
        line => text
            .match_indices('\n')
            .nth(line - 1)
            .map_or(text.len(), |(at, _)| at + 1),
    };
    let mut characters = text[start..].char_indices();
    characters
        .nth(column)
        .map_or(text.len(), |(at, _)| start + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statements and commands, as text.
    fn items(text: &str) -> Vec<String> {
        let item = |item: &Item| match item {
            Item::Command(command) => format!("{command:?}"),
            Item::Statement(tokens) => {
                let tokens = tokens.0.iter().map(|token| token.token.to_string());
                tokens.collect::<String>().trim().to_owned()
            }
        };
        Script::of(text).items.iter().map(item).collect()
    }

    #[test]
    fn commands_take_a_line_where_a_statement_would_begin() {
        assert_eq!(
            items("\\d 'a\nselect 1;\n.tables\nselect 2; exit\n-- x\nQUIT;\nhelp"),
            [
                "Describe(\"'a\")",
                "select 1;",
                "Tables",
                "select 2;",
                "Exit",
                "Exit",
                "Help"
            ]
        );
        assert_eq!(items(".width 3"), ["Unknown(\".width 3\")"]);
        assert_eq!(
            items("\\?\n\\q\n\\d \"A b\".c;"),
            ["Help", "Exit", "Describe(\"\\\"A b\\\".c\")"]
        );
        assert_eq!(items("select\nexit\n;"), ["select\nexit\n;"]);
        assert_eq!(items("select 1 as help;"), ["select 1 as help;"]);
        assert!(items("help me").is_empty());
    }

    #[test]
    fn a_text_is_open_until_its_last_statement_ends() {
        for open in [
            "select 1",
            "select 1; select",
            "select ';",
            "/* ",
            "select 1; \"",
            "select 1 -- ;",
        ] {
            assert!(Script::of(open).is_open, "{open}");
        }
        for complete in [
            "",
            "-- x",
            "select 1; -- x",
            "select 1; /* x */",
            "\\d",
            "select 1 ;\n\n",
            "exit",
        ] {
            assert!(!Script::of(complete).is_open, "{complete}");
        }
    }

    #[test]
    fn places_are_bytes_of_the_text() {
        let text = "né\n宽x;\n";
        let at = |line, column| offset(text, Location { line, column });
        assert_eq!((at(1, 1), at(1, 3), at(2, 1), at(2, 2)), (0, 3, 4, 7));
        assert_eq!(
            (at(3, 1), at(9, 9), at(1, 99)),
            (text.len(), text.len(), text.len())
        );
    }
}
