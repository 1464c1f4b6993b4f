"""Compares the runs of flink.sh, and prints a line of a table for each: report.py VERSION FOLDER"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import logs

# Flink's stores have many compactions with less than min_job_bytes.
LEAST_SHARE = 0.95
# The number of files depends on the moment of a checkpoint.
MOST_FILES = 1.1

version, folder = sys.argv[1], pathlib.Path(sys.argv[2])
model = int((folder / "model").read_text())
failed = []
files = {}
for mode in "without", "with":
    total = {"jobs": 0, "input": 0, "cpu_s": 0.0, "stall_s": 0.0}
    cpu = share = done = checkpoints = 0
    declined = {}
    files[mode] = 0
    for life in range(2):
        measured = json.loads((folder / f"{mode}.{life}.json").read_text())
        logged = logs.read(folder / f"logs-{mode}-{life}")
        total = {name: total[name] + logged[name] for name in total}
        cpu += measured.get("cpu_rocksdb_compaction", 0) + measured.get("cpu_rockmill", 0)
        checkpoints += measured["checkpoints"]
        files[mode] += measured["checkpoints"] * measured["mean_files"]
        for stats in measured["rockmill"]:
            done += stats["jobs_done"]
            share += stats["read_bytes"]
            declined.update(stats["jobs_declined_by_reason"])
            if stats["jobs_failed"]:
                failed.append(f"{mode}: jobs failed: {stats['jobs_failed_by_error']}")
        if life and measured.get("digest") != model:
            failed.append(f"{mode}: the state has {measured.get('digest')}, and the model {model}")
    files[mode] /= checkpoints
    share = share / total["input"] if total["input"] else 0
    if mode == "with" and (not LEAST_SHARE <= share <= logs.MOST_SHARE or set(declined) - {"small-job", "shutting-down"}):
        failed.append(f"Rockmill has done {share:.1%} of the bytes, and declined {declined}")
    print(
        logs.row(
            f"Flink {version}", mode, total["jobs"], done, total["input"], share, cpu, total["stall_s"], files=files[mode]
        )
    )
if files["with"] > MOST_FILES * files["without"]:
    failed.append(f"a checkpoint has {files['with']:.1f} files, and {files['without']:.1f} without Rockmill")
for what in failed:
    print(f"flink: {version}: {what}", file=sys.stderr)
sys.exit(bool(failed))
