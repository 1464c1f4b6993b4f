//! Merge operators that a user states. OPTIONS name an operator, and the name proves nothing: applications choose it,
//! and RocksDB does not check it. So operands are merged only with a stated operator.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use rockmill_format::options_file::Options;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::merging::Merging;

/// RocksDB's merge operators, each with the two names that RocksDB accepts for it
/// (`utilities/merge_operators.cc:RegisterBuiltinMergeOperators`). `MergeSortOperator` is not among them: it reads beyond the
/// end of operands (`sortlist.cc:MakeVector`), so its results are not a function of these.
const OPERATORS: [[&str; 2]; 6] = [
    ["uint64add", "UInt64AddOperator"],
    ["stringappend", "StringAppendOperator"],
    ["stringappendtest", "StringAppendTESTOperator"],
    ["max", "MaxOperator"],
    ["put", "PutOperator"],
    ["bytesxor", "BytesXOR"],
];

/// One of RocksDB's merge operators, with its options: `NAME[:OPTIONS]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MergeOperator {
    name: String,
    /// In RocksDB's syntax, `delimiter=|`; can be empty.
    options: String,
}

/// The option that states a delimiter.
const DELIMITER: &str = "delimiter=";

/// Another name of `PutOperator` in OPTIONS (`utilities/merge_operators/put_operator.h`).
const PUT_V1: &str = "put_v1";

/// The first name of RocksDB's merge operator with this name.
fn first_name(name: &str) -> Option<&'static str> {
    let name = if name == PUT_V1 { "put" } else { name };
    let names = OPERATORS.iter().find(|names| names.contains(&name))?;
    Some(names[0])
}

impl MergeOperator {
    /// The value of RocksDB's option `merge_operator`, as RocksDB parses it in a text of several options.
    pub fn option_value(&self) -> String {
        match self.delimiter() {
            Some(text) => format!("{{id={};{DELIMITER}{{{text}}}}}", self.name),
            None => format!("{{id={};{}}}", self.name, self.options),
        }
    }

    /// The stated options.
    fn stated(&self) -> rockmill_format::Result<Options> {
        Options::from_value(&format!("{{id={};{}}}", self.name, self.options))
    }

    fn delimiter(&self) -> Option<String> {
        let stated = self.stated().ok()?;
        stated.string("delimiter").map(str::to_owned)
    }

    /// Checks that RocksDB and Rockmill read the options alike.
    fn check(&self) -> std::result::Result<(), String> {
        let in_braces = "write the delimiter of a merge operator in braces, as in delimiter={, }, \
                         if it is empty, has white space at an end, or has braces in pairs or semicolons";
        // RocksDB undoes escapes once or twice, depending on how the option is passed.
        if self.options.contains(['\\', '\n', '\r']) {
            return Err("a delimiter with a backslash or a line end cannot be stated".to_owned());
        }
        let options = self.stated().map_err(|_| in_braces.to_owned())?;
        if options.str("delimiter").is_none() {
            return Ok(());
        }
        let is_alone = options.len() == 2;
        let stated = self.options.strip_prefix(DELIMITER);
        let stated = stated.filter(|_| is_alone).ok_or(in_braces)?;
        if stated.starts_with('{') {
            return Ok(());
        }
        let text = stated.strip_suffix(';').unwrap_or(stated);
        let is_plain = !text.is_empty() && text.trim() == text && !text.contains(['{', '}', ';']);
        is_plain.then_some(()).ok_or_else(|| in_braces.to_owned())
    }

    /// Returns how OPTIONS of the column family contradict this operator, which is stated for it by name (`for_family`)
    /// or for all. A name in OPTIONS proves nothing, but a different name shows that the statement is wrong.
    pub fn contradiction(&self, family: &Options, for_family: bool) -> Option<String> {
        const KEY: &str = "merge_operator";
        let own = first_name(&self.name);
        let text = family.str(KEY)?;
        let against = |what: &str| {
            let (own, of) = (
                String::from(self.clone()),
                if for_family { "" } else { " for all" },
            );
            Some(format!(
                "the merge operator {own} is stated{of}, but OPTIONS say {what}"
            ))
        };
        let nested = family.nested(KEY).ok();
        let name = match nested.as_ref().and_then(Options::id) {
            Some(name) => name.to_owned(),
            // The operator's own options may have braces or semicolons, which RocksDB does not escape.
            None => match text.strip_prefix("{id=") {
                Some(rest) => rest.split([';', '}']).next().unwrap_or_default().to_owned(),
                None => text.to_owned(),
            },
        };
        match first_name(&name) {
            None if family.is_null(KEY) => return against("that there is none"),
            // The operator may equal RocksDB's.
            None if for_family => return None,
            None => {
                return against(&format!(
                    "{name}, which is the application's own; state the operator for the column family by its name if it does the same"
                ));
            }
            found if found != own => return against(&name),
            Some(_) => {}
        }
        let written = nested
            .as_ref()
            .and_then(|options| options.str("delimiter"))?;
        let stated = self.delimiter().unwrap_or_else(|| ",".to_owned());
        // The value as RocksDB writes it and parses it again.
        let again = Options::from_value(&format!("{{id={name};{DELIMITER}{stated};}}")).ok()?;
        match again.str("delimiter") {
            Some(stated) if stated != written => {
                against(&format!("{name} with the delimiter {written:?}"))
            }
            _ => None,
        }
    }

    /// The merge function of RocksDB's operator with this name, whose delimiter is known to be `delimiter`, if it has one.
    pub fn verified(name: &str, delimiter: Option<&[u8]>) -> Option<Merging> {
        match (first_name(name)?, delimiter) {
            (lists @ ("stringappend" | "stringappendtest"), Some(delimiter)) => {
                Some(Merging::Append {
                    delimiter: delimiter.to_vec(),
                    partial: lists == "stringappend",
                })
            }
            ("uint64add", None) => Some(Merging::UInt64Add),
            ("max", None) => Some(Merging::Max),
            ("put", None) => Some(Merging::Put),
            ("bytesxor", None) => Some(Merging::BytesXor),
            _ => None,
        }
    }

    /// The merge function, if compactions here can do it.
    pub fn merging(&self) -> Option<Merging> {
        let options = self.stated().ok()?;
        let is_known = |(name, _): (&str, &str)| matches!(name, "id" | "delimiter");
        if !options.iter().all(is_known) {
            return None;
        }
        const DEFAULT_DELIMITER: &str = ",";
        let mut delimiter = self.delimiter();
        if first_name(&self.name)?.starts_with("stringappend") {
            delimiter.get_or_insert_with(|| DEFAULT_DELIMITER.to_owned());
        }
        Self::verified(&self.name, delimiter.as_deref().map(str::as_bytes))
    }

    /// Whether two names are of the same operator.
    pub fn is_named_alike(one: &str, other: &str) -> bool {
        one == other || first_name(one).is_some_and(|name| first_name(other) == Some(name))
    }
}

impl FromStr for MergeOperator {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        if !OPERATORS.as_flattened().contains(&name) {
            let names = OPERATORS.map(|[name, _]| name).join(", ");
            return Err(format!(
                "a merge operator {name:?} cannot be stated; these can: {names}"
            ));
        }
        if options.contains(['\0', '\n', '\r']) {
            return Err("write \\n for a new line in the options of a merge operator".to_owned());
        }
        let operator = Self {
            name: name.to_owned(),
            options: options.to_owned(),
        };
        operator.check().map(|()| operator)
    }
}

impl TryFrom<String> for MergeOperator {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl From<MergeOperator> for String {
    fn from(operator: MergeOperator) -> Self {
        match operator.options.is_empty() {
            true => operator.name,
            false => format!("{}:{}", operator.name, operator.options),
        }
    }
}

impl fmt::Display for StatedOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(family) = &self.family {
            write!(f, "{family}=")?;
        }
        f.write_str(&String::from(self.operator.clone()))
    }
}

impl fmt::Display for MergeOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A merge operator, and the column family that has it: `[FAMILY=]NAME[:OPTIONS]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatedOperator {
    /// `None` for all column families without an operator stated by name.
    pub family: Option<String>,
    /// The operator.
    pub operator: MergeOperator,
}

impl FromStr for StatedOperator {
    type Err = String;

    /// Options may have an equals sign, and so may the name of a column family.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let names_one = |text: &str| {
            let name = text.split(':').next().unwrap_or_default();
            OPERATORS.as_flattened().contains(&name)
        };
        let signs = text.match_indices('=').map(|(at, _)| at);
        let behind = signs.map(|at| (Some(&text[..at]), &text[at + 1..]));
        let mut all = std::iter::once((None, text)).chain(behind);
        let (family, operator) = all
            .find(|(_, operator)| names_one(operator))
            .unwrap_or((None, text));
        Ok(Self {
            family: family.map(str::to_owned),
            operator: operator.parse()?,
        })
    }
}

/// The stated merge operators of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergeOperators {
    by_family: BTreeMap<String, MergeOperator>,
    of_others: Option<MergeOperator>,
}

impl MergeOperators {
    /// Adds one.
    ///
    /// # Errors
    /// Invalid if one is stated for the same column families already.
    pub fn add(&mut self, stated: &StatedOperator) -> Result<()> {
        let operator = stated.operator.clone();
        let known = match &stated.family {
            Some(family) => self.by_family.insert(family.clone(), operator),
            None => self.of_others.replace(operator),
        };
        if known.is_none_or(|known| known == stated.operator) {
            return Ok(());
        }
        let of = match &stated.family {
            Some(family) => format!("column family {family:?}"),
            None => "all column families".to_owned(),
        };
        let what = format!("two merge operators are stated for {of}");
        Err(Error::new(ErrorKind::Invalid, what))
    }

    /// All of them.
    ///
    /// # Errors
    /// Invalid if two are for the same column families.
    pub fn of<'a>(stated: impl IntoIterator<Item = &'a StatedOperator>) -> Result<Self> {
        let mut all = Self::default();
        stated.into_iter().try_for_each(|one| all.add(one))?;
        Ok(all)
    }

    /// The operator of a column family.
    pub fn get(&self, family: &str) -> Option<&MergeOperator> {
        self.by_family.get(family).or(self.of_others.as_ref())
    }

    /// The statement that a column family's operator comes from.
    pub fn stated(&self, family: &str) -> Option<StatedOperator> {
        Some(StatedOperator {
            family: self.names(family).then(|| family.to_owned()),
            operator: self.get(family)?.clone(),
        })
    }

    /// Whether one is stated for the column family by its name.
    pub fn names(&self, family: &str) -> bool {
        self.by_family.contains_key(family)
    }

    /// Checks that the column families with a stated operator exist.
    ///
    /// # Errors
    /// Invalid if one is missing.
    pub fn check(&self, families: &[String]) -> Result<()> {
        let mut named = self.by_family.keys();
        match named.find(|name| !families.contains(name)) {
            None => Ok(()),
            Some(name) => {
                let what = format!(
                    "a merge operator is stated for column family {name:?}, which does not exist"
                );
                Err(Error::new(ErrorKind::Invalid, what))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> std::result::Result<(Option<String>, String), String> {
        let stated: StatedOperator = text.parse()?;
        Ok((stated.family, stated.operator.option_value()))
    }

    #[test]
    fn an_operator_is_stated_for_a_column_family_or_for_all() {
        let of =
            |family: Option<&str>, value: &str| Ok((family.map(str::to_owned), value.to_owned()));
        for (text, expected) in [
            ("uint64add", of(None, "{id=uint64add;}")),
            (
                "counts=UInt64AddOperator",
                of(Some("counts"), "{id=UInt64AddOperator;}"),
            ),
            (
                "stringappend:delimiter=|",
                of(None, "{id=stringappend;delimiter={|}}"),
            ),
            (
                "a=b=stringappend:delimiter==",
                of(Some("a=b"), "{id=stringappend;delimiter={=}}"),
            ),
            (
                "x:y=stringappend:delimiter=max",
                of(Some("x:y"), "{id=stringappend;delimiter={max}}"),
            ),
            ("uint64add=max", of(Some("uint64add"), "{id=max;}")),
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
        for text in [
            "",
            "mine",
            "counts=mine",
            "uint64add ",
            "stringappend:delimiter=\n",
            r"stringappend:delimiter=\n",
            r"stringappend:delimiter={\#}",
            "stringappend:delimiter={\n}",
            "stringappend:delimiter=",
            "a=stringappend:delimiter=",
            "stringappend:delimiter= ",
            "stringappend:delimiter=, ",
            "stringappend:delimiter= ,",
            "stringappend: delimiter=,",
            "stringappend:delimiter=a;delimiter=b;",
            "stringappend:delimiter=}",
            "stringappend:delimiter={",
            "stringappend:delimiter={a}b",
        ] {
            assert!(parsed(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn statements_are_written_as_they_are_read() {
        for text in [
            "max",
            "a=b=stringappend:delimiter==",
            "counts=UInt64AddOperator",
        ] {
            let stated: StatedOperator = text.parse().expect("an operator");
            assert_eq!(stated.to_string(), text);
        }
    }

    #[test]
    fn operators_that_compactions_can_do_are_known_by_both_names() {
        let merging = |text: &str| {
            text.parse::<MergeOperator>()
                .expect("an operator")
                .merging()
        };
        let append = |delimiter: &str, partial| {
            let delimiter = delimiter.as_bytes().to_vec();
            Some(Merging::Append { delimiter, partial })
        };
        assert_eq!(merging("uint64add"), Some(Merging::UInt64Add));
        assert_eq!(merging("BytesXOR"), Some(Merging::BytesXor));
        assert_eq!(merging("stringappend"), append(",", true));
        assert_eq!(
            merging("StringAppendTESTOperator:delimiter=||"),
            append("||", false)
        );
        // RocksDB strips one pair of braces after undoing the escapes.
        for (stated, delimiter) in [
            ("{, }", ", "),
            ("{ }", " "),
            ("{}", ""),
            ("{{}}", "{}"),
            ("{{a}:{b}}", "{a}:{b}"),
            ("{a;b}", "a;b"),
        ] {
            let text = format!("stringappend:delimiter={stated}");
            assert_eq!(merging(&text), append(delimiter, true), "{text}");
        }
        for unknown in ["max:delimiter=|", "stringappend:separator=|"] {
            assert_eq!(merging(unknown), None, "{unknown}");
        }
        let sorting = "sortlist".parse::<MergeOperator>();
        assert!(sorting.is_err_and(|why| why.contains("\"sortlist\" cannot be stated")));
    }

    #[test]
    fn options_contradict_a_stated_operator() {
        let against = |stated: &str, options: &str, for_family| {
            let family = Options::from_value(&format!("a=1;merge_operator={options}"));
            let family = family.expect("they can be read");
            let stated: MergeOperator = stated.parse().expect("an operator");
            stated.contradiction(&family, for_family).is_some()
        };
        for (stated, options) in [
            ("uint64add", "{id=UInt64AddOperator;}"),
            ("uint64add", "UInt64AddOperator"),
            ("put", "put_v1"),
            ("PutOperator", "{id=put_v1;}"),
            ("stringappend", "{id=StringAppendOperator;delimiter=,;}"),
            ("stringappend:delimiter=|", "StringAppendOperator"),
            (
                "stringappend:delimiter=|",
                "{id=StringAppendOperator;delimiter=|;}",
            ),
            (
                "stringappend:delimiter={, }",
                "{id=StringAppendOperator;delimiter=, ;}",
            ),
            (
                "stringappend:delimiter={}",
                "{id=StringAppendOperator;delimiter=;}",
            ),
        ] {
            for for_family in [false, true] {
                assert!(!against(stated, options, for_family), "{stated} {options}");
            }
        }
        for (stated, options) in [
            ("uint64add", "{id=MaxOperator;}"),
            ("uint64add", "nullptr"),
            ("stringappend", "{id=StringAppendTESTOperator;delimiter=,;}"),
            ("stringappend", "{id=StringAppendOperator;delimiter=|;}"),
            (
                "stringappend:delimiter=|",
                "{id=StringAppendOperator;delimiter=,;}",
            ),
        ] {
            for for_family in [false, true] {
                assert!(against(stated, options, for_family), "{stated} {options}");
            }
        }
        assert!(against("uint64add", "MyCounter", false));
        assert!(!against("uint64add", "MyCounter", true));
    }

    #[test]
    fn a_column_family_has_one_operator() {
        let stated = |text: &str| -> StatedOperator { text.parse().expect("an operator") };
        let all = ["max", "a=uint64add", "a=uint64add"].map(stated);
        let all = MergeOperators::of(&all).expect("one each");
        let name = |family: &str| all.get(family).map(ToString::to_string);
        assert_eq!(name("a").as_deref(), Some("uint64add"));
        assert_eq!(name("b").as_deref(), Some("max"));
        assert!(MergeOperators::of(&["a=max", "a=put"].map(stated)).is_err());
        assert!(MergeOperators::of(&["max", "put"].map(stated)).is_err());
        assert!(all.check(&["a".to_owned()]).is_ok());
        assert!(all.check(&["b".to_owned()]).is_err());
    }
}
