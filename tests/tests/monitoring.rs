//! The rules and the dashboard of `monitoring/`, against a real exporter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use metrics_exporter_prometheus::PrometheusBuilder;
use rockmill_testkit::machine::promtool;
use rockmill_tests::harness::{run_jobs_of_each_outcome, service};
use serde_json::Value;

/// Labels that Prometheus adds to its samples.
const ADDED: [&str; 2] = ["job", "instance"];

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../monitoring")
        .join(name)
}

fn dashboard() -> Value {
    let text = fs::read_to_string(shipped("rockmill.dashboard.json")).expect("it is shipped");
    serde_json::from_str(&text).expect("JSON")
}

/// The queries of the dashboard's panels, with Grafana's variables filled in.
fn queries() -> Vec<String> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let exprs = targets.flatten().map(|target| &target["expr"]);
    let exprs = exprs.map(|expr| expr.as_str().expect("a query"));
    let filled = exprs.map(|expr| {
        let filled = expr.replace("$__rate_interval", "5m");
        filled.replace("$job", ".*").replace("$instance", ".*")
    });
    filled.collect()
}

/// The lines of the rules from each `expr` on. They may contain more than the expression.
fn rules() -> Vec<String> {
    let text = fs::read_to_string(shipped("rockmill.rules.yml")).expect("it is shipped");
    let rules = text.split("expr:").skip(1);
    let exprs = rules.map(|rule| rule.split("labels:").next().unwrap_or_default().to_owned());
    exprs.collect()
}

/// A part of a text in the format of Prometheus: the name, the labels with their values, and the value.
type Sample = (String, BTreeMap<String, String>, String);

fn samples(text: &str) -> Vec<Sample> {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels = labels.strip_suffix('}').expect("braces");
        let pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned()));
        (name.to_owned(), pairs.collect(), value.to_owned())
    };
    lines.map(sample).collect()
}

/// The names, with the labels of each.
fn names(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, labels, _) in samples(text) {
        names.entry(name).or_default().extend(labels.into_keys());
    }
    names
}

/// The lines that describe metrics.
fn described(text: &str) -> BTreeSet<&str> {
    text.lines().filter(|line| line.starts_with('#')).collect()
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Checks that each metric of a query is exported, with the labels that the query names.
fn check_names(query: &str, exported: &BTreeMap<String, BTreeSet<String>>) -> usize {
    let mut found = 0;
    let mut labels: BTreeSet<&str> = ADDED.into();
    for (at, _) in query.match_indices("rockmill_") {
        let rest = &query[at..];
        let end = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let own = exported.get(name);
        let own = own.unwrap_or_else(|| panic!("{name} is not exported: {query}"));
        labels.extend(own.iter().map(String::as_str));
        found += 1;
        let Some(selector) = rest.strip_prefix('{') else {
            continue;
        };
        let selector = selector.split('}').next().expect("a part");
        for matcher in selector.split(',').filter(|matcher| !matcher.is_empty()) {
            let key = matcher.split(|c| !is_of_name(c)).next().expect("a part");
            let is_there = ADDED.contains(&key) || own.contains(key);
            assert!(is_there, "{name} has no label {key}: {query}");
        }
    }
    for (at, by) in query.match_indices(" by (") {
        let list = query[at + by.len()..].split(')').next().expect("a part");
        for key in list.split(',').map(str::trim) {
            assert!(labels.contains(key), "no metric has {key}: {query}");
        }
    }
    found
}

/// A file for `promtool test rules`: each sample of `text` rises from 0 to its value, and each query has a result.
fn test_of(queries: &[String], text: &str) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let series = samples(text).into_iter().map(|(name, labels, value)| {
        let labels = labels
            .iter()
            .map(|(key, value)| format!("{key}=\"{value}\""));
        let added = ADDED.map(|key| format!("{key}=\"x\""));
        let labels: Vec<_> = labels.chain(added).collect();
        let series = quoted(&format!("{name}{{{}}}", labels.join(",")));
        format!("      - series: {series}\n        values: '0x5 {value}x10'\n")
    });
    let tests = queries.iter().map(|query| {
        let expr = quoted(&format!("count({query}) > bool 0"));
        format!(
            "      - expr: {expr}\n        eval_time: 7m\n        exp_samples: [{{labels: '{{}}', value: 1}}]\n"
        )
    });
    format!(
        "evaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n{}    promql_expr_test:\n{}",
        series.collect::<String>(),
        tests.collect::<String>()
    )
}

/// Runs promtool, which must succeed, with `input`.
fn run_promtool(arguments: &[&str], folder: &Path, input: Option<&Path>) {
    let Some(mut promtool) = promtool() else {
        return;
    };
    let input = input.map_or_else(Stdio::null, |path| {
        fs::File::open(path).expect("it was written").into()
    });
    let promtool = promtool.args(arguments).current_dir(folder).stdin(input);
    let output = promtool.output().expect("it starts");
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(output.status.success(), "{arguments:?}\n{told}");
}

/// The recorder is global to the process, so this is one test.
#[test]
fn the_rules_and_the_dashboard_ask_for_what_an_exporter_gives() {
    let recorder = PrometheusBuilder::new().install_recorder();
    let exporter = recorder.expect("no other recorder");
    let service = service();
    run_jobs_of_each_outcome(&service);
    let text = exporter.render();

    // C and C++ programs get the same names, labels and descriptions.
    let own = service.jobs().engine().metrics_prometheus();
    assert_eq!(names(&own), names(&text));
    assert_eq!(described(&own), described(&text));
    let counts = |text: &str| -> BTreeMap<_, _> {
        let samples = samples(text).into_iter();
        let counts =
            samples.filter(|(name, ..)| name.ends_with("_total") || name.ends_with("_count"));
        let counts = counts.map(|(name, labels, value)| ((name, labels), value));
        counts.collect()
    };
    assert_eq!(counts(&own), counts(&text));

    let exported = names(&text);
    let queries = queries();
    for query in queries.iter().chain(&rules()) {
        assert!(check_names(query, &exported) > 0, "{query}");
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let at = folder.path();
    for (name, text) in [("exporter.txt", &text), ("own.txt", &own)] {
        fs::write(at.join(name), text).expect("room");
        run_promtool(&["check", "metrics"], at, Some(&at.join(name)));
        fs::write(at.join("test.yml"), test_of(&queries, text)).expect("room");
        run_promtool(&["test", "rules", "test.yml"], at, None);
    }
}

#[test]
fn the_rules_are_right_by_promtool() {
    let folder = shipped("");
    run_promtool(&["check", "rules", "rockmill.rules.yml"], &folder, None);
    run_promtool(&["test", "rules", "rockmill.rules.test.yml"], &folder, None);
}

#[test]
fn the_panels_of_the_dashboard_do_not_overlap() {
    let dashboard = dashboard();
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{panel}");
        let of = |key| panel["gridPos"][key].as_u64().expect("a number");
        assert!(of("x") + of("w") <= 24, "{panel}");
        for x in of("x")..of("x") + of("w") {
            for y in of("y")..of("y") + of("h") {
                assert!(taken.insert((x, y)), "{panel}");
            }
        }
    }
}
