//! The CompactionService's two messages. A decoded message is encoded and decoded again, and must be the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rockmill_format::wire::{CompactionServiceInput, CompactionServiceResult};

fuzz_target!(|message: &[u8]| {
    if let Ok(input) = CompactionServiceInput::decode(message) {
        assert_eq!(CompactionServiceInput::decode(&input.encode()), Ok(input));
    }
    if let Ok(result) = CompactionServiceResult::decode(message) {
        assert_eq!(
            CompactionServiceResult::decode(&result.encode([0; 3])),
            Ok(result)
        );
    }
});
