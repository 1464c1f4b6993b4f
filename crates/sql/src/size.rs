//! Columns that are too long for one batch: Arrow counts the bytes of their texts with 4 bytes.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::resources_datafusion_err;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::physical_plan::ExecutionPlan;

/// Arrow's word in messages of errors and panics.
const OVERFLOW: &str = "offset overflow";

/// Whether a batch would have more than 2 GiB of a column.
#[must_use]
pub fn is_too_long(error: &DataFusionError) -> bool {
    // The message of another error may contain text of the user.
    let begins = |said: &str| {
        let said = said.to_lowercase();
        said.starts_with(OVERFLOW) || said.starts_with(&format!("byte array {OVERFLOW}"))
    };
    match error.find_root() {
        DataFusionError::Execution(said) => begins(said),
        DataFusionError::ArrowError(error, _) => match &**error {
            ArrowError::OffsetOverflowError(_) => true,
            ArrowError::ComputeError(said)
            | ArrowError::InvalidArgumentError(said)
            | ArrowError::CastError(said) => begins(said),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a panic says so. Arrow has no error for it in some places.
#[must_use]
pub fn is_panic_of_size(panic: &(dyn Any + Send)) -> bool {
    let said = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    said.is_some_and(|said| said.contains(OVERFLOW))
}

/// The error of a plan with a column that is too long for one batch.
#[must_use]
pub fn too_long(plan: &Arc<dyn ExecutionPlan>) -> DataFusionError {
    let mut schemas = Vec::new();
    let _ = plan.apply(|node| {
        schemas.push(node.schema());
        Ok(TreeNodeRecursion::Continue)
    });
    let columns = match columns(&schemas) {
        columns if columns.is_empty() => "a column".to_owned(),
        columns => format!("column {columns}"),
    };
    resources_datafusion_err!(
        "{columns} has more than 2 GiB in one batch of rows, which is the most: read fewer rows, or a part of each value"
    )
}

/// The names of the columns that may be too long.
pub fn columns(schemas: &[SchemaRef]) -> String {
    const MAX_NAMED: usize = 6;
    let fields = schemas.iter().flat_map(|schema| schema.fields());
    let strings =
        fields.filter(|field| matches!(field.data_type(), DataType::Utf8 | DataType::Binary));
    let columns: BTreeSet<&str> = strings.map(|field| field.name().as_str()).collect();
    let mut named: Vec<_> = columns.iter().copied().take(MAX_NAMED).collect();
    if columns.len() > MAX_NAMED {
        named.push("another one");
    }
    named.join(" or ")
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::common::{exec_datafusion_err, plan_datafusion_err};
    use datafusion::physical_plan::empty::EmptyExec;

    use super::*;

    #[test]
    fn all_errors_and_panics_of_a_column_that_is_too_long_are_recognized() {
        let arrow = |error| DataFusionError::from(error);
        for error in [
            arrow(ArrowError::OffsetOverflowError(1 << 31)),
            arrow(ArrowError::ComputeError(
                "byte array offset overflow".to_owned(),
            )),
            arrow(ArrowError::CastError(
                "Offset overflow when casting from List to Utf8".to_owned(),
            )),
            exec_datafusion_err!("byte array offset overflow").context("from a task"),
        ] {
            assert!(is_too_long(&error), "{error}");
        }
        for error in [
            plan_datafusion_err!("offset overflow"),
            arrow(ArrowError::CastError(
                "cannot cast 'offset overflow' to Int64".to_owned(),
            )),
        ] {
            assert!(!is_too_long(&error), "{error}");
        }
        let said: Box<dyn Any + Send> = Box::new("offset overflow");
        let formatted: Box<dyn Any + Send> = Box::new("failed due to offset overflow".to_owned());
        let other: Box<dyn Any + Send> = Box::new("index out of bounds");
        assert!(is_panic_of_size(&*said) && is_panic_of_size(&*formatted));
        assert!(!is_panic_of_size(&*other));
    }

    #[test]
    fn the_error_names_the_columns_of_strings_and_bytes() {
        let plan = |fields: Vec<Field>| -> Arc<dyn ExecutionPlan> {
            Arc::new(EmptyExec::new(Arc::new(Schema::new(fields))))
        };
        let field = |name: &str, data_type| Field::new(name, data_type, false);
        let fields = vec![
            field("id", DataType::Int64),
            field("body", DataType::Binary),
            field("name", DataType::Utf8),
        ];
        let said = too_long(&plan(fields)).to_string();
        assert!(
            said.contains("column body or name has more than 2 GiB"),
            "{said}"
        );
        let said = too_long(&plan(vec![field("id", DataType::Int64)])).to_string();
        assert!(said.contains(": a column has more"), "{said}");
        let many = ["a", "b", "c", "d", "e", "f", "g"].map(|name| field(name, DataType::Utf8));
        let said = too_long(&plan(many.to_vec())).to_string();
        assert!(
            said.contains("column a or b or c or d or e or f or another one has"),
            "{said}"
        );
    }
}
