//! The alphabet of byte-level vocabularies: 256 printable characters, one for each byte.
//!
//! Bytes that print on their own (`!`…`~`, `¡`…`¬`, `®`…`ÿ`) stand for themselves; the others, in rising order, are written
//! as the characters from U+0100 on. So a space is `Ġ` and a newline `Ċ`.

/// Where the stand-ins for unprintable bytes begin.
const STAND_INS: u32 = 0x100;

/// The character of every byte.
pub(crate) fn alphabet() -> [char; 256] {
    let mut stand_in = STAND_INS;
    std::array::from_fn(|byte| {
        let byte = byte as u8;
        if prints(byte) {
            return char::from(byte);
        }
        let c = char::from_u32(stand_in).expect("U+0100 to U+0143 are characters");
        stand_in += 1;
        c
    })
}

/// The bytes that a token is spelled with, or none if a character is not of the alphabet.
pub(crate) fn bytes_of(token: &str, alphabet: &[char; 256]) -> Option<Vec<u8>> {
    token.chars().map(|c| byte_of(c, alphabet)).collect()
}

fn byte_of(c: char, alphabet: &[char; 256]) -> Option<u8> {
    if let Ok(byte) = u8::try_from(u32::from(c)) {
        return prints(byte).then_some(byte);
    }
    alphabet.iter().position(|letter| *letter == c).map(|byte| byte as u8)
}

fn prints(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

#[cfg(test)]
mod tests;
