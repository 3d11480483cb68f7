use crate::{Cpu, CpuOptions, Isa, RopeStyle, Rotations, reference};

#[test]
fn rotates_as_the_reference_on_every_instruction_set() {
    let (heads, dim) = (3, 24);
    let positions = [0, 1, 5, 900];
    let x: Vec<f32> = (0..positions.len() * heads * dim)
        .map(|i| (i as f32 * 0.31).cos())
        .collect();
    for pairs in [12, 5] {
        let frequencies: Vec<f32> = (0..pairs).map(|i| 10_000f32.powf(-(i as f32) / pairs as f32)).collect();
        let rotations = Rotations::new(&positions, &frequencies, 1.0);
        assert_eq!(rotations.len(), 4);
        for style in [RopeStyle::HalfSplit, RopeStyle::Neighbour] {
            let mut expected = x.clone();
            reference::rope(&mut expected, dim, &positions, &frequencies, style);
            for isa in [Isa::Scalar, Isa::Avx2, Isa::Avx512]
                .into_iter()
                .filter(|isa| isa.available())
            {
                let cpu = Cpu::new(CpuOptions {
                    threads: 1,
                    isa: Some(isa),
                })
                .expect("the isa is there");
                let mut got = x.clone();
                cpu.rope(&mut got, dim, &rotations, style);
                assert_eq!(got, expected, "{style:?} {isa:?}");
            }
        }
    }
}

#[test]
fn magnitude_scales_and_position_zero_keeps() {
    let cpu = Cpu::new(CpuOptions { threads: 1, isa: None }).expect("one thread");
    let mut x = vec![1.0, 2.0, 3.0, 4.0];
    cpu.rope(&mut x, 4, &Rotations::new(&[0], &[1.0, 0.5], 1.5), RopeStyle::HalfSplit);
    assert_eq!(x, [1.5, 3.0, 4.5, 6.0]);
    cpu.rope(&mut [], 4, &Rotations::new(&[], &[1.0], 1.0), RopeStyle::Neighbour);
}
