use safetensors::SafeTensors;
use serde_json::Value;

use super::*;
use crate::{Cpu, CpuOptions, reference};

const FORMATS: &str = include_str!("../../../tests/fixtures/quant-formats.json");
const LAYOUTS: &[u8] = include_bytes!("../../../tests/fixtures/block-layouts.safetensors");

fn cpu() -> Cpu {
    Cpu::new(CpuOptions { threads: 2, isa: None }).expect("two threads")
}

fn formats() -> Value {
    serde_json::from_str(FORMATS).expect("the fixture is JSON")
}

/// All numbers below a value, in order.
fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        _ => vec![value.as_f64().expect("a number")],
    }
}

fn floats(value: &Value) -> Vec<f32> {
    numbers(value).into_iter().map(|x| x as f32).collect()
}

fn bytes(value: &Value) -> Vec<u8> {
    numbers(value).into_iter().map(|x| x as u8).collect()
}

fn words(value: &Value) -> Vec<u8> {
    numbers(value)
        .into_iter()
        .flat_map(|x| (x as i32).to_le_bytes())
        .collect()
}

fn rows_of(matrix: &Matrix) -> Vec<f32> {
    let mut out = vec![0.0; matrix.rows() * matrix.cols()];
    for (row, out) in out.chunks_exact_mut(matrix.cols()).enumerate() {
        matrix.row_into(row, out);
    }
    out
}

/// The whole weight has the expected values, and so does every part that is cut out of it.
fn assert_values(weight: &QuantizedWeight<'_>, [rows, cols]: [usize; 2], expected: &[f32]) {
    let cpu = cpu();
    let group = weight.column_group().max(4);
    let cuts = [
        Cut::whole(rows, cols),
        Cut {
            rows: rows / 3..rows - 1,
            cols: 0..cols,
        },
        Cut {
            rows: 0..rows,
            cols: cols / 2 / group * group..cols,
        },
        Cut {
            rows: 1..2,
            cols: group..cols.min(2 * group),
        },
    ];
    for cut in cuts {
        for arithmetic in [Arithmetic::Exact, Arithmetic::Int16] {
            let matrix = cpu.matrix_of(weight, [rows, cols], &cut, arithmetic).expect("it fits");
            let wanted: Vec<f32> = cut
                .rows
                .clone()
                .flat_map(|row| &expected[row * cols + cut.cols.start..row * cols + cut.cols.end])
                .copied()
                .collect();
            assert_eq!(rows_of(&matrix), wanted, "{} {cut:?}", weight.format());
            assert_product(&cpu, &matrix, &wanted);
        }
    }
}

/// Products are those of the values.
fn assert_product(cpu: &Cpu, matrix: &Matrix, values: &[f32]) {
    let (n, cols) = (3, matrix.cols());
    let x: Vec<f32> = (0..n * cols).map(|i| (i as f32 * 0.7).sin()).collect();
    let mut out = vec![f32::NAN; n * matrix.rows()];
    cpu.matmul(&x, n, &mut [(matrix, &mut out)]);
    let file: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut expected = vec![0.0; out.len()];
    reference::matmul(DType::F32, &file, cols, &x, &mut expected);
    let sizes = values.iter().map(|x| x.abs()).fold(0.0, f32::max) * cols as f32;
    let tolerance = sizes
        * if matrix.arithmetic() == Arithmetic::Exact {
            1e-6
        } else {
            4e-5
        };
    for (got, expected) in out.iter().zip(&expected) {
        assert!(
            (got - expected).abs() <= tolerance,
            "{matrix:?}: {got} is not {expected}"
        );
    }
}

#[test]
fn nvfp4_has_the_published_values() {
    let formats = formats();
    let golden = &formats["nvfp4_weight"];
    let (codes, scales) = (bytes(&golden["packed"]), bytes(&golden["weight_scale_e4m3_bytes"]));
    let expected = floats(&golden["dequantized"]);
    // Two experts of three gate rows and three up rows, with a global scale each.
    for (part, global) in floats(&golden["weight_scale_2"]).into_iter().enumerate() {
        let weight = QuantizedWeight::Nvfp4 {
            codes: &codes[part * 48..(part + 1) * 48],
            scales: &scales[part * 6..(part + 1) * 6],
            global,
        };
        assert_values(&weight, [3, 32], &expected[part * 96..(part + 1) * 96]);
    }
    let tensors = SafeTensors::deserialize(LAYOUTS).expect("the fixture is a safetensors file");
    let part = |name: &str| tensors.tensor(name).expect("it is there").data();
    let weight = QuantizedWeight::Nvfp4 {
        codes: part("nvfp4.weight"),
        scales: part("nvfp4.block_scale"),
        global: stored(part("nvfp4.global_scale"))[0],
    };
    assert_values(&weight, [8, 64], &stored(part("nvfp4.value")));
}

fn stored(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect()
}

#[test]
fn mxfp4_has_the_published_values() {
    let formats = formats();
    let golden = &formats["mxfp4_weight"];
    let (codes, scales) = (bytes(&golden["packed"]), bytes(&golden["scale_e8m0_bytes"]));
    let weight = QuantizedWeight::Mxfp4 {
        codes: &codes,
        scales: &scales,
    };
    assert_values(&weight, [4, 64], &floats(&golden["dequantized"]));
    let tensors = SafeTensors::deserialize(LAYOUTS).expect("the fixture is a safetensors file");
    let part = |name: &str| tensors.tensor(name).expect("it is there").data();
    let weight = QuantizedWeight::Mxfp4 {
        codes: part("mxfp4.weight"),
        scales: part("mxfp4.scale"),
    };
    assert_values(&weight, [24, 128], &stored(part("mxfp4.value")));
}

#[test]
fn fp8_with_ragged_blocks_has_the_published_values() {
    let tensors = SafeTensors::deserialize(LAYOUTS).expect("the fixture is a safetensors file");
    let part = |name: &str| tensors.tensor(name).expect("it is there").data();
    let weight = QuantizedWeight::Fp8 {
        codes: part("fp8_block128.weight"),
        scales: Fp8Scales {
            bytes: part("fp8_block128.scale"),
            dtype: ScaleType::E8M0,
            block: [128, 128],
        },
    };
    let expected = stored(part("fp8_block128.value_of_rows_120_to_135"));
    for (start, end) in [(0, 320), (128, 320), (64, 192), (300, 320)] {
        let cut = Cut {
            rows: 120..136,
            cols: start..end,
        };
        let matrix = cpu()
            .matrix_of(&weight, [192, 320], &cut, Arithmetic::Exact)
            .expect("it fits");
        let wanted: Vec<f32> = expected
            .chunks_exact(320)
            .flat_map(|row| &row[start..end])
            .copied()
            .collect();
        assert_eq!(rows_of(&matrix), wanted, "columns {start} to {end}");
        assert_product(&cpu(), &matrix, &wanted);
    }
}

#[test]
fn fp8_scales_may_be_one_for_all_or_one_a_row() {
    let codes: Vec<u8> = (0..20 * 24).map(|i| (i * 7 % 126) as u8).collect();
    let scales: Vec<f32> = (0..20).map(|i| 0.1 + i as f32).collect();
    let bytes: Vec<u8> = scales.iter().flat_map(|x| x.to_le_bytes()).collect();
    let value = |i: usize| reference::decode_e4m3(codes[i]);
    let weight = |bytes, block| QuantizedWeight::Fp8 {
        codes: &codes,
        scales: Fp8Scales {
            bytes,
            dtype: ScaleType::F32,
            block,
        },
    };
    let by_row: Vec<f32> = (0..20 * 24).map(|i| value(i) * scales[i / 24]).collect();
    assert_values(&weight(&bytes, [1, 24]), [20, 24], &by_row);
    let same: Vec<f32> = (0..20 * 24).map(|i| value(i) * scales[0]).collect();
    assert_values(&weight(&bytes[..4], [20, 24]), [20, 24], &same);
}

#[test]
fn int4_has_the_published_values_with_and_without_group_indices() {
    let formats = formats();
    let golden = &formats["int4_gptq_weight"];
    let (codes, zeros, group_of) = (
        words(&golden["qweight"]),
        words(&golden["qzeros"]),
        words(&golden["g_idx"]),
    );
    let scales: Vec<u8> = floats(&golden["scales_fp16"])
        .into_iter()
        .flat_map(|x| half::f16::from_f32(x).to_le_bytes())
        .collect();
    let expected = floats(&golden["dequantized_out_in"]);
    for group_of in [None, Some(&group_of[..])] {
        let weight = QuantizedWeight::Int4 {
            codes: &codes,
            scales: &scales,
            zeros: &zeros,
            group_len: 32,
            group_of,
        };
        assert_values(&weight, [16, 64], &expected);
    }
}

#[test]
fn int4_groups_may_be_any_sets_of_columns() {
    let (rows, cols, group_len) = (16, 48, 16);
    let codes: Vec<u8> = (0..rows * cols / 2).map(|i| (i * 37 % 251) as u8).collect();
    let zeros: Vec<u8> = (0..3 * rows / 2).map(|i| (i * 91 % 256) as u8).collect();
    let scale = |i: usize| half::f16::from_f32(0.01 + i as f32 / 64.0);
    let scales: Vec<u8> = (0..3 * rows).flat_map(|i| scale(i).to_le_bytes()).collect();
    let value = |row: usize, col: usize, group: usize| {
        let code = codes[(col / 8 * rows + row) * 4 + col % 8 / 2] >> (col % 2 * 4) & 15;
        let zero = zeros[(group * rows / 8 + row / 8) * 4 + row % 8 / 2] >> (row % 2 * 4) & 15;
        (f32::from(code) - f32::from(zero) - 1.0) * scale(group * rows + row).to_f32()
    };
    let mixed: Vec<u8> = (0..cols).flat_map(|col| ((col % 3) as u32).to_le_bytes()).collect();
    for group_of in [None, Some(&mixed[..])] {
        let group = |col: usize| if group_of.is_some() { col % 3 } else { col / group_len };
        let expected: Vec<f32> = (0..rows * cols)
            .map(|i| value(i / cols, i % cols, group(i % cols)))
            .collect();
        let weight = QuantizedWeight::Int4 {
            codes: &codes,
            scales: &scales,
            zeros: &zeros,
            group_len,
            group_of,
        };
        assert_values(&weight, [rows, cols], &expected);
    }
}

#[test]
fn refuses_parts_that_do_not_fit() {
    let of = |weight: &QuantizedWeight<'_>, shape, cut: &Cut| {
        let made = cpu().matrix_of(weight, shape, cut, Arithmetic::Exact);
        made.expect_err("it does not fit").to_string()
    };
    let weight = QuantizedWeight::Nvfp4 {
        codes: &[0; 64],
        scales: &[0; 7],
        global: 1.0,
    };
    assert_eq!(
        of(&weight, [4, 32], &Cut::whole(4, 32)),
        "scales of a 4 x 32 NVFP4 weight need 8 bytes, got 7"
    );
    let weight = QuantizedWeight::Nvfp4 {
        codes: &[0; 64],
        scales: &[0; 8],
        global: 1.0,
    };
    assert_eq!(
        of(
            &weight,
            [4, 32],
            &Cut {
                rows: 0..4,
                cols: 8..32
            }
        ),
        "columns 8 to 32 are not whole groups of 16, which NVFP4 needs"
    );
    assert_eq!(
        of(
            &weight,
            [4, 32],
            &Cut {
                rows: 2..5,
                cols: 0..32
            }
        ),
        "a weight of 4 x 32 has no part of rows 5 and columns 32"
    );
    let weight = QuantizedWeight::Int4 {
        codes: &[0; 32],
        scales: &[0; 16],
        zeros: &[0; 4],
        group_len: 8,
        group_of: Some(&[1; 32]),
    };
    let error = of(&weight, [8, 8], &Cut::whole(8, 8));
    assert_eq!(error, "a column belongs to group 16843009, but there are only 1");
}

#[test]
fn four_bit_formats_are_packed_to_the_published_bytes() {
    let formats = formats();
    let golden = &formats["nvfp4_weight"];
    let (source, globals) = (floats(&golden["source"]), floats(&golden["weight_scale_2"]));
    let (codes, scales) = (bytes(&golden["packed"]), bytes(&golden["weight_scale_e4m3_bytes"]));
    for (row, source) in source.chunks_exact(32).enumerate() {
        let packed = reference::quantize_nvfp4(source, globals[row / 3]);
        assert_eq!(packed.codes, codes[row * 16..(row + 1) * 16], "row {row}");
        assert_eq!(packed.scales, scales[row * 2..(row + 1) * 2], "row {row}");
    }
    let golden = &formats["nvfp4_activation_per_token"];
    let (codes, scales) = (bytes(&golden["packed"]), bytes(&golden["block_scale_e4m3_bytes"]));
    let source = floats(&golden["source"]);
    for (row, (source, global)) in source.chunks_exact(32).zip(floats(&golden["token_scale"])).enumerate() {
        let largest = source.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        assert_eq!(largest / (448.0 * 6.0), global, "row {row}");
        let packed = reference::quantize_nvfp4(source, global);
        assert_eq!(packed.codes, codes[row * 16..(row + 1) * 16], "row {row}");
        assert_eq!(packed.scales, scales[row * 2..(row + 1) * 2], "row {row}");
    }
    let golden = &formats["mxfp4_weight"];
    let packed = reference::quantize_mxfp4(&floats(&golden["source"]));
    assert_eq!(packed.codes, bytes(&golden["packed"]));
    assert_eq!(packed.scales, bytes(&golden["scale_e8m0_bytes"]));
}

#[test]
fn nvfp4_becomes_the_mxfp4_of_its_values() {
    let formats = formats();
    let golden = &formats["nvfp4_weight"];
    let (codes, scales) = (bytes(&golden["packed"]), bytes(&golden["weight_scale_e4m3_bytes"]));
    let (values, globals) = (floats(&golden["dequantized"]), floats(&golden["weight_scale_2"]));
    for (row, values) in values.chunks_exact(32).enumerate() {
        let packed = reference::FourBits {
            codes: codes[row * 16..(row + 1) * 16].to_vec(),
            scales: scales[row * 2..(row + 1) * 2].to_vec(),
        };
        let converted = reference::nvfp4_to_mxfp4(&packed, globals[row / 3]);
        assert_eq!(converted, reference::quantize_mxfp4(values), "row {row}");
        // A step of the new scale is at most a third of the value it rounds; 7 of 4 saturates at 6.
        let scale = reference::decode_e8m0(converted.scales[0]);
        for (i, value) in values.iter().enumerate() {
            let new = reference::decode_e2m1(converted.codes[i / 2] >> (i % 2 * 4)) * scale;
            assert!((new - value).abs() <= scale * 2.0, "row {row}: {value} became {new}");
        }
    }
}

#[test]
fn small_floats_are_those_of_the_tables() {
    let formats = formats();
    for (byte, expected) in formats["e4m3_table"].as_array().expect("a table").iter().enumerate() {
        let got = reference::decode_e4m3(byte as u8);
        match expected.as_f64() {
            Some(expected) => {
                assert_eq!(got.to_bits(), (expected as f32).to_bits(), "{byte:#x}");
                assert_eq!(reference::encode_e4m3(got), byte as u8, "{got}");
            }
            None => assert!(got.is_nan(), "{byte:#x}"),
        }
    }
    for (code, expected) in floats(&formats["e2m1_table"]).into_iter().enumerate() {
        assert_eq!(
            reference::decode_e2m1(code as u8).to_bits(),
            expected.to_bits(),
            "{code}"
        );
    }
    let golden = &formats["e4m3_values"];
    let encoded: Vec<u8> = floats(&golden["source"])
        .into_iter()
        .map(reference::encode_e4m3)
        .collect();
    assert_eq!(encoded, bytes(&golden["bytes"]));
    let edges = [
        449.0,
        1e9,
        f32::INFINITY,
        -1e9,
        f32::NAN,
        2f32.powi(-10),
        3.0 * 2f32.powi(-10),
    ];
    let expected = [0x7e, 0x7e, 0x7e, 0xfe, 0x7f, 0, 2];
    assert_eq!(
        edges.map(reference::encode_e4m3),
        expected,
        "saturates, keeps what is no number, ties go to even"
    );
}
