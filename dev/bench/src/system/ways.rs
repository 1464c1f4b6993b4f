//! The systems of an experiment.

use std::collections::BTreeMap;

use rockmill_side_by_side::system::System;
use rockmill_terminal::outcome::Failure;

use super::args::SystemArgs;
use super::cell::Cell;
use crate::devices;

/// Returns RocksDB, if it takes part, then each device once.
///
/// # Errors
/// Usage if a name is not a device.
pub fn systems(args: &SystemArgs) -> Result<Vec<System>, Failure> {
    let mut systems = Vec::new();
    if args.rocksdb {
        systems.push(System::Rocksdb);
    }
    for name in &args.device {
        let system = System::Rockmill(devices::parse(name)?);
        if !systems.contains(&system) {
            systems.push(system);
        }
    }
    Ok(systems)
}

/// Checks that each cell has its own result file: names of profiles may differ only in signs.
///
/// # Errors
/// Usage if two cells would share one.
pub fn check_names(cells: &[Cell]) -> Result<(), Failure> {
    let mut named = BTreeMap::new();
    for cell in cells {
        if let Some(other) = named.insert(cell.file_stem(), cell) {
            let (one, other) = (other.series(), cell.series());
            let what = format!("{one} and {other} would share a result file; rename a profile");
            return Err(Failure::Usage(what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rockmill_testkit::UnitProfile;

    use super::*;
    use crate::system::args::Experiment;
    use crate::system::tests::args;

    #[test]
    fn a_profile_is_known_by_what_it_says_and_by_its_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let device = |name: &str, units: u32| {
            let mut profile = UnitProfile::find("fpga-cu").expect("it ships");
            profile.units = units;
            let path = dir.path().join(name);
            let text = serde_json::to_string(&profile).expect("plain numbers");
            std::fs::write(&path, text).expect("write");
            format!("sim:{}", path.display())
        };
        let cells = |devices: &str| Experiment::Scaling.cells(&args(&["--device", devices]));
        let settings = |units| {
            let cells = cells(&device("board.json", units)).expect("cells");
            serde_json::to_value(&cells[1]).expect("JSON")
        };
        assert_eq!(settings(2), settings(2));
        assert_ne!(settings(2), settings(3));
        let alike = format!("{},{}", device("a-b.json", 2), device("a_b.json", 3));
        let error = cells(&alike).expect_err("one file");
        assert!(matches!(error, Failure::Usage(what) if what.contains("a_b.json would share")));
    }
}
