use super::*;

fn shape(dtype: KvDType) -> KvShape {
    KvShape {
        layers: 2,
        kv_heads: 3,
        head_dim: 24,
        block_tokens: 16,
        dtype,
    }
}

fn rows(n: usize, width: usize, seed: f32) -> Vec<f32> {
    (0..n * width).map(|i| (i as f32 * 0.37 + seed).sin()).collect()
}

#[test]
fn a_row_is_read_back_as_rounded_and_where_it_was_written() {
    for (dtype, tolerance) in [
        (KvDType::F32, 0.0),
        (KvDType::F16, 5e-4),
        (KvDType::BF16, 4e-3),
        (KvDType::Fp8, 0.032),
    ] {
        let mut kv = KvStore::new(shape(dtype), 4).expect("a small store");
        let (keys, values) = (rows(20, 72, 0.1), rows(20, 72, 0.7));
        let table = [2, 0, 3];
        kv.write(1, &table, 10, &keys, &values);
        for (position, head) in [(10, 0), (15, 2), (16, 1), (29, 0)] {
            let at = (position - 10) * 72 + head * 24;
            let near =
                |stored: Vec<f32>, given: &[f32]| stored.iter().zip(given).all(|(s, g)| (s - g).abs() <= tolerance);
            assert!(
                near(kv.key(1, &table, position, head), &keys[at..at + 24]),
                "{dtype:?} key {position}"
            );
            assert!(
                near(kv.value(1, &table, position, head), &values[at..at + 24]),
                "{dtype:?} value {position}"
            );
        }
        assert!(kv.block(1).iter().all(|byte| *byte == 0), "block 1 is in no table");
        assert!(
            kv.key(0, &table, 10, 0).iter().all(|x| *x == 0.0),
            "layer 0 was not written"
        );
    }
}

#[test]
fn an_exported_block_is_the_same_block_elsewhere() {
    let mut from = KvStore::new(shape(KvDType::F16), 2).expect("a small store");
    let mut to = KvStore::new(shape(KvDType::F16), 5).expect("a small store");
    from.write(0, &[1], 0, &rows(16, 72, 0.2), &rows(16, 72, 0.4));
    to.import(4, from.block(1)).expect("equal shapes");
    assert_eq!(from.key(0, &[1], 7, 2), to.key(0, &[4], 7, 2));
    assert_eq!(from.block(1), to.block(4));
}

#[test]
fn refuses_shapes_and_pages_it_cannot_hold() {
    let ragged = KvShape {
        block_tokens: 24,
        ..shape(KvDType::F32)
    };
    let error = KvStore::new(ragged, 1).err().expect("24 is no multiple of 16");
    assert_eq!(
        error.to_string(),
        "kv shape field block_tokens is 24: must be a multiple of 16"
    );
    let empty = KvShape {
        layers: 0,
        ..shape(KvDType::F32)
    };
    assert!(KvStore::new(empty, 1).is_err());
    let mut kv = KvStore::new(shape(KvDType::F32), 1).expect("a small store");
    assert_eq!(
        kv.import(0, &[0; 3]),
        Err(KernelError::PageSize {
            expected: kv.block_bytes(),
            got: 3
        })
    );
}

#[test]
fn eight_bit_rows_saturate_and_take_half_the_memory_of_sixteen_bits() {
    let mut kv = KvStore::new(shape(KvDType::Fp8), 1).expect("a small store");
    let row: Vec<f32> = (0..72).map(|i| [1e6, -500.0, 448.0, 0.0625, 1.06][i % 5]).collect();
    kv.write(0, &[0], 3, &row, &row);
    let expected = [448.0, -448.0, 448.0, 0.0625, 1.0];
    let (key, value) = (kv.key(0, &[0], 3, 0), kv.value(0, &[0], 3, 0));
    assert_eq!((&key[..5], &value[..5]), (&expected[..], &expected[..]));
    assert_eq!(shape(KvDType::F16).block_bytes(), 2 * kv.block_bytes());
}
