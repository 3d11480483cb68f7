//! Speed of the kernels next to this machine's own limits, measured in the same run.
//!
//! `cargo run --release -p cluster-kernels --example bench [-- THREADS [FILTER [ISA]]]`
//!
//! FILTER is part of limits, collectives, products, attention or model; ISA is scalar or avx2 where the best is not wanted.
//!
//! Prints the best of several rounds: on a shared machine the best is the least disturbed. Limits: reading a buffer with
//! the same threads (GB/s), and the processor's products without any memory (GFLOP/s).
#![expect(clippy::print_stdout, reason = "a program whose output is its purpose")]

use std::hint::black_box;
use std::time::Instant;

use cluster_kernels::{
    Arithmetic, Attention, Collective, Cpu, CpuOptions, DType, Isa, KvDType, KvShape, KvStore, Matrix, RopeStyle,
    Rotations, Sequence, shared_memory,
};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().and_then(|threads| threads.parse().ok()).unwrap_or(2);
    let filter = arguments.next().unwrap_or_default();
    let isa = match arguments.next().as_deref() {
        Some("scalar") => Some(Isa::Scalar),
        Some("avx2") => Some(Isa::Avx2),
        _ => None,
    };
    let cpu = Cpu::new(CpuOptions { threads, isa }).expect("threads can be started");
    println!("{:?}, {threads} threads", cpu.isa());
    if "limits".contains(&filter) {
        limits(threads);
    }
    if "collectives".contains(&filter) {
        collectives();
    }
    if "products".contains(&filter) {
        products(&cpu);
    }
    if "attention".contains(&filter) {
        attention(&cpu);
    }
    if "model".contains(&filter) {
        model(&cpu, DType::Q4_1);
        model(&cpu, DType::Q8_0);
        model(&cpu, DType::BF16);
    }
}

/// Seconds of the fastest of some rounds.
fn best(mut run: impl FnMut()) -> f64 {
    run();
    let round = |_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    };
    (0..40).map(round).fold(f64::INFINITY, f64::min)
}

/// Seconds that this thread has run, where the system tells (Linux). Other programs' shares are not in it.
fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? * 1e-9)
}

/// Seconds of one of `count` calls in a row.
fn best_of(count: usize, mut run: impl FnMut()) -> f64 {
    best(|| (0..count).for_each(|_| run())) / count as f64
}

fn limits(threads: usize) {
    for megabytes in [1usize, 8, 98, 270] {
        let buffers: Vec<Vec<u64>> = (0..threads).map(|_| vec![1; (megabytes << 17) / threads]).collect();
        let seconds = best(|| {
            std::thread::scope(|scope| {
                for buffer in &buffers {
                    scope.spawn(move || {
                        // Small buffers are read often enough for the thread's start not to matter.
                        for _ in 0..repeats(megabytes) {
                            black_box(black_box(buffer).iter().fold(0u64, |sum, x| sum.wrapping_add(*x)));
                        }
                    });
                }
            });
        }) / repeats(megabytes) as f64;
        println!(
            "read {megabytes:4} MB: {:6.1} GB/s",
            megabytes as f64 * 1.048_576e-3 / seconds
        );
    }
}

/// Every rank is a thread that does nothing else; with more ranks than cores they take turns.
fn collectives() {
    const CALLS: usize = 50;
    for ranks in [2, 4, 8] {
        for len in [4096, 65536] {
            let seconds = std::thread::scope(|scope| {
                let run = |member: cluster_kernels::SharedMemory| {
                    let mut values = numbers(len);
                    best_of(CALLS, || member.all_reduce(&mut values).expect("all ranks are there"))
                };
                let members = shared_memory(ranks).into_iter();
                let threads: Vec<_> = members.map(|member| scope.spawn(move || run(member))).collect();
                let seconds = threads.into_iter().map(|thread| thread.join().expect("a rank ends"));
                seconds.fold(0.0, f64::max)
            });
            println!("all_reduce of {len} floats, {ranks} ranks: {:.1} us", seconds * 1e6);
        }
    }
}

fn repeats(megabytes: usize) -> usize {
    (400 / megabytes).max(1)
}

fn matrix(cpu: &Cpu, dtype: DType, rows: usize, cols: usize, arithmetic: Arithmetic) -> Matrix {
    // Small numbers in every format: scales are halves of about 1/64.
    let bytes: Vec<u8> = (0..rows * dtype.row_bytes(cols)).map(|i| [0x24, 0x28][i % 2]).collect();
    cpu.matrix(dtype, rows, cols, &bytes, arithmetic).expect("a good shape")
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i % 997) as f32 * 0.013).sin()).collect()
}

fn products(cpu: &Cpu) {
    println!(
        "{:>22} {:>16} {:>6} {:>10} {:>8}",
        "format", "rows x cols", "tokens", "GFLOP/s", "GB/s"
    );
    let formats = [
        (DType::Q4_0, Arithmetic::Int8),
        (DType::Q4_1, Arithmetic::Int8),
        (DType::Q5_0, Arithmetic::Int8),
        (DType::Q8_0, Arithmetic::Int8),
        (DType::Q4K, Arithmetic::Int8),
        (DType::Q6K, Arithmetic::Int8),
        (DType::Nvfp4, Arithmetic::Int8),
        (DType::Nvfp4, Arithmetic::Int16),
        (DType::Mxfp4, Arithmetic::Int8),
        (DType::Int4, Arithmetic::Int8),
        (DType::F8E4M3, Arithmetic::Exact),
        (DType::Q4_1, Arithmetic::Exact),
        (DType::BF16, Arithmetic::Exact),
        (DType::F16, Arithmetic::Exact),
        (DType::F32, Arithmetic::Exact),
    ];
    for (dtype, arithmetic) in formats {
        for (rows, cols, tokens) in [
            (1536, 768, 1),
            (1536, 768, 8),
            (1536, 768, 16),
            (1536, 768, 512),
            (16384, 2048, 1),
        ] {
            let matrix = matrix(cpu, dtype, rows, cols, arithmetic);
            let x = numbers(tokens * cols);
            let mut out = vec![0.0; tokens * rows];
            let operations = 2.0 * (rows * cols * tokens) as f64;
            let seconds = best_of((1e8 / operations) as usize + 1, || {
                cpu.matmul(&x, tokens, &mut [(&matrix, &mut out)]);
            });
            let format = format!("{dtype:?} {arithmetic:?}");
            let shape = format!("{rows} x {cols}");
            let (gflops, gbps) = (operations / seconds * 1e-9, matrix.bytes() as f64 / seconds * 1e-9);
            println!("{format:>22} {shape:>16} {tokens:6} {gflops:10.1} {gbps:8.1}");
        }
    }
}

fn attention(cpu: &Cpu) {
    for dtype in [KvDType::F16, KvDType::Fp8] {
        attention_over(cpu, dtype);
    }
}

fn attention_over(cpu: &Cpu, dtype: KvDType) {
    let shape = KvShape {
        layers: 1,
        kv_heads: 3,
        head_dim: 64,
        block_tokens: 16,
        dtype,
    };
    for (context, tokens) in [(512, 512), (2048, 512), (512, 1), (4096, 1)] {
        let mut kv = KvStore::new(shape, context / 16).expect("memory");
        let table: Vec<u32> = (0..context as u32 / 16).collect();
        let rows = numbers(context * 192);
        let written = best(|| kv.write(0, &table, 0, &rows, &rows));
        let sequences = [Sequence {
            blocks: &table,
            start: context - tokens,
            tokens,
        }];
        let call = Attention {
            layer: 0,
            heads: 9,
            scale: 0.125,
            window: None,
            sequences: &sequences,
        };
        let queries = numbers(tokens * 576);
        let mut out = vec![0.0; tokens * 576];
        let seconds = best(|| cpu.attention(&kv, &call, &queries, &mut out));
        let pairs: usize = (context - tokens..context).map(|position| position + 1).sum();
        let gflops = (pairs * 9 * 64 * 4) as f64 / seconds * 1e-9;
        let us = seconds * 1e6;
        println!(
            "attention {dtype:?} {tokens} tokens at the end of {context}: {us:.0} us, {gflops:.1} GFLOP/s; write {:.0} us",
            written * 1e6
        );
    }
}

/// One layer's weights of SmolLM2-135M.
struct Layer {
    query: Matrix,
    key: Matrix,
    value: Matrix,
    output: Matrix,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
}

/// A whole step of SmolLM2-135M's shape: all products, norms, rotation and attention, without sampling.
fn model(cpu: &Cpu, dtype: DType) {
    let make = |rows, cols| matrix(cpu, dtype, rows, cols, Arithmetic::Int8);
    let layers: Vec<Layer> = (0..30)
        .map(|_| Layer {
            query: make(576, 576),
            key: make(192, 576),
            value: make(192, 576),
            output: make(576, 576),
            gate: make(1536, 576),
            up: make(1536, 576),
            down: make(576, 1536),
        })
        .collect();
    let head_type = if dtype.is_float() { dtype } else { DType::Q8_0 };
    let head = matrix(cpu, head_type, 49152, 576, Arithmetic::Int8);
    let shape = KvShape {
        layers: 30,
        kv_heads: 3,
        head_dim: 64,
        block_tokens: 16,
        dtype: KvDType::F16,
    };
    for (sequences, tokens, context) in [
        (1, 512, 512),
        (1, 1, 256),
        (4, 1, 256),
        (8, 1, 256),
        (16, 1, 256),
        (32, 1, 256),
    ] {
        let blocks = context / 16;
        let mut kv = KvStore::new(shape, blocks * sequences).expect("memory");
        let tables: Vec<Vec<u32>> = (0..sequences)
            .map(|s| (0..blocks).map(|b| (s * blocks + b) as u32).collect())
            .collect();
        let start = context - tokens;
        let n = sequences * tokens;
        let mut state = State::new(n);
        let mut logits = vec![0.0; sequences * 49152];
        let mut steps = 0;
        let before = processor_seconds();
        let seconds = best(|| {
            steps += 1;
            state.step(cpu, &layers, &mut kv, &tables, start, tokens);
            let last: Vec<f32> = state
                .h
                .chunks_exact(tokens * 576)
                .flat_map(|rows| &rows[(tokens - 1) * 576..])
                .copied()
                .collect();
            cpu.matmul(&last, sequences, &mut [(&head, &mut logits)]);
        });
        let kind = if tokens > 1 { "prefill" } else { "decode" };
        let own = before
            .zip(processor_seconds())
            .map_or(f64::NAN, |(before, after)| (after - before) / f64::from(steps));
        println!(
            "{dtype:?} model {kind:>8} {sequences:2} x {tokens:3} at {context}: {:8.0} tok/s, {:.2} ms, caller's own time {:.2} ms",
            n as f64 / seconds,
            seconds * 1e3,
            own * 1e3
        );
    }
}

struct State {
    h: Vec<f32>,
    x: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
}

impl State {
    fn new(n: usize) -> Self {
        let zeros = |width: usize| vec![0.0; n * width];
        Self {
            h: numbers(n * 576),
            x: zeros(576),
            q: zeros(576),
            k: zeros(192),
            v: zeros(192),
            gate: zeros(1536),
            up: zeros(1536),
        }
    }

    fn step(
        &mut self,
        cpu: &Cpu,
        layers: &[Layer],
        kv: &mut KvStore,
        tables: &[Vec<u32>],
        start: usize,
        tokens: usize,
    ) {
        let n = tables.len() * tokens;
        let positions: Vec<u32> = tables
            .iter()
            .flat_map(|_| start as u32..(start + tokens) as u32)
            .collect();
        let frequencies: Vec<f32> = (0..32).map(|i| 1e5f32.powf(-(i as f32) / 32.0)).collect();
        let rotations = Rotations::new(&positions, &frequencies, 1.0);
        let sequences: Vec<Sequence<'_>> = tables.iter().map(|blocks| Sequence { blocks, start, tokens }).collect();
        let weight = [1.0; 576];
        for (index, layer) in layers.iter().enumerate() {
            let Self {
                h,
                x,
                q,
                k,
                v,
                gate,
                up,
            } = self;
            cpu.rms_norm(h, &weight, 1e-5, x);
            cpu.matmul(x, n, &mut [(&layer.query, q), (&layer.key, k), (&layer.value, v)]);
            cpu.rope(q, 64, &rotations, RopeStyle::Neighbour);
            cpu.rope(k, 64, &rotations, RopeStyle::Neighbour);
            for (s, table) in tables.iter().enumerate() {
                let rows = s * tokens * 192..(s + 1) * tokens * 192;
                kv.write(index, table, start, &k[rows.clone()], &v[rows]);
            }
            let call = Attention {
                layer: index,
                heads: 9,
                scale: 0.125,
                window: None,
                sequences: &sequences,
            };
            cpu.attention(kv, &call, q, x);
            cpu.matmul(x, n, &mut [(&layer.output, q)]);
            cpu.add_assign(h, q);
            cpu.rms_norm(h, &weight, 1e-5, x);
            cpu.matmul(x, n, &mut [(&layer.gate, gate), (&layer.up, up)]);
            cpu.silu_mul(gate, up);
            cpu.matmul(gate, n, &mut [(&layer.down, x)]);
            cpu.add_assign(h, x);
        }
    }
}
