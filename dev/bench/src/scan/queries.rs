//! The queries.

use rockmill_side_by_side::dataset::Dataset;

/// A query over one of the databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Experiment {
    /// TPC-H's parts of a size below 15.
    FilterInt,
    /// TPC-H's parts of one type.
    FilterString,
    /// Rows of an integer and five texts, a tenth of which the query selects.
    Ycsb,
    /// TPC-H's query 1.
    Q1,
    /// TPC-H's query 4.
    Q4,
    /// TPC-H's query 6.
    Q6,
    /// TPC-H's query 14.
    Q14,
    /// TPC-H's query 15.
    Q15,
}

impl Experiment {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::FilterInt,
        Self::FilterString,
        Self::Ycsb,
        Self::Q1,
        Self::Q4,
        Self::Q6,
        Self::Q14,
        Self::Q15,
    ];

    /// Contents of the database.
    pub fn dataset(self) -> Dataset {
        match self {
            Self::Ycsb => Dataset::Ycsb,
            _ => Dataset::Tpch,
        }
    }

    /// Name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::FilterInt => "filter-int",
            Self::FilterString => "filter-string",
            Self::Ycsb => "ycsb",
            Self::Q1 => "q1",
            Self::Q4 => "q4",
            Self::Q6 => "q6",
            Self::Q14 => "q14",
            Self::Q15 => "q15",
        }
    }

    /// The tables that it reads, as column families of the same names.
    pub fn tables(self) -> &'static [&'static str] {
        match self {
            Self::FilterInt | Self::FilterString => &["part"],
            Self::Ycsb => &["usertable"],
            Self::Q1 | Self::Q6 => &["lineitem"],
            Self::Q4 => &["orders", "lineitem"],
            Self::Q14 => &["lineitem", "part"],
            Self::Q15 => &["lineitem", "supplier"],
        }
    }

    /// The statement.
    pub fn sql(self) -> &'static str {
        match self {
            Self::FilterInt => "select count(*), min(p_partkey), max(p_name) from part where p_size < 15",
            Self::FilterString => {
                "select count(*), min(p_partkey), max(p_name) from part where p_type = 'SMALL PLATED BRASS'"
            }
            Self::Ycsb => "select count(*), max(field0), min(field4) from usertable where number < 100",
            Self::Q1 => {
                "select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty, sum(l_extendedprice) as sum_base_price,
                 sum(l_extendedprice * (1 - l_discount)) as sum_disc_price,
                 sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge, avg(l_quantity) as avg_qty,
                 avg(l_extendedprice) as avg_price, avg(l_discount) as avg_disc, count(*) as count_order
                 from lineitem where l_shipdate <= date '1998-12-01' - interval '90' day
                 group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus"
            }
            Self::Q4 => {
                "select o_orderpriority, count(*) as order_count from orders
                 where o_orderdate >= date '1993-07-01' and o_orderdate < date '1993-10-01'
                 and exists (select * from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
                 group by o_orderpriority order by o_orderpriority"
            }
            Self::Q6 => {
                "select sum(l_extendedprice * l_discount) as revenue from lineitem
                 where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01'
                 and l_discount between 0.05 and 0.07 and l_quantity < 24"
            }
            Self::Q14 => {
                "select 100.00 * sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount) else 0 end)
                 / sum(l_extendedprice * (1 - l_discount)) as promo_revenue from lineitem, part
                 where l_partkey = p_partkey and l_shipdate >= date '1995-09-01' and l_shipdate < date '1995-10-01'"
            }
            Self::Q15 => {
                "with revenue as (select l_suppkey as supplier_no, sum(l_extendedprice * (1 - l_discount)) as total_revenue
                 from lineitem where l_shipdate >= date '1996-01-01' and l_shipdate < date '1996-04-01' group by l_suppkey)
                 select s_suppkey, s_name, s_address, s_phone, total_revenue from supplier, revenue
                 where s_suppkey = supplier_no and total_revenue = (select max(total_revenue) from revenue)
                 order by s_suppkey"
            }
        }
    }
}
