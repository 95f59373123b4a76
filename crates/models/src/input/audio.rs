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
            let heard = samples.len().div_ceil(log_mel.hop());
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

/// A hundred times what the largest Whisper model takes.
const MAX_FEATURES: usize = 128 * 3_000 * 100;

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
        if samples / hop * bands > MAX_FEATURES {
            return Err(InputError::bad_file(
                file,
                "the spectrogram that it describes is too large",
            ));
        }
        Ok(Form::Spectrogram { log_mel: LogMel::new(bands, window, hop, rate), samples })
    }
}

#[cfg(test)]
mod tests {
    use holdfast_graph::Tensor;

    use super::super::tensors::tests::value;
    use super::wav::tests::{recording, sine};
    use super::*;

    const WAV2VEC2: &str = r#"{"do_normalize": true, "feature_size": 1, "padding_side": "right",
        "feature_extractor_type": "Wav2Vec2FeatureExtractor", "padding_value": 0.0,
        "return_attention_mask": true, "sampling_rate": 16000}"#;

    const WHISPER: &str = r#"{"chunk_length": 30, "feature_size": 80, "hop_length": 160,
        "feature_extractor_type": "WhisperFeatureExtractor", "n_fft": 400, "n_samples": 480000,
        "nb_max_frames": 3000, "padding_side": "right", "padding_value": 0.0,
        "return_attention_mask": false, "sampling_rate": 16000}"#;

    fn sidecars(config: &str) -> Sidecars {
        Sidecars::from_iter([("preprocessor_config.json", config.to_owned())])
    }

    fn samples_input(dims: &[usize]) -> [Value; 1] {
        [value("waveform", DataType::F32, dims)]
    }

    #[test]
    fn plain_samples_take_the_rank_of_the_input_and_the_callers_rate() {
        let source = recording(16_000, 1, 0, &[0.25, -0.5, 1.0]);
        for (declared, expected) in
            [(&[0][..], &[3][..]), (&[0, 0], &[1, 3]), (&[1, 1, 0], &[1, 1, 3])]
        {
            let input =
                AudioInput::new(&Sidecars::default(), &samples_input(declared), Some(16_000));
            let input = input.unwrap();
            assert_eq!(input.rate(), 16_000);
            let prepared = input.prepare(std::slice::from_ref(&source)).unwrap();
            let tensor = Tensor::from_slice(expected, &[0.25f32, -0.5, 1.0]).unwrap();
            assert_eq!(prepared.tensors, [("waveform".to_owned(), tensor)]);
        }
    }

    #[test]
    fn wav2vec2_standardizes_then_pads_and_masks() {
        let inputs = [
            value("input_values", DataType::F32, &[0, 0]),
            value("attention_mask", DataType::I64, &[0, 0]),
        ];
        let input = AudioInput::new(&sidecars(WAV2VEC2), &inputs, Some(8_000)).unwrap();
        assert_eq!(input.rate(), 16_000, "what the model states comes first");
        let long = recording(16_000, 1, 0, &[0.1, 0.3, 0.1, 0.3]);
        let short = recording(16_000, 1, 0, &[0.5, -0.5]);
        let prepared = input.prepare(&[long, short]).unwrap();
        let values = prepared.tensors[0].1.to_vec::<f32>().unwrap();
        for (found, expected) in values.iter().zip([-1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 0.0, 0.0]) {
            assert!((found - expected).abs() < 1e-4, "{values:?}");
        }
        let mask = Tensor::from_slice(&[2, 4], &[1i64, 1, 1, 1, 1, 1, 0, 0]).unwrap();
        assert_eq!(prepared.tensors[1], ("attention_mask".to_owned(), mask));
    }

    #[test]
    fn whisper_gets_thirty_seconds_of_spectrogram() {
        let inputs = [value("input_features", DataType::F32, &[0, 80, 3000])];
        let input = AudioInput::new(&sidecars(WHISPER), &inputs, None).unwrap();
        let short = recording(44_100, 2, 16, &sine(440.0, 44_100, 1.0, 0.5));
        let prepared = input.prepare(&[short]).unwrap();
        assert_eq!(prepared.tensors[0].1.dims(), [1, 80, 3000]);
        assert!(prepared.truncated.is_empty());
        let long = recording(16_000, 1, 8, &vec![0.0; 16_000 * 31]);
        assert_eq!(input.prepare(&[long]).unwrap().truncated, [0]);
    }

    #[test]
    fn an_input_of_fixed_length_is_padded_and_cut() {
        let input =
            AudioInput::new(&Sidecars::default(), &samples_input(&[1, 3]), Some(16_000)).unwrap();
        let prepared = input.prepare(&[recording(16_000, 1, 0, &[0.5; 2])]).unwrap();
        assert_eq!(prepared.tensors[0].1.to_vec::<f32>().unwrap(), [0.5, 0.5, 0.0]);
        assert_eq!(input.prepare(&[recording(16_000, 1, 0, &[0.5; 9])]).unwrap().truncated, [0]);
    }

    #[test]
    fn what_is_missing_or_cannot_be_done_is_named() {
        let error = |config: Option<&str>, inputs: &[Value], rate: Option<u32>| {
            let sidecars = config.map(sidecars).unwrap_or_default();
            AudioInput::new(&sidecars, inputs, rate).unwrap_err().to_string()
        };
        let samples = samples_input(&[0, 0]);
        let features = [value("input_features", DataType::F32, &[0, 80, 3000])];
        let tokens = [value("input_ids", DataType::I64, &[0, 0])];
        assert!(error(None, &samples, None).contains("does not say which sampling rate"));
        assert!(error(None, &tokens, None).starts_with("this model does not take sound"));
        assert!(error(None, &features, Some(16_000)).contains("no preprocessor_config.json"));
        let other = r#"{"feature_extractor_type": "ASTFeatureExtractor", "sampling_rate": 16000}"#;
        assert!(
            error(Some(other), &samples, None).contains("the steps of \"ASTFeatureExtractor\"")
        );
        let absurd = WHISPER.replace("400", "0");
        assert!(error(Some(&absurd), &features, None).contains("`n_fft` must be from 1 to 65536"));
        let dense = WHISPER
            .replace("\"hop_length\": 160", "\"hop_length\": 1")
            .replace("\"chunk_length\": 30", "\"chunk_length\": 600");
        assert!(error(Some(&dense), &features, None).contains("is too large"));
        let input = AudioInput::new(&Sidecars::default(), &samples_input(&[0]), Some(16_000));
        let two = [recording(16_000, 1, 0, &[0.5]), recording(16_000, 1, 0, &[0.5])];
        let message = input.unwrap().prepare(&two).unwrap_err().to_string();
        assert_eq!(message, "this model runs batches of exactly 1, but 2 recordings were given");
    }
}
