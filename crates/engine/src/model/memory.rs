//! How much memory may be filled before the system ends a process: the machine's and the control group's.

use std::fs;
use std::path::Path;

/// Bytes that are free, or soon would be, of the machine and of each control group that this process belongs to; all there
/// are if the system does not say.
pub fn free() -> u64 {
    let about = fs::read_to_string("/proc/meminfo").ok();
    let machine = about.and_then(|text| Some(field(&text, "MemAvailable:")? << 10));
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = free_of_groups(Path::new("/sys/fs/cgroup"), &own);
    machine.into_iter().chain(groups).min().unwrap_or(u64::MAX)
}

/// The first number behind a name at the begin of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    lines.find_map(|mut line| {
        let is_it = line.next() == Some(name);
        let number = is_it.then(|| line.next())??;
        number.parse().ok()
    })
}

/// Names of a group's files: its limit, what counts against it, and of that what is easily given up.
struct Names {
    limit: &'static str,
    used: &'static str,
    spare: &'static str,
}

const V2: Names = Names {
    limit: "memory.max",
    used: "memory.current",
    spare: "inactive_file",
};

const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    spare: "total_inactive_file",
};

/// The least that groups under `root` leave free which a process belongs to whose `/proc/self/cgroup` is `own`; `None`
/// if none has a limit. A container sees its own group as the root, whatever `own` says.
fn free_of_groups(root: &Path, own: &str) -> Option<u64> {
    let groups = own.lines().filter_map(|line| {
        let (_, line) = line.split_once(':')?;
        let (controllers, group) = line.split_once(':')?;
        let group = Path::new(group.trim_start_matches('/'));
        match controllers {
            "" => Some((root.to_owned(), group, &V2)),
            _ if controllers.split(',').any(|c| c == "memory") => {
                Some((root.join("memory"), group, &V1))
            }
            _ => None,
        }
    });
    let free = groups.flat_map(|(root, group, names)| {
        let all = group.ancestors().map(move |group| root.join(group));
        all.filter_map(|group| free_of(&group, names))
    });
    free.min()
}

fn free_of(group: &Path, names: &Names) -> Option<u64> {
    let read = |name| fs::read_to_string(group.join(name)).ok();
    let number = |name| read(name)?.trim().parse::<u64>().ok();
    let (limit, used) = (number(names.limit)?, number(names.used)?);
    let spare = read("memory.stat").and_then(|text| field(&text, names.spare));
    let used = used.saturating_sub(spare.unwrap_or(0));
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group's files under `root`.
    fn group(root: &Path, group: &str, files: &[(&str, &str)]) {
        let folder = root.join(group);
        fs::create_dir_all(&folder).expect("there is room");
        for (name, text) in files {
            fs::write(folder.join(name), text).expect("there is room");
        }
    }

    #[test]
    fn the_tightest_group_counts_and_pages_that_go_easily_are_free() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        let free = |own| free_of_groups(root, own);
        assert_eq!(free("0::/a/b\n"), None);
        group(
            root,
            "a/b",
            &[("memory.max", "max\n"), ("memory.current", "70\n")],
        );
        assert_eq!(free("0::/a/b\n"), None);
        let stat = "file 60\ninactive_file 40\nactive_file 20\n";
        let limited = [
            ("memory.max", "100\n"),
            ("memory.current", "90\n"),
            ("memory.stat", stat),
        ];
        group(root, "a", &limited);
        assert_eq!(free("0::/a/b\n"), Some(50));
        assert_eq!(free("0::/elsewhere\n"), None);
        group(root, "", &[("memory.max", "30"), ("memory.current", "40")]);
        assert_eq!(free("0::/a/b\n"), Some(0), "more is used than may be");
    }

    #[test]
    fn groups_of_the_first_version_count_as_well() {
        let root = tempfile::tempdir().expect("a folder");
        let files = [
            ("memory.limit_in_bytes", "1000\n"),
            ("memory.usage_in_bytes", "900\n"),
            ("memory.stat", "inactive_file 1\ntotal_inactive_file 100\n"),
        ];
        group(root.path(), "memory", &files);
        let own = "5:cpu,cpuacct:/x\n4:memory:/of/the/host\n0::/\n";
        assert_eq!(free_of_groups(root.path(), own), Some(200));
        assert_eq!(free_of_groups(root.path(), "nonsense\n1:\n"), None);
    }

    #[test]
    fn this_machine_says_what_is_free() {
        assert!(free() < u64::MAX);
        assert_eq!(field("A: 1 kB\nAB: 2 kB\nB:\n", "AB:"), Some(2));
        assert_eq!(field("A: 1 kB\nB:\n", "B:"), None);
    }
}
