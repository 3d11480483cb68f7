//! From one sample rate to another: each new sample is a weighted sum of old ones, the weights a sinc under a Kaiser
//! window that passes what both rates can carry.
//!
//! Weights are tabulated at 512 places between two samples and interpolated; the error of that is below 16-bit noise.

use std::f64::consts::PI;

/// Zero crossings of the sinc on either side.
const CROSSINGS: usize = 24;
/// Table entries from one zero crossing to the next.
const STEPS: usize = 512;
/// Where the pass band ends, as a part of the lower of both half rates.
const ROLL_OFF: f64 = 0.95;
/// The window's shape: about 90 dB.
const KAISER_BETA: f64 = 9.0;

/// `len` samples at rate `to` from `samples` at rate `from`; before and after them is silence.
pub(super) fn resample(samples: Vec<f32>, from: u32, to: u32, len: usize) -> Vec<f32> {
    if from == to {
        return samples;
    }
    let table = table();
    // Going down, the sinc is stretched so that it also removes what the new rate cannot carry.
    let cutoff = (f64::from(to) / f64::from(from)).min(1.0) * ROLL_OFF;
    let reach = CROSSINGS as f64 / cutoff;
    let mut resampled = Vec::with_capacity(len);
    for index in 0..len as u64 {
        // Whole and broken part apart: a product in floats would drift over hours.
        let scaled = index * u64::from(from);
        let place = (scaled / u64::from(to)) as f64 + (scaled % u64::from(to)) as f64 / f64::from(to);
        let first = (place - reach).ceil().max(0.0) as usize;
        let end = ((place + reach).floor() as usize + 1).min(samples.len());
        let mut sum = 0.0;
        for (offset, sample) in samples[first.min(end)..end].iter().enumerate() {
            let distance = (place - (first + offset) as f64).abs() * cutoff;
            sum += f64::from(*sample) * weight(&table, distance);
        }
        resampled.push(((sum * cutoff) as f32).clamp(-1.0, 1.0));
    }
    resampled
}

/// The weight at `distance` zero crossings from the middle.
fn weight(table: &[f64], distance: f64) -> f64 {
    let place = distance * STEPS as f64;
    let index = place as usize;
    match table.get(index..index + 2) {
        Some([left, right]) => left + (right - left) * (place - index as f64),
        _ => 0.0,
    }
}

fn table() -> Vec<f64> {
    let len = CROSSINGS * STEPS;
    let entry = |index: usize| {
        let x = PI * index as f64 / STEPS as f64;
        let sinc = if index == 0 { 1.0 } else { x.sin() / x };
        let place = index as f64 / len as f64;
        sinc * bessel(KAISER_BETA * (1.0 - place * place).sqrt()) / bessel(KAISER_BETA)
    };
    (0..=len).map(entry).collect()
}

/// The modified Bessel function of order 0, by its power series.
fn bessel(x: f64) -> f64 {
    let (mut sum, mut term, mut index) = (1.0, 1.0, 1.0);
    while term > sum * 1e-17 {
        term *= (x / 2.0 / index) * (x / 2.0 / index);
        sum += term;
        index += 1.0;
    }
    sum
}
