//! A file system in memory that knows what a crash would leave of it.
//!
//! ```text
//! file    writes, front to back      each: pending | synced | lost
//! folder  names as they are now, names as they are on the disk
//! ```
//!
//! Syncing a file keeps its pending writes, syncing a folder the names in it, and neither does the
//! other's work or that of the folders above. A sync that fails loses what it was to keep: a later one
//! does not bring it back, though it can still be read, as on Linux.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rand::Rng;
use rand::rngs::SmallRng;

/// A file or a folder, whatever its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node(usize);

const ROOT: Node = Node(0);

/// What a crash does with all that is not synced.
#[derive(Debug)]
pub enum Luck<'a> {
    /// Nothing of it survives.
    Worst,
    /// All of it survives.
    Best,
    /// Every write and every name for itself, writes also in part.
    Random(&'a mut SmallRng),
}

impl Luck<'_> {
    /// How many of `whole` bytes survive.
    fn part(&mut self, whole: usize) -> usize {
        match self {
            Self::Worst => 0,
            Self::Best => whole,
            Self::Random(rng) => match rng.random_range(0..3) {
                0 => 0,
                1 => whole,
                _ => rng.random_range(0..=whole),
            },
        }
    }

    fn keeps(&mut self) -> bool {
        match self {
            Self::Worst => false,
            Self::Best => true,
            Self::Random(rng) => rng.random(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Pending,
    Synced,
    /// Its sync failed.
    Lost,
}

#[derive(Debug, Clone, Default)]
struct File {
    /// Zeros where nothing was written.
    bytes: Vec<u8>,
    /// In their order, which is that of the file.
    writes: Vec<(Range<usize>, State)>,
}

impl File {
    /// End of what was written.
    fn written(&self) -> usize {
        self.writes.last().map_or(0, |(range, _)| range.end)
    }

    fn write_at(&mut self, bytes: &[u8], start: usize) {
        assert!(self.written() <= start, "files are written front to back");
        let range = start..start + bytes.len();
        self.reserve(range.end);
        self.bytes[range.clone()].copy_from_slice(bytes);
        self.writes.push((range, State::Pending));
    }

    /// Makes the file at least so long.
    fn reserve(&mut self, len: usize) {
        self.bytes.resize(self.bytes.len().max(len), 0);
    }

    /// Cuts what was not synced.
    fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
        self.bytes.shrink_to_fit();
        for (range, _) in &mut self.writes {
            *range = range.start.min(len)..range.end.min(len);
        }
        self.writes.retain(|(range, _)| !range.is_empty());
    }

    fn settle(&mut self, becomes: State) {
        for (_, state) in &mut self.writes {
            if *state == State::Pending {
                *state = becomes;
            }
        }
    }

    fn is_durable(&self) -> bool {
        self.writes.iter().all(|(_, state)| *state == State::Synced)
    }

    fn crash(&mut self, luck: &mut Luck<'_>) {
        let mut left = Vec::new();
        if self.written() < self.bytes.len() {
            // Room survives by itself.
            left.resize(luck.part(self.bytes.len()), 0);
        }
        for (range, state) in &self.writes {
            let part = match state {
                State::Synced => range.len(),
                State::Pending => luck.part(range.len()),
                State::Lost => 0,
            };
            if part > 0 {
                let range = range.start..range.start + part;
                // What an earlier write that is gone should have filled reads as zeros.
                left.resize(left.len().max(range.end), 0);
                left[range.clone()].copy_from_slice(&self.bytes[range]);
            }
        }
        self.writes = vec![(0..left.len(), State::Synced)];
        self.bytes = left;
    }
}

#[derive(Debug, Clone, Default)]
struct Folder {
    names: BTreeMap<String, Node>,
    synced: BTreeMap<String, Node>,
    /// Names whose last change was lost.
    lost: BTreeSet<String>,
}

impl Folder {
    fn set(&mut self, name: &str, node: Option<Node>) {
        self.lost.remove(name);
        match node {
            Some(node) => self.names.insert(name.to_owned(), node),
            None => self.names.remove(name),
        };
    }

    fn changed(&self) -> Vec<String> {
        let all: BTreeSet<&String> = self.names.keys().chain(self.synced.keys()).collect();
        let changed = |name: &&&String| self.names.get(**name) != self.synced.get(**name);
        all.iter()
            .filter(changed)
            .map(|&name| name.clone())
            .collect()
    }

    /// Makes the changes durable that are not lost and that `keeps` says yes to.
    fn sync(&mut self, mut keeps: impl FnMut() -> bool) {
        for name in self.changed() {
            if self.lost.contains(&name) || !keeps() {
                continue;
            }
            match self.names.get(&name) {
                Some(&node) => self.synced.insert(name, node),
                None => self.synced.remove(&name),
            };
        }
    }

    fn crash(&mut self, luck: &mut Luck<'_>) {
        self.sync(|| luck.keeps());
        self.names = self.synced.clone();
        self.lost.clear();
    }
}

#[derive(Debug, Clone)]
enum Body {
    File(File),
    Folder(Folder),
}

/// One change of names.
#[derive(Debug, Clone)]
pub enum Step {
    MakeFolder(PathBuf),
    Remove(PathBuf),
}

/// The file system; paths are absolute.
#[derive(Debug, Clone)]
pub struct Disk {
    bodies: Vec<Body>,
}

impl Disk {
    /// An empty root folder.
    pub fn new() -> Self {
        Self {
            bodies: vec![Body::Folder(Folder::default())],
        }
    }

    fn new_node(&mut self, body: Body) -> Node {
        self.bodies.push(body);
        Node(self.bodies.len() - 1)
    }

    fn find(&self, path: &Path) -> io::Result<Node> {
        let names = path.iter().skip(1);
        names.into_iter().try_fold(ROOT, |node, name| {
            let folder = self.folder(node)?;
            let name = name.to_str().expect("names are text");
            let found = folder.names.get(name).copied();
            found.ok_or_else(|| ErrorKind::NotFound.into())
        })
    }

    fn folder(&self, node: Node) -> io::Result<&Folder> {
        match &self.bodies[node.0] {
            Body::Folder(folder) => Ok(folder),
            Body::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn folder_mut(&mut self, node: Node) -> io::Result<&mut Folder> {
        match &mut self.bodies[node.0] {
            Body::Folder(folder) => Ok(folder),
            Body::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn file(&self, node: Node) -> &File {
        match &self.bodies[node.0] {
            Body::File(file) => file,
            Body::Folder(_) => panic!("a folder was opened as a file"),
        }
    }

    fn file_mut(&mut self, node: Node) -> &mut File {
        match &mut self.bodies[node.0] {
            Body::File(file) => file,
            Body::Folder(_) => panic!("a folder was opened as a file"),
        }
    }

    fn set(&mut self, path: &Path, node: Option<Node>) -> io::Result<()> {
        let folder = self.find(parent(path))?;
        self.folder_mut(folder)?.set(base(path), node);
        Ok(())
    }

    /// The file of that name.
    pub fn open(&self, path: &Path) -> io::Result<Node> {
        let node = self.find(path)?;
        match self.bodies[node.0] {
            Body::File(_) => Ok(node),
            Body::Folder(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    /// A new, empty file.
    pub fn create(&mut self, path: &Path) -> io::Result<Node> {
        self.require_free(path)?;
        let node = self.new_node(Body::File(File::default()));
        self.set(path, Some(node))?;
        Ok(node)
    }

    fn require_free(&self, path: &Path) -> io::Result<()> {
        self.find(parent(path))?;
        match self.find(path) {
            Ok(_) => Err(ErrorKind::AlreadyExists.into()),
            Err(_) => Ok(()),
        }
    }

    pub fn bytes(&self, node: Node) -> &[u8] {
        &self.file(node).bytes
    }

    /// Writes behind what was written before.
    pub fn append(&mut self, node: Node, bytes: &[u8]) {
        let file = self.file_mut(node);
        file.write_at(bytes, file.written());
    }

    /// Writes at an offset, behind zeros if what was written ends before.
    pub fn write_at(&mut self, node: Node, bytes: &[u8], offset: usize) {
        self.file_mut(node).write_at(bytes, offset);
    }

    /// Makes a file at least so long, with zeros.
    pub fn reserve(&mut self, node: Node, len: usize) {
        self.file_mut(node).reserve(len);
    }

    /// Cuts a file to `len` bytes. That is durable once the file is synced, which it was not before.
    pub fn truncate(&mut self, node: Node, len: usize) {
        self.file_mut(node).truncate(len);
    }

    /// Makes the file's bytes durable, or loses those that are not yet.
    pub fn sync(&mut self, node: Node, works: bool) {
        let becomes = if works { State::Synced } else { State::Lost };
        self.file_mut(node).settle(becomes);
    }

    /// Makes the names in a folder durable, or loses those changes that are not yet.
    pub fn sync_folder(&mut self, path: &Path, works: bool) -> io::Result<()> {
        let node = self.find(path)?;
        let folder = self.folder_mut(node)?;
        if works {
            folder.sync(|| true);
        } else {
            folder.lost.extend(folder.changed());
        }
        Ok(())
    }

    /// A second name for a file.
    pub fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.open(from)?;
        self.require_free(to)?;
        self.set(to, Some(node))
    }

    /// Another name for a file, in place of whatever had it. A crash may leave it under both or none.
    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.open(from)?;
        self.set(to, Some(node))?;
        self.set(from, None)
    }

    /// A folder's number, which stays as long as it is there.
    pub fn folder_number(&self, path: &Path) -> io::Result<u64> {
        let node = self.find(path)?;
        self.folder(node)?;
        Ok(node.0 as u64)
    }

    /// Names in a folder.
    pub fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let folder = self.folder(self.find(path)?)?;
        Ok(folder.names.keys().cloned().collect())
    }

    /// The folders that are to be made so that there is one at `path`.
    pub fn steps_to_make(&self, path: &Path) -> Vec<Step> {
        let missing = path.ancestors().filter(|above| self.find(above).is_err());
        let mut steps: Vec<_> = missing.map(|p| Step::MakeFolder(p.to_owned())).collect();
        steps.reverse();
        steps
    }

    /// What is to be removed so that nothing is left of the folder.
    pub fn steps_to_remove(&self, path: &Path) -> io::Result<Vec<Step>> {
        let mut steps = Vec::new();
        for name in self.list(path)? {
            let below = path.join(name);
            if self.list(&below).is_ok() {
                steps.extend(self.steps_to_remove(&below)?);
            } else {
                steps.push(Step::Remove(below));
            }
        }
        steps.push(Step::Remove(path.to_owned()));
        Ok(steps)
    }

    pub fn take_step(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::MakeFolder(path) => {
                let node = self.new_node(Body::Folder(Folder::default()));
                self.set(path, Some(node))
            }
            Step::Remove(path) => self.remove(path),
        }
    }

    /// Removes a file or an empty folder.
    pub fn remove(&mut self, path: &Path) -> io::Result<()> {
        let node = self.find(path)?;
        match &self.bodies[node.0] {
            Body::Folder(folder) if !folder.names.is_empty() => {
                Err(ErrorKind::DirectoryNotEmpty.into())
            }
            _ => self.set(path, None),
        }
    }

    /// Whether a crash would leave the whole file under its name in its folder.
    pub fn is_durable(&self, path: &Path) -> bool {
        let Ok(node) = self.open(path) else {
            return false;
        };
        let folder = self.find(parent(path)).and_then(|f| self.folder(f));
        let synced = folder.is_ok_and(|folder| folder.synced.get(base(path)) == Some(&node));
        synced && self.file(node).is_durable()
    }

    /// The disk as a crash leaves it; all of that is durable.
    pub fn after_crash(&self, luck: &mut Luck<'_>) -> Self {
        let mut disk = self.clone();
        for body in &mut disk.bodies {
            match body {
                Body::File(file) => file.crash(luck),
                Body::Folder(folder) => folder.crash(luck),
            }
        }
        disk
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().expect("not the root")
}

fn base(path: &Path) -> &str {
    let name = path.file_name().expect("not the root");
    name.to_str().expect("names are text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(disk: &Disk, path: &str) -> Option<Vec<u8>> {
        let node = disk.open(Path::new(path)).ok()?;
        Some(disk.bytes(node).to_vec())
    }

    #[test]
    fn a_file_takes_a_sync_of_its_own_and_one_of_its_folder() {
        let mut disk = Disk::new();
        let path = Path::new("/a");
        let file = disk.create(path).expect("a new file");
        disk.append(file, b"one");
        disk.sync(file, true);
        assert_eq!(read(&disk.after_crash(&mut Luck::Worst), "/a"), None);
        disk.sync_folder(Path::new("/"), true).expect("the root");
        assert!(disk.is_durable(path));
        disk.append(file, b"two");
        assert!(!disk.is_durable(path));
        let after = |luck: &mut Luck<'_>| read(&disk.after_crash(luck), "/a").expect("it is there");
        assert_eq!(after(&mut Luck::Worst), b"one");
        assert_eq!(after(&mut Luck::Best), b"onetwo");
    }

    #[test]
    fn what_a_failed_sync_lost_does_not_come_back() {
        let mut disk = Disk::new();
        let root = Path::new("/");
        let [a, b] = ["/a", "/b"].map(Path::new);
        let file = disk.create(a).expect("a new file");
        disk.append(file, b"one");
        disk.sync(file, false);
        disk.append(file, b"two");
        disk.sync(file, true);
        disk.sync_folder(root, true).expect("the root");
        disk.create(b).expect("a new file");
        disk.sync_folder(root, false).expect("the root");
        disk.sync_folder(root, true).expect("the root");
        assert_eq!(read(&disk, "/a").expect("it is there"), b"onetwo");
        let after = disk.after_crash(&mut Luck::Best);
        assert_eq!(read(&after, "/a").expect("it is there"), b"\0\0\0two");
        assert_eq!(read(&after, "/b"), None);
        assert!(!disk.is_durable(a) && !disk.is_durable(b));
    }

    #[test]
    fn room_that_was_made_reads_as_zeros_until_it_is_written() {
        let mut disk = Disk::new();
        let path = Path::new("/a");
        let file = disk.create(path).expect("a new file");
        disk.sync_folder(Path::new("/"), true).expect("the root");
        disk.reserve(file, 6);
        disk.append(file, b"one");
        assert_eq!(read(&disk, "/a").expect("it is there"), b"one\0\0\0");
        let after = |disk: &Disk, luck: &mut Luck<'_>| {
            read(&disk.after_crash(luck), "/a").expect("it is there")
        };
        assert_eq!(after(&disk, &mut Luck::Worst), b"");
        assert_eq!(after(&disk, &mut Luck::Best), b"one\0\0\0");
        disk.truncate(file, 4);
        disk.append(file, b"t");
        disk.sync(file, true);
        assert_eq!(after(&disk, &mut Luck::Worst), b"onet");
    }

    #[test]
    fn what_was_removed_may_come_back_until_its_folder_is_synced() {
        let mut disk = Disk::new();
        let root = Path::new("/");
        disk.create(Path::new("/a")).expect("a new file");
        disk.sync_folder(root, true).expect("the root");
        disk.remove(Path::new("/a")).expect("it is there");
        assert!(read(&disk.after_crash(&mut Luck::Worst), "/a").is_some());
        disk.sync_folder(root, true).expect("the root");
        assert_eq!(read(&disk.after_crash(&mut Luck::Worst), "/a"), None);
    }
}
