//! Texts of several statements.

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::tokenizer::Location;
use rockmill_sql::statements::{Split, Tokens, place, statements};

fn texts(split: &Split) -> Vec<String> {
    let text = |tokens: &Tokens| {
        let tokens = tokens.0.iter().map(|token| token.token.to_string());
        tokens.collect::<String>()
    };
    split.ended.iter().map(text).collect()
}

#[test]
fn a_semicolon_ends_a_statement_outside_strings_names_and_comments() {
    let split = Split::of("select ';' as \";\" /* ; */; -- ;\nselect 1;;");
    assert_eq!(texts(&split).len(), 3, "{split:?}");
    assert!(split.rest.0.is_empty() && !split.is_open(), "{split:?}");
    let split = Split::of("select 1; -- x");
    assert_eq!(texts(&split), ["select 1;"]);
    assert!(split.rest.first().is_none() && !split.is_open());
}

#[test]
fn what_is_not_closed_is_open() {
    for open in [
        "';", "\"a;", "/* ;", "$$ ;", "$a$ ; $$", "e';", "`a;", "n'", "x'0",
    ] {
        let split = Split::of(&format!("select 1; select {open}\n"));
        assert!(split.is_open(), "{open}: {:?}", split.trouble);
        assert_eq!(split.ended.len(), 1, "{open}");
    }
    assert!(!Split::of("select 1 ; select 'a' /* ; */ -- '").is_open());
}

#[test]
fn columns_may_be_called_key_and_index() {
    for create in [
        "create external table t (key bytea not null, Index int, value bytea) stored as rocksdb location '.'",
        "/* a */ create or replace external table t (\n KEY bytea\n) stored as rocksdb location '.'",
        "create table if not exists t (a decimal(10, 2), key bytea, primary key (key))",
    ] {
        let statements = statements(create).expect(create);
        let columns: Vec<_> = match &statements[0] {
            Statement::CreateExternalTable(create) => create.columns.clone(),
            Statement::Statement(statement) => match statement.as_ref() {
                datafusion::sql::sqlparser::ast::Statement::CreateTable(create) => {
                    create.columns.clone()
                }
                other => panic!("{other}"),
            },
            other => panic!("{other}"),
        };
        assert!(
            columns.iter().any(|column| column.name.value == "key"),
            "{create}"
        );
    }
    statements("select 1; create index on t (key)").expect("an index");
}

#[test]
fn a_condition_that_the_parser_reads_wrongly_needs_parentheses() {
    for wrong in [
        "select true is distinct from true and false",
        "explain select 1 where a is not distinct from b or c",
    ] {
        let error = statements(wrong).expect_err(wrong).to_string();
        assert!(error.contains("parentheses"), "{error}");
    }
    for right in [
        "select (true is distinct from true) and false",
        "select true is distinct from (true and false)",
        "select c and a is distinct from b + 1",
    ] {
        statements(right).expect(right);
    }
}

#[test]
fn places_are_taken_from_messages() {
    let found = "Expected: an expression, found: from at Line: 2, Column: 13";
    let location = Location {
        line: 2,
        column: 13,
    };
    assert_eq!(
        place(found),
        ("Expected: an expression, found: from", Some(location))
    );
    assert_eq!(place("found: EOF"), ("found: EOF", None));
}
