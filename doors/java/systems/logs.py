"""What RocksDB has logged in a folder: compactions, their input, their CPU time, and how long writes have waited. And the
table that all systems share."""
import json
import pathlib
import re

EVENT = re.compile(r"EVENT_LOG_v1 (\{.*\})")
STALL = re.compile(r"Cumulative stall: (\d+):(\d+):([\d.]+) H:M:S")


def read(folder):
    found = {"jobs": 0, "input": 0, "cpu_s": 0.0, "stall_s": 0.0}
    for path in pathlib.Path(folder).rglob("*LOG*"):
        stall = 0.0
        for line in path.open(errors="replace"):
            event = EVENT.search(line)
            if event:
                try:
                    event = json.loads(event.group(1))
                except ValueError:
                    continue  # The process was killed.
                if event["event"] == "compaction_started":
                    found["input"] += event["input_data_size"]
                elif event["event"] == "compaction_finished":
                    found["jobs"] += 1
                    found["cpu_s"] += event["compaction_time_cpu_micros"] / 1e6
            waited = STALL.search(line)
            if waited:
                hours, minutes, seconds = map(float, waited.groups())
                stall = 3600 * hours + 60 * minutes + seconds
        found["stall_s"] += stall
    return found


HEAD = (
    "| system | Rockmill | compactions | done by Rockmill | input, GB | share of bytes | CPU s of compaction | write stalls, s "
    "| restore, s | commits, s | files of a checkpoint |"
)


def row(system, mode, jobs, done, input_bytes, share, cpu_s, stall_s, restore_s=None, commit_s=None, files=None):
    """Returns a line of the table. None is not measured."""
    shown = lambda value, digits=1: "" if value is None else f"{value:.{digits}f}"
    jobs = "" if jobs is None else jobs
    return (
        f"| {system} | {mode} | {jobs} | {done} | {shown(input_bytes / 1e9, 2)} | {share:.1%} | {shown(cpu_s)} "
        f"| {shown(stall_s)} | {shown(restore_s)} | {shown(commit_s)} | {shown(files)} |"
    )


if __name__ == "__main__":
    print(HEAD)
    print("|---" * HEAD.count(" |") + "|")
