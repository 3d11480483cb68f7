use crate::{Cpu, CpuOptions, Isa};

fn run(isa: Isa, x: &[f32], taps: &[f32], bias: &[f32]) -> Vec<f32> {
    let options = CpuOptions {
        threads: 2,
        isa: Some(isa),
    };
    let mut out = vec![0.0; x.len()];
    Cpu::new(options)
        .expect("the instruction set is there")
        .causal_convolution(x, taps, bias, &mut out);
    out
}

#[test]
fn each_channel_sees_its_own_past() {
    // Two channels, two taps: the first weighs the step before, the second the step itself.
    let x = [1.0, 10.0, 2.0, 20.0, 3.0, 30.0];
    let out = run(Isa::Scalar, &x, &[0.5, 0.0, 2.0, 1.0], &[100.0, -1.0]);
    assert_eq!(out, [102.0, 9.0, 104.5, 19.0, 107.0, 29.0]);
}

#[test]
fn long_sounds_are_cut_without_a_trace() {
    let numbers = |count: usize, step: f32| (0..count).map(|i| (i as f32 * step).sin()).collect::<Vec<_>>();
    for (steps, channels) in [(3, 5), (700, 48), (40, 1024)] {
        let (x, taps) = (numbers(steps * channels, 0.3), numbers(7 * channels, 0.7));
        let bias = numbers(channels, 1.3);
        let computed = run(Isa::detect(), &x, &taps, &bias);
        let scalar = run(Isa::Scalar, &x, &taps, &bias);
        assert_eq!(computed, scalar, "the same operations in the same order");
        for step in [0, 1, steps / 2, steps - 1] {
            for channel in [0, channels - 1] {
                let product = |tap: usize| {
                    let from = (step + tap).checked_sub(6)?;
                    Some(f64::from(x[from * channels + channel]) * f64::from(taps[tap * channels + channel]))
                };
                let expected = f64::from(bias[channel]) + (0..7).filter_map(product).sum::<f64>();
                let got = f64::from(computed[step * channels + channel]);
                assert!((got - expected).abs() < 1e-5, "step {step}: {got}, expected {expected}");
            }
        }
    }
}
