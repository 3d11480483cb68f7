//! The date for templates that print one. The time is an argument; days are those of UTC.

use std::fmt::Write;

const DAY_S: u64 = 86_400;
const WEEKDAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A moment, taken apart.
#[derive(Debug, PartialEq, Eq)]
struct Moment {
    year: u64,
    /// From 1.
    month: u64,
    /// From 1.
    day: u64,
    day_of_year: u64,
    /// Monday is 0.
    weekday: u64,
    second_of_day: u64,
}

/// `format` in the notation of C and Python, for `now_s` seconds after 1970. What it does not know it leaves as it is.
pub(super) fn strftime(format: &str, now_s: u64) -> String {
    let moment = Moment::new(now_s);
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(c) = characters.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        match characters.next() {
            // `%-d` is `%d` without the leading zero.
            Some('-') => match characters.next() {
                Some(field) => text.push_str(unpadded(&moment.field(field, now_s))),
                None => text.push_str("%-"),
            },
            Some(field) => text.push_str(&moment.field(field, now_s)),
            None => text.push('%'),
        }
    }
    text
}

fn unpadded(field: &str) -> &str {
    let trimmed = field.trim_start_matches(['0', ' ']);
    if trimmed.is_empty() { "0" } else { trimmed }
}

impl Moment {
    /// Counts days in years that begin in March, so that the leap day comes last.
    fn new(now_s: u64) -> Self {
        let days = now_s / DAY_S;
        let since_march_0 = days + 719_468;
        let era = since_march_0 / 146_097;
        let day_of_era = since_march_0 % 146_097;
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_march_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_march_year + 2) / 153;
        let month = if march_month < 10 {
            march_month + 3
        } else {
            march_month - 9
        };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        let day = day_of_march_year - (153 * march_month + 2) / 5 + 1;
        Self {
            year,
            month,
            day,
            day_of_year: days_before(year, month) + day,
            weekday: (days + 3) % 7,
            second_of_day: now_s % DAY_S,
        }
    }

    fn field(&self, field: char, now_s: u64) -> String {
        let (hour, minute, second) = (
            self.second_of_day / 3_600,
            self.second_of_day / 60 % 60,
            self.second_of_day % 60,
        );
        let weekday = WEEKDAYS[self.weekday as usize];
        let month = MONTHS[self.month as usize - 1];
        let half_day_hour = (hour + 11) % 12 + 1;
        let mut text = String::new();
        let written = match field {
            'Y' => write!(text, "{}", self.year),
            'y' => write!(text, "{:02}", self.year % 100),
            'm' => write!(text, "{:02}", self.month),
            'd' => write!(text, "{:02}", self.day),
            'e' => write!(text, "{:2}", self.day),
            'j' => write!(text, "{:03}", self.day_of_year),
            'B' => write!(text, "{month}"),
            'b' | 'h' => write!(text, "{}", &month[..3]),
            'A' => write!(text, "{weekday}"),
            'a' => write!(text, "{}", &weekday[..3]),
            'u' => write!(text, "{}", self.weekday + 1),
            'w' => write!(text, "{}", (self.weekday + 1) % 7),
            'H' => write!(text, "{hour:02}"),
            'I' => write!(text, "{half_day_hour:02}"),
            'M' => write!(text, "{minute:02}"),
            'S' => write!(text, "{second:02}"),
            'p' => write!(text, "{}", if hour < 12 { "AM" } else { "PM" }),
            'F' => write!(text, "{}-{:02}-{:02}", self.year, self.month, self.day),
            'D' => write!(text, "{:02}/{:02}/{:02}", self.month, self.day, self.year % 100),
            'T' => write!(text, "{hour:02}:{minute:02}:{second:02}"),
            'R' => write!(text, "{hour:02}:{minute:02}"),
            'Z' => write!(text, "UTC"),
            'z' => write!(text, "+0000"),
            's' => write!(text, "{now_s}"),
            '%' => write!(text, "%"),
            other => write!(text, "%{other}"),
        };
        written.expect("writing to a string cannot fail");
        text
    }
}

fn days_before(year: u64, month: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let lengths = [31, 28 + u64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    lengths[..month as usize - 1].iter().sum()
}

#[cfg(test)]
mod tests;
