//! Lookups in slices of cudarc.

use rockmill_core::Result;
use rockmill_cuda::KvRecord;
use rockmill_cudarc::{SliceKeys, SliceRows, look_up};

use crate::version::Hold;
use crate::view::View;

impl View {
    /// Like [`View::lookup`], on the stream of the slices. The stream may not be captured into a graph.
    ///
    /// # Errors
    /// Invalid if slices are too short, or not for the same stream of the view's GPU; Device.
    pub fn lookup_slices(&self, keys: SliceKeys<'_>, rows: SliceRows<'_>) -> Result<()> {
        let version = self.version();
        let kv = KvRecord::new(0, &version.table, None);
        look_up(&version, &self.in_use, &version.table, &kv, (keys, rows))
    }
}

impl Hold {
    /// Like [`Hold::lookup`], on the stream of the slices, which is the one of the hold or one that it waits for. It
    /// may not be captured into a graph.
    ///
    /// # Errors
    /// The errors of [`View::lookup_slices`].
    pub fn lookup_slices(&self, keys: SliceKeys<'_>, rows: SliceRows<'_>) -> Result<()> {
        let version = &self.version;
        look_up(
            version,
            &self.in_use,
            &version.table,
            &self.kv(),
            (keys, rows),
        )
    }
}
