//! The arrows of the request path as protocols of the fabric: what opens a stream, what comes back.

use cluster_fabric::StreamProtocol;
use cluster_messages::{Generate, GenerateFrame, Prefill, PrefillFrame, TextFrame, TextRequest};

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
