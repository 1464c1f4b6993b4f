//! The tables of TPC-H. Numbers come first in a value, so that a text is only followed by texts.

use rust_rocksdb::Error;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};

use super::row::Row;
use super::{Part, Put, Table};

pub const TABLES: [Table; 8] = [
    Table {
        name: "lineitem",
        columns: "l_orderkey bigint not null, l_partkey bigint not null, l_suppkey bigint not null, l_linenumber int not null,
  l_quantity decimal(15, 2) not null, l_extendedprice decimal(15, 2) not null, l_discount decimal(15, 2) not null,
  l_tax decimal(15, 2) not null, l_returnflag varchar not null, l_linestatus varchar not null, l_shipdate date not null,
  l_commitdate date not null, l_receiptdate date not null, l_shipinstruct varchar not null, l_shipmode varchar not null,
  l_comment varchar not null",
        key: "ordered(i64) l_orderkey, ordered(i32) l_linenumber",
        value: "i64le l_partkey, i64le l_suppkey, i64le l_quantity, i64le l_extendedprice, i64le l_discount, i64le l_tax,
  i32le l_shipdate, i32le l_commitdate, i32le l_receiptdate, bytes(1) l_returnflag, bytes(1) l_linestatus,
  varint l_shipinstruct, varint l_shipmode, varint l_comment",
        rows: |scale| (scale * 6e6) as u64,
        row_bytes: 126,
        make: line_items,
    },
    Table {
        name: "orders",
        columns: "o_orderkey bigint not null, o_custkey bigint not null, o_orderstatus varchar not null,
  o_totalprice decimal(15, 2) not null, o_orderdate date not null, o_orderpriority varchar not null,
  o_clerk varchar not null, o_shippriority int not null, o_comment varchar not null",
        key: "ordered(i64) o_orderkey",
        value: "i64le o_custkey, i64le o_totalprice, i32le o_orderdate, i32le o_shippriority, bytes(1) o_orderstatus,
  varint o_orderpriority, varint o_clerk, varint o_comment",
        rows: |scale| (scale * 1.5e6) as u64,
        row_bytes: 110,
        make: orders,
    },
    Table {
        name: "partsupp",
        columns: "ps_partkey bigint not null, ps_suppkey bigint not null, ps_availqty int not null,
  ps_supplycost decimal(15, 2) not null, ps_comment varchar not null",
        key: "ordered(i64) ps_partkey, ordered(i64) ps_suppkey",
        value: "i64le ps_supplycost, i32le ps_availqty, varint ps_comment",
        rows: |scale| (scale * 8e5) as u64,
        row_bytes: 154,
        make: part_suppliers,
    },
    Table {
        name: "customer",
        columns: "c_custkey bigint not null, c_name varchar not null, c_address varchar not null, c_nationkey bigint not null,
  c_phone varchar not null, c_acctbal decimal(15, 2) not null, c_mktsegment varchar not null, c_comment varchar not null",
        key: "ordered(i64) c_custkey",
        value: "i64le c_nationkey, i64le c_acctbal, varint c_name, varint c_address, varint c_phone, varint c_mktsegment,
  varint c_comment",
        rows: |scale| (scale * 1.5e5) as u64,
        row_bytes: 170,
        make: customers,
    },
    Table {
        name: "part",
        columns: "p_partkey bigint not null, p_name varchar not null, p_mfgr varchar not null, p_brand varchar not null,
  p_type varchar not null, p_size int not null, p_container varchar not null, p_retailprice decimal(15, 2) not null,
  p_comment varchar not null",
        key: "ordered(i64) p_partkey",
        value: "i64le p_retailprice, i32le p_size, varint p_name, varint p_mfgr, varint p_brand, varint p_type,
  varint p_container, varint p_comment",
        rows: |scale| (scale * 2e5) as u64,
        row_bytes: 140,
        make: parts,
    },
    Table {
        name: "supplier",
        columns: "s_suppkey bigint not null, s_name varchar not null, s_address varchar not null, s_nationkey bigint not null,
  s_phone varchar not null, s_acctbal decimal(15, 2) not null, s_comment varchar not null",
        key: "ordered(i64) s_suppkey",
        value: "i64le s_nationkey, i64le s_acctbal, varint s_name, varint s_address, varint s_phone, varint s_comment",
        rows: |scale| (scale * 1e4) as u64,
        row_bytes: 150,
        make: suppliers,
    },
    Table {
        name: "nation",
        columns: "n_nationkey bigint not null, n_name varchar not null, n_regionkey bigint not null, n_comment varchar not null",
        key: "ordered(i64) n_nationkey",
        value: "i64le n_regionkey, varint n_name, varint n_comment",
        rows: |_| 25,
        row_bytes: 100,
        make: nations,
    },
    Table {
        name: "region",
        columns: "r_regionkey bigint not null, r_name varchar not null, r_comment varchar not null",
        key: "ordered(i64) r_regionkey",
        value: "varint r_name, varint r_comment",
        rows: |_| 5,
        row_bytes: 100,
        make: regions,
    },
];

/// The generator represents decimals as integers.
const HUNDREDTHS: i64 = 100;
const SUPPLIERS_OF_A_PART: usize = 4;

fn line_items(part: &Part, put: Put<'_>) -> Result<(), Error> {
    let mut row = Row::default();
    for item in LineItemGenerator::new(part.scale, part.number, part.of) {
        row.clear().key64(item.l_orderkey).key32(item.l_linenumber);
        row.i64(item.l_partkey).i64(item.l_suppkey);
        row.i64(item.l_quantity * HUNDREDTHS)
            .i64(item.l_extendedprice.into_inner());
        row.i64(item.l_discount.into_inner())
            .i64(item.l_tax.into_inner());
        row.i32(item.l_shipdate.to_unix_epoch());
        row.i32(item.l_commitdate.to_unix_epoch());
        row.i32(item.l_receiptdate.to_unix_epoch());
        row.bytes(item.l_returnflag).bytes(item.l_linestatus);
        row.text(item.l_shipinstruct)
            .text(item.l_shipmode)
            .text(item.l_comment);
        put(&row)?;
    }
    Ok(())
}

fn orders(part: &Part, put: Put<'_>) -> Result<(), Error> {
    let mut row = Row::default();
    for order in OrderGenerator::new(part.scale, part.number, part.of) {
        row.clear().key64(order.o_orderkey);
        row.i64(order.o_custkey)
            .i64(order.o_totalprice.into_inner());
        row.i32(order.o_orderdate.to_unix_epoch())
            .i32(order.o_shippriority);
        row.bytes(order.o_orderstatus.as_str());
        row.text(order.o_orderpriority)
            .text(order.o_clerk)
            .text(order.o_comment);
        put(&row)?;
    }
    Ok(())
}

/// The generator makes the suppliers of a part one after another, but not in the order of their keys.
fn part_suppliers(part: &Part, put: Put<'_>) -> Result<(), Error> {
    let mut rows = Vec::new();
    for supplied in PartSuppGenerator::new(part.scale, part.number, part.of) {
        let mut row = Row::default();
        row.key64(supplied.ps_partkey).key64(supplied.ps_suppkey);
        row.i64(supplied.ps_supplycost.into_inner())
            .i32(supplied.ps_availqty);
        row.text(supplied.ps_comment);
        rows.push(row);
        if rows.len() == SUPPLIERS_OF_A_PART {
            rows.sort_by(|a, b| a.key.cmp(&b.key));
            rows.drain(..).try_for_each(|row| put(&row))?;
        }
    }
    Ok(())
}

fn customers(part: &Part, put: Put<'_>) -> Result<(), Error> {
    let mut row = Row::default();
    for customer in CustomerGenerator::new(part.scale, part.number, part.of) {
        row.clear().key64(customer.c_custkey);
        row.i64(customer.c_nationkey)
            .i64(customer.c_acctbal.into_inner());
        row.text(customer.c_name)
            .text(customer.c_address)
            .text(customer.c_phone);
        row.text(customer.c_mktsegment).text(customer.c_comment);
        put(&row)?;
    }
    Ok(())
}

fn parts(part: &Part, put: Put<'_>) -> Result<(), Error> {
    let mut row = Row::default();
    for part in PartGenerator::new(part.scale, part.number, part.of) {
        row.clear().key64(part.p_partkey);
        row.i64(part.p_retailprice.into_inner()).i32(part.p_size);
        row.text(part.p_name)
            .text(part.p_mfgr)
            .text(part.p_brand)
            .text(part.p_type);
        row.text(part.p_container).text(part.p_comment);
        put(&row)?;
    }
    Ok(())
}

fn suppliers(part: &Part, put: Put<'_>) -> Result<(), Error> {
    let mut row = Row::default();
    for supplier in SupplierGenerator::new(part.scale, part.number, part.of) {
        row.clear().key64(supplier.s_suppkey);
        row.i64(supplier.s_nationkey)
            .i64(supplier.s_acctbal.into_inner());
        row.text(supplier.s_name)
            .text(supplier.s_address)
            .text(supplier.s_phone);
        row.text(supplier.s_comment);
        put(&row)?;
    }
    Ok(())
}

fn nations(part: &Part, put: Put<'_>) -> Result<(), Error> {
    let mut row = Row::default();
    for nation in NationGenerator::new(part.scale, part.number, part.of) {
        row.clear()
            .key64(nation.n_nationkey)
            .i64(nation.n_regionkey);
        row.text(nation.n_name).text(nation.n_comment);
        put(&row)?;
    }
    Ok(())
}

fn regions(part: &Part, put: Put<'_>) -> Result<(), Error> {
    let mut row = Row::default();
    for region in RegionGenerator::new(part.scale, part.number, part.of) {
        row.clear().key64(region.r_regionkey);
        row.text(region.r_name).text(region.r_comment);
        put(&row)?;
    }
    Ok(())
}
