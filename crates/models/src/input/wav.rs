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

/// Frames that the resampler takes at a time; it only trades memory against speed.
const CHUNK: usize = 1024;

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
    let mut resampler = Fft::<f32>::new(from as usize, to as usize, CHUNK, 1, FixedSync::Both)?;
    let input = InterleavedSlice::new(&samples, 1, samples.len())?;
    let mut output = resampler.process_all(&input, samples.len(), None)?.take_data();
    output.truncate((samples.len() as u64 * u64::from(to)).div_ceil(from.into()) as usize);
    Ok(output)
}
