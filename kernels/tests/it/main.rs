//! Properties that the engine relies on, over shapes and cuts that nobody chose by hand.

use cluster_kernels::{
    Arithmetic, Attention, Cpu, CpuOptions, DType, Isa, KvDType, KvShape, KvStore, Matrix, Sequence,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The same cases in every run.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(20_260_101),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn cpu(threads: usize, isa: Option<Isa>) -> Cpu {
    Cpu::new(CpuOptions { threads, isa }).expect("a few threads can be started")
}

fn numbers(n: usize, seed: u32) -> Vec<f32> {
    (0..n).map(|i| ((i as f32 + seed as f32) * 0.619).sin() * 1.5).collect()
}

/// Bytes whose 16-bit words are f16 and bf16 numbers of ordinary size.
fn bytes(n: usize, seed: u32) -> Vec<u8> {
    (0..n)
        .map(|i| {
            if i % 2 == 1 {
                0x2c
            } else {
                (i as u32).wrapping_mul(37).wrapping_add(seed) as u8
            }
        })
        .collect()
}

fn product(cpu: &Cpu, matrix: &Matrix, x: &[f32]) -> Vec<u32> {
    let n = x.len() / matrix.cols();
    let mut out = vec![f32::NAN; n * matrix.rows()];
    cpu.matmul(x, n, &mut [(matrix, &mut out)]);
    out.iter().map(|x| x.to_bits()).collect()
}

proptest! {
    #![proptest_config(config(120))]

    #[test]
    fn a_product_row_depends_on_its_token_alone(
        dtype in prop::sample::select(&DType::ALL[..]),
        rows in 1usize..70,
        blocks in 1usize..4,
        n in 1usize..40,
        threads in 1usize..4,
        exact in any::<bool>(),
        seed in 0u32..1000,
    ) {
        let cols = blocks * if dtype.is_float() { 19 } else { dtype.block_len() };
        let arithmetic = if exact { Arithmetic::Exact } else { Arithmetic::Int8 };
        let many = cpu(threads, None);
        let matrix = many.matrix(dtype, rows, cols, &bytes(rows * dtype.row_bytes(cols), seed), arithmetic);
        let matrix = matrix.expect("whole blocks");
        let x = numbers(n * cols, seed);
        let together = product(&many, &matrix, &x);
        let scalar = cpu(1, Some(Isa::Scalar));
        for token in [0, n / 2, n - 1] {
            let alone = product(&scalar, &matrix, &x[token * cols..(token + 1) * cols]);
            prop_assert_eq!(&together[token * rows..(token + 1) * rows], &alone[..], "token {}", token);
        }
    }

    #[test]
    fn attention_does_not_depend_on_how_a_sequence_is_cut(
        kv_heads in 1usize..4,
        group in 1usize..5,
        head_dim in 1usize..72,
        block_tokens in prop::sample::select(vec![16usize, 32, 80]),
        dtype in prop::sample::select(vec![KvDType::F32, KvDType::F16, KvDType::BF16, KvDType::Fp8]),
        tokens in 1usize..330,
        cut in 0usize..330,
        window in prop::option::of(1usize..300),
        threads in 1usize..4,
    ) {
        let shape = KvShape { layers: 1, kv_heads, head_dim, block_tokens, dtype };
        let blocks: Vec<u32> = (0..tokens.div_ceil(block_tokens) as u32).rev().collect();
        let (width, heads) = (kv_heads * head_dim, kv_heads * group);
        let (keys, values) = (numbers(tokens * width, 1), numbers(tokens * width, 2));
        let queries = numbers(tokens * group * width, 3);
        let cut = cut.min(tokens);
        let run = |cpu: &Cpu, chunks: &[(usize, usize)]| {
            let mut kv = KvStore::new(shape, blocks.len()).expect("a small store");
            let mut out = vec![f32::NAN; queries.len()];
            for (start, end) in chunks {
                // Only what a chunk may see has been written when it runs.
                let rows = start * width..end * width;
                kv.write(0, &blocks, *start, &keys[rows.clone()], &values[rows]);
                let sequences = [Sequence { blocks: &blocks, start: *start, tokens: end - start }];
                let call = Attention { layer: 0, heads, scale: 0.3, window, sequences: &sequences };
                let rows = start * group * width..end * group * width;
                cpu.attention(&kv, &call, &queries[rows.clone()], &mut out[rows]);
            }
            out.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
        };
        let whole = run(&cpu(1, None), &[(0, tokens)]);
        let cut = run(&cpu(threads, None), &[(0, cut), (cut, tokens)]);
        prop_assert_eq!(whole, cut);
    }
}
