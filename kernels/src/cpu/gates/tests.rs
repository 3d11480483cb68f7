use crate::{Cpu, CpuOptions, Isa};

fn cpus() -> Vec<Cpu> {
    let isas = [Isa::Scalar, Isa::Avx2, Isa::Avx512].into_iter();
    let isas = isas.filter(|isa| isa.available());
    isas.map(|isa| {
        Cpu::new(CpuOptions {
            threads: 2,
            isa: Some(isa),
        })
        .expect("the isa is there")
    })
    .collect()
}

fn numbers(len: usize, seed: f32) -> Vec<f32> {
    (0..len).map(|i| (i as f32 * 0.713 + seed).sin() * 6.0).collect()
}

fn near(got: &[f32], expected: impl Iterator<Item = f64>, tolerance: f64) {
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(*got) - expected).abs();
        assert!(
            error <= tolerance * expected.abs().max(1e-6),
            "[{i}]: {got} is not {expected}"
        );
    }
}

#[test]
fn the_soft_cap_is_near_tanh_for_small_and_large_numbers() {
    let mut x = numbers(1003, 0.2);
    x.extend([0.0, 1e-6, -1e-3, 0.3, 5.1, -5.3, 80.0, -3e4, f32::MAX]);
    let expected = |x: &f32| 20.0 * (f64::from(*x) * f64::from(1.25_f32) / 20.0).tanh();
    let mut bits: Option<Vec<u32>> = None;
    for cpu in cpus() {
        let mut got = x.clone();
        cpu.soft_cap(&mut got, 1.25, 20.0);
        near(&got, x.iter().map(expected), 5e-7);
        let own: Vec<u32> = got.iter().map(|x| x.to_bits()).collect();
        assert_eq!(*bits.get_or_insert_with(|| own.clone()), own, "{:?}", cpu.isa());
    }
}

#[test]
fn a_sigmoid_gate_weighs_every_number() {
    let (x, gate) = (numbers(77, 0.1), numbers(77, 1.9));
    for cpu in cpus() {
        let mut got = x.clone();
        cpu.sigmoid_mul(&mut got, &gate);
        let expected = x.iter().zip(&gate);
        near(
            &got,
            expected.map(|(x, gate)| f64::from(*x) / (1.0 + (-f64::from(*gate)).exp())),
            1e-6,
        );
    }
}

#[test]
fn rows_are_blended_and_multiplied_with_one_row_of_factors() {
    let (stream, branch) = (numbers(4 * 19, 0.3), numbers(4 * 19, 2.3));
    let (keep, take) = (numbers(19, 0.7), numbers(19, 1.7));
    for cpu in cpus() {
        let mut got = stream.clone();
        cpu.blend(&mut got, &branch, &keep, &take);
        for (i, got) in got.iter().enumerate() {
            let expected = keep[i % 19] * stream[i] + take[i % 19] * branch[i];
            assert!((got - expected).abs() < 1e-4, "[{i}]: {got} is not {expected}");
        }
        let mut got = stream.clone();
        cpu.mul_rows(&mut got, &keep);
        let expected: Vec<f32> = (0..got.len()).map(|i| stream[i] * keep[i % 19]).collect();
        assert_eq!(got, expected);
    }
}
