//! Limits of the requests to a worker, before they are decoded.

use crate::protobuf::{Fields, Value, count};

/// Maximum number of partitions that a request names.
const MAX_PARTITIONS: u64 = 1 << 16;

/// Paths of the requests. Others have no body.
pub const SET_PLAN: &str = "/worker.WorkerService/CoordinatorChannel";
pub const EXECUTE: &str = "/worker.WorkerService/ExecuteTask";

/// Refuses a message of a request that would take much more memory than it has bytes.
///
/// # Errors
/// A sentence that names the limit.
pub fn accept(path: &str, message: &[u8]) -> Result<(), String> {
    count(message)?;
    let partitions = match path {
        EXECUTE => executed(message)?,
        SET_PLAN => fed(message),
        _ => 0,
    };
    match partitions > MAX_PARTITIONS {
        true => Err(format!(
            "a request has more than {MAX_PARTITIONS} partitions"
        )),
        false => Ok(()),
    }
}

/// The fields with a number. The last one counts.
fn of<'a>(message: &'a [u8], number: u64) -> impl Iterator<Item = Value<'a>> {
    let fields = Fields(message).filter(move |(of, _)| *of == number);
    fields.map(|(_, value)| value)
}

fn integer(message: &[u8], number: u64) -> u64 {
    let integers = of(message, number).filter_map(|value| match value {
        Value::Integer(value) => Some(value),
        _ => None,
    });
    integers.last().unwrap_or(0)
}

fn messages(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    of(message, number).filter_map(|value| match value {
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    })
}

/// The largest number of partitions in a request for rows.
fn executed(message: &[u8]) -> Result<u64, String> {
    let (start, end) = (integer(message, 2), integer(message, 3));
    if start > end {
        return Err("a request's partitions end before they begin".to_owned());
    }
    // The heads are merged where there are several.
    let broadcast = messages(message, 7).map(|head| integer(head, 1));
    let partitionings = messages(message, 8).flat_map(|head| messages(head, 1));
    let repartition = partitionings.map(|partitioning| {
        let hashes = messages(partitioning, 2).map(|hash| integer(hash, 2));
        let counts = [integer(partitioning, 1), integer(partitioning, 3)];
        hashes.chain(counts).max().unwrap_or(0)
    });
    Ok(broadcast.chain(repartition).chain([end]).max().unwrap_or(0))
}

/// The number of partitions of all feeds of a plan.
fn fed(message: &[u8]) -> u64 {
    let feeds = messages(message, 1).flat_map(|plan| messages(plan, 4));
    let partitions = feeds.map(|feed| integer(feed, 2));
    partitions.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: [u8; 3] = [0x80, 0x80, 0x04];
    const MORE: [u8; 3] = [0x81, 0x80, 0x04];

    fn message(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    #[test]
    fn requests_of_many_partitions_are_refused() {
        for (count, is_accepted) in [(MOST, true), (MORE, false)] {
            let range = message(&[&[0x10, 1, 0x18], &count, &[0x32, 0]]);
            let broadcast = message(&[&[0x10, 0, 0x18, 1, 0x3a, 4, 0x08], &count]);
            let round_robin = message(&[&[0x18, 1, 0x42, 6, 0x0a, 4, 0x08], &count]);
            let hash = message(&[&[0x18, 1, 0x42, 8, 0x0a, 6, 0x12, 4, 0x10], &count]);
            for request in [range, broadcast, round_robin, hash] {
                assert_eq!(
                    accept(EXECUTE, &request).is_ok(),
                    is_accepted,
                    "{request:?}"
                );
            }
            let fed = message(&[&[0x0a, 6, 0x22, 4, 0x10], &count]);
            assert_eq!(accept(SET_PLAN, &fed).is_ok(), is_accepted);
        }
        let feeds = message(&[&[0x0a, 12, 0x22, 4, 0x10], &MOST, &[0x22, 4, 0x10], &MOST]);
        assert!(accept(SET_PLAN, &feeds).is_err());
        assert!(accept(EXECUTE, &[0x10, 2, 0x18, 1]).is_err());
        assert_eq!(accept(EXECUTE, &[]), Ok(()));
    }
}
