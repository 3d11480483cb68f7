use super::*;
use crate::Limits;

/// A PNG chunk; its checksum is not looked at.
fn chunk(tag: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let len = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&len, tag.as_slice(), content, &[0; 4]].concat()
}

fn png(width: u32, height: u32, more: &[Vec<u8>]) -> Vec<u8> {
    let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
    let header = chunk(b"IHDR", &[size.as_slice(), &[8, 2, 0, 0, 0]].concat());
    [b"\x89PNG\r\n\x1a\n".to_vec(), header, more.concat()].concat()
}

/// A TIFF block with one entry.
fn notes(is_little: bool, orientation: u8) -> Vec<u8> {
    if is_little {
        [
            b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".as_slice(),
            &[orientation, 0, 0, 0],
        ]
        .concat()
    } else {
        [
            b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01".as_slice(),
            &[0, orientation, 0, 0],
        ]
        .concat()
    }
}

fn jpeg(width: u16, height: u16, notes: &[u8]) -> Vec<u8> {
    let notes = [b"Exif\0\0".as_slice(), notes].concat();
    let notes_len = u16::try_from(notes.len() + 2).unwrap().to_be_bytes();
    let size = [height.to_be_bytes(), width.to_be_bytes()].concat();
    let frame = [&[0xff, 0xff, 0xc2, 0, 11, 8], size.as_slice(), &[1, 1, 0x11, 0]].concat();
    [&[0xff, 0xd8, 0xff, 0xe1], notes_len.as_slice(), &notes, &frame].concat()
}

fn webp(chunks: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
    let mut webp = b"RIFF\0\0\0\0WEBP".to_vec();
    for (tag, content) in chunks {
        webp.extend_from_slice(*tag);
        webp.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
        webp.extend_from_slice(content);
        webp.resize(webp.len().next_multiple_of(2), 0);
    }
    webp
}

fn gif(width: u16, height: u16, frames: usize) -> Vec<u8> {
    let screen = [width.to_le_bytes(), height.to_le_bytes()].concat();
    let palette = [&[0x80, 0, 0], [9; 6].as_slice()].concat();
    let frame = b"!\xf9\x04\0\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02\x4c\x01\0";
    [b"GIF89a".as_slice(), &screen, &palette, &frame.repeat(frames), b";"].concat()
}

#[track_caller]
fn size_of(bytes: &[u8]) -> (Format, u32, u32, u32) {
    let probe = probe(bytes).unwrap();
    (probe.format, probe.width, probe.height, probe.frames)
}

#[test]
fn every_format_tells_its_size_and_frames() {
    assert_eq!(size_of(&png(7, 9, &[])), (Format::Png, 7, 9, 1));
    let moves = chunk(b"acTL", &[0, 0, 0, 5, 0, 0, 0, 0]);
    assert_eq!(size_of(&png(7, 9, &[moves])), (Format::Png, 7, 9, 5));
    assert_eq!(size_of(&jpeg(300, 200, &[])), (Format::Jpeg, 300, 200, 1));
    let lossy = webp(&[(b"VP8 ", &[0, 0, 0, 0x9d, 1, 0x2a, 0x2c, 0x41, 200, 0])]);
    assert_eq!(size_of(&lossy), (Format::Webp, 300, 200, 1));
    let lossless = webp(&[(b"VP8L", &[0x2f, 0x2b, 0xc1, 0x31, 0])]);
    assert_eq!(size_of(&lossless), (Format::Webp, 300, 200, 1));
    let extended = webp(&[
        (b"VP8X", &[2, 0, 0, 0, 0x2b, 1, 0, 199, 0, 0]),
        (b"ANMF", &[0]),
        (b"ANMF", &[0]),
    ]);
    assert_eq!(size_of(&extended), (Format::Webp, 300, 200, 2));
    assert_eq!(size_of(&gif(300, 200, 1)), (Format::Gif, 300, 200, 1));
    assert_eq!(size_of(&gif(300, 200, 3)), (Format::Gif, 300, 200, 3));
}

#[test]
fn cameras_say_which_way_is_up() {
    for orientation in 0..=9 {
        for is_little in [true, false] {
            let notes = notes(is_little, orientation);
            let size = if (5..=8).contains(&orientation) {
                (200, 300)
            } else {
                (300, 200)
            };
            let extended = (b"VP8X", [8, 0, 0, 0, 0x2b, 1, 0, 199, 0, 0].as_slice());
            for file in [
                jpeg(300, 200, &notes),
                png(300, 200, &[chunk(b"eXIf", &notes)]),
                webp(&[(extended.0, extended.1), (b"EXIF", &notes)]),
            ] {
                let probe = probe(&file).unwrap();
                assert_eq!((probe.width, probe.height), size, "{orientation} in {}", probe.format);
            }
        }
    }
    // Notes that are cut short say nothing.
    for len in 0..18 {
        assert_eq!(probe(&jpeg(300, 200, &notes(true, 6)[..len])).unwrap().width, 300);
    }
}

#[test]
fn what_claims_too_much_is_refused() {
    let limits = Limits::default();
    let refuse = |bytes: &[u8]| limits.check_picture(&probe(bytes).unwrap()).unwrap_err();
    let (width, height, max) = (20_000, 20_000, limits.pixels_max);
    assert_eq!(
        refuse(&png(20_000, 20_000, &[])),
        MediaError::Pixels { width, height, max }
    );
    assert_eq!(
        refuse(&gif(1, 1, 10_000)),
        MediaError::Frames {
            frames: 10_000,
            max: 1000
        }
    );
    assert!(limits.check_picture(&probe(&png(8000, 5000, &[])).unwrap()).is_ok());
}

#[test]
fn what_is_no_picture_is_refused() {
    for bytes in [
        b"".as_slice(),
        b"<svg/>",
        b"BM",
        b"\0\0\0\x1cftypavif",
        b"RIFF\0\0\0\0WAVE",
    ] {
        assert_eq!(probe(bytes), Err(MediaError::UnknownPicture));
    }
    for bytes in [png(0, 9, &[]), png(9, 1 << 31, &[]), gif(0, 0, 1), jpeg(0, 5, &[])] {
        assert!(matches!(probe(&bytes), Err(MediaError::Damaged { .. })));
    }
    let whole = jpeg(300, 200, &[]);
    for len in 3..whole.len() - 8 {
        assert!(matches!(probe(&whole[..len]), Err(MediaError::Damaged { .. })), "{len}");
    }
}

#[test]
fn headers_that_readers_would_find_otherwise_are_refused() {
    // A reader that passes over the stuffing finds a frame of 20000 x 20000 where one that takes it for a segment skips it.
    let hidden = &jpeg(20_000, 20_000, &[])[2..];
    let shown = &jpeg(8, 8, &[])[2..];
    let skipped = usize::from(u16::from_be_bytes([hidden[0], hidden[1]]));
    let mut file = [&[0xff, 0xd8, 0xff, 0], hidden].concat();
    file.resize(4 + skipped, 0);
    file.extend_from_slice(shown);
    assert!(probe(&file).is_err());
    // A small canvas over a large picture.
    let canvas: &[u8] = &[0, 0, 0, 0, 7, 0, 0, 7, 0, 0];
    let picture: &[u8] = &[0, 0, 0, 0x9d, 1, 0x2a, 0xff, 0x3f, 0xff, 0x3f];
    assert!(probe(&webp(&[(b"VP8X", canvas), (b"VP8 ", picture)])).is_err());
}
