use super::*;

/// The known answers published with the Random123 library.
#[test]
fn philox_gives_the_published_words() {
    assert_eq!(
        philox([0; 2], [0; 4]),
        [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
    );
    assert_eq!(
        philox([u32::MAX; 2], [u32::MAX; 4]),
        [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
    );
    let counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
    let words = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
    assert_eq!(philox([0xa409_3822, 0x299f_31d0], counter), words);
}

#[test]
fn uniform_numbers_fill_the_unit_interval_evenly() {
    let mut bins = [0u32; 20];
    for position in 0..20_000 {
        bins[(uniform(7, position) * 20.0) as usize] += 1;
    }
    // Chi-square with 19 degrees of freedom: 43.8 is passed once in a thousand seeds.
    let chi_square: f64 = bins
        .iter()
        .map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0)
        .sum();
    assert!(chi_square < 43.8, "{chi_square}");
}
