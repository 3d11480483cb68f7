//! Descriptions as published files have them, and what is said about those that are not supported.

use serde_json::{Value, json};

use super::{Activation, Family, FfnSpec, ModelSpec, Rope, RopeScaling, SpecError, from_config};
use crate::gguf::GgufFile;

fn llama() -> Value {
    json!({
        "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
        "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true, "rope_theta": 100000
    })
}

fn with(mut config: Value, changes: Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn read(config: &Value) -> Result<ModelSpec, SpecError> {
    from_config(config.to_string().as_bytes())
}

fn refusal(changes: Value) -> String {
    read(&with(llama(), changes)).unwrap_err().to_string()
}

fn rope_of(changes: Value) -> Rope {
    read(&with(llama(), changes)).unwrap().layers[0]
        .attention
        .rope
        .clone()
        .unwrap()
}

#[test]
fn a_llama_is_read() {
    let spec = read(&llama()).unwrap();
    assert_eq!(spec.family, Family::Llama);
    assert_eq!((spec.layers.len(), spec.hidden, spec.vocabulary), (30, 576, 49152));
    assert_eq!(spec.activation, Activation::Silu);
    assert!(spec.tied_head);
    let attention = &spec.layers[29].attention;
    assert_eq!((attention.heads, attention.kv_heads, attention.head_dim), (9, 3, 64));
    assert_eq!(attention.scale, 0.125);
    assert_eq!(attention.rope.as_ref().unwrap().theta, 100_000.0);
    assert_eq!(spec.parameters(), 134_515_008, "as published for this model");
}

#[test]
fn families_know_their_own_rows() {
    for family in [
        Family::Llama,
        Family::Qwen2,
        Family::Qwen3,
        Family::Qwen3Moe,
        Family::Gemma3,
    ] {
        assert_eq!(family.switches().family, family);
    }
}

#[test]
fn sparse_layers_follow_the_step_and_the_list() {
    let config = with(
        llama(),
        json!({
            "model_type": "qwen3_moe", "num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3],
            "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "norm_topk_prob": true
        }),
    );
    let spec = read(&config).unwrap();
    let sparse = |layer: usize| matches!(spec.layers[layer].ffn, FfnSpec::Experts(_));
    assert_eq!([0, 1, 2, 3, 4, 5].map(sparse), [false, true, false, false, false, true]);
}

#[test]
fn windows_follow_the_layer_types_or_the_older_keys() {
    let windows = |changes: Value| {
        let spec = read(&with(llama(), changes)).unwrap();
        spec.layers
            .iter()
            .map(|layer| layer.attention.window)
            .collect::<Vec<_>>()
    };
    let typed = json!({
        "model_type": "qwen2", "num_hidden_layers": 2, "sliding_window": 512,
        "layer_types": ["full_attention", "sliding_attention"]
    });
    assert_eq!(windows(typed), [None, Some(512)]);
    let older = json!({
        "model_type": "qwen2", "num_hidden_layers": 3, "sliding_window": 512, "use_sliding_window": true,
        "max_window_layers": 2
    });
    assert_eq!(windows(older), [None, None, Some(512)]);
    let unused =
        json!({ "model_type": "qwen2", "num_hidden_layers": 1, "sliding_window": 512, "use_sliding_window": false });
    assert_eq!(windows(unused), [None]);
}

#[test]
fn scaling_is_read_in_both_spellings() {
    let older = rope_of(json!({ "rope_scaling": { "type": "linear", "factor": 4.0 } }));
    let newer = rope_of(json!({ "rope_parameters": { "rope_type": "linear", "factor": 4.0, "rope_theta": 100000 } }));
    assert_eq!(older, newer);
    assert_eq!(older.scaling, RopeScaling::Linear { factor: 4.0 });
    let both = rope_of(json!({ "rope_scaling": {
        "type": "yarn", "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048
    } }));
    assert_eq!(both.magnitude(), (0.1 * 4.0_f64.ln() + 1.0) as f32);
}

#[test]
fn linear_scaling_divides_every_angle() {
    let plain = rope_of(json!({})).frequencies(64);
    let scaled = rope_of(json!({ "rope_scaling": { "type": "linear", "factor": 4.0 } })).frequencies(64);
    assert_eq!(
        scaled,
        plain.iter().map(|frequency| frequency / 4.0).collect::<Vec<_>>()
    );
    assert_eq!(plain[0], 1.0);
    assert_eq!(plain[16], 100_000_f32.powf(-0.5));
}

/// Fast angles stay, slow ones are divided, and between them the change is gradual.
#[test]
fn ramps_keep_the_fast_and_divide_the_slow() {
    let llama3 = json!({ "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192
    } });
    let yarn = json!({ "rope_scaling": {
        "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192
    } });
    let plain = rope_of(json!({})).frequencies(64);
    for changes in [llama3, yarn] {
        let scaled = rope_of(changes).frequencies(64);
        let ratios: Vec<f32> = plain
            .iter()
            .zip(&scaled)
            .map(|(plain, scaled)| plain / scaled)
            .collect();
        assert_eq!(ratios[0], 1.0);
        assert!((ratios[31] - 8.0).abs() < 1e-4, "{ratios:?}");
        assert!(ratios.is_sorted(), "{ratios:?}");
        assert!(ratios.iter().any(|ratio| (1.5..7.5).contains(ratio)), "{ratios:?}");
    }
}

#[test]
fn what_is_not_supported_is_named() {
    assert_eq!(
        refusal(json!({ "model_type": "mamba2" })),
        "'model_type' is 'mamba2', which is not supported; supported are llama, qwen2, qwen3, qwen3_moe, gemma3_text, muse_spark"
    );
    assert_eq!(
        refusal(json!({ "attention_bias": true })),
        "'attention_bias' is true, which is not supported; only false is"
    );
    assert_eq!(
        refusal(json!({ "hidden_act": "relu" })),
        "'hidden_act' is 'relu', which is not supported; only the family's own is: silu, or gelu_pytorch_tanh for gemma3"
    );
    assert_eq!(
        refusal(json!({ "rope_scaling": { "rope_type": "dynamic", "factor": 2.0 } })),
        "'rope_type' is 'dynamic', which is not supported; only default, linear, llama3 and yarn are"
    );
    assert_eq!(
        refusal(json!({ "quantization_config": { "quant_method": "gptq" } })),
        "'quantization_config' is {\"quant_method\":\"gptq\"}, which is not supported; use unquantized safetensors or a GGUF file"
    );
    assert_eq!(
        refusal(json!({ "partial_rotary_factor": 0.5 })),
        "'partial_rotary_factor' is 0.5, which is not supported; only 1 is"
    );
}

#[test]
fn contradictions_are_named() {
    assert_eq!(
        refusal(json!({ "num_key_value_heads": 4 })),
        "'key and value heads' is 4; it must divide the 9 attention heads"
    );
    assert_eq!(
        refusal(json!({ "head_dim": 63 })),
        "'head width' is 63; rotation needs an even number"
    );
    assert_eq!(
        refusal(json!({ "num_hidden_layers": 4_000_000_000_u64 })),
        "'num_hidden_layers' is 4000000000; between 1 and 1024 are possible"
    );
    assert_eq!(
        refusal(json!({ "num_attention_heads": 0 })),
        "'attention heads' is 0; it must be at least 1 and fit in 32 bits"
    );
    assert_eq!(
        refusal(
            json!({ "model_type": "qwen3_moe", "num_experts": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 8 })
        ),
        "'active experts' is 3; there are only 2 experts"
    );
    assert_eq!(
        from_config(b"[").unwrap_err().to_string(),
        "not a model configuration: EOF while parsing a list at line 1 column 1"
    );
    assert_eq!(read(&json!({})).unwrap_err().to_string(), "'model_type' is missing");
    assert_eq!(
        read(&json!({ "model_type": "llama" })).unwrap_err().to_string(),
        "not a model configuration: missing field `hidden_size`"
    );
}

/// The same weights in both layouts are the same model but for the names of the files.
#[test]
fn both_layouts_of_a_model_read_alike() {
    let gguf = include_bytes!("../../tests/fixtures/llama-tiny-gguf/model.gguf");
    let gguf = super::from_gguf(&GgufFile::from_bytes(gguf.to_vec()).unwrap()).unwrap();
    let config = from_config(include_bytes!("../../tests/fixtures/llama-tiny/config.json")).unwrap();
    assert_eq!(gguf, config);
}

fn muse() -> Value {
    let path = format!(
        "{}/tests/fixtures/muse-spark-tiny/config.json",
        env!("CARGO_MANIFEST_DIR")
    );
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn muse_spark_is_a_table_of_options() {
    let spec = read(&muse()).unwrap();
    assert_eq!(
        (spec.family, spec.layers.len(), spec.hidden),
        (Family::MuseSpark, 6, 128)
    );
    assert!(spec.embedding_norm && !spec.tied_head);
    assert_eq!(spec.logit_cap, Some(20.0));
    let windows: Vec<_> = spec.layers.iter().map(|layer| layer.attention.window).collect();
    assert_eq!(windows, [Some(16), None, Some(16), Some(16), Some(16), None]);
    let rotated: Vec<_> = spec.layers.iter().map(|layer| layer.attention.rope.is_some()).collect();
    assert_eq!(rotated, [true, false, true, true, true, false]);
    assert_eq!(spec.layers[0].attention.scale, 3.0 / 4.0);
    assert_eq!(spec.layers[0].ffn, FfnSpec::Dense { width: 192 });
    let FfnSpec::Experts(experts) = &spec.layers[1].ffn else {
        panic!("layer 1 is sparse");
    };
    assert_eq!(
        (experts.count, experts.active, experts.width, experts.pool),
        (8, 2, 48, Some(64))
    );
}

/// The figures that are published for the large model.
#[test]
fn muse_spark_is_counted_as_published() {
    let mut config = muse();
    let text = json!({
        "vocab_size": 202_048, "hidden_size": 8192, "num_hidden_layers": 62, "num_attention_heads": 128,
        "num_key_value_heads": 16, "head_dim": 64, "moe_hidden_size": 4096, "moe_intermediate_size": 4096,
        "num_local_experts": 256, "num_experts_per_tok": 8, "mlp_layer_types": vec!["sparse"; 62],
        "layer_types": vec!["full_attention"; 62], "layer_rope_theta": vec![0.0; 62]
    });
    let (Some(tiny), Some(large)) = (config["text_config"].as_object_mut(), text.as_object()) else {
        panic!("two tables");
    };
    tiny.extend(large.clone());
    let billions = read(&config).unwrap().parameters() as f64 / 1e9;
    assert!((billions - (816.7 + 3.3)).abs() < 0.1, "{billions}");
}

#[test]
fn what_muse_spark_lacks_is_named() {
    let refusal = |key: &str, value: Value| {
        let mut config = muse();
        config["text_config"][key] = value;
        read(&config).unwrap_err().to_string()
    };
    assert_eq!(
        refusal("layer_types", json!(["full_attention"])),
        "'layer_types[1]' is missing"
    );
    assert_eq!(
        refusal("mlp_layer_types", json!(["wide"])),
        "'mlp_layer_types[0]' is 'wide'; it must be one of sparse, dense"
    );
    assert_eq!(refusal("sliding_window", Value::Null), "'sliding_window' is missing");
    assert_eq!(
        refusal("residual_gate_temperature", json!(0.0)),
        "'residual_gate_temperature' is 0; it must be more than 0"
    );
}
