use crate::{Attention, Cpu, CpuOptions, Isa, KvDType, KvShape, KvStore, Sequence, reference};

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
    (0..n).map(|i| (i as f32 * 0.737 + seed).sin() * 2.0).collect()
}

/// A store with one sequence in it, its blocks scattered among blocks of garbage.
struct Scene {
    kv: KvStore,
    table: Vec<u32>,
    heads: usize,
    queries: Vec<f32>,
}

impl Scene {
    fn new(shape: KvShape, group: usize, tokens: usize) -> Self {
        let needed = tokens.div_ceil(shape.block_tokens);
        let mut kv = KvStore::new(shape, 2 * needed + 1).expect("a small store");
        for block in 0..kv.blocks() {
            kv.block_mut(block as u32).fill(0xff);
        }
        let table: Vec<u32> = (0..needed as u32).map(|i| 2 * i + 1).rev().collect();
        let width = shape.kv_heads * shape.head_dim;
        let layer = shape.layers - 1;
        kv.write(
            layer,
            &table,
            0,
            &numbers(tokens * width, 0.1),
            &numbers(tokens * width, 0.5),
        );
        let heads = shape.kv_heads * group;
        Self {
            kv,
            table,
            heads,
            queries: numbers(tokens * heads * shape.head_dim, 0.9),
        }
    }

    /// Attention of tokens `start .. start + tokens` of the sequence.
    fn run(&self, cpu: Option<&Cpu>, start: usize, tokens: usize, window: Option<usize>) -> Vec<f32> {
        let width = self.heads * self.kv.shape().head_dim;
        let sequences = [Sequence {
            blocks: &self.table,
            start,
            tokens,
        }];
        let layer = self.kv.shape().layers - 1;
        let call = Attention {
            layer,
            heads: self.heads,
            scale: 0.2,
            window,
            sequences: &sequences,
        };
        let queries = &self.queries[start * width..(start + tokens) * width];
        let mut out = vec![f32::NAN; queries.len()];
        match cpu {
            Some(cpu) => cpu.attention(&self.kv, &call, queries, &mut out),
            None => reference::attention(&self.kv, &call, queries, &mut out),
        }
        out
    }
}

fn shape(head_dim: usize, kv_heads: usize, block_tokens: usize, dtype: KvDType) -> KvShape {
    KvShape {
        layers: 2,
        kv_heads,
        head_dim,
        block_tokens,
        dtype,
    }
}

fn assert_same(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    let differs = a.iter().zip(b).position(|(a, b)| a.to_bits() != b.to_bits());
    assert_eq!(differs, None, "{what}");
}

#[test]
fn is_near_the_reference_for_odd_shapes() {
    let shapes = [
        (shape(64, 3, 16, KvDType::F16), 3, 70, None),
        (shape(24, 2, 32, KvDType::F32), 2, 45, Some(20)),
        (shape(8, 1, 16, KvDType::BF16), 4, 33, Some(1)),
        (shape(24, 2, 16, KvDType::Fp8), 2, 70, Some(40)),
        (shape(7, 2, 48, KvDType::F32), 1, 50, None),
        (shape(80, 1, 64, KvDType::F16), 2, 300, Some(270)),
        (shape(16, 1, 16, KvDType::F32), 1, 1, None),
    ];
    for (shape, group, tokens, window) in shapes {
        let scene = Scene::new(shape, group, tokens);
        let expected = scene.run(None, 0, tokens, window);
        for cpu in cpus() {
            let got = scene.run(Some(&cpu), 0, tokens, window);
            for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
                assert!(
                    (got - expected).abs() < 5e-6,
                    "{shape:?} {:?} [{i}]: {got} is not {expected}",
                    cpu.isa()
                );
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_instruction_set_threads_or_chunks() {
    for (group, window) in [(3, None), (1, Some(100)), (2, None)] {
        let tokens = 530;
        let scene = Scene::new(shape(40, 2, 16, KvDType::F16), group, tokens);
        let width = scene.heads * 40;
        let cpus = cpus();
        let whole = scene.run(Some(&cpus[0]), 0, tokens, window);
        for cpu in &cpus[1..] {
            assert_same(&scene.run(Some(cpu), 0, tokens, window), &whole, "whole sequence");
        }
        let last = &cpus[cpus.len() - 1];
        for chunk in [1, 7, 16, 33, 256] {
            for start in (0..tokens).step_by(chunk) {
                let n = chunk.min(tokens - start);
                let got = scene.run(Some(last), start, n, window);
                assert_same(&got, &whole[start * width..(start + n) * width], "chunk");
            }
        }
        for cpu in &cpus {
            assert_same(
                &scene.run(Some(cpu), 529, 1, window),
                &whole[529 * width..],
                "last token alone",
            );
        }
    }
}

#[test]
fn sequences_of_a_batch_do_not_see_each_other() {
    let scene = Scene::new(shape(32, 2, 16, KvDType::F32), 2, 300);
    let width = scene.heads * 32;
    for cpu in cpus() {
        let sequence = |start, tokens| Sequence {
            blocks: &scene.table,
            start,
            tokens,
        };
        let sequences = [sequence(299, 1), sequence(0, 0), sequence(10, 25), sequence(40, 1)];
        let call = Attention {
            layer: 1,
            heads: 4,
            scale: 0.2,
            window: None,
            sequences: &sequences,
        };
        let rows = [299..300, 10..35, 40..41];
        let queries: Vec<f32> = rows
            .iter()
            .flat_map(|rows| &scene.queries[rows.start * width..rows.end * width])
            .copied()
            .collect();
        let mut out = vec![f32::NAN; queries.len()];
        cpu.attention(&scene.kv, &call, &queries, &mut out);
        let alone: Vec<f32> = rows
            .iter()
            .flat_map(|rows| scene.run(Some(&cpu), rows.start, rows.len(), None))
            .collect();
        assert_same(&out, &alone, "batch");
    }
}

#[test]
#[should_panic(expected = "2 blocks where 3 are needed")]
fn refuses_a_table_that_is_too_short() {
    let mut scene = Scene::new(shape(32, 2, 16, KvDType::F32), 2, 33);
    scene.table.truncate(2);
    scene.run(Some(&cpus()[0]), 32, 1, None);
}

#[test]
fn blocks_behind_the_window_are_not_looked_at() {
    for (window, block_tokens) in [(17, 16), (40, 16), (100, 32), (1, 16)] {
        let mut scene = Scene::new(shape(24, 2, block_tokens, KvDType::F32), 2, 330);
        for (start, tokens) in [(200, 1), (203, 90), (320, 10)] {
            let expected = scene.run(Some(&cpus()[0]), start, tokens, Some(window));
            let gone = (start + 1 - window) / block_tokens;
            let kept = scene.table.clone();
            scene.table[..gone].fill(u32::MAX);
            for cpu in cpus() {
                let got = scene.run(Some(&cpu), start, tokens, Some(window));
                assert_same(&got, &expected, "without the blocks behind");
            }
            scene.table = kept;
        }
    }
}
