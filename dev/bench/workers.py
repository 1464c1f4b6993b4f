#!/usr/bin/env python3
"""Times TPC-H's queries 1 and 6 over workers of `rockmill sql`, with their cores pinned:

    dev/bench/workers.py --rockmill PROGRAM --out FILE.json [--dir FOLDER] [--scale 10] [--cores 16]

- `split`: one database, read by one process with all cores, and by four workers with a quarter of the cores each.
- `shards`: one, two, four and eight workers, each with an eighth of the cores and a database of its own. `apart` has the same
  databases, each read by a process of its own, all at once: what the machine gives without workers.

PROGRAM is built with the feature `distributed`. All processes run on this machine, and databases are in memory if FOLDER
is on a tmpfs. A time is that of one statement more in the same command, so the start of the command is not in it.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

QUERIES = {
    "Q1": "select l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), "
    "sum(l_extendedprice * (1 - l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity), "
    "avg(l_extendedprice), avg(l_discount), count(*) from lineitem where l_shipdate <= date '1998-09-02' "
    "group by 1, 2 order by 1, 2",
    "Q6": "select sum(l_extendedprice * l_discount) from lineitem where l_shipdate >= date '1994-01-01' and "
    "l_shipdate < date '1995-01-01' and l_discount between 0.05 and 0.07 and l_quantity < 24",
}
# Statements of the second command, less one.
MORE = 4
REPEAT = 3


def on_cores(first, count, command):
    return ["taskset", "-c", f"{first}-{first + count - 1}", *command]


@contextmanager
def worker(program, root, first, cores):
    """The address of a worker with these cores."""
    command = [program, "worker", "--listen", "127.0.0.1:0", "--root", root, "--device", "cpu", "--threads", str(cores)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(on_cores(first, cores, command), stderr=log)
        try:
            for _ in range(200):
                log.seek(0)
                found = re.search(r"listens at (\S+)", log.read())
                if found:
                    break
                time.sleep(0.05)
            else:
                sys.exit("a worker did not start")
            yield found.group(1)
        finally:
            process.kill()
            process.wait()


def seconds(commands, statements):
    """Seconds until all commands have run the statements, and the rows of the last one."""
    start, text = time.monotonic(), "; ".join(statements)
    running = [subprocess.Popen([*command, text], stdout=subprocess.PIPE, text=True) for command in commands]
    for process in running:
        rows, _ = process.communicate()
        if process.returncode != 0:
            sys.exit("a command failed")
    return time.monotonic() - start, rows


def timed(commands, query):
    """Median seconds of a statement in each of the commands, which run at once; and the rows of the last one."""
    statement, times = QUERIES[query], []
    seconds(commands, [statement])
    for _ in range(REPEAT):
        one, rows = seconds(commands, [statement])
        more, _ = seconds(commands, [statement] * (1 + MORE))
        times.append((more - one) / MORE)
    return statistics.median(times), rows


def load(program, folder, scale):
    subprocess.run([program, "load", "tpch", "--scale", str(scale), "--db", folder], check=True, capture_output=True)


def split(args, root):
    """One process with all cores, and four workers with a quarter each."""
    database = str(root / "database")
    load(args.rockmill, database, args.scale)
    alone = [args.rockmill, "sql", database, "--device", "cpu", "--threads", str(args.cores), "--format", "csv"]
    alone = on_cores(0, args.cores, alone)
    part = args.cores // 4
    with ExitStack() as stack:
        each = [worker(args.rockmill, str(root), at * part, part) for at in range(4)]
        addresses = ",".join(stack.enter_context(started) for started in each)
        for query in QUERIES:
            (one, rows), (four, others) = timed([alone], query), timed([[*alone, "--workers", addresses]], query)
            same = sorted(map(digits, rows.split())) == sorted(map(digits, others.split()))
            yield {"experiment": "split", "query": query, "workers": 1, "seconds": one, "same": True}
            yield {"experiment": "split", "query": query, "workers": 4, "seconds": four, "same": same}


def digits(line):
    """A line whose averages have nine digits: workers add in another order."""
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number.group()):.9e}", line)


def shards(args, root):
    """One to eight workers, each with a database of its own."""
    part = args.cores // 8
    folders = [f"node{at}" for at in range(8)]
    for folder in folders:
        load(args.rockmill, str(root / folder), args.scale / 8)
    tables = (root / "node0" / "tables.sql").read_text()
    lineitem = re.search(r"create external table lineitem .*?;", tables, re.DOTALL).group()
    for count in (1, 2, 4, 8):
        lists = root / f"shards{count}"
        lists.mkdir()
        (lists / "tables.sql").write_text(lineitem)
        with ExitStack() as stack:
            entries = []
            for at in range(count):
                address = stack.enter_context(worker(args.rockmill, str(root), at * part, part))
                entries.append(f'[[shard]]\nfamily = "lineitem"\nurl = "{address}/{folders[at]}"\n')
            (lists / "shards.toml").write_text("\n".join(entries))
            command = [args.rockmill, "sql", "--shards", str(lists / "shards.toml"), "--device", "cpu", "--format", "csv"]
            command = on_cores(0, args.cores, command)
            for query in QUERIES:
                took, _ = timed([command], query)
                yield {"experiment": "shards", "query": query, "workers": count, "seconds": took}
        apart = [args.rockmill, "sql", "--device", "cpu", "--threads", str(part), "--format", "csv"]
        apart = [on_cores(at * part, part, [*apart, str(root / folders[at])]) for at in range(count)]
        for query in QUERIES:
            took, _ = timed(apart, query)
            yield {"experiment": "apart", "query": query, "workers": count, "seconds": took}


EXPERIMENTS = {"split": split, "shards": shards}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rockmill", required=True, help="the command, built with the feature distributed")
    parser.add_argument("--out", required=True, type=Path, help="file for the times, as JSON")
    parser.add_argument("--dir", help="folder for the databases, which are removed at the end")
    parser.add_argument("--experiment", choices=EXPERIMENTS, nargs="*", default=EXPERIMENTS)
    parser.add_argument("--scale", type=float, default=10, help="scale of TPC-H, of all shards together [10]")
    parser.add_argument("--cores", type=int, default=os.cpu_count() // 8 * 8, help="cores to use, a multiple of 8")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=args.dir) as root:
        for experiment in args.experiment:
            for row in EXPERIMENTS[experiment](args, Path(root)):
                rows.append({**row, "scale": args.scale, "cores": args.cores})
                print(f"{row['experiment']:8} {row['query']} {row['workers']} workers {row['seconds']:8.3f} s", flush=True)
                args.out.write_text(json.dumps(rows, indent=1) + "\n")
    if not all(row.get("same", True) for row in rows):
        sys.exit("rows differ")


if __name__ == "__main__":
    main()
