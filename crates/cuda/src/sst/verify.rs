//! Finished images, decoded again on the device and compared with the intended contents, while the host copies them
//! back.

use std::ptr::null_mut;

use rockmill_core::{Result, entry_hash, kv_hash};
use rockmill_format::key;

use super::buffers::SstBuffers;
use super::images::{Image, empty_totals};
use super::store::Stored;
use crate::driver::altered;
use crate::driver::ffi::{DecodeArgs, FileTotals, FoundFile, LayoutArgs, VerifyArgs};
use crate::memory::Workspace;
use crate::read::{
    FirstError, ReadState, SelectedRows, clear_errors, download_checked, longest_key,
};

/// A comparison in progress on the device.
#[derive(Debug)]
pub struct Verification;

impl Verification {
    /// Queues decoding the images and comparing the results.
    ///
    /// # Errors
    /// Device.
    pub fn start(
        read: &mut ReadState,
        sst: &mut SstBuffers,
        selected_rows: &SelectedRows,
        args: &LayoutArgs,
        images: &[Image],
    ) -> Result<Self> {
        let (n, num_blocks) = (selected_rows.len, args.num_blocks as usize);
        let wide = selected_rows.wide;
        clear_errors(&mut read.ws)?;
        // Entries of the inputs are not needed any more: the newly decoded ones take their place.
        let refs = sst.again.room(num_blocks)?;
        let spare = read.buffers.keys_on(selected_rows.side.other());
        let decode = DecodeArgs {
            arena: match args.raw_offsets.is_null() {
                true => sst.images.as_ptr(),
                false => args.packed,
            },
            blocks: refs,
            num_blocks: num_blocks as u64,
            counts: sst.again_counts.room(num_blocks + 1)?,
            starts: sst.again_starts.room(num_blocks + 1)?,
            key_sums: sst.again_key_sums.room(num_blocks + 1)?,
            key_starts: sst.again_key_starts.room(num_blocks + 1)?,
            longest: longest_key(&read.ws),
            keys: spare.as_ptr(),
            values: read.buffers.values.as_ptr(),
            hashes: read.buffers.hashes.as_ptr(),
            key_bytes: read.key_memory(),
            key_at: match wide {
                true => read.buffers.key_at.as_ptr(),
                false => null_mut(),
            },
            errors: read.ws.errors.as_ptr().cast(),
            types: selected_rows.types,
            unused: 0,
        };
        let verify = VerifyArgs {
            blocks: sst.blocks.as_ptr(),
            num_blocks: num_blocks as u64,
            num_entries: n as u64,
            num_key_bytes: match wide {
                true => sst.key_sums.download(n, 1, &read.ws.stream)?[0],
                false => 0,
            },
            num_files: images.len() as u64,
            file_starts: args.file_starts,
            file_blocks: args.file_blocks,
            indexes: args.indexes,
            layout: args.layout,
            hash_buckets: args.hash_buckets,
            index: args.index,
            filter: args.filter,
            bases: sst.bases.as_ptr(),
            refs,
            found: sst.found.room(images.len())?,
            images: sst.images.as_ptr(),
            raw_offsets: args.raw_offsets,
            packed: args.packed,
            decode,
        };
        sst.found.fill(0, images.len(), 0, &read.ws.stream)?;
        // If an image has too few entries, the verification must not find those of the inputs.
        spare.fill(0, n, 0, &read.ws.stream)?;
        read.buffers.values.fill(0, n, 0, &read.ws.stream)?;
        let totals = sst
            .file_totals
            .upload(&vec![empty_totals(); images.len()], &read.ws.stream)?;
        // SAFETY: buffers have room for all blocks and for as many entries as survived, which are no more than were
        // decoded before; the decoder writes no more than that for any image.
        unsafe { read.ws.stages().decode_images(&verify) }?;
        for (i, image) in images.iter().enumerate() {
            let lines = image.at + image.data_bytes;
            let lines = sst.images.as_ptr().wrapping_add(lines as usize);
            let (num_lines, num_probes) =
                image.filter.map_or((0, 0), |f| (f.num_lines, f.num_probes));
            // SAFETY: entries, lines and totals of the file were laid out above.
            unsafe {
                read.ws.stages().verify_file(
                    &verify,
                    image.entries.start as u64,
                    image.entries.len() as u64,
                    lines,
                    num_lines,
                    num_probes,
                    totals.wrapping_add(i),
                )
            }?;
        }
        let bytes: u64 = images.iter().map(Image::len).sum();
        read.mark("verify", 3 * bytes)?;
        Ok(Self)
    }

    /// Waits, and compares the results with the intended contents and with the files.
    ///
    /// # Errors
    /// Verification, Device.
    pub fn finish(
        self,
        ws: &Workspace,
        sst: &SstBuffers,
        images: &[Image],
        files: &[Stored],
    ) -> Result<()> {
        let (found, first_error) = download_checked(ws, &sst.file_totals, images.len())?;
        let written = files.iter().map(|stored| FoundFile {
            index_hash: stored.file.index_hash,
            tags_hash: stored.tags_hash,
            edges_hash: stored.edges_hash,
        });
        if !written.eq(sst.found.download(0, files.len(), &ws.stream)?) {
            return Err(altered(
                "an index or a file's bounds are not those of its blocks",
            ));
        }
        let equal = found.iter().zip(images).all(|(found, image)| {
            let meant = FileTotals {
                filter_entries: found.filter_entries,
                ..image.totals
            };
            *found == meant
        });
        match first_error {
            None if equal => Ok(()),
            None => Err(altered("finished files have other entries than intended")),
            Some(FirstError { at, code }) => {
                let what =
                    format!("finished files do not decode as intended (code {code} at {at})");
                Err(altered(&what))
            }
        }
    }
}

/// `verify.hpp:FindEdges`.
pub fn edges_hash((smallest, largest): (&[u8], &[u8])) -> u64 {
    let [(first, first_tag), (last, last_tag)] =
        [smallest, largest].map(|key| key::split(key).unwrap_or_default());
    entry_hash(entry_hash(kv_hash(first, last), first_tag), last_tag)
}
