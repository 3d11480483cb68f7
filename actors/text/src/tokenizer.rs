//! The door: one model's tokenizer and chat template.

use std::{collections::HashMap, sync::Arc};

use cluster_messages::{ChatPrompt, ErrorKind, RequestError, ToolChoice};

use crate::{
    AnswerFormat, AnswerReader, Detokenizer, MediaSupport, MediumPlace, Prompt, Template, TextError, TokenizerSource,
    controls::Controls,
    media::Placeholders,
    pipeline::{Piece, Pipeline},
    source::Parts,
    vocabulary::Vocabulary,
};

/// What control tokens spelled in a text are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Specials {
    /// Themselves. For text that a template wrote.
    Parse,
    /// Text like any other. For text that a user wrote. Tokens that the model's makers added without calling them special
    /// (`<think>` in some models) are words of the vocabulary and stay what they are.
    AsText,
}

/// Text to token ids and back.
///
/// Every text has ids. Bytes for which a vocabulary has no token (SmolLM2 lacks eight control characters) are left out, as
/// the reference implementations do.
#[derive(Debug)]
pub struct Tokenizer {
    pipeline: Pipeline,
    vocabulary: Arc<Vocabulary>,
    begins_with_blank: bool,
    bos: Option<u32>,
    prefix: Vec<u32>,
    eos: Vec<u32>,
    template: Result<Template, String>,
    placeholders: Placeholders,
    /// Control tokens and other added ones by their spelling.
    added: HashMap<String, u32>,
}

impl Tokenizer {
    /// Builds the tokenizer. A model without a chat template, or with a broken one, still serves plain completions.
    pub fn new(source: TokenizerSource) -> Result<Self, TextError> {
        let parts = Parts::new(source)?;
        let controls = parts
            .added
            .iter()
            .filter(|token| token.control)
            .map(|token| token.content.as_str());
        let controls = Arc::new(Controls::new(controls)?);
        let template = match &parts.chat_template {
            Some(source) => Template::with_controls(source, &parts.named_tokens, controls).map_err(|e| e.to_string()),
            None => Err("the model has no chat template".to_owned()),
        };
        let added: HashMap<String, u32> = parts
            .added
            .iter()
            .map(|token| (token.content.clone(), token.id))
            .collect();
        let placeholders = template.as_ref().map_or_else(
            |_| Placeholders::default(),
            |template| Placeholders::new(template, |text| added.get(text).copied()),
        );
        Ok(Self {
            added,
            placeholders,
            pipeline: Pipeline::new(parts.model, parts.normalizer, parts.pre_tokenizer, parts.added)?,
            vocabulary: Arc::new(Vocabulary::new(&parts.entries)),
            begins_with_blank: parts.begins_with_blank,
            bos: parts.bos,
            prefix: parts.prefix,
            eos: parts.eos,
            template,
        })
    }

    /// The ids of `text`, without what the model puts before a text.
    pub fn encode(&self, text: &str, specials: Specials) -> Vec<u32> {
        match specials {
            Specials::AsText => self.pipeline.encode(&[Piece::Text(text.into())]),
            Specials::Parse => self.pipeline.encode(&self.pieces(text)),
        }
    }

    /// The prompt of a plain completion: the user's text after what the model puts before a text.
    pub fn encode_completion(&self, text: &str) -> Vec<u32> {
        let mut ids = self.prefix.clone();
        ids.extend(self.encode(text, Specials::AsText));
        ids
    }

    /// The prompt of a conversation without media. `now_s` is the time for templates that print a date, in seconds since 1970,
    /// UTC.
    pub fn encode_chat(&self, chat: &ChatPrompt, now_s: u64) -> Result<Vec<u32>, RequestError> {
        self.encode_chat_media(chat, &[], now_s).map(|(ids, _)| ids)
    }

    /// The prompt of a conversation, and where its media lie in it. `counts` says how many placeholder tokens each medium has,
    /// in the order of the conversation.
    pub fn encode_chat_media(
        &self,
        chat: &ChatPrompt,
        counts: &[u32],
        now_s: u64,
    ) -> Result<(Vec<u32>, Vec<MediumPlace>), RequestError> {
        let template = self.template()?;
        let kinds = self.placeholders.kinds(chat)?;
        let ids = self.encode_prompt(&template.render(chat, now_s)?);
        self.placeholders.expand(&ids, &kinds, counts)
    }

    /// Which media the model's prompts have places for.
    pub fn media_support(&self) -> MediaSupport {
        self.placeholders.support()
    }

    /// How the answers to `chat` are read, under the client's choice of tools.
    pub fn answer_format(&self, chat: &ChatPrompt, choice: &ToolChoice) -> Result<AnswerFormat, RequestError> {
        AnswerFormat::new(self, chat, choice)
    }

    /// The state for reading one answer.
    pub fn answer_reader(&self, format: &AnswerFormat) -> AnswerReader {
        AnswerReader::new(self, format)
    }

    /// Whether `text` is a token of its own, or something that the chat template writes.
    pub(crate) fn spells(&self, text: &str) -> bool {
        let template = self.template.as_ref();
        self.added.contains_key(text) || template.is_ok_and(|template| template.mentions(text))
    }

    /// The ids of a rendered conversation: control tokens where the template wrote them, and nowhere else.
    pub fn encode_prompt(&self, prompt: &Prompt) -> Vec<u32> {
        let mut pieces = self.pieces(&prompt.rendered);
        for piece in &mut pieces {
            if let Piece::Text(text) = piece {
                let restored = prompt.escapes.restore(text).into_owned();
                *text = restored.into();
            }
        }
        self.pipeline.encode(&pieces)
    }

    /// The model's chat template, or why there is none.
    pub fn template(&self) -> Result<&Template, RequestError> {
        self.template.as_ref().map_err(|reason| {
            let remedy = "use /v1/completions, or give the model a chat template";
            RequestError::new(
                ErrorKind::Invalid,
                format!("this model cannot chat: {reason}; {remedy}"),
            )
        })
    }

    /// The state for one answer. It starts a text of its own: a blank that encoding would have put at the beginning is dropped.
    pub fn detokenizer(&self, skip_special: bool) -> Detokenizer {
        Detokenizer::new(Arc::clone(&self.vocabulary), skip_special, self.begins_with_blank)
    }

    /// The bytes of a token, not necessarily whole characters; none for an id without a token.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.vocabulary.bytes(id)
    }

    /// Whether `id` is a control token: structure, not text.
    pub fn is_special(&self, id: u32) -> bool {
        self.vocabulary.is_special(id)
    }

    /// The token spelled exactly `text`, if it is a control token or one that the model's makers added, such as `<think>`.
    pub fn special_id(&self, text: &str) -> Option<u32> {
        self.added.get(text).copied()
    }

    /// One more than the largest id. A model may have more rows than that.
    pub fn vocabulary_len(&self) -> usize {
        self.vocabulary.len()
    }

    /// The ids that end an answer or a turn, sorted.
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos
    }

    /// The id that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    fn pieces<'t>(&self, text: &'t str) -> Vec<Piece<'t>> {
        let stretches = self.pipeline.at_controls(text).into_iter();
        stretches
            .map(|(text, control)| match control {
                Some(id) => Piece::Control(id),
                None => Piece::Text(text.into()),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
