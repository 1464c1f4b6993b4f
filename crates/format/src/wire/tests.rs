use super::*;
use crate::error::ErrorKind;
use crate::manifest::Temperature;
use crate::options_file::OptionsFile;
use crate::versions::{RELEASES, Release, is_gone};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const INPUT: &[u8] = include_bytes!("../../tests/data/input-11.12.bin");
const RESULT: &[u8] = include_bytes!("../../tests/data/result-11.12.bin");

fn message(text: &str) -> Vec<u8> {
    let mut out = VERSION.to_le_bytes().to_vec();
    out.extend_from_slice(text.as_bytes());
    out
}

/// Fields whose defaults are right: those of RocksDB's own executions, of a second output level, and of ingested files.
const NEVER_WRITTEN: [&str; 4] = [
    "count",
    "counts",
    "proximal_level_stats",
    "external_sst_file_global_seqno_offset",
];

/// Fields of results only before 9.7.3.
const GONE: [&str; 2] = [".num_output_records", ".total_bytes"];

/// The fields of a message in one order, without those that Rockmill never writes.
fn sorted(bytes: &[u8]) -> Vec<String> {
    fn walk(prefix: &str, piece: TextSlice<'_>, out: &mut Vec<String>) {
        let inner = piece.text.trim_start_matches('{').trim_end_matches('}');
        if !inner.contains('=') {
            out.push(format!("{prefix}={}", piece.text));
            return;
        }
        for (name, value) in piece.fields().unwrap() {
            if !NEVER_WRITTEN.contains(&name) {
                walk(&format!("{prefix}.{name}"), value, out);
            }
        }
    }
    let mut out = Vec::new();
    walk("", open_envelope(bytes).unwrap(), &mut out);
    out.sort();
    out
}

#[test]
fn the_real_input_is_read_and_written_field_for_field() {
    let input = CompactionServiceInput::decode(INPUT).unwrap();
    assert_eq!(input.cf_name, b"default");
    assert_eq!(
        input.input_files,
        ["000011.sst", "000010.sst", "000009.sst", "000008.sst"]
    );
    assert_eq!((input.output_level, input.options_file_number), (6, 7));
    assert_eq!(
        (input.min_manifest_file_number, input.min_manifest_file_size),
        (5, 661)
    );
    assert_eq!((&input.begin, &input.end), (&None, &None));
    assert_eq!(sorted(&input.encode()), sorted(INPUT));
}

#[test]
fn the_real_result_is_read_and_written_field_for_field() {
    let result = CompactionServiceResult::decode(RESULT).unwrap();
    assert_eq!((result.output_level, result.bytes_read), (6, 488_598));
    assert_eq!(result.stats.num_input_records, 28_256);
    assert_eq!(result.stats.largest_output_key_prefix, b"key00000");
    assert_eq!(result.output_level_stats.num_output_records, 27_524);
    let [file] = result.output_files.as_slice() else {
        panic!("one output file");
    };
    assert_eq!(
        (file.file_name.as_str(), file.file_size),
        ("000013.sst", 343_597)
    );
    assert_eq!(
        file.unique_id,
        [7_489_336_417_918_415_713, 925_742_247_596_623_101]
    );
    let property = |name| {
        &file
            .table_properties
            .iter()
            .find(|(n, _)| n == name)
            .unwrap()
            .1
    };
    assert_eq!(property("lsm_info_at_creation"), &PropertyValue::Int(518));
    let PropertyValue::Map(collected) = property("user_collected_properties") else {
        panic!("a map");
    };
    assert_eq!(collected.len(), 4);
    assert_eq!(collected[1].1, [0; 4]);
    assert_eq!(sorted(&result.encode([0; 3])), sorted(RESULT));
}

#[test]
fn the_input_with_bounds_and_snapshots_of_the_format_description_is_read() {
    let input = CompactionServiceInput::decode(&message(
        "options_file_number=9;has_end=false;has_begin=true;output_level=1;end=;\
         input_files=3030303031312E737374:3030303031342E737374;begin=6B00FF;snapshots=7:42;\
         cf_name=64656661756c74;unheard_of={};",
    ))
    .unwrap();
    assert_eq!(input.begin.as_deref(), Some(&b"k\x00\xff"[..]));
    assert_eq!((input.end, input.snapshots), (None, vec![7, 42]));
    assert_eq!(input.cf_name, b"default");
    assert_eq!((input.min_manifest_file_number, input.db_id), (0, vec![]));
}

#[test]
fn malformed_inputs_are_refused() {
    let corrupt = [
        "snapshots=7:7;",
        "snapshots=9:8;",
        "snapshots=1x;",
        "input_files=2E2E;",
        "input_files=2F61;",
        "input_files=FF;",
        "input_files=41::42;",
        "cf_name=4;",
        "cf_name=4G;",
        "output_level=99999999999;",
        "has_begin=maybe;",
        "output_level",
        "begin={41;",
    ];
    for text in corrupt {
        let error = CompactionServiceInput::decode(&message(text)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corruption, "{text}");
        assert!(error.offset >= 4, "{text}: {error}");
    }
    let error = CompactionServiceInput::decode(b"\x02\0\0\0a=1;").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    for set in ["1", "true", "kWarm", "41", "{a=1;}"] {
        let text = format!("cf_name=41;unheard_of={set};");
        let error = CompactionServiceInput::decode(&message(&text)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported, "{set}");
        assert!(error.what.contains("the field unheard_of"), "{error}");
    }
    for bytes in [&b"\x01\0\0"[..], b"\x01\0\0\0", b"\x01\0\0\0\xff=1"] {
        assert!(CompactionServiceInput::decode(bytes).is_err());
    }
}

/// Messages of a RocksDB version for one job: scripts/matrix.sh --messages.
struct Captured {
    version: [u32; 3],
    input: &'static [u8],
    options: &'static str,
    result: &'static [u8],
}

macro_rules! captured {
    ($([$major:literal, $minor:literal, $patch:literal]),+) => {[$(
        Captured {
            version: [$major, $minor, $patch],
            input: include_bytes!(concat!("../../tests/data/versions/", $major, ".", $minor, ".", $patch, "/input.bin")),
            options: include_str!(concat!("../../tests/data/versions/", $major, ".", $minor, ".", $patch, "/options.ini")),
            result: include_bytes!(concat!("../../tests/data/versions/", $major, ".", $minor, ".", $patch, "/result.bin")),
        }
    ),+]};
}

const CAPTURED: [Captured; 13] = captured!(
    [7, 8, 3],
    [7, 9, 2],
    [8, 10, 0],
    [9, 1, 1],
    [9, 7, 3],
    [9, 8, 4],
    [9, 9, 3],
    [10, 0, 1],
    [10, 4, 2],
    [10, 10, 1],
    [11, 1, 2],
    [11, 8, 1],
    [11, 12, 0]
);

/// Additions to a list by the releases up to a version, and by later ones.
fn known_and_later(
    list: fn(&Release) -> &'static [&'static str],
    version: [u32; 3],
) -> [BTreeSet<&'static str>; 2] {
    [true, false].map(|is_known| {
        let releases = RELEASES
            .iter()
            .filter(|release| (release.version <= version) == is_known);
        let names = releases.flat_map(list).copied();
        names
            .filter(|name| !is_known || !is_gone(name, version))
            .collect()
    })
}

fn names<'a>(fields: &[(&'a str, TextSlice<'a>)]) -> BTreeSet<&'a str> {
    fields.iter().map(|(name, _)| *name).collect()
}

#[test]
fn the_input_of_each_version_is_the_same_job() {
    for captured in CAPTURED {
        let version = captured.version;
        let fields = open_envelope(captured.input).unwrap().fields().unwrap();
        let [known, _] = known_and_later(|release| release.input, version);
        assert_eq!(names(&fields), known, "{version:?}");
        let input = CompactionServiceInput::decode(captured.input).unwrap();
        assert_eq!(input.cf_name, b"default");
        assert_eq!(
            input.input_files,
            ["000013.sst", "000011.sst", "000009.sst"]
        );
        assert_eq!(input.snapshots, [2002]);
        let names_options = version >= [9, 7, 3];
        assert_eq!(input.options_file_number, 7 * u64::from(names_options));
        assert_eq!(input.options.is_none(), names_options);
        // Messages captured before 8.4 have levels of fixed size.
        let output_level = if version < [8, 4, 0] { 1 } else { 6 };
        assert_eq!(input.output_level, output_level);
        assert_eq!((&input.begin, &input.end), (&None, &None));
        assert_eq!(input.min_manifest_file_number > 0, version >= [11, 12, 0]);
        // A field that the version does not know has the value for which its absence stands.
        let mut written = sorted(&input.encode());
        written.retain(|line| version >= [11, 12, 0] || !line.starts_with(".min_manifest"));
        written.retain(|line| names_options || !line.starts_with(".options_file_number"));
        assert_eq!(written, sorted(captured.input), "{version:?}");
    }
}

#[test]
fn options_in_a_message_are_compared_with_those_of_a_file() {
    let all = CAPTURED
        .iter()
        .filter(|captured| captured.version < [9, 7, 3]);
    assert_eq!(all.clone().count(), 4);
    for Captured {
        input,
        options,
        version,
        ..
    } in all
    {
        let input = CompactionServiceInput::decode(input).unwrap();
        let given = input.options.unwrap();
        let differing = |text: &str| {
            let file = OptionsFile::parse(text).unwrap();
            let family = &file.cf(b"default").unwrap().options;
            given.differing(&file.db, family).unwrap()
        };
        assert_eq!(differing(options), None, "{version:?}");
        for (of_file, name) in [
            ("max_open_files=-1", "max_open_files"),
            ("target_file_size_base=67108864", "target_file_size_base"),
            ("table_factory=BlockBasedTable", "table_factory"),
        ] {
            assert!(options.contains(of_file), "{of_file}");
            let changed = options.replace(of_file, &format!("{name}=7"));
            assert_eq!(differing(&changed).as_deref(), Some(name), "{version:?}");
            let without = options.replace(of_file, "");
            assert_eq!(differing(&without), None, "{version:?}");
        }
    }
    let nothing = GivenOptions::default();
    let file = OptionsFile::parse(CAPTURED[0].options).unwrap();
    let family = &file.cf(b"default").unwrap().options;
    assert!(nothing.differing(&file.db, family).is_err());
}

#[test]
fn the_result_of_each_version_is_read_and_written_field_for_field() {
    for captured in CAPTURED {
        let version = captured.version;
        let fields = open_envelope(captured.result).unwrap().fields().unwrap();
        let [known, _] = known_and_later(|release| release.result, version);
        assert_eq!(names(&fields), known, "{version:?}");
        let inner = |name: &str, fields: &[(&'static str, TextSlice<'static>)]| {
            let (_, piece) = fields.iter().find(|(field, _)| *field == name).unwrap();
            let text = piece.text.trim_start_matches('{').trim_end_matches('}');
            TextSlice::new(0, text).fields().unwrap()
        };
        let file = inner("output_files", &fields);
        type List = fn(&Release) -> &'static [&'static str];
        let mut structs: Vec<(List, _)> = vec![
            (|release| release.output_file, names(&file)),
            (|release| release.job_stats, names(&inner("stats", &fields))),
        ];
        if version >= [9, 8, 4] {
            let properties = names(&inner("table_properties", &file));
            structs.push((|release| release.table_properties, properties));
        }
        let mut later = BTreeSet::from(["internal_stats"]);
        for (list, found) in structs {
            let [known, unknown] = known_and_later(list, version);
            assert!(known.is_subset(&found), "{version:?}: {known:?} {found:?}");
            assert!(unknown.is_disjoint(&found), "{version:?}: {unknown:?}");
            later.extend(unknown);
        }

        let result = CompactionServiceResult::decode(captured.result).unwrap();
        // Earlier versions do not count them.
        let counted = 3000 * u64::from(version >= [8, 10, 0]);
        assert_eq!(result.stats.num_input_records, counted);
        assert_eq!(result.output_files.len(), 1);
        let for_itself = result.encode(version);
        let [theirs, ours, ours_for_itself] =
            [captured.result, &result.encode([0; 3]), &for_itself].map(|message| {
                let lines = sorted(message);
                lines.into_iter().collect::<BTreeSet<_>>()
            });
        let lost: Vec<_> = theirs.difference(&ours_for_itself).collect();
        assert!(lost.is_empty(), "{version:?}: {lost:?}");
        if version < [9, 9, 0] {
            assert_eq!(theirs, ours_for_itself, "{version:?}");
        }
        let is_gone_field = |line: &&String| GONE.iter().any(|name| line.starts_with(name));
        let lost = theirs.difference(&ours);
        let lost: Vec<_> = lost.filter(|line| !is_gone_field(line)).collect();
        assert!(lost.is_empty(), "{version:?}: {lost:?}");
        for line in ours.difference(&theirs) {
            let (path, _) = line.split_once('=').unwrap();
            let is_later = path.split('.').any(|name| later.contains(name));
            assert!(is_later, "{version:?}: {line}");
        }
    }
}

#[test]
fn every_form_of_output_files_is_read() {
    let one = "file_name=61;unique_id=1:2;unheard_of=zz;";
    let two = "file_name=62;file_temperature=kCold;";
    for (text, names) in [
        (format!("{{{{{{{one}}}}}}}"), vec!["a"]),
        (format!("{{{{{one}}}}}"), vec!["a"]),
        (format!("{{{{{{{one}}}}}:{{{{{two}}}}}}}"), vec!["a", "b"]),
        (format!("{{{{{one}}}:{{{two}}}}}"), vec!["a", "b"]),
        (String::new(), vec![]),
    ] {
        let bytes = message(&format!("output_files={text};output_level=3"));
        let result = CompactionServiceResult::decode(&bytes).unwrap();
        let read: Vec<_> = result
            .output_files
            .iter()
            .map(|f| f.file_name.as_str())
            .collect();
        assert_eq!(read, names, "{text}");
        if let Some(file) = result.output_files.get(1) {
            assert_eq!(file.file_temperature, Temperature::Cold);
            assert_eq!(file.file_checksum_func_name, b"Unknown");
        }
    }
    let three = message("output_files={{unique_id=1:2:3;}};");
    assert!(CompactionServiceResult::decode(&three).is_err());
}

/// The structs of a result as RocksDB before 11.8 parses them (`options_helper.cc:StringToMap`, `NextToken`;
/// `options_type.h:ParseVector`): a value loses one pair of braces, and a struct all pairs around it.
mod before_11_8 {
    use super::BTreeMap;

    /// The token at the start of `text`, and the text behind the delimiter.
    fn token(text: &str, delimiter: char) -> (&str, &str) {
        let end = |text: &str| text.find(delimiter).unwrap_or(text.len());
        let behind = |rest: &str| rest.len().min(1);
        if !text.starts_with('{') {
            let (token, rest) = text.split_at(end(text));
            return (token, &rest[behind(rest)..]);
        }
        let mut depth = 0;
        let closing = text.char_indices().find(|(_, c)| {
            depth += i32::from(*c == '{') - i32::from(*c == '}');
            depth == 0
        });
        let (closing, _) = closing.expect("balanced braces");
        let rest = &text[closing + 1..];
        assert!(rest.is_empty() || rest.starts_with(delimiter), "{text}");
        (&text[1..closing], &rest[behind(rest)..])
    }

    pub fn vector(mut text: &str) -> Vec<&str> {
        let mut elements = Vec::new();
        while !text.is_empty() {
            let (element, rest) = token(text, ':');
            elements.push(element);
            text = rest;
        }
        elements
    }

    pub fn fields(mut text: &str) -> BTreeMap<&str, &str> {
        while text.len() > 2 && text.starts_with('{') && text.ends_with('}') {
            text = &text[1..text.len() - 1];
        }
        let mut fields = BTreeMap::new();
        while !text.is_empty() {
            let (name, rest) = text.split_once('=').expect("a name");
            assert!(
                !name.is_empty() && !name.contains(['{', '}', ';']),
                "{name}"
            );
            let (value, rest) = token(rest, ';');
            fields.insert(name, value);
            text = rest;
        }
        fields
    }
}

#[test]
fn every_version_reads_what_it_knows_of_a_result() {
    let file = |name: &str, properties| OutputFile {
        file_name: name.to_owned(),
        file_size: 77,
        unique_id: [1, 2],
        table_properties: properties,
        ..OutputFile::default()
    };
    let collected = vec![(b"a".to_vec(), b"{;".to_vec()), (Vec::new(), Vec::new())];
    let properties = vec![
        ("num_entries".to_owned(), PropertyValue::Int(5)),
        (
            "user_collected_properties".to_owned(),
            PropertyValue::Map(collected),
        ),
        ("lsm_info_at_creation".to_owned(), PropertyValue::Int(518)),
    ];
    for count in [1, 2] {
        let names = ["000013.sst", "000014.sst"];
        let files = names[..count].iter();
        let mut result = CompactionServiceResult {
            output_files: files.map(|name| file(name, properties.clone())).collect(),
            ..CompactionServiceResult::default()
        };
        result.stats.num_output_records = 5;
        result.output_level_stats.num_output_records = 5;
        let bytes = result.encode([0; 3]);
        let text = std::str::from_utf8(&bytes[4..]).unwrap();
        let fields = before_11_8::fields(text);
        let of_all = |list: fn(&Release) -> &'static [&'static str]| {
            let names = RELEASES.iter().flat_map(list);
            names.copied().collect::<BTreeSet<_>>()
        };
        assert_eq!(
            fields.keys().copied().collect::<BTreeSet<_>>(),
            of_all(|release| release.result)
                .into_iter()
                .filter(|name| !is_gone(name, [0; 3]))
                .collect()
        );
        // 10.0 reads the counts here, later versions in `internal_stats`.
        assert_eq!(
            before_11_8::fields(fields["stats"])["num_output_records"],
            "5"
        );
        let levels = before_11_8::fields(fields["internal_stats"]);
        let level = before_11_8::fields(levels["output_level_stats"]);
        assert_eq!(level["num_output_records"], "5");
        let status = before_11_8::fields(fields["status"]);
        assert_eq!(status["code"], "0");
        let files = before_11_8::vector(fields["output_files"]);
        assert_eq!(files.len(), count);
        for (file, name) in files.into_iter().zip(names) {
            let file = before_11_8::fields(file);
            let mut hex = String::new();
            value::write_hex(&mut hex, name.as_bytes());
            assert_eq!((file["file_name"], file["file_size"]), (&*hex, "77"));
            assert_eq!(before_11_8::vector(file["unique_id"]), ["1", "2"]);
            let properties = before_11_8::fields(file["table_properties"]);
            assert_eq!(properties["num_entries"], "5");
            // A map's key may be empty, unlike a struct's name.
            assert_eq!(properties["user_collected_properties"], "61=7B3B;=;");
            for field in of_all(|release| release.output_file) {
                assert!(file.contains_key(field), "{field}");
            }
        }
        for field in of_all(|release| release.table_properties) {
            assert_eq!(property_kind(field), Some(PropertyKind::Int), "{field}");
        }
    }
}

#[test]
fn a_result_with_an_error_status_is_not_a_result() {
    let bytes = message("status={message=6469736B;severity=0;subcode=0;code=5;};");
    let error = CompactionServiceResult::decode(&bytes).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.what.contains("5: disk"), "{error}");
}

#[test]
fn an_encoded_file_names_the_members_without_defaults() {
    let result = CompactionServiceResult {
        output_files: vec![OutputFile::default(), OutputFile::default()],
        ..CompactionServiceResult::default()
    };
    let text = String::from_utf8(result.encode([0; 3])[4..].to_vec()).unwrap();
    for field in [
        "marked_for_compaction=false;",
        "is_proximal_level_output=false;",
    ] {
        assert_eq!(text.matches(field).count(), 2);
    }
    assert!(text.contains("status={code=0;subcode=0;severity=0;message=;};"));
    assert!(text.contains("stats={") && !text.contains("count"));
}

fn file_name() -> impl Strategy<Value = String> {
    "[^/\\x00]{1,12}".prop_filter("a base name", |n| n != "." && n != "..")
}

prop_compose! {
    fn any_input()(
        cf_name: Vec<u8>,
        snapshots in prop::collection::btree_set(any::<u64>(), 0..5),
        input_files in prop::collection::vec(file_name(), 0..4),
        output_level: i32,
        db_id: Vec<u8>,
        begin: Option<Vec<u8>>,
        end: Option<Vec<u8>>,
        numbers: [u64; 3],
        given: Option<()>,
    ) -> CompactionServiceInput {
        CompactionServiceInput {
            cf_name,
            snapshots: snapshots.into_iter().collect(),
            input_files,
            output_level,
            db_id,
            begin,
            end,
            options_file_number: numbers[0],
            min_manifest_file_number: numbers[1],
            min_manifest_file_size: numbers[2],
            options: given.map(|()| GivenOptions {
                db: "{max_open_files=-1;}".to_owned(),
                column_family: "{compression_opts={level=1;};ttl=0;}".to_owned(),
            }),
        }
    }
}

/// Properties ordered by name, as the reader returns them.
fn any_properties() -> impl Strategy<Value = Vec<(String, PropertyValue)>> {
    (
        any::<Option<(Vec<u8>, u64)>>(),
        prop::collection::vec(any::<(Vec<u8>, Vec<u8>)>(), 0..4),
    )
        .prop_map(|(some, map)| {
            let mut out = Vec::new();
            if let Some((bytes, number)) = some {
                out.push(("db_id".to_owned(), PropertyValue::Bytes(bytes)));
                out.push(("num_entries".to_owned(), PropertyValue::Int(number)));
            }
            out.push((
                "user_collected_properties".to_owned(),
                PropertyValue::Map(map),
            ));
            out
        })
}

prop_compose! {
    fn any_file()(
        file_name in file_name(),
        numbers: [u64; 6],
        keys: (Vec<u8>, Vec<u8>),
        unique_id: [u64; 2],
        flags: (bool, bool),
        table_properties in any_properties(),
        file_temperature in prop::sample::select(Temperature::ALL.to_vec()),
    ) -> OutputFile {
        OutputFile {
            file_name,
            file_size: numbers[0],
            smallest_seqno: numbers[1],
            largest_seqno: numbers[2],
            smallest_internal_key: keys.0.clone(),
            largest_internal_key: keys.1.clone(),
            oldest_ancester_time: numbers[3],
            epoch_number: numbers[4],
            paranoid_hash: numbers[5],
            file_checksum: keys.1,
            file_checksum_func_name: keys.0,
            unique_id,
            marked_for_compaction: flags.0,
            is_proximal_level_output: flags.1,
            table_properties,
            file_temperature,
            ..OutputFile::default()
        }
    }
}

proptest! {
    #[test]
    fn inputs_round_trip(input in any_input()) {
        prop_assert_eq!(CompactionServiceInput::decode(&input.encode()), Ok(input));
    }

    #[test]
    fn results_round_trip(
        output_files in prop::collection::vec(any_file(), 0..4),
        output_path: Vec<u8>,
        numbers: [u64; 4],
        num_output_files: i32,
    ) {
        let result = CompactionServiceResult {
            output_files,
            output_path,
            output_level: 6,
            bytes_read: numbers[0],
            bytes_written: numbers[1],
            stats: JobStats { num_input_records: numbers[2], ..JobStats::default() },
            output_level_stats: LevelStats {
                num_output_records: numbers[3],
                num_output_files,
                ..LevelStats::default()
            },
        };
        prop_assert_eq!(CompactionServiceResult::decode(&result.encode([0; 3])), Ok(result));
    }

    #[test]
    fn decoding_mutated_messages_is_total(
        real in prop::sample::select(vec![INPUT, RESULT]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(b"{};:=0aF\xff".to_vec())), 1..6),
        cut: prop::sample::Index,
    ) {
        let mut bytes = real.to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            if let Ok(input) = CompactionServiceInput::decode(bytes) {
                prop_assert_eq!(CompactionServiceInput::decode(&input.encode()), Ok(input));
            }
            if let Ok(result) = CompactionServiceResult::decode(bytes) {
                let again = CompactionServiceResult::decode(&result.encode([0; 3]));
                prop_assert!(again.is_ok() || result.output_files.iter().any(|f| f.file_name.is_empty()));
            }
        }
    }

    #[test]
    fn decoding_any_text_is_total(text in "[a-f0-9={};:]{0,80}") {
        let _ = CompactionServiceInput::decode(&message(&text));
        let _ = CompactionServiceResult::decode(&message(&text));
    }
}
