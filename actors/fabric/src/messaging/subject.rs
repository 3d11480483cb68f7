//! Subjects and patterns: parts separated by `.`; in a pattern `*` stands for one part and a last `>` for one or more.

/// The prefix of the subjects on which requests await their answers.
pub const INBOX: &str = "_INBOX.";

/// The most bytes of a subject or pattern: a broker closes the connection over a command line that is too long.
pub const SUBJECT_MAX: usize = 1024;

/// Whether a message can be published on `text`.
pub fn is_subject(text: &str) -> bool {
    text.len() <= SUBJECT_MAX && text.split('.').all(is_plain)
}

/// Whether `text` can be subscribed to.
pub fn is_pattern(text: &str) -> bool {
    let body = text.strip_suffix(".>").unwrap_or(text);
    text == ">" || text.len() <= SUBJECT_MAX && body.split('.').all(|part| part == "*" || is_plain(part))
}

/// Whether `subject` is among those `pattern` stands for.
pub fn matches(pattern: &str, subject: &str) -> bool {
    let mut wanted = pattern.split('.');
    let mut found = subject.split('.');
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some(">"), Some(_)) => return true,
            (Some(want), Some(part)) if want == "*" || want == part => {}
            _ => return false,
        }
    }
}

/// `name` as one part of a subject: characters with a meaning become `=` and their hexadecimal code. Different names stay
/// different.
pub fn part(name: &str) -> String {
    let mut part = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            part.push(char::from(byte));
        } else {
            part.push_str(&format!("={byte:02x}"));
        }
    }
    part
}

fn is_plain(part: &str) -> bool {
    !part.is_empty() && !part.contains(['*', '>']) && !part.contains(|letter: char| letter.is_whitespace())
}

#[cfg(test)]
mod tests;
