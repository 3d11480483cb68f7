//! Server-sent events, as far as the OpenAI API uses them: the `data` of each event.
//!
//! ```text
//! bytes, cut anywhere ──► push ──► data of the events that are complete
//! ```

/// Collects bytes until an event is complete.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// The line that is not complete yet.
    line: Vec<u8>,
    /// The data lines of the event that is not complete yet.
    data: Vec<String>,
}

impl Parser {
    /// Takes the next bytes and returns what they complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut events = Vec::new();
        for byte in bytes {
            if *byte == b'\n' {
                events.extend(self.end_line());
            } else {
                self.line.push(*byte);
            }
        }
        events
    }

    /// An empty line ends an event.
    fn end_line(&mut self) -> Option<String> {
        let line = String::from_utf8_lossy(&self.line).into_owned();
        self.line.clear();
        let line = line.strip_suffix('\r').unwrap_or(&line);
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return (!data.is_empty()).then(|| data.join("\n"));
        }
        if let Some(data) = line.strip_prefix("data:") {
            self.data.push(data.strip_prefix(' ').unwrap_or(data).into());
        }
        None
    }
}

#[cfg(test)]
mod tests;
