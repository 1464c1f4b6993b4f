//! Subqueries and set operations that DataFusion would compute as something else, with their answers.

use tokio::runtime::Runtime;

use super::{answer, database, ours};

/// Statements, and their rows. `u.v` is id * 7 % 64, `u.n` is id % 5 and null for 2. `t` and `u` have the ids 0 to 63.
const ANSWERS: [(&str, &[&str]); 38] = [
    // A scalar subquery without a row.
    (
        "select count(*) from u where (select id from t where id > 100) is not null",
        &["0"],
    ),
    (
        "select id from u where coalesce((select id from t where id > 100), 2) = id",
        &["2"],
    ),
    (
        "select id, coalesce((select count(*) from t where t.id = u.id having count(*) > 5), 9) from u where id < 2",
        &["0 9", "1 9"],
    ),
    (
        "select count(*) from u where (select id from t where id > 100) = (select id from t where id > 100)",
        &["0"],
    ),
    // Two columns of one name.
    (
        "select count(*) from u where id < 5 and exists (select * from t a join t b on a.id = b.id + 20 where b.id = u.id)",
        &["5"],
    ),
    (
        "select id, (select max(a.id) from t a join t b on a.id = b.id + 20 where b.id = u.id and a.id = u.id + 20) m from u \
      where id < 2",
        &["0 20", "1 21"],
    ),
    (
        "select count(*) from u where id < 5 and id + 20 in (select a.id from t a join t b on a.id = b.id + 20 where b.id = u.id)",
        &["5"],
    ),
    (
        "select u.id, l.id from u cross join lateral (select a.id from t a join t b on a.id = b.id + 1 where b.id = u.id) l where \
      u.id < 2",
        &["0 1", "1 2"],
    ),
    // Columns of a union, whose type is known late.
    (
        "select count(*) from (select id k from u union select n from u) s where exists (select 1 from u r where r.id = s.k)",
        &["64"],
    ),
    (
        "select k from (select n k from u where id < 4 union all select n + 0.5 from u where id < 3) s where (select count(*) from t \
      where t.v = s.k) > 0",
        &["0.0", "1.0", "3.0"],
    ),
    (
        "select s.k, l.c from (select id k from u where id < 2 union select n + 0.5 from u where id < 2) s cross join lateral (select \
      count(*) c from t where t.v = s.k) l",
        &["0.0 1", "0.5 0", "1.0 1", "1.5 0"],
    ),
    (
        "select count(*) from u where id < 9 and (select count(*) from t where t.id = u.v) = 1",
        &["9"],
    ),
    // Lists with a CASE.
    (
        "select id from u where id < 9 and id in (100, 200, 300, 400, case when v = 28 then 3 end)",
        &[],
    ),
    (
        "select id from u where id < 5 and id not in (100, 200, 300, case when v = 14 then 2 end)",
        &[],
    ),
    // Aggregates without groups.
    (
        "select count(*) from u where id < 9 and exists (select max(v) from t where t.id = u.id + 60)",
        &["9"],
    ),
    (
        "select id from u where id < 9 and exists (select count(*) from t where t.id = u.id + 60 having count(*) = 0)",
        &["4", "5", "6", "7", "8"],
    ),
    (
        "select id from u where id < 9 and not exists (select 1 from t where t.id = u.id + 60 having count(*) = 0)",
        &["0", "1", "2", "3"],
    ),
    (
        "select id from u where id < 9 and id in (select count(*) from t where t.id = u.id + 60)",
        &["1"],
    ),
    (
        "select count(*) from u where id < 9 and id not in (select count(*) from t where t.id = u.id + 60)",
        &["8"],
    ),
    (
        "select id, (select max(v) from t where t.id = u.id having count(*) < 1) m from u where id < 2",
        &["0 -", "1 -"],
    ),
    (
        "select id, (select max(v) from t where t.id = u.id having count(*) = 1) m from u where id < 2",
        &["0 0.0", "1 1.0"],
    ),
    (
        "select n, count(*) c, count(distinct id) d from u where n > 3 group by n, n",
        &["4 12 12"],
    ),
    // Rows that are counted.
    (
        "select n from u where id < 10 intersect all select n from u where id < 5",
        &["-", "0", "1", "3", "4"],
    ),
    (
        "select n from u where id < 10 except all select n from u where id < 3",
        &["-", "0", "1", "3", "3", "4", "4"],
    ),
    (
        "select n from u where id < 10 except select n from u where id < 3",
        &["3", "4"],
    ),
    // A limit with an offset below a sort.
    (
        "select v from (select v from u order by v desc limit 3 offset 1) s order by v desc",
        &["60.0", "61.0", "62.0"],
    ),
    (
        "select v, row_number() over (order by v) r from (select v from u order by v limit 3 offset 2) s",
        &["2.0 1", "3.0 2", "4.0 3"],
    ),
    (
        "select n, count(*) c from (select n from u where n is not null order by n limit 20 offset 10) s group by n order by n",
        &["0 3", "1 13", "3 4"],
    ),
    // The table of the statement again, below NOT.
    (
        "select count(*) from u where not (id = 60 or n in (select n from u where n > 3))",
        &["38"],
    ),
    (
        "select sum(case when id in (1, n) then 1 else 0 end) s from u",
        &["4"],
    ),
    (
        "select count(*) from u where id + 3 = any (select a.id from t a join t b on a.id = b.id + 3 where b.id = u.id)",
        &["61"],
    ),
    // Tables that were made from such statements.
    ("select count(*) from of_exists", &["51"]),
    ("select count(*) from of_all", &["64"]),
    (
        "select id, name, count(*) c from (select s.* from s join u on u.n = s.id) j group by id",
        &["1 a 13", "3 b 13"],
    ),
    // A frame of nulls.
    (
        "select c, count(*) from (select count(*) over (order by nullif(id, id) range between 3 preceding and 1 preceding) c from \
      u) s group by c",
        &["64 64"],
    ),
    // Conditions without columns.
    (
        "select c from (select count(*) c from u having (select max(id) from t) > 100) s where c < 100",
        &[],
    ),
    (
        "select l.id, r.c from u l left join (select count(*) c from u) r on 1 > 2 where l.id < 2",
        &["0 -", "1 -"],
    ),
    (
        "select c from (select sum(id) k, 2 c from u) s where c is not distinct from null",
        &[],
    ),
];

const MADE: [&str; 3] = [
    "create table of_exists as select id from u where exists (select 1 from t where t.id is not distinct from u.n)",
    "create table of_all as select n from u intersect all select n from u",
    "create table s (id bigint primary key, name varchar) as values (1, 'a'), (3, 'b')",
];

const REFUSED: [&str; 15] = [
    "select u.id, l.c from u cross join lateral (select 7 c, max(v) from t where t.id = u.id + 60) l",
    "select id, (select count(*) is not null from t where t.id = u.id + 60) from u",
    "select id, (select 7 from (select max(v) from t where t.id = u.id + 60) s) from u",
    "select id, (select count(*) from t left join t b on b.id = u.id + 100 where t.id = u.n) from u",
    "select id from u where exists (select 1 from t left join (select * from t where t.id = u.id + 100) b on true)",
    "select id from u where exists (select 1 from t full join (select * from t where t.id = u.id + 100) b on t.id = b.id)",
    "select u.id, l.c from u cross join lateral (select row_number() over (order by t.id) c from t where t.id >= u.id) l",
    "select id from u where n in (select row_number() over (order by v) from t where t.id = u.id)",
    "select u.id, l.c from u cross join lateral (select distinct id % 2 c from t where t.id >= u.id) l",
    "select u.id, l.c from u cross join lateral (select max(v) c from t where t.id = u.id having count(*) > 0) l",
    "select id from u where exists (select 1 from t where t.id = u.id offset 5)",
    "select id from u where id in (select count(*) from t where t.id = u.id having count(*) > 0)",
    "select id, (select count(*) from t where cast(t.v / 7 as bigint) = u.n) from u",
    "select id from u right join t using (id)",
    "select id from u natural full join t",
];

#[test]
fn subqueries_and_set_operations_mean_what_sql_says() {
    let folder = database();
    let work = async {
        for (partitions, batch_rows) in [(1, 8192), (3, 3)] {
            let context = ours(folder.path(), partitions, batch_rows).await;
            for query in MADE {
                let made = context.sql(query).await.expect(query);
                made.collect().await.expect(query);
            }
            for (number, (query, expected)) in ANSWERS.iter().enumerate() {
                let expected: Vec<_> = expected.iter().map(|row| (*row).to_owned()).collect();
                assert_eq!(
                    answer(&context, query).await.as_ref(),
                    Ok(&expected),
                    "{query}"
                );
                let prepare = format!("prepare p{number} as {query}");
                assert_eq!(answer(&context, &prepare).await, Ok(Vec::new()), "{query}");
                let prepared = answer(&context, &format!("execute p{number}")).await;
                assert_eq!(prepared.as_ref(), Ok(&expected), "prepared: {query}");
            }
            for query in REFUSED {
                let refused = answer(&context, query).await.expect_err(query);
                assert!(refused.contains("write "), "{query}: {refused}");
            }
        }
    };
    Runtime::new().unwrap().block_on(work);
}
