//! The synthetic token: proof that a request goes through every role, before a client's does.

use std::time::Duration;

use cluster_fabric::Fabric;
use cluster_gateway::Frontend;
use cluster_messages::{ErrorKind, Header, RequestError, Sampling, TextInput, TextRequest, ToolChoice, TraceContext};

/// The longest one probe may take; a cold model answers one token of one token faster than this anywhere.
const PROBE_MAX: Duration = Duration::from_secs(20);
/// Between two probes, when instances are still finding each other.
const AGAIN: Duration = Duration::from_millis(25);

/// What it asks for. The scripted model knows it and hands out no script for it.
pub(crate) const PROMPT: [u32; 1] = [0];

/// Sends single tokens through `frontend` until one comes back.
pub(crate) async fn until_a_token_passes(fabric: &Fabric, frontend: &dyn Frontend) -> Result<(), RequestError> {
    let deadline = fabric.clock.deadline_in(PROBE_MAX);
    loop {
        let header = Header {
            request: fabric.entropy.request_id(),
            deadline,
            trace: TraceContext::default(),
        };
        let error = match one_token(frontend, header).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let passing = matches!(
            error.kind,
            ErrorKind::Unavailable | ErrorKind::Lost | ErrorKind::Overloaded
        );
        if !passing || fabric.clock.remaining(deadline).is_zero() {
            return Err(error);
        }
        fabric.clock.sleep(AGAIN).await;
    }
}

async fn one_token(frontend: &dyn Frontend, header: Header) -> Result<(), RequestError> {
    let mut frames = frontend.generate(request(header)).await?;
    while let Some(frame) = frames.next().await {
        frame?;
    }
    Ok(())
}

fn request(header: Header) -> TextRequest {
    TextRequest {
        tool_choice: ToolChoice::default(),
        parallel_tool_calls: true,
        header,
        model: String::new(),
        input: TextInput::Tokens(PROMPT.to_vec()),
        sampling: Sampling {
            temperature: 0.0,
            ..Sampling::default()
        },
        max_tokens: Some(1),
        min_tokens: 0,
        stop: Vec::new(),
        stop_token_ids: Vec::new(),
        ignore_eos: true,
        choices: 1,
        logprobs: None,
        echo: false,
        // A salt of its own keeps the probe's block out of everybody's prefix.
        cache_salt: "probe".into(),
        priority: i32::MAX,
    }
}
