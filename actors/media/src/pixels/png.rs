//! PNG: palettes and greys become 8-bit samples in the reader; rows are set on white as they come.

use std::io::Cursor;

use png::{Decoder, DecodingError, Reader, Transformations};

use super::{append_rgb, damage, len_of};
use crate::{Format, MediaError};

/// What the reader may take besides one row: tables and ancillary chunks.
const SCRATCH_BYTES_MAX: usize = 64 << 20;

pub(super) fn decode(bytes: &[u8], width: u32, height: u32) -> Result<Vec<u8>, MediaError> {
    rows(bytes, width, height).map_err(|error| {
        let is_at_end = matches!(error, DecodingError::IoError(_));
        MediaError::damaged(Format::Png, damage(is_at_end))
    })
}

fn rows(bytes: &[u8], width: u32, height: u32) -> Result<Vec<u8>, DecodingError> {
    let limits = png::Limits {
        bytes: SCRATCH_BYTES_MAX,
    };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info()?;
    let channels = reader.output_color_type().0.samples();
    let mut rgb = Vec::with_capacity(len_of(width, height, 3));
    if reader.info().interlaced {
        append_rgb(&mut rgb, &whole(&mut reader)?, channels);
    } else {
        while let Some(row) = reader.next_row()? {
            append_rgb(&mut rgb, row.data(), channels);
        }
    }
    // The reader has the same size from the same header, and ends only after the last row.
    assert_eq!(rgb.len(), len_of(width, height, 3), "every row of the picture was read");
    Ok(rgb)
}

/// The passes of an interlaced picture do not come row by row.
fn whole(reader: &mut Reader<Cursor<&[u8]>>) -> Result<Vec<u8>, DecodingError> {
    let len = reader.output_buffer_size().ok_or(DecodingError::LimitsExceeded)?;
    let mut samples = vec![0; len];
    reader.next_frame(&mut samples)?;
    Ok(samples)
}
