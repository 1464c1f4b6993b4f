//! Completion of names.

use std::collections::HashSet;

use rustyline::completion::{Completer, Pair};
use rustyline::{Context, Helper, Highlighter, Hinter, Validator};

use super::error::{quoted, tables};
use super::shell::Shell;

/// The most frequent keywords of SQL.
const KEYWORDS: &str = "all analyze and as asc between by case cast copy count create cross current_date \
    current_timestamp default delete desc describe distinct drop else end except exists explain external false format \
    from full group having if in inner insert intersect interval into is join json left like limit location not null \
    nulls offset on options or order outer over partition replace right select set show sort stored table tables then \
    to true union update using values verbose view when where window with";

/// Completes tables, columns, functions and keywords.
#[derive(Helper, Highlighter, Hinter, Validator)]
pub struct Words {
    tables: Vec<String>,
    columns: Vec<String>,
    others: Vec<String>,
}

impl Words {
    /// The words of a session.
    pub fn of(shell: &Shell) -> Self {
        let state = shell.context.state();
        let tables: Vec<_> = tables(&shell.context).into_values().collect();
        let mut columns = Vec::new();
        let runtime = shell.threads.statements();
        for table in &tables {
            // A table that is not supported has no columns.
            let provider = shell.context.table_provider(table.as_str());
            if let Ok(runtime) = &runtime
                && let Ok(provider) = runtime.block_on(provider)
            {
                let schema = provider.schema();
                columns.extend(schema.fields().iter().map(|field| quoted(field.name())));
            }
        }
        let mut others: Vec<_> = KEYWORDS.split_whitespace().map(str::to_owned).collect();
        others.extend(state.scalar_functions().keys().cloned());
        others.extend(state.aggregate_functions().keys().cloned());
        others.extend(state.window_functions().keys().cloned());
        let sorted = |mut words: Vec<String>| {
            words.sort_unstable();
            words.dedup();
            words
        };
        Self {
            tables: sorted(tables),
            columns: sorted(columns),
            others: sorted(others),
        }
    }

    /// The beginning of the word before a position, and its completions.
    fn completions(&self, line: &str, position: usize) -> (usize, Vec<String>) {
        let typed = &line[..position];
        // Tables and columns may have any characters; names that need quotes begin with one.
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '"');
        let start = typed.rfind(|c| !is_part(c)).map_or(0, |at| {
            at + typed[at..].chars().next().map_or(1, char::len_utf8)
        });
        let begun = &typed[start..];
        if begun.is_empty() {
            return (start, Vec::new());
        }
        let lower = begun.to_lowercase();
        let bare = lower.trim_start_matches('"');
        let fits = |word: &&String| {
            word.trim_start_matches('"')
                .to_lowercase()
                .starts_with(bare)
        };
        let is_upper = begun.chars().all(char::is_uppercase);
        let names = self.tables.iter().chain(&self.columns).filter(fits);
        let mut found: Vec<String> = names.cloned().collect();
        if !begun.starts_with('"') && !typed.trim_start().starts_with(['\\', '.']) {
            found.extend(self.others.iter().filter(fits).map(|word| match is_upper {
                true => word.to_uppercase(),
                false => word.clone(),
            }));
        }
        // A column and a function may have the same name.
        let mut known = HashSet::new();
        found.retain(|word| known.insert(word.clone()));
        (start, found)
    }
}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, words) = self.completions(line, position);
        let pair = |word: String| Pair {
            display: word.clone(),
            replacement: word,
        };
        Ok((start, words.into_iter().map(pair).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_columns_come_before_other_words() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let known = Words {
            tables: words(&["\"default\"", "events"]),
            columns: words(&["key", "length"]),
            others: words(&["default", "desc", "left", "length", "lower"]),
        };
        for (line, start, found) in [
            ("select * from ev", 14, &["events"][..]),
            (
                "select * from de",
                14,
                &["\"default\"", "default", "desc"][..],
            ),
            ("select * from \"de", 14, &["\"default\""][..]),
            ("\\d de", 3, &["\"default\""][..]),
            ("select le", 7, &["length", "left"][..]),
            ("select LOW", 7, &["LOWER"][..]),
            ("select (k", 8, &["key"][..]),
            ("select ", 7, &[][..]),
            ("宽ä", 0, &[][..]),
        ] {
            assert_eq!(
                known.completions(line, line.len()),
                (start, words(found)),
                "{line}"
            );
        }
    }
}
