//! A model of a set, as a side sees it: what it is fed, and what its answers mean.

use anyhow::Context;
use holdfast_devices::ModelKind;
use holdfast_graph::{Model, Tensor};
use holdfast_models::input::{Labels, Sidecars, TextInput};
use holdfast_models::{Store, StoredGraph};
use holdfast_pool::Answer;

use super::scenarios::Input;
use crate::chosen::{Chosen, choose};
use crate::commands::bench::feed::{Feed, Sizes, feed_round};

pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) graph: StoredGraph,
    pub(crate) kind: ModelKind,
    role: String,
    model: Model,
    text: Option<TextInput>,
    labels: Option<Labels>,
}

impl Contender {
    pub(crate) fn open(store: &Store, name: &str) -> anyhow::Result<Contender> {
        let Chosen { manifest, component } = choose(store, name, None, None)?;
        let model = store.open_graph(&component.graph)?;
        let sidecars: Sidecars = store.files(&manifest)?.into_iter().collect();
        let has_tokenizer = sidecars.get("tokenizer.json").is_some();
        let text = has_tokenizer.then(|| TextInput::new(&sidecars, &model.inputs())).transpose()?;
        let labels = Labels::from_sidecars(&sidecars)?;
        let role = component.role.0;
        let Feed { kind, .. } = made(&model, &role, 1, 0)?;
        let name = name.to_owned();
        Ok(Contender { name, graph: component.graph, kind, role, model, text, labels })
    }

    /// The input of a round.
    pub(crate) fn round(
        &self,
        input: &Input,
        round: usize,
    ) -> anyhow::Result<Vec<(String, Tensor)>> {
        match input {
            Input::Texts { rounds, .. } => {
                let texts = rounds.get(round).context("there are no texts for this round")?;
                self.texts(texts)
            }
            Input::Made { tokens } => {
                Ok(made(&self.model, &self.role, *tokens, round as u64)?.tensors)
            }
        }
    }

    /// Texts as an input.
    pub(crate) fn texts(&self, texts: &[String]) -> anyhow::Result<Vec<(String, Tensor)>> {
        let text = self.text.as_ref().context("the model has no tokenizer")?;
        Ok(text.prepare(texts)?.tensors)
    }

    /// The best class of each text; nothing for models without classes.
    pub(crate) fn labels(&self, answer: &Answer) -> anyhow::Result<Vec<String>> {
        let Some((labels, logits)) = self.labels.as_ref().zip(answer.outcome.output("logits"))
        else {
            return Ok(Vec::new());
        };
        let best = labels.top(logits, 1)?;
        Ok(best.into_iter().flatten().map(|scored| scored.label).collect())
    }
}

fn made(model: &Model, role: &str, tokens: usize, round: u64) -> anyhow::Result<Feed> {
    Ok(feed_round(model, role, &Sizes { batch: 1, tokens, dims: &[] }, round)?)
}
