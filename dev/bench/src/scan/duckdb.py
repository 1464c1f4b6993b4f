"""Runs statements by DuckDB over Parquet files, for `rockmill-bench scan`.

Arguments: folder with one folder of files for each table, threads, runs that count. Reads the statements of a query as a
JSON list from standard input. Prints wall and CPU seconds of each run, the first of which does not count, and the number of
rows.
"""
import json
import pathlib
import sys
import time

import duckdb

folder, threads, runs = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
statements = json.load(sys.stdin)
connection = duckdb.connect(config={"threads": threads})
for table in folder.iterdir():
    connection.execute(f"create view {table.name} as select * from read_parquet('{table}/*.parquet')")
walls, cpus, rows = [], [], 0
for _ in range(1 + runs):
    wall, cpu, rows = time.perf_counter(), time.process_time(), 0
    for statement in statements:
        result = connection.execute(statement)
        if not statement.lower().startswith(("create", "drop")):
            rows += len(result.fetchall())
    walls.append(time.perf_counter() - wall)
    cpus.append(time.process_time() - cpu)
print(json.dumps({"walls_s": walls, "cpus_s": cpus, "rows": rows}))
