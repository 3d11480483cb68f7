//! What a person sees while a file is on its way: a bar on a terminal, plain lines elsewhere, or nothing.

use std::{
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
};

use indicatif::{ProgressBar, ProgressStyle};

/// Follows the steps of a fetch. A step is started, moves, and ends.
pub trait Progress: Send + Sync {
    /// A step begins, such as `downloading model.gguf`. `total` is in bytes, if known.
    fn start(&self, step: &str, total: Option<u64>);
    /// The step has reached `bytes`.
    fn position(&self, bytes: u64);
    /// The step ended, well or badly.
    fn finish(&self);
    /// Something worth a line: a source that failed, a wait for another process.
    fn note(&self, line: &str);
}

/// Says nothing.
#[derive(Clone, Copy, Default, Debug)]
pub struct Silent;

impl Progress for Silent {
    fn start(&self, _step: &str, _total: Option<u64>) {}
    fn position(&self, _bytes: u64) {}
    fn finish(&self) {}
    fn note(&self, _line: &str) {}
}

/// A moving bar with bytes, speed and time left, on the terminal behind standard error.
#[derive(Debug)]
pub struct Bar {
    current: Mutex<ProgressBar>,
}

impl Default for Bar {
    fn default() -> Self {
        Self {
            current: Mutex::new(ProgressBar::hidden()),
        }
    }
}

impl Bar {
    fn current(&self) -> MutexGuard<'_, ProgressBar> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const WITH_TOTAL: &str = "{msg} [{bar:24}] {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";
const WITHOUT_TOTAL: &str = "{msg} {bytes} {bytes_per_sec} {spinner}";

impl Progress for Bar {
    fn start(&self, step: &str, total: Option<u64>) {
        let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        let template = if total.is_some() { WITH_TOTAL } else { WITHOUT_TOTAL };
        let style = ProgressStyle::with_template(template).expect("the templates above are well formed");
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(step.to_owned());
        *self.current() = bar;
    }

    fn position(&self, bytes: u64) {
        self.current().set_position(bytes);
    }

    fn finish(&self) {
        self.current().abandon();
    }

    fn note(&self, line: &str) {
        self.current().suspend(|| {
            // A terminal that cannot be written to is no reason to stop fetching.
            let _ = writeln!(io::stderr(), "{line}");
        });
    }
}

/// A line at the start, at every tenth (or every 16 MiB when the length is unknown) and at the end of a step.
pub struct Lines<W> {
    state: Mutex<LineState<W>>,
}

struct LineState<W> {
    out: W,
    step: String,
    total: Option<u64>,
    bytes: u64,
    lines: u64,
    last_line: String,
}

impl<W: Write> Lines<W> {
    /// Lines written to `out`.
    pub fn new(out: W) -> Self {
        Self {
            state: Mutex::new(LineState {
                out,
                step: String::new(),
                total: None,
                bytes: 0,
                lines: 0,
                last_line: String::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, LineState<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Write> LineState<W> {
    /// A log that cannot be written is no reason to stop fetching.
    fn print(&mut self, line: &str) {
        let _ = writeln!(self.out, "{line}");
    }

    /// Where the step stands, unless that was the last line.
    fn print_status(&mut self) {
        let line = self.status();
        if line != self.last_line {
            self.print(&line);
            self.last_line = line;
        }
    }

    /// How many lines are due at the present position.
    fn lines_due(&self) -> u64 {
        match self.total {
            Some(total) => self.bytes.saturating_mul(10).checked_div(total).unwrap_or(0).min(9),
            None => self.bytes / (16 << 20),
        }
    }

    fn status(&self) -> String {
        match self.total {
            Some(total) => format!("{}: {} of {}", self.step, human_bytes(self.bytes), human_bytes(total)),
            None => format!("{}: {}", self.step, human_bytes(self.bytes)),
        }
    }
}

impl<W: Write + Send> Progress for Lines<W> {
    fn start(&self, step: &str, total: Option<u64>) {
        let mut state = self.state();
        (state.step, state.total, state.bytes, state.lines) = (step.to_owned(), total, 0, 0);
        match total {
            Some(total) => state.print(&format!("{step} ({})", human_bytes(total))),
            None => state.print(step),
        }
    }

    fn position(&self, bytes: u64) {
        let mut state = self.state();
        state.bytes = bytes;
        if state.lines_due() > state.lines {
            state.lines = state.lines_due();
            state.print_status();
        }
    }

    fn finish(&self) {
        self.state().print_status();
    }

    fn note(&self, line: &str) {
        self.state().print(line);
    }
}

/// A length for people: `93.8 MiB`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests;
