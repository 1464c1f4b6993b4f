//! Ways by which a program passes its compactions to Rockmill.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rockmill_format::versions::{NEWEST, OLDEST};
use rockmill_terminal::output;
use serde::Serialize;

/// RocksDB that the crate `rust-rocksdb` 0.54 contains.
const OF_RUST_ROCKSDB: [u32; 3] = [11, 12, 0];

/// RocksDB that the crate `rocksdb` 0.25 contains.
const OF_ROCKSDB: [u32; 3] = [11, 8, 1];

/// RocksJava before 10.10 that Rockmill serves, one a line.
const OF_JAVA: &str = include_str!("../../../../doors/java/versions.txt");

/// First version whose C API takes a compaction service; RocksJava needs no part of its own from it on.
const WITH_C_API: [u32; 3] = [10, 10, 0];

/// Beginning of the LOG file that is searched for the folder of the database, in bytes. RocksDB names it near the top.
const LOG_BYTES: u64 = 64 << 10;

/// Whether Rockmill knows the RocksDB version that wrote a database.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Support {
    Known,
    TooOld,
    TooNew,
    /// The OPTIONS file does not name the version that wrote it.
    Unknown,
}

impl Support {
    pub fn of(version: [u32; 3]) -> Self {
        match [version[0], version[1]] {
            [0, 0] => Self::Unknown,
            minor if minor < OLDEST => Self::TooOld,
            minor if minor > NEWEST => Self::TooNew,
            _ => Self::Known,
        }
    }

    /// Describes the support of a version in a line.
    pub fn line(&self, version: &str) -> String {
        let range = format!("({} to {})", dotted(&OLDEST), dotted(&NEWEST));
        match self {
            Self::Known => format!("written by RocksDB {version}: known {range}"),
            Self::TooOld => format!("written by RocksDB {version}: older than those known {range}"),
            Self::TooNew => format!("written by RocksDB {version}: newer than those known {range}"),
            Self::Unknown => format!("written by an unnamed RocksDB; known are {range}"),
        }
    }
}

/// A program whose databases can be recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    KafkaStreams,
    Flink,
}

impl Program {
    /// Recognises the program of a database by the names of its column families, its folder, and the folder that its LOG
    /// names.
    pub fn of<'a>(dir: &Path, families: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        for family in families {
            if family == b"keyValueWithTimestamp" {
                return Some(Self::KafkaStreams);
            }
            if family.starts_with(b"_timer_state") {
                return Some(Self::Flink);
            }
        }
        let real = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        Self::of_folder(&real).or_else(|| Self::of_folder(&folder_of_log(dir)?))
    }

    /// Kafka Streams has stores in `TASK/rocksdb/STORE`, where a task is two numbers. Flink has them in
    /// `job_ID_op_NAME/db`.
    fn of_folder(dir: &Path) -> Option<Self> {
        let names: Vec<_> = dir.iter().map(|name| name.to_string_lossy()).collect();
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let is_task = |name: &str| {
            let parts = name.split_once('_');
            parts.is_some_and(|(topic, partition)| is_number(topic) && is_number(partition))
        };
        let is_flink = |name: &str| name.starts_with("job_") && name.contains("_op_");
        if names.iter().any(|name| is_flink(name)) {
            return Some(Self::Flink);
        }
        let mut pairs = names.windows(2);
        let is_kafka = pairs.any(|pair| is_task(&pair[0]) && pair[1] == "rocksdb");
        is_kafka.then_some(Self::KafkaStreams)
    }

    fn door(self) -> Door {
        let (program, lines) = match self {
            Self::KafkaStreams => (
                "Kafka Streams, which has made this database",
                [
                    "rocksdb.config.setter=org.rockmill.kafka.RockmillConfigSetter",
                    "rockmill.device=auto",
                ],
            ),
            Self::Flink => (
                "Flink 2, if it has made this database (Flink 1 cannot)",
                [
                    "state.backend.rocksdb.options-factory: org.rockmill.flink.RockmillOptionsFactory",
                    "rockmill.device: auto",
                ],
            ),
        };
        Door {
            program: program.to_owned(),
            is_older: false,
            lines,
        }
    }
}

/// Returns the folder in which the database was when its LOG began.
fn folder_of_log(dir: &Path) -> Option<PathBuf> {
    let mut begin = Vec::new();
    let log = File::open(dir.join("LOG")).ok()?;
    log.take(LOG_BYTES).read_to_end(&mut begin).ok()?;
    let text = String::from_utf8_lossy(&begin);
    let (_, rest) = text.split_once(" SST files in ")?;
    let (folder, _) = rest.split_once(" dir, Total Num")?;
    Some(PathBuf::from(folder))
}

/// One way: the programs for which it is, and what they add.
#[derive(Debug, Serialize)]
pub struct Door {
    program: String,
    /// Whether the RocksDB of this way is older than the one that wrote the database, which it may fail to open.
    is_older: bool,
    lines: [&'static str; 2],
}

/// Returns the ways for a database of this version and program, if that is known.
pub fn all(written_by: [u32; 3], program: Option<Program>) -> Vec<Door> {
    let mut all: Vec<_> = program.map(Program::door).into_iter().collect();
    all.extend(of_version(written_by));
    all
}

fn of_version(written_by: [u32; 3]) -> [Door; 5] {
    let own = match Support::of(written_by) {
        Support::Known => format!("its own RocksDB {}", dotted(&written_by[..2])),
        _ => format!("its own RocksDB {} to {}", dotted(&OLDEST), dotted(&NEWEST)),
    };
    [
        Door {
            program: format!("C++ with {own}"),
            is_older: false,
            lines: [
                "#include <rockmill/rocksdb.hpp>",
                "rockmill::Attach(&options, {{\"device\", \"auto\"}}, &status);  // before Open",
            ],
        },
        Door {
            program: match serves_java(written_by) {
                true => format!("Java with its own RocksJava {}", dotted(&written_by)),
                false => {
                    "Java with RocksJava of one of the versions in docs/guide/java.md".to_owned()
                }
            },
            is_older: false,
            lines: [
                "java -javaagent:rockmill.jar=device=auto ..  # any program",
                "Rockmill.builder().build().attach(options);  // before RocksDB.open",
            ],
        },
        Door {
            program: "Go, or another language over the C API of RocksDB 10.10 or newer".to_owned(),
            is_older: false,
            lines: [
                "release, err := rockmill.Attach(opts, \"device=auto\")  // Go, before OpenDb",
                "rm_attach(options, \"device=auto\", &error);  // of librockmill_attach.so",
            ],
        },
        Door {
            program: format!(
                "Rust, crate rust-rocksdb 0.54, which contains RocksDB {}",
                dotted(&OF_RUST_ROCKSDB)
            ),
            is_older: written_by > OF_RUST_ROCKSDB,
            lines: [
                "rockmill = { path = \"../rockmill/doors/rockmill\" }  # in Cargo.toml",
                "options.set_compaction_service(rockmill::Service::builder().build()?);",
            ],
        },
        Door {
            program: format!(
                "Rust, crate rocksdb 0.25, which contains RocksDB {}",
                dotted(&OF_ROCKSDB)
            ),
            is_older: written_by > OF_ROCKSDB,
            lines: [
                "rockmill-rocksdb = { path = \"../rockmill/doors/rockmill-rocksdb\" }",
                "options.set_compaction_service(&Service::builder().build()?);",
            ],
        },
    ]
}

/// Returns whether the jar for Java serves RocksJava of this version.
fn serves_java(version: [u32; 3]) -> bool {
    let (given, newest) = (dotted(&version), NEWEST);
    let mut parts = OF_JAVA.lines().filter_map(|line| line.split(' ').next());
    let needs_none = version >= WITH_C_API && [version[0], version[1]] <= newest;
    needs_none || parts.any(|part| part == given)
}

fn dotted(version: &[u32]) -> String {
    let parts: Vec<_> = version.iter().map(u32::to_string).collect();
    parts.join(".")
}

impl Door {
    /// Prints it.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let older = if self.is_older {
            "; older than the writer"
        } else {
            ""
        };
        writeln!(
            out,
            "{}",
            output::indented(&format!("{}{older}", self.program), 2)
        )?;
        // Lines to copy are not broken.
        self.lines
            .iter()
            .try_for_each(|line| writeln!(out, "    {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_known_too_old_or_too_new() {
        for (version, support) in [
            ([7, 7, 3], Support::TooOld),
            ([7, 10, 2], Support::Known),
            ([9, 11, 2], Support::Known),
            ([10, 0, 0], Support::Known),
            ([11, 12, 9], Support::Known),
            ([11, 13, 0], Support::TooNew),
            ([0, 0, 0], Support::Unknown),
        ] {
            assert_eq!(Support::of(version), support, "{version:?}");
        }
    }

    #[test]
    fn a_door_with_an_older_rocksdb_says_so() {
        let older = |version| of_version(version).map(|door| door.is_older);
        assert_eq!(older([11, 8, 1]), [false; 5]);
        assert_eq!(older([11, 12, 0]), [false, false, false, false, true]);
        assert_eq!(older([11, 13, 0]), [false, false, false, true, true]);
    }

    #[test]
    fn java_is_served_with_the_versions_of_the_list_and_from_10_10_on() {
        for (version, expected) in [
            ([7, 9, 2], true),
            ([8, 10, 1], false),
            ([9, 7, 3], true),
            ([10, 10, 1], true),
            ([11, 13, 0], false),
            ([0, 0, 0], false),
        ] {
            assert_eq!(serves_java(version), expected, "{version:?}");
        }
    }

    #[test]
    fn kafka_streams_and_flink_are_recognised_by_families_and_folders() {
        let of = |dir: &str, family: &[u8]| Program::of(Path::new(dir), [&b"default"[..], family]);
        let kafka = Some(Program::KafkaStreams);
        assert_eq!(of("/copy", b"keyValueWithTimestamp"), kafka);
        assert_eq!(of("/state/words/0_11/rocksdb/counts", b"x"), kafka);
        assert_eq!(of("/state/words/1_0/rocksdb/w/w.120", b"x"), kafka);
        assert_eq!(of("/copy", b"_timer_state/event"), Some(Program::Flink));
        assert_eq!(of("/tmp/job_0a_op_Max__1_2/db", b"x"), Some(Program::Flink));
        for other in ["/data/rocksdb/counts", "/data/1_x/rocksdb/a", "rocksdb", ""] {
            assert_eq!(of(other, b"x"), None, "{other}");
        }
    }

    #[test]
    fn the_folder_in_the_log_counts_for_a_copy() {
        let dir = tempfile::tempdir().expect("a folder");
        let program = || Program::of(dir.path(), [&b"default"[..]]);
        assert_eq!(program(), None);
        let log = "2026/01/01 SST files in /state/words/0_1/rocksdb/counts dir, Total Num: 2";
        std::fs::write(dir.path().join("LOG"), log).expect("a file");
        assert_eq!(program(), Some(Program::KafkaStreams));
        assert_eq!(all([9, 7, 3], program()).len(), 6);
    }

    #[test]
    fn doors_fit_the_usual_width() {
        for version in [[0; 3], [10, 10, 1], [11, 13, 10]] {
            let mut out = Vec::new();
            for door in all(version, Some(Program::KafkaStreams)) {
                door.print(&mut out).expect("memory");
            }
            let text = String::from_utf8(out).expect("text");
            let too_long = text.lines().find(|line| line.len() > 80);
            assert_eq!(too_long, None);
        }
    }
}
