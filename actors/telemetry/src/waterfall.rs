//! A trace as text for a terminal: one line per span, indented by parentage, with a bar where it lies in time.
//!
//! ```text
//! gateway.request       │██████████████│  14.00 ms
//! ├ tokenizer.encode    │█             │   0.90 ms  tokenizer.0  gen_ai.usage.input_tokens=31
//! └ decode.run          │  ████████████│  11.80 ms  decode.0
//!     · first_token +3.10 ms
//! ```

use std::fmt::Write as _;

use crate::{SpanRecord, names::attributes};

const BAR_MIN: usize = 10;
const BAR_MAX: usize = 60;
/// Said by the heading or by a column of its own.
const ELSEWHERE: [&str; 2] = [attributes::REQUEST_ID, attributes::INSTANCE];

/// The spans of one request, drawn in lines of at most `width` characters.
pub fn waterfall(spans: &[SpanRecord], width: usize) -> String {
    let (Some(start), Some(end)) = (
        spans.iter().map(|span| span.start_unix_us).min(),
        spans.iter().map(|span| span.end_unix_us).max(),
    ) else {
        return String::new();
    };
    let rows = Tree { spans }.rows();
    let columns = Columns {
        start_us: start,
        length_us: (end - start).max(1),
        label: longest(rows.iter().map(Row::label)),
        bar: (width / 3).clamp(BAR_MIN, BAR_MAX),
        instance: longest(spans.iter().map(|span| span.instance().unwrap_or_default().to_owned())),
    };
    let mut text = String::new();
    for row in &rows {
        push_line(&mut text, &columns.span_line(row), width);
        for line in columns.event_lines(row) {
            push_line(&mut text, &line, width);
        }
    }
    text
}

/// A span and where it stands in the tree.
struct Row<'a> {
    span: &'a SpanRecord,
    /// The lines drawn before its name.
    branch: String,
    /// The lines drawn before what hangs below it.
    below: String,
}

impl Row<'_> {
    fn label(&self) -> String {
        format!("{}{}", self.branch, self.span.name)
    }
}

struct Tree<'a> {
    spans: &'a [SpanRecord],
}

impl<'a> Tree<'a> {
    /// Parents before children, siblings by start. A span whose parent is not among them stands at the top.
    fn rows(&self) -> Vec<Row<'a>> {
        let mut rows = Vec::with_capacity(self.spans.len());
        let is_known = |id: &String| self.spans.iter().any(|span| span.span_id == *id);
        for root in self.sorted(|span| !span.parent_id.as_ref().is_some_and(is_known)) {
            rows.push(Row {
                span: root,
                branch: String::new(),
                below: String::new(),
            });
            self.push_children(root, "", &mut rows);
        }
        rows
    }

    fn push_children(&self, parent: &SpanRecord, indent: &str, rows: &mut Vec<Row<'a>>) {
        let children = self.sorted(|span| span.parent_id.as_ref() == Some(&parent.span_id));
        let last = children.len();
        for (number, child) in children.into_iter().enumerate() {
            let (branch, below) = if number + 1 == last {
                ("└ ", "  ")
            } else {
                ("├ ", "│ ")
            };
            let below = format!("{indent}{below}");
            rows.push(Row {
                span: child,
                branch: format!("{indent}{branch}"),
                below: below.clone(),
            });
            self.push_children(child, &below, rows);
        }
    }

    fn sorted(&self, wanted: impl Fn(&SpanRecord) -> bool) -> Vec<&'a SpanRecord> {
        let mut spans: Vec<_> = self.spans.iter().filter(|span| wanted(span)).collect();
        spans.sort_by_key(|span| (span.start_unix_us, &span.span_id));
        spans
    }
}

struct Columns {
    start_us: u64,
    length_us: u64,
    label: usize,
    bar: usize,
    instance: usize,
}

impl Columns {
    fn span_line(&self, row: &Row<'_>) -> String {
        let span = row.span;
        format!(
            "{label:<label_width$} │{bar}│{ms:>9} ms  {instance:<instance_width$}{notes}",
            label = row.label(),
            label_width = self.label,
            bar = self.bar_of(span),
            ms = milliseconds(span.duration_us()),
            instance = span.instance().unwrap_or_default(),
            instance_width = self.instance,
            notes = notes(span),
        )
    }

    fn event_lines(&self, row: &Row<'_>) -> Vec<String> {
        let events = row.span.events.iter();
        events
            .map(|event| {
                let after = milliseconds(event.unix_us.saturating_sub(row.span.start_unix_us));
                let mut line = format!("{}  · {} +{after} ms", row.below, event.name);
                for (key, value) in &event.attributes {
                    let _ = write!(line, "  {key}={value}");
                }
                line
            })
            .collect()
    }

    /// At least one cell, so that nothing is invisible.
    fn bar_of(&self, span: &SpanRecord) -> String {
        let cell = |unix_us: u64| (unix_us - self.start_us) as usize * self.bar / self.length_us as usize;
        let first = cell(span.start_unix_us).min(self.bar - 1);
        let end = cell(span.end_unix_us.max(span.start_unix_us)).clamp(first + 1, self.bar);
        format!(
            "{}{}{}",
            " ".repeat(first),
            "█".repeat(end - first),
            " ".repeat(self.bar - end)
        )
    }
}

fn notes(span: &SpanRecord) -> String {
    let mut notes = String::new();
    if let Some(error) = &span.error {
        let _ = write!(notes, "  ✗ {error}");
    }
    for (key, value) in &span.attributes {
        if !ELSEWHERE.contains(&key.as_str()) {
            let _ = write!(notes, "  {key}={value}");
        }
    }
    notes
}

fn milliseconds(us: u64) -> String {
    format!("{}.{:02}", us / 1000, us % 1000 / 10)
}

fn longest(texts: impl Iterator<Item = String>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

fn push_line(text: &mut String, line: &str, width: usize) {
    let line = line.trim_end();
    if line.chars().count() <= width {
        text.push_str(line);
    } else {
        text.extend(line.chars().take(width.saturating_sub(1)));
        text.push('…');
    }
    text.push('\n');
}

#[cfg(test)]
mod tests;
