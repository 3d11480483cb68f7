use super::*;
use crate::{CpuOptions, Isa};

fn cpus() -> Vec<Cpu> {
    let isas = [Isa::Scalar, Isa::Avx2, Isa::Avx512];
    let available = isas.into_iter().filter(|isa| isa.available());
    let cpu = |isa| {
        Cpu::new(CpuOptions {
            threads: 2,
            isa: Some(isa),
        })
    };
    available
        .map(|isa| cpu(isa).expect("the instruction set is there"))
        .collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Numbers that repeat nowhere soon.
fn numbers(count: usize, offset: f32) -> Vec<f32> {
    (0..count)
        .map(|i| (i as f32 * 0.7 + offset).sin() * 3.0 + offset)
        .collect()
}

/// Values of erf from tables.
#[test]
fn gelu_has_the_tabulated_values() {
    let erf = [
        (0.0, 0.0),
        (0.5, 0.520_499_9),
        (1.0, 0.842_700_8),
        (2.0, 0.995_322_3),
        (3.0, 0.999_977_9),
    ];
    let inputs: Vec<f32> = erf
        .iter()
        .flat_map(|(z, _)| [*z, -*z])
        .map(|z: f32| z * std::f32::consts::SQRT_2)
        .collect();
    for cpu in cpus() {
        let mut computed = inputs.clone();
        cpu.gelu(&mut computed);
        for (i, (x, computed)) in inputs.iter().zip(&computed).enumerate() {
            let expected = x / 2.0 * (1.0 + erf[i / 2].1 * x.signum());
            assert!(
                (computed - expected).abs() < 5e-7,
                "gelu({x}): {computed}, expected {expected}"
            );
        }
    }
}

#[test]
fn gelu_vanishes_on_the_left_and_is_the_identity_on_the_right() {
    for cpu in cpus() {
        let mut x = [-40.0, -14.0, 14.0, 40.0];
        cpu.gelu(&mut x);
        assert!(x[0].abs() < 1e-30 && x[1].abs() < 1e-30, "{x:?}");
        assert_eq!(x[2..], [14.0, 40.0]);
    }
}

#[test]
fn a_norm_has_the_mean_and_variance_of_its_row() {
    for cols in [1, 15, 16, 24, 96, 1536] {
        let x = numbers(cols * 3, 0.3);
        let (weight, bias) = (numbers(cols, 1.1), numbers(cols, -0.2));
        for cpu in cpus() {
            let mut computed = x.clone();
            cpu.layer_norm_in_place(&mut computed, &weight, &bias, 1e-5);
            for (x, computed) in x.chunks_exact(cols).zip(computed.chunks_exact(cols)) {
                let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / cols as f64;
                let variance = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / cols as f64;
                for i in 0..cols {
                    let normed = (f64::from(x[i]) - mean) / (variance + 1e-5).sqrt();
                    let expected = normed * f64::from(weight[i]) + f64::from(bias[i]);
                    let difference = (f64::from(computed[i]) - expected).abs();
                    assert!(
                        difference < 2e-5 * (1.0 + expected.abs()),
                        "{cols} columns: {difference}"
                    );
                }
            }
        }
    }
}

#[test]
fn all_instruction_sets_give_the_same_bits() {
    let (x, weight, bias) = (numbers(37 * 4, 0.4), numbers(37, 0.9), numbers(37, 0.1));
    let results = cpus().into_iter().map(|cpu| {
        let mut result = x.clone();
        cpu.layer_norm_in_place(&mut result, &weight, &bias, 1e-5);
        cpu.gelu(&mut result);
        bits(&result)
    });
    let results: Vec<_> = results.collect();
    assert!(results.iter().all(|result| *result == results[0]));
}
