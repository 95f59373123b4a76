//! From a classifier's numbers to the names of its classes.

use std::collections::BTreeMap;

use holdfast_graph::Tensor;
use serde::Deserialize;

use super::tensors::to_floats;
use super::{InputError, Sidecars};

/// The classes of a model, as `config.json` names them.
#[derive(Clone, Debug, PartialEq)]
pub struct Labels {
    names: Vec<String>,
    activation: Activation,
}

/// How the model's numbers become scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// One class is right: scores sum up to 1.
    Softmax,
    /// Each class is right or wrong by itself.
    Sigmoid,
    /// The numbers are the answer (regression).
    Identity,
}

/// A class with its score.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The name of the class.
    pub label: String,
    /// Its place in the model's output.
    pub index: usize,
    /// Higher is more likely.
    pub score: f32,
}

impl Labels {
    /// Reads `id2label` and `problem_type` of `config.json`; `None` for models without classes.
    pub fn from_sidecars(sidecars: &Sidecars) -> Result<Option<Labels>, InputError> {
        let file = "config.json";
        let config: Config = sidecars.json(file)?.unwrap_or_default();
        let Some(by_id) = config.id2label.filter(|labels| !labels.is_empty()) else {
            return Ok(None);
        };
        if by_id.keys().copied().ne(0..by_id.len()) {
            return Err(InputError::bad_file(file, "`id2label` does not number classes from 0"));
        }
        let names: Vec<String> = by_id.into_values().collect();
        let activation = match config.problem_type {
            Some(ProblemType::Regression) => Activation::Identity,
            Some(ProblemType::MultiLabelClassification) => Activation::Sigmoid,
            Some(ProblemType::SingleLabelClassification) => Activation::Softmax,
            None if names.len() == 1 => Activation::Sigmoid,
            None => Activation::Softmax,
        };
        Ok(Some(Labels { names, activation }))
    }

    /// The names of the classes, in the order of the model's output.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How the model's numbers become scores.
    pub fn activation(&self) -> Activation {
        self.activation
    }

    /// The `count` classes with the highest scores for each item of a batch, best first.
    /// `logits` is `[batch, classes]` or `[classes]`.
    pub fn top(&self, logits: &Tensor, count: usize) -> Result<Vec<Vec<Scored>>, InputError> {
        let classes = self.names.len();
        let is_row = matches!(logits.dims(), [found] | [_, found] if *found == classes);
        if !is_row {
            return Err(InputError::Output(format!(
                "the model names {classes} classes, but the output has dimensions {:?}",
                logits.dims()
            )));
        }
        let best = |logits: &[f32]| {
            let scores = self.activation.scores(logits).into_iter().zip(&self.names).enumerate();
            let mut scored: Vec<Scored> = scores
                .map(|(index, (score, label))| Scored { label: label.clone(), index, score })
                .collect();
            scored.sort_by(|a, b| b.score.total_cmp(&a.score));
            scored.truncate(count);
            scored
        };
        Ok(to_floats(logits)?.chunks_exact(classes).map(best).collect())
    }
}

impl Activation {
    fn scores(self, logits: &[f32]) -> Vec<f32> {
        match self {
            Activation::Identity => logits.to_vec(),
            Activation::Sigmoid => {
                logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect()
            }
            Activation::Softmax => {
                // Without the largest taken off, exp would overflow.
                let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let powers: Vec<f32> = logits.iter().map(|logit| (logit - largest).exp()).collect();
                let sum: f32 = powers.iter().sum();
                powers.into_iter().map(|power| power / sum).collect()
            }
        }
    }
}

#[derive(Default, Deserialize)]
struct Config {
    id2label: Option<BTreeMap<usize, String>>,
    problem_type: Option<ProblemType>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProblemType {
    Regression,
    SingleLabelClassification,
    MultiLabelClassification,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(config: &str) -> Result<Option<Labels>, String> {
        let sidecars = Sidecars::from_iter([("config.json", config.to_owned())]);
        Labels::from_sidecars(&sidecars).map_err(|error| error.to_string())
    }

    fn top(config: &str, dims: &[usize], logits: &[f32]) -> Vec<Vec<(String, f32)>> {
        let labels = read(config).unwrap().unwrap();
        let scored = labels.top(&Tensor::from_slice(dims, logits).unwrap(), 2).unwrap();
        let pair = |scored: Scored| (scored.label, (scored.score * 1e4).round() / 1e4);
        scored.into_iter().map(|row| row.into_iter().map(pair).collect()).collect()
    }

    fn pairs(expected: [(&str, f32); 2]) -> Vec<(String, f32)> {
        expected.map(|(label, score)| (label.to_owned(), score)).to_vec()
    }

    const THREE: &str = r#"{"id2label": {"0": "cat", "2": "eel", "1": "dog"}}"#;

    #[test]
    fn softmax_ranks_the_best_classes_of_each_item() {
        let found = top(THREE, &[2, 3], &[0.0, 1.0, 2.0, 1000.0, 1000.0, -1000.0]);
        assert_eq!(found[0], pairs([("eel", 0.6652), ("dog", 0.2447)]));
        assert_eq!(found[1], pairs([("cat", 0.5), ("dog", 0.5)]));
        assert_eq!(top(THREE, &[3], &[0.0, 1.0, 2.0]), found[..1]);
    }

    #[test]
    fn several_right_answers_use_sigmoid_and_regression_nothing() {
        let with =
            |kind: &str| THREE.replace("{\"id2", &format!("{{\"problem_type\": \"{kind}\", \"id2"));
        let multi = top(&with("multi_label_classification"), &[1, 3], &[0.0, 1.0, 2.0]);
        assert_eq!(multi[0], pairs([("eel", 0.8808), ("dog", 0.7311)]));
        let plain = top(&with("regression"), &[1, 3], &[0.0, 1.0, 2.0]);
        assert_eq!(plain[0], pairs([("eel", 2.0), ("dog", 1.0)]));
        let one = read(r#"{"id2label": {"0": "relevance"}}"#).unwrap().unwrap();
        assert_eq!(one.activation(), Activation::Sigmoid);
    }

    #[test]
    fn a_model_without_classes_has_no_labels() {
        assert_eq!(read("{}").unwrap(), None);
        assert_eq!(read(r#"{"id2label": {}}"#).unwrap(), None);
        assert_eq!(Labels::from_sidecars(&Sidecars::default()).unwrap(), None);
    }

    #[test]
    fn labels_that_do_not_fit_are_refused() {
        let gap = read(r#"{"id2label": {"0": "cat", "2": "eel"}}"#).unwrap_err();
        assert!(gap.contains("does not number classes from 0"), "{gap}");
        let labels = read(THREE).unwrap().unwrap();
        for dims in [&[1, 4][..], &[1, 1, 3], &[]] {
            let logits = Tensor::zeros(holdfast_graph::DataType::F32, dims).unwrap();
            let message = labels.top(&logits, 1).unwrap_err().to_string();
            assert!(
                message.contains("names 3 classes, but the output has dimensions"),
                "{message}"
            );
        }
    }
}
