//! Pieces of files that the device copies straight from the page cache: mapped, populated, registered.
//!
//! Nothing here looks at mapped bytes, which would raise SIGBUS where the file was truncated meanwhile.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rockmill_sysio::cached_pages;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::param::page_size;

use crate::device::Device;
use crate::memory::Registration;

/// A piece of a file that the device can copy from.
#[derive(Debug)]
pub struct Registered<'a> {
    /// Dropped before what it registers.
    registration: Registration<'a>,
    mapping: Mapping,
    share: Share,
}

// SAFETY: the mapping is only unmapped and its address handed to copies, from any thread.
unsafe impl Send for Registered<'_> {}

impl<'a> Registered<'a> {
    /// Registers a mapping; `None` if the pages cannot be registered.
    pub fn new(device: &'a Device, mapping: Mapping, share: Share) -> Option<Self> {
        // SAFETY: the mapping outlives the registration, which is the first field.
        let registration = unsafe { Registration::new(device, mapping.memory, mapping.len) };
        Some(Self {
            registration: registration.ok()?,
            mapping,
            share,
        })
    }

    pub fn unregister(self) -> Mapping {
        drop(self.registration);
        drop(self.share);
        self.mapping
    }

    /// Where the piece begins.
    pub fn bytes(&self) -> *const c_void {
        self.mapping.memory.wrapping_byte_add(self.mapping.skip)
    }
}

/// Bytes that may be registered at a time, over all slices.
#[derive(Debug)]
pub struct Mappings {
    left: Arc<AtomicU64>,
}

/// A part of them, until dropped.
#[derive(Debug)]
pub struct Share {
    left: Arc<AtomicU64>,
    bytes: u64,
}

impl Mappings {
    /// So many bytes.
    pub fn new(bytes: u64) -> Self {
        Self {
            left: Arc::new(AtomicU64::new(bytes)),
        }
    }

    /// `bytes` of them, if so many are left.
    pub fn take(&self, bytes: u64) -> Option<Share> {
        let less = |left: u64| left.checked_sub(bytes);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.left.fetch_update(set, fetch, less).ok()?;
        Some(Share {
            left: Arc::clone(&self.left),
            bytes,
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// A mapped, populated range of a file.
#[derive(Debug)]
pub struct Mapping {
    memory: *mut c_void,
    len: usize,
    /// Bytes of the first page that lie in front of the range.
    skip: usize,
}

impl Mapping {
    /// Maps whole pages around the range and populates them; `None` if the system refuses, for example
    /// because the file has become shorter.
    pub fn populated(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Option<Self> {
        let page = page_size() as u64;
        let start = offset / page * page;
        let skip = (offset - start) as usize;
        let len = ((offset + len).next_multiple_of(page) - start) as usize;
        let (prot, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let memory =
            unsafe { rustix::mm::mmap(ptr::null_mut(), len, prot, flags, fd, start) }.ok()?;
        let mapping = Self { memory, len, skip };
        // SAFETY: the range was just mapped; populating for reading changes no contents, and where a page
        // cannot be had it returns an error rather than raising a signal.
        unsafe { rustix::mm::madvise(memory, len, Advice::LinuxPopulateRead) }.ok()?;
        Some(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped once, unmapped once; nothing points into it any more.
        let _ = unsafe { rustix::mm::munmap(self.memory, self.len) };
    }
}

/// Whether all of the range lies in the page cache; false as well where the system cannot tell.
pub fn is_resident(fd: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    cached_pages(fd, offset, len).is_ok_and(|pages| pages * page_size() as u64 >= len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::MIN_MAPPED_BYTES;
    use crate::memory::DeviceMemory;
    use crate::stream::{Download, Stream};
    use std::os::fd::AsFd;

    #[test]
    fn written_files_are_resident_and_truncated_ones_cannot_be_populated() {
        let file = tempfile_with(&[7; 3 << 12]);
        let can_tell = cached_pages(file.as_fd(), 0, 0).is_ok();
        assert_eq!(is_resident(file.as_fd(), 0, 3 << 12), can_tell);
        assert!(!is_resident(file.as_fd(), 0, 9 << 12));
        assert!(Mapping::populated(file.as_fd(), 5, 100).is_some());
        file.set_len(1 << 12).expect("shorter");
        assert!(Mapping::populated(file.as_fd(), 5, 2 << 12).is_none());
    }

    /// On a GPU (`ROCKMILL_TEST_DEVICE=cuda:N`) this shows that registered pages outlive their file, if the
    /// piece is one that the device copies by itself.
    #[test]
    fn a_file_that_is_truncated_after_registration_is_still_copied() {
        const LEN: usize = MIN_MAPPED_BYTES as usize;
        let device = Device::open(crate::device::test_target()).expect("the device opens");
        if device.memory_bytes() == 0 {
            // The host's stages touch the pages themselves.
            return;
        }
        let file = tempfile_with(&[7; LEN]);
        let mapping = Mapping::populated(file.as_fd(), 0, LEN as u64).expect("resident");
        let share = Mappings::new(u64::MAX).take(0).expect("nothing is little");
        let registered = Registered::new(&device, mapping, share).expect("registers");
        file.set_len(0).expect("shorter");
        let stream = Stream::with_staging(&device).expect("a stream");
        let memory = DeviceMemory::new(&device, LEN as u64).expect("memory");
        let mut found = vec![0; LEN];
        // SAFETY: both ends have room, the pages are registered, and the copies are waited for.
        unsafe {
            let copied = stream.copy_to_device(memory.as_ptr().cast(), registered.bytes(), LEN);
            copied.and_then(|()| stream.synchronize()).expect("copies");
            let back = stream.download(&mut [Download {
                from: memory.as_ptr(),
                to: found.as_mut_ptr(),
                len: LEN,
            }]);
            back.expect("copies");
        }
        assert!(found.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn no_more_is_registered_than_is_allowed() {
        let mappings = Mappings::new(10);
        let first = mappings.take(7).expect("so much is left");
        assert!(mappings.take(4).is_none());
        let second = mappings.take(3).expect("so much is left");
        drop(first);
        assert!(mappings.take(8).is_none() && mappings.take(7).is_some());
        drop(second);
        assert!(mappings.take(10).is_some());
    }

    fn tempfile_with(bytes: &[u8]) -> std::fs::File {
        let mut file = tempfile::tempfile().expect("a temporary file");
        std::io::Write::write_all(&mut file, bytes).expect("room");
        file
    }
}
