//! Statements over workers and shards: real processes on this machine.

#![cfg(feature = "distributed")]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{DONE, ENVIRONMENT, WRONG_USAGE, expect, text};
use datafusion::error::DataFusionError;
use datafusion::prelude::{SessionConfig, SessionContext};
use rand::prelude::*;
use rockmill_distributed::{Channels, Workers, over_workers};
use rockmill_scan::{Directory, ScanEngine, ScanSettings};
use rockmill_side_by_side::dataset::tpch_statements;
use rockmill_sql::Scans;
use rockmill_testkit::machine::{cases, seed, skipped};
use rust_rocksdb::{DB, Options};
use rustix::process::Signal;
use tempfile::TempDir;

/// The scale factor of TPC-H.
const SCALE: f64 = 0.03;

const ROCKMILL: &str = env!("CARGO_BIN_EXE_rockmill");

/// A statement of billions of pairs, which does not end before a test ends it.
const ENDLESS: &str = "select count(*) from lineitem a join lineitem b on a.l_linenumber = b.l_linenumber \
    where a.l_comment < b.l_comment";

/// A worker, which is killed when this is dropped.
struct Worker {
    process: Child,
    address: String,
}

impl Worker {
    fn start(root: &Path) -> Self {
        Self::start_with(root, &[])
    }

    fn start_with(root: &Path, args: &[&str]) -> Self {
        Self::start_by(&mut Command::new(ROCKMILL), root, args)
    }

    fn start_by(command: &mut Command, root: &Path, args: &[&str]) -> Self {
        command.args([
            "worker",
            "--listen",
            "127.0.0.1:0",
            "--threads",
            "2",
            "--memory-mib",
            "256",
        ]);
        let command = command.args(["--root", text(root)]).args(args);
        let mut process = command.stderr(Stdio::piped()).spawn().expect("a worker");
        let mut errors = BufReader::new(process.stderr.take().expect("a pipe"));
        let mut line = String::new();
        errors.read_line(&mut line).expect("a line");
        // Its later lines are read, so that it can go on.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::stderr()));
        let address = line
            .trim()
            .rsplit_once(' ')
            .map(|(_, address)| address.to_owned());
        let address = address.filter(|_| line.contains("listens at"));
        Self {
            process,
            address: address.unwrap_or_else(|| panic!("{line}")),
        }
    }

    fn kill(&mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("ended");
    }

    /// Ends it as `systemctl stop` does.
    fn terminate(&mut self) {
        self.signal(Signal::TERM);
        self.process.wait().expect("ended");
    }

    fn signal(&self, signal: Signal) {
        let process = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(process, signal).expect("sent");
    }

    /// Number of parts of statements that run or wait.
    fn parts(&self) -> f64 {
        metrics(&self.address)["rockmill_worker_parts"]
    }

    /// Waits until it runs a part of a statement. Another part has pinned the files.
    fn has_begun(&self) {
        soon("it does not begin", || self.parts() > 1.0);
    }

    /// Whether its threads use no time of a processor.
    fn is_idle(&self) -> bool {
        const INTERVAL: Duration = Duration::from_millis(200);
        /// In hundredths of a second: metrics are asked, and ended plans are dropped.
        const MOST_TICKS: u64 = 2;
        let ticks = || -> u64 {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()));
            let stat = stat.expect("a process");
            let (_, fields) = stat.rsplit_once(") ").expect("a name");
            let times = fields.split(' ').skip(11).take(2);
            times
                .map(|ticks| ticks.parse::<u64>().expect("a number"))
                .sum()
        };
        let before = ticks();
        std::thread::sleep(INTERVAL);
        ticks() - before <= MOST_TICKS
    }

    /// Number of files beneath a folder that it has open.
    fn open_files(&self, beneath: &Path) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.process.id()));
        let open = open.expect("a process").filter_map(|entry| {
            let target = std::fs::read_link(entry.ok()?.path()).ok()?;
            Some(text(&target).starts_with(text(beneath)))
        });
        open.filter(|is_beneath| *is_beneath).count()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn workers(root: &Path, number: usize) -> (Vec<Worker>, String) {
    let workers: Vec<_> = (0..number).map(|_| Worker::start(root)).collect();
    let addresses: Vec<_> = workers
        .iter()
        .map(|worker| worker.address.as_str())
        .collect();
    let addresses = addresses.join(",");
    (workers, addresses)
}

/// A folder with the database `tpch`.
fn tpch() -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().expect("a folder");
    let db = root.path().join("tpch");
    let _ = expect(
        DONE,
        &[
            "load",
            "tpch",
            "--scale",
            &SCALE.to_string(),
            "--db",
            text(&db),
        ],
    );
    (root, db)
}

/// The command while it runs.
fn begin(args: &[&str]) -> Child {
    let mut command = Command::new(ROCKMILL);
    let command = command.args(["sql", "--format", "csv"]).args(args);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it runs")
}

fn sql(args: &[&str]) -> Output {
    let args = [&["sql", "--format", "csv"], args].concat();
    Command::new(ROCKMILL).args(args).output().expect("it runs")
}

/// The rows, in an order of their own. Floats that were added in another order differ in their last digits.
fn rows(output: &Output) -> Vec<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let out = String::from_utf8_lossy(&output.stdout);
    let mut rows: Vec<_> = out.lines().map(rounded).collect();
    rows.sort();
    rows
}

fn rounded(line: &str) -> String {
    let values = line.split(',').map(|value| match value.parse::<f64>() {
        Ok(number) if value.contains(['.', 'e']) => format!("{number:.9e}"),
        _ => value.to_owned(),
    });
    values.collect::<Vec<_>>().join(",")
}

#[test]
fn workers_answer_tpch_as_one_process_does() {
    const QUERIES: i32 = 22;
    let (root, db) = tpch();
    let (_workers, addresses) = workers(root.path(), 3);
    for query in 1..=QUERIES {
        let statement = tpch_statements(query, SCALE).join(";");
        let alone = rows(&sql(&[text(&db), &statement]));
        let over = rows(&sql(&[text(&db), "--workers", &addresses, &statement]));
        assert_eq!(over, alone, "query {query}");
    }
}

#[test]
fn final_nodes_over_one_partition_are_not_repeated() {
    let (root, db) = tpch();
    let (_workers, addresses) = workers(root.path(), 3);
    for (statement, n) in [
        (
            "select count(*) as n from lineitem a join (select min(l_orderkey) as k from lineitem) m on a.l_orderkey = m.k",
            None,
        ),
        (
            "select count(*) as n from orders join (select l_orderkey as k from lineitem limit 5) on o_orderkey = k",
            Some(5),
        ),
        (
            "select count(*) as n from supplier join (select l_suppkey as k, count(*) from lineitem group by 1) on s_suppkey = k",
            Some(300),
        ),
    ] {
        for threads in ["1", "2"] {
            let args = [text(&db), "--threads", threads, statement];
            let alone = rows(&sql(&args));
            let over = rows(&sql(&[&args[..], &["--workers", &addresses]].concat()));
            assert_eq!(over, alone, "{statement}");
            assert!(
                n.is_none_or(|n: u32| over.contains(&n.to_string())),
                "{over:?}"
            );
        }
    }
}

#[test]
fn each_worker_reads_a_share_and_the_coordinator_none() {
    let (root, db) = tpch();
    let (_workers, addresses) = workers(root.path(), 3);
    let statement = "explain analyze verbose select l_returnflag, count(*), sum(l_quantity) from lineitem group by 1";
    let output = sql(&[text(&db), "--workers", &addresses, statement]);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let full = out.split("Full Metrics").nth(1).unwrap_or(&out);
    for task in 0..3 {
        assert!(
            full.contains(&format!("bytes_read={{{task}:")),
            "{task}: {out}"
        );
    }
    // Scans run nowhere else.
    assert_eq!(full.matches("bytes_read={").count(), 3, "{out}");
}

#[test]
fn explain_analyze_says_what_each_worker_did() {
    let (root, db) = tpch();
    let (workers, addresses) = workers(root.path(), 3);
    let statement =
        "explain analyze select l_returnflag, count(*), sum(l_quantity) from lineitem group by 1";
    let args = ["sql", text(&db), "--workers", &addresses, statement];
    let output = Command::new(ROCKMILL).args(args).output().expect("it runs");
    let out = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let (_, lines) = out.split_once("Workers\n").expect("a row of its own");
    let of = |name: &str| -> BTreeMap<&str, &str> {
        let line = lines.lines().find_map(|line| line.strip_prefix(name));
        let line = line.unwrap_or_else(|| panic!("{name}: {out}"));
        let values = line.trim_start_matches(": ").split(", ");
        values.filter_map(|value| value.split_once('=')).collect()
    };
    let mut rows = 0;
    for worker in &workers {
        let done = of(&worker.address);
        let number = |name: &str| done[name].parse::<u64>().expect("a number");
        let bytes = metrics(&worker.address)["rockmill_worker_scan_read_bytes_total"];
        assert_eq!(number("bytes_read") as f64, bytes, "{out}");
        assert!(bytes > 0.0 && number("parts") > 0, "{out}");
        assert!(
            done["scan_time"].ends_with('s') && done["scan_time"] != "0.000s",
            "{out}"
        );
        rows += number("rows_visible");
    }
    let count = self::rows(&sql(&[text(&db), "select count(*) as n from lineitem"]));
    assert!(count.contains(&rows.to_string()), "{out}");
    assert_eq!(of("this process")["bytes_read"], "0", "{out}");
    // The names behind the numbers in the plan.
    let parts = workers.iter().enumerate();
    let parts: Vec<_> = parts
        .map(|(part, worker)| format!("t{part} at {}", worker.address))
        .collect();
    assert!(
        lines.contains(&format!(": {}\n", parts.join(", "))),
        "{out}"
    );
    // The text of a statement that no worker runs a part of stays as it is.
    let statement = "explain analyze select 1";
    let alone = rows_of_text(&sql(&[text(&db), "--workers", &addresses, statement]));
    assert!(!alone.contains("Workers"), "{alone}");
}

fn rows_of_text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The command at a terminal of its own, which `script` makes. It ends when this is dropped.
struct Terminal {
    process: Child,
    printed: Arc<Mutex<Vec<u8>>>,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Terminal {
    fn start(args: &[&str]) -> Self {
        let words = [&[ROCKMILL, "sql"], args].concat();
        let words: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
        let command = format!("stty cols 100 rows 24; exec {}", words.join(" "));
        // The end of the terminal ends an endless statement, also where the tests run under nohup.
        let mut process = Command::new("env")
            .args(["--default-signal=HUP", "script"])
            .args(["--quiet", "--flush", "--return", "--command", &command])
            .arg("/dev/null")
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script of util-linux");
        let mut output = process.stdout.take().expect("a pipe");
        let printed = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&printed);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                all.lock().expect("printed").extend(&bytes[..count]);
            }
        });
        Self { process, printed }
    }

    fn printed(&self) -> String {
        let printed = self.printed.lock().expect("printed");
        String::from_utf8_lossy(&printed).into_owned()
    }

    /// The last drawing of the bar over bytes: those that are read, and all.
    fn bar(&self) -> Option<(f64, f64)> {
        let printed = self.printed();
        let words: Vec<_> = printed.split_whitespace().collect();
        let bytes = |number: &str, unit: &str| {
            let units = ["B", "KiB", "MiB", "GiB"];
            let power = units.iter().position(|name| unit == *name)?;
            Some(number.parse::<f64>().ok()? * 1024_f64.powi(power as i32))
        };
        let mut drawn = words.windows(3).rev().filter_map(|words| {
            let (unit, all) = words[1].split_once('/')?;
            Some((bytes(words[0], unit)?, bytes(all, words[2])?))
        });
        drawn.next()
    }
}

#[test]
fn the_progress_bar_is_over_the_bytes_of_all_workers() {
    let (root, db) = tpch();
    let (workers, addresses) = workers(root.path(), 3);
    let all_bytes = |args: &[&str]| {
        let terminal = Terminal::start(args);
        let mut bar = (0.0, 0.0);
        soon("there is no bar", || {
            bar = terminal.bar().unwrap_or_default();
            assert!(bar.0 <= bar.1, "{}", terminal.printed());
            // One side of the join is read, and the other is being read.
            bar.0 > bar.1 / 3.0 && bar.0 > 0.0
        });
        bar.1
    };
    let alone = all_bytes(&[text(&db), ENDLESS]);
    let over = all_bytes(&[text(&db), "--workers", &addresses, ENDLESS]);
    assert_eq!(over, alone);
    // The bytes of one of the workers alone would be a third.
    for worker in &workers {
        assert!(metrics(&worker.address)["rockmill_worker_scan_read_bytes_total"] > 0.0);
    }
}

#[test]
fn a_statement_that_its_client_abandons_ends_on_the_workers() {
    let (root, db) = tpch();
    let (workers, addresses) = workers(root.path(), 2);
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let mut client = begin(&[text(&db), "--workers", &addresses, ENDLESS]);
        for worker in &workers {
            worker.has_begun();
        }
        let process = rustix::process::Pid::from_child(&client);
        rustix::process::kill_process(process, signal).expect("sent");
        let began = Instant::now();
        soon("a part goes on", || {
            workers.iter().all(|worker| worker.parts() == 0.0)
        });
        println!("{signal:?}: its parts ended within {:?}", began.elapsed());
        assert!(!client.wait().expect("ended").success());
        for worker in &workers {
            soon("a thread goes on", || worker.is_idle());
            soon("files stay open", || worker.open_files(&db) == 0);
        }
    }
    let count = "select count(*) as n from lineitem";
    let expected = rows(&sql(&[text(&db), count]));
    assert_eq!(
        rows(&sql(&[text(&db), "--workers", &addresses, count])),
        expected
    );
}

/// A session of this process over workers.
fn session(db: &Path, workers: &[Worker]) -> SessionContext {
    const MEMORY_BYTES: u64 = 256 << 20;
    let engine = ScanEngine::new(ScanSettings::default()).expect("an engine");
    let addresses: Vec<_> = workers
        .iter()
        .map(|worker| worker.address.parse().expect("an address"))
        .collect();
    let workers = Workers::new(&addresses, Channels::new(None), &engine);
    let config = SessionConfig::new().with_target_partitions(2);
    let config = rockmill_sql::configured(config, MEMORY_BYTES);
    let runtime = rockmill_sql::runtime(MEMORY_BYTES, None).expect("memory");
    let finish = |builder| over_workers(builder, &engine, &workers);
    let session = rockmill_sql::session_by(runtime, config, &engine, finish);
    let session = session.expect("a session");
    let directory = Directory::open(db).expect("a database");
    let scans = Scans::new(Arc::clone(&engine), Arc::new(directory));
    let scans = scans.pinned_by(Arc::new(workers));
    scans.register(&session).expect("registered");
    session
}

#[test]
fn five_hundred_statements_at_once_are_answered_or_refused() {
    const STATEMENTS: usize = 500;
    let (root, db) = tpch();
    let (workers, _) = workers(root.path(), 2);
    let session = session(&db, &workers);
    let count = |statement: &'static str| {
        let session = session.clone();
        async move {
            let rows = session.sql(statement).await?.collect().await?;
            let rows = rows.iter().map(|batch| batch.column(0).to_data());
            Ok::<_, DataFusionError>(rows.collect::<Vec<_>>())
        }
    };
    // The second one has exchanges between the workers.
    let statements = [
        "select count(*) from orders",
        "select count(*) from orders a join orders b on a.key = b.key",
    ];
    let threads = tokio::runtime::Runtime::new().expect("threads");
    let expected = statements.map(|statement| threads.block_on(count(statement)).expect("rows"));
    let begun: Vec<_> = (0..STATEMENTS)
        .map(|at| threads.spawn(count(statements[at % 2])))
        .collect();
    let (mut answered, mut refused) = (0, 0);
    for (at, statement) in begun.into_iter().enumerate() {
        match threads.block_on(statement).expect("it does not panic") {
            Ok(rows) => {
                assert_eq!(rows, expected[at % 2]);
                answered += 1;
            }
            Err(error) => {
                let error = error.find_root();
                let is_of_memory = matches!(error, DataFusionError::ResourcesExhausted(_));
                let said = error.message();
                assert!(
                    is_of_memory || said.contains("run the statement again later"),
                    "{said}"
                );
                refused += 1;
            }
        }
    }
    println!("{answered} of {STATEMENTS} statements were answered, and {refused} refused");
    assert!(answered > 0);
    for worker in &workers {
        assert!(metrics(&worker.address)["rockmill_worker_scan_pieces_total"] > 0.0);
    }
    for (statement, expected) in statements.into_iter().zip(expected) {
        assert_eq!(threads.block_on(count(statement)).expect("rows"), expected);
    }
}

#[test]
fn a_sum_beyond_its_type_is_one_sentence_over_workers() {
    let (root, db) = tpch();
    let (_workers, addresses) = workers(root.path(), 2);
    let large = "l_linenumber + 9223372036854775800";
    for statement in [
        format!("select sum({large}) from lineitem"),
        format!("select l_returnflag, sum({large}) from lineitem group by 1"),
        format!("select sum(distinct {large}), sum(distinct l_linenumber) from lineitem"),
    ] {
        let output = sql(&[text(&db), "--workers", &addresses, &statement]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{statement}");
        assert!(
            said.contains("sum(") && said.contains("exceeds the range of its type bigint"),
            "{statement}: {said}"
        );
        assert_eq!(said.trim().lines().count(), 1, "{said}");
    }
    // Parts of this sum exceed the type.
    let exact = format!(
        "select sum(case l_linenumber % 2 when 0 then -({large}) else {large} end) as s from lineitem \
        where l_orderkey in (select l_orderkey from lineitem group by 1 having max(l_linenumber) = 4)"
    );
    let alone = rows(&sql(&[text(&db), &exact]));
    assert_eq!(
        rows(&sql(&[text(&db), "--workers", &addresses, &exact])),
        alone
    );
}

/// A statement over the table lineitem.
fn random_statement(random: &mut StdRng) -> String {
    let columns = [
        "l_orderkey",
        "l_partkey",
        "l_suppkey",
        "l_linenumber",
        "l_quantity",
        "l_extendedprice",
    ];
    let groups = [
        "l_returnflag",
        "l_linestatus",
        "l_shipmode",
        "l_linenumber",
        "l_suppkey",
    ];
    let filters = [
        "l_orderkey < 20000",
        "l_orderkey between 5000 and 90000",
        "l_shipdate < date '1995-01-01'",
        "l_quantity > 40",
        "l_shipmode in ('AIR', 'RAIL')",
        "l_comment like '%ironic%'",
        "l_partkey % 7 = 3",
        "l_orderkey = 12345",
    ];
    let calls = ["count(*)", "sum", "min", "max", "avg", "count(distinct"];
    let mut one = |all: &[&str]| (*all.choose(random).expect("some")).to_owned();
    let filter = match one(&["one", "two", "none"]).as_str() {
        "none" => String::new(),
        "one" => format!(" where {}", one(&filters)),
        _ => format!(" where {} and {}", one(&filters), one(&filters)),
    };
    match one(&["groups", "rows", "all", "join", "window"]).as_str() {
        "rows" => {
            let column = one(&columns);
            format!(
                "select l_orderkey, l_linenumber, {column} as c from lineitem{filter} order by c, 1, 2 limit 50"
            )
        }
        "join" => format!(
            "select o_orderpriority, count(*) from lineitem join orders on l_orderkey = o_orderkey{filter} group by 1"
        ),
        "window" => format!(
            "select l_orderkey, l_linenumber, rank() over (partition by l_suppkey order by l_extendedprice, l_orderkey, \
             l_linenumber) as place from lineitem{filter} order by place desc, 1, 2 limit 20"
        ),
        form => {
            let calls = (0..3).map(|at| {
                let call = match one(&calls).as_str() {
                    "count(*)" => "count(*)".to_owned(),
                    "count(distinct" => format!("count(distinct {})", one(&columns)),
                    call => format!("{call}({})", one(&columns)),
                };
                format!("{call} as c{at}")
            });
            let calls = calls.collect::<Vec<_>>().join(", ");
            match form {
                "all" => format!("select {calls} from lineitem{filter}"),
                _ => {
                    let group = one(&groups);
                    format!("select {group}, {calls} from lineitem{filter} group by {group}")
                }
            }
        }
    }
}

#[test]
fn workers_answer_random_statements_as_one_process_does() {
    let mut random = StdRng::seed_from_u64(seed());
    let (root, db) = tpch();
    let (_workers, addresses) = workers(root.path(), 3);
    // One process runs many statements, each of which prints its rows below those of the one before.
    let statements: Vec<_> = (0..cases(20))
        .map(|_| random_statement(&mut random))
        .collect();
    for few in statements.chunks(20) {
        let text_of_all = few.join(";\n");
        let alone = rows(&sql(&[text(&db), &text_of_all]));
        let over = rows(&sql(&[text(&db), "--workers", &addresses, &text_of_all]));
        assert_eq!(over, alone, "{text_of_all}");
    }
}

/// Makes a database with the keys of a range, as in `key000017`.
fn shard(root: &Path, keys: std::ops::Range<u32>) {
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, root.join("db")).expect("a database");
    for key in keys {
        db.put(format!("key{key:06}"), format!("value {}", key % 10))
            .expect("put");
        if key % 5000 == 4999 {
            db.flush().expect("flushed");
        }
    }
}

struct Shards {
    /// Lives as long as the statements.
    _root: TempDir,
    workers: Vec<Worker>,
    list: PathBuf,
}

/// Three nodes with 10,000 keys each.
fn three_shards() -> Shards {
    let root = tempfile::tempdir().expect("a folder");
    let mut list = String::new();
    let mut workers = Vec::new();
    for (node, range) in [
        "to = 'key010000'",
        "from = 'key010000'\nto = 'key020000'",
        "from = 'key020000'",
    ]
    .into_iter()
    .enumerate()
    {
        let folder = root.path().join(format!("node{node}"));
        let first = node as u32 * 10_000;
        std::fs::create_dir(&folder).expect("made");
        shard(&folder, first..first + 10_000);
        let worker = Worker::start(&folder);
        list += &format!(
            "[[shard]]\nfamily = 'default'\nurl = '{}/db'\n{range}\n",
            worker.address
        );
        workers.push(worker);
    }
    let file = root.path().join("shards.toml");
    std::fs::write(&file, list).expect("written");
    Shards {
        _root: root,
        workers,
        list: file,
    }
}

#[test]
fn shards_are_one_table() {
    let shards = three_shards();
    let run = |statement: &str| sql(&["--shards", text(&shards.list), statement]);
    let count = rows(&run(
        "select count(*) as n, min(key), max(key) from \"default\"",
    ));
    let (first, last) = ("6b6579303030303030", "6b6579303239393939");
    assert!(
        count.contains(&format!("30000,{first},{last}")),
        "{count:?}"
    );
    let groups = rows(&run(
        "select value, count(*) as n from \"default\" group by value",
    ));
    assert_eq!(groups.len(), 11, "{groups:?}");
    assert!(
        groups[..10].iter().all(|row| row.ends_with(",3000")),
        "{groups:?}"
    );
    let one = rows(&run("select key from \"default\" where key = 'key015000'"));
    assert_eq!(one, ["6b6579303135303030", "key"]);
    let none = rows(&run("select key from \"default\" where key = 'zzz'"));
    assert_eq!(none, ["key"]);
    let ordered = rows(&run(
        "select key from \"default\" order by key desc limit 3",
    ));
    assert_eq!(ordered.len(), 4, "{ordered:?}");
    let joined = "select count(*) as n from \"default\" a join \"default\" b on a.key = b.key where b.value = 'value 3'";
    assert!(rows(&run(joined)).contains(&"3000".to_owned()));
    // Each has a sequence number of its own, and the statement reads those with the keys alone.
    let plan = run("explain select count(*) from \"default\"");
    let plan = String::from_utf8_lossy(&plan.stdout);
    for worker in &shards.workers {
        assert!(
            plan.contains(&format!("{}/@10000", worker.address)),
            "{plan}"
        );
    }
}

#[test]
fn shards_do_not_merge_with_an_operator_that_options_contradict() {
    let root = tempfile::tempdir().expect("a folder");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_merge_operator_associative("mine", |_, value, operands| {
        Some(
            value
                .into_iter()
                .chain(operands)
                .collect::<Vec<_>>()
                .concat(),
        )
    });
    let db = DB::open(&options, root.path().join("db")).expect("a database");
    for operand in ["1", "2", "3"] {
        db.merge("key", operand).expect("merged");
    }
    drop(db);
    let worker = Worker::start(root.path());
    let list = root.path().join("shards.toml");
    let shard = format!(
        "[[shard]]\nfamily = 'default'\nurl = '{}/db'\n",
        worker.address
    );
    std::fs::write(&list, shard).expect("written");
    let run = |operator: &str| {
        let query = "select value from \"default\"";
        sql(&["--shards", text(&list), query, "--merge-operator", operator])
    };
    let refused = run("max");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("OPTIONS say mine"), "{said}");
    assert!(!refused.status.success());
    // The user says that the program's operator is the same.
    assert_eq!(rows(&run("default=max")), ["33", "value"]);
}

#[test]
fn a_recursive_statement_returns_the_same_rows_over_workers_and_shards() {
    let shards = three_shards();
    let (folder, db) = (tempfile::tempdir().expect("a folder"), "db");
    shard(folder.path(), 0..30_000);
    let db = folder.path().join(db);
    let (_workers, urls) = workers(folder.path(), 2);
    let first = "select key, value from \"default\" order by value desc, key limit 1";
    for statement in [
        format!(
            "with recursive t as (select 0 n, x'' k union all select t.n + 1, g.key from t join ({first}) g on t.n < 3) \
             select n, k from t"
        ),
        "with recursive t as (select min(key) k, 0 n from \"default\" union all select d.key, t.n + 1 from t join \
         \"default\" d on d.key > t.k and d.key < concat('key00000', t.n + 2) where n < 3) select count(*), max(n) from t"
            .to_owned(),
    ] {
        let one = rows(&sql(&[text(&db), &statement]));
        let of_shards = rows(&sql(&["--shards", text(&shards.list), &statement]));
        let of_workers = rows(&sql(&[text(&db), "--workers", &urls, &statement]));
        assert!(one.len() > 1, "{statement}: {one:?}");
        assert_eq!(of_shards, one, "{statement}");
        assert_eq!(of_workers, one, "{statement}");
    }
}

#[test]
fn a_join_with_a_limit_reads_all_rows_of_the_shards() {
    let shards = three_shards();
    for statement in [
        "select a.key from \"default\" a join (values ('key025000'), ('key012345')) k(x) on a.key = arrow_cast(k.x, 'Binary') \
         limit 2",
        "select a.key from \"default\" a join \"default\" b on a.key = b.key where b.key > 'key029997' limit 2",
        "select a.key, b.key from \"default\" a join \"default\" b on a.key > b.key where b.key = 'key029997' limit 2",
    ] {
        let found = rows(&sql(&["--shards", text(&shards.list), statement]));
        assert_eq!(found.len(), 3, "{statement}: {found:?}");
    }
}

#[test]
fn a_table_of_a_column_family_that_no_shard_has_is_an_error() {
    let shards = three_shards();
    let tables = shards.list.with_file_name("tables.sql");
    let create = "create external table t (key bytea, value bytea) stored as rocksdb location '.' options ('family' 'evnts')";
    std::fs::write(tables, create).expect("written");
    let found = sql(&["--shards", text(&shards.list), "select count(*) from t"]);
    let said = String::from_utf8_lossy(&found.stderr);
    assert!(
        !found.status.success() && said.contains("evnts"),
        "{found:?}"
    );
}

#[test]
fn a_key_outside_of_a_shards_range_is_an_error_that_names_both() {
    let shards = three_shards();
    let list = std::fs::read_to_string(&shards.list).expect("read");
    std::fs::write(&shards.list, list.replace("key010000", "key009000")).expect("written");
    let output = sql(&[
        "--shards",
        text(&shards.list),
        "select count(*) from \"default\"",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && output.stdout.is_empty(),
        "{said}"
    );
    assert!(
        said.contains("key009999") && said.contains(&shards.workers[0].address),
        "{said}"
    );
}

#[test]
fn a_database_that_is_listed_under_two_names_is_refused() {
    let shards = three_shards();
    let address = &shards.workers[0].address;
    let other = address.replace("127.0.0.1", "localhost");
    let list = [address.as_str(), &other]
        .map(|address| format!("[[shard]]\nfamily = 'default'\nurl = '{address}/db'\n"));
    std::fs::write(&shards.list, list.concat()).expect("written");
    let output = sql(&[
        "--shards",
        text(&shards.list),
        "select count(*) from \"default\"",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("twice"), "{said}");
}

/// All its rows are in the log, so it has no file that would tell.
#[test]
fn a_database_without_files_that_is_listed_twice_is_refused() {
    let root = tempfile::tempdir().expect("a folder");
    let db = DB::open_default(root.path().join("db")).expect("a database");
    db.put("key", "value").expect("written");
    let worker = Worker::start(root.path());
    let other = worker.address.replace("127.0.0.1", "localhost");
    let list = [&worker.address, &other]
        .map(|address| format!("[[shard]]\nfamily = 'default'\nurl = '{address}/db'\n"));
    let file = root.path().join("shards.toml");
    std::fs::write(&file, list.concat()).expect("written");
    let output = sql(&["--shards", text(&file), "select count(*) from \"default\""]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("twice"), "{said}");
}

/// The answer to a request of HTTP/1.1: head and body.
fn http(address: &str, request: &str) -> (String, String) {
    let mut connection = TcpStream::connect(address).expect("it listens");
    let request = format!("{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

/// The values of a worker's metrics.
fn metrics(address: &str) -> BTreeMap<String, f64> {
    let (head, body) = http(address, "GET /metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    let values = body.lines().filter(|line| !line.starts_with('#'));
    let values = values.map(|line| {
        let (name, value) = line.split_once(' ').expect("a value");
        (name.to_owned(), value.parse().expect("a number"))
    });
    values.collect()
}

#[test]
fn a_worker_serves_metrics_where_it_listens() {
    let (root, db) = tpch();
    let (workers, addresses) = workers(root.path(), 2);
    // A page in a browser cannot send plans.
    let (head, _) = http(
        &workers[0].address,
        "POST /worker.WorkerService/CoordinatorChannel",
    );
    assert!(head.starts_with("HTTP/1.1 505"), "{head}");
    let before = metrics(&workers[0].address);
    assert_eq!(before["rockmill_worker_scan_rows_total"], 0.0);
    let statement = "select l_linenumber, count(*) from lineitem group by 1";
    rows(&sql(&[text(&db), "--workers", &addresses, statement]));
    let after: Vec<_> = workers
        .iter()
        .map(|worker| metrics(&worker.address))
        .collect();
    for values in &after {
        for name in ["parts", "scan_pieces", "scan_read_bytes", "scan_seconds"] {
            let name = format!("rockmill_worker_{name}_total");
            assert!(values[&name] > 0.0, "{name}: {values:?}");
        }
        assert_eq!(values["rockmill_worker_parts_refused_total"], 0.0);
    }
    let read = after
        .iter()
        .map(|values| values["rockmill_worker_scan_rows_total"]);
    let count = rows(&sql(&[text(&db), "select count(*) as n from lineitem"]));
    assert!(
        count.contains(&format!("{}", read.sum::<f64>())),
        "{count:?}"
    );
    soon("a part does not end", || {
        let running = |worker: &Worker| metrics(&worker.address)["rockmill_worker_parts"];
        workers.iter().all(|worker| running(worker) == 0.0)
    });
}

/// An empty database stands for clones of a volume, which have the same folder and keys in ranges of their own.
#[test]
fn shards_with_ranges_may_be_clones_of_one_database() {
    let root = tempfile::tempdir().expect("a folder");
    drop(DB::open_default(root.path().join("db")).expect("a database"));
    let worker = Worker::start(root.path());
    let other = worker.address.replace("127.0.0.1", "localhost");
    let file = root.path().join("shards.toml");
    let count = |ranges: [&str; 2]| {
        let shards = [&worker.address, &other].into_iter().zip(ranges);
        let list = shards.map(|(address, range)| {
            format!("[[shard]]\nfamily = 'default'\nurl = '{address}/db'\n{range}\n")
        });
        std::fs::write(&file, list.collect::<String>()).expect("written");
        sql(&[
            "--shards",
            text(&file),
            "select count(*) as n from \"default\"",
        ])
    };
    assert_eq!(rows(&count(["to = 'm'", "from = 'm'"])), ["0", "n"]);
    for ranges in [["", ""], ["to = 'm'", ""], ["", "from = 'm'"]] {
        let output = count(ranges);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("twice"), "{said}");
    }
}

/// DataFusion panics if the strings of a batch have more than 2 GiB. Here they are those of the first 768 rows, so one
/// thread alone takes memory for them.
#[test]
fn a_panic_on_a_worker_is_an_error_and_the_worker_goes_on() {
    let (root, db) = tpch();
    let (mut workers, addresses) = workers(root.path(), 2);
    let over = |statement: &str| sql(&[text(&db), "--workers", &addresses, statement]);
    let longest = "max(case when l_orderkey < 800 then octet_length(regexp_replace(l_comment, '^', repeat('x', 3000000))) end)";
    for statement in [
        format!("select count(*), {longest} from lineitem"),
        format!("select l_linenumber, {longest} from lineitem group by l_linenumber"),
    ] {
        let output = over(&statement);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(ENVIRONMENT), "{said}");
        assert!(
            output.stdout.is_empty() && said.contains("more than 2 GiB"),
            "{said}"
        );
        for worker in &mut workers {
            assert_eq!(
                worker.process.try_wait().expect("a process"),
                None,
                "{said}"
            );
        }
        let rows = rows(&over("select count(*) > 100000 from lineitem"));
        assert!(rows.contains(&"true".to_owned()), "{rows:?}");
    }
}

#[test]
fn statements_over_shards_may_come_from_standard_input() {
    let shards = three_shards();
    let file = shards.list.with_extension("sql");
    std::fs::write(&file, "select count(*) as n from \"default\"").expect("written");
    let mut command = Command::new(ROCKMILL);
    let command = command.args(["sql", "--format", "csv", "--shards", text(&shards.list)]);
    let input = std::fs::File::open(&file).expect("opened");
    let output = command.stdin(input).output().expect("it runs");
    assert!(rows(&output).contains(&"30000".to_owned()));
    let (_, said) = expect(WRONG_USAGE, &["sql"]);
    assert!(said.contains("--shards"), "{said}");
}

#[test]
fn a_deleted_range_ends_at_the_end_of_a_shard() {
    let mut shards = three_shards();
    let node = shards.list.with_file_name("node0");
    shards.workers[0].kill();
    let db = DB::open_cf(&Options::default(), node.join("db"), ["default"]).expect("a database");
    let family = db.cf_handle("default").expect("a column family");
    db.delete_range_cf(&family, "key009000", "key010000")
        .expect("deleted");
    db.flush().expect("flushed");
    drop(db);
    let worker = Worker::start(&node);
    let list = std::fs::read_to_string(&shards.list).expect("read");
    let list = list.replace(&shards.workers[0].address, &worker.address);
    std::fs::write(&shards.list, list).expect("written");
    let count = sql(&[
        "--shards",
        text(&shards.list),
        "select count(*) as n from \"default\"",
    ]);
    assert!(rows(&count).contains(&"29000".to_owned()));
}

#[test]
fn a_lost_shard_is_one_sentence_and_no_answer() {
    let mut shards = three_shards();
    let lost = shards.workers[1].address.clone();
    shards.workers[1].kill();
    let output = sql(&[
        "--shards",
        text(&shards.list),
        "select count(*) from \"default\"",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(ENVIRONMENT), "{said}");
    assert!(output.stdout.is_empty());
    assert!(
        said.contains(&lost) && said.trim().lines().count() == 1,
        "{said}"
    );
}

#[test]
fn a_shard_that_is_lost_within_a_statement_is_named() {
    let mut shards = three_shards();
    // Each row takes a millisecond, where its shard is.
    let slow = "select count(*) from \"default\" where levenshtein(repeat(cast(value as varchar), 100), \
        repeat(cast(value as varchar), 99)) > 5";
    let begun = begin(&["--shards", text(&shards.list), slow]);
    shards.workers[1].has_begun();
    shards.workers[1].kill();
    let output = begun.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(ENVIRONMENT), "{said}");
    assert!(output.stdout.is_empty());
    let shard = format!(
        "shard {}/db of column family \"default\"",
        shards.workers[1].address
    );
    assert!(
        said.contains(&shard) && said.contains("run the statement again"),
        "{said}"
    );
    assert_eq!(said.trim().lines().count(), 1, "{said}");
}

#[test]
fn a_worker_removes_the_temporary_files_of_one_that_was_killed() {
    let root = tempfile::tempdir().expect("a folder");
    let temporary = tempfile::tempdir().expect("a folder");
    let start = || {
        let mut command = Command::new(ROCKMILL);
        let command = command.env("TMPDIR", temporary.path());
        Worker::start_by(command, root.path(), &[])
    };
    let folders = || -> Vec<_> {
        let entries = std::fs::read_dir(temporary.path()).expect("a folder");
        entries
            .map(|entry| entry.expect("an entry").path())
            .collect()
    };
    let mut first = start();
    let left = folders();
    assert_eq!(left.len(), 1);
    // One that is used stays.
    let mut second = start();
    assert!(folders().contains(&left[0]) && folders().len() == 2);
    first.kill();
    assert!(left[0].exists());
    let _third = start();
    assert!(!left[0].exists() && folders().len() == 2);
    second.terminate();
    assert_eq!(folders().len(), 1);
}

#[test]
fn a_worker_reads_nothing_outside_of_its_root() {
    let (root, db) = tpch();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let worker = Worker::start(elsewhere.path());
    let count = "select count(*) from lineitem";
    let output = sql(&[text(&db), "--workers", &worker.address, count]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("does not lie beneath the worker's root"),
        "{said}"
    );
    // A link does not lead out of it either.
    let link = elsewhere.path().join("db");
    std::os::unix::fs::symlink(root.path().join("tpch"), &link).expect("linked");
    let list = elsewhere.path().join("shards.toml");
    let text_of_list = format!(
        "[[shard]]\nfamily = 'default'\nurl = '{}/db'\n",
        worker.address
    );
    std::fs::write(&list, text_of_list).expect("written");
    let output = sql(&["--shards", text(&list), "select count(*) from \"default\""]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("outside of the worker's root"),
        "{said}"
    );
    assert_eq!(worker.open_files(root.path()), 0);
}

#[test]
fn a_worker_listens_to_other_machines_with_a_certificate_alone() {
    let root = tempfile::tempdir().expect("a folder");
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let (_, said) = expect(
            ENVIRONMENT,
            &["worker", "--listen", listen, "--root", text(root.path())],
        );
        assert!(said.contains("--tls"), "{said}");
    }
    let (_, said) = expect(
        WRONG_USAGE,
        &["worker", "--listen", "7400", "--root", text(root.path())],
    );
    assert!(said.contains("HOST:PORT"), "{said}");
}

/// Makes a certificate of an authority with openssl.
fn certificate(folder: &Path, authority: &str, name: &str, alternatives: &str) -> PathBuf {
    let script = format!(
        "set -e; cd '{}'; mkdir -p {name}
        key() {{ openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out $1; }}
        [ -e {authority}.key ] || {{ key {authority}.key
          openssl req -x509 -new -key {authority}.key -days 2 -subj '/CN={authority}' -out {authority}.pem; }}
        key {name}/key.pem; openssl req -new -key {name}/key.pem -subj '/CN={name}' -out {name}/csr
        printf 'subjectAltName={alternatives}\\nextendedKeyUsage=serverAuth,clientAuth\\n' > {name}/ext
        openssl x509 -req -in {name}/csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -days 2 \
          -extfile {name}/ext -out {name}/cert.pem
        cp {authority}.pem {name}/ca.pem",
        text(folder)
    );
    let output = Command::new("bash")
        .args(["-c", &script])
        .output()
        .expect("a shell");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    folder.join(name)
}

#[test]
fn both_sides_have_certificates_of_one_authority() {
    if Command::new("openssl").arg("version").output().is_err() {
        return skipped("there is no openssl to make certificates");
    }
    let (root, db) = tpch();
    let pki = tempfile::tempdir().expect("a folder");
    let here = "DNS:localhost,IP:127.0.0.1";
    let node = certificate(pki.path(), "one", "node", here);
    let elsewhere = certificate(pki.path(), "one", "elsewhere", "DNS:node9");
    let stranger = certificate(pki.path(), "other", "stranger", here);
    let worker = Worker::start_with(root.path(), &["--tls", text(&node)]);
    let count = "select count(*) as n from lineitem";
    let run = |address: &str, tls: &[&str]| {
        let args = [&[text(&db), "--workers", address], tls, &[count]].concat();
        sql(&args)
    };
    let expected = rows(&sql(&[text(&db), count]));
    assert_eq!(
        rows(&run(&worker.address, &["--tls", text(&node)])),
        expected
    );
    // Another node of the same authority may connect.
    assert_eq!(
        rows(&run(&worker.address, &["--tls", text(&elsewhere)])),
        expected
    );
    let refused = |output: Output, why: &str| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(ENVIRONMENT), "{why}: {said}");
        assert_eq!(said.trim().lines().count(), 1, "{why}: {said}");
    };
    refused(run(&worker.address, &[]), "no certificate");
    refused(
        run(&worker.address, &["--tls", text(&stranger)]),
        "another authority",
    );
    let other = Worker::start_with(root.path(), &["--tls", text(&elsewhere)]);
    refused(run(&other.address, &["--tls", text(&node)]), "another name");
    // The kernel accepts the connection, and nothing answers in the handshake.
    worker.signal(Signal::STOP);
    refused(run(&worker.address, &["--tls", text(&node)]), "no answer");
}

#[test]
fn a_worker_that_does_not_answer_is_an_error() {
    let (root, db) = tpch();
    let (workers, addresses) = workers(root.path(), 2);
    let lost = |output: &Output| {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(ENVIRONMENT), "{said}");
        assert!(said.contains(&workers[1].address), "{said}");
    };
    let over = [text(&db), "--workers", &addresses, ENDLESS];
    let begun = begin(&over);
    workers[1].has_begun();
    workers[1].signal(Signal::STOP);
    lost(&begun.wait_with_output().expect("it ends"));
    lost(&sql(&over));
    workers[1].signal(Signal::CONT);
    let count = ["select count(*) as n from lineitem"];
    let expected = rows(&sql(&[&[text(&db)], &count[..]].concat()));
    let again = sql(&[&over[..3], &count[..]].concat());
    assert_eq!(rows(&again), expected);
}

#[test]
fn statements_at_once_are_all_answered() {
    let (root, db) = tpch();
    let (_workers, addresses) = workers(root.path(), 2);
    let statement = "select count(*) as n, sum(l_quantity) from lineitem join orders on l_orderkey = o_orderkey \
        where o_orderkey < 4000";
    let expected = rows(&sql(&[text(&db), statement]));
    std::thread::scope(|scope| {
        let run = || {
            scope.spawn(|| {
                let output = sql(&[text(&db), "--workers", &addresses, statement]);
                assert_eq!(rows(&output), expected);
            })
        };
        let all: Vec<_> = (0..12).map(|_| run()).collect();
        for one in all {
            one.join().expect("answered");
        }
    });
}

/// Waits for something that ends soon, but later on a machine that does much else.
fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    const TIMEOUT: Duration = Duration::from_secs(300);
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_killed_process_ends_a_statement_with_an_error_or_the_right_answer() {
    let mut random = StdRng::seed_from_u64(seed());
    let (root, db) = tpch();
    let statement = "select l_orderkey, count(*), sum(l_extendedprice) from lineitem join orders on l_orderkey = o_orderkey \
        group by 1 order by 3 desc, 1 limit 100";
    let expected = rows(&sql(&[text(&db), statement]));
    let began = Instant::now();
    let (mut all, addresses) = workers(root.path(), 3);
    let _ = rows(&sql(&[text(&db), "--workers", &addresses, statement]));
    let usual = began.elapsed();
    let (mut lost, mut answered) = (0, 0);
    for _ in 0..cases(6) {
        let addresses: Vec<_> = all.iter().map(|worker| worker.address.as_str()).collect();
        let addresses = addresses.join(",");
        let mut command = Command::new(ROCKMILL);
        command.args([
            "sql",
            "--format",
            "csv",
            text(&db),
            "--workers",
            &addresses,
            statement,
        ]);
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        std::thread::sleep(usual.mul_f64(random.random_range(0.0..0.8)));
        if random.random_ratio(1, 3) {
            process.kill().expect("killed");
            let _ = process.wait_with_output().expect("ended");
            // Workers let files go that no statement needs.
            for worker in &all {
                soon("files stay open", || worker.open_files(&db) == 0);
            }
            continue;
        }
        let victim = random.random_range(0..all.len());
        match random.random() {
            true => all[victim].kill(),
            false => all[victim].terminate(),
        }
        let output = process.wait_with_output().expect("ended");
        match output.status.success() {
            true => {
                assert_eq!(rows(&output), expected);
                answered += 1;
            }
            false => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(said.contains("worker"), "{said}");
                // Rows that were printed before are right.
                let out = String::from_utf8_lossy(&output.stdout);
                let mut printed = out.lines().map(rounded);
                assert!(printed.all(|row| expected.contains(&row)), "{out}");
                lost += 1;
            }
        }
        all[victim] = Worker::start(root.path());
    }
    println!("{lost} statements failed, {answered} were answered");
}

#[test]
fn statements_beside_a_writer_see_one_state() {
    let root = tempfile::tempdir().expect("a folder");
    let path = root.path().join("db");
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(256 << 10);
    options.set_level_zero_file_num_compaction_trigger(2);
    options.set_target_file_size_base(256 << 10);
    let db = DB::open(&options, &path).expect("a database");
    const KEYS: u32 = 4000;
    const MOST: u64 = 200;
    let write = |round: u32| {
        // All keys have the same value in each batch.
        let mut batch = rust_rocksdb::WriteBatch::default();
        for key in 0..KEYS {
            batch.put(
                format!("key{key:06}"),
                format!("{round:08}{}", "x".repeat(200)),
            );
        }
        db.write(&batch).expect("written");
    };
    write(0);
    let (_workers, addresses) = workers(root.path(), 2);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 1;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                write(round);
                round += 1;
            }
        });
        let statement = "select count(*) as n, count(distinct substr(cast(value as varchar), 1, 8)) as rounds from \"default\"";
        let (mut asked, mut answered) = (0, 0);
        // A failure must not leave the writer to write for ever.
        let _stop = StopAtEnd(&stop);
        // On a busy machine, many are refused.
        while asked < cases(10) || (answered == 0 && asked < MOST) {
            asked += 1;
            let output = sql(&[text(&path), "--workers", &addresses, statement]);
            if output.status.success() {
                answered += 1;
                let rows = rows(&output);
                assert!(rows.contains(&format!("{KEYS},1")), "{rows:?}");
            } else {
                // An error is better than a wrong row.
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(said.contains("again"), "{said}");
            }
        }
        assert!(answered > 0, "no statement of {asked} was answered");
    });
}

/// Stores true when it is dropped.
struct StopAtEnd<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
