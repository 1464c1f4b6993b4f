//! A merge whose keys are shown to the comparator of the application.

use rockmill_core::{CheckedOrder, KeyChain, KeyRange, Result};

use super::decode::Head;
use super::merge::Merge;
use super::retain::Source;

/// The entries of a merge, all of which the comparator sees before they are taken.
#[derive(Debug)]
pub struct Checked<'m, 'a> {
    merge: &'m mut Merge<'a>,
    keys: KeyChain<'m>,
}

impl<'m, 'a> Checked<'m, 'a> {
    /// The entries of a merge at its first entry, which are those of `range`.
    ///
    /// # Errors
    /// Those of [`CheckedOrder::require`].
    pub fn new(
        merge: &'m mut Merge<'a>,
        checked: &'m CheckedOrder,
        range: &'m KeyRange,
    ) -> Result<Self> {
        let keys = KeyChain::new(checked, range);
        let mut checked = Self { merge, keys };
        checked.show_head()?;
        Ok(checked)
    }

    fn show_head(&mut self) -> Result<()> {
        self.keys.add(self.merge.head().map(|head| head.user_key))
    }
}

impl Source for Checked<'_, '_> {
    fn head(&self) -> Option<Head<'_>> {
        self.merge.head()
    }

    fn advance(&mut self) -> Result<()> {
        self.merge.advance()?;
        self.show_head()
    }
}
