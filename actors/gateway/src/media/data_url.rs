//! `data:` URLs (RFC 2397, read as browsers do), and plain base64.

use std::borrow::Cow;

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// Padding may be missing, as encoders differ; what stands behind the last whole byte does not matter.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
const SCHEME: &str = "data:";

/// Whether a text is a data URL; blanks before one mean nothing, as in every URL.
pub(crate) fn is_data_url(text: &str) -> bool {
    let scheme = text.trim_ascii_start().get(..SCHEME.len());
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

/// The bytes of a data URL. The media type it names plays no part: the bytes say what they are.
pub(crate) fn decode(url: &str) -> Result<Vec<u8>, &'static str> {
    let (head, body) = url
        .split_once(',')
        .ok_or("is a data: URL without a comma; use data:image/png;base64,…")?;
    let bytes: Cow<'_, [u8]> = percent_encoding::percent_decode_str(body).into();
    let is_base64 = head
        .rsplit(';')
        .next()
        .is_some_and(|last| last.trim().eq_ignore_ascii_case("base64"));
    if is_base64 {
        decode_base64(&bytes)
    } else {
        Ok(bytes.into_owned())
    }
}

/// The bytes behind base64; line breaks and blanks in it are skipped.
pub(crate) fn decode_base64(text: &[u8]) -> Result<Vec<u8>, &'static str> {
    let wrong = |_| "is not valid base64";
    if text.iter().any(u8::is_ascii_whitespace) {
        let text: Vec<u8> = text
            .iter()
            .copied()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        return BASE64.decode(text).map_err(wrong);
    }
    BASE64.decode(text).map_err(wrong)
}

#[cfg(test)]
mod tests;
