//! WAV recordings as mono samples at the rate a model takes.

use std::io::Cursor;

use hound::{SampleFormat, WavReader};
use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler};

use super::{InputError, Source};

/// Two hours and twenty minutes at 16 kHz.
const MAX_SAMPLES: u64 = 1 << 27;

/// From the lowest that speech is kept at to the highest that converters run at. Rates outside
/// make a small file expand into a huge one.
const RATES: std::ops::RangeInclusive<u32> = 4_000..=768_000;

/// The resampler's filter has at least this many points at either rate: it keeps frequencies up
/// to 95 % of what the lower rate can carry.
const FILTER_POINTS: usize = 1024;

/// Reads a WAV file, mixes its channels evenly and resamples it to `rate` (in hertz).
/// Samples are between -1 and 1.
pub(super) fn read(source: &Source, rate: u32) -> Result<Vec<f32>, InputError> {
    let problem = |text: String| InputError::content(&source.name, text);
    let broken = |error: hound::Error| problem(format!("the recording cannot be read: {error}"));
    if !source.bytes.starts_with(b"RIFF") {
        return Err(problem("this is not a WAV file".into()));
    }
    let reader = WavReader::new(Cursor::new(&source.bytes)).map_err(broken)?;
    let spec = reader.spec();
    if !RATES.contains(&spec.sample_rate) {
        return Err(problem(format!(
            "its sampling rate is {} Hz; Holdfast reads 4 kHz to 768 kHz",
            spec.sample_rate
        )));
    }
    let seconds = u64::from(reader.duration()).div_ceil(u64::from(spec.sample_rate));
    if seconds.saturating_mul(rate.max(spec.sample_rate).into()) > MAX_SAMPLES {
        return Err(problem(format!("the recording is too long ({seconds} s); cut it first")));
    }
    let mono = match spec.sample_format {
        SampleFormat::Float => mixed(reader.into_samples::<f32>(), spec.channels),
        SampleFormat::Int => {
            let scale = 1.0 / (1u64 << (spec.bits_per_sample - 1)) as f32;
            let samples = reader.into_samples::<i32>();
            let scaled = samples.map(|sample| sample.map(|sample| sample as f32 * scale));
            mixed(scaled, spec.channels)
        }
    };
    let mono = mono.map_err(broken)?;
    if mono.is_empty() {
        return Err(problem("the recording has no samples".into()));
    }
    if mono.iter().any(|sample| !sample.is_finite()) {
        return Err(problem("the recording has samples that are not numbers".into()));
    }
    resampled(mono, spec.sample_rate, rate).map_err(|error| problem(error.to_string()))
}

fn mixed(
    samples: impl Iterator<Item = Result<f32, hound::Error>>,
    channels: u16,
) -> Result<Vec<f32>, hound::Error> {
    let channels = usize::from(channels);
    let mut mono = Vec::new();
    let mut frame = Vec::with_capacity(channels);
    for sample in samples {
        frame.push(sample?);
        if frame.len() == channels {
            mono.push(frame.iter().sum::<f32>() / channels as f32);
            frame.clear();
        }
    }
    Ok(mono)
}

fn resampled(
    samples: Vec<f32>,
    from: u32,
    to: u32,
) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    if from == to {
        return Ok(samples);
    }
    // An even number of the smallest blocks in which both rates meet: with an odd one, the
    // filter's delay is not a whole number of samples, and the sound comes out shifted.
    let (from_block, to_block) = smallest_blocks(from, to);
    let blocks = 2 * FILTER_POINTS.div_ceil(2 * from_block.min(to_block));
    let mut resampler =
        Fft::<f32>::new(from as usize, to as usize, blocks * from_block, 1, FixedSync::Both)?;
    let input = InterleavedSlice::new(&samples, 1, samples.len())?;
    let mut output = resampler.process_all(&input, samples.len(), None)?.take_data();
    output.truncate((samples.len() as u64 * u64::from(to)).div_ceil(from.into()) as usize);
    Ok(output)
}

/// How many samples at each rate take the same time, as few as possible.
fn smallest_blocks(from: u32, to: u32) -> (usize, usize) {
    let (mut divisor, mut rest) = (from, to);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    ((from / divisor) as usize, (to / divisor) as usize)
}

#[cfg(test)]
pub(super) mod tests {
    use std::f64::consts::TAU;

    use hound::{WavSpec, WavWriter};

    use super::*;

    /// A recording as a file in memory, from interleaved samples between -1 and 1.
    pub(crate) fn recording(rate: u32, channels: u16, bits: u16, samples: &[f32]) -> Source {
        let sample_format = if bits == 0 { SampleFormat::Float } else { SampleFormat::Int };
        let bits_per_sample = if bits == 0 { 32 } else { bits };
        let spec = WavSpec { channels, sample_rate: rate, bits_per_sample, sample_format };
        let mut bytes = Cursor::new(Vec::new());
        let mut writer = WavWriter::new(&mut bytes, spec).unwrap();
        for &sample in samples {
            if bits == 0 {
                writer.write_sample(sample).unwrap();
            } else {
                let top = ((1i64 << (bits - 1)) - 1) as f64;
                writer.write_sample((f64::from(sample) * top).round() as i32).unwrap();
            }
        }
        writer.finalize().unwrap();
        Source::new("test.wav", bytes.into_inner())
    }

    pub(crate) fn sine(frequency: f64, rate: u32, seconds: f64, amplitude: f64) -> Vec<f32> {
        let count = (f64::from(rate) * seconds) as usize;
        let phase = |n: usize| TAU * frequency * n as f64 / f64::from(rate);
        (0..count).map(|n| (amplitude * phase(n).sin()) as f32).collect()
    }

    /// The largest difference between samples and a sine, away from the ends.
    fn distance(found: &[f32], expected: &[f32]) -> f32 {
        let inner = 1000..expected.len() - 1000;
        inner.map(|n| (found[n] - expected[n]).abs()).fold(0.0, f32::max)
    }

    #[test]
    fn a_sine_keeps_frequency_phase_and_amplitude_at_another_rate() {
        for (from, to) in [
            (44_100, 16_000),
            (48_000, 16_000),
            (8_000, 16_000),
            (22_050, 24_000),
            (11_025, 16_000),
            (768_000, 8_000),
        ] {
            let source = recording(from, 1, 16, &sine(440.0, from, 1.0, 0.5));
            let found = read(&source, to).unwrap();
            assert_eq!(found.len(), to as usize);
            let expected = sine(440.0, to, 1.0, 0.5);
            let distance = distance(&found, &expected);
            assert!(distance < 1e-4, "{from} to {to}: {distance}");
        }
    }

    #[test]
    fn frequencies_just_below_the_limit_of_the_new_rate_stay() {
        let found = read(&recording(44_100, 1, 0, &sine(7_600.0, 44_100, 1.0, 0.5)), 16_000);
        let distance = distance(&found.unwrap(), &sine(7_600.0, 16_000, 1.0, 0.5));
        assert!(distance < 1e-3, "{distance}");
    }

    #[test]
    fn what_the_new_rate_cannot_carry_is_removed_instead_of_folded_back() {
        let found = read(&recording(44_100, 1, 16, &sine(10_000.0, 44_100, 1.0, 0.5)), 16_000);
        assert!(distance(&found.unwrap(), &[0.0; 16_000]) < 1e-3);
    }

    #[test]
    fn all_sample_formats_and_channel_counts_are_read() {
        let left = sine(300.0, 16_000, 0.2, 0.8);
        for (bits, tolerance) in [(8, 1e-2), (16, 1e-4), (24, 1e-6), (32, 1e-6), (0, 1e-6)] {
            let mono = read(&recording(16_000, 1, bits, &left), 16_000).unwrap();
            assert!(distance(&mono, &left) < tolerance, "{bits} bits");
        }
        // The right channel is silent: the mix has half the amplitude.
        let stereo: Vec<f32> = left.iter().flat_map(|&sample| [sample, 0.0]).collect();
        let mixed = read(&recording(16_000, 2, 0, &stereo), 16_000).unwrap();
        let half: Vec<f32> = left.iter().map(|sample| sample / 2.0).collect();
        assert_eq!(mixed, half);
    }

    #[test]
    fn a_very_short_recording_is_resampled_too() {
        assert_eq!(read(&recording(44_100, 1, 16, &[0.5; 3]), 16_000).unwrap().len(), 2);
    }

    #[test]
    fn broken_recordings_say_what_is_wrong() {
        let message = |source: &Source| read(source, 16_000).unwrap_err().to_string();
        assert_eq!(message(&Source::new("a.wav", "")), "a.wav: this is not a WAV file");
        assert_eq!(message(&Source::new("a.wav", "ID3 music")), "a.wav: this is not a WAV file");
        let empty = recording(16_000, 1, 16, &[]);
        assert_eq!(message(&empty), "test.wav: the recording has no samples");
        let whole = recording(16_000, 1, 16, &[0.5; 100]);
        for len in [8, 20, 40, 101] {
            let cut = message(&Source::new("cut.wav", whole.bytes.slice(..len)));
            assert!(cut.starts_with("cut.wav: the recording cannot be read: "), "{len}: {cut}");
        }
        let slow = recording(1, 1, 16, &[0.5; 100]);
        assert!(message(&slow).contains("its sampling rate is 1 Hz; Holdfast reads 4 kHz"));
        let noise = recording(16_000, 1, 0, &[0.5, f32::NAN]);
        assert_eq!(message(&noise), "test.wav: the recording has samples that are not numbers");
    }

    #[test]
    fn a_recording_that_claims_to_last_for_days_is_refused() {
        let mut bytes = recording(4_000, 1, 8, &[0.5; 100]).bytes.to_vec();
        let place = bytes.windows(4).position(|four| four == b"data").unwrap() + 4;
        bytes[place..place + 4].copy_from_slice(&[0xff; 4]);
        let message = read(&Source::new("long.wav", bytes), 16_000).unwrap_err().to_string();
        assert_eq!(message, "long.wav: the recording is too long (1073742 s); cut it first");
    }
}
