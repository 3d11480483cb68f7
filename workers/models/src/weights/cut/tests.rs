use cluster_kernels::{DType, KernelError};

use super::Cut;
use crate::checkpoint::Tensor;

/// Three rows of two q4_0 blocks each.
#[test]
fn rows_and_columns_are_taken_in_whole_blocks() {
    let bytes: Vec<u8> = (0..6).flat_map(|block| [block; 18]).collect();
    let tensor = Tensor {
        dtype: DType::Q4_0,
        shape: &[3, 64],
        bytes: &bytes,
    };
    let blocks = |cut: &Cut| -> Vec<u8> { cut.of(&tensor, 64).unwrap().iter().step_by(18).copied().collect() };
    assert_eq!(blocks(&Cut::rows(1..3, 64)), [2, 3, 4, 5]);
    assert_eq!(blocks(&Cut::cols(3, 32..64)), [1, 3, 5]);
    assert_eq!(blocks(&Cut::rows(2..2, 64)), [0_u8; 0]);
    assert_eq!(blocks(&Cut::cols(3, 32..32)), [0_u8; 0]);
    let twice = Cut {
        rows: vec![2..3, 0..1, 0..1],
        cols: 0..64,
    };
    assert_eq!((blocks(&twice), twice.shape()), (vec![4, 5, 0, 1, 0, 1], [3, 64]));
    assert_eq!(
        Cut::cols(3, 16..64).of(&tensor, 64),
        Err(KernelError::RaggedRow {
            dtype: DType::Q4_0,
            cols: 16,
            block_len: 32
        })
    );
}
