//! Families: models that have most of their weights in common.

use holdfast_graph::{DataType, Model};

use crate::architecture::Architecture;
use crate::attribute::int;
use crate::bert::{Trunk, trunk};
use crate::builder::{fixed, named};
use crate::error::BuildError;
use crate::layers::Net;
use crate::llama::{llama, llama_with_past};
use crate::recipe::{Adapter, Recipe};
use crate::weights::Weights;

/// One model of several that belong together.
#[derive(Clone, Debug)]
pub struct Member {
    /// The name of its file, without `.onnx`.
    pub stem: String,
    /// The model.
    pub model: Model,
}

impl Member {
    pub(crate) fn new(stem: impl Into<String>, model: Model) -> Member {
        Member { stem: stem.into(), model }
    }
}

/// `count` models on one frozen BERT trunk, which is [`bert`](fn@crate::bert) of the same recipe.
/// Their heads take turns: classifying sequences, classifying tokens, embedding sentences,
/// answering questions. No two heads have weights in common.
pub fn heads(recipe: &Recipe, count: usize) -> Result<Vec<Member>, BuildError> {
    if count == 0 {
        return Err(BuildError::Zero("count"));
    }
    (0..count).map(|index| head(recipe, index, KINDS[index % KINDS.len()])).collect()
}

/// `count` models as of [`heads`] that all classify sequences: one dense layer and a classifier.
pub fn classifiers(recipe: &Recipe, count: usize) -> Result<Vec<Member>, BuildError> {
    if count == 0 {
        return Err(BuildError::Zero("count"));
    }
    (0..count).map(|index| head(recipe, index, KINDS[0])).collect()
}

/// `count` models on one base, each with its own low-rank adapter that is not merged. The base
/// alone is the architecture's model of the same recipe; all its weights are in every member.
pub fn adapters(
    base: Architecture,
    recipe: &Recipe,
    count: usize,
    rank: usize,
) -> Result<Vec<Member>, BuildError> {
    if count == 0 {
        return Err(BuildError::Zero("count"));
    }
    let mut members = Vec::new();
    for index in 0..count {
        let weights = recipe.weights.variant(&format!("adapter-{index}"));
        // Twice the rank is the usual `alpha`, so this is `alpha / rank`.
        let adapter = Some(Adapter { rank, scale: 2.0, weights });
        let recipe = Recipe { adapter, ..recipe.clone() };
        for Member { stem, model } in base.build(&recipe)? {
            let stem = match stem.as_str() {
                "model" => format!("adapter-{index}"),
                part => format!("adapter-{index}-{part}"),
            };
            members.push(Member::new(stem, model));
        }
    }
    Ok(members)
}

/// A LLaMA for a prompt from its start and its twin that continues from a key-value cache.
pub fn decoder_twins(recipe: &Recipe) -> Result<Vec<Member>, BuildError> {
    Ok(vec![
        Member::new("decoder_model", llama(recipe)?),
        Member::new("decoder_with_past_model", llama_with_past(recipe)?),
    ])
}

/// What a head is for, and how it is built.
type Kind = (&'static str, fn(&mut Net<'_>, &Trunk, usize));

const KINDS: [Kind; 4] = [
    ("sequence-classification", classify_sequence),
    ("token-classification", classify_tokens),
    ("sentence-embedding", embed_sentence),
    ("question-answering", answer_question),
];

fn head(recipe: &Recipe, index: usize, (kind, build): Kind) -> Result<Member, BuildError> {
    let mut net = Net::new(&format!("bert-{kind}"), recipe)?;
    let trunk = trunk(&mut net);
    let own: Weights = recipe.weights.variant(&format!("head-{index}"));
    net.draw_from(own);
    build(&mut net, &trunk, index + 2);
    Ok(Member::new(format!("head-{index}-{kind}"), net.finish()?))
}

fn classify_sequence(net: &mut Net<'_>, trunk: &Trunk, labels: usize) {
    let hidden = net.size().hidden;
    let first = net.scalar(0i64);
    let pooled = net.op_with("Gather", &[&trunk.hidden, &first], &[int("axis", 1)]);
    let pooled = net.gemm("pooler/dense", &pooled, hidden, hidden);
    let pooled = net.op("Tanh", &[&pooled]);
    let logits = net.gemm("classifier", &pooled, hidden, labels);
    net.output("logits", &logits, &[named("batch"), fixed(labels)]);
}

fn classify_tokens(net: &mut Net<'_>, trunk: &Trunk, labels: usize) {
    let logits = net.linear("classifier", &trunk.hidden, net.size().hidden, labels);
    net.output("logits", &logits, &[named("batch"), named("sequence"), fixed(labels)]);
}

/// The mean over tokens that are not padding, projected, of length one.
fn embed_sentence(net: &mut Net<'_>, trunk: &Trunk, _: usize) {
    let hidden = net.size().hidden;
    let mask = net.unsqueeze(&trunk.attention_mask, -1);
    let mask = net.cast(&mask, DataType::F32);
    let kept = net.op("Mul", &[&trunk.hidden, &mask]);
    let sum = net.sum(&kept, 1);
    let count = net.sum(&mask, 1);
    let least = net.scalar(1e-9f32);
    let count = net.op("Clip", &[&count, &least]);
    let mean = net.op("Div", &[&sum, &count]);
    let mean = net.squeeze(&mean, 1);
    let dense = net.gemm("dense/linear", &mean, hidden, hidden);
    let dense = net.op("Tanh", &[&dense]);
    let length = net.length(&dense, -1);
    let least = net.scalar(1e-12f32);
    let length = net.op("Clip", &[&length, &least]);
    let embedding = net.op("Div", &[&dense, &length]);
    net.output("sentence_embedding", &embedding, &[named("batch"), fixed(hidden)]);
}

fn answer_question(net: &mut Net<'_>, trunk: &Trunk, _: usize) {
    let logits = net.linear("qa_outputs", &trunk.hidden, net.size().hidden, 2);
    for (column, name) in ["start_logits", "end_logits"].into_iter().enumerate() {
        let start = net.list(&[column as i64]);
        let end = net.list(&[column as i64 + 1]);
        let logit = net.slice(&logits, &start, &end, 2);
        let logit = net.squeeze(&logit, -1);
        net.output(name, &logit, &[named("batch"), named("sequence")]);
    }
}
