//! What can go wrong, and where.

/// Operations of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    Open,
    Size,
    Read,
    Advise,
    List,
    Stat,
    Create,
    /// Room is made for what will be written.
    Reserve,
    Append,
    /// A file that was written in aligned units is cut to its size.
    Truncate,
    /// Written bytes are sent on to the disk; nobody waits for them.
    Writeback,
    Sync,
    SyncFolder,
    MakeFolders,
    Link,
    Rename,
    RemoveFile,
    RemoveFolder,
    RemoveTree,
    /// RocksDB renames a finished file into its directory.
    Install,
}

impl Op {
    /// Whether cleaning up takes it, so that leftovers are no wonder if it fails. Where they lie in a folder
    /// of the user's choice, the system must say first.
    pub fn cleans(self) -> bool {
        matches!(
            self,
            Self::Stat | Self::List | Self::RemoveFile | Self::RemoveFolder | Self::RemoveTree
        )
    }
}

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// The machine stops: the operation may be done, in part, or not at all.
    Crash,
    /// EIO, but from syncs; what was to be done may be done in part.
    Io,
    /// ENOSPC from what takes space.
    NoSpace,
    /// Some of the bytes given are written, then ENOSPC.
    ShortWrite,
    /// A sync fails, of a file or of a folder.
    FailedSync,
    /// Fewer bytes are read than were asked for.
    ShortRead,
    /// EINTR from a read.
    Interrupted,
    /// The operation takes half a minute, which does not pass.
    Slow,
    /// The database closes during the operation.
    Closing,
}

impl FaultKind {
    pub const ALL: [Self; 9] = [
        Self::Crash,
        Self::Io,
        Self::NoSpace,
        Self::ShortWrite,
        Self::FailedSync,
        Self::ShortRead,
        Self::Interrupted,
        Self::Slow,
        Self::Closing,
    ];

    /// Whether an operation can meet it.
    pub fn strikes(self, op: Op) -> bool {
        match self {
            Self::Crash | Self::Slow | Self::Closing => true,
            Self::Io => !matches!(op, Op::Writeback | Op::Sync | Op::SyncFolder | Op::Install),
            Self::NoSpace => matches!(
                op,
                Op::Create | Op::Reserve | Op::Append | Op::MakeFolders | Op::Link | Op::Rename
            ),
            Self::ShortWrite => op == Op::Append,
            Self::FailedSync => matches!(op, Op::Writeback | Op::Sync | Op::SyncFolder),
            Self::ShortRead | Self::Interrupted => op == Op::Read,
        }
    }

    /// Whether a job must be done in spite of it.
    pub fn is_harmless(self) -> bool {
        matches!(self, Self::ShortRead | Self::Interrupted | Self::Slow)
    }
}

/// A fault of one life of the engine.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub kind: FaultKind,
    pub op: Op,
    /// Strikes this one of all such operations, counted from 0.
    pub at: u64,
    /// Strikes whatever it can from then on: a disk that is full stays full.
    pub lasting: bool,
}
