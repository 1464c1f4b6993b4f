//! Prints rows and plans.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::json::{LineDelimitedWriter, WriterBuilder};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use rockmill_side_by_side::progress;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;

use super::grid::{Grid, Shown};
use super::plan_text;
use super::session::Stop;
use super::text::{Csv, FloatsAsText};

/// Format of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people: bytes as text where they are printable. At a terminal, the first 1,000 rows, and the columns that
    /// fit.
    Table,
    /// Comma-separated values with a header, bytes as hexadecimal digits. An empty text is quoted, a null is empty.
    Csv,
    /// A JSON object on each line, bytes as hexadecimal digits. NaN and infinities are strings.
    Json,
    /// Apache Arrow's stream format.
    Arrow,
}

/// Runs a plan and prints its rows. Returns which part of them a table shows.
///
/// # Errors
/// Errors of the statement; Environment if the output cannot be written.
pub async fn print(
    format: Format,
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<Option<Shown>, Stop> {
    let progress = Progress::of(&plan, &context);
    let mut rows = execute_stream(Arc::clone(&plan), context)?;
    let mut out = Printer::new(format, &plan)?;
    loop {
        let next = tokio::select! {
            next = rows.next() => next,
            () = tokio::time::sleep(Progress::INTERVAL) => {
                progress.show();
                continue;
            }
        };
        let Some(batch) = next else {
            break;
        };
        let batch = batch?;
        progress.clear();
        match out.batch(&batch) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return written(Err(error)),
        }
    }
    progress.clear();
    written(out.finish())
}

/// A reader that closes early causes no failure.
fn written(result: DataFusionResult<Option<Shown>>) -> Result<Option<Shown>, Stop> {
    match result {
        Err(error) if is_broken_pipe(&error) => Ok(None),
        Err(DataFusionError::IoError(e)) => {
            Err(Failure::Environment(format!("cannot print: {e}")).into())
        }
        result => Ok(result?),
    }
}

fn is_broken_pipe(error: &DataFusionError) -> bool {
    let is_broken = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    match error.find_root() {
        DataFusionError::IoError(e) => is_broken(e),
        DataFusionError::ArrowError(e, _) => e.to_string().contains("Broken pipe"),
        _ => false,
    }
}

/// Writes batches in a format.
enum Printer {
    Table(Grid<BufWriter<io::Stdout>>),
    Csv(Csv<BufWriter<io::Stdout>>),
    Json(LineDelimitedWriter<BufWriter<io::Stdout>>),
    Arrow(Box<StreamWriter<BufWriter<io::Stdout>>>),
}

impl Printer {
    fn new(format: Format, plan: &Arc<dyn ExecutionPlan>) -> DataFusionResult<Self> {
        let schema = plan.schema();
        let out = || BufWriter::new(io::stdout());
        Ok(match format {
            Format::Table => {
                let room = output::terminal_columns().map(usize::from);
                Self::Table(Grid::new(out(), &schema, room))
            }
            Format::Csv => Self::Csv(Csv::new(out(), &schema)),
            Format::Json => {
                let writer = WriterBuilder::new().with_encoder_factory(Arc::new(FloatsAsText));
                Self::Json(writer.build(out()))
            }
            Format::Arrow => {
                let writer = StreamWriter::try_new(out(), &schema);
                Self::Arrow(Box::new(writer?))
            }
        })
    }

    /// Prints a batch. Returns whether to continue.
    fn batch(&mut self, batch: &RecordBatch) -> DataFusionResult<bool> {
        match self {
            Self::Table(grid) => return grid.add(batch),
            Self::Csv(writer) => writer.write(batch)?,
            Self::Json(writer) => writer.write(batch)?,
            Self::Arrow(writer) => writer.write(batch)?,
        }
        Ok(true)
    }

    fn finish(self) -> DataFusionResult<Option<Shown>> {
        match self {
            Self::Table(grid) => return Ok(Some(grid.finish()?)),
            Self::Csv(mut writer) => writer.finish()?,
            Self::Json(mut writer) => {
                writer.finish()?;
                writer.into_inner().flush()?;
            }
            Self::Arrow(mut writer) => {
                writer.finish()?;
                writer.into_inner()?.flush()?;
            }
        }
        Ok(None)
    }
}

/// Prints the result of EXPLAIN: the name of each plan, and its lines.
///
/// # Errors
/// Errors of the statement; Environment if the output cannot be written.
pub async fn print_plans(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<(), Stop> {
    let batches = datafusion::physical_plan::collect(plan, context).await?;
    let options = FormatOptions::default();
    let mut lines = String::new();
    for batch in &batches {
        let columns = batch.columns().iter();
        let columns = columns.map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let columns = columns.collect::<Result<Vec<_>, _>>();
        let columns = columns.map_err(DataFusionError::from)?;
        for row in 0..batch.num_rows() {
            for text in &columns {
                lines += text.value(row).to_string().trim_end();
                lines.push('\n');
            }
        }
    }
    Ok(output::to_stdout(|out| Ok(write!(out, "{lines}")?))?)
}

/// Prints which part a table at a terminal omits, and the statement's time.
///
/// # Errors
/// Environment if the output cannot be written.
pub fn footer(shown: Option<Shown>, elapsed: Duration) -> Result<(), Failure> {
    let seconds = format!("{:.3} s", elapsed.as_secs_f64());
    output::to_stdout(|out| {
        let Some(shown) = shown else {
            return Ok(writeln!(out, "Done in {seconds}.")?);
        };
        if shown.left_out > 0 {
            writeln!(
                out,
                "{} of {} columns are left out.",
                shown.left_out, shown.columns
            )?;
        }
        if shown.is_cut {
            writeln!(out, "Values that end with … are cut.")?;
        }
        if shown.left_out > 0 || shown.is_cut || shown.has_more {
            writeln!(out, "A pipe or --format csv gets everything.")?;
        }
        let rows = match (shown.rows, shown.has_more) {
            (rows, true) => format!("The first {rows} rows"),
            (1, false) => "1 row".to_owned(),
            (rows, false) => format!("{rows} rows"),
        };
        Ok(writeln!(out, "{rows} in {seconds}.")?)
    })
}

/// Prints a plan, and the parts that are left to DataFusion.
///
/// # Errors
/// Environment if the output cannot be written.
pub fn explain(plan: &Arc<dyn ExecutionPlan>) -> Result<(), Failure> {
    let text = plan_text(plan);
    #[cfg(feature = "distributed")]
    let text = rockmill_distributed::show(plan).unwrap_or(text);
    output::to_stdout(|out| {
        write!(out, "{text}")?;
        for (expression, why) in rockmill_sql::left_out(plan) {
            writeln!(out, "Left to DataFusion: {expression}, because {why}.")?;
        }
        Ok(())
    })
}

/// A bar on standard error over the bytes that the scans read, also on workers, if that is a terminal.
struct Progress {
    bar: ProgressBar,
    plan: Arc<dyn ExecutionPlan>,
    #[cfg(feature = "distributed")]
    workers: Option<rockmill_distributed::Progress>,
}

impl Drop for Progress {
    /// A statement may be interrupted.
    fn drop(&mut self) {
        self.clear();
    }
}

impl Progress {
    const INTERVAL: Duration = Duration::from_millis(200);

    fn of(plan: &Arc<dyn ExecutionPlan>, context: &TaskContext) -> Self {
        const TEMPLATE: &str = "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let bar = ProgressBar::with_draw_target(None, progress::target());
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        #[cfg(not(feature = "distributed"))]
        let _ = context;
        Self {
            plan: Arc::clone(plan),
            #[cfg(feature = "distributed")]
            workers: (!bar.is_hidden())
                .then(|| rockmill_distributed::Progress::of(plan, context))
                .flatten(),
            bar,
        }
    }

    fn show(&self) {
        let (read, all) = self.read();
        // A statement may read no database, and workers may not have begun.
        if all > 0 {
            self.bar.set_length(all);
            self.bar.set_position(read);
        }
    }

    fn read(&self) -> (u64, u64) {
        #[cfg(feature = "distributed")]
        if let Some(workers) = &self.workers {
            return workers.read();
        }
        rockmill_sql::progress(&self.plan)
    }

    fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
