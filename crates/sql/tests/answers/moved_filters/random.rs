//! Random statements. Their order is complete wherever a limit counts rows.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::runtime::Runtime;

use super::{answer, database, ours, theirs};

/// Draws that make a statement.
pub struct Draws {
    pub left: std::vec::IntoIter<u8>,
    pub names: usize,
}

impl Draws {
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.left.next().unwrap_or(0)) % end
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn column(&mut self, of: &[String]) -> String {
        of[self.below(of.len())].clone()
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("x{}", self.names)
    }
}

/// A part of FROM, and its columns: families of keys and values, joins and subqueries of them.
fn texts(draws: &mut Draws, depth: usize) -> (String, Vec<String>) {
    let kind = if depth == 0 { 0 } else { draws.below(4) };
    if kind > 1 {
        let ((left, mut columns), (right, others)) =
            (texts(draws, depth - 1), texts(draws, depth - 1));
        let kind = draws.one(&["", "", "left", "right", "full"]);
        let on = format!("{} = {}", draws.column(&columns), draws.column(&others));
        columns.extend(others);
        return (format!("({left} {kind} join {right} on {on})"), columns);
    }
    let name = draws.name();
    let (table, columns) = match kind {
        0 => (draws.one(&["a", "b", "c"]).to_owned(), ["key", "value"]),
        _ => {
            let (query, columns) = subquery(draws, depth);
            (format!("({query})"), columns)
        }
    };
    let columns = columns.map(|column| format!("{name}.{column}"));
    (format!("{table} {name}"), columns.to_vec())
}

/// A subquery of two columns, and their names.
fn subquery(draws: &mut Draws, depth: usize) -> (String, [&'static str; 2]) {
    let names = draws.one(&[["key", "value"], ["value", "key"], ["k", "m"], ["key", "m"]]);
    let (from, columns) = texts(draws, depth - 1);
    let (first, second) = (draws.column(&columns), draws.column(&columns));
    let select = format!(
        "select {first} as {}, {second} as {} from {from}",
        names[0], names[1]
    );
    let query = match draws.below(9) {
        0 => select,
        1 => format!("{select} order by 1, 2 limit {}", 1 + draws.below(6)),
        2 => format!(
            "{select} where octet_length({first}) > 0 order by 1, 2 limit {}",
            1 + draws.below(6)
        ),
        3 => format!(
            "select {first} as {}, max({second}) as {} from {from} group by {first}",
            names[0], names[1]
        ),
        4 => format!("{select} group by {first}, {second}"),
        5 => {
            let (from, columns) = texts(draws, depth - 1);
            format!(
                "{select} union all select {}, {} as y from {from}",
                draws.column(&columns),
                draws.column(&columns)
            )
        }
        6 => {
            let table = draws.one(&["a", "b", "c"]);
            format!(
                "{select} where exists (select 1 from {table} e where e.value = {first} and e.key <> {second})"
            )
        }
        // Scans compute no remainders.
        7 => format!("{select} where octet_length({first}) % 2 = 1"),
        _ => format!(
            "select * from ({select}) where {} > x'33'",
            draws.one(&names)
        ),
    };
    (query, names)
}

fn statement_of_texts(draws: &mut Draws) -> String {
    let (from, columns) = texts(draws, 3);
    let picked: Vec<_> = (0..1 + draws.below(4))
        .map(|_| draws.column(&columns))
        .collect();
    let numbered = picked.iter().enumerate();
    let selected: Vec<_> = numbered
        .map(|(at, column)| format!("{column} as c{at}"))
        .collect();
    let selected = selected.join(", ");
    let filter = match draws.below(5) {
        0 => format!(" where {} < x'37'", draws.column(&columns)),
        1 => format!(" where octet_length({}) = 1", draws.column(&columns)),
        2 => format!(" where {} is null", draws.column(&columns)),
        _ => String::new(),
    };
    match draws.below(3) {
        0 => {
            let all: Vec<_> = (1..=picked.len()).map(|at| at.to_string()).collect();
            let order = draws.one(&["", " desc"]);
            let all = all.join(&format!("{order}, "));
            format!(
                "select {selected} from {from}{filter} order by {all}{order} limit {}",
                1 + draws.below(9)
            )
        }
        1 => format!(
            "select min({0}), max({0}), count(*) from {from}{filter}",
            picked[0]
        ),
        _ => format!("select {selected} from {from}{filter}"),
    }
}

/// A source with the columns of `t`, of which several pieces are scanned.
fn numbers(draws: &mut Draws) -> String {
    let (table, other) = draws.one(&[("t", "u"), ("u", "t"), ("u", "u")]);
    let filter = draws.one(&["true", "id % 3 <> 1", "v % 2 = 0", "n > 1", "name > 'N2'"]);
    match draws.below(7) {
        0 | 1 => table.to_owned(),
        2 => format!(
            "(select * from {table} where {filter} order by id limit {})",
            1 + draws.below(70)
        ),
        3 => {
            let order = draws.one(&[
                "v, id",
                "n desc, id",
                "n nulls first, name, id",
                "name, id desc",
            ]);
            format!(
                "(select * from {table} where {filter} order by {order} limit {})",
                1 + draws.below(70)
            )
        }
        4 => {
            let on = draws.one(&[
                "l.id = r.id",
                "l.n = r.n and l.id = r.id",
                "l.id = r.n",
                "l.name = r.name",
            ]);
            format!("(select l.id, r.v, l.n, r.name from {table} l join {other} r on {on})")
        }
        5 => format!(
            "(select n as id, max(v) as v, min(id) as n, min(name) as name from {table} group by n)"
        ),
        _ => format!(
            "(select * from {table} where {filter} union all select id, v, n, name from {other})"
        ),
    }
}

fn statement_of_numbers(draws: &mut Draws) -> String {
    let from = numbers(draws);
    let filter = draws.one(&[
        "true",
        "s.id % 3 <> 1",
        "s.id >= 9",
        "s.v % 4 = 1",
        "s.n is null or s.n > 2",
    ]);
    match draws.below(3) {
        0 => {
            let all = [
                "min(s.id)",
                "max(s.id)",
                "max(s.v * 1.5)",
                "min(s.v)",
                "max(s.v)",
                "min(s.n)",
                "max(s.n)",
                "max(lower(s.name))",
                "min(s.name)",
                "max(s.name)",
                "max(-s.n)",
                "count(s.n)",
            ];
            let picked: Vec<_> = (0..1 + draws.below(3)).map(|_| draws.one(&all)).collect();
            let numbered = picked.iter().enumerate();
            let picked: Vec<_> = numbered
                .map(|(at, call)| format!("{call} as c{at}"))
                .collect();
            format!("select {} from {from} s where {filter}", picked.join(", "))
        }
        1 => {
            let order = draws.one(&[
                "s.v, s.id, s.n, s.name",
                "s.n desc, s.name, s.id, s.v",
                "s.name desc, s.id, s.v, s.n",
            ]);
            format!(
                "select s.* from {from} s where {filter} order by {order} limit {}",
                1 + draws.below(9)
            )
        }
        _ => {
            let other = numbers(draws);
            let on = draws.one(&[
                "s.id = o.id",
                "s.n = o.n and s.id = o.id",
                "s.id = o.n",
                "s.name = o.name",
                "s.v = o.v",
            ]);
            let kind = draws.one(&["", "left", "right", "full"]);
            format!(
                "select s.id, o.v, s.n, o.name, o.id from {from} s {kind} join {other} o on {on} where {filter}"
            )
        }
    }
}

#[test]
fn random_statements_return_the_same_rows_with_moved_filters() {
    let runtime = Runtime::new().unwrap();
    let folder = database();
    let session =
        |partitions, batch_rows| runtime.block_on(ours(folder.path(), partitions, batch_rows));
    let sessions = [session(1, 8192), session(2, 3), session(4, 8192)];
    let memory = runtime.block_on(theirs(&sessions[0]));
    let cases = rockmill_testkit::machine::few_cases(400);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases));
    let answered = Cell::new(0);
    let draws = prop::collection::vec(any::<u8>(), 10..80);
    let outcome = runner.run(
        &(draws, any::<bool>(), 0..sessions.len()),
        |(draws, of_texts, at)| {
            let left = draws.into_iter();
            let mut draws = Draws { left, names: 0 };
            let query = match of_texts {
                true => statement_of_texts(&mut draws),
                false => statement_of_numbers(&mut draws),
            };
            let expected = runtime.block_on(answer(&memory, &query));
            let found = runtime.block_on(answer(&sessions[at], &query));
            match (&found, &expected) {
                (Ok(found), Ok(expected)) if found == expected => answered.set(answered.get() + 1),
                (Err(_), Err(_)) => {}
                _ => {
                    return Err(TestCaseError::fail(format!(
                        "{at}: {query}\n{found:?}\n{expected:?}"
                    )));
                }
            }
            Ok(())
        },
    );
    outcome.unwrap();
    let answered = answered.get();
    println!("{answered} of {cases} answered");
    assert!(answered >= cases * 9 / 10, "{answered} of {cases}");
}
