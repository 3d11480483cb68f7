//! How long a media model takes for pictures: `encode FOLDER [ranks] [threads]`.
#![expect(clippy::print_stdout, reason = "it is a program for the command line")]

use std::{path::Path, time::Instant};

use cluster_engine::{Decoded, MediaEncoder};
use cluster_models::media::{MediaOptions, open};

const SIDES: [u32; 3] = [56, 112, 448];
const ROUNDS: usize = 21;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).map_or(Ok(1), |text| text.parse());
    let folder = arguments.first().ok_or("which folder?")?;
    let options = MediaOptions {
        ranks: number(1)?,
        threads: number(2)?,
    };
    let model = open(Path::new(folder), options)?.ok_or("the checkpoint has no towers")?;
    let mut encoder = model.encoder()?;
    for (side, count) in SIDES.iter().flat_map(|side| [1, 8].map(|count| (*side, count))) {
        let rgb: Vec<u8> = (0..side * side * 3).map(|i| (i % 251) as u8).collect();
        let picture = Decoded::Image {
            width: side,
            height: side,
            rgb: &rgb,
        };
        let batch = vec![picture; count];
        let tokens = model.rules().image_tokens(side, side)?;
        let mut times: Vec<f64> = Vec::new();
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            encoder.encode(&batch)?;
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        let (best, median) = (times[0], times[ROUNDS / 2]);
        println!("{count} x {side} x {side}, {tokens} tokens each: best {best:.2} ms, median {median:.2} ms");
    }
    Ok(())
}
