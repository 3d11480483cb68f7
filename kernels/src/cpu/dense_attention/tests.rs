use super::*;
use crate::{CpuOptions, Isa};

fn numbers(count: usize, step: f32) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * step).sin() * 2.0).collect()
}

fn run(isa: Isa, threads: usize, call: &DenseAttention<'_>) -> Vec<f32> {
    let options = CpuOptions {
        threads,
        isa: Some(isa),
    };
    let mut out = vec![0.0; call.queries.len()];
    Cpu::new(options)
        .expect("the instruction set is there")
        .dense_attention(call, &mut out);
    out
}

/// The formula, in f64.
fn expected(call: &DenseAttention<'_>) -> Vec<f64> {
    let (dim, width) = (call.head_dim, call.heads * call.head_dim);
    let mut out = vec![0.0; call.queries.len()];
    let mut start = 0;
    for len in call.segments {
        for (token, head) in (start..start + len).flat_map(|token| (0..call.heads).map(move |head| (token, head))) {
            let at = |numbers: &[f32], token: usize, i: usize| f64::from(numbers[token * width + head * dim + i]);
            let score = |key: usize| {
                let products = (0..dim).map(|i| at(call.queries, token, i) * at(call.keys, key, i));
                (products.sum::<f64>() * f64::from(call.scale)).exp()
            };
            let weights: Vec<f64> = (start..start + len).map(score).collect();
            let sum: f64 = weights.iter().sum();
            for i in 0..dim {
                let values = (start..).zip(&weights).take(*len);
                let total: f64 = values.map(|(key, weight)| weight * at(call.values, key, i)).sum();
                out[token * width + head * dim + i] = total / sum;
            }
        }
        start += len;
    }
    out
}

#[test]
fn segments_of_any_length_match_the_formula_on_every_instruction_set() {
    for (heads, head_dim, segments) in [(4, 16, vec![1, 7, 100, 3]), (3, 24, vec![65, 16]), (2, 96, vec![130])] {
        let len = segments.iter().sum::<usize>() * heads * head_dim;
        let (queries, keys, values) = (numbers(len, 0.37), numbers(len, 0.61), numbers(len, 0.83));
        let call = DenseAttention {
            queries: &queries,
            keys: &keys,
            values: &values,
            heads,
            head_dim,
            scale: 0.3,
            segments: &segments,
        };
        let computed = run(Isa::detect(), 2, &call);
        for (computed, expected) in computed.iter().zip(expected(&call)) {
            assert!(
                (f64::from(*computed) - expected).abs() < 1e-5,
                "{computed}, expected {expected}"
            );
        }
        assert_eq!(computed, run(Isa::Scalar, 1, &call), "the same bits");
    }
}

#[test]
fn a_segment_does_not_know_its_neighbours() {
    let (heads, head_dim) = (2, 24);
    let width = heads * head_dim;
    let (queries, keys, values) = (
        numbers(90 * width, 0.37),
        numbers(90 * width, 0.61),
        numbers(90 * width, 0.83),
    );
    let call = DenseAttention {
        queries: &queries,
        keys: &keys,
        values: &values,
        heads,
        head_dim,
        scale: 0.2,
        segments: &[20, 70],
    };
    let together = run(Isa::detect(), 2, &call);
    let second = 20 * width..;
    let alone = DenseAttention {
        queries: &queries[second.clone()],
        keys: &keys[second.clone()],
        values: &values[second.clone()],
        segments: &[70],
        ..call
    };
    assert_eq!(together[second], run(Isa::detect(), 1, &alone));
}
