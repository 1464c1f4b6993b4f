//! Runs statements and prints their results.

use std::io::IsTerminal;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use datafusion::common::TableReference;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use futures::FutureExt;
use rockmill_side_by_side::progress;
use rockmill_sql::statements::{Tokens, statements};
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use super::PLANNING_STACK_BYTES;
use super::error::{self, Misplaced, Source, failure};
use super::format::{self, Format};
use super::memory;
use super::script::{Command, HELP, Item, Script};
use super::session::{self, Stop};
use super::threads::{TIMEOUT, Threads, wait_for_tasks};

/// A session that prints the results of statements.
pub struct Shell {
    pub context: SessionContext,
    pub threads: Threads,
    pub format: Format,
    pub explain: bool,
    /// Whether COPY may write to files that exist, and make folders.
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

    fn failure(&self, error: DataFusionError, tokens: &Tokens, source: Source<'_>) -> Failure {
        source.failure(error::of_statement(error, tokens, &self.context))
    }

    /// Catches Control-C from now on. It does not end the process any more.
    pub fn interrupts(&self) -> Result<Signal, Failure> {
        let interrupts = async { signal(SignalKind::interrupt()) };
        let interrupts = self.threads.waiting.block_on(interrupts);
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
            if self.threads.statements()?.block_on(found).is_ok() {
                return Ok(table.to_quoted_string());
            }
        }
        Err(Failure::Usage(error::no_table(name, &self.context)))
    }

    /// Runs a statement until it ends, or Control-C ends it. A statement that does not end in time, or that a second
    /// Control-C comes for, is left behind with its threads: planning and some operators do not check for signals.
    fn statement(
        self: &Arc<Self>,
        statement: Statement,
        tokens: &Tokens,
        interrupts: &mut Signal,
    ) -> Result<Flow, Misplaced> {
        let runtime = self.threads.statements()?;
        let interrupted = Arc::new(Notify::new());
        let (ends, ended) = tokio::sync::oneshot::channel();
        let (shell, notified) = (Arc::clone(self), Arc::clone(&interrupted));
        let (tokens, runs) = (tokens.clone(), Arc::clone(&runtime));
        let thread = std::thread::Builder::new().stack_size(PLANNING_STACK_BYTES);
        let thread = thread.spawn(move || {
            let done = runs.block_on(async {
                let planned = OnceLock::new();
                let run = shell.planned_and_run(statement, &planned);
                tokio::select! {
                    biased;
                    () = notified.notified() => Err(interruption().into()),
                    done = memory::within_size(&planned, run) => done,
                }
            });
            let done = done.map_err(|stop| match stop {
                Stop::Failed(failure) => failure.into(),
                Stop::Statement(error) => error::of_statement(error, &tokens, &shell.context),
            });
            // The receiver may have both when it gets the result.
            drop((shell, runs));
            // If the statement did not end in time, the receiver is gone.
            let _ = ends.send(done);
        });
        thread.map_err(|e| Failure::Environment(format!("no thread: {e}")))?;
        let ended_in_time = self.threads.waiting.block_on(async {
            let mut ended = ended.fuse();
            tokio::select! {
                done = &mut ended => return done.unwrap_or_else(|_| Err(panicked())).map(|()| None),
                _ = interrupts.recv() => interrupted.notify_one(),
            }
            // The statement may have returned by now, and those behind it do not run.
            let all_ended = async {
                let _ = ended.await;
                wait_for_tasks(&runtime).await;
            };
            Ok(Some(tokio::select! {
                () = all_ended => true,
                // A second Control-C.
                _ = interrupts.recv() => false,
                () = tokio::time::sleep(TIMEOUT) => false,
            }))
        })?;
        match ended_in_time {
            None => return Ok(Flow::Next),
            Some(true) => {}
            Some(false) => {
                self.threads.leave();
                progress::clear_line();
            }
        }
        Err(interruption().into())
    }

    /// Sets `planned` before the plan runs.
    async fn planned_and_run(
        &self,
        statement: Statement,
        planned: &OnceLock<Arc<dyn ExecutionPlan>>,
    ) -> Result<(), Stop> {
        let began = Instant::now();
        let state = self.context.state();
        let lists = session::lists_tables(&statement);
        let plan = session::logical_plan(&self.context, statement).await?;
        let is_run = match plan {
            LogicalPlan::Ddl(_) | LogicalPlan::Statement(_) | LogicalPlan::DescribeTable(_) => true,
            _ => lists,
        };
        if self.explain && !is_run {
            let plan = state.create_physical_plan(&plan).await?;
            return Ok(format::explain(&plan)?);
        }
        let are_plans = matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
        let plan = session::physical_plan(&self.context, plan, self.force).await?;
        let plan = planned.get_or_init(|| plan);
        // Planning may have taken long, and Control-C may have come.
        tokio::task::yield_now().await;
        let run = async {
            if plan.schema().fields().is_empty() {
                // The plan of a statement that defines a name.
                drain(Arc::clone(plan), &state).await?;
                return Ok(None);
            }
            let (plan, context) = (Arc::clone(plan), state.task_ctx());
            if are_plans && self.format == Format::Table {
                format::print_plans(plan, context).await?;
                return Ok(None);
            }
            format::print(self.format, plan, context).await
        };
        let shown = run.await?;
        if self.format == Format::Table && std::io::stdout().is_terminal() {
            format::footer(shown, began.elapsed())?;
        }
        Ok(())
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

async fn drain(plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Result<(), DataFusionError> {
    let drained = datafusion::physical_plan::collect(plan, state.task_ctx()).await;
    drained.map(|_| ())
}
