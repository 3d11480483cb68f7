use super::*;
use crate::{Cpu, CpuOptions};

/// Bytes that look random, with scales that are ordinary numbers.
pub(crate) fn weights(dtype: DType, rows: usize, cols: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes: Vec<u8> = (0..rows * dtype.row_bytes(cols))
        .map(|_| (next() >> 32) as u8)
        .collect();
    let halves: &[usize] = match dtype {
        DType::F16 | DType::BF16 | DType::Q4_0 | DType::Q5_0 | DType::Q8_0 | DType::Int4 => &[0],
        DType::Q4_1 | DType::Q5_1 | DType::Q4K | DType::Q5K | DType::Int4G16 => &[0, 2],
        DType::Q2K => &[80, 82],
        DType::Q3K => &[108],
        DType::Q6K => &[208],
        DType::F32 | DType::F8E4M3 | DType::Mxfp4 | DType::Nvfp4 => &[],
    };
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        let mut number = || (next() >> 40) as f32 / (1 << 24) as f32 - 0.5;
        for at in halves {
            let number = number() * 0.1;
            let bits = if dtype == DType::BF16 {
                half::bf16::from_f32(number).to_bits()
            } else {
                half::f16::from_f32(number).to_bits()
            };
            block[*at..at + 2].copy_from_slice(&bits.to_le_bytes());
        }
        match dtype {
            DType::F32 => block.copy_from_slice(&number().to_le_bytes()),
            DType::F8E4M3 => block[0] = reference::encode_e4m3(number() * 8.0),
            DType::Nvfp4 => (0..2).for_each(|i| block[i] = reference::encode_e4m3(number().abs())),
            DType::Mxfp4 => block[0] = 120 + block[0] % 8,
            DType::Int4 => block[2] %= 17,
            DType::Int4G16 => (4..6).for_each(|i| block[i] %= 17),
            _ => {}
        }
    }
    bytes
}

fn cpu() -> Cpu {
    Cpu::new(CpuOptions { threads: 2, isa: None }).expect("two threads")
}

#[test]
fn a_row_has_the_values_of_the_file() {
    for dtype in DType::ALL {
        for rows in [1, 16, 35] {
            let cols = 2 * dtype.block_len().max(17);
            let bytes = weights(dtype, rows, cols, 7);
            let matrix = cpu()
                .matrix(dtype, rows, cols, &bytes, Arithmetic::Int8)
                .expect("a good shape");
            let mut expected = vec![0.0; rows * cols];
            reference::dequantize(dtype, &bytes, &mut expected);
            let mut row = vec![0.0; cols];
            for (index, expected) in expected.chunks_exact(cols).enumerate() {
                matrix.row_into(index, &mut row);
                assert_eq!(row, expected, "{dtype:?} row {index} of {rows}");
            }
        }
    }
}

#[test]
fn stays_quantized_in_memory() {
    for dtype in DType::ALL {
        let (rows, cols) = (64, 1024);
        let bytes = weights(dtype, rows, cols, 3);
        let matrix = cpu()
            .matrix(dtype, rows, cols, &bytes, Arithmetic::Int8)
            .expect("a good shape");
        // Factors take a byte each instead of six or four bits, which weighs most where codes are smallest.
        let percent = match dtype {
            DType::Q2K => 120,
            DType::Q3K => 106,
            DType::Q4K | DType::Q5K => 104,
            // Scales take two bytes instead of one; FP8 has scales.
            DType::Nvfp4 => 112,
            DType::Mxfp4 => 106,
            DType::F8E4M3 => 101,
            _ => 100,
        };
        assert!(
            matrix.bytes() * 100 <= bytes.len() * percent,
            "{dtype:?}: {} bytes for {}",
            matrix.bytes(),
            bytes.len()
        );
    }
}

#[test]
fn refuses_shapes_that_do_not_fit() {
    let error = cpu()
        .matrix(DType::Q4_0, 4, 48, &[0; 108], Arithmetic::Exact)
        .expect_err("48 is no multiple of 32");
    assert_eq!(
        error.to_string(),
        "48 columns of Q4_0 are not a whole number of blocks of 32"
    );
    let error = cpu()
        .matrix(DType::Q8_0, 4, 32, &[0; 100], Arithmetic::Exact)
        .expect_err("4 rows are 136 bytes");
    assert_eq!(error.to_string(), "4 x 32 of Q8_0 need 136 bytes, got 100");
}
