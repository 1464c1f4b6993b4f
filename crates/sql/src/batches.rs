//! Batches in plans.

use datafusion::arrow::ipc::root_as_message;

/// Refuses batches that are shorter than they say.
///
/// # Errors
/// A sentence.
pub fn check_batches(bytes: &[u8]) -> Result<(), String> {
    match lacks_announced_bytes(bytes) {
        true => Err("batches are shorter than they say".to_owned()),
        false => Ok(()),
    }
}

/// Whether bytes are messages of Arrow's streaming format, one of which has fewer bytes than it says. Arrow's reader makes
/// room for all of them before it reads.
fn lacks_announced_bytes(mut stream: &[u8]) -> bool {
    const CONTINUES: [u8; 4] = [u8::MAX; 4];
    loop {
        let mut length = stream.split_first_chunk();
        if let Some((&CONTINUES, rest)) = length {
            length = rest.split_first_chunk();
        }
        let message = length.and_then(|(length, rest)| {
            let length = usize::try_from(i32::from_le_bytes(*length)).ok()?;
            let (message, rest) = rest.split_at_checked(length)?;
            Some((root_as_message(message).ok()?, rest))
        });
        let Some((message, rest)) = message else {
            return false;
        };
        let body = usize::try_from(message.bodyLength());
        match body.ok().and_then(|body| rest.split_at_checked(body)) {
            Some((_, rest)) => stream = rest,
            None => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Int64Array, RecordBatch};
    use datafusion::arrow::ipc::writer::StreamWriter;

    use super::*;

    #[test]
    fn batches_that_are_shorter_than_they_say_are_refused() {
        let numbers = Arc::new(Int64Array::from_iter_values(0..100));
        let batch = RecordBatch::try_from_iter([("n", numbers as _)]).expect("a batch");
        let mut stream = Vec::new();
        let mut writer = StreamWriter::try_new(&mut stream, &batch.schema()).expect("a writer");
        writer.write(&batch).expect("written");
        writer.finish().expect("finished");
        assert!(check_batches(&stream).is_ok());
        for text in [&b""[..], b"text", &[u8::MAX; 20]] {
            assert!(check_batches(text).is_ok());
        }
        stream.truncate(stream.len() - 100);
        assert!(check_batches(&stream).is_err());
    }
}
