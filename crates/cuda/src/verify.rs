//! Finished images, decoded again on the device and compared with what was meant, while the host copies them
//! back.

use std::ptr::null_mut;

use rockmill_core::{Result, entry_hash, kv_hash};
use rockmill_format::key;

use crate::backend::CudaRun;
use crate::device::Device;
use crate::ffi::{DecodeArgs, FileTotals, FoundFile, LayoutArgs, VerifyArgs};
use crate::images::{Image, empty_totals};
use crate::output::altered;
use crate::stages::{FirstError, clear_errors, download_checked, key_memory, longest_key};
use crate::store::Stored;
use crate::workspace::Workspace;

/// A comparison that the device is at work on.
#[derive(Debug)]
pub struct Verification;

impl Verification {
    /// Queues decoding the images and comparing what is found.
    ///
    /// # Errors
    /// Device.
    pub fn start(
        device: &Device,
        run: &mut CudaRun<'_>,
        args: &LayoutArgs,
        images: &[Image],
    ) -> Result<Self> {
        let (ws, table) = (&mut *run.workspace, device.table());
        let (n, num_blocks) = (run.survivors.len, args.num_blocks as usize);
        let wide = run.survivors.wide;
        clear_errors(ws)?;
        // Entries of the inputs are not needed any more: what is decoded now takes their place.
        let refs = ws.blocks.room(num_blocks)?;
        let decode = DecodeArgs {
            arena: ws.images.as_ptr(),
            blocks: refs,
            num_blocks: num_blocks as u64,
            counts: ws.counts.room(num_blocks + 1)?,
            starts: ws.starts.room(num_blocks + 1)?,
            key_sums: ws.key_sums.room(num_blocks + 1)?,
            key_starts: ws.key_starts.room(num_blocks + 1)?,
            longest: longest_key(ws),
            keys: run.survivors.spare_keys,
            values: ws.values.as_ptr(),
            hashes: ws.hashes.as_ptr(),
            key_bytes: key_memory(ws),
            key_at: match wide {
                true => ws.key_at.as_ptr(),
                false => null_mut(),
            },
            errors: ws.errors.as_ptr().cast(),
        };
        let verify = VerifyArgs {
            blocks: ws.out_blocks.as_ptr(),
            num_blocks: num_blocks as u64,
            num_entries: n as u64,
            num_key_bytes: match wide {
                true => ws.survivor_key_sums.download(n, 1, &ws.stream)?[0],
                false => 0,
            },
            num_files: images.len() as u64,
            file_starts: args.file_starts,
            file_blocks: args.file_blocks,
            indexes: args.indexes,
            layout: args.layout,
            index: args.index,
            filter: args.filter,
            bases: ws.bases.as_ptr(),
            refs,
            found: ws.found.room(images.len())?,
            decode,
        };
        ws.found.fill(0, images.len(), 0, &ws.stream)?;
        // Where an image holds less than was meant, nothing of the inputs' entries must be found.
        let keys = match decode.keys == ws.keys.as_ptr() {
            true => &ws.keys,
            false => &ws.other_keys,
        };
        keys.fill(0, n, 0, &ws.stream)?;
        ws.values.fill(0, n, 0, &ws.stream)?;
        let totals = ws
            .file_totals
            .upload(&vec![empty_totals(); images.len()], &ws.stream)?;
        // SAFETY: buffers have room for all blocks and for as many entries as survived, which are no more than
        // were decoded before; the decoder writes no more than that whatever the images hold.
        let code = unsafe { (table.decode_images)(&ws.exec(), &raw const verify) };
        device.check(code, "decode the files again")?;
        for (i, image) in images.iter().enumerate() {
            let lines = image.at + image.data_bytes;
            let lines = ws.images.as_ptr().wrapping_add(lines as usize);
            let (num_lines, num_probes) =
                image.filter.map_or((0, 0), |f| (f.num_lines, f.num_probes));
            // SAFETY: entries, lines and totals of the file were laid out above.
            let code = unsafe {
                (table.verify_file)(
                    &ws.exec(),
                    &raw const verify,
                    image.entries.start as u64,
                    image.entries.len() as u64,
                    lines,
                    num_lines,
                    num_probes,
                    totals.wrapping_add(i),
                )
            };
            device.check(code, "compare the files")?;
        }
        let bytes: u64 = images.iter().map(Image::len).sum();
        run.marks.end(device, &ws.stream, "verify", 3 * bytes)?;
        Ok(Self)
    }

    /// Waits, and compares what was found with what was meant and with the files.
    ///
    /// # Errors
    /// Verification, Device.
    pub fn finish(self, ws: &Workspace, images: &[Image], files: &[Stored]) -> Result<()> {
        let (found, first_error) = download_checked(ws, &ws.file_totals, images.len())?;
        let written = files.iter().map(|Stored { file, tags_hash }| FoundFile {
            index_hash: file.index_hash,
            tags_hash: *tags_hash,
            edges_hash: edges_hash(&file.smallest, &file.largest),
        });
        if !written.eq(ws.found.download(0, files.len(), &ws.stream)?) {
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
            None => Err(altered("finished files hold other entries than were meant")),
            Some(FirstError { at, code }) => {
                let what = format!("finished files do not decode as meant (code {code} at {at})");
                Err(altered(&what))
            }
        }
    }
}

/// `verify.hpp:FindEdges`.
fn edges_hash(smallest: &[u8], largest: &[u8]) -> u64 {
    let [(first, first_tag), (last, last_tag)] =
        [smallest, largest].map(|key| key::split(key).unwrap_or_default());
    entry_hash(entry_hash(kv_hash(first, last), first_tag), last_tag)
}
