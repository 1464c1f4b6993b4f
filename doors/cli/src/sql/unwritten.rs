//! Files that a statement could not write.

use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::tokenizer::Token;
use rockmill_sql::statements::Tokens;

/// The failure of a file that could not be written. DataFusion has lost its path, and for some formats the cause.
pub fn unwritten(root: &DataFusionError) -> Option<String> {
    let said = root.message();
    let cause = match root {
        DataFusionError::Internal(_) if said.contains("while finalizing writes") => "",
        DataFusionError::Execution(_) if said.starts_with("Error writing to object store: ") => {
            said.rsplit_once("to file: ").map_or("", |(_, cause)| cause)
        }
        DataFusionError::IoError(_) | DataFusionError::ObjectStore(_) => {
            said.split_once("Unable to copy data to file: ")?.1
        }
        _ => return None,
    };
    let cause = match cause {
        "" => String::new(),
        cause => format!(" ({cause})"),
    };
    Some(format!(
        "a file could not be written: is its file system full? No file was added or replaced{cause}"
    ))
}

/// The file that a statement COPY .. TO names.
pub fn target(tokens: &Tokens) -> Option<&str> {
    let is = |token: &Token, name: &str| match token {
        Token::Word(word) => word.value.eq_ignore_ascii_case(name),
        _ => false,
    };
    let tokens = tokens.0.iter().map(|token| &token.token);
    let tokens: Vec<_> = tokens
        .filter(|token| !matches!(token, Token::Whitespace(_)))
        .collect();
    tokens.first().filter(|first| is(first, "copy"))?;
    let mut pairs = tokens.windows(2).rev();
    pairs.find_map(|pair| match pair {
        [to, Token::SingleQuotedString(path)] if is(to, "to") => Some(path.as_str()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use rockmill_sql::statements::Split;

    use super::super::error;
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let path = |text: &str| {
            let split = Split::of(text);
            target(&split.rest).map(str::to_owned)
        };
        let found = path("COPY (select 'a' to_x) to\n'b c.csv' stored as csv options ('d' 'e')");
        assert_eq!(found.as_deref(), Some("b c.csv"));
        assert_eq!(path("select 'to' 'x'"), None);
        for (error, cause) in [
            (
                DataFusionError::Internal("Error encountered while finalizing writes! ..".into()),
                "",
            ),
            (
                DataFusionError::Execution(
                    "Error writing to object store: Unable to copy data to file: full".into(),
                ),
                " (full)",
            ),
            (
                DataFusionError::IoError(std::io::Error::other(
                    "Generic error: Unable to copy data to file: full",
                )),
                " (full)",
            ),
        ] {
            let failure = error::failure(error);
            assert_eq!(failure.exit_code(), 3);
            let said = failure.to_string();
            let ends = format!("is its file system full? No file was added or replaced{cause}");
            assert!(said.ends_with(&ends), "{said}");
        }
    }
}
