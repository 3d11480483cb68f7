//! Resampling of pictures, bit for bit as the common imaging library does it: first along rows, then along columns, with
//! whole-number coefficients of 22 bits, each pass rounded to 8 bits. A shrinking filter is widened, so that no pixel is left out.
//!
//! The model's makers prepared their pictures with that library; a resampling in floats differs by up to twenty grey levels at
//! hard edges.

/// Binary places of a coefficient: 8 bits of a pixel and two for overshoot leave as many in 32.
const PRECISION: u32 = 22;
/// Red, green, blue.
pub(crate) const CHANNELS: usize = 3;

/// How a pixel's neighbours are weighed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filter {
    /// Three lobes.
    Lanczos,
    /// Linear.
    Triangle,
    /// Cubic with a = -1/2.
    Cubic,
}

impl Filter {
    fn support(self) -> f64 {
        match self {
            Filter::Lanczos => 3.0,
            Filter::Triangle => 1.0,
            Filter::Cubic => 2.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let distance = x.abs();
        match self {
            Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Filter::Triangle if distance < 1.0 => 1.0 - distance,
            Filter::Cubic if distance < 1.0 => ((A + 2.0) * distance - (A + 3.0)) * distance * distance + 1.0,
            Filter::Cubic if distance < 2.0 => (((distance - 5.0) * distance + 8.0) * distance - 4.0) * A,
            _ => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * std::f64::consts::PI;
    x.sin() / x
}

/// A picture `[height, width, 3]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Picture {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) rgb: Vec<u8>,
}

/// Brings a picture to another size.
pub(crate) fn resize(picture: Picture, height: usize, width: usize, filter: Filter) -> Picture {
    let picture = if picture.width == width {
        picture
    } else {
        along_rows(&picture, width, filter)
    };
    if picture.height == height {
        picture
    } else {
        along_columns(&picture, height, filter)
    }
}

/// What a pixel of the result is made of: coefficients of some pixels, from `first` on.
struct Taps {
    first: usize,
    coefficients: Vec<i32>,
}

/// For each of `to` pixels along one axis, what it takes of `from`.
fn taps(from: usize, to: usize, filter: Filter) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let support = filter.support() * stretch;
    let taps = |pixel: usize| {
        let centre = (pixel as f64 + 0.5) * scale;
        let first = (centre - support + 0.5).max(0.0) as usize;
        let end = ((centre + support + 0.5) as usize).min(from);
        let shrink = 1.0 / stretch;
        let weight = |x: usize| filter.weight((x as f64 - centre + 0.5) * shrink);
        let weights: Vec<f64> = (first..end).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let fixed = |weight: &f64| {
            let scaled = if sum == 0.0 { *weight } else { weight / sum } * f64::from(1 << PRECISION);
            (scaled + 0.5f64.copysign(scaled)) as i32
        };
        Taps {
            first,
            coefficients: weights.iter().map(fixed).collect(),
        }
    };
    (0..to).map(taps).collect()
}

fn rounded(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

const HALF: i32 = 1 << (PRECISION - 1);

fn along_rows(picture: &Picture, width: usize, filter: Filter) -> Picture {
    let taps = taps(picture.width, width, filter);
    let mut rgb = Vec::with_capacity(picture.height * width * CHANNELS);
    for row in picture.rgb.chunks_exact(picture.width * CHANNELS) {
        let (pixels, _) = row.as_chunks::<CHANNELS>();
        for Taps { first, coefficients } in &taps {
            let mut sums = [HALF; CHANNELS];
            for (pixel, coefficient) in pixels[*first..].iter().zip(coefficients) {
                for (sum, value) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(*value) * coefficient;
                }
            }
            rgb.extend(sums.map(rounded));
        }
    }
    Picture {
        height: picture.height,
        width,
        rgb,
    }
}

fn along_columns(picture: &Picture, height: usize, filter: Filter) -> Picture {
    let row_len = picture.width * CHANNELS;
    let mut rgb = Vec::with_capacity(height * row_len);
    let mut sums = vec![0; row_len];
    for Taps { first, coefficients } in taps(picture.height, height, filter) {
        sums.fill(HALF);
        let rows = picture.rgb[first * row_len..].chunks_exact(row_len);
        for (row, coefficient) in rows.zip(&coefficients) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += i32::from(*value) * coefficient;
            }
        }
        rgb.extend(sums.iter().map(|sum| rounded(*sum)));
    }
    Picture {
        height,
        width: picture.width,
        rgb,
    }
}

#[cfg(test)]
mod tests;
