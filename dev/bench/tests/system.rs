//! `rockmill-bench system`: each experiment at a tiny scale.

mod common;

use common::{DONE, Folder, number, phases, text};
use serde_json::Value;

#[test]
fn contention_goes_on_where_it_stopped() {
    let folder = Folder::new();
    let args = [
        "--scale",
        "0.2",
        "--value-bytes",
        "128,256",
        "--cpu-load",
        "0,50",
    ];
    let one_cell = [&args[..], &["--stop-after", "0"]].concat();
    let (said, _) = folder.run(DONE, "contention", &one_cell);
    assert!(said.contains("1 of 8 measurements"), "{said}");
    let first = folder.results("contention").swap_remove(0);
    assert!(!folder.out().join("contention.md").exists());

    let (said, _) = folder.run(DONE, "contention", &args);
    assert!(said.contains("contention.md"), "{said}");
    assert!(said.contains("Warning: "), "all jobs are small\n{said}");
    let in_full = |line: &&str| !line.starts_with("all results are in");
    let widest = said.lines().filter(in_full).map(str::len).max();
    assert!(widest <= Some(80), "{said}");
    let results = folder.results("contention");
    assert_eq!(results.len(), 8);
    // Existing results are unchanged, to the last digit.
    assert!(results.contains(&first));
    for (_, result) in &results {
        let [load, run] = phases(result)[..] else {
            panic!("{result}");
        };
        assert_eq!(
            (&load["name"], &run["name"]),
            (&"load".into(), &"run".into())
        );
        assert_eq!(number(load, "/writes/count"), 20_000.0);
        assert!(load["reads"].is_null());
        let [reads, writes] = ["/reads/count", "/writes/count"].map(|path| number(run, path));
        assert_eq!(reads + writes, 20_000.0);
        assert!((9_000.0..11_000.0).contains(&reads), "{reads}");
        assert!(number(run, "/reads/p50_us") <= number(run, "/reads/p999_us"));
        assert!(number(load, "/traffic/flushed_bytes") > 1e6);
        assert!(number(load, "/traffic/written_bytes") > 1e6);
        for phase in [load, run] {
            assert_eq!(phase["taken"]["jobs_elsewhere"], 0);
        }
        let timeline = run["timeline"].as_array().expect("intervals");
        let in_intervals: f64 = timeline
            .iter()
            .filter_map(|interval| interval.pointer("/writes/count")?.as_f64())
            .sum();
        assert_eq!(in_intervals, writes);
    }
    let (lines, plot) = folder.report("contention");
    assert_eq!(lines.len(), 16);
    assert!(
        lines
            .iter()
            .all(|line| line.split('|').count() == lines[0].split('|').count())
    );
    for expected in [
        "kops/s, value B 128",
        "kops/s, value B 256",
        "rockmill cpu",
        "</svg>",
    ] {
        assert!(plot.contains(expected), "{expected}");
    }
    // With nothing left to measure, the report comes from the results alone.
    let (again, _) = folder.run(DONE, "contention", &args);
    assert_eq!(again, said);
    assert_eq!(folder.results("contention"), results);
}

#[test]
fn cells_are_measured_again_and_again() {
    let folder = Folder::new();
    let run = |times: &str, more: &[&str]| {
        let tiny = ["--scale", "0.2", "--value-bytes", "128", "--cpu-load", "0"];
        let repeat = ["--repeat", times];
        folder
            .run(DONE, "contention", &[&tiny[..], &repeat, more].concat())
            .0
    };
    let kept = || {
        let mut results = folder.results("contention");
        results.retain(|(path, _)| path.extension().is_some_and(|e| e == "json"));
        results
    };
    let once = run("1", &[]);
    let first = kept();
    assert_eq!(first.len(), 2);
    // Each system is measured a second time before one is measured a third time.
    let said = run("3", &["--stop-after", "0"]);
    assert!(said.contains("3 of 6 measurements"), "{said}");
    run("3", &["--stop-after", "0"]);
    let names: Vec<_> = kept().into_iter().map(|(path, _)| path).collect();
    let second = names.iter().filter(|path| text(path).ends_with(".2.json"));
    assert_eq!((names.len(), second.count()), (4, 2));
    let said = run("3", &[]);
    let all = kept();
    assert_eq!(all.len(), 6);
    assert!(first.iter().all(|measured| all.contains(measured)));

    // A line for each phase of both systems, then lines with the lowest and highest values.
    let (lines, plot) = folder.report("contention");
    let rates = |result: &Value| {
        let run = phases(result)[1];
        let operations = number(run, "/reads/count") + number(run, "/writes/count");
        operations / number(run, "/wall_s") / 1e3
    };
    let mut of_rocksdb: Vec<_> = (all.iter())
        .filter(|(path, _)| text(path).contains("rocksdb"))
        .map(|(_, result)| rates(result))
        .collect();
    of_rocksdb.sort_by(f64::total_cmp);
    let [least, median, most] = of_rocksdb[..] else {
        panic!("{of_rocksdb:?}");
    };
    let of_run = |line: &&String| line.contains("| rocksdb") && line.contains("| run ");
    let [table, spread] = lines.iter().filter(of_run).collect::<Vec<_>>()[..] else {
        panic!("{lines:?}");
    };
    assert!(
        table.contains(&format!(" {median:.1} |")),
        "{median} {table}"
    );
    assert!(
        spread.contains(&format!(" {least:.1}-{most:.1} |")),
        "{spread}"
    );
    assert!(spread.len() <= 80, "{spread}");
    assert!(said.contains(spread) && plot.contains("</svg>"), "{said}");

    // A lower number of repetitions reproduces the earlier report.
    assert_eq!(run("1", &[]), once);
    assert_eq!(kept(), all);
}

#[test]
fn jobs_of_each_size_are_done_at_once() {
    let folder = Folder::new();
    let args = ["--scale", "10", "--job-mb", "10,20", "--at-once", "1,3"];
    folder.run(DONE, "scaling", &args);
    let results = folder.results("scaling");
    assert_eq!(results.len(), 8);
    for (path, result) in &results {
        let name = path
            .file_stem()
            .and_then(|name| name.to_str())
            .expect("a name");
        let megabytes = if name.contains("job-MB-10-") {
            1.0
        } else {
            2.0
        };
        let at_once = if name.contains("at-once-3-") {
            3.0
        } else {
            1.0
        };
        let rounds = phases(result);
        assert_eq!(rounds.len(), 2);
        for phase in rounds {
            // A key that was written twice in a run has one version there.
            let each = number(phase, "/traffic/read_bytes") / at_once / (megabytes * 1e6);
            assert!((0.7..1.1).contains(&each), "{each} {name}");
            assert!(number(phase, "/traffic/written_bytes") < number(phase, "/traffic/read_bytes"));
            assert!(number(phase, "/taken/cpu_s") > 0.0);
        }
    }
    let (lines, plot) = folder.report("scaling");
    assert_eq!(lines.len(), 16);
    assert!(plot.contains("GB/s, job MB 20"), "{plot}");
}

#[test]
fn transactions_read_three_times_as_often_as_they_write() {
    let folder = Folder::new();
    folder.run(DONE, "secondary-index", &["--scale", "0.1"]);
    let results = folder.results("secondary-index");
    assert_eq!(results.len(), 2);
    for (_, result) in &results {
        let [load, warm_up, run] = phases(result)[..] else {
            panic!("{result}");
        };
        assert_eq!(number(load, "/writes/count"), 64_000.0);
        assert_eq!(
            (&warm_up["name"], &run["name"]),
            (&"warm-up".into(), &"run".into())
        );
        for phase in [warm_up, run] {
            let ratio = number(phase, "/reads/count") / number(phase, "/writes/count");
            assert!((2.8..3.2).contains(&ratio), "{ratio}");
        }
        assert!(number(load, "/traffic/flushed_bytes") > 1e6);
    }
    let (lines, plot) = folder.report("secondary-index");
    assert_eq!(lines.len(), 6);
    for expected in ["read p99 us", "write p99 us", "rocksdb"] {
        assert!(plot.contains(expected), "{expected}");
    }
}

#[test]
fn filling_in_order_leaves_nothing_to_compact() {
    let folder = Folder::new();
    folder.run(
        DONE,
        "update-ratio",
        &["--scale", "0.1", "--updates", "10,90"],
    );
    let results = folder.results("update-ratio");
    assert_eq!(results.len(), 8);
    for (path, result) in &results {
        let [load, run] = phases(result)[..] else {
            panic!("{result}");
        };
        let name = path
            .file_stem()
            .and_then(|name| name.to_str())
            .expect("a name");
        let compacted = number(load, "/traffic/written_bytes");
        assert_eq!(
            compacted < 1e6,
            name.contains("sequential"),
            "{name} {compacted}"
        );
        let share = number(run, "/writes/count") / 5000.0;
        let expected = if name.contains("updates-90-") {
            0.9
        } else {
            0.1
        };
        assert!((share - expected).abs() < 0.05, "{share} {name}");
    }
    let (lines, plot) = folder.report("update-ratio");
    assert_eq!(lines.len(), 16);
    assert!(plot.contains("host write amp, fill random"), "{plot}");
}

#[test]
fn the_host_does_not_write_what_a_device_at_the_data_wrote() {
    let folder = Folder::new();
    let device = "sim:near-data-ssd";
    let jobs_of_its_own = ["--write-buffer-kib", "1024", "--scale", "0.3"];
    let one_way = ["--rocksdb", "no", "--device", device, "--updates", "50"];
    folder.run(
        DONE,
        "update-ratio",
        &[&one_way[..], &jobs_of_its_own].concat(),
    );
    let results = folder.results("update-ratio");
    let at_random = results
        .iter()
        .find(|(path, _)| text(path).contains("random"));
    let (_, result) = at_random.expect("two fills");
    let load = phases(result)[0];
    let by_device = number(load, "/taken/near_data_bytes");
    assert!(
        number(load, "/taken/subcompactions/sim:near-data-ssd") > 0.0 && by_device > 0.0,
        "{load}"
    );
    assert!(
        by_device <= number(load, "/traffic/written_bytes"),
        "{load}"
    );
    let compacted = number(load, "/traffic/written_bytes") - by_device;
    let by_host =
        (number(load, "/traffic/flushed_bytes") + compacted) / number(load, "/traffic/user_bytes");
    let (lines, _) = folder.report("update-ratio");
    let is_load = |line: &&String| line.contains("random") && line.contains("load");
    let line = lines.iter().find(is_load).expect("a line");
    assert!(
        line.contains(&format!(" {by_host:.2} |")),
        "{by_host} {line}"
    );
}
