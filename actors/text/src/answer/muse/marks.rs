//! The four marks, and how to find them in text where they are no tokens of their own.

/// A mark of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::answer) enum Mark {
    /// A header begins.
    Start,
    /// A body begins.
    Message,
    /// A message ends.
    EndOfMessage,
    /// The turn ends.
    EndOfTurn,
}

/// How they are spelled, in the order of `MARKS`.
pub(in crate::answer) const SPELLINGS: [&str; 4] = ["<|start|>", "<|message|>", "<|eom|>", "<|eot|>"];

/// The mark that ends a header.
pub(in crate::answer) const BODY: &str = SPELLINGS[1];

/// All of them.
pub(in crate::answer) const MARKS: [Mark; 4] = [Mark::Start, Mark::Message, Mark::EndOfMessage, Mark::EndOfTurn];

/// What a text consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::answer) enum Found<'t> {
    Text(&'t str),
    Mark(Mark),
}

/// Finds marks in text that comes in pieces, for vocabularies that have no token for them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::answer) struct WrittenMarks {
    sought: Vec<(Mark, &'static str)>,
    /// The end of the text so far that may become a mark.
    held: String,
}

impl WrittenMarks {
    /// Looks for those marks that `is_token` says no to.
    pub(in crate::answer) fn new(is_token: impl Fn(&str) -> bool) -> Self {
        let all = MARKS.into_iter().zip(SPELLINGS);
        Self {
            sought: all.filter(|(_, spelling)| !is_token(spelling)).collect(),
            held: String::new(),
        }
    }

    /// Takes more text and tells what it consists of. All marks begin with `<`, which they have nowhere else, so a text that
    /// turns out not to be one can not have another in it.
    pub(in crate::answer) fn push(&mut self, text: &str, mut tell: impl FnMut(Found<'_>)) {
        if self.sought.is_empty() {
            return tell(Found::Text(text));
        }
        let mut free = 0;
        for (at, c) in text.char_indices() {
            let end = at + c.len_utf8();
            if self.held.is_empty() && c != '<' {
                continue;
            }
            if self.held.is_empty() {
                tell_text(&text[free..at], &mut tell);
            }
            self.held.push(c);
            match self
                .sought
                .iter()
                .find(|(_, spelling)| spelling.starts_with(&self.held))
            {
                Some((mark, spelling)) if spelling.len() == self.held.len() => {
                    tell(Found::Mark(*mark));
                    self.held.clear();
                    free = end;
                }
                Some(_) => free = end,
                None => {
                    self.held.pop();
                    tell_text(&std::mem::take(&mut self.held), &mut tell);
                    free = if c == '<' {
                        self.held.push(c);
                        end
                    } else {
                        at
                    };
                }
            }
        }
        tell_text(&text[free..], &mut tell);
    }

    pub(in crate::answer) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// The text held back, when no more comes or a token ends it.
    pub(in crate::answer) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

fn tell_text(text: &str, tell: &mut impl FnMut(Found<'_>)) {
    if !text.is_empty() {
        tell(Found::Text(text));
    }
}
