"""A program whose types mypy and pyright check. It is not run."""

from collections.abc import Iterable
from typing import assert_type

import rockmill as rm


def program() -> None:
    db = rm.open("./db", memory="4GiB", mysql=None)
    assert_type(db, rm.Database)
    assert_type(db.families, list[str])
    result = db.sql("select 1")
    assert_type(result, rm.Result)
    for batch in result.batches():
        assert_type(batch, rm.Batch)
    table = db.table("orders", key="u32be id", value="row", schema=object())
    assert_type(table.scan(columns=["id"], where="id > 7", limit=3), rm.Result)
    for key, value in db.items("default", prefix=b"user:"):
        assert_type((key, value), tuple[bytes, bytes])
    assert_type(rm.doctor("./db"), rm.DoctorReport)
    assert_type(rm.verify("./db", progress=True), rm.VerifyReport)
    assert_type(rm.compact("./db", device="auto"), rm.CompactReport)
    view = rm.view("./db", "vectors", device=0, keys=(b"p:", "u64be"), value_bytes=512)
    assert_type(view, rm.View)
    assert_type(view.get([b"a"]), list[bytes | None])
    assert_type(view.refresh().sequence, int)
    rows, found = view.lookup(object(), default=object())
    modules: Iterable[object] = (rm.polars.scan, rm.pyg.FeatureStore, rm.torch.Embedding)
    del rows, found, modules
