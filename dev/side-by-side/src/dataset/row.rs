//! A row as key and value.

use std::fmt::{Display, Write};

/// Bytes of the row under construction. Each method adds a column; the names are those of `docs/guide/sql.md`.
#[derive(Debug, Default, Clone)]
pub struct Row {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    text: String,
}

impl Row {
    /// Begins a new row.
    pub fn clear(&mut self) -> &mut Self {
        self.key.clear();
        self.value.clear();
        self
    }

    /// `ordered(i64)` in the key.
    pub fn key64(&mut self, number: i64) -> &mut Self {
        let inverted = number ^ i64::MIN;
        self.key.extend(inverted.to_be_bytes());
        self
    }

    /// `ordered(i32)` in the key.
    pub fn key32(&mut self, number: i32) -> &mut Self {
        let inverted = number ^ i32::MIN;
        self.key.extend(inverted.to_be_bytes());
        self
    }

    /// `i64le`.
    pub fn i64(&mut self, number: i64) -> &mut Self {
        self.value.extend(number.to_le_bytes());
        self
    }

    /// `i32le`.
    pub fn i32(&mut self, number: i32) -> &mut Self {
        self.value.extend(number.to_le_bytes());
        self
    }

    /// `bytes(n)`.
    pub fn bytes(&mut self, text: &str) -> &mut Self {
        self.value.extend(text.as_bytes());
        self
    }

    /// `varint`.
    pub fn text(&mut self, text: impl Display) -> &mut Self {
        self.text.clear();
        write!(self.text, "{text}").expect("a string takes everything");
        let mut length = self.text.len();
        while length >= 0x80 {
            self.value.push(length as u8 | 0x80);
            length >>= 7;
        }
        self.value.push(length as u8);
        self.value.extend(self.text.as_bytes());
        self
    }
}
