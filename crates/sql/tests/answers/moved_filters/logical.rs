//! Statements that rules of DataFusion for logical plans would change.

use tokio::runtime::Runtime;

use super::{answer, database, ours};

/// Statements with filters that must not move below groups.
pub const FILTERS: [(&str, &str); 14] = [
    // Keys that are equal where both are null, beside keys that are not.
    (
        "select x.id, y.id, z.id from u x join u y on x.n = y.n join u z on x.n is not distinct from z.n where x.id < 9 and y.id < \
      9 and z.id < 9",
        "",
    ),
    (
        "select x.id, y.id, z.id from u x join u y on x.n is not distinct from y.n join u z on x.n = z.n where x.id < 9 and y.id < \
      9 and z.id < 9",
        "",
    ),
    (
        "select x.id, y.id from u x left join u y on x.n is not distinct from y.n where x.v = y.v and x.n = y.n",
        "",
    ),
    // Filters of joins, without a column of either side.
    (
        "select t.id, u.id from t full join u on t.id = u.id and (select max(id) from t) > 100",
        "",
    ),
    (
        "select t.id, u.id from t full join u on t.id = u.id and null",
        "",
    ),
    (
        "select c from (select count(*) c from u) s where (select max(id) from t) > 100",
        "",
    ),
    (
        "select count(*) from u having (select max(id) from t) > 100",
        "",
    ),
    (
        "select id, c from (select id, count(*) c from u group by rollup(id)) s where c > 0 and (select max(id) from t) > 100",
        "",
    ),
    (
        "select a.key, s.c from a left join (select count(*) c from u) s on (select max(id) from t) > 100",
        "1",
    ),
    (
        "select id, c from (select id, count(*) c from u group by id) s where (select max(id) from t) > 10 and id < 9",
        "1",
    ),
    (
        "select c from (select id, c from (select count(*) c, max(id) id from u) s union all select 1, 2) s where (select min(id) \
      from t) > 100",
        "",
    ),
    (
        "select c from (select count(*) c from u) s where random() > 2 and c > 0",
        "",
    ),
    (
        "select n, c from (select n, count(*) over (partition by n) c from u) s where random() < 2 and n > 1",
        "1",
    ),
    (
        "select n, c from (select n, count(*) c from u group by n) s where n > 1 and random() < 2",
        "1",
    ),
];

/// Statements where DataFusion derives wrongly that columns determine others. `(<` and `>)` enclose a part of FROM.
pub const DEPENDENCIES: [(&str, &str); 14] = [
    // Groups over joins with groups.
    (
        "select k, n, count(*) from (<select u.n % 3 n, r.k, count(*) from u left join (<select n k, count(*) from u group by \
      n>) r on u.id = r.k group by u.n % 3, r.k>) s group by k, n",
        "",
    ),
    (
        "select n, k from (<select u.n, r.k, count(*) from u left join (<select id % 4 k, count(*) from u group by 1>) r on \
      u.id % 6 = r.k group by u.n, r.k>) s",
        "2, 1 desc",
    ),
    (
        "select k, sum(c) from (<select u.n, r.k, count(*) c from u join (<select n k, count(*) from u group by n>) r on \
      u.id % 6 = r.k group by u.n, r.k>) s group by k",
        "1",
    ),
    (
        "select distinct on (k) k, n from (<select u.n, r.k, count(*) c from u join (<select n k, count(*) from u group by n>) r \
      on u.id % 6 = r.k group by u.n, r.k order by u.n, r.k>) s order by k, n desc nulls last",
        "",
    ),
    (
        "with s as (<select u.n, r.k, count(*) c from u right join (<select distinct n k from u>) r on u.id % 6 = r.k group by \
      u.n, r.k>) select k, max(c) from s group by k",
        "",
    ),
    (
        "select id, (select count(*) from (<select k, n from (<select l.n, r.k, count(*) from u l join (<select n k, count(*) from \
      u group by n>) r on l.id % 6 = r.k group by l.n, r.k>) s group by k, n>) s) from u",
        "",
    ),
    (
        "select id from u where n in (select k from (<select l.n, r.k, count(*) c from u l join (<select n k, count(*) from u group \
      by n>) r on l.id % 6 = r.k group by l.n, r.k>) s group by k having sum(c) > 10)",
        "",
    ),
    // Row numbers over joins.
    (
        "select r, id, count(*) from (<select s.r, u.id, count(*) from u join (<select n, row_number() over (order by id) r from \
      u>) s on s.n = u.n group by s.r, u.id>) s group by r, id",
        "1, 2 desc",
    ),
    // Values of lists.
    (
        "select k, v, count(*) from (<select k, unnest(make_array(1, 2)) v from (<select n k, count(*) from u group by n>) s>) s \
      group by k, v",
        "",
    ),
    (
        "select k, v from (<select k, unnest(make_array(1, 2)) v from (<select n k, count(*) from u group by n>) s>) s",
        "1, 2 desc",
    ),
    (
        "select distinct k from (<select k, unnest(make_array(1, 2)) from (<select n k from u group by n>) s>) s",
        "",
    ),
    (
        "select k, sum(v) from (<select k, unnest(make_array(1, 2)) v from (<select n k, count(*) from u group by n>) s>) s \
      group by k",
        "",
    ),
    (
        "select k, v, sum(v) over (order by k) from (<select k, unnest(make_array(1, 2)) v from (<select n k, count(*) from u \
      group by n>) s>) s",
        "",
    ),
    (
        "select u.id from u left join (<select k, unnest(make_array(1, 2)) v from (<select n k, count(*) from u group by n>) s>) s \
      on u.n = s.k",
        "1",
    ),
];

/// Conditions over `l`, which has the `id` and the `n` of `u`, and the number of its 64 rows for which they hold. `n` is null
/// where id % 5 = 2, which are 13 rows, and id % 5 elsewhere. `r` has five rows with the keys 0 to 4, and `m`, which is null
/// for key 3.
const IN: [(&str, usize); 19] = [
    ("n not in (select m from r where m is not null)", 13),
    ("n not in (select m from r where m > 2)", 39),
    ("n not in (select m from r)", 0),
    ("id not in (select m from r)", 0),
    ("id not in (select k from r)", 59),
    ("n not in (select m from r where k > 9)", 64),
    ("null not in (select k from r)", 0),
    ("null not in (select k from r where k > 9)", 64),
    ("7 not in (select m from r)", 0),
    ("7 not in (select k from r)", 64),
    // True for null, 0, 1 and 3. One of the values below 4 is null.
    ("n not in (select m from r where r.k < l.n)", 52),
    ("(n in (select k from r)) is null", 13),
    ("(n not in (select m from r where m > 2)) or id < 3", 40),
    ("(id not in (select m from r)) is null", 60),
    (
        "case when n not in (select k from r where k < 2) then 1 else 0 end = 0",
        39,
    ),
    ("not (n = 1 or n in (select k from r where k > 2))", 13),
    ("not (id = 60 or id in (select m from r))", 0),
    // Null for 2, although no column may be null.
    ("nullif(id, 2) not in (select id from u where id > 62)", 62),
    (
        "not (nullif(id, 2) in (select id from u where id > 62))",
        62,
    ),
];

#[test]
fn in_is_null_where_it_may_be() {
    let folder = database();
    let work = async {
        let context = ours(folder.path(), 2, 8192).await;
        for (condition, expected) in IN {
            let query = format!(
                "with r as (select k, case when k <> 3 then k end m from (values (0), (1), (2), (3), (4)) v(k)), l as (select \
                 id, n from u) select id from l where {condition}"
            );
            let found = answer(&context, &query).await;
            assert_eq!(found.map(|rows| rows.len()), Ok(expected), "{condition}");
        }
    };
    Runtime::new().unwrap().block_on(work);
}
