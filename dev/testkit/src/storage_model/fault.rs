//! Faults of a file system, and the operations that they affect.

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
    /// Preallocation of a file.
    Reserve,
    Append,
    /// Truncation of a file that was written in aligned units.
    Truncate,
    /// Start of writeback, without waiting for it.
    Writeback,
    Sync,
    SyncFolder,
    MakeFolders,
    Link,
    Rename,
    RemoveFile,
    RemoveFolder,
    RemoveTree,
    /// RocksDB's rename of a finished file into its directory.
    Install,
}

impl Op {
    /// Whether cleanup uses the operation, so that a failure may leave files behind. For a staging folder of the user's
    /// choice, cleanup first asks the system for the folder's name in it.
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
    /// The machine stops: the operation is done, done in part, or not done.
    Crash,
    /// EIO, except from syncs; the operation may be done in part.
    Io,
    /// ENOSPC from operations that need space.
    NoSpace,
    /// Some of the given bytes are written, then ENOSPC.
    ShortWrite,
    /// A sync of a file or a folder fails.
    FailedSync,
    /// A read returns fewer bytes than requested.
    ShortRead,
    /// EINTR from a read.
    Interrupted,
    /// The operation takes half a minute of virtual time.
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

    /// Whether it can affect an operation.
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

    /// Whether a job must succeed in spite of it.
    pub fn is_harmless(self) -> bool {
        matches!(self, Self::ShortRead | Self::Interrupted | Self::Slow)
    }
}

/// A fault in one life of the engine.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub kind: FaultKind,
    pub op: Op,
    /// Affects this operation among all that it can affect, counted from 0.
    pub at: u64,
    /// Affects all later ones as well: a full disk stays full.
    pub lasting: bool,
}
