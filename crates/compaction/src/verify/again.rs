//! Repeats a subcompaction, keeps only hashes, and compares them with the files on the disk.

use std::sync::Arc;

use rockmill_core::{
    Backend, CancelToken, Error, ErrorKind, Lock, Operator, OutputFile, OutputPlan, ReadTask,
    Result, SstFile, SstSink, TaskReport,
};
use rockmill_cpu::CpuBackend;
use twox_hash::XxHash3_128;

use super::Verifier;
use crate::staging::{file_name, file_number};
use rockmill_storage::for_each_piece;

/// Length and hash of a file's bytes.
type Digest = (u64, u128);

impl Verifier {
    /// Repeats a subcompaction on the CPU. Compares the report with `report`, and the files with the bytes that the
    /// file system returns.
    ///
    /// # Errors
    /// Verification if something differs; the errors of the CPU backend.
    pub(super) fn compare_with_another_run(
        &self,
        subcompaction: usize,
        task: ReadTask<'_>,
        plan: &OutputPlan,
        report: &TaskReport,
    ) -> Result<()> {
        let mut sink = DigestSink::new(subcompaction);
        let operator = Operator::WriteSst {
            plan,
            sink: &mut sink,
        };
        let unwatched = ReadTask {
            progress: None,
            ..task
        };
        let again = CpuBackend.run(unwatched, operator)?;
        let same_entries = again.read.entries == report.read.entries;
        if !same_entries || again.files().len() != report.files().len() {
            return Err(differs("a subcompaction", "entries read or files written"));
        }
        let digests = sink.digests();
        for ((file, other), digest) in report.files().iter().zip(again.files()).zip(digests) {
            self.compare(file, other, digest, task.cancel)?;
        }
        Ok(())
    }

    fn compare(
        &self,
        file: &OutputFile,
        other: &OutputFile,
        digest: Digest,
        cancel: &CancelToken,
    ) -> Result<()> {
        let name = file_name(file.number);
        if file != other {
            return Err(differs(&name, "report"));
        }
        let reader = self.open(file.number)?;
        let mut hasher = Hasher::default();
        for_each_piece(&reader, cancel, |piece| hasher.take(piece))?;
        match hasher.digest() == digest {
            true => Ok(()),
            false => Err(differs(&name, "bytes")),
        }
    }
}

fn differs(file: &str, what: &str) -> Error {
    let what = format!("the CPU makes a different one from the same input: {what}");
    Error::new(ErrorKind::Verification, what).in_file(file)
}

#[derive(Default)]
struct Hasher {
    len: u64,
    hasher: XxHash3_128,
}

impl Hasher {
    fn take(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        self.hasher.write(bytes);
    }

    fn digest(&self) -> Digest {
        (self.len, self.hasher.finish_128())
    }
}

/// Receives files as [`crate::staging::StagingSink`] does, but keeps only their digests.
struct DigestSink {
    subcompaction: usize,
    made: u64,
    digests: Arc<Lock<Vec<Digest>>>,
}

impl DigestSink {
    fn new(subcompaction: usize) -> Self {
        Self {
            subcompaction,
            made: 0,
            digests: Arc::default(),
        }
    }

    /// Returns the digests of the finished files, in order.
    fn digests(self) -> Vec<Digest> {
        std::mem::take(&mut *self.digests.lock())
    }
}

impl SstSink for DigestSink {
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)> {
        let number = file_number(self.subcompaction, self.made)?;
        self.made += 1;
        let file = DigestFile {
            hasher: Hasher::default(),
            digests: Arc::clone(&self.digests),
        };
        Ok((number, Box::new(file)))
    }
}

struct DigestFile {
    hasher: Hasher,
    digests: Arc<Lock<Vec<Digest>>>,
}

impl SstFile for DigestFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.take(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.digests.lock().push(self.hasher.digest());
        Ok(())
    }
}
