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

mod file;
mod folder;
mod luck;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use file::{File, State};
use folder::Folder;
pub use luck::Luck;

/// A file or a folder, whatever its names.
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
    /// An empty root folder.
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
