use safetensors::SafeTensors;

use super::dequantize;
use crate::DType;

/// Packed blocks with the values they stand for, made by the format's own implementation.
const LAYOUTS: &[u8] = include_bytes!("../../tests/fixtures/gguf-layouts.safetensors");

#[test]
fn dequantizes_to_the_published_values() {
    let layouts = SafeTensors::deserialize(LAYOUTS).expect("the fixture is a safetensors file");
    let formats = [
        ("q4_0", DType::Q4_0),
        ("q4_1", DType::Q4_1),
        ("q5_0", DType::Q5_0),
        ("q5_1", DType::Q5_1),
        ("q8_0", DType::Q8_0),
        ("q2_k", DType::Q2K),
        ("q3_k", DType::Q3K),
        ("q4_k", DType::Q4K),
        ("q5_k", DType::Q5K),
        ("q6_k", DType::Q6K),
    ];
    for (name, dtype) in formats {
        let bytes = layouts.tensor(&format!("gguf_{name}.bytes")).expect("bytes are there");
        let value = layouts.tensor(&format!("gguf_{name}.value")).expect("values are there");
        let expected: Vec<f32> = value
            .data()
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect();
        let mut got = vec![0.0; expected.len()];
        dequantize(dtype, bytes.data(), &mut got);
        // The order of q5_k's operations differs by a last place of the block's maximum.
        let largest = expected.iter().fold(0.0f32, |max, x| max.max(x.abs()));
        let tolerance = if dtype == DType::Q5K {
            largest * f32::EPSILON
        } else {
            0.0
        };
        for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
            assert!(
                (got - expected).abs() <= tolerance,
                "{name}[{i}]: {got} is not {expected}"
            );
        }
    }
}

#[test]
fn reads_float_formats() {
    let mut out = [0.0; 2];
    dequantize(DType::BF16, &[0x80, 0x3f, 0x20, 0xc1], &mut out);
    assert_eq!(out, [1.0, -10.0]);
    dequantize(DType::F16, &[0x00, 0x3c, 0x01, 0x00], &mut out);
    assert_eq!(out, [1.0, 2f32.powi(-24)]);
}
