//! Sound as the model takes it: plain samples, or the log-mel spectrogram of Whisper models.

use holdfast_graph::{DataType, Value};
use serde::Deserialize;

use super::mel::LogMel;
use super::tensors::{check_batch, fixed_size, from_floats, from_ints, not_taken};
use super::{InputError, Prepared, Sidecars, Source, wav};

/// Turns WAV recordings into the sound input of one model.
#[derive(Clone, Debug)]
pub struct AudioInput {
    input: Value,
    mask: Option<Value>,
    rate: u32,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Samples { normalize: bool, padding: f32 },
    Spectrogram { log_mel: LogMel, samples: usize },
}

impl AudioInput {
    /// Reads `preprocessor_config.json` where the model has one, and finds its sound input:
    /// `input_features` (a spectrogram), `input_values` (samples), or else the only input of
    /// fractional numbers with one to three dimensions (samples).
    ///
    /// `rate` in hertz is for models that do not state one; what a model states comes first.
    pub fn new(
        sidecars: &Sidecars,
        inputs: &[Value],
        rate: Option<u32>,
    ) -> Result<AudioInput, InputError> {
        let named = |name: &str| inputs.iter().find(|input| input.name == name);
        let mut plain = inputs.iter().filter(|input| could_be_samples(input));
        let input = named("input_features")
            .or_else(|| named("input_values"))
            .or_else(|| plain.next().filter(|_| plain.next().is_none()))
            .ok_or_else(|| not_taken("sound", inputs))?;

        let (file, config) = match sidecars.processor("feature_extractor")? {
            Some((file, json)) => {
                let config = serde_json::from_value::<Config>(json);
                (file, config.map_err(|error| InputError::bad_file(file, error))?)
            }
            None => ("preprocessor_config.json", Config::default()),
        };
        let rate = config.sampling_rate.or(rate).ok_or(InputError::NoSamplingRate)?;
        if !(1_000..=768_000).contains(&rate) {
            return Err(InputError::bad_file(file, format!("a sampling rate of {rate} Hz")));
        }
        let form = config.form(file, input, rate)?;
        let mask = named("attention_mask").cloned();
        Ok(AudioInput { input: input.clone(), mask, rate, form })
    }

    /// The sampling rate that recordings are brought to, in hertz.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Reads, resamples and prepares a batch of recordings; shorter ones are padded at the end.
    pub fn prepare(&self, recordings: &[Source]) -> Result<Prepared, InputError> {
        let rank = self.input.dims.as_ref().map_or(2, Vec::len);
        if rank == 1 && recordings.len() > 1 {
            return Err(InputError::Batch {
                kind: "recordings",
                fixed: 1,
                given: recordings.len(),
            });
        }
        if rank > 1 || recordings.is_empty() {
            check_batch(&self.input, "recordings", recordings.len())?;
        }
        let batch = recordings
            .iter()
            .map(|recording| wav::read(recording, self.rate))
            .collect::<Result<Vec<_>, _>>()?;
        match &self.form {
            Form::Samples { normalize, padding } => self.samples(batch, rank, *normalize, *padding),
            Form::Spectrogram { log_mel, samples } => self.spectrogram(batch, log_mel, *samples),
        }
    }

    fn samples(
        &self,
        mut batch: Vec<Vec<f32>>,
        rank: usize,
        normalize: bool,
        padding: f32,
    ) -> Result<Prepared, InputError> {
        let longest = batch.iter().map(Vec::len).max().unwrap_or(0);
        let length = fixed_size(&self.input, rank - 1).unwrap_or(longest);
        let truncated = (0..batch.len()).filter(|&index| batch[index].len() > length).collect();
        let mut mask = Vec::new();
        for samples in &mut batch {
            samples.truncate(length);
            if normalize {
                standardize(samples);
            }
            mask.extend((0..length).map(|index| i64::from(index < samples.len())));
            samples.resize(length, padding);
        }
        let dims = match rank {
            1 => vec![length],
            2 => vec![batch.len(), length],
            _ => vec![batch.len(), 1, length],
        };
        let mut tensors = vec![from_floats(&self.input, &dims, &batch.concat())?];
        if let Some(input) = &self.mask {
            tensors.push(from_ints(input, &[batch.len(), length], &mask)?);
        }
        Ok(Prepared { tensors, mask: None, truncated })
    }

    fn spectrogram(
        &self,
        mut batch: Vec<Vec<f32>>,
        log_mel: &LogMel,
        length: usize,
    ) -> Result<Prepared, InputError> {
        let frames = log_mel.frames(length);
        let truncated = (0..batch.len()).filter(|&index| batch[index].len() > length).collect();
        let mut features = Vec::new();
        let mut mask = Vec::new();
        for samples in &mut batch {
            samples.truncate(length);
            let heard = samples.len().div_ceil(length / frames);
            mask.extend((0..frames).map(|frame| i64::from(frame < heard)));
            samples.resize(length, 0.0);
            features.extend(log_mel.compute(samples));
        }
        let bands = features.len() / (batch.len() * frames);
        let dims = [batch.len(), bands, frames];
        let mut tensors = vec![from_floats(&self.input, &dims, &features)?];
        if let Some(input) = &self.mask {
            tensors.push(from_ints(input, &[batch.len(), frames], &mask)?);
        }
        Ok(Prepared { tensors, mask: None, truncated })
    }
}

fn could_be_samples(input: &Value) -> bool {
    let fractional = matches!(input.dtype, Some(DataType::F32 | DataType::F16 | DataType::F64));
    fractional && input.dims.as_ref().is_some_and(|dims| (1..=3).contains(&dims.len()))
}

/// Mean 0 and variance 1, as Wav2Vec2 processors do it.
fn standardize(samples: &mut [f32]) {
    let count = samples.len() as f64;
    let mean = samples.iter().copied().map(f64::from).sum::<f64>() / count;
    let variance =
        samples.iter().map(|&sample| (f64::from(sample) - mean).powi(2)).sum::<f64>() / count;
    let scale = (variance + 1e-7).sqrt();
    for sample in samples {
        *sample = ((f64::from(*sample) - mean) / scale) as f32;
    }
}

#[derive(Default, Deserialize)]
struct Config {
    feature_extractor_type: Option<String>,
    sampling_rate: Option<u32>,
    do_normalize: Option<bool>,
    padding_value: Option<f32>,
    feature_size: Option<usize>,
    n_fft: Option<usize>,
    hop_length: Option<usize>,
    chunk_length: Option<usize>,
}

impl Config {
    fn form(&self, file: &str, input: &Value, rate: u32) -> Result<Form, InputError> {
        let kind = self.feature_extractor_type.as_deref();
        match (input.name.as_str(), kind) {
            ("input_features", Some("WhisperFeatureExtractor")) => self.whisper(file, rate),
            ("input_features", None) if self.n_fft.is_some() => self.whisper(file, rate),
            ("input_features", None) => Err(InputError::MissingFile {
                file: "preprocessor_config.json",
                purpose: "says how sound becomes `input_features`",
            }),
            (_, None | Some("Wav2Vec2FeatureExtractor")) => Ok(Form::Samples {
                normalize: self.do_normalize.unwrap_or(kind.is_some()),
                padding: self.padding_value.unwrap_or(0.0),
            }),
            (_, Some(kind)) => {
                let what = format!("the steps of \"{kind}\"");
                Err(InputError::Unsupported { file: file.to_owned(), what })
            }
        }
    }

    fn whisper(&self, file: &str, rate: u32) -> Result<Form, InputError> {
        let setting = |name: &str, value: Option<usize>, default: usize, max: usize| {
            Some(value.unwrap_or(default)).filter(|value| (1..=max).contains(value)).ok_or_else(
                || InputError::bad_file(file, format!("`{name}` must be from 1 to {max}")),
            )
        };
        if self.do_normalize == Some(true) {
            let what = "`do_normalize` of sound for a spectrogram".to_owned();
            return Err(InputError::Unsupported { file: file.to_owned(), what });
        }
        let bands = setting("feature_size", self.feature_size, 80, 1024)?;
        let window = setting("n_fft", self.n_fft, 400, 1 << 16)?;
        let hop = setting("hop_length", self.hop_length, 160, window)?;
        let seconds = setting("chunk_length", self.chunk_length, 30, 600)?;
        let samples = seconds * rate as usize;
        if samples <= window || window < 2 {
            return Err(InputError::bad_file(file, "`n_fft` does not fit `chunk_length`"));
        }
        Ok(Form::Spectrogram { log_mel: LogMel::new(bands, window, hop, rate), samples })
    }
}
