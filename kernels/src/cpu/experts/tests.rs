use crate::matrix::tests::weights;
use crate::{Activation, Arithmetic, Cpu, CpuOptions, DType, Expert, Matrix, Routing};

fn cpu() -> Cpu {
    Cpu::new(CpuOptions { threads: 2, isa: None }).expect("two threads")
}

#[test]
fn routes_to_the_largest_and_to_the_lower_index_among_equals() {
    let logits = [0.0, 2.0, 2.0, 1.0, 5.0, -1.0, 0.0, 0.0];
    let routing = cpu().route(&logits, 4, 2, true);
    assert_eq!(routing.tokens(), 2);
    let experts = |token: usize| routing.token(token).iter().map(|choice| choice.0).collect::<Vec<_>>();
    assert_eq!((experts(0), experts(1)), (vec![1, 2], vec![0, 2]));
    for token in 0..2 {
        let sum: f32 = routing.token(token).iter().map(|choice| choice.1).sum();
        assert!((sum - 1.0).abs() < 1e-6, "normalized weights sum to {sum}");
    }
    let plain = cpu().route(&logits, 4, 2, false);
    assert!(
        plain.token(0).iter().map(|choice| choice.1).sum::<f32>() < 0.9,
        "the others' share is not redistributed"
    );
}

#[test]
fn a_token_gets_the_same_from_its_experts_alone_and_among_others() {
    let cpu = cpu();
    let (width, inner, tokens) = (64, 96, 13);
    let matrix = |rows, cols, seed| {
        let bytes = weights(DType::Q8_0, rows, cols, seed);
        cpu.matrix(DType::Q8_0, rows, cols, &bytes, Arithmetic::Int8)
            .expect("a good shape")
    };
    let matrices: Vec<[Matrix; 3]> = (1..5)
        .map(|seed| {
            [
                matrix(inner, width, seed),
                matrix(inner, width, seed + 10),
                matrix(width, inner, seed + 20),
            ]
        })
        .collect();
    let experts: Vec<Expert<'_>> = matrices
        .iter()
        .map(|[gate, up, down]| Expert { gate, up, down })
        .collect();
    let x: Vec<f32> = (0..tokens * width).map(|i| (i as f32 * 0.17).sin()).collect();
    let logits: Vec<f32> = (0..tokens * 4).map(|i| (i as f32 * 1.3).cos()).collect();
    let routing = cpu.route(&logits, 4, 2, true);
    let mut together = vec![0.0; x.len()];
    apply(&cpu, &x, &routing, &experts, &mut together);
    for token in 0..tokens {
        let x = &x[token * width..(token + 1) * width];
        let mut expected = vec![0.0; width];
        for (expert, weight) in routing.token(token) {
            let Expert { gate, up, down } = experts[*expert as usize];
            let (mut g, mut u, mut d) = (vec![0.0; inner], vec![0.0; inner], vec![0.0; width]);
            cpu.matmul(x, 1, &mut [(gate, &mut g), (up, &mut u)]);
            cpu.silu_mul(&mut g, &u);
            cpu.matmul(&g, 1, &mut [(down, &mut d)]);
            expected
                .iter_mut()
                .zip(&d)
                .for_each(|(sum, d)| *sum = weight.mul_add(*d, *sum));
        }
        assert_eq!(together[token * width..(token + 1) * width], expected, "token {token}");
        let mut alone = vec![0.0; width];
        let routing = Routing::new(2, routing.token(token).to_vec());
        apply(&cpu, x, &routing, &experts, &mut alone);
        assert_eq!(alone, expected, "token {token} alone");
    }
}

fn apply(cpu: &Cpu, x: &[f32], routing: &Routing, experts: &[Expert<'_>], out: &mut [f32]) {
    let mut answers = Vec::new();
    cpu.expert_rows(x, routing, experts, 0, Activation::Silu, &mut answers);
    cpu.combine(routing, &answers, 0..experts.len(), out);
}

#[test]
fn a_bias_chooses_and_does_not_weigh() {
    let logits = [0.0, 1.0, -1.0, 2.0];
    let bias = [0.9, 0.0, 0.0, -0.5];
    let routing = cpu().route_by_sigmoid(&logits, &bias, 2, 3.0);
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    let sum = sigmoid(0.0) + sigmoid(1.0);
    let [(first, a), (second, b)] = routing.token(0) else {
        panic!("two choices")
    };
    assert_eq!((*first, *second), (0, 1), "3 is the largest but for its bias");
    assert!((a - 3.0 * sigmoid(0.0) / sum).abs() < 1e-6);
    assert!((b - 3.0 * sigmoid(1.0) / sum).abs() < 1e-6);
}

#[test]
fn experts_that_are_elsewhere_add_nothing() {
    let routing = Routing::new(2, vec![(0, 0.5), (3, 2.0), (1, 1.0), (2, 4.0)]);
    let answers = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let mut out = [f32::NAN; 4];
    cpu().combine(&routing, &answers, 2..4, &mut out);
    assert_eq!(out, [6.0, 8.0, 28.0, 32.0]);
    cpu().combine(&routing, &answers, 4..4, &mut out);
    assert_eq!(out, [0.0; 4]);
}
