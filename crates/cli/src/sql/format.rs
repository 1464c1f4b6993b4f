//! Prints rows and plans.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

use comfy_table::Cell;
use datafusion::arrow::array::{Array, RecordBatch, cast::AsArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::json::{LineDelimitedWriter, WriterBuilder};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output::{self, escape};

use super::text::{Csv, FloatsAsText};
use super::{failure, plan_text};

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people: the first 1,000 rows, bytes as text where they are printable, long values cut.
    Table,
    /// Comma-separated values with a header, bytes as hexadecimal digits. An empty text has quotes, a null has nothing.
    Csv,
    /// A JSON object on each line, bytes as hexadecimal digits. NaN and infinities are strings.
    Json,
    /// Apache Arrow's stream format.
    Arrow,
}

/// Most rows of a table for people.
const MAX_TABLE_ROWS: usize = 1000;

/// Most characters of a value in a table for people. The time to break a value into lines grows with its square.
const MAX_CELL_CHARACTERS: usize = 256;

/// Runs a plan and prints its rows.
///
/// # Errors
/// As those of the statement; Environment if the output cannot be written.
pub async fn print(
    format: Format,
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<(), Failure> {
    let progress = Progress::of(&plan);
    let mut rows = execute_stream(Arc::clone(&plan), context).map_err(failure)?;
    let mut out = Printer::new(format, &plan)?;
    loop {
        let next = tokio::select! {
            next = rows.next() => next,
            () = tokio::time::sleep(Progress::INTERVAL) => {
                progress.show(&plan);
                continue;
            }
        };
        let Some(batch) = next else {
            break;
        };
        let batch = batch.map_err(failure)?;
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
fn written(result: DataFusionResult<()>) -> Result<(), Failure> {
    match result {
        Err(error) if is_broken_pipe(&error) => Ok(()),
        result => result.map_err(|e| match e {
            DataFusionError::IoError(e) => Failure::Environment(format!("cannot print: {e}")),
            e => failure(e),
        }),
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
    Table {
        table: comfy_table::Table,
        rows: usize,
        is_cut: bool,
        has_cut_cells: bool,
    },
    Csv(Csv<BufWriter<io::Stdout>>),
    Json(LineDelimitedWriter<BufWriter<io::Stdout>>),
    Arrow(Box<StreamWriter<BufWriter<io::Stdout>>>),
}

impl Printer {
    fn new(format: Format, plan: &Arc<dyn ExecutionPlan>) -> Result<Self, Failure> {
        let schema = plan.schema();
        let out = || BufWriter::new(io::stdout());
        Ok(match format {
            Format::Table => {
                let names = schema.fields().iter().map(|field| field.name().as_str());
                let mut table = comfy_table::Table::new();
                table.set_header(names);
                output::fit(&mut table);
                Self::Table {
                    table,
                    rows: 0,
                    is_cut: false,
                    has_cut_cells: false,
                }
            }
            Format::Csv => Self::Csv(Csv::new(out(), &schema)),
            Format::Json => {
                let writer = WriterBuilder::new().with_encoder_factory(Arc::new(FloatsAsText));
                Self::Json(writer.build(out()))
            }
            Format::Arrow => {
                let writer = StreamWriter::try_new(out(), &schema);
                Self::Arrow(Box::new(writer.map_err(|e| failure(e.into()))?))
            }
        })
    }

    /// Prints a batch. Returns whether more rows are wanted.
    fn batch(&mut self, batch: &RecordBatch) -> DataFusionResult<bool> {
        match self {
            Self::Table {
                table,
                rows,
                is_cut,
                has_cut_cells,
            } => {
                let wanted = batch.num_rows().min(MAX_TABLE_ROWS - *rows);
                *rows += wanted;
                *is_cut |= wanted < batch.num_rows();
                *has_cut_cells |= add_rows(table, &batch.slice(0, wanted))?;
                return Ok(!*is_cut);
            }
            Self::Csv(writer) => writer.write(batch)?,
            Self::Json(writer) => writer.write(batch)?,
            Self::Arrow(writer) => writer.write(batch)?,
        }
        Ok(true)
    }

    fn finish(self) -> DataFusionResult<()> {
        match self {
            Self::Table {
                table,
                is_cut,
                has_cut_cells,
                ..
            } => {
                let mut out = BufWriter::new(io::stdout());
                for line in table.lines() {
                    writeln!(out, "{}", line.trim_end())?;
                }
                if is_cut {
                    writeln!(
                        out,
                        "These are the first {MAX_TABLE_ROWS} rows. --format csv prints all."
                    )?;
                }
                if has_cut_cells {
                    writeln!(
                        out,
                        "Values that end with … are cut at {MAX_CELL_CHARACTERS} characters. --format csv prints all of them."
                    )?;
                }
                out.flush()?;
            }
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
        Ok(())
    }
}

/// Adds rows, and returns whether a value was cut.
fn add_rows(table: &mut comfy_table::Table, batch: &RecordBatch) -> DataFusionResult<bool> {
    let mut is_cut = false;
    let options = FormatOptions::default().with_null("NULL");
    let columns = batch.columns().iter();
    let formats = columns.map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
    let formats = formats.collect::<Result<Vec<_>, _>>()?;
    for row in 0..batch.num_rows() {
        let cells = batch
            .columns()
            .iter()
            .zip(&formats)
            .map(|(column, format)| {
                let text = match column.data_type() {
                    DataType::Binary if column.is_valid(row) => {
                        escape(column.as_binary::<i32>().value(row))
                    }
                    _ => format.value(row).to_string(),
                };
                let (text, cut) = cut(text);
                is_cut |= cut;
                Cell::new(text)
            });
        let cells = cells.collect::<Vec<_>>();
        table.add_row(cells);
    }
    Ok(is_cut)
}

/// A text, or its first characters, and whether it was cut.
fn cut(mut text: String) -> (String, bool) {
    let mut ends = text.char_indices().skip(MAX_CELL_CHARACTERS - 1);
    let (last, more) = (ends.next(), ends.next());
    let Some((at, _)) = last.filter(|_| more.is_some()) else {
        return (text, false);
    };
    text.truncate(at);
    text.push('…');
    (text, true)
}

/// Prints a plan, and what is left to DataFusion.
///
/// # Errors
/// Environment if the output cannot be written.
pub fn explain(plan: &Arc<dyn ExecutionPlan>) -> Result<(), Failure> {
    output::to_stdout(|out| {
        write!(out, "{}", plan_text(plan))?;
        for (expression, why) in rockmill_sql::left_out(plan) {
            writeln!(out, "Left to DataFusion: {expression}, because {why}.")?;
        }
        Ok(())
    })
}

/// A bar on standard error over the bytes that the scans read, if that is a terminal.
struct Progress(ProgressBar);

impl Drop for Progress {
    /// A statement may be interrupted.
    fn drop(&mut self) {
        self.clear();
    }
}

impl Progress {
    const INTERVAL: Duration = Duration::from_millis(200);

    fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        const TEMPLATE: &str = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let bar = ProgressBar::new(rockmill_sql::progress(plan).1);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self(bar)
    }

    fn show(&self, plan: &Arc<dyn ExecutionPlan>) {
        self.0.set_position(rockmill_sql::progress(plan).0);
    }

    fn clear(&self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_behind_a_character() {
        let most = "ä".repeat(MAX_CELL_CHARACTERS);
        assert_eq!(cut(most.clone()), (most.clone(), false));
        let (text, is_cut) = cut(most + "b");
        assert!(is_cut && text.ends_with("ä…"), "{text}");
        assert_eq!(text.chars().count(), MAX_CELL_CHARACTERS);
        assert_eq!(cut(String::new()), (String::new(), false));
    }
}
