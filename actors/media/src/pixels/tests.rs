use ::png::{BitDepth, ColorType, Encoder};
use proptest::prelude::*;

use super::*;

const WIDTH: u32 = 32;
const HEIGHT: u32 = 16;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../tests/fixtures/", $name)).as_slice()
    };
}

/// The picture in most fixtures: red, green, blue and white quarters.
fn quadrants() -> Vec<u8> {
    let colours = [[200, 30, 30], [30, 160, 60], [40, 60, 200], [255; 3]];
    let places = (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| (x, y)));
    let pixels = places.map(|(x, y)| colours[usize::from(x >= WIDTH / 2) + 2 * usize::from(y >= HEIGHT / 2)]);
    pixels.flatten().collect()
}

fn decoded(bytes: &[u8]) -> Picture {
    picture(bytes, &Limits::default()).unwrap()
}

#[track_caller]
fn assert_near(picture: &Picture, expected: &[u8], most: u8) {
    assert_eq!((picture.width, picture.height), (WIDTH, HEIGHT));
    assert_eq!(picture.rgb.len(), expected.len());
    let worst = picture.rgb.iter().zip(expected).map(|(a, b)| a.abs_diff(*b)).max();
    assert!(worst.unwrap() <= most, "off by {worst:?}");
}

#[test]
fn pictures_without_loss_come_out_exactly() {
    for bytes in [
        fixture!("quadrants.png"),
        fixture!("palette.png"),
        fixture!("alpha.png"),
        fixture!("quadrants.webp"),
        fixture!("alpha.webp"),
        fixture!("moving.webp"),
        fixture!("moving.gif"),
        fixture!("alpha.gif"),
        fixture!("turned.webp"),
    ] {
        assert_near(&decoded(bytes), &quadrants(), 0);
    }
}

/// The pixel in the middle of each quarter: at its edges colour of half the resolution runs over.
fn middles(rgb: &[u8]) -> Vec<u8> {
    let places = [(8, 4), (24, 4), (8, 12), (24, 12)].map(|(x, y)| (y * WIDTH as usize + x) * 3);
    places
        .iter()
        .flat_map(|place| rgb[*place..place + 3].to_vec())
        .collect()
}

#[test]
fn pictures_with_loss_come_out_nearly() {
    assert_near(&decoded(fixture!("quadrants.jpg")), &quadrants(), 4);
    assert_near(&decoded(fixture!("turned.jpg")), &quadrants(), 4);
    assert_near(&decoded(fixture!("grey.jpg")), &decoded(fixture!("grey.png")).rgb, 4);
    for bytes in [
        fixture!("progressive.jpg"),
        fixture!("cmyk.jpg"),
        fixture!("lossy.webp"),
    ] {
        let got = middles(&decoded(bytes).rgb);
        let worst = got.iter().zip(middles(&quadrants())).map(|(a, b)| a.abs_diff(b)).max();
        assert!(worst.unwrap() <= 4, "{got:?}");
    }
}

/// Encodes samples as PNG.
fn encoded(
    color: ColorType,
    depth: BitDepth,
    samples: &[u8],
    extra: impl FnOnce(&mut Encoder<'_, &mut Vec<u8>>),
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 2, 1);
    encoder.set_color(color);
    encoder.set_depth(depth);
    extra(&mut encoder);
    encoder.write_header().unwrap().write_image_data(samples).unwrap();
    bytes
}

#[test]
fn every_kind_of_png_becomes_rgb_on_white() {
    use BitDepth::{One, Sixteen};
    let cases: [(ColorType, BitDepth, &[u8], [u8; 6]); 7] = [
        (
            ColorType::Grayscale,
            BitDepth::Eight,
            &[7, 200],
            [7, 7, 7, 200, 200, 200],
        ),
        (ColorType::Grayscale, One, &[0b0100_0000], [0, 0, 0, 255, 255, 255]),
        (
            ColorType::Grayscale,
            Sixteen,
            &[7, 99, 200, 0],
            [7, 7, 7, 200, 200, 200],
        ),
        (
            ColorType::GrayscaleAlpha,
            BitDepth::Eight,
            &[0, 0, 0, 51],
            [255, 255, 255, 204, 204, 204],
        ),
        (
            ColorType::Rgba,
            BitDepth::Eight,
            &[9, 8, 7, 255, 9, 8, 7, 0],
            [9, 8, 7, 255, 255, 255],
        ),
        (
            ColorType::Rgb,
            Sixteen,
            &[9, 1, 8, 1, 7, 1, 6, 1, 5, 1, 4, 1],
            [9, 8, 7, 6, 5, 4],
        ),
        (
            ColorType::Rgba,
            Sixteen,
            &[9, 1, 8, 1, 7, 1, 255, 255, 6, 1, 5, 1, 4, 1, 0, 0],
            [9, 8, 7, 255, 255, 255],
        ),
    ];
    for (color, depth, samples, expected) in cases {
        assert_eq!(
            decoded(&encoded(color, depth, samples, |_| {})).rgb,
            expected,
            "{color:?} {depth:?}"
        );
    }
    let transparent = encoded(ColorType::Indexed, BitDepth::Eight, &[1, 0], |encoder| {
        encoder.set_palette([1, 2, 3, 4, 5, 6].as_slice());
        encoder.set_trns([255, 0].as_slice());
    });
    assert_eq!(decoded(&transparent).rgb, [255, 255, 255, 1, 2, 3]);
}

#[test]
fn opacity_mixes_with_white_and_rounds_to_the_nearest() {
    for alpha in 0..=255 {
        for sample in 0..=255 {
            let opacity = f64::from(alpha) / 255.0;
            let exact = f64::from(sample) * opacity + 255.0 * (1.0 - opacity);
            assert!((f64::from(on_white(sample, alpha)) - exact).abs() <= 0.501);
        }
    }
}

#[test]
fn all_eight_orientations_come_out_upright() {
    // Stored: 1 2 3 over 4 5 6.
    let stored: Vec<u8> = (1..=6).flat_map(|pixel| [pixel; 3]).collect();
    for (tag, upright_pixels) in [
        (1, [1, 2, 3, 4, 5, 6]),
        (2, [3, 2, 1, 6, 5, 4]),
        (3, [6, 5, 4, 3, 2, 1]),
        (4, [4, 5, 6, 1, 2, 3]),
        (5, [1, 4, 2, 5, 3, 6]),
        (6, [4, 1, 5, 2, 6, 3]),
        (7, [6, 3, 5, 2, 4, 1]),
        (8, [3, 6, 2, 5, 1, 4]),
    ] {
        let turned = upright(stored.clone(), 3, Orientation::from_tag(tag));
        let pixels: Vec<u8> = turned.iter().step_by(3).copied().collect();
        assert_eq!(pixels, upright_pixels, "{tag}");
    }
}

#[test]
fn what_is_cut_short_is_refused() {
    for bytes in [
        fixture!("quadrants.png"),
        fixture!("quadrants.jpg"),
        fixture!("progressive.jpg"),
        fixture!("quadrants.webp"),
        fixture!("lossy.webp"),
    ] {
        for len in [bytes.len() / 2, bytes.len() * 3 / 4] {
            let refused = picture(&bytes[..len], &Limits::default());
            assert!(matches!(refused, Err(MediaError::Damaged { .. })), "{len}: {refused:?}");
        }
    }
}

#[test]
fn limits_come_before_decoding() {
    let limits = |bytes_max, pixels_max| Limits {
        bytes_max,
        pixels_max,
        ..Limits::default()
    };
    let bytes = fixture!("quadrants.png");
    let (len, pixels) = (bytes.len() as u64, u64::from(WIDTH * HEIGHT));
    assert!(picture(bytes, &limits(len, pixels)).is_ok());
    let max = len - 1;
    assert_eq!(
        picture(bytes, &limits(max, pixels)),
        Err(MediaError::Bytes { bytes: len, max })
    );
    let few = picture(bytes, &limits(len, pixels - 1));
    assert!(matches!(few, Err(MediaError::Pixels { .. })));
}

/// What a decoder calls things inside is no help to whoever sent the file.
#[test]
fn the_reason_of_a_refusal_is_in_plain_words() {
    let mut other_chunk = fixture!("quadrants.png").to_vec();
    let second = 8 + 4 + 4 + 13 + 4;
    other_chunk[second + 4..second + 8].copy_from_slice(b"QUUX");
    let mut files = vec![other_chunk];
    for whole in [
        fixture!("quadrants.png"),
        fixture!("quadrants.jpg"),
        fixture!("quadrants.webp"),
        fixture!("moving.gif"),
    ] {
        files.extend((40..whole.len()).step_by(7).map(|len| whole[..len].to_vec()));
        files.extend((40..whole.len()).step_by(5).map(|place| {
            let mut bytes = whole.to_vec();
            bytes[place] ^= 0xff;
            bytes
        }));
    }
    let reasons = files.iter().filter_map(|bytes| match picture(bytes, &TIGHT) {
        Err(MediaError::Damaged { reason, .. }) => Some(reason),
        _ => None,
    });
    let reasons: std::collections::BTreeSet<String> = reasons.collect();
    assert!(!reasons.is_empty());
    for reason in reasons {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || " ,-".contains(letter);
        assert!(reason.chars().all(is_plain) && !reason.contains("IO"), "{reason}");
    }
}

fn fixtures() -> impl Strategy<Value = &'static [u8]> {
    prop::sample::select(vec![
        fixture!("quadrants.png"),
        fixture!("palette.png"),
        fixture!("alpha.webp"),
        fixture!("lossy.webp"),
        fixture!("moving.webp"),
        fixture!("moving.gif"),
        fixture!("progressive.jpg"),
        fixture!("cmyk.jpg"),
        fixture!("turned.jpg"),
    ])
}

/// Small, so that a mutated size is refused rather than decoded.
const TIGHT: Limits = Limits {
    bytes_max: 1 << 16,
    pixels_max: 1 << 14,
    frames_max: 10,
    seconds_max: 1,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_are_pictures_within_bounds_or_refused(
        bytes in fixtures(),
        cut in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut bytes = bytes.to_vec();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        bytes.truncate(cut.index(bytes.len() * 2).max(1));
        if let Ok(picture) = picture(&bytes, &TIGHT) {
            let pixels = picture.width as usize * picture.height as usize;
            prop_assert!(pixels as u64 <= TIGHT.pixels_max);
            prop_assert_eq!(picture.rgb.len(), pixels * 3);
        }
    }

    #[test]
    fn any_bytes_behind_a_signature_are_no_reason_to_panic(
        signature in prop::sample::select(vec![
            b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".as_slice(),
            b"\xff\xd8\xff\xe1",
            b"RIFF\0\0\0\0WEBPVP8X",
            b"GIF89a",
            b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0",
        ]),
        tail in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let bytes = [signature, &tail].concat();
        let _ = picture(&bytes, &TIGHT);
        let _ = crate::sound(&bytes, &TIGHT, 24_000);
    }
}
