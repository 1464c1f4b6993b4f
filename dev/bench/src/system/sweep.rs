//! All measurements of an experiment, existing and missing.

use std::path::Path;
use std::time::{Duration, Instant};

use rockmill_side_by_side::progress;
use rockmill_terminal::outcome::Failure;

use super::args::SystemArgs;
use super::cell::{Cell, Outcome};
use super::child;
use super::database_folder::DatabaseFolder;
use super::folder::Folder;
use super::repeated::Measured;

/// An experiment's cells, each with an entry for every planned measurement.
#[derive(Debug)]
pub struct Sweep<'a> {
    folder: &'a Folder,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    cell: Cell,
    /// Results by number of the measurement.
    outcomes: Vec<Option<Outcome>>,
    /// Reason why it is not measured, or not once more.
    lacks_room: Option<String>,
}

impl<'a> Sweep<'a> {
    /// Loads the results of earlier calls for `cells`, each measured `repeat` times.
    ///
    /// # Errors
    /// The errors of [`Folder::load`].
    pub fn load(folder: &'a Folder, cells: Vec<Cell>, repeat: u32) -> Result<Self, Failure> {
        let entry = |cell: Cell| {
            let outcomes = (0..repeat).map(|time| folder.load(&cell, time));
            Ok(Entry {
                outcomes: outcomes.collect::<Result<_, Failure>>()?,
                cell,
                lacks_room: None,
            })
        };
        let entries = cells.into_iter().map(entry);
        Ok(Self {
            folder,
            entries: entries.collect::<Result<_, Failure>>()?,
        })
    }

    /// Makes the missing measurements while there is time, and at least one.
    ///
    /// # Errors
    /// The error of a failed measurement; earlier results are kept.
    pub fn measure(&mut self, args: &SystemArgs, dir: &Path) -> Result<(), Failure> {
        if !self.check()? {
            return Ok(());
        }
        let began = Instant::now();
        let stop_after = args.stop_after.map(Duration::from_secs);
        let mut databases = DatabaseFolder::clear(dir, &args.out)?;
        let turns = turns(&self.entries);
        for (number, &(entry, time)) in turns.iter().enumerate() {
            let entry = &mut self.entries[entry];
            if entry.outcomes[time].is_some() || entry.lacks_room.is_some() {
                continue;
            }
            entry.lacks_room = databases.lacks_room(&entry.cell)?;
            if entry.lacks_room.is_some() {
                continue;
            }
            let (of, name) = (turns.len(), entry.cell.file_stem());
            let cell = &entry.cell;
            let spinner = progress::spinner(format!("{} of {of}: {name}", number + 1));
            let measured = databases.with(cell, |dir| child::measure(cell, dir));
            spinner.finish_and_clear();
            let measured = measured?;
            self.folder.store(cell, time as u32, &measured)?;
            entry.outcomes[time] = Some(measured);
            if stop_after.is_some_and(|limit| began.elapsed() >= limit) {
                break;
            }
        }
        Ok(())
    }

    /// Checks that the missing cells can be measured here; returns false if none is missing.
    fn check(&self) -> Result<bool, Failure> {
        let mut checked = Vec::new();
        for Entry { cell, outcomes, .. } in &self.entries {
            if outcomes.iter().any(Option::is_none) && !checked.contains(&cell.system) {
                child::check(cell)?;
                checked.push(cell.system);
            }
        }
        Ok(!checked.is_empty())
    }

    /// Returns the number of existing measurements and of all planned ones.
    pub fn progress(&self) -> (usize, usize) {
        let done = |entry: &Entry| entry.outcomes.iter().flatten().count();
        let all = |entry: &Entry| match entry.lacks_room {
            Some(_) => done(entry),
            None => entry.outcomes.len(),
        };
        let entries = self.entries.iter();
        (entries.clone().map(done).sum(), entries.map(all).sum())
    }

    /// Returns the measured cells, and why others were not measured, or not often enough.
    pub fn end(self) -> (Vec<Measured>, Vec<String>) {
        let (mut measured, mut left_out) = (Vec::new(), Vec::new());
        for entry in self.entries {
            let outcomes: Vec<_> = entry.outcomes.into_iter().flatten().collect();
            if let Some(why) = entry.lacks_room {
                let name = entry.cell.file_stem();
                left_out.push(match outcomes.len() {
                    0 => format!("{name}: {why}"),
                    times => format!("{name}, more often than {times} times: {why}"),
                });
            }
            if !outcomes.is_empty() {
                let cell = entry.cell;
                measured.push(Measured { cell, outcomes });
            }
        }
        (measured, left_out)
    }
}

/// Returns the order of measurements, as positions of entries with the number of the measurement. The cells of a point
/// are measured one after another, then again. So changes of the host over hours affect all systems equally.
fn turns(entries: &[Entry]) -> Vec<(usize, usize)> {
    let mut turns = Vec::new();
    let mut first = 0;
    for point in entries.chunk_by(|a, b| a.cell.point == b.cell.point) {
        let times = point.first().map_or(0, |entry| entry.outcomes.len());
        for time in 0..times {
            turns.extend((first..first + point.len()).map(|entry| (entry, time)));
        }
        first += point.len();
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::args::Experiment;
    use crate::system::tests::args;

    #[test]
    fn all_ways_of_a_point_have_a_turn_before_one_has_its_next() {
        let args = args(&["--updates", "10,90"]);
        let cells = Experiment::UpdateRatio.cells(&args).expect("cells");
        let entry = |cell: &Cell| Entry {
            cell: cell.clone(),
            outcomes: vec![None, None, None],
            lacks_room: None,
        };
        let entries: Vec<_> = cells.iter().take(4).map(entry).collect();
        let once = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)];
        let next = once.map(|(entry, time)| (entry + 2, time));
        assert_eq!(turns(&entries), [once, next].concat());
    }
}
