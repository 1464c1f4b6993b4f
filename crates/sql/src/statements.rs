//! Texts of several statements.

use std::ops::ControlFlow;

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, visit_expressions};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{
    Location, Token, TokenWithSpan, Tokenizer, TokenizerError, Word,
};

/// A text, split at the semicolons that end statements.
#[derive(Debug)]
pub struct Split {
    /// Statements that a semicolon ends.
    pub ended: Vec<Tokens>,
    /// Tokens behind the last semicolon; empty if there are only spaces and comments.
    pub rest: Tokens,
    /// Error of the text behind `rest`.
    pub trouble: Option<TokenizerError>,
}

/// The tokens of a statement, without the semicolon, and with the spaces and comments before it.
#[derive(Debug, Clone, Default)]
pub struct Tokens(pub Vec<TokenWithSpan>);

impl Split {
    /// Splits a text.
    pub fn of(text: &str) -> Self {
        let mut tokens = Vec::new();
        let read = Tokenizer::new(&GenericDialect {}, text);
        let trouble = { read }.tokenize_with_location_into_buf(&mut tokens).err();
        let (mut ended, mut statement) = (Vec::new(), Tokens::default());
        for token in tokens {
            statement.0.push(token);
            let is_end = |token: &TokenWithSpan| token.token == Token::SemiColon;
            if statement.0.last().is_some_and(is_end) {
                ended.push(std::mem::take(&mut statement));
            }
        }
        Self {
            ended,
            rest: statement,
            trouble,
        }
    }

    /// Whether the text ends within a string, a quoted name or a comment.
    pub fn is_open(&self) -> bool {
        let is_open = |trouble: &TokenizerError| {
            let said = &trouble.message;
            let parts = ["Unterminated", "before EOF", "Unexpected EOF"];
            parts.iter().any(|part| said.contains(part))
        };
        self.trouble.as_ref().is_some_and(is_open)
    }
}

impl Tokens {
    /// The first token that is neither space nor a comment, nor a semicolon.
    pub fn first(&self) -> Option<&TokenWithSpan> {
        let mut tokens = self.0.iter();
        tokens.find(|token| !matches!(token.token, Token::Whitespace(_) | Token::SemiColon))
    }

    /// Where the statement ends: at its semicolon, or behind its last token.
    pub fn end(&self) -> Option<Location> {
        let is_text = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_));
        let last = self.0.iter().rfind(is_text)?;
        Some(match last.token {
            Token::SemiColon => last.span.start,
            _ => last.span.end,
        })
    }

    /// The statement; `None` if there is only space, comments and semicolons.
    ///
    /// # Errors
    /// Those of the parser.
    pub fn parse(&self) -> Result<Option<Statement>> {
        if self.first().is_none() {
            return Ok(None);
        }
        let mut tokens = self.0.clone();
        name_columns(&mut tokens);
        let mut parser = DFParserBuilder::new(tokens).build()?;
        let statement = parser.parse_statements()?.pop_front();
        statement.as_ref().map_or(Ok(()), check_precedence)?;
        Ok(statement)
    }
}

/// Returns an error if the parser has taken `a is distinct from b and c` for `a is distinct from (b and c)`.
fn check_precedence(statement: &Statement) -> Result<()> {
    let swallows = |expr: &Expr| match expr {
        Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) => {
            use BinaryOperator::{And, Or, Xor};
            matches!(
                &**right,
                Expr::BinaryOp {
                    op: And | Or | Xor,
                    ..
                }
            )
        }
        _ => false,
    };
    let of_query = match statement {
        Statement::Statement(statement) => {
            visit_expressions(statement, |expr| match swallows(expr) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        }
        Statement::Explain(explain) => return check_precedence(&explain.statement),
        _ => ControlFlow::Continue(()),
    };
    match of_query {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => plan_err!(
            "write parentheses around a condition with IS DISTINCT FROM that stands before AND or OR"
        ),
    }
}

/// The statements of a text.
///
/// # Errors
/// Those of the parser.
pub fn statements(text: &str) -> Result<Vec<Statement>> {
    let split = Split::of(text);
    if let Some(trouble) = split.trouble {
        return Err(ParserError::from(trouble).into());
    }
    let all = split.ended.iter().chain([&split.rest]);
    all.filter_map(|tokens| tokens.parse().transpose())
        .collect()
}

/// Turns `key` and `index` into plain names where CREATE TABLE names a column. The parser takes them for an index of
/// MySQL, which DataFusion lacks.
fn name_columns(tokens: &mut [TokenWithSpan]) {
    const LONGEST_START: usize = 8;
    let keyword = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) => word.keyword,
        _ => Keyword::NoKeyword,
    };
    let is_text = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_));
    let mut start = tokens.iter().filter(is_text).take(LONGEST_START);
    let creates = start.next().is_some_and(|t| keyword(t) == Keyword::CREATE);
    if !creates || !start.any(|token| keyword(token) == Keyword::TABLE) {
        return;
    }
    let mut depth = 0;
    let mut begins = false;
    for token in tokens {
        match &mut token.token {
            Token::Whitespace(_) => continue,
            Token::LParen => {
                depth += 1;
                begins = depth == 1;
                continue;
            }
            Token::RParen if depth == 1 => return,
            Token::RParen => depth -= 1,
            Token::Comma => {
                begins = depth == 1;
                continue;
            }
            Token::Word(word)
                if begins && matches!(word.keyword, Keyword::KEY | Keyword::INDEX) =>
            {
                *word = Word {
                    value: word.value.to_lowercase(),
                    quote_style: Some('"'),
                    keyword: Keyword::NoKeyword,
                };
            }
            _ => {}
        }
        begins = false;
    }
}

/// The position that the parser appends to a message, and the message without it.
pub fn place(message: &str) -> (&str, Option<Location>) {
    const LINE: &str = " at Line: ";
    const COLUMN: &str = ", Column: ";
    let place = || {
        let (said, place) = message.rsplit_once(LINE)?;
        let (line, column) = place.split_once(COLUMN)?;
        let (line, column) = (line.parse().ok()?, column.parse().ok()?);
        Some((said, Location { line, column }))
    };
    match place() {
        Some((said, place)) => (said, Some(place)),
        None => (message, None),
    }
}
