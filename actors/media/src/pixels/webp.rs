//! WebP: the first frame, on white.

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};

use super::{append_rgb, damage, len_of};
use crate::{Format, MediaError};

pub(super) fn decode(bytes: &[u8], width: u32, height: u32) -> Result<Vec<u8>, MediaError> {
    let damaged = |error: DecodingError| {
        let is_at_end = matches!(error, DecodingError::IoError(_));
        MediaError::damaged(Format::Webp, damage(is_at_end))
    };
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(damaged)?;
    if decoder.dimensions() != (width, height) {
        return Err(MediaError::damaged(Format::Webp, "it has another size than it says"));
    }
    let channels = if decoder.has_alpha() { 4 } else { 3 };
    decoder.set_memory_limit(len_of(width, height, 8));
    let mut samples = vec![0; len_of(width, height, channels)];
    decoder.read_image(&mut samples).map_err(damaged)?;
    if channels == 3 {
        return Ok(samples);
    }
    let mut rgb = Vec::with_capacity(len_of(width, height, 3));
    append_rgb(&mut rgb, &samples, channels);
    Ok(rgb)
}
