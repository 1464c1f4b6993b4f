//! CREATE TABLE statements of MySQL and MariaDB.

use sqlparser::ast::{CreateTable, Statement};
use sqlparser::dialect::MySqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Whitespace};

/// A table as SHOW CREATE TABLE describes it.
#[derive(Debug, Clone)]
pub struct MysqlTable {
    /// The database, if it is named, and the table.
    pub name: Vec<String>,
    /// The statement, or why it cannot be read.
    statement: Result<CreateTable, String>,
    /// Text that only MariaDB reads, `/*M!100301 COMPRESSED*/`, without the number; and its position.
    attributes: Vec<(Location, String)>,
}

impl MysqlTable {
    /// The tables of a text's CREATE TABLE statements. Other statements are passed over.
    ///
    /// # Errors
    /// One sentence if the text has no tokens of SQL, or a table no name.
    pub fn all_of(text: &str) -> Result<Vec<Self>, String> {
        let tokens = Tokenizer::new(&MySqlDialect {}, text).tokenize_with_location();
        let tokens = tokens.map_err(|e| format!("sql parser error: {e}"))?;
        let statements = tokens.split(|token| token.token == Token::SemiColon);
        let tables = statements.map(Self::read).filter_map(Result::transpose);
        tables.collect()
    }

    /// The table of a statement; `None` if it is another statement.
    fn read(tokens: &[TokenWithSpan]) -> Result<Option<Self>, String> {
        let parser = || {
            let is_read = |token: &&TokenWithSpan| !is_display_width(&token.token);
            let tokens = tokens.iter().filter(is_read).cloned().collect();
            Parser::new(&MySqlDialect {}).with_tokens_with_locations(tokens)
        };
        let mut start = parser();
        if !start.parse_keyword(Keyword::CREATE) {
            return Ok(None);
        }
        let _ = start.parse_keyword(Keyword::TEMPORARY);
        if !start.parse_keyword(Keyword::TABLE) {
            return Ok(None);
        }
        let _ = start.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
        let name = start.parse_object_name(false).map_err(|e| e.to_string())?;
        let parts = name.0.iter().filter_map(|part| part.as_ident());
        let attribute = |token: &TokenWithSpan| match &token.token {
            Token::Whitespace(Whitespace::MultiLineComment(comment)) => {
                let of_mariadb = comment.strip_prefix("M!")?;
                let text = of_mariadb.trim_start_matches(|c: char| c.is_ascii_digit());
                Some((token.span.start, text.trim().to_owned()))
            }
            _ => None,
        };
        Ok(Some(Self {
            name: parts.map(|part| part.value.clone()).collect(),
            statement: statement(parser()),
            attributes: tokens.iter().filter_map(attribute).collect(),
        }))
    }

    /// The statement.
    ///
    /// # Errors
    /// One sentence if it cannot be read.
    pub(crate) fn statement(&self) -> Result<&CreateTable, String> {
        self.statement.as_ref().map_err(Clone::clone)
    }

    /// The text in a column's definition that only MariaDB reads.
    pub(crate) fn attribute(&self, position: usize) -> Option<&str> {
        let columns = &self.statement.as_ref().ok()?.columns;
        let begin = |position: usize| {
            let column = columns.get(position);
            column.map(|column| column.name.span.start)
        };
        let (from, to) = (begin(position)?, begin(position + 1));
        let is_within = |at: Location| at > from && to.is_none_or(|to| at < to);
        let mut attributes = self.attributes.iter();
        let found = attributes.find(|(at, _)| is_within(*at))?;
        Some(&found.1)
    }
}

/// Whether a token only describes how clients show a number.
fn is_display_width(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("zerofill"))
}

fn statement(mut parser: Parser<'_>) -> Result<CreateTable, String> {
    let statement = parser.parse_statement().map_err(|e| e.to_string())?;
    let rest = parser.peek_token();
    match (statement, &rest.token) {
        (Statement::CreateTable(table), Token::EOF) => Ok(table),
        _ => Err(format!(
            "the text after its columns is not understood: {} at line {}",
            rest.token, rest.span.start.line
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_read_apart() {
        let text = "set names utf8; create table a (x int(3) unsigned zerofill, `zerofill` int);\n\
                    CREATE TABLE IF NOT EXISTS `d`.`b;` (x int) partition by hash (x) partitions 2;;
                    insert into a values (';')";
        let tables = MysqlTable::all_of(text).unwrap();
        let names: Vec<_> = tables.iter().map(|table| table.name.join(".")).collect();
        assert_eq!(names, ["a", "d.b;"]);
        let columns = &tables[0].statement().unwrap().columns;
        let columns: Vec<_> = columns.iter().map(ToString::to_string).collect();
        assert_eq!(columns, ["x INT(3) UNSIGNED", "`zerofill` INT"]);
        assert!(tables[1].statement().is_err());
    }

    #[test]
    fn what_mariadb_alone_reads_belongs_to_its_column() {
        let text = "create table t (a text /*M!100301 COMPRESSED*/ not null /* M! */, b text, \
                    c int comment '/*M! x*/', d blob /*M! Y */)";
        let table = &MysqlTable::all_of(text).unwrap()[0];
        let attributes = [0, 1, 2, 3].map(|column| table.attribute(column));
        assert_eq!(attributes, [Some("COMPRESSED"), None, None, Some("Y")]);
    }

    #[test]
    fn text_without_sql_is_an_error() {
        assert!(MysqlTable::all_of("create table t (a int comment 'x)").is_err());
        assert!(MysqlTable::all_of("create table (a int)").is_err());
        assert_eq!(
            MysqlTable::all_of("select 1; -- create table t")
                .unwrap()
                .len(),
            0
        );
    }
}
