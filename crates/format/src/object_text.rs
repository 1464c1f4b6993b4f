//! The text of an object in the OPTIONS file: `ID`, or `{id=ID;option=value;}`
//! (`options/customizable.cc:Customizable::GetOptionsMap`).

use crate::error::{Error, Result};

/// An object's id and its options, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectText<'a> {
    pub(crate) id: &'a str,
    pub(crate) options: Vec<(&'a str, &'a str)>,
}

impl<'a> ObjectText<'a> {
    /// Splits the text; `None` if there is no object (`nullptr` or nothing).
    pub(crate) fn parse(text: &'a str) -> Result<Option<Self>> {
        let text = text.trim();
        let inner = match text.strip_prefix('{') {
            Some(rest) => rest.strip_suffix('}').ok_or_else(|| {
                Error::corruption(text.len(), "object text without its closing brace")
            })?,
            None => text,
        };
        if inner.is_empty() || inner == "nullptr" {
            return Ok(None);
        }
        if inner.contains(['{', '}']) {
            return Err(Error::unsupported(0, format!("nested object {text:?}")));
        }
        if !inner.contains('=') {
            let id = inner;
            let options = Vec::new();
            return Ok(Some(Self { id, options }));
        }
        Self::parse_struct(inner).map(Some)
    }

    fn parse_struct(inner: &'a str) -> Result<Self> {
        let mut id = "";
        let mut options = Vec::new();
        for part in inner.split(';').map(str::trim) {
            if part.is_empty() {
                continue;
            }
            match part.split_once('=') {
                Some(("id", value)) => id = value.trim(),
                Some((name, value)) => options.push((name.trim(), value.trim())),
                None => return Err(Error::corruption(0, format!("{part:?} is not an option"))),
            }
        }
        if id.is_empty() {
            return Err(Error::unsupported(
                0,
                format!("object without an id: {inner:?}"),
            ));
        }
        Ok(Self { id, options })
    }

    /// An error that quotes the id.
    pub(crate) fn unsupported(&self, what: &str) -> Error {
        Error::unsupported(0, format!("{what} {:?}", self.id))
    }
}
