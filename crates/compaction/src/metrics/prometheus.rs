//! The values as text for Prometheus, as the crate `metrics-exporter-prometheus` writes them by default.

use std::fmt::{self, Write};
use std::time::Duration;

use metrics::Unit;

use super::values::{Value, Values};
use super::{ALL, Kind, Metric};
use crate::stats::Durations;

/// The exporter's quantiles.
const QUANTILES: [f64; 7] = [0.0, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0];

impl Values {
    /// Returns all existing values, in the order of the table.
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        for metric in ALL {
            // Writing to a String cannot fail.
            let _ = self.write(metric, &mut text);
        }
        text
    }

    fn write(&self, metric: &Metric, out: &mut String) -> fmt::Result {
        let mut series = self.series(metric).peekable();
        if series.peek().is_none() {
            return Ok(());
        }
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "summary",
        };
        let name = metric.name;
        writeln!(out, "# HELP {name} {}", metric.help)?;
        writeln!(out, "# TYPE {name} {kind}")?;
        for (label, value) in series {
            let labels = labels(metric, label, None);
            match value {
                Value::Counter(count) => writeln!(out, "{name}{labels} {count}"),
                Value::Gauge(value) => writeln!(out, "{name}{labels} {value}"),
                Value::Histogram(values) => write_summary(metric, label, values, out),
            }?;
        }
        Ok(())
    }
}

fn write_summary(
    metric: &Metric,
    label: &str,
    values: &Durations,
    out: &mut String,
) -> fmt::Result {
    let name = metric.name;
    for part in QUANTILES {
        let value = values.quantile(part).unwrap_or_default();
        let value = in_unit(metric.unit, value);
        writeln!(out, "{name}{} {value}", labels(metric, label, Some(part)))?;
    }
    let labels = labels(metric, label, None);
    let (sum, count) = (in_unit(metric.unit, values.sum()), values.count());
    writeln!(
        out,
        "{name}_sum{labels} {sum}\n{name}_count{labels} {count}"
    )
}

fn in_unit(unit: Unit, value: Duration) -> f64 {
    match unit {
        Unit::Seconds => value.as_secs_f64(),
        _ => value.as_micros() as f64,
    }
}

/// Returns the labels in braces, or nothing. Label values are codes and names of devices. Rust escapes quotes and
/// backslashes in them as Prometheus requires.
fn labels(metric: &Metric, label: &str, quantile: Option<f64>) -> String {
    let own = metric
        .pairs(label)
        .map(|(key, value)| format!("{key}={value:?}"));
    let quantile = quantile.map(|part| format!("quantile=\"{part}\""));
    let all: Vec<_> = own.chain(quantile).collect();
    match all.as_slice() {
        [] => String::new(),
        all => format!("{{{}}}", all.join(",")),
    }
}
