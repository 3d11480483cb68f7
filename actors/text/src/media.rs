//! Places of pictures and sounds in a prompt.
//!
//! ```text
//! …<|patch|>…  (one token, written by the template)  ─▶  …<|image_start|><|patch|> × n<|image_end|>…
//! ```
//! The template alone writes placeholders: a placeholder that a user typed is text. How many tokens a medium needs is an
//! argument; what is in it is not known here.

use cluster_messages::{ChatPrompt, Content, ErrorKind, MediumKind, Part, RequestError};

use crate::Template;

/// Which media a model's prompts have places for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MediaSupport {
    /// Still pictures.
    pub image: bool,
    /// Sounds.
    pub audio: bool,
}

/// Where a medium lies in a prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MediumPlace {
    /// What it is.
    pub kind: MediumKind,
    /// The position of its first placeholder token.
    pub first: u32,
    /// How many there are, one after the other.
    pub tokens: u32,
}

/// How a kind of medium is spelled: what opens it, the placeholder, what closes it.
struct Spelling {
    kind: MediumKind,
    open: &'static str,
    one: &'static str,
    close: &'static str,
}

const SPELLINGS: [Spelling; 2] = [
    Spelling {
        kind: MediumKind::Image,
        open: "<|image_start|>",
        one: "<|patch|>",
        close: "<|image_end|>",
    },
    Spelling {
        kind: MediumKind::Audio,
        open: "<|soft_audio_start|>",
        one: "<|audio|>",
        close: "<|soft_audio_end|>",
    },
];

/// The tokens of one kind of medium.
#[derive(Clone, Copy, Debug)]
struct Placeholder {
    kind: MediumKind,
    open: u32,
    one: u32,
    close: u32,
}

/// The kinds of media that a model has places for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placeholders(Vec<Placeholder>);

impl Placeholders {
    /// A kind counts only if the vocabulary has all three tokens and the template writes the one in the middle.
    pub(crate) fn new(template: &Template, id_of: impl Fn(&str) -> Option<u32>) -> Self {
        let known = SPELLINGS.iter().filter_map(|spelling| {
            let placeholder = Placeholder {
                kind: spelling.kind,
                open: id_of(spelling.open)?,
                one: id_of(spelling.one)?,
                close: id_of(spelling.close)?,
            };
            template
                .writes_medium(spelling.kind, spelling.one)
                .then_some(placeholder)
        });
        Self(known.collect())
    }

    pub(crate) fn support(&self) -> MediaSupport {
        let has = |kind| self.0.iter().any(|placeholder| placeholder.kind == kind);
        MediaSupport {
            image: has(MediumKind::Image),
            audio: has(MediumKind::Audio),
        }
    }

    /// The kinds of the media of `chat` in their order, or which of them the model has no place for.
    pub(crate) fn kinds(&self, chat: &ChatPrompt) -> Result<Vec<MediumKind>, RequestError> {
        let mut kinds = Vec::new();
        for (index, message) in chat.messages.iter().enumerate() {
            let Some(Content::Parts(parts)) = &message.content else {
                continue;
            };
            for (part_index, part) in parts.iter().enumerate() {
                let Part::Media(file) = part else { continue };
                if !self.0.iter().any(|placeholder| placeholder.kind == file.kind) {
                    let place = format!("messages[{index}].content[{part_index}]");
                    return Err(RequestError::invalid(place, unsupported(file.kind)));
                }
                kinds.push(file.kind);
            }
        }
        Ok(kinds)
    }

    /// `ids` with every placeholder of the template widened to the count of its medium, and where they are then.
    pub(crate) fn expand(
        &self,
        ids: &[u32],
        kinds: &[MediumKind],
        counts: &[u32],
    ) -> Result<(Vec<u32>, Vec<MediumPlace>), RequestError> {
        if kinds.len() != counts.len() || counts.contains(&0) {
            let message = format!("{} media have {} counts of tokens", kinds.len(), counts.len());
            return Err(RequestError::new(ErrorKind::Internal, message));
        }
        let total: usize = counts.iter().map(|count| *count as usize).sum();
        let mut expanded = Vec::with_capacity(ids.len() + total + 2 * counts.len());
        let mut places: Vec<MediumPlace> = Vec::with_capacity(counts.len());
        for (index, id) in ids.iter().enumerate() {
            let Some(placeholder) = self.0.iter().find(|placeholder| placeholder.one == *id) else {
                expanded.push(*id);
                continue;
            };
            let Some(tokens) = counts.get(places.len()).copied() else {
                return Err(shown_otherwise(counts.len()));
            };
            // Some templates open and close a medium themselves.
            if index == 0 || ids[index - 1] != placeholder.open {
                expanded.push(placeholder.open);
            }
            places.push(MediumPlace {
                kind: placeholder.kind,
                first: expanded.len() as u32,
                tokens,
            });
            expanded.extend(std::iter::repeat_n(placeholder.one, tokens as usize));
            if ids.get(index + 1) != Some(&placeholder.close) {
                expanded.push(placeholder.close);
            }
        }
        if !places.iter().map(|place| place.kind).eq(kinds.iter().copied()) {
            return Err(shown_otherwise(counts.len()));
        }
        Ok((expanded, places))
    }
}

fn unsupported(kind: MediumKind) -> String {
    let (things, remedy) = match kind {
        MediumKind::Image => ("pictures", "send text, or use a model that takes pictures"),
        MediumKind::Audio => ("sounds", "send text, or use a model that takes sounds"),
    };
    format!("this model does not take {things}: its tokenizer and chat template have no place for them; {remedy}")
}

fn shown_otherwise(media: usize) -> RequestError {
    RequestError::invalid(
        "messages",
        format!(
            "the model's chat template does not show the {media} media of this conversation one by one; send them in user messages"
        ),
    )
}
