//! Session ids and the unique ids of SST files (`table/unique_id.cc`).
//!
//! A session id is 20 characters of base 36; the first eight hold `a`, the last twelve hold `b`:
//!
//! ```text
//! a = upper << 2 | lower >> 62        b = low 62 bits of lower
//! ```

use crate::error::{Error, Result};
use twox_hash::XxHash3_128;

const BASE: u64 = 36;
const DIGITS: &[u8; BASE as usize] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

const A_LEN: usize = 8;
const B_LEN: usize = 12;
/// Bits of `lower` that `b` holds; 36^12 is slightly more than 2^62.
const B_BITS: u32 = 62;
const B_MASK: u64 = (1 << B_BITS) - 1;
/// Maximum length of a session id that is decoded.
const MAX_LEN: usize = 24;

/// A session id, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionId {
    /// The first half; [`SessionId::encode`] keeps its low 39 bits.
    pub upper: u64,
    /// The second half, which is part of unique ids unchanged and must not be 0 in new session ids.
    pub lower: u64,
}

impl SessionId {
    /// The 20 characters (`EncodeSessionId`). High bits of `upper` that do not fit into eight characters are lost.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = [0; A_LEN + B_LEN];
        put_base36(&mut text[..A_LEN], self.upper << 2 | self.lower >> B_BITS);
        put_base36(&mut text[A_LEN..], self.lower & B_MASK);
        text.iter().copied().map(char::from).collect()
    }

    /// Whether it is one of the texts that [`SessionId::encode`] returns.
    #[must_use]
    pub fn is_encoded(text: &str) -> bool {
        text.len() == A_LEN + B_LEN && text.bytes().all(|byte| DIGITS.contains(&byte))
    }

    /// Reads 13 to 24 base-36 characters of either case (`DecodeSessionId`).
    ///
    /// # Errors
    /// Unsupported for another length or a character that is not a digit.
    pub fn decode(text: &[u8]) -> Result<Self> {
        if !(B_LEN + 1..=MAX_LEN).contains(&text.len()) {
            let what = format!("session id of {} characters", text.len());
            return Err(Error::unsupported(0, what));
        }
        let split = text.len() - B_LEN;
        let a = parse_base36(&text[..split])?;
        let b = parse_base36(&text[split..]).map_err(|error| error.at(split as u64))?;
        Ok(Self {
            upper: a >> 2,
            lower: b & B_MASK | a << B_BITS,
        })
    }
}

fn put_base36(out: &mut [u8], mut value: u64) {
    for digit in out.iter_mut().rev() {
        *digit = DIGITS[(value % BASE) as usize];
        value /= BASE;
    }
}

fn parse_base36(text: &[u8]) -> Result<u64> {
    let mut value = 0u64;
    for (i, &byte) in text.iter().enumerate() {
        let digit = char::from(byte)
            .to_digit(BASE as u32)
            .ok_or_else(|| Error::unsupported(i, "bad digit in session id"))?;
        // Twelve digits cannot overflow 64 bits.
        value = value * BASE + u64::from(digit);
    }
    Ok(value)
}

/// The id of an SST file that the MANIFEST and the `CompactionService` result carry: a function of
/// three properties of the file (`GetSstInternalUniqueId` with `force`).
///
/// Total: a session id that cannot be decoded is hashed instead. RocksDB itself stores no unique id
/// at all (0, 0) if the session id cannot be decoded, `db_id` is empty or `file_number` is 0.
#[must_use]
pub fn internal_unique_id(db_id: &[u8], session_id: &[u8], file_number: u64) -> [u64; 2] {
    let session = SessionId::decode(session_id).unwrap_or_else(|_| {
        let hash = XxHash3_128::oneshot(session_id);
        let upper = high64(hash);
        let lower = if hash as u64 == 0 {
            upper | 1
        } else {
            hash as u64
        };
        SessionId { upper, lower }
    });
    let db = XxHash3_128::oneshot_with_seed(session.upper, db_id);
    [session.lower, high64(db) ^ file_number]
}

fn high64(hash: u128) -> u64 {
    (hash >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_real_file_has_the_id_that_rocksdb_gave_it() {
        let db_id = b"4739b641-bad4-408a-a1bd-acad4da6dfd8";
        let id = internal_unique_id(db_id, b"18OJWKH5LV2HXJGLETSX", 13);
        assert_eq!(id, [7_489_336_417_918_415_713, 925_742_247_596_623_101]);
    }

    #[test]
    fn the_extreme_session_ids_encode() {
        assert_eq!(
            SessionId { upper: 0, lower: 1 }.encode(),
            "00000000000000000001"
        );
        let most = SessionId {
            upper: 0,
            lower: u64::MAX,
        };
        assert_eq!(most.encode(), "00000003Z1CI99JJ7473");
    }

    #[test]
    fn lower_case_and_other_lengths_are_read() {
        let id = SessionId::decode(b"18OJWKH5LV2HXJGLETSX");
        assert_eq!(SessionId::decode(b"18ojwkh5lv2hxjgletsx"), id);
        assert_eq!(SessionId::decode(b"000018OJWKH5LV2HXJGLETSX"), id);
        assert!(SessionId::decode(b"1000000000000").is_ok());
    }

    #[test]
    fn malformed_session_ids_are_refused_and_still_give_an_id() {
        for text in [
            &b""[..],
            b"100000000000",
            b"0000000000000000000000000",
            b"18OJWKH5-V2HXJGLETSX",
        ] {
            assert!(SessionId::decode(text).is_err());
            assert_ne!(internal_unique_id(b"db", text, 1)[0], 0);
        }
        assert_eq!(
            SessionId::decode(b"18OJWKH5LV2HXJGLET*X")
                .unwrap_err()
                .offset,
            18
        );
    }

    proptest! {
        #[test]
        fn session_ids_round_trip(upper in 0u64..1 << 39, lower: u64) {
            let id = SessionId { upper, lower };
            prop_assert_eq!(id.encode().len(), 20);
            prop_assert_eq!(SessionId::decode(id.encode().as_bytes())?, id);
        }

        #[test]
        fn ids_of_one_session_differ_by_file_number(
            db_id: Vec<u8>, session_id: Vec<u8>, a: u64, b: u64,
        ) {
            let first = internal_unique_id(&db_id, &session_id, a);
            let second = internal_unique_id(&db_id, &session_id, b);
            prop_assert_eq!(first == second, a == b);
        }

        #[test]
        fn decoding_is_total(text in "[0-9A-Za-z*]{0,30}") {
            let _ = SessionId::decode(text.as_bytes());
        }
    }
}
