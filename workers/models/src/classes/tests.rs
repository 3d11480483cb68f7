//! Grouping of layers.

use cluster_engine::KvKind;
use cluster_kernels::KvDType;

use super::{Classes, Place};
use crate::spec::from_config;

fn classes(checkpoint: &str, dtype: KvDType) -> Classes {
    let path = format!("{}/tests/fixtures/{checkpoint}/config.json", env!("CARGO_MANIFEST_DIR"));
    Classes::of(&from_config(&std::fs::read(path).unwrap()).unwrap(), 16, dtype)
}

#[test]
fn layers_without_a_window_come_first() {
    let classes = classes("gemma3-tiny", KvDType::F32);
    let kinds: Vec<KvKind> = classes.described().into_iter().map(|class| class.kind).collect();
    assert_eq!(kinds, [KvKind::Full, KvKind::Window { tokens: 24 }]);
    let window = |layer| Place { class: 1, layer };
    let full = Place { class: 0, layer: 0 };
    assert_eq!(
        classes.places,
        [window(0), window(1), window(2), window(3), window(4), full]
    );
    let bytes: Vec<usize> = classes.described().into_iter().map(|class| class.block_bytes).collect();
    let layer = 16 * 2 * 16 * 4;
    assert_eq!(bytes, [layer, 5 * layer]);
    assert_eq!(classes.bytes_per_token(), 6 * 2 * 16 * 4);
}

#[test]
fn a_model_of_one_kind_has_one_class() {
    let classes = classes("qwen2-tiny", KvDType::BF16);
    assert_eq!(classes.described().len(), 1);
    assert_eq!(
        classes.places.iter().map(|place| place.layer).collect::<Vec<_>>(),
        [0, 1, 2]
    );
}

#[test]
fn only_equal_pages_have_equal_fingerprints() {
    let base = classes("qwen2-tiny", KvDType::F16).fingerprint();
    assert_eq!(classes("qwen2-tiny", KvDType::F16).fingerprint(), base);
    assert_ne!(
        classes("qwen2-tiny", KvDType::BF16).fingerprint(),
        base,
        "another type of the same size"
    );
    assert_ne!(classes("qwen3-tiny", KvDType::F16).fingerprint(), base);
}
