//! Columns that are too long for one batch: Arrow counts the bytes of their texts with 4 bytes.

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::PanicHookInfo;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::resources_datafusion_err;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::physical_plan::ExecutionPlan;
use rockmill_core::panic_message;
use tokio::task::JoinError;

/// Arrow's word in messages of errors and panics.
const OVERFLOW: &str = "offset overflow";

/// Files in which a panic without Arrow's word is one of size, and its message: `||` and `regexp_replace`.
const FILES: [&str; 2] = ["concat_elements.rs", "regexpreplace.rs"];
const NO_VALUE: &str = "called `Option::unwrap()` on a `None` value";

/// Whether the last panic of the process was in one of these files. It is not kept by thread, because the panic of a task is
/// examined on another one. If another statement panics in between, the error is less specific.
static IS_IN_FILES: AtomicBool = AtomicBool::new(false);

/// Whether a batch would have more than 2 GiB of a column.
#[must_use]
pub fn is_too_long(error: &DataFusionError) -> bool {
    // The message of another error may contain text of the user.
    let begins = |said: &str| {
        let said = said.to_lowercase();
        said.starts_with(OVERFLOW) || said.starts_with(&format!("byte array {OVERFLOW}"))
    };
    // A task of a repartition has panicked.
    let is_of_size = |task: &JoinError| task.is_panic() && says_size(&task.to_string());
    match error.find_root() {
        DataFusionError::Execution(said) => begins(said),
        DataFusionError::ExecutionJoin(task) => is_of_size(task),
        DataFusionError::External(error) => {
            let task = error.downcast_ref::<Arc<JoinError>>();
            task.is_some_and(|task| is_of_size(task))
        }
        DataFusionError::ArrowError(error, _) => match &**error {
            ArrowError::OffsetOverflowError(_) => true,
            ArrowError::ComputeError(said)
            | ArrowError::ArithmeticOverflow(said)
            | ArrowError::InvalidArgumentError(said)
            | ArrowError::CastError(said) => begins(said),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a panic says that a column is too long. Arrow has no error for that in some places.
#[must_use]
pub fn is_panic_of_size(panic: &(dyn Any + Send)) -> bool {
    panic_message(panic).is_some_and(says_size)
}

/// Whether a panic is one of size. The panic hook of the process calls this for every panic: some are told by the place
/// alone, which only the hook knows.
pub fn observe_panic(panic: &PanicHookInfo<'_>) -> bool {
    let file = panic.location().map_or("", |place| place.file());
    let is_in_files = FILES.iter().any(|name| file.ends_with(name));
    IS_IN_FILES.store(is_in_files, Ordering::Relaxed);
    is_panic_of_size(panic.payload())
}

fn says_size(said: &str) -> bool {
    said.contains(OVERFLOW) || (said.contains(NO_VALUE) && IS_IN_FILES.load(Ordering::Relaxed))
}

/// The error of a plan with a column that is too long for one batch. `None` is a plan that is not known.
#[must_use]
pub fn too_long(plan: Option<&Arc<dyn ExecutionPlan>>) -> DataFusionError {
    let mut schemas = Vec::new();
    if let Some(plan) = plan {
        let _ = plan.apply(|node| {
            schemas.push(node.schema());
            Ok(TreeNodeRecursion::Continue)
        });
    }
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
            arrow(ArrowError::ArithmeticOverflow(
                "byte array offset overflow".to_owned(),
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

    #[tokio::test]
    async fn a_panic_of_size_in_a_task_of_a_repartition_is_recognized() {
        let panics = |said: &'static str| async move {
            let panicked = tokio::spawn(async move { panic!("{said}") }).await;
            let error: Result<(), _> = panicked;
            let error = Arc::new(error.expect_err("it panics"));
            DataFusionError::External(Box::new(error)).context("Join Error")
        };
        assert!(is_too_long(&panics("byte array offset overflow").await));
        assert!(!is_too_long(&panics("index out of bounds").await));
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
        let said = too_long(Some(&plan(fields))).to_string();
        assert!(
            said.contains("column body or name has more than 2 GiB"),
            "{said}"
        );
        for plan in [None, Some(&plan(vec![field("id", DataType::Int64)]))] {
            let said = too_long(plan).to_string();
            assert!(said.contains(": a column has more"), "{said}");
        }
        let many = ["a", "b", "c", "d", "e", "f", "g"].map(|name| field(name, DataType::Utf8));
        let said = too_long(Some(&plan(many.to_vec()))).to_string();
        assert!(
            said.contains("column a or b or c or d or e or f or another one has"),
            "{said}"
        );
    }
}
