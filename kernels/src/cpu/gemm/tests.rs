use crate::matrix::tests::weights;
use crate::{Arithmetic, Cpu, CpuOptions, DType, Isa, Matrix, reference};

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

fn inputs(n: usize, cols: usize) -> Vec<f32> {
    (0..n * cols)
        .map(|i| ((i * 37 % 1013) as f32 * 0.61).sin() * 2.0 + 0.1)
        .collect()
}

fn product(cpu: &Cpu, matrix: &Matrix, x: &[f32], n: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; n * matrix.rows()];
    cpu.matmul(x, n, &mut [(matrix, &mut out)]);
    out
}

/// An odd and a plain shape of every format.
fn shapes(dtype: DType) -> [(usize, usize); 2] {
    if dtype.is_float() {
        [(17, 33), (64, 128)]
    } else {
        [(17, dtype.block_len()), (83, 3 * dtype.block_len())]
    }
}

#[test]
fn exact_products_are_near_the_reference() {
    for dtype in DType::ALL {
        for (rows, cols) in shapes(dtype) {
            let bytes = weights(dtype, rows, cols, 11);
            let n = 3;
            let x = inputs(n, cols);
            let mut expected = vec![0.0; n * rows];
            reference::matmul(dtype, &bytes, cols, &x, &mut expected);
            for cpu in cpus() {
                let matrix = cpu
                    .matrix(dtype, rows, cols, &bytes, Arithmetic::Exact)
                    .expect("a good shape");
                let largest = expected.iter().fold(0.0f32, |max, x| max.max(x.abs()));
                for (got, expected) in product(&cpu, &matrix, &x, n).iter().zip(&expected) {
                    let near = (got - expected).abs() <= largest * 2e-6;
                    assert!(near, "{dtype:?} {rows}x{cols} {:?}: {got} is not {expected}", cpu.isa());
                }
            }
        }
    }
}

#[test]
fn eight_bit_products_differ_by_the_rounding_of_activations_alone() {
    for dtype in DType::ALL {
        for (rows, cols) in shapes(dtype) {
            let bytes = weights(dtype, rows, cols, 5);
            let n = 2;
            let mut x = inputs(n, cols);
            if !dtype.is_float() {
                round_to_eight_bits(&mut x);
            }
            let mut expected = vec![0.0; n * rows];
            reference::matmul(dtype, &bytes, cols, &x, &mut expected);
            for cpu in cpus() {
                let matrix = cpu
                    .matrix(dtype, rows, cols, &bytes, Arithmetic::Int8)
                    .expect("a good shape");
                let largest = expected.iter().fold(0.0f32, |max, x| max.max(x.abs()));
                for (got, expected) in product(&cpu, &matrix, &x, n).iter().zip(&expected) {
                    let near = (got - expected).abs() <= largest * 4e-6;
                    assert!(near, "{dtype:?} {rows}x{cols} {:?}: {got} is not {expected}", cpu.isa());
                }
            }
        }
    }
}

#[test]
fn two_digits_are_a_hundred_times_closer_to_exact_products_than_one() {
    for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_float()) {
        let (rows, cols) = shapes(dtype)[1];
        let bytes = weights(dtype, rows, cols, 7);
        let x = inputs(3, cols);
        for cpu in cpus() {
            let products = [Arithmetic::Exact, Arithmetic::Int8, Arithmetic::Int16].map(|arithmetic| {
                let matrix = cpu.matrix(dtype, rows, cols, &bytes, arithmetic).expect("a good shape");
                product(&cpu, &matrix, &x, 3)
            });
            let [exact, one, two] = &products;
            let error = |got: &[f32]| {
                got.iter()
                    .zip(exact)
                    .map(|(got, exact)| (got - exact).abs())
                    .fold(0.0, f32::max)
            };
            let largest = exact.iter().fold(0.0f32, |max, x| max.max(x.abs()));
            let limit = (error(one) / 100.0).max(largest * 4e-6);
            assert!(
                error(two) <= limit,
                "{dtype:?} {:?}: {} and {}",
                cpu.isa(),
                error(one),
                error(two)
            );
        }
    }
}

/// Makes every group of 32 one that 8 bits hold: whole multiples, up to 127, of a power of two.
fn round_to_eight_bits(x: &mut [f32]) {
    for block in x.chunks_exact_mut(32) {
        block
            .iter_mut()
            .for_each(|x| *x = (*x * 32.0).round().clamp(-126.0, 126.0) / 32.0);
        block[9] = 127.0 / 32.0;
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_in_any_batch_on_any_instruction_set_and_threads() {
    for dtype in DType::ALL {
        for arithmetic in [Arithmetic::Int8, Arithmetic::Int16, Arithmetic::Exact] {
            let (rows, cols) = shapes(dtype)[1];
            let bytes = weights(dtype, rows, cols, 23);
            let x = inputs(41, cols);
            let first = Cpu::new(CpuOptions {
                threads: 1,
                isa: Some(Isa::Scalar),
            })
            .expect("always there");
            let matrix = first
                .matrix(dtype, rows, cols, &bytes, arithmetic)
                .expect("a good shape");
            let alone: Vec<f32> = x
                .chunks_exact(cols)
                .flat_map(|row| product(&first, &matrix, row, 1))
                .collect();
            for cpu in cpus() {
                let sizes: &[usize] = if cpu.isa() == Isa::Scalar {
                    &[2, 9]
                } else {
                    &[1, 2, 3, 5, 7, 8, 9, 15, 23, 40, 41]
                };
                for n in sizes {
                    let got = product(&cpu, &matrix, &x[..n * cols], *n);
                    assert!(
                        same_bits(&got, &alone[..n * rows]),
                        "{dtype:?} {arithmetic:?} {n} tokens {:?}",
                        cpu.isa()
                    );
                }
            }
        }
    }
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

#[test]
fn runs_of_tokens_and_several_matrices_make_no_difference() {
    let cpu = &cpus()[cpus().len() - 1];
    let cols = 512;
    let x = inputs(300, cols);
    let make = |dtype, rows| {
        let bytes = weights(dtype, rows, cols, rows as u64);
        cpu.matrix(dtype, rows, cols, &bytes, Arithmetic::Int8)
            .expect("a good shape")
    };
    let (first, second, third) = (make(DType::Q4_1, 40), make(DType::Q6K, 24), make(DType::BF16, 33));
    let (mut a, mut b, mut c) = (vec![0.0; 300 * 40], vec![0.0; 300 * 24], vec![0.0; 300 * 33]);
    cpu.matmul(&x, 300, &mut [(&first, &mut a), (&second, &mut b), (&third, &mut c)]);
    for token in [0, 127, 128, 255, 256, 299] {
        let row = &x[token * cols..(token + 1) * cols];
        assert!(
            same_bits(&a[token * 40..(token + 1) * 40], &product(cpu, &first, row, 1)),
            "token {token}"
        );
        assert!(
            same_bits(&b[token * 24..(token + 1) * 24], &product(cpu, &second, row, 1)),
            "token {token}"
        );
        assert!(
            same_bits(&c[token * 33..(token + 1) * 33], &product(cpu, &third, row, 1)),
            "token {token}"
        );
    }
}

#[test]
fn no_tokens_no_work() {
    let cpu = &cpus()[0];
    let bytes = weights(DType::Q8_0, 16, 32, 1);
    let matrix = cpu
        .matrix(DType::Q8_0, 16, 32, &bytes, Arithmetic::Int8)
        .expect("a good shape");
    assert!(product(cpu, &matrix, &[], 0).is_empty());
}
