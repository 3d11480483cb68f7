use std::fs;

use super::*;

fn described(config: &str, processor: Option<&str>) -> Result<Option<MediaSpec>, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), config).unwrap();
    if let Some(processor) = processor {
        fs::write(folder.path().join("processor_config.json"), processor).unwrap();
    }
    let path = folder.path().to_str().unwrap();
    read(folder.path()).map_err(|error| error.to_string().replace(path, "DIR"))
}

const PUBLISHED: &str = r#"{
    "vision_config": {"model_type": "muse_spark_vision"}, "audio_config": {}, "text_config": {"hidden_size": 8192}
}"#;

#[test]
fn what_a_file_leaves_out_is_as_published() {
    let spec = described(PUBLISHED, None).unwrap().unwrap();
    let vision = spec.vision.unwrap();
    assert_eq!(vision.layers.len(), 50);
    let full = vision.layers.iter().filter(|reach| **reach == Reach::Full);
    assert_eq!(full.count(), 13);
    assert_eq!(
        (vision.patch_len(), vision.merged(), vision.head_dim()),
        (1176, 6144, 96)
    );
    assert_eq!((spec.adapter, spec.width), (4096, 8192));
    assert_eq!(spec.pictures.image_tokens_max, 4096);
    assert_eq!(spec.pictures.frame_tokens_max, 144);
    let audio = spec.audio.unwrap();
    assert_eq!((audio.samples_per_token(), audio.sample_rate), (1920, 24_000));
    assert_eq!(
        audio.stages[3],
        StageSpec {
            patch: 4,
            width: 2048,
            inner: 8192,
            blocks: 2
        }
    );
}

#[test]
fn a_model_of_text_alone_has_no_towers() {
    assert_eq!(described(r#"{"model_type": "llama"}"#, None), Ok(None));
    let other = r#"{"vision_config": {"model_type": "siglip_vision_model"}}"#;
    assert_eq!(described(other, None), Ok(None));
    let other = r#"{"model_type": "other", "audio_config": {}, "text_config": {"hidden_size": 8}}"#;
    assert_eq!(described(other, None), Ok(None));
}

#[test]
fn a_model_may_hear_alone_and_need_no_tables() {
    let config = r#"{"model_type": "muse_spark", "audio_config": {}, "hidden_size": 8, "rms_norm_eps": 0.5}"#;
    let spec = described(config, None).unwrap().unwrap();
    assert_eq!((spec.vision, spec.width, spec.epsilon), (None, 8, 0.5));
    assert!(spec.audio.is_some());
}

#[test]
fn what_is_not_supported_is_refused_with_its_place() {
    let processor = r#"{"image_processor": {"resample": 0}}"#;
    assert_eq!(
        described(PUBLISHED, Some(processor)).unwrap_err(),
        "DIR/processor_config.json: 'image_processor.resample' is 0, which is not supported; supported are 1 (Lanczos), 2 \
         (bilinear) and 3 (bicubic)"
    );
    let config = PUBLISHED.replace("\"audio_config\": {}", "\"audio_config\": {\"depths\": [1]}");
    assert_eq!(
        described(&config, None).unwrap_err(),
        "DIR/config.json: 'audio_config.hidden_sizes' is a list of 4; hidden_sizes, depths and patch_sizes have an entry for each \
         stage"
    );
    let config = PUBLISHED.replace("muse_spark_vision\"", "muse_spark_vision\", \"num_attention_heads\": 7");
    assert_eq!(
        described(&config, None).unwrap_err(),
        "DIR/config.json: 'vision_config.hidden_size' is 1536; 7 heads need a multiple of four each"
    );
}
