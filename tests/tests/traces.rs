//! The spans and events of jobs that a subscriber gets.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use rockmill_tests::harness::{assert_done, compact_everything, fill, open, options, service};
use rockmill_tests::reasons::COMPACTION_FILTER;
use rockmill_tests::tree::TreeShape;
use rust_rocksdb::compaction_filter::Decision;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Enough for several subcompactions with files of the size below.
const WRITES: usize = 20_000;
const FILE_BYTES: u64 = 32 << 10;

/// Fields as text.
#[derive(Debug, Default, Clone)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Fields {
    fn number(&self, field: &str) -> u64 {
        let text = self
            .0
            .get(field)
            .unwrap_or_else(|| panic!("no {field}: {self:?}"));
        text.parse().unwrap_or_else(|_| panic!("{field} is {text}"))
    }
}

#[derive(Debug, Clone)]
struct Seen {
    name: &'static str,
    parent: Option<u64>,
    fields: Fields,
    entered: bool,
}

/// Records all spans by id, and the fields of all events.
#[derive(Debug, Default, Clone)]
struct Keep {
    spans: Arc<Mutex<BTreeMap<u64, Seen>>>,
    events: Arc<Mutex<Vec<Fields>>>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Keep {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let span = context.span(id).expect("it is new");
        let seen = Seen {
            name: span.name(),
            parent: span.parent().map(|parent| parent.id().into_u64()),
            fields,
            entered: false,
        };
        self.spans
            .lock()
            .expect("no panic")
            .insert(id.into_u64(), seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut spans = self.spans.lock().expect("no panic");
        values.record(&mut spans.get_mut(&id.into_u64()).expect("known").fields);
    }

    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        let mut spans = self.spans.lock().expect("no panic");
        spans.get_mut(&id.into_u64()).expect("known").entered = true;
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.events.lock().expect("no panic").push(fields);
    }
}

/// The subscriber is global to the process, because subcompactions run on other threads; so this is one test.
#[test]
fn subcompactions_have_spans_below_their_job_and_declines_tell_why() {
    let keep = Keep::default();
    let subscriber = tracing_subscriber::registry().with(keep.clone());
    tracing::subscriber::set_global_default(subscriber).expect("no other subscriber");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("db");
    let service = service();
    let mut options = options(&service);
    let tree = TreeShape {
        target_file_size: FILE_BYTES,
        ..TreeShape::default()
    };
    tree.apply(&mut options);
    let db = open(&options, &path);
    fill(&db, WRITES, 1);
    compact_everything(&db);
    let stats = service.stats();
    assert_done(&stats);
    drop(db);

    let spans = keep.spans.lock().expect("no panic").clone();
    let of_name = |name| spans.iter().filter(move |(_, span)| span.name == name);
    let (&job_id, job) = of_name("job").next().expect("a job");
    assert_eq!(of_name("job").count() as u64, stats.jobs_done);
    assert_eq!(job.fields.0["database"], path.display().to_string());
    assert_eq!(job.fields.0["column_family"], "default");
    assert_eq!(job.fields.0["device"], "cpu");
    let subcompactions: Vec<_> = of_name("subcompaction")
        .map(|(_, span)| span)
        .filter(|span| span.parent == Some(job_id))
        .collect();
    assert!(subcompactions.len() > 2, "{subcompactions:?}");
    assert_eq!(
        subcompactions.len() as u64,
        job.fields.number("subcompactions")
    );
    assert_eq!(
        of_name("subcompaction").count() as u64,
        stats.subcompactions
    );
    let sum = |field| {
        subcompactions
            .iter()
            .map(|subcompaction| subcompaction.fields.number(field))
            .sum::<u64>()
    };
    assert!(
        subcompactions
            .iter()
            .all(|subcompaction| subcompaction.entered && subcompaction.fields.0["device"] == "cpu")
    );
    assert_eq!(sum("entries_in"), stats.entries_read);
    assert_eq!(sum("entries_out"), stats.entries_written);
    assert_eq!(sum("files"), job.fields.number("files"));
    assert_eq!(sum("bytes"), stats.bytes_begun);
    let mut indexes: Vec<_> = subcompactions
        .iter()
        .map(|subcompaction| subcompaction.fields.number("index"))
        .collect();
    indexes.sort_unstable();
    assert_eq!(
        indexes,
        (0..subcompactions.len() as u64).collect::<Vec<_>>()
    );

    options.set_compaction_filter("keep", |_, _, _| Decision::Keep);
    let db = open(&options, &path);
    compact_everything(&db);
    assert!(service.stats().jobs_declined > 0, "{}", service.stats());
    let events = keep.events.lock().expect("no panic").clone();
    let declined = |event: &&Fields| {
        event
            .0
            .get("reason")
            .is_some_and(|r| r == COMPACTION_FILTER)
    };
    let event = events.iter().find(declined).expect("an event");
    assert_eq!(event.0["database"], path.display().to_string());
    assert!(event.number("log_job") > 0);
}
