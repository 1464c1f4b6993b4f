//! Character sets and collations.

use sqlparser::ast::{ColumnDef, ColumnOption, CreateTable, CreateTableOptions, Ident, SqlOption};

use super::refused;

/// How the characters of a column are stored.
pub(super) struct Charset {
    name: String,
    /// Maximum bytes of a character.
    pub(super) bytes: u32,
    pub(super) collation: String,
}

impl Charset {
    pub(super) fn is_latin1(&self) -> bool {
        self.name == "latin1"
    }
}

/// The names of a column's character set and collation, as far as column and table name them.
pub(super) fn charset_and_collation(
    column: &ColumnDef,
    table: &CreateTable,
) -> (Option<String>, Option<String>) {
    let of_column = |collates: bool| {
        let mut options = column.options.iter();
        options.find_map(|of| match &of.option {
            ColumnOption::CharacterSet(name) if !collates => Some(name.to_string()),
            ColumnOption::Collation(name) if collates => Some(name.to_string()),
            _ => None,
        })
    };
    let of_table = |ends_with: &[&str]| {
        let CreateTableOptions::Plain(options) = &table.table_options else {
            return None;
        };
        options.iter().find_map(|option| match option {
            SqlOption::KeyValue { key, value } => {
                let key: &Ident = key;
                let key = key.value.to_ascii_uppercase();
                let is_named = ends_with.iter().any(|end| key.ends_with(end));
                is_named.then(|| value.to_string())
            }
            _ => None,
        })
    };
    let (name, collation) = match (of_column(false), of_column(true)) {
        (None, None) => (
            of_table(&["CHARSET", "CHARACTER SET"]),
            of_table(&["COLLATE"]),
        ),
        of_column => of_column,
    };
    let clean = |text: String| {
        let text = text.to_ascii_lowercase();
        let text = text.trim_matches(['\'', '"', '`']).to_owned();
        // MariaDB's and MySQL's names for the same.
        match text
            .strip_prefix("utf8")
            .filter(|rest| !rest.starts_with("mb"))
        {
            Some(rest) => format!("utf8mb3{rest}"),
            None => text,
        }
    };
    (name.map(clean), collation.map(clean))
}

/// The name of a character set, or of that of a collation.
pub(super) fn charset_name(name: Option<String>, collation: Option<&str>) -> Option<String> {
    name.or_else(|| collation?.split('_').next().map(str::to_owned))
}

/// Maximum bytes of a character of a character set, and whether scans can read its text; `None` if the character set is
/// not known.
pub(super) fn character_bytes(charset: &str) -> Option<(u32, bool)> {
    Some(match charset {
        "latin1" | "ascii" => (1, true),
        "utf8mb3" => (3, true),
        "utf8mb4" => (4, true),
        "armscii8" | "cp1250" | "cp1251" | "cp1256" | "cp1257" | "cp850" | "cp852" | "cp866"
        | "dec8" | "geostd8" | "greek" | "hebrew" | "hp8" | "keybcs2" | "koi8r" | "koi8u"
        | "latin2" | "latin5" | "latin7" | "macce" | "macroman" | "swe7" | "tis620" => (1, false),
        "big5" | "cp932" | "euckr" | "gb2312" | "gbk" | "sjis" | "ucs2" => (2, false),
        "eucjpms" | "ujis" => (3, false),
        "utf16" | "utf16le" | "utf32" => (4, false),
        _ => return None,
    })
}

/// The character set of a column of text.
pub(super) fn charset(column: &ColumnDef, table: &CreateTable) -> Result<Charset, String> {
    let (name, collation) = charset_and_collation(column, table);
    let Some(name) = charset_name(name, collation.as_deref()) else {
        let what = "and neither the column nor the table names a character set";
        return Err(refused(column, &what));
    };
    let Some((bytes, true)) = character_bytes(&name) else {
        let what = format!("with the character set {name}, which is not supported");
        return Err(refused(column, &what));
    };
    let default = match name.as_str() {
        "latin1" => "latin1_swedish_ci".to_owned(),
        name => format!("{name}_general_ci"),
    };
    let collation = collation.unwrap_or(default);
    Ok(Charset {
        name,
        bytes,
        collation,
    })
}
