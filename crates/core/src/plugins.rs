//! Objects of the application that a job calls.

use std::fmt::Debug;
use std::sync::Arc;

use crate::error::Result;
use crate::merging::Merging;

/// The objects of a column family, as the application has attached them to one of its jobs. Each has the name that OPTIONS
/// have for it.
#[derive(Debug, Default)]
pub struct Plugins {
    /// Why they are not known for this job, in a sentence. Then the other members say nothing.
    pub missing: Option<String>,
    /// The merge operator.
    pub merge_operator: Option<(String, Merging)>,
}

/// That of the same job.
impl PartialEq for Plugins {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Plugins {}

/// A merge operator of the application. Several threads call it at once.
pub trait MergeFunctions: Debug + Send + Sync {
    /// Merges operands, oldest first, of which there is at least one, with `base`, if there is one (`FullMergeV3`). `None` if
    /// they have to stay operands (`OpFailureScope::kMustMerge`).
    ///
    /// # Errors
    /// Declined if the operator fails or makes too much.
    fn full(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Option<Vec<u8>>>;

    /// Makes one operand of several, oldest first; `None` if they have to stay (`PartialMergeMulti`).
    ///
    /// # Errors
    /// As [`MergeFunctions::full`].
    fn partial(&self, key: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>>;

    /// Whether [`MergeFunctions::partial`] is called for a single operand as well (`AllowSingleOperand`).
    fn takes_single_operand(&self) -> bool;
}

/// Merge functions of the application; equal if they are the same object.
#[derive(Debug, Clone)]
pub struct CustomMerge(pub Arc<dyn MergeFunctions>);

impl PartialEq for CustomMerge {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CustomMerge {}
