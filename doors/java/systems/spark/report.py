"""Compares the runs of spark.sh, and prints a line of a table for each: report.py VERSION FOLDER

Spark removes its state stores, and RocksDB's logs with them. So the jobs are those that Rockmill has counted.
"""
import json
import pathlib
import sys

version, folder = sys.argv[1], pathlib.Path(sys.argv[2])
model = int((folder / "model").read_text())
failed = []
for mode in "without", "with":
    cpu = commit = done = read = 0
    declined = {}
    for life in range(2):
        measured = json.loads((folder / f"{mode}.{life}.json").read_text())
        cpu += measured.get("cpu_rocksdb_compaction", 0) + measured.get("cpu_rockmill", 0)
        commit += measured["commit_s"]
        for stats in measured["rockmill"]:
            done += stats["jobs_done"]
            read += stats["read_bytes"]
            for reason, count in stats["jobs_declined_by_reason"].items():
                declined[reason] = declined.get(reason, 0) + count
            if stats["jobs_failed"]:
                failed.append(f"{mode}: jobs failed: {stats['jobs_failed_by_error']}")
        if life and measured.get("digest") != model:
            failed.append(f"{mode}: the state has {measured.get('digest')}, and the model {model}")
    if mode == "with" and (not done or set(declined) - {"small-job", "shutting-down"}):
        failed.append(f"Rockmill has done {done} jobs, and declined {declined}")
    declines = ", ".join(f"{count} {reason}" for reason, count in declined.items())
    print(f"| {version} | {mode} | {done} | {declines} | {read / 1e9:.2f} | {cpu:.1f} | {commit:.1f} |")
for what in failed:
    print(f"spark: {version}: {what}", file=sys.stderr)
sys.exit(bool(failed))
