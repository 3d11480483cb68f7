//! Columns of text for the terminal.

/// Rows of equal length under headings, each column as wide as its widest cell. Lines have no blanks at their ends.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let headings: Vec<String> = headings.iter().map(|heading| (*heading).into()).collect();
    let lines = || std::iter::once(&headings).chain(rows);
    let mut widths = vec![0; headings.len()];
    for line in lines() {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in lines() {
        let cells = line.iter().zip(&widths);
        let padded: Vec<String> = cells.map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A span of time for people: `42s`, `3m12s`, `2h03m`, `5d01h`.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests;
