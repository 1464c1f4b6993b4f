"""Statements, and who reads their rows."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import duckdb
import numpy
import pandas
import polars
import pyarrow
import pytest

import rockmill as rm
from conftest import ORDERS, write


def test_a_database_tells_its_column_families_and_sequence(db: Path) -> None:
    database = rm.open(db)
    assert database.families == ["default", "orders"]
    assert database.sequence >= ORDERS + 302
    assert repr(database) == f'rockmill.open("{db}")'


def test_every_reader_gets_the_same_rows(db: Path) -> None:
    rows = rm.open(db).sql("select key, value from \"default\" order by key")
    table = rows.to_arrow()
    assert isinstance(table, pyarrow.Table)
    assert table.num_rows == 302
    assert table["key"][0].as_py() == b"user:0000"
    assert table["value"][-1].as_py() == b"\xff\x00"
    assert pyarrow.table(rows).equals(table)
    frame = rows.to_polars()
    assert frame.equals(polars.DataFrame(rows))
    assert polars.from_arrow(rows).struct.unnest().equals(frame)
    assert frame["value"].to_list() == table["value"].to_pylist()
    assert rows.to_pandas()["value"].tolist() == table["value"].to_pylist()
    if hasattr(pandas.DataFrame, "from_arrow"):
        assert pandas.DataFrame.from_arrow(rows)["value"].tolist() == table["value"].to_pylist()
    assert duckdb.sql("select count(*), min(octet_length(value)) from rows").fetchall() == [(302, 2)]
    batches = [pyarrow.record_batch(batch) for batch in rows.batches()]
    assert pyarrow.Table.from_batches(batches).equals(table)
    assert sum(len(batch) for batch in rows.batches()) == 302
    assert rows.columns == ["key", "value"]


def test_types_of_arrow_come_over_as_they_are(db: Path) -> None:
    statement = """
        select 1::tinyint as a, 2::bigint unsigned as b, 1.5::float as c, null as d, true as e, 'text' as f,
            arrow_cast('view', 'Utf8View') as g, arrow_cast(x'00ff', 'LargeBinary') as h, date '2024-02-29' as i,
            arrow_cast('2024-02-29T12:00:00', 'Timestamp(Nanosecond, Some("+01:00"))') as j, interval '1 month 2 days' as k,
            12.345::decimal(20, 3) as l, [1, null, 3] as m, named_struct('x', 1, 'y', 'z') as n,
            arrow_cast('word', 'Dictionary(Int32, Utf8)') as o, map(['k'], [7]) as p,
            arrow_cast(1, 'Duration(Second)') as q, arrow_cast(arrow_cast('abc', 'Binary'), 'FixedSizeBinary(3)') as r
    """
    table = rm.open(db).sql(statement).to_arrow()
    table.validate(full=True)
    row = {name: table[name][0] for name in table.column_names}
    assert [row[name].as_py() for name in "abcdefg"] == [1, 2, 1.5, None, True, "text", "view"]
    assert row["h"].as_py() == b"\x00\xff"
    assert str(row["i"]) == "2024-02-29"
    assert table.schema.field("j").type == pyarrow.timestamp("ns", "+01:00")
    assert str(row["l"].as_py()) == "12.345"
    assert row["m"].as_py() == [1, None, 3]
    assert row["n"].as_py() == {"x": 1, "y": "z"}
    assert row["o"].as_py() == "word"
    assert table.schema.field("o").type == pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    assert row["p"].as_py() == [("k", 7)]
    assert row["r"].as_py() == b"abc"


def test_slices_of_columns_with_nulls_come_over(db: Path) -> None:
    statement = """
        select case when octet_length(value) % 3 = 0 then null else value end as v, octet_length(value) > 8 as b
        from "default" order by key limit 150 offset 17
    """
    result = rm.open(db).sql(statement)
    table = result.to_arrow()
    table.validate(full=True)
    expected = [f"value {number}".encode() for number in range(17, 167)]
    assert table["v"].to_pylist() == [None if len(value) % 3 == 0 else value for value in expected]
    assert table["b"].to_pylist() == [len(value) > 8 for value in expected]


def test_rows_are_shared_with_polars_and_not_copied(db: Path) -> None:
    batch = next(iter(rm.open(db).sql("select u32be(key, 0) as n from orders").batches()))
    first, second = pyarrow.record_batch(batch), pyarrow.record_batch(batch)
    series = polars.from_arrow(first["n"])
    assert first["n"].buffers()[1].address == second["n"].buffers()[1].address
    assert series.to_numpy(allow_copy=False).ctypes.data == first["n"].buffers()[1].address
    assert numpy.array_equal(numpy.sort(series.to_numpy()), numpy.arange(ORDERS))


def test_a_result_sees_the_same_each_time_and_the_next_one_sees_what_was_written(db: Path) -> None:
    database = rm.open(db)
    count = database.sql("select count(*) as n from \"default\"")
    top = database.sql("select key from \"default\" order by value desc limit 10")
    before = top.to_arrow()
    write(db, ((b"later%d" % number, b"zz") for number in range(50)))
    assert count.to_arrow()["n"].to_pylist() == [302]
    assert count.to_arrow()["n"].to_pylist() == [302]
    assert top.to_arrow().equals(before)
    assert database.sql("select count(*) as n from \"default\"").to_arrow()["n"].to_pylist() == [352]


def test_a_join_can_be_read_twice(db: Path) -> None:
    join = rm.open(db).sql("select count(*) as n from orders a join orders b on a.key = b.key")
    assert [join.to_arrow()["n"].to_pylist() for _ in range(2)] == [[ORDERS], [ORDERS]]


def test_statements_define_tables_and_the_last_one_has_the_rows(db: Path) -> None:
    database = rm.open(db)
    rows = database.sql("create view few as select key from orders limit 3; select count(*) as n from few;")
    assert rows.to_arrow()["n"].to_pylist() == [3]
    assert "few" in database.sql("show tables").to_arrow()["table_name"].to_pylist()


def test_copy_writes_a_file_once(db: Path, tmp_path: Path) -> None:
    database, target = rm.open(db), tmp_path / "out.parquet"
    statement = f"copy (select * from orders) to '{target}'"
    assert database.sql(statement).to_arrow()["count"].to_pylist() == [ORDERS]
    with pytest.raises(rm.UsageError, match="force=True replaces it"):
        database.sql(statement)
    database.sql(statement, force=True)
    assert polars.read_parquet(target).height == ORDERS


def test_a_copy_that_fails_leaves_the_file_of_before(db: Path, tmp_path: Path) -> None:
    target, database = tmp_path / "numbers.csv", rm.open(db)
    database.sql(f"copy (select 1 as n) to '{target}'")
    fails = f"copy (select 100 / (200000 - value) as n from generate_series(1, 300000)) to '{target}'"
    for statement in (fails, f"explain analyze {fails}"):
        with pytest.raises(rm.UsageError, match="division by zero"):
            database.sql(statement, force=True)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("numbers")] == ["numbers.csv"]
    assert target.read_text() == "n\n1\n"


def test_a_text_shows_the_first_rows(db: Path) -> None:
    text = repr(rm.open(db).sql("select * from \"default\" order by key"))
    assert "user:0000" in text
    assert "user:0010" not in text
    assert text.endswith("the first 10 rows; there are more")
    assert repr(rm.open(db).sql("select 1 as one")).endswith("1 row")
    assert repr(rm.open(db).sql("select 1 as one where false")).endswith("0 rows")


def test_a_database_that_another_library_has_open_is_read(db: Path, hold) -> None:
    other = hold(db)
    database = rm.open(db)
    other[b"while open"] = b"1"
    other.flush_wal(True)
    assert dict(database.items(prefix=b"while")) == {b"while open": b"1"}


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("select * from ordrs", "line 1, column 15: there is no table ordrs; did you mean orders?"),
        ("select kye from orders", "line 1, column 8: there is no column kye; did you mean key?"),
        ("selct 1", "line 1, column 1: expected"),
        ("", "there is no statement"),
        ("drop table orders", "table orders cannot be dropped"),
        ("insert into orders values (x'00', x'00')", "cannot be written"),
    ],
)
def test_a_wrong_statement_is_a_usage_error(db: Path, statement: str, sentence: str) -> None:
    with pytest.raises(rm.UsageError) as raised:
        rm.open(db).sql(statement)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, ValueError)


def test_an_error_of_a_row_has_the_sentence_of_the_command(db: Path) -> None:
    rows = rm.open(db).sql("select 1 / (octet_length(value) - 7) from \"default\"")
    for read in (rows.to_arrow, rows.to_polars, rows.to_pandas, lambda: list(rows.batches()), lambda: repr(rows)):
        with pytest.raises(rm.UsageError, match="^division by zero$"):
            read()
    # Other libraries have classes of their own.
    with pytest.raises(Exception, match="division by zero"):
        pyarrow.table(rows)


def test_damaged_files_are_a_data_error(db: Path) -> None:
    for table in db.glob("*.sst"):
        content = bytearray(table.read_bytes())
        content[: len(content) // 2] = bytes(len(content) // 2)
        table.write_bytes(content)
    with pytest.raises(rm.DataError, match=r"\.sst"):
        rm.open(db).sql("select count(value) from orders where octet_length(value) > 3").to_arrow()


def test_a_database_that_vanishes_is_refused_with_a_sentence(db: Path) -> None:
    database = rm.open(db)
    for file in db.iterdir():
        file.unlink()
    with pytest.raises(rm.Error) as raised:
        database.sql("select count(*) from orders").to_arrow()
    assert "\n" not in str(raised.value)


def test_too_little_memory_is_refused_with_the_argument_to_change(db: Path) -> None:
    database = rm.open(db, memory="64MiB", threads=2, spill_dir="/nowhere")
    statement = """
        select a.key, b.key, row_number() over (order by concat(encode(a.value, 'hex'), encode(b.value, 'hex'), repeat('x', 1000))) as n
        from orders a cross join orders b
    """
    with pytest.raises(rm.RefusedError, match="memory=|spill_dir="):
        database.sql(statement).to_arrow()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"memory": "much"}, 'memory= is \'much\'; give bytes, or a text such as "4GiB"'),
        ({"memory": 5}, "memory= is 5 bytes; give at least 64 MiB"),
        ({"memory": -1}, "memory= is -1"),
        ({"threads": 0}, "threads= is 0"),
        ({"device": "tpu"}, "device="),
        ({"merge_operators": ["nothing"]}, "merge_operators="),
        ({"merge_operators": "max"}, "give a list of texts"),
        ({"mysql": "/nowhere.sql"}, "/nowhere.sql"),
    ],
)
def test_a_wrong_argument_is_named(db: Path, arguments, sentence: str) -> None:
    with pytest.raises(rm.Error) as raised:
        rm.open(db, **arguments)
    assert sentence in str(raised.value)


def test_a_folder_without_a_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(rm.UsageError, match="a database, it has no file CURRENT"):
        rm.open(tmp_path)
    with pytest.raises(rm.RefusedError, match="nowhere"):
        rm.open(tmp_path / "nowhere")
    with pytest.raises(TypeError):
        rm.open(7)


def test_control_c_ends_a_statement(db: Path) -> None:
    database = rm.open(db)
    endless = database.sql("select max(v % 7) from generate_series(1, 1000000000000) g(v)")
    for read in (endless.to_arrow, lambda: list(endless.batches()), lambda: repr(endless)):
        interrupt = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            read()
        interrupt.join()
        # None comes later.
        time.sleep(0.2)
    assert database.sql("select 1 as one").to_arrow()["one"].to_pylist() == [1]


def test_other_threads_run_while_a_statement_does(db: Path) -> None:
    endless = rm.open(db).sql("select max(v % 7) from generate_series(1, 1000000000000) g(v)")
    began = threading.Event()

    def beat() -> None:
        began.wait()
        for _ in range(100):
            time.sleep(0.001)
        # A statement that held back other threads would never end.
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=beat)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        began.set()
        endless.to_arrow()
    thread.join()


def test_threads_share_a_database(db: Path) -> None:
    database = rm.open(db)
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.append(database.sql("select count(*) as n from orders").to_arrow()["n"][0].as_py()))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [ORDERS] * 8


def test_tables_sql_of_the_folder_is_run(db: Path) -> None:
    (db / "tables.sql").write_text(
        "create external table sales (id int unsigned not null, amount bigint not null, name varchar not null) stored as rocksdb location '.' "
        "options ('family' 'orders', 'key' 'u32be id', 'value' 'i64le amount, rest name');"
    )
    total = rm.open(db).sql("select sum(amount) as total from sales").to_arrow()["total"].to_pylist()
    assert total == [sum(10 * number for number in range(ORDERS))]
