use crate::{Cpu, CpuOptions, Isa, reference};

fn cpus() -> Vec<Cpu> {
    let isas = [Isa::Scalar, Isa::Avx2, Isa::Avx512]
        .into_iter()
        .filter(|isa| isa.available());
    let cpu = |(isa, threads)| {
        Cpu::new(CpuOptions {
            threads,
            isa: Some(isa),
        })
        .expect("the isa is there")
    };
    isas.flat_map(|isa| [(isa, 1), (isa, 2)]).map(cpu).collect()
}

fn numbers(n: usize, seed: f32) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.73 + seed).sin() * 6.0).collect()
}

/// Runs `fast` on all processors, demands equal bits of all of them, and nearness to `slow`.
fn compare(what: &str, slow: &[f32], fast: impl Fn(&Cpu) -> Vec<f32>) {
    let cpus = cpus();
    let first = fast(&cpus[0]);
    for (i, (got, expected)) in first.iter().zip(slow).enumerate() {
        assert!(
            (got - expected).abs() <= 2e-6 * expected.abs().max(0.1),
            "{what}[{i}]: {got} is not {expected}"
        );
    }
    assert_eq!(first.len(), slow.len());
    for cpu in &cpus[1..] {
        let got = fast(cpu);
        let differs = got.iter().zip(&first).position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(differs, None, "{what} with {:?}, {} threads", cpu.isa(), cpu.threads());
    }
}

#[test]
fn norms() {
    for (rows, cols) in [(1, 1), (3, 24), (2, 16), (300, 161)] {
        let (x, weight) = (numbers(rows * cols, 0.3), numbers(cols, 1.1));
        let mut slow = vec![0.0; x.len()];
        reference::rms_norm(&x, &weight, 1e-5, &mut slow);
        compare("rms_norm", &slow, |cpu| {
            let mut out = vec![0.0; x.len()];
            cpu.rms_norm(&x, &weight, 1e-5, &mut out);
            out
        });
    }
}

#[test]
fn activations_and_sums() {
    for n in [1, 16, 33, 40_000] {
        let (x, y) = (numbers(n, 0.2), numbers(n, 2.0));
        let map = |f: fn(f32, f32) -> f32| x.iter().zip(&y).map(|(x, y)| f(*x, *y)).collect::<Vec<f32>>();
        let run = |cpu: &Cpu, f: fn(&Cpu, &mut [f32], &[f32])| {
            let mut out = x.clone();
            f(cpu, &mut out, &y);
            out
        };
        compare("silu_mul", &map(|x, y| reference::silu(x) * y), |cpu| {
            run(cpu, Cpu::silu_mul)
        });
        compare("gelu_tanh_mul", &map(|x, y| reference::gelu_tanh(x) * y), |cpu| {
            run(cpu, Cpu::gelu_tanh_mul)
        });
        compare("add_assign", &map(|x, y| x + y), |cpu| run(cpu, Cpu::add_assign));
    }
}

#[test]
fn bias_goes_to_every_row() {
    let (x, bias) = (numbers(90 * 300, 0.9), numbers(300, 0.4));
    let slow: Vec<f32> = x.iter().enumerate().map(|(i, x)| x + bias[i % 300]).collect();
    compare("add_bias", &slow, |cpu| {
        let mut out = x.clone();
        cpu.add_bias(&mut out, &bias);
        out
    });
}

#[test]
fn softmax_of_rows() {
    for (rows, cols) in [(1, 1), (4, 16), (3, 37), (500, 64)] {
        let x = numbers(rows * cols, 0.8);
        let mut slow = x.clone();
        slow.chunks_exact_mut(cols).for_each(reference::softmax);
        compare("softmax", &slow, |cpu| {
            let mut out = x.clone();
            cpu.softmax(&mut out, cols);
            out
        });
    }
}
