//! What is wrong with a file, printed the way compilers do: place, rule, line, remedy.

use std::fmt;

use serde::Serialize;

/// Where something stands in a file. Lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Place {
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1, in characters.
    pub column: u32,
    /// Characters to underline.
    pub len: u32,
}

impl Place {
    pub(crate) const fn start() -> Self {
        Self {
            line: 1,
            column: 1,
            len: 0,
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Problem {
    /// Which rule is broken; stable, for scripts.
    pub rule: &'static str,
    /// The field, as `roles.decode.folds.0`; empty: the file.
    pub at: String,
    /// Where it stands; none until the file is known.
    pub place: Option<Place>,
    /// What is wrong, with the values.
    pub message: String,
    /// What to do.
    pub help: String,
}

impl Problem {
    /// A broken rule at a field.
    pub fn new(rule: &'static str, at: &str, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            rule,
            at: at.to_owned(),
            place: None,
            message: message.into(),
            help: help.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.at.is_empty() {
            write!(f, "{}: ", self.at)?;
        }
        write!(f, "{}: {}; {}", self.rule, self.message, self.help)
    }
}

/// Everything that is wrong with one file, in the order of its lines.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Problems {
    /// The file's name, as the user gave it.
    pub file: String,
    /// At least one.
    pub list: Vec<Problem>,
    #[serde(skip)]
    lines: Vec<String>,
}

impl std::error::Error for Problems {}

impl Problems {
    pub(crate) fn new(file: &str, text: &str, mut list: Vec<Problem>) -> Self {
        list.sort_by_key(|problem| problem.place);
        Self {
            file: file.to_owned(),
            list,
            lines: text.lines().map(str::to_owned).collect(),
        }
    }

    fn write_problem(&self, f: &mut fmt::Formatter<'_>, problem: &Problem) -> fmt::Result {
        let place = problem.place.unwrap_or(Place::start());
        writeln!(
            f,
            "{}:{}:{}: {}: {}",
            self.file, place.line, place.column, problem.rule, problem.message
        )?;
        self.write_snippet(f, place)?;
        writeln!(f, "  help: {}", problem.help)
    }

    /// The line with the place underlined.
    fn write_snippet(&self, f: &mut fmt::Formatter<'_>, place: Place) -> fmt::Result {
        let Some(line) = self.lines.get(place.line as usize - 1).filter(|line| !line.is_empty()) else {
            return Ok(());
        };
        let column = place.column as usize - 1;
        let room = line.chars().count().saturating_sub(column);
        // Tabs are shown as one column, so that the underline stands below what it means.
        let shown = line.replace('\t', " ");
        let marks = "^".repeat((place.len as usize).min(room).max(1));
        writeln!(f, "{:>5} | {shown}", place.line)?;
        writeln!(f, "      | {}{marks}", " ".repeat(column))
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.list {
            self.write_problem(f, problem)?;
        }
        let count = self.list.len();
        write!(
            f,
            "{count} problem{} in {}",
            if count == 1 { "" } else { "s" },
            self.file
        )
    }
}
