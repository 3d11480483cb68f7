//! JPEG: greys and CMYK become RGB in the reader, which takes CMYK to be inverted, as every common writer does.

use zune_jpeg::{
    JpegDecoder,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

use super::{damage, len_of};
use crate::{Format, MediaError, header};

/// Each scan of a progressive picture goes over all of it; a bomb has thousands.
const SCANS_MAX: usize = 64;

pub(super) fn decode(bytes: &[u8], width: u32, height: u32) -> Result<Vec<u8>, MediaError> {
    let damaged = |reason| MediaError::damaged(Format::Jpeg, reason);
    if !header::jpeg_has_end(bytes) {
        return Err(damaged(damage(true)));
    }
    // What the limits were compared with is all that the reader may find, before it allocates anything.
    let options = DecoderOptions::new_safe()
        .set_max_width(width as usize)
        .set_max_height(height as usize)
        .jpeg_set_max_scans(SCANS_MAX)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    let rgb = decoder.decode().map_err(|_| damaged(damage(false)))?;
    if rgb.len() != len_of(width, height, 3) {
        return Err(damaged("it has another size than it says"));
    }
    Ok(rgb)
}
