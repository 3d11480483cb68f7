//! Calls in the body of a message to a function.
//!
//! ```text
//! <atem:invoke name="NAME">
//! <atem:parameter name="KEY">VALUE</atem:parameter>
//! </atem:invoke>
//! ```
//! This is not XML: a value is everything up to the first closing tag, as it stands.

const INVOKE: &str = "<atem:invoke name=\"";
const INVOKE_END: &str = "</atem:invoke>";
const PARAMETER: &str = "<atem:parameter name=\"";
const PARAMETER_END: &str = "</atem:parameter>";

/// A body as far as it has come.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Blocks {
    text: String,
    /// Up to here there is no end of a block.
    searched: usize,
}

impl Blocks {
    /// Takes more of the body and tells every call that it completes: its name, and its values by name.
    pub(super) fn push(&mut self, more: &str, mut tell: impl FnMut(&str, &[(&str, &str)])) {
        self.text.push_str(more);
        while let Some(end) = self.end_of_block() {
            if let Some((name, values)) = parse(&self.text[..end]) {
                tell(name, &values);
            }
            self.text.drain(..end + INVOKE_END.len());
            self.searched = 0;
        }
    }

    fn end_of_block(&mut self) -> Option<usize> {
        let mut from = self.searched.saturating_sub(INVOKE_END.len());
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        self.searched = self.text.len();
        self.text[from..].find(INVOKE_END).map(|at| from + at)
    }
}

type Invocation<'t> = (&'t str, Vec<(&'t str, &'t str)>);

fn parse(block: &str) -> Option<Invocation<'_>> {
    let (_, behind) = block.split_once(INVOKE)?;
    let (name, mut rest) = behind.split_once("\">")?;
    let mut values = Vec::new();
    while let Some((_, behind)) = rest.split_once(PARAMETER) {
        let Some((key, behind)) = behind.split_once("\">") else {
            break;
        };
        let Some((value, behind)) = behind.split_once(PARAMETER_END) else {
            break;
        };
        values.push((key, value));
        rest = behind;
    }
    Some((name, values))
}
