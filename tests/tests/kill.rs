//! A process that is killed with SIGKILL while Rockmill compacts its database loses nothing, tears no batch,
//! and leaves nothing that the next one does not remove.
//!
//! ```text
//! ROCKMILL_SEED=N ROCKMILL_CASES=200 ROCKMILL_JSON=FILE \
//!     cargo test --release -p rockmill-tests --test kill -- --nocapture
//! ```
//!
//! kills so many processes and writes what they came to; see [`rockmill_tests::crash`].

use std::path::Path;

use rockmill_tests::crash::kill;
use rockmill_tests::crash::watch::Point;
use rockmill_tests::seed;

const DEFAULT_KILLS: u64 = 15;
/// So many kills come at every moment.
const ENOUGH_KILLS: u64 = 100;

#[test]
fn a_killed_process_loses_nothing() {
    let (seed, kills) = (seed::first_seed(), seed::cases(DEFAULT_KILLS));
    println!("ROCKMILL_SEED={seed} ROCKMILL_CASES={kills}");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = Path::new(env!("CARGO_BIN_EXE_crash-writer"));
    let summary = match kill::run(program, directory.path(), seed, kills) {
        Ok(summary) => summary,
        Err(error) => panic!("{error}\nkept in {}", directory.keep().display()),
    };
    println!("{summary}");
    if let Some(path) = std::env::var_os("ROCKMILL_JSON") {
        let json = serde_json::to_string_pretty(&summary).expect("a plain value");
        std::fs::write(path, json + "\n").expect("the file can be written");
    }
    assert_eq!(summary.databases_verified, kills);
    assert!(summary.jobs_done > 0 && summary.batches_acknowledged > 0);
    if kills >= ENOUGH_KILLS {
        let moments = &summary.moments;
        let hit = [
            moments.job_running,
            moments.files_staged,
            moments.installing,
        ];
        assert!(hit.iter().all(|&kills| kills > 0), "{summary}");
        let missed = Point::all().find(|point| !summary.after_step.contains_key(point));
        assert_eq!(missed, None, "{summary}");
    }
}
