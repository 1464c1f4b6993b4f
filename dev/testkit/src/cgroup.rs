//! Control groups with a memory limit, as containers have.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Usual mount points of both versions, and the file that limits the memory of a group.
const HIERARCHIES: [(&str, &str); 2] = [
    ("/sys/fs/cgroup", "memory.max"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
];

/// A group of processes with limited memory, which is removed at the end.
#[derive(Debug)]
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Makes a group. `None` if that is not allowed, or if there is no such hierarchy.
    #[must_use]
    pub fn new(name: &str, bytes: u64) -> Option<Self> {
        let name = format!("{name}-{}", std::process::id());
        HIERARCHIES.iter().find_map(|(hierarchy, limit)| {
            let folder = Path::new(hierarchy).join(&name);
            fs::create_dir(&folder).ok()?;
            let group = Self(folder);
            // On another file system, a new folder has no such file.
            let limit = Some(group.0.join(limit)).filter(|file| file.exists())?;
            fs::write(limit, bytes.to_string()).ok()?;
            // Disables swap, so that the group is killed as a container without swap would be. Not every kernel counts
            // swap.
            let _ = fs::write(group.0.join("memory.swap.max"), "0");
            Some(group)
        })
    }

    /// A command that runs in the group.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        let procs = self.0.join("cgroup.procs");
        command.arg("-c").arg("echo $$ > \"$0\" && exec \"$@\"");
        command.arg(procs).arg(program);
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
