//! What a checkpoint says about its quantization, in `quantization_config` of config.json or in hf_quant_config.json, as far
//! as the tensors do not say it themselves.

use serde_json::Value;

/// The shape of FP8 blocks where nothing else is said.
const BLOCK: [usize; 2] = [128, 128];

/// The lengths of groups and blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Description {
    /// Inputs of an INT4 group; None: as many as the number of scales says.
    pub(crate) group_len: Option<usize>,
    /// Outputs and inputs of an FP8 block.
    pub(crate) block: [usize; 2],
}

impl Description {
    /// Reads the two files. What they do not say has the usual value.
    pub(crate) fn read(config: &[u8], hf_quant_config: Option<&[u8]>) -> Self {
        let parsed = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap_or(Value::Null);
        let config: Value = parsed(config);
        let beside: Value = hf_quant_config.map_or(Value::Null, parsed);
        // A model with several parts may describe the language model's alone.
        let places = [
            &config["quantization_config"],
            &config["text_config"]["quantization_config"],
            &beside["quantization"],
        ];
        let group_len = places.iter().find_map(|place| place["group_size"].as_i64());
        let block = places.iter().find_map(|place| block(&place["weight_block_size"]));
        Self {
            group_len: group_len
                .and_then(|len| usize::try_from(len).ok())
                .filter(|len| *len > 0),
            block: block.unwrap_or(BLOCK),
        }
    }
}

fn block(value: &Value) -> Option<[usize; 2]> {
    let side = |value: &Value| value.as_u64().map(|side| side as usize).filter(|side| *side > 0);
    match value.as_array()?.as_slice() {
        [rows, cols] => Some([side(rows)?, side(cols)?]),
        _ => None,
    }
}
