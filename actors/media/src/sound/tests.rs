use std::f64::consts::TAU;

use super::*;

fn wav(kind: u16, bits: u16, channels: u16, rate: u32, samples: &[u8]) -> Vec<u8> {
    let frame = channels * bits / 8;
    let mut wav = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0".to_vec();
    wav.extend([kind, channels].map(u16::to_le_bytes).concat());
    wav.extend([rate, rate * u32::from(frame)].map(u32::to_le_bytes).concat());
    wav.extend([frame, bits].map(u16::to_le_bytes).concat());
    wav.extend(b"LIST\x03\0\0\0abc\0data");
    wav.extend(u32::try_from(samples.len()).unwrap().to_le_bytes());
    wav.extend(samples);
    wav
}

fn tone(hertz: f64, rate: u32, len: u64) -> Vec<f32> {
    let sample = |index: u64| (0.5 * (TAU * hertz * index as f64 / f64::from(rate)).sin()) as f32;
    (0..len).map(sample).collect()
}

fn floats(samples: &[f32]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

#[test]
fn every_coding_gives_the_same_sound() {
    let expected = [0.5, -0.25, 0.0, -1.0];
    let cases: [(u16, u16, Vec<u8>); 6] = [
        (1, 8, vec![192, 96, 128, 0]),
        (1, 16, [16_384_i16, -8192, 0, -32_768].map(i16::to_le_bytes).concat()),
        (1, 24, vec![0, 0, 0x40, 0, 0, 0xe0, 0, 0, 0, 0, 0, 0x80]),
        (1, 32, [1 << 30, -(1 << 29), 0, i32::MIN].map(i32::to_le_bytes).concat()),
        (3, 32, floats(&expected)),
        (3, 64, [0.5, -0.25, 0.0, -1.0].map(f64::to_le_bytes).concat()),
    ];
    for (kind, bits, samples) in cases {
        let file = wav(kind, bits, 1, 24_000, &samples);
        assert_eq!(
            sound(&file, &Limits::default(), 24_000).unwrap(),
            expected,
            "{kind} {bits}"
        );
        let mut extensible = file.clone();
        let more = [22, 0, bits as u8, 0, 0, 0, 0, 0, kind as u8, 0];
        extensible.splice(36..36, more.into_iter().chain([0; 14]));
        extensible[16] = 40;
        extensible[20..22].copy_from_slice(&[0xfe, 0xff]);
        assert_eq!(
            sound(&extensible, &Limits::default(), 24_000).unwrap(),
            expected,
            "{kind} {bits}"
        );
    }
}

#[test]
fn channels_are_averaged() {
    let file = wav(3, 32, 2, 24_000, &floats(&[0.5, -0.5, 1.0, 0.5]));
    assert_eq!(sound(&file, &Limits::default(), 24_000).unwrap(), [0.0, 0.75]);
}

#[test]
fn a_tone_stays_the_same_tone_at_another_rate() {
    for rate in [8_000, 16_000, 22_050, 44_100, 48_000, 96_001] {
        let file = wav(3, 32, 1, rate, &floats(&tone(1000.0, rate, u64::from(rate) / 2)));
        let probe = probe_sound(&file).unwrap();
        let resampled = sound(&file, &Limits::default(), 24_000).unwrap();
        assert_eq!(resampled.len() as u64, probe.samples_at(24_000));
        let expected = tone(1000.0, 24_000, resampled.len() as u64);
        // The edges border on silence.
        let middle = 200..resampled.len() - 200;
        let pairs = resampled[middle.clone()].iter().zip(&expected[middle]);
        let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 2e-4, "{rate}: {worst}");
    }
}

#[test]
fn what_the_new_rate_cannot_carry_is_removed() {
    let file = wav(3, 32, 1, 48_000, &floats(&tone(15_000.0, 48_000, 24_000)));
    let resampled = sound(&file, &Limits::default(), 24_000).unwrap();
    let middle = &resampled[200..resampled.len() - 200];
    let worst = middle.iter().map(|sample| sample.abs()).fold(0.0, f32::max);
    assert!(worst < 1e-3, "{worst}");
}

#[test]
fn what_is_no_sound_is_refused() {
    let limits = Limits::default();
    let refuse = |file: &[u8]| sound(file, &limits, 24_000).unwrap_err();
    assert_eq!(refuse(b"ID3 and an mp3"), MediaError::UnknownSound);
    assert!(matches!(
        refuse(&wav(7, 8, 1, 8000, &[0])),
        MediaError::Unsupported { .. }
    ));
    for damaged in [
        wav(1, 16, 1, 24_000, &[]),
        wav(1, 16, 1, 24_000, &[1]),
        wav(1, 16, 0, 24_000, &[1, 1]),
        wav(1, 16, 1, 1, &[1, 1]),
        wav(3, 32, 1, 24_000, &floats(&[f32::NAN])),
        b"RIFF\0\0\0\0WAVE".to_vec(),
    ] {
        assert!(
            matches!(refuse(&damaged), MediaError::Damaged { .. }),
            "{:?}",
            refuse(&damaged)
        );
    }
    let short = Limits {
        seconds_max: 1,
        ..limits
    };
    let long = sound(&wav(1, 8, 1, 8000, &[0; 8001]), &short, 24_000);
    assert_eq!(long, Err(MediaError::Seconds { seconds: 2, max: 1 }));
    assert!(sound(&wav(1, 8, 1, 8000, &[0; 8000]), &short, 24_000).is_ok());
}
