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
