//! Measures a model without a server: prefill of 512 and 2048 tokens, and decoding at batch 1, 8 and 32.
//!
//! ```text
//! cargo run --release -p cluster-models --example bench -- MODEL [--threads 2] [--repeat 3] [--chunk 512] [--int8 | --exact]
//!     [--prefill 512,2048] [--batch 1,8,32] [--ranks TENSOR,EXPERT,SEQUENCE]
//! ```
//! Decoding starts after prompts of 128 tokens and makes 64 tokens per sequence; a figure is the best of the repeats after
//! one warm-up. Sampling is not included.
#![expect(clippy::print_stdout, reason = "a program that reports to its user")]

use std::{
    error::Error,
    path::PathBuf,
    time::{Duration, Instant},
};

use cluster_engine::{Batch, BlockId, Model, Outputs, SeqId, Slice, Wanted};
use cluster_models::{Arithmetic, Options, Ranks, open};

const PROMPT_TOKENS: usize = 128;
const DECODE_TOKENS: usize = 64;

struct Arguments {
    model: PathBuf,
    options: Options,
    repeat: usize,
    chunk: usize,
    prefills: Vec<usize>,
    batches: Vec<usize>,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut given = std::env::args().skip(1);
    let mut arguments = Arguments {
        model: PathBuf::new(),
        options: Options::new(2),
        repeat: 3,
        chunk: 512,
        prefills: vec![512, 2048],
        batches: vec![1, 8, 32],
    };
    while let Some(word) = given.next() {
        let mut numbers = || numbers(&given.next().ok_or("a number is missing")?);
        let one = |numbers: Vec<usize>| numbers.first().copied().ok_or("a number is missing");
        match word.as_str() {
            "--threads" => arguments.options.threads = one(numbers()?)?,
            "--repeat" => arguments.repeat = one(numbers()?)?.max(1),
            "--chunk" => arguments.chunk = one(numbers()?)?.max(1),
            "--prefill" => arguments.prefills = numbers()?,
            "--batch" => arguments.batches = numbers()?,
            "--ranks" => arguments.options.ranks = ranks(&numbers()?)?,
            "--int8" => arguments.options.arithmetic = Arithmetic::Int8,
            "--exact" => arguments.options.arithmetic = Arithmetic::Exact,
            path => arguments.model = path.into(),
        }
    }
    Ok(arguments)
}

/// A list such as `1,8,32`; `none` is the empty one.
fn numbers(list: &str) -> Result<Vec<usize>, Box<dyn Error>> {
    if list == "none" {
        return Ok(Vec::new());
    }
    Ok(list.split(',').map(str::parse).collect::<Result<_, _>>()?)
}

fn ranks(numbers: &[usize]) -> Result<Ranks, Box<dyn Error>> {
    let &[tensor, expert, sequence] = numbers else {
        return Err("three numbers of ranks are needed".into());
    };
    Ok(Ranks {
        tensor,
        expert,
        sequence,
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments {
        model,
        options,
        repeat,
        chunk,
        prefills,
        batches,
    } = arguments()?;
    let began = Instant::now();
    let loaded = open(&model, options)?;
    println!("{} opened in {:.2?}", model.display(), began.elapsed());
    println!(
        "{:?}, {} threads, {:?}, {:?}",
        loaded.facts, options.threads, options.arithmetic, options.ranks
    );

    for tokens in prefills {
        let mut bench = Bench::new(loaded.model()?, 1, tokens)?;
        let best = best_of(repeat, || bench.prefill(tokens, chunk))?;
        println!(
            "prefill {tokens:5}            {:9.1} tok/s",
            tokens as f64 / best.as_secs_f64()
        );
    }
    for batch in batches {
        let mut bench = Bench::new(loaded.model()?, batch, PROMPT_TOKENS + DECODE_TOKENS)?;
        let best = best_of(repeat, || bench.decode(batch))?;
        let tokens = batch * DECODE_TOKENS;
        println!(
            "decode at batch {batch:3}       {:9.1} tok/s",
            tokens as f64 / best.as_secs_f64()
        );
    }
    Ok(())
}

fn best_of(
    repeat: usize,
    mut run: impl FnMut() -> Result<Duration, Box<dyn Error>>,
) -> Result<Duration, Box<dyn Error>> {
    run()?;
    let mut best = Duration::MAX;
    for _ in 0..repeat {
        best = best.min(run()?);
    }
    Ok(best)
}

struct Bench {
    model: Box<dyn Model>,
    /// For each sequence its blocks, the same in every class.
    tables: Vec<Vec<BlockId>>,
    outputs: Outputs,
}

impl Bench {
    fn new(mut model: Box<dyn Model>, sequences: usize, tokens: usize) -> Result<Self, Box<dyn Error>> {
        let info = model.info().clone();
        let each = tokens.div_ceil(info.classes[0].block_tokens as usize) as u32;
        model.allocate(&vec![each * sequences as u32; info.classes.len()])?;
        let table = |sequence: u32| (sequence * each..(sequence + 1) * each).map(BlockId).collect();
        Ok(Self {
            model,
            tables: (0..sequences as u32).map(table).collect(),
            outputs: Outputs::default(),
        })
    }

    fn prefill(&mut self, tokens: usize, chunk: usize) -> Result<Duration, Box<dyn Error>> {
        let began = Instant::now();
        for start in (0..tokens).step_by(chunk) {
            let end = tokens.min(start + chunk);
            let wanted = if end == tokens { Wanted::Last } else { Wanted::None };
            self.step(1, start, end, wanted)?;
        }
        Ok(began.elapsed())
    }

    fn decode(&mut self, batch: usize) -> Result<Duration, Box<dyn Error>> {
        self.step(batch, 0, PROMPT_TOKENS, Wanted::Last)?;
        let began = Instant::now();
        for position in PROMPT_TOKENS..PROMPT_TOKENS + DECODE_TOKENS {
            self.step(batch, position, position + 1, Wanted::Last)?;
        }
        Ok(began.elapsed())
    }

    /// Runs the positions `start..end` of the first `batch` sequences.
    fn step(&mut self, batch: usize, start: usize, end: usize, wanted: Wanted) -> Result<(), Box<dyn Error>> {
        let info = self.model.info();
        let token =
            |sequence: usize, position: usize| ((sequence * 31 + position * 7919 + 13) as u32) % info.vocabulary;
        let tokens: Vec<Vec<u32>> = (0..batch)
            .map(|sequence| (start..end).map(|position| token(sequence, position)).collect())
            .collect();
        let tables: Vec<Vec<&[BlockId]>> = self
            .tables
            .iter()
            .map(|table| vec![table.as_slice(); info.classes.len()])
            .collect();
        let slices: Vec<Slice<'_>> = (0..batch)
            .map(|sequence| Slice {
                embedded: &[],
                seq: SeqId(sequence as u64),
                tokens: &tokens[sequence],
                start: start as u32,
                tables: &tables[sequence],
                wanted,
            })
            .collect();
        self.outputs.clear();
        self.model.forward(&Batch { slices: &slices }, &mut self.outputs)?;
        Ok(())
    }
}
