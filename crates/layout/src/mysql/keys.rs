//! The columns of the primary key.

use sqlparser::ast::{ColumnOption, CreateTable, Expr, IndexColumn, TableConstraint};

use super::has;

/// Names of the primary key's columns; `None` if the statement has none. A prefix of a column is not a name.
pub(super) fn primary_key(table: &CreateTable) -> Option<Vec<String>> {
    let of_table = table
        .constraints
        .iter()
        .find_map(|constraint| match constraint {
            TableConstraint::PrimaryKey(key) => Some(&key.columns),
            _ => None,
        });
    if let Some(columns) = of_table {
        return Some(names(columns));
    }
    let is_key = |option: &ColumnOption| matches!(option, ColumnOption::PrimaryKey(_));
    columns_with(table, is_key).next()
}

/// Names of the columns of the unique key that is the primary key if the statement has none: the first one without
/// nullable columns and without prefixes of columns. `None` if there is none.
pub(super) fn unique_key(table: &CreateTable) -> Option<Vec<String>> {
    let is_key = |option: &ColumnOption| matches!(option, ColumnOption::Unique(_));
    let of_table = (table.constraints.iter()).filter_map(|constraint| match constraint {
        TableConstraint::Unique(key) => Some(names(&key.columns)),
        _ => None,
    });
    let is_whole_and_set = |name: &String| {
        let mut columns = table.columns.iter();
        let column = columns.find(|column| column.name.value.eq_ignore_ascii_case(name));
        column.is_some_and(|column| has(column, &ColumnOption::NotNull))
    };
    let mut keys = columns_with(table, is_key).chain(of_table);
    keys.find(|columns| columns.iter().all(is_whole_and_set))
}

/// Names of a key's columns. A prefix of a column is not a name.
fn names(columns: &[IndexColumn]) -> Vec<String> {
    let name = |column: &IndexColumn| match &column.column.expr {
        Expr::Identifier(name) => name.value.clone(),
        other => other.to_string(),
    };
    columns.iter().map(name).collect()
}

/// The names of the columns that have an option, each alone.
fn columns_with(
    table: &CreateTable,
    has_it: impl Fn(&ColumnOption) -> bool,
) -> impl Iterator<Item = Vec<String>> {
    let columns = table.columns.iter();
    let columns = columns.filter(move |column| column.options.iter().any(|of| has_it(&of.option)));
    columns.map(|column| vec![column.name.value.clone()])
}
