//! GIF: the first frame at its place on a white screen.

use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, DecodingError, Frame, MemoryLimit};

use super::{damage, len_of, on_white};
use crate::{Format, MediaError};

pub(super) fn decode(bytes: &[u8], width: u32, height: u32) -> Result<Vec<u8>, MediaError> {
    let damaged = |error: DecodingError| {
        let is_at_end = matches!(error, DecodingError::UnexpectedEof | DecodingError::Io(_));
        MediaError::damaged(Format::Gif, damage(is_at_end))
    };
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::RGBA);
    // A frame reaching out of its screen would be memory that no limit has seen.
    options.check_frame_consistency(true);
    let bytes_max = len_of(width, height, 4) as u64;
    options.set_memory_limit(NonZeroU64::new(bytes_max).map_or(MemoryLimit::Unlimited, MemoryLimit::Bytes));
    let mut decoder = options.read_info(bytes).map_err(damaged)?;
    let frame = decoder.read_next_frame().map_err(damaged)?;
    let frame = frame.ok_or_else(|| MediaError::damaged(Format::Gif, "it has no frame"))?;
    let mut rgb = vec![255; len_of(width, height, 3)];
    paint(&mut rgb, width, frame);
    Ok(rgb)
}

fn paint(rgb: &mut [u8], width: u32, frame: &Frame<'_>) {
    let frame_width = usize::from(frame.width);
    if frame_width == 0 {
        return;
    }
    for (row, pixels) in frame.buffer.chunks_exact(frame_width * 4).enumerate() {
        let first = (usize::from(frame.top) + row) * width as usize + usize::from(frame.left);
        let place = &mut rgb[first * 3..(first + frame_width) * 3];
        for (to, from) in place.chunks_exact_mut(3).zip(pixels.chunks_exact(4)) {
            to.copy_from_slice(&[0, 1, 2].map(|channel| on_white(from[channel], from[3])));
        }
    }
}
