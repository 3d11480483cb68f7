//! What a job must fulfil before the engine takes it. Everything that would fail later, inside a batch, fails here.

use cluster_messages::{ErrorKind, Generation, RequestError};

use crate::{Job, JobKind, sequence::Limits};

/// The first rule a job breaks, in words for the client.
pub(crate) fn check(job: &Job, vocabulary: u32, width: u32, limits: Limits) -> Result<(), RequestError> {
    check_prompt(&job.generation, vocabulary)?;
    check_media(&job.generation, width)?;
    check_length(job, limits)?;
    check_pages(job, limits)?;
    check_tokens(&job.generation, vocabulary)?;
    check_sampling(&job.generation)
}

fn check_prompt(generation: &Generation, vocabulary: u32) -> Result<(), RequestError> {
    let (len, prompt_len) = (generation.tokens.len(), generation.prompt_len);
    if prompt_len == 0 {
        return Err(RequestError::invalid("prompt", "the prompt has no tokens"));
    }
    if prompt_len as usize > len {
        let message = format!("a prompt of {prompt_len} tokens was announced, but {len} tokens came");
        return Err(RequestError::new(ErrorKind::Internal, message));
    }
    match generation.tokens.iter().find(|token| **token >= vocabulary) {
        Some(token) => Err(outside("prompt", *token, vocabulary)),
        None => Ok(()),
    }
}

/// Media lie in the prompt, one after the other. Whoever wrote the prompt saw to that, so a breach is a defect; a model
/// that cannot see or hear is the client's mistake.
fn check_media(generation: &Generation, width: u32) -> Result<(), RequestError> {
    if width == 0
        && let Some(medium) = generation.media.first()
    {
        let message = format!("this model takes text only, but the prompt has {} content", medium.kind);
        return Err(RequestError::invalid("messages", message));
    }
    let mut end = 0;
    for (index, medium) in generation.media.iter().enumerate() {
        let (first, tokens) = (medium.first, medium.tokens);
        let own_end = u64::from(first) + u64::from(tokens);
        if tokens == 0 || u64::from(first) < end || own_end > u64::from(generation.prompt_len) {
            let prompt_len = generation.prompt_len;
            let message = format!(
                "medium {index} has {tokens} tokens from position {first} on; media have tokens, are sorted, and end with \
                 the prompt of {prompt_len} tokens at the latest"
            );
            return Err(RequestError::new(ErrorKind::Internal, message));
        }
        end = own_end;
    }
    Ok(())
}

fn outside(param: &str, token: u32, vocabulary: u32) -> RequestError {
    let message = format!("token id {token} is outside the vocabulary of {vocabulary} tokens");
    RequestError::invalid(param, message)
}

/// A prompt must leave room for one token, unless none is wanted. A moved request that has filled the context is no error:
/// it ends with its length.
fn check_length(job: &Job, limits: Limits) -> Result<(), RequestError> {
    let generation = &job.generation;
    let is_prefill = matches!(job.kind, JobKind::Prefill { .. });
    let len = generation.tokens.len() as u64;
    let room = u64::from(is_prefill || generation.max_tokens > 0);
    let is_moved = len > u64::from(generation.prompt_len);
    let context = u64::from(limits.context);
    if len + room <= context || (is_moved && !is_prefill && len <= context) {
        return Ok(());
    }
    let message = format!(
        "the prompt has {len} tokens, but this model's context is {context} tokens, of which the answer needs at least {room}"
    );
    Err(RequestError {
        param: Some("prompt".into()),
        ..RequestError::new(ErrorKind::ContextLength, message)
    })
}

fn check_pages(job: &Job, limits: Limits) -> Result<(), RequestError> {
    let JobKind::Prefill { first_page, end_page } = job.kind else {
        return Ok(());
    };
    let pages = limits.pages(job.generation.tokens.len() as u32);
    if first_page <= end_page && end_page <= pages {
        return Ok(());
    }
    let message = format!("pages {first_page}..{end_page} were asked of a prompt that has {pages}");
    Err(RequestError::new(ErrorKind::Internal, message))
}

fn check_tokens(generation: &Generation, vocabulary: u32) -> Result<(), RequestError> {
    if let Some(token) = generation.stop_tokens.iter().find(|token| **token >= vocabulary) {
        return Err(outside("stop_token_ids", *token, vocabulary));
    }
    let biased = &generation.sampling.logit_bias;
    if let Some((token, _)) = biased.iter().find(|(token, _)| *token >= vocabulary) {
        return Err(outside("logit_bias", *token, vocabulary));
    }
    match biased.iter().find(|(_, bias)| bias.is_nan()) {
        Some((token, _)) => Err(RequestError::invalid(
            "logit_bias",
            format!("the bias of token {token} is not a number"),
        )),
        None => Ok(()),
    }
}

/// The engine refuses only what has no meaning; the gateway holds the narrower ranges of the API.
fn check_sampling(generation: &Generation) -> Result<(), RequestError> {
    let sampling = &generation.sampling;
    let penalties = &sampling.penalties;
    let repetition_is_sound = penalties.repetition.is_finite() && penalties.repetition > 0.0;
    let rules = [
        (
            "temperature",
            sampling.temperature,
            sampling.temperature.is_finite() && sampling.temperature >= 0.0,
            "at least 0",
        ),
        (
            "top_p",
            sampling.top_p,
            (0.0..=1.0).contains(&sampling.top_p),
            "from 0 to 1",
        ),
        (
            "min_p",
            sampling.min_p,
            (0.0..=1.0).contains(&sampling.min_p),
            "from 0 to 1",
        ),
        (
            "repetition_penalty",
            penalties.repetition,
            repetition_is_sound,
            "above 0",
        ),
        (
            "frequency_penalty",
            penalties.frequency,
            penalties.frequency.is_finite(),
            "finite",
        ),
        (
            "presence_penalty",
            penalties.presence,
            penalties.presence.is_finite(),
            "finite",
        ),
    ];
    match rules.iter().find(|(_, _, is_sound, _)| !is_sound) {
        Some((param, value, _, rule)) => Err(RequestError::invalid(
            *param,
            format!("{param} is {value}; it must be {rule}"),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
