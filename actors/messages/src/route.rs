//! Tokenizer → router: which instances serve a request, and why.

use serde::{Deserialize, Serialize};

use crate::{BlockHash, Header, InstanceRef, MediumDigest};

/// Asks for the instances of one request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Route {
    /// Request, deadline, trace.
    pub header: Header,
    /// Hashes of the prompt's whole blocks, in order.
    pub blocks: Vec<BlockHash>,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// The media of the prompt, in order; empty when nothing is to be encoded.
    pub media: Vec<MediumDigest>,
    /// Instances that already failed this request.
    pub exclude: Vec<InstanceRef>,
}

/// The answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RouteDecision {
    /// Who owns the request.
    pub decode: InstanceRef,
    /// Who computes its prompt; none: the decode instance itself.
    pub prefill: Option<InstanceRef>,
    /// Who encodes each of the media; empty when there are none or no encoder lives.
    pub encoders: Vec<InstanceRef>,
    /// Everyone considered, cheapest first within a role.
    pub candidates: Vec<Candidate>,
    /// The policy that decided.
    pub policy: String,
}

/// One instance considered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Candidate {
    /// Who.
    pub instance: InstanceRef,
    /// What choosing it would cost.
    pub cost: Cost,
    /// Whether it was chosen.
    pub chosen: bool,
    /// Why it could not be chosen.
    pub rejected: Option<String>,
}

/// The terms of a cost; `total` is what candidates are compared by.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Prompt tokens that it would have to compute.
    pub new_tokens: f64,
    /// Prompt tokens whose pages it holds.
    pub cached_tokens: f64,
    /// Requests it runs or has waiting.
    pub load: f64,
    /// The weighted sum.
    pub total: f64,
}
