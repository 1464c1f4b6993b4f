"""Compares the runs of spark.sh, and prints a line of a table for each: report.py VERSION FOLDER

Spark removes its state stores, and RocksDB's logs with them. So bytes and stalls are those of Spark's metrics, which have
only what RocksDB has read itself, and the jobs are those that Rockmill has counted.
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import logs

LEAST_SHARE = 0.95

version, folder = sys.argv[1], pathlib.Path(sys.argv[2])
model = int((folder / "model").read_text())
failed = []
for mode in "without", "with":
    cpu = commit = done = read = own = stall = 0
    declined = {}
    for life in range(2):
        measured = json.loads((folder / f"{mode}.{life}.json").read_text())
        cpu += measured.get("cpu_rocksdb_compaction", 0) + measured.get("cpu_rockmill", 0)
        commit += measured["commit_s"]
        own += measured["compaction_read_bytes"]
        stall += measured["stall_s"]
        for stats in measured["rockmill"]:
            done += stats["jobs_done"]
            read += stats["read_bytes"]
            for reason, count in stats["jobs_declined_by_reason"].items():
                declined[reason] = declined.get(reason, 0) + count
            if stats["jobs_failed"]:
                failed.append(f"{mode}: jobs failed: {stats['jobs_failed_by_error']}")
        if life and measured.get("digest") != model:
            failed.append(f"{mode}: the state has {measured.get('digest')}, and the model {model}")
    share = read / (read + own) if read + own else 0
    if mode == "with" and (share < LEAST_SHARE or set(declined) - {"small-job", "shutting-down"}):
        failed.append(f"Rockmill has done {done} jobs and {share:.1%} of the bytes, and declined {declined}")
    print(logs.row(f"Spark {version}", mode, None, done, read + own, share, cpu, stall, commit_s=commit))
for what in failed:
    print(f"spark: {version}: {what}", file=sys.stderr)
sys.exit(bool(failed))
