use super::super::math;
use super::*;

/// Applies something to sixteen numbers at a time.
struct Map<'a, F> {
    x: &'a [f32],
    out: &'a mut [f32],
    map: F,
}

/// e^x over a slice.
struct Exp;
/// 1 / (1 + e^-x) over a slice.
struct Sigmoid;

trait MapLanes {
    fn map<L: Lanes>(&self, l: L, x: L::F) -> L::F;
}

impl MapLanes for Exp {
    #[inline(always)]
    fn map<L: Lanes>(&self, l: L, x: L::F) -> L::F {
        math::exp(l, x)
    }
}

impl MapLanes for Sigmoid {
    #[inline(always)]
    fn map<L: Lanes>(&self, l: L, x: L::F) -> L::F {
        math::sigmoid(l, x)
    }
}

impl<F: MapLanes> Kernel for Map<'_, F> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        for (x, out) in self
            .x
            .as_chunks::<LANES>()
            .0
            .iter()
            .zip(self.out.as_chunks_mut::<LANES>().0)
        {
            // SAFETY: both arrays are of sixteen numbers.
            unsafe { l.store(out.as_mut_ptr(), self.map.map(l, l.load(x.as_ptr()))) };
        }
    }
}

fn isas() -> impl Iterator<Item = Isa> {
    [Isa::Scalar, Isa::Avx2, Isa::Avx512]
        .into_iter()
        .filter(|isa| isa.available())
}

fn map(isa: Isa, x: &[f32], map: impl MapLanes) -> Vec<f32> {
    let mut out = vec![0.0; x.len()];
    isa.run(Map { x, out: &mut out, map });
    out
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn exp_is_near_the_truth_and_the_same_everywhere() {
    let x: Vec<f32> = (0..16_000).map(|i| (i as f32 - 14_000.0) / 160.0).collect();
    let expected = map(Isa::Scalar, &x, Exp);
    for (x, got) in x.iter().zip(&expected).filter(|(x, _)| **x > -87.0) {
        let truth = f64::from(*x).exp();
        assert!(
            (f64::from(*got) / truth - 1.0).abs() < 2e-7,
            "e^{x} is {truth}, not {got}"
        );
    }
    for isa in isas() {
        assert_eq!(bits(&map(isa, &x, Exp)), bits(&expected), "{isa:?}");
        assert_eq!(
            bits(&map(isa, &x, Sigmoid)),
            bits(&map(Isa::Scalar, &x, Sigmoid)),
            "{isa:?}"
        );
    }
}

#[test]
fn exp_at_the_edges() {
    let mut x = [0.0; LANES];
    x[1] = f32::NEG_INFINITY;
    x[2] = -100.0;
    x[3] = f32::INFINITY;
    x[4] = f32::NAN;
    x[5] = -0.0;
    for isa in isas() {
        let e = map(isa, &x, Exp);
        assert_eq!((e[0], e[1], e[2], e[5]), (1.0, 0.0, 0.0, 1.0), "{isa:?}");
        assert!(e[3] > 1e38 && e[3].is_finite(), "{isa:?}: {}", e[3]);
        assert!(e[4].is_nan(), "{isa:?}: {}", e[4]);
    }
}

/// Every operation once, its results as bits.
struct Operations<'a> {
    x: [[f32; LANES]; 3],
    bytes: [u8; 4 * LANES],
    results: &'a mut Vec<u32>,
}

impl Operations<'_> {
    #[inline(always)]
    fn keep<L: Lanes>(&mut self, l: L, x: L::F) {
        let mut out = [0.0f32; LANES];
        // SAFETY: `out` has room for sixteen.
        unsafe { l.store(out.as_mut_ptr(), x) };
        self.results.extend(out.map(f32::to_bits));
    }

    #[inline(always)]
    fn keep_codes<L: Lanes>(&mut self, l: L, x: L::C) {
        let mut out = [0u8; 4 * LANES];
        // SAFETY: `out` has room for 64.
        unsafe { l.store_codes(out.as_mut_ptr(), x) };
        self.results.extend(out.map(u32::from));
    }
}

impl Kernel for Operations<'_> {
    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        let bytes = self.bytes;
        // SAFETY: all arrays have the sixteen numbers or 64 bytes that are loaded.
        let (a, b, c, codes) = unsafe {
            let [a, b, c] = [0, 1, 2].map(|i| l.load(self.x[i].as_ptr()));
            (a, b, c, l.load_codes(bytes.as_ptr()))
        };
        let sums = [l.sum(a), l.largest(a)].map(f32::to_bits);
        self.results.extend(sums);
        self.keep(l, l.add(a, b));
        self.keep(l, l.sub(a, b));
        self.keep(l, l.mul(a, b));
        self.keep(l, l.div(a, b));
        self.keep(l, l.fma(a, b, c));
        self.keep(l, l.max(a, b));
        self.keep(l, l.select_less(a, b, c, a));
        // SAFETY: 64 bytes are sixteen halves and more.
        let loads = unsafe { [l.load_bf16(bytes.as_ptr().cast()), l.load_i8(bytes.as_ptr().cast())] };
        self.keep(l, loads[0]);
        self.keep(l, loads[1]);
        self.keep_codes(l, l.bits::<0, 15>(codes));
        self.keep_codes(l, l.bits::<4, 15>(codes));
        self.keep_codes(l, l.bits::<6, 3>(codes));
        self.keep_codes(l, l.join::<4>(l.bits::<4, 15>(codes), l.bits::<2, 3>(codes)));
        self.keep_codes(l, l.look_up(l.bits::<0, 15>(codes), &crate::matrix::layout::E2M1));
        self.keep(l, l.byte::<0>(codes));
        self.keep(l, l.byte::<3>(codes));
        let four = i32::from_le_bytes([127, 0x81, 0x7f, 0x81]);
        self.keep(l, l.to_f32(l.dot::<true>(l.splat_i(-5), codes, four)));
        self.keep(l, l.to_f32(l.dot::<false>(l.splat_i(7), l.bits::<1, 127>(codes), four)));
    }
}

fn operations(isa: Isa, bytes: [u8; 4 * LANES]) -> Vec<u32> {
    let x = std::array::from_fn(|j| std::array::from_fn(|i| ((i * 7 + j * 13) as f32 * 0.71).sin() * 3.0));
    let mut results = Vec::new();
    isa.run(Operations {
        x,
        bytes,
        results: &mut results,
    });
    results
}

#[test]
fn every_operation_gives_the_same_bits_everywhere() {
    for step in [1usize, 3, 37, 101] {
        let bytes = std::array::from_fn(|i| (i * step + 128) as u8);
        let expected = operations(Isa::Scalar, bytes);
        for isa in isas() {
            let results = operations(isa, bytes);
            let differing = results
                .iter()
                .zip(&expected)
                .position(|(got, expected)| got != expected);
            assert_eq!(
                differing, None,
                "{isa:?}, bytes in steps of {step}: place of the first difference"
            );
            assert_eq!(results.len(), expected.len());
        }
    }
}

#[test]
fn halves_of_all_values_load_alike() {
    struct LoadHalves<'a>(&'a [u16; LANES], &'a mut [f32; LANES]);
    impl Kernel for LoadHalves<'_> {
        #[inline(always)]
        fn run<L: Lanes>(self, l: L) {
            // SAFETY: both arrays have sixteen.
            unsafe { l.store(self.1.as_mut_ptr(), l.load_f16(self.0.as_ptr())) };
        }
    }
    for first in (0..=u16::MAX).step_by(LANES) {
        let halves: [u16; LANES] = std::array::from_fn(|i| first + i as u16);
        for isa in isas() {
            let mut out = [0.0; LANES];
            isa.run(LoadHalves(&halves, &mut out));
            for (half, got) in halves.iter().zip(out) {
                let expected = half::f16::from_bits(*half).to_f32();
                assert!(
                    got == expected || got.is_nan() && expected.is_nan(),
                    "{isa:?}: {half:#x} is {expected}, not {got}"
                );
            }
        }
    }
}

#[test]
fn all_numbers_of_eight_bits_load_alike() {
    struct LoadBytes<'a>(&'a [u8; LANES], &'a mut [f32; LANES]);
    impl Kernel for LoadBytes<'_> {
        #[inline(always)]
        fn run<L: Lanes>(self, l: L) {
            // SAFETY: both arrays have sixteen.
            unsafe { l.store(self.1.as_mut_ptr(), l.load_e4m3(self.0.as_ptr())) };
        }
    }
    for first in (0..=u8::MAX).step_by(LANES) {
        let bytes: [u8; LANES] = std::array::from_fn(|i| first + i as u8);
        let expected = bytes.map(crate::reference::decode_e4m3);
        for isa in isas() {
            let mut out = [0.0; LANES];
            isa.run(LoadBytes(&bytes, &mut out));
            assert_eq!(bits(&out), bits(&expected), "{isa:?} from {first:#x}");
        }
    }
}
