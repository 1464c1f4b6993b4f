//! The values of one engine's metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::Unit;

use super::{Kind, Metric, Sink};
use crate::metrics as table;
use crate::stats::{CacheStats, DeviceStats, Durations};

/// Values by the metric's name and the label's value, which is empty for a metric without a label.
#[derive(Debug, Default)]
pub struct Values(BTreeMap<(&'static str, String), Value>);

/// The value of one series.
#[derive(Debug)]
pub(super) enum Value {
    Counter(u64),
    Gauge(i64),
    /// Bytes are kept as microseconds, the unit of its buckets.
    Histogram(Durations),
}

impl Values {
    fn entry(&mut self, metric: &'static Metric, label: &str) -> &mut Value {
        let key = (metric.name, label.to_owned());
        self.0.entry(key).or_insert_with(|| match metric.kind {
            Kind::Counter => Value::Counter(0),
            Kind::Gauge => Value::Gauge(0),
            Kind::Histogram => Value::Histogram(Durations::default()),
        })
    }

    /// Returns the series of a metric by label value.
    pub(super) fn series(&self, metric: &Metric) -> impl Iterator<Item = (&str, &Value)> + use<'_> {
        let name = metric.name;
        let from_first = self.0.range((name, String::new())..);
        let series = from_first.take_while(move |((of, _), _)| *of == name);
        series.map(|((_, label), value)| (label.as_str(), value))
    }

    /// Returns a counter's sum over all labels.
    pub fn total(&self, metric: &Metric) -> u64 {
        self.by_label(metric).values().sum()
    }

    /// Returns the counts that are not 0 by label value.
    pub fn by_label(&self, metric: &Metric) -> BTreeMap<String, u64> {
        let counts = self
            .series(metric)
            .filter_map(|(label, value)| match value {
                Value::Counter(count) if *count > 0 => Some((label.to_owned(), *count)),
                _ => None,
            });
        counts.collect()
    }

    /// Returns a gauge's value.
    pub fn gauge(&self, metric: &Metric) -> u64 {
        match self.series(metric).next() {
            Some((_, Value::Gauge(value))) => u64::try_from(*value).unwrap_or(0),
            _ => 0,
        }
    }

    /// Returns the times of a histogram under all labels.
    pub fn times(&self, metric: &Metric) -> Durations {
        let mut all = Durations::default();
        for (_, value) in self.series(metric) {
            if let Value::Histogram(times) = value {
                all.add(times);
            }
        }
        all
    }

    /// Returns the work of each device that did any.
    pub fn devices(&self) -> BTreeMap<String, DeviceStats> {
        let mut devices: BTreeMap<String, DeviceStats> = BTreeMap::new();
        let mut take = |metric, field: fn(&mut DeviceStats) -> &mut u64| {
            for (device, count) in self.by_label(metric) {
                *field(devices.entry(device).or_default()) = count;
            }
        };
        take(&table::SUBCOMPACTIONS, |did| &mut did.subcompactions);
        take(&table::SUBCOMPACTION_READ_BYTES, |did| {
            &mut did.subcompaction_read_bytes
        });
        take(&table::NEAR_DATA_BYTES, |did| {
            &mut did.subcompaction_near_data_bytes
        });
        devices
    }

    /// The accounts of each cache, by its device and kind.
    pub fn caches(&self) -> Vec<CacheStats> {
        let mut caches = Vec::new();
        for (label, bytes) in self.series(&table::CACHE_BYTES) {
            let count = |metric: &Metric| {
                let mut series = self.series(metric);
                match series.find(|(of, _)| *of == label) {
                    Some((_, Value::Counter(count))) => *count,
                    _ => 0,
                }
            };
            let (device, kind) = label.split_once(',').unwrap_or((label, ""));
            caches.push(CacheStats {
                device: device.to_owned(),
                kind: kind.to_owned(),
                bytes: match bytes {
                    Value::Gauge(bytes) => u64::try_from(*bytes).unwrap_or(0),
                    _ => 0,
                },
                hit_bytes: count(&table::CACHE_HIT_BYTES),
                miss_bytes: count(&table::CACHE_MISS_BYTES),
                evicted_bytes: count(&table::CACHE_EVICTED_BYTES),
                mismatches: count(&table::CACHE_MISMATCHES),
            });
        }
        caches
    }
}

impl Sink for Values {
    fn count(&mut self, metric: &'static Metric, label: &str, by: u64) {
        if let Value::Counter(count) = self.entry(metric, label) {
            *count += by;
        }
    }

    fn change(&mut self, metric: &'static Metric, label: &str, by: i64) {
        if let Value::Gauge(value) = self.entry(metric, label) {
            *value += by;
        }
    }

    fn observe(&mut self, metric: &'static Metric, label: &str, value: f64) {
        let time = match metric.unit {
            Unit::Seconds => Duration::try_from_secs_f64(value).unwrap_or(Duration::ZERO),
            _ => Duration::from_micros(value as u64),
        };
        if let Value::Histogram(times) = self.entry(metric, label) {
            times.record(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;
    use crate::stats::Stats;

    /// Metrics without a field: `stages` has the same by stage, and `read_bytes` the sum.
    const WITHOUT_FIELD: [&str; 2] = ["stage_seconds", "job_read_bytes"];

    /// Passes on one event of each metric.
    fn one_of_each() -> Values {
        let mut values = Values::default();
        for metric in table::ALL {
            let label = if metric.label.is_some() { "x" } else { "" };
            match metric.kind {
                Kind::Counter => values.count(metric, label, 1),
                Kind::Gauge => values.change(metric, label, 1),
                Kind::Histogram => values.observe(metric, label, 1.0),
            }
        }
        values
    }

    #[test]
    fn a_field_of_the_statistics_has_the_name_of_its_metric() {
        let stats = Stats::of(&one_of_each(), Stats::default());
        let [document, nothing] =
            [stats, Stats::default()].map(|stats| serde_json::to_value(stats).expect("serialises"));
        let mut fields = document.as_object().expect("an object").clone();
        // The others have no metric.
        fields.retain(|name, value| *value != nothing[name]);
        for name in ["jobs_declined_by_reason", "jobs_failed_by_error"] {
            assert_eq!(fields.remove(name).expect("a field")["x"], 1);
        }
        let devices = fields.remove("devices").expect("a field");
        let of_device = devices["x"].as_object().expect("an object");
        fields.extend(of_device.clone());
        let caches = fields.remove("caches").expect("a field");
        let mut of_cache = caches[0].as_object().expect("an object").clone();
        assert_eq!(of_cache.remove("device").expect("a name"), "x");
        assert!(of_cache.remove("kind").is_some());
        fields.extend(
            of_cache
                .into_iter()
                .map(|(name, count)| (format!("cache_{name}"), count)),
        );
        for metric in table::ALL {
            let name = metric.name.strip_prefix("rockmill_").expect("a prefix");
            let name = name.strip_suffix("_total").unwrap_or(name);
            if WITHOUT_FIELD.contains(&name) {
                continue;
            }
            let field = fields.remove(name).unwrap_or(Json::Null);
            match metric.kind {
                Kind::Histogram => assert_eq!(field["sum_s"], 1.0, "{name}"),
                _ => assert_eq!(field, 1, "{name}"),
            }
        }
        assert!(fields.is_empty(), "no metrics: {fields:?}");
    }

    /// Whether a value of the JSON has a type of the documentation's table.
    fn has_type(value: &Json, kind: &str) -> bool {
        let has = |fields: &[(&str, &str)]| {
            let object = value.as_object();
            let right = |(name, kind): &(&str, &str)| has_type(&value[*name], kind);
            object.is_some_and(|all| all.len() == fields.len() && fields.iter().all(right))
        };
        let all = |kind: &str| {
            let object = value.as_object();
            object.is_some_and(|all| all.values().all(|value| has_type(value, kind)))
        };
        match kind {
            "count" => value.is_u64(),
            "number" => value.is_f64(),
            "number or null" => value.is_f64() || value.is_null(),
            "text" => value.is_string(),
            "sentence" => value.is_string() || value.is_null(),
            "counts" => all("count"),
            "times" => has(&[
                ("count", "count"),
                ("sum_s", "number"),
                ("mean_s", "number or null"),
                ("p50_s", "number or null"),
                ("p99_s", "number or null"),
                ("longest_s", "number or null"),
                ("buckets", "pairs"),
            ]),
            "pairs" => {
                let pair = |pair: &Json| pair[0].is_f64() && pair[1].is_u64();
                value.as_array().is_some_and(|all| all.iter().all(pair))
            }
            "sizes" => has(&[("rockmill_bytes", "count"), ("library_bytes", "count")]),
            "devices" => all("device"),
            "device" => has(&[
                ("subcompactions", "count"),
                ("subcompaction_read_bytes", "count"),
                ("subcompaction_near_data_bytes", "count"),
            ]),
            "caches" => {
                let all = value.as_array();
                all.is_some_and(|all| all.iter().all(|cache| has_type(cache, "cache")))
            }
            "cache" => has(&[
                ("device", "text"),
                ("kind", "text"),
                ("bytes", "count"),
                ("hit_bytes", "count"),
                ("miss_bytes", "count"),
                ("evicted_bytes", "count"),
                ("mismatches", "count"),
            ]),
            "stages" => {
                let all = value.as_array();
                all.is_some_and(|all| all.iter().all(|stage| has_type(stage, "stage")))
            }
            "stage" => has(&[
                ("stage", "text"),
                ("resource", "text"),
                ("seconds", "number"),
                ("bytes", "count"),
            ]),
            _ => panic!("{kind} is no type of the table"),
        }
    }

    #[test]
    fn the_documentation_has_the_fields_of_the_statistics_with_their_types() {
        let page = include_str!("../../../../docs/reference/metrics.md");
        let (_, section) = page
            .split_once("## Fields of the statistics")
            .expect("a section");
        let (table, _) = section.split_once("| type | form |").expect("two tables");
        let mut types = BTreeMap::new();
        for row in table.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            for name in cells[1].split(", ") {
                types.insert(name.trim_matches('`').to_owned(), cells[2]);
            }
        }
        let others = Stats {
            stages: vec![rockmill_core::StageTime {
                stage: "read",
                resource: rockmill_core::Resource::Host,
                seconds: 0.5,
                bytes: 1,
            }],
            last_error: Some("a sentence".to_owned()),
            ..Stats::default()
        };
        let stats = [Stats::default(), Stats::of(&one_of_each(), others)];
        for stats in stats {
            let document = serde_json::to_value(stats).expect("serialises");
            let fields = document.as_object().expect("an object");
            let names: Vec<_> = fields.keys().collect();
            assert!(fields.len() == types.len(), "{names:?}\n{types:?}");
            for (name, kind) in &types {
                assert!(has_type(&fields[name], kind), "{name}: {}", fields[name]);
            }
        }
    }

    #[test]
    fn the_text_for_prometheus_has_each_metric_with_its_label() {
        let text = one_of_each().prometheus();
        for line in [
            "# TYPE rockmill_jobs_declined_total counter",
            "rockmill_jobs_declined_total{reason=\"x\"} 1",
            "# TYPE rockmill_backlog_bytes gauge",
            "rockmill_backlog_bytes 1",
            "# TYPE rockmill_job_seconds summary",
            "rockmill_job_seconds{device=\"x\",quantile=\"0.99\"} 1",
            "rockmill_job_seconds_sum{device=\"x\"} 1",
            "rockmill_job_seconds_count{device=\"x\"} 1",
            "rockmill_job_read_bytes{quantile=\"1\"} 1",
            "rockmill_job_read_bytes_sum 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        for metric in table::ALL {
            let help = format!("# HELP {} {}\n", metric.name, metric.help);
            assert!(text.contains(&help), "{help}{text}");
        }
    }
}
