//! Every name that spans, attributes and metrics go by, in one place.
//!
//! Attributes of the request follow the OpenTelemetry conventions for generative AI (`gen_ai.*`); the rest is ours.

/// Span names, in the order of the request path. One span per phase, never one per token.
pub mod spans {
    /// From the first byte of the HTTP request to the last of the answer.
    pub const GATEWAY_REQUEST: &str = "gateway.request";
    /// One file that a request names by its address.
    pub const GATEWAY_FETCH: &str = "gateway.fetch";
    /// Template and tokens.
    pub const TOKENIZER_ENCODE: &str = "tokenizer.encode";
    /// The choice of instances, with every candidate.
    pub const ROUTER_CHOOSE: &str = "router.choose";
    /// Media to embeddings.
    pub const ENCODER_ENCODE: &str = "encoder.encode";
    /// Embeddings on their way to whoever computes the prompt, or made there.
    pub const FEATURES_FETCH: &str = "features.fetch";
    /// The prompt's pages.
    pub const PREFILL_RUN: &str = "prefill.run";
    /// Pages from one instance to another.
    pub const KV_TRANSFER: &str = "kv.transfer";
    /// The answer, token by token.
    pub const DECODE_RUN: &str = "decode.run";
    /// Tokens back to text.
    pub const TOKENIZER_DECODE: &str = "tokenizer.decode";
}

/// Targets of events.
pub mod targets {
    /// Moments of single requests: they belong into the request's span and are no log lines.
    pub const MOMENT: &str = "cluster_moment";
}

/// Attribute names.
pub mod attributes {
    /// 32 hexadecimal digits; what `cluster trace` looks a request up by.
    pub const REQUEST_ID: &str = "request.id";
    /// Who did it: `decode.0`.
    pub const INSTANCE: &str = "instance";
    /// `chat` or `text_completion`.
    pub const OPERATION: &str = "gen_ai.operation.name";
    /// The served name the client asked for.
    pub const REQUEST_MODEL: &str = "gen_ai.request.model";
    /// The most tokens of answer.
    pub const REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
    /// Sampling temperature.
    pub const REQUEST_TEMPERATURE: &str = "gen_ai.request.temperature";
    /// Nucleus.
    pub const REQUEST_TOP_P: &str = "gen_ai.request.top_p";
    /// Number of answers.
    pub const REQUEST_CHOICES: &str = "gen_ai.request.choice.count";
    /// Tokens of the prompt.
    pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
    /// Tokens of the answer.
    pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
    /// Prompt tokens found in a cache.
    pub const CACHED_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
    /// Why the answers ended.
    pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
    /// The host a file is fetched from.
    pub const SERVER_ADDRESS: &str = "server.address";
    /// What went wrong, in one word.
    pub const ERROR_TYPE: &str = "error.type";
    /// The status of the HTTP answer.
    pub const HTTP_STATUS: &str = "http.response.status_code";
    /// Whether the answer was streamed.
    pub const STREAM: &str = "gateway.stream";
    /// The router's policy.
    pub const POLICY: &str = "router.policy";
    /// The candidates and their costs, a JSON array.
    pub const CANDIDATES: &str = "router.candidates";
    /// The decode instance that was chosen.
    pub const CHOSEN_DECODE: &str = "router.decode";
    /// The prefill instance that was chosen.
    pub const CHOSEN_PREFILL: &str = "router.prefill";
    /// The encoders that were chosen, one for each picture or sound.
    pub const CHOSEN_ENCODERS: &str = "router.encoders";
    /// Pictures and sounds of the prompt.
    pub const MEDIA: &str = "media.count";
    /// Rows of embeddings.
    pub const MEDIA_ROWS: &str = "media.rows";
    /// Bytes of embeddings moved.
    pub const MEDIA_BYTES: &str = "media.bytes";
    /// Whether the embeddings were there already, or on their way for somebody else.
    pub const MEDIA_CACHED: &str = "media.cached";
    /// Pages moved.
    pub const KV_PAGES: &str = "kv.pages";
    /// Bytes moved.
    pub const KV_BYTES: &str = "kv.bytes";
    /// How often the request was moved to another instance before this.
    pub const ATTEMPT: &str = "attempt";
}

/// Event names inside spans.
pub mod events {
    /// The first text left for the client.
    pub const FIRST_TOKEN: &str = "first_token";
    /// The request goes on elsewhere.
    pub const MIGRATED: &str = "migrated";
}

/// Metric names, without the unit and `_total` that the exposition adds.
pub mod metrics {
    /// Ended requests by model and outcome.
    pub const REQUESTS: &str = "cluster_requests";
    /// Requests between first and last byte.
    pub const REQUESTS_IN_FLIGHT: &str = "cluster_requests_in_flight";
    /// Requests refused before any work, by reason.
    pub const REFUSED: &str = "cluster_requests_refused";
    /// Tokens of prompts.
    pub const PROMPT_TOKENS: &str = "cluster_prompt_tokens";
    /// Tokens of answers.
    pub const COMPLETION_TOKENS: &str = "cluster_completion_tokens";
    /// Prompt tokens that were found in a cache.
    pub const CACHED_TOKENS: &str = "cluster_prompt_tokens_cached";
    /// From the request's last byte to the first text.
    pub const TIME_TO_FIRST_TOKEN: &str = "cluster_time_to_first_token";
    /// Between two pieces of text of one stream, divided by the tokens in the second.
    pub const INTER_TOKEN: &str = "cluster_inter_token_latency";
    /// From the request's last byte to the end.
    pub const END_TO_END: &str = "cluster_request_duration";
    /// Requests an instance runs.
    pub const RUNNING: &str = "cluster_instance_requests_running";
    /// Requests that wait at an instance.
    pub const WAITING: &str = "cluster_instance_requests_waiting";
    /// Prompt tokens that an instance still has to compute.
    pub const PENDING_TOKENS: &str = "cluster_instance_pending_tokens";
    /// Blocks held by running requests.
    pub const BLOCKS_USED: &str = "cluster_kv_blocks_used";
    /// Blocks held by the prefix cache alone.
    pub const BLOCKS_CACHED: &str = "cluster_kv_blocks_cached";
    /// Blocks in all.
    pub const BLOCKS_TOTAL: &str = "cluster_kv_blocks_total";
    /// Prompt tokens looked up in the prefix cache of an instance.
    pub const PREFIX_LOOKUP_TOKENS: &str = "cluster_prefix_lookup_tokens";
    /// Of these, found.
    pub const PREFIX_HIT_TOKENS: &str = "cluster_prefix_hit_tokens";
    /// Sequences that lost their pages.
    pub const PREEMPTIONS: &str = "cluster_preemptions";
    /// Engine steps: progress.
    pub const STEPS: &str = "cluster_engine_steps";
    /// Restarts of actors by path and reason.
    pub const RESTARTS: &str = "cluster_actor_restarts";
    /// Requests that went on at another instance.
    pub const MIGRATIONS: &str = "cluster_request_migrations";
}
