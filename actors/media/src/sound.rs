//! WAV files: one channel at the rate a model wants.

mod resample;

use crate::{Format, Limits, MediaError, bytes::Cursor, bytes::riff_chunks, header};

/// Rates outside are not sound, and would make a short file a long one.
const RATE_RANGE: std::ops::RangeInclusive<u32> = 1_000..=384_000;
const CHANNELS_MAX: u16 = 64;

/// What a sound claims to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SoundProbe {
    /// Samples a second of each channel.
    pub sample_rate: u32,
    /// Channels.
    pub channels: u16,
    /// Samples of each channel.
    pub frames: u64,
}

impl SoundProbe {
    /// Samples it has at `sample_rate`: exactly as many as [`sound`] returns.
    pub fn samples_at(&self, sample_rate: u32) -> u64 {
        (self.frames * u64::from(sample_rate)).div_ceil(self.sample_rate.into())
    }
}

/// How a sample is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Coding {
    Unsigned8,
    Signed16,
    Signed24,
    Signed32,
    Float32,
    Float64,
}

impl Coding {
    const fn bytes(self) -> usize {
        match self {
            Coding::Unsigned8 => 1,
            Coding::Signed16 => 2,
            Coding::Signed24 => 3,
            Coding::Signed32 | Coding::Float32 => 4,
            Coding::Float64 => 8,
        }
    }

    /// The sample at the start of `bytes`, full scale at 1. `bytes` has at least as many as a sample.
    fn sample(self, bytes: &[u8]) -> f32 {
        match (self, bytes) {
            (Coding::Unsigned8, [a, ..]) => (f32::from(*a) - 128.0) / 128.0,
            (Coding::Signed16, [a, b, ..]) => f32::from(i16::from_le_bytes([*a, *b])) / 32_768.0,
            (Coding::Signed24, [a, b, c, ..]) => (i32::from_le_bytes([0, *a, *b, *c]) >> 8) as f32 / 8_388_608.0,
            (Coding::Signed32, [a, b, c, d, ..]) => i32::from_le_bytes([*a, *b, *c, *d]) as f32 / 2_147_483_648.0,
            (Coding::Float32, [a, b, c, d, ..]) => f32::from_le_bytes([*a, *b, *c, *d]),
            (Coding::Float64, [a, b, c, d, e, f, g, h, ..]) => {
                f64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]) as f32
            }
            _ => unreachable!("the caller cuts the bytes by the coding's length"),
        }
    }
}

/// A file taken apart.
struct Wave<'a> {
    probe: SoundProbe,
    coding: Coding,
    samples: &'a [u8],
}

/// Reads a sound's header.
pub fn probe_sound(bytes: &[u8]) -> Result<SoundProbe, MediaError> {
    wave(bytes).map(|wave| wave.probe)
}

/// Decodes a sound: channels averaged, at `sample_rate`, between -1 and 1.
pub fn sound(bytes: &[u8], limits: &Limits, sample_rate: u32) -> Result<Vec<f32>, MediaError> {
    limits.check_bytes(bytes.len() as u64)?;
    let wave = wave(bytes)?;
    limits.check_sound(&wave.probe)?;
    let mono = mono(&wave)?;
    let len = wave.probe.samples_at(sample_rate) as usize;
    Ok(resample::resample(mono, wave.probe.sample_rate, sample_rate, len))
}

impl Limits {
    /// Refuses a sound that would be too long.
    pub fn check_sound(&self, probe: &SoundProbe) -> Result<(), MediaError> {
        let seconds = probe.frames.div_ceil(probe.sample_rate.into());
        if seconds > u64::from(self.seconds_max) {
            let max = self.seconds_max;
            return Err(MediaError::Seconds { seconds, max });
        }
        Ok(())
    }
}

fn damaged(reason: &str) -> MediaError {
    MediaError::damaged(Format::Wav, reason)
}

fn wave(bytes: &[u8]) -> Result<Wave<'_>, MediaError> {
    if header::format_of(bytes) != Some(Format::Wav) {
        return Err(MediaError::UnknownSound);
    }
    let (mut format, mut samples) = (None, None);
    for (tag, content) in riff_chunks(&bytes[12..]) {
        match &tag {
            b"fmt " if format.is_none() => format = Some(format_chunk(content)?),
            // Writers that stream do not know the length: what is there counts.
            b"data" if samples.is_none() => samples = Some(content),
            _ => {}
        }
    }
    let (sample_rate, channels, coding) = format.ok_or_else(|| damaged("it does not say how samples are written"))?;
    let samples = samples.ok_or_else(|| damaged("it has no samples"))?;
    let frame_bytes = coding.bytes() * usize::from(channels);
    let frames = (samples.len() / frame_bytes) as u64;
    if frames == 0 {
        return Err(damaged("it has no samples"));
    }
    let probe = SoundProbe {
        sample_rate,
        channels,
        frames,
    };
    Ok(Wave { probe, coding, samples })
}

fn format_chunk(content: &[u8]) -> Result<(u32, u16, Coding), MediaError> {
    let cut = || damaged("its format is cut short");
    let mut cursor = Cursor::new(content);
    let mut kind = cursor.u16_le().ok_or_else(cut)?;
    let channels = cursor.u16_le().ok_or_else(cut)?;
    let sample_rate = cursor.u32_le().ok_or_else(cut)?;
    cursor.take(4).ok_or_else(cut)?;
    let frame_bytes = cursor.u16_le().ok_or_else(cut)?;
    let bits = cursor.u16_le().ok_or_else(cut)?;
    if kind == 0xfffe {
        // The extensible form: length, valid bits and speakers, then the kind at the start of an id.
        cursor.take(8).ok_or_else(cut)?;
        kind = cursor.u16_le().ok_or_else(cut)?;
    }
    let coding = coding(kind, bits)?;
    if !(1..=CHANNELS_MAX).contains(&channels) {
        return Err(damaged(&format!("{channels} channels")));
    }
    if !RATE_RANGE.contains(&sample_rate) {
        return Err(damaged(&format!("{sample_rate} samples a second")));
    }
    if usize::from(frame_bytes) != coding.bytes() * usize::from(channels) {
        return Err(damaged("the length of its samples contradicts their kind"));
    }
    Ok((sample_rate, channels, coding))
}

fn coding(kind: u16, bits: u16) -> Result<Coding, MediaError> {
    match (kind, bits) {
        (1, 8) => Ok(Coding::Unsigned8),
        (1, 16) => Ok(Coding::Signed16),
        (1, 24) => Ok(Coding::Signed24),
        (1, 32) => Ok(Coding::Signed32),
        (3, 32) => Ok(Coding::Float32),
        (3, 64) => Ok(Coding::Float64),
        _ => {
            let kind = format!("coding {kind} of {bits} bits; send PCM of 8, 16, 24 or 32 bits, or floats");
            Err(MediaError::unsupported(Format::Wav, kind))
        }
    }
}

/// The mean of the channels.
fn mono(wave: &Wave<'_>) -> Result<Vec<f32>, MediaError> {
    let width = wave.coding.bytes();
    let channels = usize::from(wave.probe.channels);
    let mut mono = Vec::with_capacity(wave.probe.frames as usize);
    for frame in wave.samples.chunks_exact(width * channels) {
        let sum: f32 = frame.chunks_exact(width).map(|bytes| wave.coding.sample(bytes)).sum();
        let mean = sum / channels as f32;
        if !mean.is_finite() {
            return Err(damaged("it has samples that are no numbers"));
        }
        mono.push(mean.clamp(-1.0, 1.0));
    }
    Ok(mono)
}

#[cfg(test)]
mod tests;
