//! Settings as text, `threads=8;device=auto`, for programs that cannot call the Rust builder.
//!
//! A setting has the name of the builder's method. No setting has a default here that differs from the builder's.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;

use super::{MUTABLE, MutableSettings, Settings};

/// Sets a setting to the value of that text, or returns `None`.
type Set<S> = fn(&mut S, &str) -> Option<()>;

pub(super) enum Setting {
    /// Can be changed while the service is open.
    Mutable(Set<MutableSettings>),
    Fixed(Set<Settings>),
}

use Setting::{Fixed, Mutable};

/// Name, allowed values, and how it is set.
pub(super) type Named = (&'static str, &'static str, Setting);

pub(super) const BYTES: &str = "a whole number of bytes";
const PATH: &str = "the path of a folder";

/// The settings that cannot change while the service is open.
const FIXED: &[Named] = &[
    (
        "comparator",
        "NAME=bytewise or NAME=reverse with the name of the application's own comparator, or several with + between them",
        Fixed(|s, text| {
            let mut all = split(text, b'+').into_iter();
            all.try_for_each(|stated| s.state_comparator(stated)).ok()
        }),
    ),
    (
        "device",
        "cpu, cuda, cuda:N or auto, or several different of cpu and cuda:N with + between them",
        Fixed(|s, text| put(&mut s.device, parsed(text))),
    ),
    (
        "device_memory_bytes",
        BYTES,
        Fixed(|s, text| put(&mut s.cuda.memory_bytes, some_number(text))),
    ),
    (
        "filter_bits_per_key",
        "a number from 1 to 100",
        Fixed(|s, text| s.set_filter_bits_per_key(text.parse().ok()?).ok()),
    ),
    (
        "merge_operator",
        "[FAMILY=]NAME[:OPTIONS] with one of RocksDB's merge operators, or several with + between them",
        Fixed(|s, text| {
            let mut all = split(text, b'+').into_iter();
            all.try_for_each(|stated| s.state_merge_operator(stated))
                .ok()
        }),
    ),
    (
        "record_jobs",
        PATH,
        Fixed(|s, text| path(text).map(|dir| s.set_record_dir(dir))),
    ),
    (
        "staging_dir",
        PATH,
        Fixed(|s, text| path(text).map(|dir| s.set_staging_dir(dir))),
    ),
    (
        "write_committed",
        "true or false",
        Fixed(|s, text| put(&mut s.write_committed, parsed(text))),
    ),
];

/// Splits a text at a separator that is not within a pair of braces.
fn split(text: &str, separator: u8) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut from, mut closed) = (0, 0);
    for (at, byte) in text.bytes().enumerate() {
        if byte == b'{' && at >= closed {
            closed = closing(text, at).unwrap_or(closed);
        }
        if byte == separator && at >= closed {
            parts.push(&text[from..at]);
            from = at + 1;
        }
    }
    parts.push(&text[from..]);
    parts
}

/// The brace that closes the one at `from`.
fn closing(text: &str, from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut rest = text.bytes().enumerate().skip(from);
    rest.find_map(|(at, byte)| {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

pub(super) fn put<T>(place: &mut T, value: Option<T>) -> Option<()> {
    *place = value?;
    Some(())
}

pub(super) fn parsed<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

pub(super) fn number<N: FromStr>(text: &str) -> Option<N> {
    // Numbers of bytes or threads have no sign, but Rust accepts a plus.
    text.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
    text.parse().ok()
}

pub(super) fn some_number<N: FromStr>(text: &str) -> Option<Option<N>> {
    number(text).map(Some)
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| text.into())
}

impl Settings {
    /// Returns the settings of a service from `key=value` pairs with `;` between them. Spaces around keys and values
    /// are ignored. Settings that are not named have their defaults.
    ///
    /// # Errors
    /// One sentence that names the setting and the allowed values.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut settings = Self::for_service();
        for pair in pairs(text)? {
            match pair.setting {
                Mutable(set) => pair.check(set(&mut settings.mutable, pair.value))?,
                Fixed(set) => pair.check(set(&mut settings, pair.value))?,
            }
        }
        settings.check().map(|()| settings)
    }
}

impl MutableSettings {
    /// Returns these settings with changes, which are written as for [`Settings::parse`].
    ///
    /// # Errors
    /// One sentence that names the setting and the allowed values.
    pub fn with(mut self, text: &str) -> Result<Self, String> {
        for pair in pairs(text)? {
            match pair.setting {
                Mutable(set) => pair.check(set(&mut self, pair.value))?,
                Fixed(_) => {
                    let names = names(MUTABLE.iter());
                    return Err(format!(
                        "{} cannot change while the service is open; {names} can",
                        pair.name
                    ));
                }
            }
        }
        self.check().map(|()| self)
    }
}

struct Pair<'a> {
    name: &'static str,
    value: &'a str,
    possible: &'static str,
    setting: &'static Setting,
}

impl Pair<'_> {
    fn check(&self, set: Option<()>) -> Result<(), String> {
        set.ok_or_else(|| {
            format!(
                "{} is {:?}; it must be {}",
                self.name, self.value, self.possible
            )
        })
    }
}

fn pairs(text: &str) -> Result<Vec<Pair<'_>>, String> {
    let mut seen = BTreeSet::new();
    let pairs = split(text, b';').into_iter();
    let pairs = pairs.map(str::trim).filter(|p| !p.is_empty());
    let pairs = pairs.map(|pair| {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| format!("{pair:?} is no setting; write key=value"))?;
        let (key, value) = (key.trim(), value.trim());
        let (name, possible, setting) = all().find(|(name, ..)| *name == key).ok_or_else(|| {
            let names = names(all());
            format!("there is no setting {key:?}; the settings are {names}")
        })?;
        if !seen.insert(name) {
            return Err(format!("{name} is given twice; give it once"));
        }
        Ok(Pair {
            name,
            value,
            possible,
            setting,
        })
    });
    pairs.collect()
}

fn all() -> impl Iterator<Item = &'static Named> {
    FIXED.iter().chain(MUTABLE)
}

/// Their names in the order of the alphabet.
fn sorted(settings: impl Iterator<Item = &'static Named>) -> Vec<&'static str> {
    let mut names: Vec<_> = settings.map(|(name, ..)| *name).collect();
    names.sort_unstable();
    names
}

fn names(settings: impl Iterator<Item = &'static Named>) -> String {
    let names = sorted(settings);
    let (last, others) = names.split_last().expect("there are settings");
    format!("{} and {last}", others.join(", "))
}

#[cfg(test)]
mod tests {
    use rockmill_exec::device::{Device, DeviceList};
    use rockmill_format::key::KeyOrder;
    use rockmill_storage::io::OutputCache;

    use super::*;
    use crate::verify::Verification;

    fn refused(text: &str) -> String {
        Settings::parse(text).expect_err("it is not possible")
    }

    #[test]
    fn separators_within_braces_are_of_the_delimiter() {
        let text = "threads=2; merge_operator = a=stringappend:delimiter={+;}+b=max;staging_dir=/{a;nice=1";
        let settings = Settings::parse(text).expect("all are possible");
        let operator = |family| settings.merge_operators.get(family).cloned();
        assert_eq!(operator("a"), "stringappend:delimiter={+;}".parse().ok());
        assert_eq!(operator("b"), "max".parse().ok());
        assert_eq!(settings.staging_dir, Some("/{a".into()));
    }

    #[test]
    fn every_setting_can_be_given() {
        let text = "comparator=mine=bytewise+rev:mine=reverse;device=cuda:1;device_cache_bytes=5; device_compression=false; device_memory_bytes=1 ;filter_bits_per_key=9.9;io_bytes_per_second=2;\
                    memory_budget_bytes=33554432;merge_operator=a=max+stringappend:delimiter=|;min_job_bytes=3;nice=4;output_cache=bypass;paused=true;record_jobs=/a/b;\
                    staging_dir=/c=d;threads=6;verification=sampled:7;write_committed=true;";
        let settings = Settings::parse(text).expect("all are possible");
        let order = |name| settings.hints.comparators.order(name);
        assert_eq!(order("mine"), Some(KeyOrder::Bytewise));
        assert_eq!(order("rev:mine"), Some(KeyOrder::ReverseBytewise));
        assert_eq!(settings.device, DeviceList::from(Device::Cuda(1)));
        assert_eq!(settings.mutable.device_cache_bytes, Some(5));
        assert_eq!(settings.cuda.memory_bytes, Some(1));
        assert_eq!(settings.hints.filter_millibits_per_key, Some(9_900));
        assert_eq!(settings.record_dir, Some("/a/b".into()));
        assert_eq!(settings.staging_dir, Some("/c=d".into()));
        assert!(settings.write_committed);
        let operator = |family: &str| {
            settings
                .merge_operators
                .get(family)
                .map(ToString::to_string)
        };
        assert_eq!(operator("a").as_deref(), Some("max"));
        assert_eq!(operator("b").as_deref(), Some("stringappend"));
        let mutable = settings.mutable;
        assert!(!mutable.device_compression);
        assert_eq!(mutable.io_bytes_per_second, 2);
        assert_eq!(mutable.memory_budget_bytes, 32 << 20);
        assert_eq!((mutable.min_job_bytes, mutable.nice), (3, 4));
        assert!(mutable.paused);
        assert_eq!(mutable.output_cache, OutputCache::Bypass);
        assert_eq!(mutable.threads, 6);
        assert_eq!("sampled:7".parse(), Ok(mutable.verification));
        for (name, ..) in all() {
            assert!(text.contains(&format!("{name}=")), "{name}");
        }
    }

    #[test]
    fn the_guide_has_the_settings_and_no_others() {
        let guide = include_str!("../../../../docs/guide/settings.md");
        let (_, table) = guide.split_once("|---|---|---|---|\n").expect("a table");
        let rows = table.lines().take_while(|line| line.starts_with('|'));
        let mut names: Vec<_> = rows.filter_map(|row| row.split('`').nth(1)).collect();
        names.sort_unstable();
        assert_eq!(names, sorted(all()));
    }

    #[test]
    fn without_settings_the_defaults_count() {
        for nothing in ["", " ", ";;"] {
            let settings = Settings::parse(nothing).expect("nothing is wrong");
            assert_eq!(settings.mutable, Settings::for_service().mutable);
            assert_eq!(settings.device, DeviceList::default());
        }
    }

    #[test]
    fn a_sentence_names_the_setting_and_what_is_possible() {
        assert!(
            refused("thread=8").starts_with(
                "there is no setting \"thread\"; the settings are comparator, device,"
            )
        );
        assert!(refused("threads").contains("write key=value"));
        assert_eq!(
            refused("nice=1;nice=1"),
            "nice is given twice; give it once"
        );
        for wrong in [
            "threads=",
            "threads=x",
            "threads=-1",
            "threads=+1",
            "threads=0",
            "threads=1025",
        ] {
            let sentence = refused(wrong);
            assert!(
                sentence.contains("threads is") && sentence.contains("from 1 to 1024"),
                "{sentence}"
            );
        }
        for (wrong, possible) in [
            ("comparator=mine", "NAME=reverse"),
            ("comparator=mine=numeric", "NAME=reverse"),
            ("device=gpu", "cuda:N"),
            ("device=cpu+cpu", "several different"),
            ("device_cache_bytes=-1", "0 caches nothing"),
            ("device_compression=1", "true or false"),
            ("device_memory_bytes=1k", BYTES),
            ("filter_bits_per_key=0.5", "from 1 to 100"),
            ("filter_bits_per_key=NaN", "from 1 to 100"),
            ("io_bytes_per_second=99999999999999999999", "0 is no limit"),
            ("memory_budget_bytes=1", "at least 33554432"),
            ("merge_operator=mine", "one of RocksDB's"),
            ("merge_operator=max+put", "one of RocksDB's"),
            (
                "merge_operator=stringappend:delimiter=+",
                "one of RocksDB's",
            ),
            (
                "merge_operator=a=stringappend:delimiter=+b=max",
                "one of RocksDB's",
            ),
            (
                "merge_operator=a=stringappend:delimiter=x+y",
                "one of RocksDB's",
            ),
            ("nice=20", "from 0 to 19"),
            ("output_cache=page", "database or bypass"),
            ("paused=on", "true or false"),
            ("record_jobs=", PATH),
            ("verification=none", "sampled:N"),
            ("write_committed=yes", "true or false"),
        ] {
            let (name, _) = wrong.split_once('=').expect("a pair");
            let sentence = refused(wrong);
            assert!(
                sentence.contains(name) && sentence.contains(possible),
                "{sentence}"
            );
        }
    }

    #[test]
    fn all_settings_change_or_none() {
        let before = Settings::for_service().mutable;
        let after = before
            .with("threads=3;verification=full")
            .expect("possible");
        assert_eq!((after.threads, after.verification), (3, Verification::Full));
        assert!(before.with("threads=3;nice=20").is_err());
        let fixed = before.with("device=cpu").expect_err("it is fixed");
        assert!(
            fixed
                .starts_with("device cannot change while the service is open; device_cache_bytes,")
        );
    }
}
