"""Compares the runs of kafka.sh, and prints a line of a table for each: report.py VERSION FOLDER"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import logs

LEAST_SHARE = 0.95

version, folder = sys.argv[1], pathlib.Path(sys.argv[2])
model = (folder / "model").read_text().strip()
failed = []
for mode in "without", "with":
    total = {"jobs": 0, "input": 0, "cpu_s": 0.0, "stall_s": 0.0}
    cpu = share = done = declined = 0
    for life in range(3):
        measured = json.loads((folder / f"{mode}.{life}.json").read_text())
        logged = logs.read(folder / f"logs-{mode}-{life}")
        total = {name: total[name] + logged[name] for name in total}
        cpu += measured.get("cpu_rocksdb_compaction", 0) + measured.get("cpu_rockmill", 0)
        for stats in measured["rockmill"]:
            done += stats["jobs_done"]
            if life and stats["jobs_done"] and measured.get("metrics") in (None, "", "0"):
                failed.append("Kafka's metrics show no job done")
            declined += stats["jobs_declined"]
            share += stats["read_bytes"]
            if stats["jobs_failed"]:
                failed.append(f"{mode}: jobs failed: {stats['jobs_failed_by_error']}")
        if life and measured.get("digest") != model:
            failed.append(f"{mode}, life {life}: the stores have {measured.get('digest')}, and the model {model}")
        if life == 2 and measured.get("standby") != model:
            failed.append(f"{mode}: with standbys the stores have {measured.get('standby')}, and the model {model}")
        if life == 2:
            restore = measured["restore_s"], measured["restored"]
    share = share / total["input"] if total["input"] else 0
    if mode == "with" and share < LEAST_SHARE:
        failed.append(f"Rockmill has done {share:.1%} of the bytes")
    print(
        logs.row(
            f"Kafka Streams {version}",
            mode,
            total["jobs"],
            done,
            total["input"],
            share,
            cpu,
            total["stall_s"],
            restore_s=restore[0],
        )
    )
for what in failed:
    print(f"kafka: {version}: {what}", file=sys.stderr)
sys.exit(bool(failed))
