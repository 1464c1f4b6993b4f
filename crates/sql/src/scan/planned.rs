//! The inputs of a scan, and the filters that the optimizer offers it.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterTracking;
use rockmill_core::KeyRange;
use rockmill_layout::Layout;

use super::ScanExec;
use crate::program::{Program, Reason};
use crate::table::Reads;

/// The inputs from which a scan was planned.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(super) layout: Arc<Layout>,
    /// The program of columns and filters.
    pub(super) program: Program,
    pub(super) reads: Reads,
    /// Positions in the table of the output columns. Not used by aggregates.
    pub projection: Vec<usize>,
    /// Conjuncts over all columns of the table.
    pub(super) filters: Vec<Arc<dyn PhysicalExpr>>,
    /// Dynamic filters over all columns of the table, as DataFusion has moved them here.
    pub(super) offered: Vec<Arc<dyn PhysicalExpr>>,
    /// The offered filters that hold for all rows that a statement needs. DataFusion evaluates them again.
    pub(super) dynamic: Vec<Arc<dyn PhysicalExpr>>,
    /// Filters that are left to DataFusion, with the reasons.
    pub(super) left: Vec<(String, Reason)>,
    pub(super) ranges: Vec<KeyRange>,
}

impl Planned {
    /// Reads all rows of these columns.
    pub fn new(layout: Arc<Layout>, reads: Reads, projection: Vec<usize>) -> Self {
        Self {
            program: Program::new(Arc::clone(&layout)),
            layout,
            reads,
            projection,
            filters: Vec::new(),
            offered: Vec::new(),
            dynamic: Vec::new(),
            left: Vec::new(),
            ranges: Vec::new(),
        }
    }

    /// Reads the same rows, with more columns behind the others.
    pub fn with_more_columns(mut self, columns: &[usize]) -> Self {
        self.projection.extend(columns);
        self
    }

    /// Compiles a filter over all columns of the table, and adds it.
    ///
    /// # Errors
    /// The reason why it is left to DataFusion.
    pub fn add_filter(
        &mut self,
        filter: &Arc<dyn PhysicalExpr>,
    ) -> std::result::Result<(), Reason> {
        self.program.filter(filter)?;
        self.filters.push(Arc::clone(filter));
        Ok(())
    }
}

impl ScanExec {
    /// The same scan with filters from the nodes above it. It applies none of them: see
    /// [`ScanExec::with_dynamic_filters`].
    ///
    /// # Errors
    /// Internal if a filter is over other columns.
    pub(super) fn with_offered<'a>(
        &self,
        filters: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>,
    ) -> Result<Self> {
        let mut scan = self.clone();
        // Rows are filtered before they are counted towards a limit.
        let takes = self.limit.is_none() && self.has_rows();
        let planned = scan.planned.as_mut().filter(|_| takes);
        let Some(planned) = planned.filter(|planned| planned.reads != Reads::Iterators) else {
            return Ok(scan);
        };
        for filter in filters {
            let over_table = self.over_table(Arc::clone(filter))?;
            if DynamicFilterTracking::classify(&over_table).contains_dynamic_filter() {
                planned.offered.push(over_table);
            } else if let Err(why) = planned.program.clone().filter(&over_table) {
                let left = (filter.to_string(), why);
                // Both phases of the optimizer run this.
                if !planned.left.contains(&left) {
                    planned.left.push(left);
                }
            }
        }
        Ok(scan)
    }

    /// The same scan, which applies the dynamic filters that it was offered.
    pub(crate) fn with_dynamic_filters(&self) -> Self {
        let mut scan = self.clone();
        if let Some(planned) = &mut scan.planned {
            planned.dynamic.append(&mut planned.offered);
        }
        scan
    }

    /// The same scan without dynamic filters.
    pub(super) fn without_dynamic_filters(&self) -> Self {
        let mut scan = self.clone();
        if let Some(planned) = &mut scan.planned {
            planned.offered.clear();
            planned.dynamic.clear();
        }
        scan
    }
}
