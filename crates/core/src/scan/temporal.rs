//! Dates as MySQL stores them.

use serde::{Deserialize, Serialize};

/// How an integer stands for a date, and what is counted of it. A date that does not exist is null, such as MySQL's
/// `0000-00-00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Calendar {
    /// From the lowest bit: 5 of the day, 4 of the month, and the year. Days since 1970-01-01.
    Day,
    /// From the lowest bit: 6 of the second, 6 of the minute, 5 of the hour, 5 of the day, and 13 times the year plus the
    /// month. Seconds since 1970-01-01.
    Second,
}

impl Calendar {
    /// What is counted; `None` if there is no such date.
    pub fn count(self, integer: i128) -> Option<i64> {
        const DAY_SECONDS: i64 = 24 * 60 * 60;
        /// Of integers of 3 bytes, and of 5.
        const BITS: [u32; 2] = [24, 40];
        let integer = i64::try_from(integer).ok().filter(|of| *of >= 0)?;
        match self {
            Self::Day => (integer >> BITS[0] == 0)
                .then(|| days(integer >> 9, integer >> 5 & 15, integer & 31))?,
            Self::Second => {
                let (hour, minute, second) = (integer >> 12 & 31, integer >> 6 & 63, integer & 63);
                let is_time = hour < 24 && minute < 60 && second < 60;
                if integer >> BITS[1] != 0 || !is_time {
                    return None;
                }
                let months = integer >> 22;
                let days = days(months / 13, months % 13, integer >> 17 & 31)?;
                Some(days * DAY_SECONDS + hour * 3600 + minute * 60 + second)
            }
        }
    }
}

/// Days since 1970-01-01, in the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    /// Days in 400 years, and from 0000-03-01 to 1970-01-01.
    const CYCLE: i64 = 146_097;
    const BEFORE_1970: i64 = 719_468;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    // Years begin in March, so that the day that not all have is their last.
    let (year, month) = (year + 400 - i64::from(month < 3), (month + 9) % 12);
    let years = 365 * year + year / 4 - year / 100 + year / 400;
    Some(years + (153 * month + 2) / 5 + day - 1 - BEFORE_1970 - CYCLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(year: i128, month: i128, day: i128) -> Option<i64> {
        Calendar::Day.count(year << 9 | month << 5 | day)
    }

    #[test]
    fn each_day_follows_the_one_before() {
        assert_eq!(day(1970, 1, 1), Some(0));
        assert_eq!(day(9999, 12, 31), Some(2_932_896));
        let mut next = day(0, 1, 1).expect("it exists");
        assert_eq!(next, -719_528);
        for year in 0..3000 {
            for month in 1..=12 {
                for found in (1..=31).filter_map(|of| day(year, month, of)) {
                    assert_eq!(found, next, "{year}-{month}");
                    next += 1;
                }
            }
        }
    }

    #[test]
    fn dates_that_do_not_exist_are_none() {
        for (year, month, of) in [(0, 0, 0), (2023, 2, 29), (2024, 13, 1), (2024, 4, 31)] {
            assert_eq!(day(year, month, of), None, "{year}-{month}-{of}");
        }
        assert_eq!(Calendar::Day.count(-1), None);
        assert_eq!(Calendar::Day.count(1 << 24 | 1 << 5 | 1), None);
    }

    #[test]
    fn times_are_counted_in_seconds() {
        let time = |months: i128, day: i128, time: i128| {
            Calendar::Second.count(months << 22 | day << 17 | time)
        };
        assert_eq!(time(1970 * 13 + 1, 2, 3 << 12 | 4 << 6 | 5), Some(97_445));
        assert_eq!(time(1970 * 13 + 1, 2, 24 << 12), None);
        assert_eq!(time(1970 * 13 + 1, 2, 60), None);
        assert_eq!(time(0, 0, 0), None);
    }
}
