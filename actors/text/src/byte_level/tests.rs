use super::*;

#[test]
fn every_byte_has_its_own_letter() {
    let alphabet = alphabet();
    for byte in 0..=255u8 {
        let letter = alphabet[usize::from(byte)];
        assert_eq!(bytes_of(&letter.to_string(), &alphabet), Some(vec![byte]));
    }
    assert_eq!(alphabet[usize::from(b' ')], 'Ġ');
    assert_eq!(alphabet[usize::from(b'\n')], 'Ċ');
    assert_eq!(alphabet[0xAD], '\u{143}');
}

#[test]
fn other_characters_spell_no_bytes() {
    assert_eq!(bytes_of("a b", &alphabet()), None);
    assert_eq!(bytes_of("日", &alphabet()), None);
}
