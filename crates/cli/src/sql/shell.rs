//! Runs statements and prints their results.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::TableReference;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use futures::FutureExt;
use rockmill_sql::statements::{Split, Tokens, statements};
use rockmill_sql::{Scans, refuse_writes};
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use super::PLANNING_STACK_BYTES;
use super::error::{self, Misplaced, Source, failure};
use super::format::{self, Format};
use super::script::{Command, HELP, Item, Script};

/// The tables without the information schema.
const TABLES: &str = "select table_schema, table_name, table_type from information_schema.tables \
    where table_schema <> 'information_schema' order by 1, 2";

/// Time after Control-C in which a statement must end. Planning does not check for signals.
const PATIENCE: Duration = Duration::from_secs(2);

/// A session that prints the results of statements.
pub struct Shell {
    pub context: SessionContext,
    pub runtime: Runtime,
    pub format: Format,
    pub explain: bool,
    /// Whether COPY may write to files that exist.
    pub force: bool,
}

/// Whether statements may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Next,
    Leave,
}

impl Shell {
    /// Runs statements and commands, up to the first that fails. If one of them is not a statement, none runs.
    pub fn run(self: &Arc<Self>, source: Source<'_>) -> Result<Flow, Failure> {
        let script = Script::of(source.text);
        let mut items = script.items;
        if script.rest.first().is_some() {
            items.push(Item::Statement(script.rest));
        }
        if let Some(trouble) = &script.trouble {
            return Err(source.failure(error::of_tokenizer(trouble)));
        }
        self.run_items(items, source)
    }

    /// Runs parts of a text, up to the first that fails. If one of them is not a statement, none runs.
    pub fn run_items(
        self: &Arc<Self>,
        items: Vec<Item>,
        source: Source<'_>,
    ) -> Result<Flow, Failure> {
        let mut parsed = Vec::new();
        for item in items {
            let statement = match &item {
                Item::Command(_) => None,
                Item::Statement(tokens) => {
                    let statement = tokens.parse();
                    statement.map_err(|e| self.failure(e, tokens, source))?
                }
            };
            parsed.push((item, statement));
        }
        // One listener for all statements, so that a signal between two of them is not lost.
        let mut interrupts = self.interrupts()?;
        for (item, statement) in parsed {
            let flow = match (item, statement) {
                (Item::Command(command), _) => self.command(command, &mut interrupts),
                (Item::Statement(tokens), Some(statement)) => {
                    self.statement(statement, &tokens, &mut interrupts)
                }
                (Item::Statement(_), None) => continue,
            };
            if flow.map_err(|misplaced| source.failure(misplaced))? == Flow::Leave {
                return Ok(Flow::Leave);
            }
        }
        Ok(Flow::Next)
    }

    /// Runs the statements of a file that belongs to the database.
    pub fn define(&self, scans: &Scans, source: Source<'_>) -> Result<(), Failure> {
        let split = Split::of(source.text);
        if let Some(trouble) = &split.trouble {
            return Err(source.failure(error::of_tokenizer(trouble)));
        }
        for tokens in split.ended.iter().chain([&split.rest]) {
            let statement = tokens.parse();
            let statement = statement.map_err(|e| self.failure(e, tokens, source))?;
            if let Some(statement) = statement {
                let defined = scans.define_one(&self.context, statement);
                let defined = self.runtime.block_on(defined);
                defined.map_err(|e| self.failure(e, tokens, source))?;
            }
        }
        Ok(())
    }

    fn failure(&self, error: DataFusionError, tokens: &Tokens, source: Source<'_>) -> Failure {
        source.failure(error::of_statement(error, tokens, &self.context))
    }

    /// Catches Control-C from now on. It does not end the process any more.
    pub fn interrupts(&self) -> Result<Signal, Failure> {
        let interrupts = self
            .runtime
            .block_on(async { signal(SignalKind::interrupt()) });
        interrupts.map_err(|e| Failure::Environment(format!("no signals: {e}")))
    }

    fn command(
        self: &Arc<Self>,
        command: Command,
        interrupts: &mut Signal,
    ) -> Result<Flow, Misplaced> {
        let text = match command {
            Command::Help => {
                output::to_stdout(|out| Ok(writeln!(out, "{HELP}")?))?;
                return Ok(Flow::Next);
            }
            Command::Exit => return Ok(Flow::Leave),
            Command::Tables => "show tables".to_owned(),
            Command::Describe(table) => format!("describe {}", self.table(&table)?),
            Command::Unknown(command) => {
                let what = format!("{command} is no command; help lists them");
                return Err(Failure::Usage(what).into());
            }
        };
        let statements = statements(&text).map_err(failure)?;
        for statement in statements {
            self.statement(statement, &Tokens::default(), interrupts)?;
        }
        Ok(Flow::Next)
    }

    /// The table of this name, in the form that SQL needs.
    fn table(&self, name: &str) -> Result<String, Failure> {
        // A table that is not supported returns the reason.
        if let Some(table) = error::tables(&self.context).remove(name) {
            return Ok(table);
        }
        let as_it_is = TableReference::bare(name);
        let parts = TableReference::parse_str(name);
        for table in [as_it_is, parts] {
            let found = self.context.table_provider(table.clone());
            if self.runtime.block_on(found).is_ok() {
                return Ok(table.to_quoted_string());
            }
        }
        Err(Failure::Usage(error::no_table(name, &self.context)))
    }

    /// Runs a statement until it ends, or Control-C ends it.
    fn statement(
        self: &Arc<Self>,
        statement: Statement,
        tokens: &Tokens,
        interrupts: &mut Signal,
    ) -> Result<Flow, Misplaced> {
        let interrupted = Arc::new(Notify::new());
        let (ends, ended) = tokio::sync::oneshot::channel();
        let (shell, notified) = (Arc::clone(self), Arc::clone(&interrupted));
        let tokens = tokens.clone();
        let thread = std::thread::Builder::new().stack_size(PLANNING_STACK_BYTES);
        let thread = thread.spawn(move || {
            let done = shell.runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = notified.notified() => Err(interruption().into()),
                    done = shell.planned_and_run(statement) => done,
                }
            });
            let done = done.map_err(|stop| match stop {
                Stop::Failed(failure) => failure.into(),
                Stop::Statement(error) => error::of_statement(error, &tokens, &shell.context),
            });
            // If the statement did not end in time, the receiver is gone.
            let _ = ends.send(done);
        });
        thread.map_err(|e| Failure::Environment(format!("no thread: {e}")))?;
        self.runtime.block_on(async {
            let mut ended = ended.fuse();
            tokio::select! {
                done = &mut ended => return done.unwrap_or_else(|_| Err(panicked())),
                _ = interrupts.recv() => interrupted.notify_one(),
            }
            // The statement may have returned by now, and those behind it do not run.
            tokio::select! {
                _ = ended => {}
                // Again.
                _ = interrupts.recv() => {}
                () = tokio::time::sleep(PATIENCE) => {}
            }
            Err(interruption().into())
        })?;
        Ok(Flow::Next)
    }

    async fn planned_and_run(&self, statement: Statement) -> Result<(), Stop> {
        let began = Instant::now();
        let state = self.context.state();
        let lists = statement.to_string() == "SHOW TABLES";
        let statement = match lists {
            true => statements(TABLES)?.remove(0),
            false => statement,
        };
        let plan = state.statement_to_plan(statement).await?;
        refuse_writes(&self.context, &plan)?;
        let is_run = match plan {
            LogicalPlan::Ddl(_) | LogicalPlan::Statement(_) | LogicalPlan::DescribeTable(_) => true,
            _ => lists,
        };
        if self.explain && !is_run {
            let plan = state.create_physical_plan(&plan).await?;
            return Ok(format::explain(&plan)?);
        }
        if let LogicalPlan::Copy(copy) = &plan
            && !self.force
        {
            refuse_existing(&copy.output_url)?;
        }
        let are_plans = matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
        let frame = self.context.execute_logical_plan(plan).await?;
        let plan = rockmill_sql::plan_query(frame).await?;
        // Planning may have taken long, and Control-C may have come.
        tokio::task::yield_now().await;
        let shown = if plan.schema().fields().is_empty() {
            // The plan of a statement that defines a name.
            drain(plan, &state).await?;
            None
        } else if are_plans && self.format == Format::Table {
            format::print_plans(plan, state.task_ctx()).await?;
            None
        } else {
            format::print(self.format, plan, state.task_ctx()).await?
        };
        if self.format == Format::Table && std::io::stdout().is_terminal() {
            format::footer(shown, began.elapsed())?;
        }
        Ok(())
    }
}

/// Reason why a statement ended.
pub enum Stop {
    Failed(Failure),
    Statement(DataFusionError),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<DataFusionError> for Stop {
    fn from(error: DataFusionError) -> Self {
        Self::Statement(error)
    }
}

fn interruption() -> Failure {
    const SIGINT: u8 = 2;
    Failure::Stopped {
        what: "interrupted".to_owned(),
        signal: SIGINT,
    }
}

/// The panic message was printed already.
fn panicked() -> Misplaced {
    Failure::Environment("internal error, please report it: the statement panicked".to_owned())
        .into()
}

/// Refuses to write over a file.
fn refuse_existing(target: &str) -> Result<(), Failure> {
    let path = Path::new(target.strip_prefix("file://").unwrap_or(target));
    let what = if path.is_dir() {
        let mut entries = std::fs::read_dir(path).into_iter().flatten();
        match entries.next() {
            Some(_) => "has files, and --force adds others",
            None => return Ok(()),
        }
    } else if path.exists() {
        "exists, and --force replaces it"
    } else {
        return Ok(());
    };
    let what = format!("{target} {what}; or name another one");
    Err(Failure::Usage(what))
}

async fn drain(plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Result<(), DataFusionError> {
    let drained = datafusion::physical_plan::collect(plan, state.task_ctx()).await;
    drained.map(|_| ())
}
