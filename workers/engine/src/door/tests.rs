use cluster_messages::Sampling;

use super::*;
use crate::JobId;

const LIMITS: Limits = Limits {
    block_tokens: 4,
    context: 16,
    prefix_cache: true,
};

fn job(tokens: Vec<u32>, change: impl FnOnce(&mut Generation)) -> Job {
    let mut generation = Generation {
        media: Vec::new(),
        prompt_len: tokens.len() as u32,
        tokens,
        sampling: Sampling::default(),
        max_tokens: 4,
        min_tokens: 0,
        stop_tokens: Vec::new(),
        logprobs: None,
        prompt_logprobs: None,
        cache_salt: String::new(),
        priority: 0,
    };
    change(&mut generation);
    Job {
        id: JobId(0),
        generation,
        kind: JobKind::Whole,
    }
}

fn refusal(tokens: Vec<u32>, change: impl FnOnce(&mut Generation)) -> RequestError {
    check(&job(tokens, change), 10, 8, LIMITS).unwrap_err()
}

#[test]
fn sound_jobs_pass() {
    assert_eq!(check(&job(vec![1; 15], |_| {}), 10, 8, LIMITS), Ok(()));
    // Scoring alone needs no room for an answer.
    assert_eq!(
        check(&job(vec![1; 16], |generation| generation.max_tokens = 0), 10, 8, LIMITS),
        Ok(())
    );
    // A moved request that has filled the context ends; it is not refused.
    assert_eq!(
        check(&job(vec![1; 16], |generation| generation.prompt_len = 9), 10, 8, LIMITS),
        Ok(())
    );
}

#[test]
fn lengths_are_named_in_the_refusal() {
    let error = refusal(vec![1; 16], |_| {});
    assert_eq!(error.kind, ErrorKind::ContextLength);
    assert!(
        error
            .message
            .contains("16 tokens, but this model's context is 16 tokens"),
        "{error}"
    );
    assert_eq!(
        refusal(vec![1; 900], |generation| generation.prompt_len = 3).kind,
        ErrorKind::ContextLength
    );
    let mut prefill = job(vec![1; 16], |generation| generation.prompt_len = 9);
    prefill.kind = JobKind::Prefill {
        first_page: 0,
        end_page: 4,
    };
    assert_eq!(
        check(&prefill, 10, 8, LIMITS).unwrap_err().kind,
        ErrorKind::ContextLength
    );
}

#[test]
fn every_broken_rule_names_its_field() {
    let nan = f32::NAN;
    let param = |error: RequestError| {
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        error.param.unwrap()
    };
    assert_eq!(param(refusal(vec![], |_| {})), "prompt");
    assert_eq!(param(refusal(vec![1, 10], |_| {})), "prompt");
    assert_eq!(
        param(refusal(vec![1], |generation| generation.stop_tokens = vec![2, 10])),
        "stop_token_ids"
    );
    assert_eq!(
        param(refusal(vec![1], |generation| generation.sampling.logit_bias = vec![(10, 1.0)])),
        "logit_bias"
    );
    assert_eq!(
        param(refusal(vec![1], |generation| generation.sampling.logit_bias = vec![(1, nan)])),
        "logit_bias"
    );
    assert_eq!(
        param(refusal(vec![1], |generation| generation.sampling.temperature = nan)),
        "temperature"
    );
    assert_eq!(
        param(refusal(vec![1], |generation| generation.sampling.temperature = -1.0)),
        "temperature"
    );
    assert_eq!(
        param(refusal(vec![1], |generation| generation.sampling.top_p = 1.5)),
        "top_p"
    );
    assert_eq!(
        param(refusal(vec![1], |generation| generation.sampling.min_p = nan)),
        "min_p"
    );
    let repetition = |value| move |generation: &mut Generation| generation.sampling.penalties.repetition = value;
    assert_eq!(param(refusal(vec![1], repetition(0.0))), "repetition_penalty");
    let frequency = |generation: &mut Generation| generation.sampling.penalties.frequency = f32::INFINITY;
    assert_eq!(param(refusal(vec![1], frequency)), "frequency_penalty");
}

#[test]
fn a_caller_that_contradicts_itself_is_a_defect() {
    assert_eq!(
        refusal(vec![1], |generation| generation.prompt_len = 2).kind,
        ErrorKind::Internal
    );
    let mut prefill = job(vec![1; 5], |_| {});
    prefill.kind = JobKind::Prefill {
        first_page: 0,
        end_page: 3,
    };
    let error = check(&prefill, 10, 8, LIMITS).unwrap_err();
    assert_eq!(error.message, "pages 0..3 were asked of a prompt that has 2");
}
