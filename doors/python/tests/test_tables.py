"""Tables and their items."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import polars
import pyarrow
import pyarrow.compute
import pytest

import rockmill as rm
import rockmill.polars
from conftest import ORDERS, order, write

SCHEMA = pyarrow.schema(
    [pyarrow.field("id", pyarrow.uint32()), pyarrow.field("amount", pyarrow.int64()), pyarrow.field("name", pyarrow.string())]
)


def orders(db: Path, schema: object = SCHEMA) -> rm.Table:
    return rm.open(db).table("orders", key="u32be id", value="i64le amount, rest name", schema=schema)


def test_a_table_without_a_layout_has_key_and_value(db: Path) -> None:
    table = rm.open(db).table("orders")
    assert table.columns == ["key", "value"]
    assert sorted(zip(*pyarrow.table(table).to_pydict().values(), strict=True)) == [order(number) for number in range(ORDERS)]


def test_a_layout_makes_columns(db: Path) -> None:
    table = orders(db)
    # The layout has no bits of nulls.
    assert pyarrow.schema(table) == pyarrow.schema([field.with_nullable(False) for field in SCHEMA])
    rows = pyarrow.table(table).sort_by("id").to_pylist()
    assert rows[8] == {"id": 8, "amount": 80, "name": "customer 1"}
    assert polars.DataFrame(table).height == ORDERS
    assert polars.scan_arrow_c_stream(table.scan(where="id < 5")).collect().height == 5
    sales = table
    assert duckdb.sql("select sum(amount) from sales").fetchall() == [(10 * sum(range(ORDERS)),)]
    assert repr(table) == '<rockmill.Table "orders": id UInt32, amount Int64, name Utf8>'


def test_schemas_of_other_libraries_serve(db: Path) -> None:
    large = pyarrow.schema([SCHEMA.field("id"), SCHEMA.field("amount"), pyarrow.field("name", pyarrow.large_string())])
    viewed = pyarrow.schema([SCHEMA.field("id"), SCHEMA.field("amount"), pyarrow.field("name", pyarrow.string_view())])
    frame = polars.DataFrame({"id": [], "amount": [], "name": []}, {"id": polars.UInt32, "amount": polars.Int64, "name": polars.String})
    for schema in (large, viewed, frame.to_arrow().schema):
        assert pyarrow.table(orders(db, schema)).num_rows == ORDERS


def test_datafusion_for_python_reads_tables_and_results(db: Path) -> None:
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext()
    context.from_arrow(orders(db).scan(where="id < 10"), name="few")
    rows = context.sql("select sum(amount) as total, count(*) as n from few").to_pylist()
    assert rows == [{"total": 450, "n": 10}]


def test_datafusion_for_python_scans_tables(db: Path) -> None:
    datafusion = pytest.importorskip("datafusion")
    table = orders(db)
    context = datafusion.SessionContext()
    context.register_table("orders", table)
    context.register_table("users", rm.open(db).table("default"))
    rows = context.sql("select sum(amount) as total, count(*) as n from orders where id < 10").to_pylist()
    assert rows == [{"total": 450, "n": 10}]
    # The condition and the columns are in the scan.
    plan = context.sql("explain select name from orders where id < 10").to_pylist()
    plans = {row["plan_type"]: row["plan"] for row in plan}
    assert "RockmillScan" in plans["physical_plan"] and "FilterExec" not in plans["physical_plan"], plans
    assert "projection=[name], full_filters=[orders.id < UInt32(10)]" in plans["logical_plan"], plans
    # A limit counts the rows that a condition leaves, also if DataFusion computes it.
    few = context.sql("select id from orders where id < 100 and length(name) + id > 60 limit 30").to_pylist()
    assert len(few) == 30 and all(50 <= row["id"] < 100 for row in few), few
    # A long condition does not overflow the stack on which it is compiled.
    pairs = " or ".join(f"(id = {number} and amount = {number * 10})" for number in range(0, 2000, 2))
    assert context.sql(f"select count(*) as n from orders where {pairs}").to_pylist() == [{"n": ORDERS // 2}]
    # A function of the context has the name of one that scans compute, and is another one.
    context.register_udf(datafusion.udf(lambda text, _: pyarrow.compute.equal(text, "nobody"), [pyarrow.string()] * 2, pyarrow.bool_(), "immutable", "starts_with"))
    assert context.sql("select count(*) as n from orders where starts_with(name, name)").to_pylist() == [{"n": 0}]
    names = context.sql("select distinct name from orders order by name").to_pylist()
    assert len(names) == 7
    assert context.sql("select count(*) as n from users, orders").to_pylist() == [{"n": 302 * ORDERS}]
    assert len(context.sql("select key from users limit 3").to_pylist()) == 3


def test_each_scan_of_datafusion_sees_what_was_written_before(tmp_path: Path) -> None:
    datafusion = pytest.importorskip("datafusion")
    write(tmp_path / "db", [(b"a", b"1")])
    table = rm.open(tmp_path / "db").table()
    context = datafusion.SessionContext()
    context.register_table("pairs", table)
    count = "select count(*) as n from pairs"
    assert context.sql(count).to_pylist() == [{"n": 1}]
    write(tmp_path / "db", [(b"b", b"2")])
    assert context.sql(count).to_pylist() == [{"n": 2}]


def test_another_datafusion_is_refused(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datafusion = pytest.importorskip("datafusion")
    table = orders(db)
    context = datafusion.SessionContext()
    for version in ("54.0.0", "56.1.0", "unknown"):
        monkeypatch.setattr(datafusion, "__version__", version)
        with pytest.raises(rm.UsageError, match=f"tables are for datafusion 55, and datafusion is {version}"):
            table.__datafusion_table_provider__(context)
    monkeypatch.undo()
    for wrong in (7, None):
        with pytest.raises(rm.UsageError, match="no session of datafusion"):
            table.__datafusion_table_provider__(wrong)


def test_a_scan_takes_columns_a_condition_and_a_limit(db: Path) -> None:
    table = orders(db)
    scan = table.scan(columns=["name", "id"], where="amount >= 500 and id < 53")
    assert scan.columns == ["name", "id"]
    assert sorted(scan.to_arrow()["id"].to_pylist()) == [50, 51, 52]
    assert table.scan(limit=7).to_arrow().num_rows == 7
    assert table.scan(limit=0).to_arrow().num_rows == 0
    for arguments, sentence in [
        ({"columns": ["nam"]}, "there is no column"),
        ({"where": "idd > 7"}, "there is no column idd"),
        ({"where": "id >"}, "expected"),
    ]:
        with pytest.raises(rm.UsageError, match=sentence):
            table.scan(**arguments)


def test_polars_pushes_columns_and_conditions_down(db: Path) -> None:
    frame = rm.polars.scan(orders(db))
    assert frame.collect_schema() == {"id": polars.UInt32, "amount": polars.Int64, "name": polars.String}
    whole = polars.DataFrame(orders(db))
    id_, name = polars.col("id"), polars.col("name")
    for condition in [
        id_ > 7,
        (id_ >= 7) & (id_ < 19) & (name != "customer 3"),
        (name == "customer 3") | (id_ == 1),
        (id_ % 5 == 2) & (id_ < 100),
        name.str.contains("er 6"),
        id_ == polars.col("amount") // 10,
        id_.is_in([3, 5]),
        name == "it's",
    ]:
        expected = whole.filter(condition).sort("id").select("amount", "id")
        assert frame.filter(condition).select("amount", "id").collect().sort("id").equals(expected), condition
    assert frame.filter(id_ > 900).head(5).collect().height == 5
    assert frame.head(5).collect().height == 5
    assert frame.select(polars.len()).collect().item() == ORDERS


def test_conditions_of_polars_become_sql_where_scans_can_compute_them() -> None:
    schema = polars.Schema({"id": polars.UInt32, "name": polars.String})
    id_, name = polars.col("id"), polars.col("name")
    for condition, text in [
        (id_ > 7, '"id" > 7'),
        ((id_ > 7) & (name == "it's"), "(\"id\" > 7 and \"name\" = 'it''s')"),
        ((id_ > 7) & (name.str.len_chars() == 3), '"id" > 7'),
        ((id_ > 7) | (name.str.len_chars() == 3), None),
        (id_ > polars.col("name"), None),
    ]:
        assert rockmill.polars._sql(condition, schema) == text, condition


def test_items_are_all_pairs_in_order(db: Path) -> None:
    database = rm.open(db)
    items = list(database.items())
    expected = [(f"user:{number:04}".encode(), f"value {number}".encode()) for number in range(300)]
    assert items == [*expected, (b"user:9999", b"not flushed"), (b"zebra", b"\xff\x00")]
    assert list(database.items("orders")) == [order(number) for number in range(ORDERS)]


def test_tables_are_there_after_items_were_read(db: Path) -> None:
    database = rm.open(db)
    database.sql("create view few as select * from orders limit 3")
    assert len(list(database.items("orders"))) == ORDERS
    assert database.sql("select count(*) as n from orders").to_arrow()["n"].to_pylist() == [ORDERS]
    assert database.sql("select count(*) as n from few").to_arrow()["n"].to_pylist() == [3]


def test_items_of_a_range_are_those_of_a_sorted_dictionary(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    pairs = {bytes(draw.choices(b"\x00ab\xfe\xff", k=draw.randrange(5))): b"%d" % number for number in range(3000)}
    write(tmp_path / "db", pairs.items())
    database = rm.open(tmp_path / "db")
    for _ in range(40):
        prefix, start, end = (bytes(draw.choices(b"\x00ab\xfe\xff", k=draw.randrange(4))) for _ in range(3))
        arguments = {name: value for name, value in [("prefix", prefix), ("start", start), ("end", end)] if draw.random() < 0.6}
        expected = [
            (key, pairs[key])
            for key in sorted(pairs)
            if key.startswith(arguments.get("prefix", b"")) and key >= arguments.get("start", b"") and ("end" not in arguments or key < end)
        ]
        assert list(database.items(**arguments)) == expected, arguments


def test_many_items_that_are_not_read_to_the_end_stop_no_statement(tmp_path: Path) -> None:
    pairs = 40_000
    write(tmp_path / "db", ((b"%08d" % number, b"v") for number in range(pairs)))
    database = rm.open(tmp_path / "db")
    begun = [database.items() for _ in range(600)]
    assert {next(items) for items in begun} == {(b"00000000", b"v")}
    assert database.sql("select count(*) as n from \"default\"").to_arrow()["n"].to_pylist() == [pairs]
    assert sum(1 for _ in begun[599]) == pairs - 1


def test_items_that_are_not_read_to_the_end_cost_nothing_more(db: Path) -> None:
    items = rm.open(db).items()
    assert next(items)[0] == b"user:0000"
    assert iter(items) is items
    del items


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"family": "ordrs"}, 'there is no column family "ordrs", but default, orders'),
        ({"family": "orders", "key": "u32be id"}, "a layout needs columns"),
        ({"family": "orders", "schema": SCHEMA}, "columns need a layout"),
        ({"family": "orders", "schema": 7, "key": "u32be id", "value": "rest name"}, "__arrow_c_schema__"),
        ({"family": "orders", "schema": SCHEMA, "key": "u33be id", "value": "rest name"}, "u33be"),
        ({"family": "orders", "schema": pyarrow.schema([("id", pyarrow.list_(pyarrow.int8()))]), "key": "rest id", "value": "skip(1)"}, "a type that layouts do not have"),
    ],
)
def test_a_wrong_layout_is_a_usage_error(db: Path, arguments, sentence: str) -> None:
    with pytest.raises(rm.UsageError) as raised:
        rm.open(db).table(**arguments)
    assert sentence in str(raised.value)
