//! A recorded job. A job that can be read is written and read again, and must be the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rockmill_core::Job;

fuzz_target!(|text: &[u8]| {
    if let Ok(job) = serde_json::from_slice::<Job>(text) {
        let again = serde_json::to_vec(&job).expect("serialises");
        assert_eq!(serde_json::from_slice::<Job>(&again).expect("parses"), job);
    }
});
