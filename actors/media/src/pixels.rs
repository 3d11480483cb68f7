//! A picture's pixels: decoded by its format's reader, set on white, turned upright.
//!
//! Colour profiles and gamma are not applied: the models were trained on the numbers in the files. Samples of 16 bits
//! keep their upper 8.

mod gif;
mod jpeg;
mod png;
mod webp;

use crate::{Format, Limits, MediaError, Probe, header::Orientation, probe};

/// An upright picture: `rgb` is `[height, width, 3]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    /// Pixels of a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Red, green, blue of each pixel, row after row.
    pub rgb: Vec<u8>,
}

impl std::fmt::Debug for Picture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Picture({} x {})", self.width, self.height)
    }
}

/// Decodes a picture, of a moving one the first frame. What is cut short or damaged is refused, never guessed.
pub fn picture(bytes: &[u8], limits: &Limits) -> Result<Picture, MediaError> {
    limits.check_bytes(bytes.len() as u64)?;
    let probe = probe(bytes)?;
    limits.check_picture(&probe)?;
    let (width, height) = stored_size(&probe);
    let rgb = match probe.format {
        Format::Png => png::decode(bytes, width, height),
        Format::Jpeg => jpeg::decode(bytes, width, height),
        Format::Webp => webp::decode(bytes, width, height),
        Format::Gif => gif::decode(bytes, width, height),
        Format::Wav => Err(MediaError::UnknownPicture),
    }?;
    Ok(Picture {
        width: probe.width,
        height: probe.height,
        rgb: upright(rgb, width, probe.orientation),
    })
}

/// What is wrong with a file, where its reader stopped at the end of the bytes or at something else. What readers say is for
/// programmers: it quotes the file and names their own types.
fn damage(is_at_end: bool) -> &'static str {
    if is_at_end {
        "it is cut short"
    } else {
        "what follows its header cannot be decoded"
    }
}

/// Turning upright twice is turning back.
fn stored_size(probe: &Probe) -> (u32, u32) {
    probe.orientation.upright_size(probe.width, probe.height)
}

/// Bytes of `width * height` pixels. Limits were checked, so this fits.
fn len_of(width: u32, height: u32, channels: usize) -> usize {
    width as usize * height as usize * channels
}

/// Sets a sample of opacity `alpha` on white, rounded to the nearest.
fn on_white(sample: u8, alpha: u8) -> u8 {
    let (sample, alpha) = (u32::from(sample), u32::from(alpha));
    let sum = sample * alpha + 255 * (255 - alpha);
    u8::try_from((sum + 127) / 255).expect("a mean of two bytes is a byte")
}

/// Appends pixels of 1 (grey), 2 (grey, alpha), 3 or 4 (colour, alpha) samples as RGB on white.
fn append_rgb(rgb: &mut Vec<u8>, samples: &[u8], channels: usize) {
    match channels {
        1 => rgb.extend(samples.iter().flat_map(|grey| [*grey; 3])),
        2 => rgb.extend(samples.chunks_exact(2).flat_map(|pair| [on_white(pair[0], pair[1]); 3])),
        3 => rgb.extend_from_slice(samples),
        _ => {
            let pixels = samples.chunks_exact(4);
            rgb.extend(pixels.flat_map(|pixel| [0, 1, 2].map(|channel| on_white(pixel[channel], pixel[3]))));
        }
    }
}

fn upright(rgb: Vec<u8>, width: u32, orientation: Orientation) -> Vec<u8> {
    if orientation == Orientation::default() {
        return rgb;
    }
    let width = width as usize;
    let height = rgb.len() / 3 / width;
    let (upright_width, upright_height) = if orientation.is_transposed {
        (height, width)
    } else {
        (width, height)
    };
    let mut turned = Vec::with_capacity(rgb.len());
    for y in 0..upright_height {
        let y = if orientation.mirrors_y {
            upright_height - 1 - y
        } else {
            y
        };
        for x in 0..upright_width {
            let x = if orientation.mirrors_x {
                upright_width - 1 - x
            } else {
                x
            };
            let stored = if orientation.is_transposed {
                x * width + y
            } else {
                y * width + x
            };
            turned.extend_from_slice(&rgb[stored * 3..stored * 3 + 3]);
        }
    }
    turned
}

#[cfg(test)]
mod tests;
