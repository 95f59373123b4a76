//! From one vector per token to one vector per text.

use std::str::FromStr;

use holdfast_graph::Tensor;
use serde::Deserialize;

use super::tensors::to_floats;
use super::{InputError, Sidecars};

/// How the token vectors of a text become its embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling {
    /// Which tokens count.
    pub mode: PoolingMode,
    /// Whether the result is scaled to length 1.
    pub normalize: bool,
}

/// Which tokens count, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolingMode {
    /// The mean over all tokens that are not padding.
    Mean,
    /// The first token that is not padding.
    Cls,
    /// The largest value of each feature over all tokens that are not padding.
    Max,
    /// The last token that is not padding.
    Last,
}

impl PoolingMode {
    /// Every mode with the name that [`FromStr`] takes.
    pub const ALL: [(&str, PoolingMode); 4] = [
        ("mean", PoolingMode::Mean),
        ("cls", PoolingMode::Cls),
        ("max", PoolingMode::Max),
        ("last", PoolingMode::Last),
    ];
}

impl FromStr for PoolingMode {
    type Err = String;

    fn from_str(name: &str) -> Result<PoolingMode, String> {
        let mode = PoolingMode::ALL.into_iter().find(|(known, _)| *known == name);
        mode.map(|(_, mode)| mode)
            .ok_or_else(|| format!("unknown pooling \"{name}\"; there are mean, cls, max and last"))
    }
}

impl Pooling {
    /// What a sentence-transformers model says in `modules.json` and the files that it names;
    /// `None` for models that say nothing about pooling.
    pub fn from_sidecars(sidecars: &Sidecars) -> Result<Option<Pooling>, InputError> {
        let modules: Vec<Module> = sidecars.json("modules.json")?.unwrap_or_default();
        let mut pooling: Option<Pooling> = None;
        for module in &modules {
            let kind = module.r#type.rsplit('.').next().unwrap_or_default();
            match (kind, &mut pooling) {
                ("Transformer", _) => {}
                ("Pooling", None) => {
                    let file = format!("{}/config.json", module.path);
                    let config: Config = sidecars.json(&file)?.ok_or_else(|| {
                        InputError::bad_file(
                            "modules.json",
                            format!("it names {file}, which is missing"),
                        )
                    })?;
                    pooling = Some(Pooling { mode: config.mode(&file)?, normalize: false });
                }
                ("Normalize", Some(pooling)) => pooling.normalize = true,
                _ => {
                    let what = format!("the step \"{kind}\" after the model");
                    return Err(InputError::Unsupported { file: "modules.json".to_owned(), what });
                }
            }
        }
        Ok(pooling)
    }
}

/// Pools `hidden` (`[batch, sequence, features]`) over the tokens that `mask`
/// (i64 `[batch, sequence]`) marks, to f32 `[batch, features]`.
///
/// ```
/// use holdfast_graph::Tensor;
/// use holdfast_models::input::{Pooling, PoolingMode, pool};
///
/// let hidden = Tensor::from_slice(&[1, 3, 2], &[1.0f32, 2.0, 5.0, 6.0, 9.0, 9.0])?;
/// let mask = Tensor::from_slice(&[1, 3], &[1i64, 1, 0])?;
/// let pooling = Pooling { mode: PoolingMode::Mean, normalize: false };
/// assert_eq!(pool(&hidden, &mask, pooling)?.to_vec::<f32>()?, [3.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pool(hidden: &Tensor, mask: &Tensor, pooling: Pooling) -> Result<Tensor, InputError> {
    let &[batch, sequence, features] = hidden.dims() else {
        let dims = hidden.dims();
        return Err(InputError::Output(format!(
            "pooling needs [batch, sequence, features], but the output has {dims:?}"
        )));
    };
    if mask.dims() != [batch, sequence] {
        let problem = format!("a mask of {:?} for an output of {:?}", mask.dims(), hidden.dims());
        return Err(InputError::Output(problem));
    }
    let (values, mask) = (to_floats(hidden)?, mask.to_vec::<i64>()?);
    let mut pooled = Vec::with_capacity(batch * features);
    for text in 0..batch {
        let tokens: Vec<&[f32]> = (0..sequence)
            .map(|token| text * sequence + token)
            .filter(|&token| mask[token] != 0)
            .map(|token| &values[token * features..(token + 1) * features])
            .collect();
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else {
            return Err(InputError::Output(format!("text {} has no tokens to pool", text + 1)));
        };
        let column = |feature: usize| tokens.iter().map(move |token| token[feature]);
        let vector: Vec<f32> = match pooling.mode {
            PoolingMode::Cls => first.to_vec(),
            PoolingMode::Last => last.to_vec(),
            PoolingMode::Max => {
                (0..features).map(|feature| column(feature).fold(f32::MIN, f32::max)).collect()
            }
            PoolingMode::Mean => (0..features)
                .map(|feature| column(feature).sum::<f32>() / tokens.len() as f32)
                .collect(),
        };
        pooled.extend(embedding(vector, pooling.normalize));
    }
    Ok(Tensor::from_slice(&[batch, features], &pooled)?)
}

fn embedding(mut vector: Vec<f32>, normalize: bool) -> Vec<f32> {
    if normalize {
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt().max(1e-12);
        vector.iter_mut().for_each(|value| *value /= length);
    }
    vector
}

#[derive(Deserialize)]
struct Module {
    #[serde(default)]
    path: String,
    r#type: String,
}

/// `1_Pooling/config.json`. The modes that Holdfast has no use for are here to be refused.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    pooling_mode_cls_token: bool,
    pooling_mode_mean_tokens: bool,
    pooling_mode_max_tokens: bool,
    pooling_mode_lasttoken: bool,
    pooling_mode_mean_sqrt_len_tokens: bool,
    pooling_mode_weightedmean_tokens: bool,
}

impl Config {
    fn mode(&self, file: &str) -> Result<PoolingMode, InputError> {
        let unsupported = |what: &str| {
            Err(InputError::Unsupported { file: file.to_owned(), what: what.to_owned() })
        };
        if self.pooling_mode_mean_sqrt_len_tokens || self.pooling_mode_weightedmean_tokens {
            return unsupported("a weighted mean");
        }
        let modes = [
            (self.pooling_mode_mean_tokens, PoolingMode::Mean),
            (self.pooling_mode_cls_token, PoolingMode::Cls),
            (self.pooling_mode_max_tokens, PoolingMode::Max),
            (self.pooling_mode_lasttoken, PoolingMode::Last),
        ];
        let mut modes = modes.into_iter().filter_map(|(on, mode)| on.then_some(mode));
        match (modes.next(), modes.next()) {
            (Some(mode), None) => Ok(mode),
            (Some(_), Some(_)) => unsupported("several kinds of pooling side by side"),
            (None, _) => Err(InputError::bad_file(file, "it turns on no kind of pooling")),
        }
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    fn check(mode: PoolingMode, normalize: bool, expected: [f32; 4]) {
        // Two texts of three tokens with two features; the second is padded on the left.
        let values = [1., -2., 3., -6., 99., 99., 99., 99., 99., 99., 3., 4.];
        let mask = Tensor::from_slice(&[2, 3], &[1i64, 1, 0, 0, 0, 1]).unwrap();
        let expected = Tensor::from_slice(&[2, 2], &expected).unwrap();
        let pooling = Pooling { mode, normalize };
        let hidden = Tensor::from_slice(&[2, 3, 2], &values.map(|value| value as f32)).unwrap();
        assert_eq!(pool(&hidden, &mask, pooling).unwrap(), expected);
        let half = Tensor::from_slice(&[2, 3, 2], &values.map(f16::from_f64)).unwrap();
        assert_eq!(pool(&half, &mask, pooling).unwrap(), expected);
    }

    #[test]
    fn padding_never_counts() {
        check(PoolingMode::Mean, false, [2.0, -4.0, 3.0, 4.0]);
        check(PoolingMode::Max, false, [3.0, -2.0, 3.0, 4.0]);
        check(PoolingMode::Cls, false, [1.0, -2.0, 3.0, 4.0]);
        check(PoolingMode::Last, false, [3.0, -6.0, 3.0, 4.0]);
    }

    #[test]
    fn normalized_embeddings_have_length_one() {
        let length = 45f32.sqrt();
        check(PoolingMode::Last, true, [3.0 / length, -6.0 / length, 0.6, 0.8]);
    }

    #[test]
    fn refuses_outputs_that_are_not_one_vector_per_token() {
        let pooling = Pooling { mode: PoolingMode::Mean, normalize: true };
        let tensor = |dims: &[usize]| Tensor::zeros(holdfast_graph::DataType::F32, dims).unwrap();
        let mask = |values: &[i64]| Tensor::from_slice(&[1, 2], values).unwrap();
        let message = |hidden, mask: &Tensor| pool(&hidden, mask, pooling).unwrap_err().to_string();
        assert!(message(tensor(&[1, 2]), &mask(&[1, 1])).contains("but the output has [1, 2]"));
        assert!(message(tensor(&[1, 3, 2]), &mask(&[1, 1])).contains("a mask of [1, 2]"));
        assert!(message(tensor(&[1, 2, 2]), &mask(&[0, 0])).contains("text 1 has no tokens"));
    }

    const MODULES: &str = r#"[
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
    ]"#;

    fn read(modules: &str, pooling: &str) -> Result<Option<Pooling>, String> {
        let files = [("modules.json", modules), ("1_Pooling/config.json", pooling)];
        let sidecars = files.into_iter().map(|(name, json)| (name, json.to_owned())).collect();
        Pooling::from_sidecars(&sidecars).map_err(|error| error.to_string())
    }

    #[test]
    fn sentence_transformers_models_say_how_to_pool() {
        let config = r#"{"word_embedding_dimension": 384, "pooling_mode_cls_token": false,
            "pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": false}"#;
        let mean = Pooling { mode: PoolingMode::Mean, normalize: true };
        assert_eq!(read(MODULES, config).unwrap(), Some(mean));
        let cls = read(
            &MODULES.replace("2_", "").replace("Normalize", "Transformer"),
            r#"{"pooling_mode_cls_token": true}"#,
        );
        assert_eq!(cls.unwrap(), Some(Pooling { mode: PoolingMode::Cls, normalize: false }));
        assert_eq!(Pooling::from_sidecars(&Sidecars::default()).unwrap(), None);
    }

    #[test]
    fn steps_that_holdfast_does_not_do_are_refused() {
        let mean = r#"{"pooling_mode_mean_tokens": true}"#;
        let dense = read(&MODULES.replace("Normalize", "Dense"), mean).unwrap_err();
        assert!(dense.contains("the step \"Dense\" after the model"), "{dense}");
        let both = r#"{"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true}"#;
        assert!(read(MODULES, both).unwrap_err().contains("several kinds of pooling"));
        assert!(read(MODULES, "{}").unwrap_err().contains("turns on no kind of pooling"));
        let weighted = r#"{"pooling_mode_weightedmean_tokens": true}"#;
        assert!(read(MODULES, weighted).unwrap_err().contains("a weighted mean"));
        let elsewhere = read(&MODULES.replace("1_Pooling", "9_Pooling"), mean).unwrap_err();
        assert!(elsewhere.contains("9_Pooling/config.json, which is missing"), "{elsewhere}");
    }

    #[test]
    fn modes_have_names() {
        for (name, mode) in PoolingMode::ALL {
            assert_eq!(name.parse(), Ok(mode));
        }
        let error = "median".parse::<PoolingMode>().unwrap_err();
        assert_eq!(error, "unknown pooling \"median\"; there are mean, cls, max and last");
    }
}
