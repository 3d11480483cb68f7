//! The arrows of the request path as protocols of the fabric: what opens a stream, what comes back.

use cluster_fabric::StreamProtocol;
use cluster_messages::{
    Encode, Encoded, Features, FetchFeatures, Generate, GenerateFrame, Prefill, PrefillFrame, TextFrame, TextRequest,
};
use serde::{Deserialize, Serialize};

/// Gateway → tokenizer.
#[derive(Debug)]
pub struct TextProtocol;

impl StreamProtocol for TextProtocol {
    const NAME: &'static str = "text";
    type Open = TextRequest;
    type Frame = TextFrame;
}

/// Tokenizer → decode.
#[derive(Debug)]
pub struct GenerateProtocol;

impl StreamProtocol for GenerateProtocol {
    const NAME: &'static str = "generate";
    type Open = Generate;
    type Frame = GenerateFrame;
}

/// Decode → prefill.
#[derive(Debug)]
pub struct PrefillProtocol;

impl StreamProtocol for PrefillProtocol {
    const NAME: &'static str = "prefill";
    type Open = Prefill;
    type Frame = PrefillFrame;
}

/// Tokenizer → encoder.
#[derive(Debug)]
pub struct EncodeProtocol;

impl StreamProtocol for EncodeProtocol {
    const NAME: &'static str = "encode";
    type Open = Encode;
    type Frame = EncodeFrame;
}

/// What an encoder answers: `Working` any number of times, then `Done`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EncodeFrame {
    /// It has got on since the last frame, with this file or with those before it.
    Working,
    /// The embeddings are there.
    Done(Encoded),
}

/// Whoever computes a prompt → encoder. The rows come in order, in one frame or several.
#[derive(Debug)]
pub struct FeaturesProtocol;

impl StreamProtocol for FeaturesProtocol {
    const NAME: &'static str = "features";
    type Open = FetchFeatures;
    type Frame = Features;
}
