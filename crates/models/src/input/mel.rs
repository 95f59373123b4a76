//! The log-mel spectrogram of Whisper models: loudness by time and pitch, pitch spaced as ears
//! hear it (Slaney's mel scale).

use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

/// The top of the mel scale in hertz; Whisper fixes it.
const TOP_FREQUENCY: f64 = 8_000.0;

/// Computes spectrograms of one shape.
#[derive(Clone)]
pub(super) struct LogMel {
    bands: usize,
    hop: usize,
    window: Vec<f64>,
    /// For each band: the first frequency that counts and the weights from there on.
    filters: Vec<(usize, Vec<f64>)>,
    fft: Arc<dyn RealToComplex<f64>>,
}

impl LogMel {
    /// `bands` mel bands from windows of `window_len` samples, `hop` samples apart.
    pub(super) fn new(bands: usize, window_len: usize, hop: usize, rate: u32) -> LogMel {
        let phase = |index: usize| std::f64::consts::TAU * index as f64 / window_len as f64;
        LogMel {
            bands,
            hop,
            window: (0..window_len).map(|index| 0.5 - 0.5 * phase(index).cos()).collect(),
            filters: filters(bands, window_len, rate),
            fft: RealFftPlanner::new().plan_fft_forward(window_len),
        }
    }

    /// Samples from one frame to the next.
    pub(super) fn hop(&self) -> usize {
        self.hop
    }

    /// How many frames samples of this length give.
    pub(super) fn frames(&self, samples: usize) -> usize {
        samples / self.hop
    }

    /// The spectrogram, band by band: `bands × frames` values. The samples are mirrored at
    /// both ends, so there must be more of them than half a window.
    pub(super) fn compute(&self, samples: &[f32]) -> Vec<f32> {
        let (window_len, frames) = (self.window.len(), self.frames(samples.len()));
        let mut buffer = vec![0.0; window_len];
        let mut spectrum = vec![Complex::default(); window_len / 2 + 1];
        let mut scratch = self.fft.make_scratch_vec();
        let mut logs = vec![0f64; self.bands * frames];
        for frame in 0..frames {
            let start = (frame * self.hop) as isize - (window_len / 2) as isize;
            for (index, (slot, weight)) in buffer.iter_mut().zip(&self.window).enumerate() {
                let sample = samples[mirrored(start + index as isize, samples.len())];
                *slot = f64::from(sample) * weight;
            }
            self.fft
                .process_with_scratch(&mut buffer, &mut spectrum, &mut scratch)
                .expect("the buffers have the lengths that the transform was planned for");
            for (band, (first, weights)) in self.filters.iter().enumerate() {
                let powers = spectrum[*first..].iter().map(Complex::norm_sqr);
                let energy: f64 = powers.zip(weights).map(|(power, weight)| power * weight).sum();
                logs[band * frames + frame] = energy.max(1e-10).log10();
            }
        }
        // Eight orders of magnitude below the loudest is silence.
        let floor = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max) - 8.0;
        logs.into_iter().map(|log| ((log.max(floor) + 4.0) / 4.0) as f32).collect()
    }
}

impl std::fmt::Debug for LogMel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LogMel { bands, hop, window, .. } = self;
        write!(f, "LogMel({bands} bands, windows of {}, {hop} apart)", window.len())
    }
}

/// An index outside the samples, reflected at the ends without repeating them.
fn mirrored(index: isize, len: usize) -> usize {
    let last = len as isize - 1;
    let index = index.abs();
    (if index > last { 2 * last - index } else { index }).clamp(0, last) as usize
}

/// One triangle per band, each with an area of 1.
fn filters(bands: usize, window_len: usize, rate: u32) -> Vec<(usize, Vec<f64>)> {
    let bins = window_len / 2 + 1;
    let bin_width = f64::from(rate) / 2.0 / (bins - 1) as f64;
    let edge = |index: usize| hertz(mel(TOP_FREQUENCY) * index as f64 / (bands + 1) as f64);
    let triangle = |band: usize| {
        let (low, centre, high) = (edge(band), edge(band + 1), edge(band + 2));
        let weight = |bin: usize| {
            let frequency = bin as f64 * bin_width;
            let rising = (frequency - low) / (centre - low);
            let falling = (high - frequency) / (high - centre);
            rising.min(falling).max(0.0) * 2.0 / (high - low)
        };
        let weights: Vec<f64> = (0..bins).map(weight).collect();
        let first = weights.iter().position(|&weight| weight > 0.0).unwrap_or(0);
        let end = weights.iter().rposition(|&weight| weight > 0.0).map_or(first, |last| last + 1);
        (first, weights[first..end].to_vec())
    };
    (0..bands).map(triangle).collect()
}

/// Slaney's scale: linear up to 1000 Hz (15 mel), logarithmic above.
fn mel(hertz: f64) -> f64 {
    if hertz < 1000.0 {
        3.0 * hertz / 200.0
    } else {
        15.0 + (hertz / 1000.0).ln() * 27.0 / 6.4f64.ln()
    }
}

fn hertz(mel: f64) -> f64 {
    if mel < 15.0 { 200.0 * mel / 3.0 } else { 1000.0 * ((mel - 15.0) * 6.4f64.ln() / 27.0).exp() }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::*;

    /// A rising tone over a steady one, rounded to 16 bits.
    fn chirp(seconds: usize) -> Vec<f32> {
        let sample = |n: usize| {
            let t = n as f64 / 16_000.0;
            let value =
                0.5 * (TAU * (200.0 * t + 700.0 * t * t)).sin() + 0.1 * (TAU * 3000.0 * t).sin();
            ((value * 32767.0).round() / 32768.0) as f32
        };
        (0..16_000 * seconds).map(sample).collect()
    }

    #[test]
    fn gives_the_values_of_a_numpy_rendering_of_whisper() {
        let log_mel = LogMel::new(8, 400, 160, 16_000);
        let found = log_mel.compute(&chirp(1));
        assert_eq!(found.len(), 800);
        // Frames 0, 1, 50, 98 and 99 of each band.
        let expected = [
            [1.19203, 1.21336, -0.34535, -0.74432, 0.16838],
            [0.70751, 0.23277, 1.13675, -0.74432, 0.20321],
            [0.40836, -0.09274, 1.20883, -0.22066, 0.3034],
            [0.11624, -0.36887, -0.05802, 1.18621, 1.18268],
            [0.32584, -0.17899, -0.74432, 1.03378, 1.04327],
            [0.77187, 0.77763, 0.77768, 0.77768, 0.77761],
            [0.55409, 0.5429, 0.54279, 0.54279, 0.54288],
            [0.14636, -0.36371, -0.74432, -0.74432, -0.24014],
        ];
        for (band, row) in expected.iter().enumerate() {
            for (frame, expected) in [0, 1, 50, 98, 99].into_iter().zip(row) {
                let value = found[band * 100 + frame];
                assert!((value - expected).abs() < 2e-5, "band {band} frame {frame}: {value}");
            }
        }
    }

    #[test]
    fn silence_is_flat() {
        let found = LogMel::new(4, 400, 160, 16_000).compute(&[0.0; 1600]);
        assert_eq!(found, [-1.5; 40]);
    }
}
