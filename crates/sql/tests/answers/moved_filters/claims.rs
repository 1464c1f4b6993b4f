//! Statements for which DataFusion relies on an order, a constant or unique values that rows do not have.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::compute::{SortOptions, concat_batches};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::optimizer::OptimizerRule;
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion::optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion::prelude::SessionContext;
use tokio::runtime::Runtime;

use super::logical::{DEPENDENCIES, FILTERS};
use super::{database, ours, plan, sorted, theirs};

/// Statements, and the columns by which they are ordered, by their positions from 1 on.
const STATEMENTS: [(&str, &str); 66] = [
    // Sets of groups, where a column is null in some.
    (
        "select key, count(*) from (select x.key as key, x.key as value from a x group by grouping sets ((x.key, x.key), \
      (x.key))) s group by key",
        "",
    ),
    (
        "select key, value, count(*) from a group by grouping sets ((key, value), (key))",
        "1",
    ),
    (
        "select key, value, count(*) from a group by grouping sets ((key, value), (key))",
        "1 desc, 2",
    ),
    (
        "select id, n, count(*) from u group by grouping sets ((id, n), (id))",
        "1, 2 nulls first",
    ),
    (
        "select id, count(*) from u group by rollup(id)",
        "1 nulls first",
    ),
    ("select id, count(*) from u group by rollup(id)", "1"),
    (
        "select distinct id from (select id, n, count(*) from u group by cube(id, n)) s",
        "",
    ),
    (
        "select id, m, rank() over (partition by id order by m nulls first) from (select id, n as m, count(*) from u group by \
      grouping sets ((id, n), (id), (n))) s",
        "",
    ),
    (
        "select id, m, row_number() over (order by id nulls first, m nulls first) from (select id, n as m, count(*) c from u \
      group by rollup(id, n)) s",
        "",
    ),
    (
        "select one, count(*), sum(c) from (select 1 as one, n, count(*) c from u group by rollup(1, n)) s group by one",
        "",
    ),
    (
        "select k, l, count(*) from (select id as k, id as l, n from u group by rollup(id, n), cube(id)) s group by k, l",
        "",
    ),
    (
        "select octet_length(key) k, value, count(*) from a where octet_length(key) = 1 group by rollup(octet_length(key), value)",
        "1, 2",
    ),
    (
        "select m, count(*) from (select n as m, id, count(*) from u where n % 7 = 3 and n = 3 group by cube(n, id)) s group by m",
        "",
    ),
    (
        "select id, v from u where id % 7 = v and id = v group by grouping sets ((id, v), (id), (v))",
        "2 nulls first, 1",
    ),
    (
        "select s.id, t.id, s.c from (select id, n, count(*) c from u group by rollup(id, n)) s join t on s.id = t.id",
        "1, 3",
    ),
    // Outer joins, whose rows without a partner have nulls.
    (
        "select s.one, a.key from a left join (select key, 1 as one from b) s on a.key = s.key",
        "1",
    ),
    (
        "select s.one, a.key from a left join (select key, 1 as one from b) s on a.key = s.key",
        "1 nulls first, 2",
    ),
    (
        "select s.one, count(*) from a left join (select key, 1 as one from b) s on a.key = s.key group by s.one",
        "",
    ),
    (
        "select s.one, count(*) from (select key, 1 as one from b) s right join a on a.key = s.key group by s.one",
        "",
    ),
    (
        "select s.one, a.key, count(*) from a full join (select key, 1 as one from b) s on a.key = s.key group by a.key, s.one",
        "",
    ),
    (
        "select distinct s.one from u left join (select id, 1 as one from u where id % 3 = 1) s on s.id = u.id + 1",
        "",
    ),
    (
        "select s.n, u.id from u left join (select id, n from u where n % 7 = 3 and n = 3) s on s.id = u.id",
        "1 nulls first",
    ),
    (
        "select s.n, u.id from u full join (select id + 9 as id, n from u where n % 7 = 3 and n = 3) s on s.id = u.id",
        "1 desc",
    ),
    (
        "select s.n, row_number() over (partition by s.n order by u.id) from u left join (select id, n from u where n % 7 = 3 \
      and n = 3) s on s.id = u.id",
        "",
    ),
    (
        "select s.one, u.id from u left join (select id, 1 as one from u where id % 3 = 1) s on s.id < 5 and u.id > 60",
        "1",
    ),
    (
        "select l.id, r.id from u l left join t r on l.id = r.id + 3",
        "2 nulls first, 1",
    ),
    (
        "select l.id, r.id from u l full join t r on l.id = r.id + 3",
        "2, 1",
    ),
    // Joins, where several rows have the order's first value.
    (
        "select x.key, c.key from c join (select a.key, b.key as o from a join b on a.value >= b.value) x on c.value >= x.o",
        "1, 2",
    ),
    (
        "select x.id, c.id from u c join (select l.id, r.v from u l join u r on l.n = r.n) x on c.n = x.v",
        "1, 2",
    ),
    (
        "select c.id, x.id from u c join (select l.id, r.v from u l join u r on l.n = r.n) x on c.n = x.v",
        "1, 2",
    ),
    (
        "select x.id, c.id, count(*) from u c join (select l.id, r.v from u l join u r on l.n = r.n) x on c.n = x.v group by x.id, \
      c.id",
        "",
    ),
    (
        "select c.id, x.id, count(*) from u c join (select l.id, r.v from u l join u r on l.n = r.n) x on c.n = x.v group by x.id, \
      c.id",
        "",
    ),
    (
        "select x.n, c.id, count(*) from u c join (select * from u order by n, id limit 50) x on x.id % 3 = c.n group by x.n, c.id",
        "",
    ),
    (
        "select c.id, row_number() over (partition by x.n order by c.id, x.id) from u c join (select * from u order by n, id limit \
      50) x on x.id % 3 = c.n",
        "",
    ),
    (
        "select x.h, c.id from u c join (select floor(id / 9) as h, id from t) x on c.n = x.id % 4",
        "1, 2",
    ),
    (
        "select x.id, c.id from u c right join (select l.id, r.v from u l join u r on l.n = r.n) x on c.n = x.v",
        "1, 2",
    ),
    // Groups, whose columns a projection moves.
    (
        "select c, m from (select count(*) c, n as m from u group by n order by c limit 9) s",
        "1, 2",
    ),
    (
        "select c, m, r from (select c, m, rank() over (order by c) as r from (select count(*) c, n as m from u group by n) \
      s) s",
        "1, 2",
    ),
    (
        "select h, c from (select id / 9 as h, (id * 7 % 64) + count(*) as c from u group by id) s",
        "1, 2",
    ),
    (
        "select d, c from (select date_trunc('day', at) d, 100 - count(*) - min(n) c from moments group by at) s",
        "1, 2",
    ),
    (
        "select f, c from (select floor(id / 9) as f, max(v) as c from u group by id) s",
        "1, 2",
    ),
    (
        "select h, c, count(*) from (select id / 9 as h, max(n) as c from u group by id) s group by h, c",
        "",
    ),
    (
        "select h, x, count(*) from (select n as h, id / 9 as x from (select id, n from u group by id, n) s) s group by h, x",
        "1, 2",
    ),
    (
        "select c, k, sum(c) over (partition by k order by c) from (select count(*) c, id k from u where id < 20 group by id) s",
        "",
    ),
    (
        "select m, k, rank() over (partition by k order by m desc) r from (select max(v) m, id k from u group by id) s",
        "",
    ),
    (
        "select c, k, lag(c) over (order by k, c) from (select count(*) c, id k from u group by id) s",
        "",
    ),
    (
        "select k, l, string_agg(c, ',' order by c) from (select id k, id l, max(name) c from u group by 1) s group by 1, 2",
        "",
    ),
    // Filters on what several values become.
    (
        "select v, id from (select v - 31.5 as v, id from t where id % 2 >= 0) s where cast(v as int) = 0 and id % 5 >= 0",
        "1 desc",
    ),
    (
        "select x from (values (-0.5), (0.5), (0.25)) s(x) where cast(x as int) = 0",
        "1 desc",
    ),
    (
        "select x, y from (values (-0.5, -0.5), (0.5, 0.5), (0.25, 0.25)) s(x, y) where x = y and cast(x as int) = 0",
        "1 desc",
    ),
    (
        "select id, m, count(*) c from (select id, max(v) m, max(name) n from u group by id) s where n like 'n%' and \
      cast(m / 10000.0 as int) = 0 group by id, m",
        "1",
    ),
    // Windows.
    (
        "select min(id) over (order by id rows between 2 preceding and current row), id from u",
        "1 desc",
    ),
    (
        "select max(id) over (order by id desc rows between 2 preceding and current row), id from u",
        "1",
    ),
    ("select max(n) over (order by id), id from t", "1"),
    (
        "select count(n) over (order by n, id rows between 2 preceding and current row), id from u",
        "1",
    ),
    (
        "select count(*) over (partition by n order by id rows between 2 preceding and current row), n, id from u",
        "1",
    ),
    // Columns of one name.
    (
        "select x.id, y.id, unnest(make_array(1, 2)) from u x join t y on x.n = y.id % 5",
        "1",
    ),
    (
        "select x.id, y.id, unnest(make_array(1, 2)) from u x join t y on x.n = y.id % 5",
        "2",
    ),
    // Equal columns in an input of a union.
    (
        "select a, b, c from (select n a, n b, n c from t) s union all select n, n + 1, 2 from u",
        "1, 2, 3",
    ),
    // Partitions of groups.
    (
        "select k, m, sum(c) from (select n as k, id % 3 as m, count(*) c from u group by 1, 2) s group by rollup(k, m)",
        "",
    ),
    (
        "select x.id, sum(y.v) from u x join u y on x.id = y.id group by rollup(x.id)",
        "",
    ),
    // Functions of the key.
    ("select cast(at as time) m, n from moments", "1"),
    (
        "select cast(at as time) m, count(*) from moments group by 1",
        "",
    ),
    ("select -n m, v from signed", "1"),
    ("select log(0.5, id) m, n from u where id > 0", "1"),
    ("select log(n) m, v from signed", "1"),
];

/// A statement with marked parts of FROM as a program writes it, and with parts of which DataFusion assumes nothing: its
/// unions have no claims, and it does not know that the second part is empty.
pub fn marked(statement: &str) -> (String, String) {
    let plain = statement.replace("(<", "(").replace(">)", ")");
    let mut claims_nothing = statement.to_owned();
    while let Some(at) = claims_nothing.rfind("(<") {
        let end = at + claims_nothing[at..].find(">)").expect("its end");
        let part = &claims_nothing[at + 2..end];
        let union = format!(
            "(select * from ({part}) x union all select * from ({part}) x where random() > 2)"
        );
        claims_nothing.replace_range(at..end + 2, &union);
    }
    (plain, claims_nothing)
}

/// The same tables in memory. Plans have no logical rules but those without which DataFusion cannot run a statement.
pub async fn reference(ours: &SessionContext) -> SessionContext {
    let memory = theirs(ours).await.state();
    let rules = ours.state().physical_optimizers().to_vec();
    let needed: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(ReplaceDistinctWithAggregate::new()),
        Arc::new(DecorrelatePredicateSubquery::new()),
        Arc::new(ScalarSubqueryToJoin::new()),
        Arc::new(ExtractEquijoinPredicate::new()),
    ];
    let mut memory = SessionStateBuilder::new_from_existing(memory)
        .with_physical_optimizer_rules(rules)
        .with_optimizer_rules(needed)
        .with_relation_planners(Vec::new())
        .build();
    let config = memory.config_mut();
    *config = config.clone().with_target_partitions(1);
    SessionContext::new_with_state(memory)
}

/// The rows of a statement, and whether they are in an order of [`STATEMENTS`].
pub async fn ordered(
    context: &SessionContext,
    query: &str,
    order: &str,
) -> Result<(Vec<String>, bool), String> {
    let statement = match order {
        "" => query.to_owned(),
        order => format!("{query} order by {order}"),
    };
    let frame = context.sql(&statement).await.map_err(|e| e.to_string())?;
    let schema = Arc::clone(frame.schema().inner());
    let batches = frame.collect().await.map_err(|e| e.to_string())?;
    let rows = concat_batches(&schema, &batches).map_err(|e| e.to_string())?;
    let terms = order
        .split(',')
        .map(str::trim)
        .filter(|term| !term.is_empty());
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for term in terms {
        let column = &rows.columns()[term[..1].parse::<usize>().unwrap() - 1];
        let descending = term.contains("desc");
        let options = SortOptions::new(descending, descending || term.contains("nulls first"));
        fields.push(SortField::new_with_options(
            column.data_type().clone(),
            options,
        ));
        columns.push(Arc::clone(column));
    }
    let is_ordered = columns.is_empty() || {
        let keys = RowConverter::new(fields).unwrap();
        let keys = keys.convert_columns(&columns).unwrap();
        let keys: Vec<_> = keys.iter().collect();
        keys.is_sorted()
    };
    Ok((sorted(&batches), is_ordered))
}

/// Sessions over the database, and one over the same tables in memory, which have the rules of `ours`.
pub async fn sessions(folder: &Path) -> Vec<SessionContext> {
    let mut sessions = Vec::new();
    for (partitions, batch_rows) in [(1, 8192), (1, 3), (2, 3), (4, 8192), (3, 3)] {
        sessions.push(ours(folder, partitions, batch_rows).await);
    }
    // The last two have joins of sorted rows.
    sessions.push(ours(folder, 2, 8192).await);
    for session in &sessions[4..] {
        let set = "set datafusion.optimizer.prefer_hash_join = false";
        session.sql(set).await.unwrap();
    }
    let memory = theirs(&sessions[0]).await.state();
    let rules = sessions[0].state().physical_optimizers().to_vec();
    let memory =
        SessionStateBuilder::new_from_existing(memory).with_physical_optimizer_rules(rules);
    sessions.push(SessionContext::new_with_state(memory.build()));
    sessions
}

#[test]
fn rows_are_right_where_datafusion_makes_wrong_claims() {
    let folder = database();
    let work = async {
        let mut wrong = Vec::new();
        let sessions = sessions(folder.path()).await;
        let reference = reference(&sessions[0]).await;
        for (query, order) in STATEMENTS.iter().chain(&DEPENDENCIES).chain(&FILTERS) {
            let (query, claims_nothing) = marked(query);
            let query = query.as_str();
            let expected = ordered(&reference, &claims_nothing, order).await;
            for (at, session) in sessions.iter().enumerate() {
                let found = ordered(session, query, order).await;
                if found != expected || !matches!(found, Ok((_, true))) {
                    let plan = plan(session, query).await;
                    wrong.push(format!(
                        "{at}: {query} order by {order}\n{found:?}\n{expected:?}\n{plan}"
                    ));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    };
    Runtime::new().unwrap().block_on(work);
}
