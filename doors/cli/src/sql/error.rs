//! Errors of statements, as sentences with a position.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;

use datafusion::arrow::error::ArrowError;
use datafusion::common::utils::datafusion_strsim::levenshtein;
use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenizerError};
use rockmill_sql::statements::{self, Tokens};
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;
use tokio::task::JoinError;
use unicode_width::UnicodeWidthChar;

use super::memory;
use super::unwritten::{target, unwritten};

/// A text of statements, and the file that has it.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Its name; `None` if the text comes from elsewhere.
    pub file: Option<&'a str>,
    /// The text.
    pub text: &'a str,
}

/// A failure, and the position in the text that causes it.
#[derive(Debug)]
pub struct Misplaced {
    /// The failure.
    pub failure: Failure,
    /// The place; `None` if it is not known.
    pub place: Option<Location>,
}

impl From<Failure> for Misplaced {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            place: None,
        }
    }
}

impl Source<'_> {
    /// The failure with its position. A terminal also gets the line.
    pub fn failure(&self, misplaced: Misplaced) -> Failure {
        let marked = |place| match std::io::stderr().is_terminal() {
            true => self.marked(
                place,
                output::terminal_columns().unwrap_or(output::USUAL_COLUMNS),
            ),
            false => String::new(),
        };
        let marked = misplaced.place.map(marked).unwrap_or_default();
        self.placed(misplaced, &marked)
    }

    /// The failure with its place, and `behind` at its end.
    pub fn placed(&self, misplaced: Misplaced, behind: &str) -> Failure {
        let Misplaced { failure, place } = misplaced;
        let file = self
            .file
            .map(|file| format!("{file}: "))
            .unwrap_or_default();
        let line = |place: Location| format!("line {}, column {}: ", place.line, place.column);
        let line = place.map(line).unwrap_or_default();
        let placed = |what: String| format!("{file}{line}{what}{behind}");
        match failure {
            Failure::Usage(what) => Failure::Usage(placed(what)),
            Failure::Data(what) => Failure::Data(placed(what)),
            Failure::Environment(what) => Failure::Environment(placed(what)),
            other => other,
        }
    }

    /// The line of a position, and a mark below the position. They fit into `columns` columns.
    fn marked(&self, place: Location, columns: u16) -> String {
        const INDENT: &str = "  ";
        let at = usize::try_from(place.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let line = self.text.lines().nth(at).unwrap_or_default();
        let shown = |c: char| if c.is_control() { ' ' } else { c };
        let line: Vec<char> = line.chars().map(shown).collect();
        let room = usize::from(columns).saturating_sub(INDENT.len() + 1);
        let place = usize::try_from(place.column.saturating_sub(1)).unwrap_or(usize::MAX);
        let place = place.min(line.len());
        let width =
            |characters: &[char]| characters.iter().filter_map(|c| c.width()).sum::<usize>();
        // A long line is shown from some characters before the position on.
        let most = match width(&line[..place]) {
            before if before < room => before,
            _ => room / 2,
        };
        let mut starts = place.saturating_sub(room)..=place;
        let start = starts.find(|&start| width(&line[start..place]) <= most);
        let start = start.unwrap_or(place);
        let mut ends = place..=line.len().min(place + room);
        let end = ends.rfind(|&end| width(&line[start..end]) <= room);
        let end = end.unwrap_or(place);
        let (before, shown) = (&line[start..place], String::from_iter(&line[start..end]));
        let blank = " ".repeat(width(before));
        format!("\n{INDENT}{shown}\n{INDENT}{blank}^")
    }
}

/// A statement's failure outside of a text. Rockmill's failures keep their own exit code.
pub fn failure(error: DataFusionError) -> Failure {
    if let Some(failure) = memory::failure(&error) {
        return failure;
    }
    let root = error.find_root();
    if let DataFusionError::External(external) = root
        && let Some(error) = external.downcast_ref::<rockmill_core::Error>()
    {
        return error.clone().into();
    }
    if let Some(said) = unwritten(root) {
        return Failure::Environment(said);
    }
    let said = sentence(root);
    match root {
        // A task of a repartition has panicked.
        DataFusionError::External(external) if external.is::<Arc<JoinError>>() => {
            Failure::Environment(format!("internal error, please report it: {said}"))
        }
        DataFusionError::IoError(_)
        | DataFusionError::ResourcesExhausted(_)
        | DataFusionError::ObjectStore(_) => Failure::Environment(said),
        DataFusionError::Internal(_) | DataFusionError::ExecutionJoin(_) => {
            Failure::Environment(format!("internal error, please report it: {said}"))
        }
        DataFusionError::ParquetError(_) => Failure::Data(said),
        DataFusionError::ArrowError(error, _) => match error.as_ref() {
            ArrowError::CsvError(_)
            | ArrowError::JsonError(_)
            | ArrowError::AvroError(_)
            | ArrowError::IpcError(_)
            | ArrowError::ParquetError(_) => Failure::Data(said),
            ArrowError::IoError(..) | ArrowError::MemoryError(_) => Failure::Environment(said),
            // The statement computes a value that does not exist.
            _ => Failure::Usage(said),
        },
        _ => Failure::Usage(said),
    }
}

/// The failure of a statement with these tokens.
pub fn of_statement(
    error: DataFusionError,
    tokens: &Tokens,
    session: &SessionContext,
) -> Misplaced {
    let span = error.diagnostic().and_then(|diagnostic| diagnostic.span);
    let span = span.map(|span| Location {
        line: span.start.line,
        column: span.start.column,
    });
    let at_name = |name: &str| span.or_else(|| place_of(name, tokens));
    match error.find_root() {
        DataFusionError::SQL(error, _) => of_parser(error, tokens),
        DataFusionError::SchemaError(error, _) => {
            if let SchemaError::FieldNotFound {
                field,
                valid_fields,
            } = error.as_ref()
            {
                return Misplaced {
                    failure: Failure::Usage(no_column(field, valid_fields)),
                    place: at_name(&field.name),
                };
            }
            Misplaced {
                place: span,
                failure: Failure::Usage(plain(&error.to_string())),
            }
        }
        DataFusionError::Plan(said) => {
            if let Some(name) = between(said, "table '", "' not found") {
                let table = name.rsplit('.').next().unwrap_or(name);
                return Misplaced {
                    failure: Failure::Usage(no_table(name, session)),
                    place: at_name(table),
                };
            }
            if let Some(name) = between(said, "Invalid function '", "'") {
                return Misplaced {
                    failure: Failure::Usage(no_function(name, session)),
                    place: at_name(name),
                };
            }
            if let Some(call) = between(said, "argument types '", "'") {
                let name = call.split('(').next().unwrap_or(call);
                return Misplaced {
                    failure: Failure::Usage(no_such_call(call, said)),
                    place: at_name(name),
                };
            }
            let diagnostic = error.diagnostic();
            let diagnostic = diagnostic.filter(|_| said.contains("must appear in the GROUP BY"));
            Misplaced {
                place: span,
                failure: match diagnostic {
                    Some(diagnostic) => Failure::Usage(plain(&diagnostic.message)),
                    None => failure(error),
                },
            }
        }
        root => Misplaced {
            place: span,
            failure: match unwritten(root).zip(target(tokens)) {
                Some((said, path)) => Failure::Environment(format!("{path}: {said}")),
                None => failure(error),
            },
        },
    }
}

/// The failure of a text that cannot be parsed.
fn of_parser(error: &ParserError, tokens: &Tokens) -> Misplaced {
    let said = match error {
        ParserError::TokenizerError(said) | ParserError::ParserError(said) => said.as_str(),
        ParserError::RecursionLimitExceeded => "the statement is nested too deeply",
    };
    let (said, place) = statements::place(said);
    let said = said.replace("Expected: ", "expected ");
    let said = said.replace(", found: EOF", ", found the end of the statement");
    let said = said.replace("found: ", "found ");
    Misplaced {
        failure: Failure::Usage(plain(&said)),
        place: place.or_else(|| tokens.end()),
    }
}

/// The failure of a text that cannot be split into tokens.
pub fn of_tokenizer(trouble: &TokenizerError) -> Misplaced {
    Misplaced {
        failure: Failure::Usage(plain(&trouble.message)),
        place: Some(trouble.location),
    }
}

/// The message of an error, without the names of its kinds.
fn sentence(error: &DataFusionError) -> String {
    let said = match error {
        DataFusionError::ArrowError(error, _) => match error.as_ref() {
            ArrowError::DivideByZero => "division by zero".to_owned(),
            ArrowError::CastError(said)
            | ArrowError::ParseError(said)
            | ArrowError::ComputeError(said)
            | ArrowError::ArithmeticOverflow(said)
            | ArrowError::InvalidArgumentError(said)
            | ArrowError::NotYetImplemented(said) => said.clone(),
            error => error.to_string(),
        },
        DataFusionError::NotImplemented(said) => {
            let said = said.strip_prefix("Unsupported ").unwrap_or(said);
            format!("not supported: {said}")
        }
        DataFusionError::External(error) => error.to_string(),
        DataFusionError::Internal(said) => said.clone(),
        error => error.message().into_owned(),
    };
    let said = said
        .split(DataFusionError::BACK_TRACE_SEP)
        .next()
        .unwrap_or_default();
    plain(said)
}

/// A message in one line, which begins as the middle of a sentence does. Types and source positions of Rust are
/// removed.
fn plain(said: &str) -> String {
    const KINDS: [&str; 3] = [
        "Error during planning: ",
        "Execution error: ",
        "Arrow error: ",
    ];
    let mut said = said.to_owned();
    for kind in KINDS {
        said = said.replace(kind, "");
    }
    // The lines between show a regular expression with a mark.
    if let Some((shown, cause)) = said.rsplit_once("\nerror: ") {
        said = format!("{} {cause}", shown.lines().next().unwrap_or_default());
    }
    let mut said = said.as_str();
    if said.contains("Span(") {
        said = said.split(['{', '(']).next().unwrap_or_default();
    }
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = words.trim_end_matches('.');
    let mut characters = words.chars();
    match (characters.next(), characters.next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            format!("{}{}", first.to_lowercase(), &words[first.len_utf8()..])
        }
        _ => words.to_owned(),
    }
}

/// A function has no arguments of these types.
fn no_such_call(call: &str, said: &str) -> String {
    const MAX_LISTED: usize = 4;
    let what = format!("there is no {call}");
    let (_, calls) = said.split_once("Candidate functions:").unwrap_or_default();
    let calls: Vec<_> = calls
        .lines()
        .map(str::trim)
        .filter(|call| !call.is_empty())
        .collect();
    match calls.len() {
        0 => what,
        1..=MAX_LISTED => format!("{what}; there is {}", calls.join(", ")),
        _ => format!(
            "{what}; there is {} and others",
            calls[..MAX_LISTED].join(", ")
        ),
    }
}

fn no_column(field: &Column, valid: &[Column]) -> String {
    const MAX_LISTED: usize = 12;
    let what = format!("there is no column {}", field.flat_name());
    if let Some(name) = closest(&field.name, valid.iter().map(|column| column.name.as_str())) {
        return format!("{what}; did you mean {}?", quoted(name));
    }
    let names: Vec<_> = valid.iter().map(|column| quoted(&column.name)).collect();
    match names.len() {
        0 => format!("{what}, since no table is named"),
        1..=MAX_LISTED => format!("{what}; columns are {}", names.join(", ")),
        _ => what,
    }
}

/// There is no such table.
pub fn no_table(name: &str, session: &SessionContext) -> String {
    let state = session.state();
    let names = &state.config_options().catalog;
    let catalog = format!("{}.", names.default_catalog);
    let schema = format!("{}.", names.default_schema);
    let name = name.strip_prefix(&catalog).unwrap_or(name);
    let name = name.strip_prefix(&schema).unwrap_or(name);
    let what = format!("there is no table {name}");
    let tables = tables(session);
    let meant = closest(name, tables.keys().map(String::as_str));
    match meant.and_then(|table| tables.get(table)) {
        Some(table) => format!("{what}; did you mean {table}?"),
        None => format!("{what}; show tables lists them"),
    }
}

fn no_function(name: &str, session: &SessionContext) -> String {
    let what = format!("there is no function {name}");
    let state = session.state();
    let scalar = state.scalar_functions().keys();
    let aggregate = state.aggregate_functions().keys();
    let window = state.window_functions().keys();
    let all = scalar.chain(aggregate).chain(window).map(String::as_str);
    match closest(name, all) {
        Some(function) => format!("{what}; did you mean {function}?"),
        None => what,
    }
}

/// The tables by name, and in the form that SQL needs. Those of the default schema have no prefix.
pub fn tables(session: &SessionContext) -> BTreeMap<String, String> {
    let state = session.state();
    let names = &state.config_options().catalog;
    let mut tables = BTreeMap::new();
    let Some(catalog) = session.catalog(&names.default_catalog) else {
        return tables;
    };
    for schema in catalog.schema_names() {
        let Some(provider) = catalog.schema(&schema) else {
            continue;
        };
        for table in provider.table_names() {
            let (name, in_sql) = match schema == names.default_schema {
                true => (table.clone(), quoted(&table)),
                false => (
                    format!("{schema}.{table}"),
                    format!("{}.{}", quoted(&schema), quoted(&table)),
                ),
            };
            tables.insert(name, in_sql);
        }
    }
    tables
}

/// The name that the user probably meant.
fn closest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const PART: usize = 3;
    let sorted = |name: &str| {
        let mut letters: Vec<_> = name.chars().collect();
        letters.sort_unstable();
        letters
    };
    let name = name.to_lowercase();
    let (length, letters) = (name.chars().count(), sorted(&name));
    let most = (length / PART).max(1).min(length.saturating_sub(1));
    let distances = candidates.map(|candidate| {
        let lower = candidate.to_lowercase();
        let is_begun = length >= PART && lower.starts_with(&name);
        let distance = match is_begun || sorted(&lower) == letters {
            true => 1,
            false => levenshtein(&name, &lower),
        };
        (distance, candidate)
    });
    let (distance, candidate) = distances.min()?;
    (distance <= most).then_some(candidate)
}

/// A name in the form that SQL needs.
pub fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let text = format!("select {name} from {name} where {name} = 1");
    match name.chars().all(is_plain) && statements::statements(&text).is_ok() {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// Position of a name in a statement.
fn place_of(name: &str, tokens: &Tokens) -> Option<Location> {
    let mut tokens = tokens.0.iter();
    let found = tokens.find(|token| match &token.token {
        Token::Word(word) => match word.quote_style {
            None => word.value.eq_ignore_ascii_case(name),
            Some(_) => word.value == name,
        },
        _ => false,
    })?;
    Some(found.span.start)
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, text) = text.split_once(before)?;
    Some(text.split_once(after)?.0)
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;

    #[test]
    fn names_that_were_meant_are_found() {
        let names = ["default", "events", "key", "value", "lineitem"];
        let found = |name| closest(name, names.into_iter());
        for (name, meant) in [
            ("defualt", "default"),
            ("evnts", "events"),
            ("kye", "key"),
            ("Value", "value"),
            ("line", "lineitem"),
        ] {
            assert_eq!(found(name), Some(meant), "{name}");
        }
        for name in ["", "x", "ab", "customers", "rocksdb"] {
            assert_eq!(found(name), None, "{name}");
        }
    }

    #[test]
    fn names_have_quotes_where_sql_needs_them() {
        for name in ["events", "a_1", "key", "value", "default"] {
            assert_eq!(quoted(name), name);
        }
        for name in ["Events", "a b", "1a", "a-b", ""] {
            assert_eq!(quoted(name), format!("\"{name}\""));
        }
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }

    #[test]
    fn the_mark_is_below_the_place() {
        let source = |text| Source { file: None, text };
        let place = Location { line: 2, column: 8 };
        let marked = source("select 1,\n\tselect from 宽\n").marked(place, 40);
        assert_eq!(marked, "\n   select from 宽\n         ^");
        let long = format!("select {} wrong {}", "宽".repeat(200), "x".repeat(200));
        let place = Location {
            line: 1,
            column: 209,
        };
        for columns in [1, 2, 10, 20, 60] {
            let marked = source(&long).marked(place, columns);
            let lines: Vec<_> = marked.lines().skip(1).collect();
            let before = lines[1].width() - 1;
            assert_eq!(lines.len(), 2, "{marked}");
            if columns >= 20 {
                assert!(
                    lines[0].width() <= usize::from(columns) && before < usize::from(columns),
                    "{marked}"
                );
                let at_mark: String = lines[0].chars().rev().take_while(|&c| c != '宽').collect();
                assert!(
                    at_mark
                        .chars()
                        .rev()
                        .collect::<String>()
                        .starts_with(" wrong"),
                    "{marked}"
                );
            }
        }
        // The end of a statement is behind its last character.
        let place = Location { line: 9, column: 9 };
        assert_eq!(source("a").marked(place, 60), "\n  \n  ^");
    }
}
