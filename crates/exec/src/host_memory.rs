//! How much memory of the host this process may use: that of the machine, or less if a cgroup limits it.
//!
//! All defaults that depend on the memory come from here. Limits are read anew by each call, because an administrator may
//! change them.

use std::fs;
use std::path::{Path, PathBuf};

/// Budgets take 1/`SHARE` of the memory by default, because RocksDB and the rest of the program need memory too.
const SHARE: u64 = 2;

/// The default of budgets where the memory does not require less.
const USUAL_BUDGET_BYTES: u64 = 512 << 20;

/// The least budget. With less memory, the output buffers of a single subcompaction do not fit.
pub const MIN_BUDGET_BYTES: u64 = 32 << 20;

/// Memory that this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMemory {
    /// The limit in bytes.
    pub bytes: u64,
    /// File of the cgroup that states the limit; `None` if it is the memory of the machine.
    pub limited_by: Option<PathBuf>,
}

impl HostMemory {
    /// The memory of the machine, or the smallest limit of the cgroups of this process, if that is less. Both versions of
    /// cgroups are read, and all ancestors that are visible here.
    pub fn now() -> Self {
        let read = |path: &Path| fs::read_to_string(path).ok();
        let limits = cgroup_limits(&read);
        let machine = Self {
            bytes: machine_bytes(),
            limited_by: None,
        };
        limits.into_iter().fold(machine, |least, (bytes, file)| {
            if bytes >= least.bytes {
                return least;
            }
            Self {
                bytes,
                limited_by: Some(file),
            }
        })
    }

    /// Half of this memory: for a budget that is to be as large as possible.
    pub fn half(&self) -> u64 {
        (self.bytes / SHARE).max(MIN_BUDGET_BYTES)
    }
}

/// Default host memory of a budget: 512 MiB, or half of what this process may use if that is less.
pub fn default_budget_bytes() -> u64 {
    HostMemory::now().half().min(USUAL_BUDGET_BYTES)
}

/// Memory of the machine.
pub fn machine_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    (system.totalram as u64).saturating_mul(system.mem_unit.into())
}

/// Reads a file; `None` if it cannot be read.
type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// Limits of the cgroups of this process, and the files that state them.
fn cgroup_limits(read: Read<'_>) -> Vec<(u64, PathBuf)> {
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let mounts = read(Path::new("/proc/self/mountinfo")).unwrap_or_default();
    let mut limits = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        let group = groups.lines().find_map(|line| mount.group(line));
        let group = group.and_then(|group| Path::new(group).strip_prefix(&mount.root).ok());
        // A group outside of the namespace's root begins with two dots (cgroup_namespaces(7)). The mount does not show it.
        let Some(group) = group.filter(|group| !group.starts_with("..")) else {
            continue;
        };
        let folder = mount.folder.join(group);
        match mount.version {
            Version::One => limits.extend(limit_of_version_1(&folder, read)),
            Version::Two => {
                let visible = folder.ancestors();
                let visible = visible.take_while(|folder| folder.starts_with(&mount.folder));
                limits.extend(visible.flat_map(|folder| limits_of_version_2(folder, read)));
            }
        }
    }
    limits
}

/// The least limit of a group and all of its ancestors, also of those that are not visible here.
fn limit_of_version_1(folder: &Path, read: Read<'_>) -> Option<(u64, PathBuf)> {
    let file = folder.join("memory.stat");
    let stat = read(&file)?;
    let mut lines = stat.lines();
    let limit = lines.find_map(|line| line.strip_prefix("hierarchical_memory_limit "))?;
    Some((limit.trim().parse().ok()?, file))
}

/// The limit of a group, and the bytes from which on its processes are slowed down.
fn limits_of_version_2(folder: &Path, read: Read<'_>) -> Vec<(u64, PathBuf)> {
    let files = ["memory.max", "memory.high"].map(|name| folder.join(name));
    let limit = |file: PathBuf| Some((read(&file)?.trim().parse().ok()?, file));
    files.into_iter().filter_map(limit).collect()
}

enum Version {
    One,
    Two,
}

/// A mounted hierarchy of cgroups that may limit memory.
struct Mount {
    version: Version,
    /// The group that is mounted.
    root: PathBuf,
    /// Its mount point.
    folder: PathBuf,
}

impl Mount {
    /// Parses a line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)). `None` for other file systems.
    fn parse(line: &str) -> Option<Self> {
        const FIRST_OPTION: usize = 6;
        let fields: Vec<&str> = line.split(' ').collect();
        let (root, folder) = (fields.get(3)?, fields.get(4)?);
        // Optional fields end with a dash. Type, source and options of the file system follow.
        let dash = fields.iter().skip(FIRST_OPTION).position(|f| *f == "-")? + FIRST_OPTION;
        let (kind, options) = (fields.get(dash + 1)?, fields.get(dash + 3)?);
        let version = match *kind {
            "cgroup2" => Version::Two,
            "cgroup" if options.split(',').any(|option| option == "memory") => Version::One,
            _ => return None,
        };
        Some(Self {
            version,
            root: unescape(root),
            folder: unescape(folder),
        })
    }

    /// The group that a line of `/proc/self/cgroup` names (cgroups(7)), if it is one of this hierarchy.
    fn group<'l>(&self, line: &'l str) -> Option<&'l str> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let is_of_this = match self.version {
            Version::One => controllers.split(',').any(|name| name == "memory"),
            Version::Two => controllers.is_empty(),
        };
        is_of_this.then_some(group)
    }
}

/// A path of mountinfo, in which spaces, tabs, line ends and backslashes are octal numbers.
fn unescape(text: &str) -> PathBuf {
    let codes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let plain = |text: String, (code, plain): &(&str, &str)| text.replace(code, plain);
    PathBuf::from(codes.iter().fold(text.to_owned(), plain))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Limits where the files have these contents.
    fn limits(files: &[(&str, &str)]) -> Vec<(u64, String)> {
        let files: HashMap<_, _> = files
            .iter()
            .map(|(path, text)| (PathBuf::from(path), (*text).to_owned()))
            .collect();
        let limits = cgroup_limits(&|path| files.get(path).cloned());
        let limits = limits.into_iter();
        limits
            .map(|(bytes, file)| (bytes, file.display().to_string()))
            .collect()
    }

    #[test]
    fn all_visible_ancestors_of_version_2_limit() {
        let files = [
            ("/proc/self/cgroup", "0::/kubepods/pod1/main\n"),
            (
                "/proc/self/mountinfo",
                "22 1 8:1 / / rw - ext4 /dev/sda rw\n30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
            ),
            ("/sys/fs/cgroup/kubepods/pod1/main/memory.max", "max\n"),
            ("/sys/fs/cgroup/kubepods/pod1/main/memory.high", "3000\n"),
            ("/sys/fs/cgroup/kubepods/pod1/memory.max", "2000\n"),
            ("/sys/fs/cgroup/kubepods/memory.max", "4000\n"),
            ("/sys/fs/memory.max", "1\n"),
        ];
        let base = "/sys/fs/cgroup/kubepods";
        let expected = [
            (3000, format!("{base}/pod1/main/memory.high")),
            (2000, format!("{base}/pod1/memory.max")),
            (4000, format!("{base}/memory.max")),
        ];
        assert_eq!(limits(&files), expected);
    }

    #[test]
    fn a_group_that_is_mounted_in_a_container_is_found_without_its_path() {
        let mounts = "30 22 0:26 /docker/af /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
                      31 22 0:27 /docker/af /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
        let stat = "cache 4\nhierarchical_memory_limit 268435456\nhierarchical_memsw_limit 9\n";
        let files = [
            (
                "/proc/self/cgroup",
                "4:cpu:/docker/af\n3:memory:/docker/af\n0::/\n",
            ),
            ("/proc/self/mountinfo", mounts),
            ("/sys/fs/cgroup/memory/memory.stat", stat),
        ];
        let expected = (256 << 20, "/sys/fs/cgroup/memory/memory.stat".to_owned());
        assert_eq!(limits(&files), [expected]);
    }

    #[test]
    fn groups_of_other_mounts_and_malformed_lines_say_nothing() {
        let files = [
            ("/proc/self/cgroup", "x\n0::/../other\n"),
            (
                "/proc/self/mountinfo",
                "\n30 22 0:26 / /sys\\040fs rw - cgroup2 cgroup2 rw\n1 2 3 4 5 6 -\n",
            ),
            ("/sys fs/memory.max", "100\n"),
            ("/other/memory.max", "100\n"),
        ];
        assert_eq!(limits(&files), []);
        let mut mine = files;
        mine[0].1 = "0::/\n";
        assert_eq!(limits(&mine), [(100, "/sys fs/memory.max".to_owned())]);
        assert_eq!(limits(&[]), []);
    }

    #[test]
    fn defaults_are_within_the_memory() {
        let memory = HostMemory::now();
        assert!(memory.bytes <= machine_bytes());
        let small = HostMemory {
            bytes: 256 << 20,
            limited_by: None,
        };
        assert_eq!(small.half(), 128 << 20);
        let tiny = HostMemory { bytes: 1, ..small };
        assert_eq!(tiny.half(), MIN_BUDGET_BYTES);
        assert!((MIN_BUDGET_BYTES..=USUAL_BUDGET_BYTES).contains(&default_budget_bytes()));
    }
}
