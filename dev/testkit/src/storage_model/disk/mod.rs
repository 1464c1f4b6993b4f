//! A file system in memory that models the effects of a crash.
//!
//! * A file has writes, front to back. Each is pending, synced or lost.
//! * A folder has its current names and its durable names.
//!
//! Syncing a file keeps its pending writes, and syncing a folder keeps its names. Neither affects the other, or parent
//! folders. A failed sync loses its changes: a later sync does not restore them, although they can still be read, as on
//! Linux.

mod file;
mod folder;
mod survival;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use file::{File, State};
use folder::Folder;
pub use survival::Survival;

/// A file or a folder, independent of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node(usize);

const ROOT: Node = Node(0);

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

impl Default for Disk {
    /// Creates an empty root folder.
    fn default() -> Self {
        Self {
            bodies: vec![Body::Folder(Folder::default())],
        }
    }
}

impl Disk {
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

    /// Returns the file with that name.
    pub fn open(&self, path: &Path) -> io::Result<Node> {
        let node = self.find(path)?;
        match self.bodies[node.0] {
            Body::File(_) => Ok(node),
            Body::Folder(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    /// Creates an empty file.
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

    /// Appends to the written bytes.
    pub fn append(&mut self, node: Node, bytes: &[u8]) {
        let file = self.file_mut(node);
        file.write_at(bytes, file.written());
    }

    /// Writes at an offset. A gap after the written bytes is filled with zeros.
    pub fn write_at(&mut self, node: Node, bytes: &[u8], offset: usize) {
        self.file_mut(node).write_at(bytes, offset);
    }

    /// Extends a file to at least `len` bytes, with zeros.
    pub fn reserve(&mut self, node: Node, len: usize) {
        self.file_mut(node).reserve(len);
    }

    /// Truncates a file to `len` bytes. This is durable after the next sync.
    pub fn truncate(&mut self, node: Node, len: usize) {
        self.file_mut(node).truncate(len);
    }

    /// Syncs a file: makes its pending bytes durable, or loses them if it does not work.
    pub fn sync(&mut self, node: Node, works: bool) {
        let becomes = if works { State::Synced } else { State::Lost };
        self.file_mut(node).settle(becomes);
    }

    /// Syncs a folder: makes its pending names durable, or loses these changes if it does not work.
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

    /// Gives a file a second name.
    pub fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.open(from)?;
        self.require_free(to)?;
        self.set(to, Some(node))
    }

    /// Renames a file and replaces an existing target. After a crash, it may have both names or none.
    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.open(from)?;
        self.set(to, Some(node))?;
        self.set(from, None)
    }

    /// Returns a folder's number, which is constant as long as the folder exists.
    pub fn folder_number(&self, path: &Path) -> io::Result<u64> {
        let node = self.find(path)?;
        self.folder(node)?;
        Ok(node.0 as u64)
    }

    /// Returns the names in a folder.
    pub fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let folder = self.folder(self.find(path)?)?;
        Ok(folder.names.keys().cloned().collect())
    }

    /// Returns the folders to create so that `path` exists.
    pub fn steps_to_make(&self, path: &Path) -> Vec<Step> {
        let missing = path.ancestors().filter(|above| self.find(above).is_err());
        let mut steps: Vec<_> = missing.map(|p| Step::MakeFolder(p.to_owned())).collect();
        steps.reverse();
        steps
    }

    /// Returns the steps that remove the folder and its contents.
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

    /// Whether the whole file and its name in its folder would survive a crash.
    pub fn is_durable(&self, path: &Path) -> bool {
        let Ok(node) = self.open(path) else {
            return false;
        };
        let folder = self.find(parent(path)).and_then(|f| self.folder(f));
        let synced = folder.is_ok_and(|folder| folder.synced.get(base(path)) == Some(&node));
        synced && self.file(node).is_durable()
    }

    /// Returns the disk after a crash; everything on it is durable.
    pub fn after_crash(&self, survival: &mut Survival<'_>) -> Self {
        let mut disk = self.clone();
        for body in &mut disk.bodies {
            match body {
                Body::File(file) => file.crash(survival),
                Body::Folder(folder) => folder.crash(survival),
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
