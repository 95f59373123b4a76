//! LLaMA: a decoder with rotary positions, grouped key-value heads and a key-value cache.
//!
//! Two graphs over one set of weights: one for a prompt from its start, one that continues
//! after keys and values that it is fed.

use holdfast_graph::DataType::{F32, I64};
use holdfast_graph::{Dim, Model};

use crate::attention::attend;
use crate::builder::{fixed, named};
use crate::error::BuildError;
use crate::layers::{Net, Part};
use crate::rotary::Rotary;
use crate::{Recipe, mask};

const EPSILON: f32 = 1e-6;

/// `input_ids`, `attention_mask`, `position_ids` → `logits`, `present.N.key`, `present.N.value`.
pub fn llama(recipe: &Recipe) -> Result<Model, BuildError> {
    build(recipe, "llama", false)
}

/// The same with `past_key_values.N.key` and `past_key_values.N.value` as further inputs; the
/// attention mask covers the past too. A past of length zero is none.
pub fn llama_with_past(recipe: &Recipe) -> Result<Model, BuildError> {
    build(recipe, "llama-with-past", true)
}

fn build(recipe: &Recipe, name: &str, with_past: bool) -> Result<Model, BuildError> {
    let mut net = Net::new(name, recipe)?;
    if !recipe.size.head().is_multiple_of(2) {
        return Err(BuildError::OddHead(recipe.size.head()));
    }
    let total = named(if with_past { "total_sequence" } else { "sequence" });
    let (batch, sequence) = (named("batch"), named("sequence"));
    let ids = net.input("input_ids", I64, &[batch.clone(), sequence.clone()]);
    let attention_mask = net.input("attention_mask", I64, &[batch.clone(), total.clone()]);
    let position_ids = net.input("position_ids", I64, &[batch.clone(), sequence.clone()]);
    let pasts = with_past.then(|| past_inputs(&mut net));

    let (hidden, presents) = net.within("model", |net| {
        let past_length = pasts.as_ref().map(|pasts| net.dimension(&pasts[0].key, 2));
        let mask = mask::causal(net, &ids, &attention_mask, past_length.as_deref());
        let rotary = net.within("rotary_emb", |net| Rotary::build(net, &position_ids));
        let mut x = net.embedding("embed_tokens", &ids, net.size().vocabulary);
        let mut presents = Vec::new();
        for index in 0..net.size().layers {
            let past = pasts.as_ref().map(|pasts| &pasts[index]);
            let layer = Layer { mask: &mask, rotary: &rotary, past };
            let present;
            (x, present) = net.within(&format!("layers.{index}"), |net| layer.build(net, &x));
            presents.push(present);
        }
        (net.rms_norm("norm", &x, EPSILON), presents)
    });
    let (width, vocabulary) = (recipe.size.hidden, recipe.size.vocabulary);
    let logits = net.projection("lm_head", &hidden, width, vocabulary);

    net.output("logits", &logits, &[batch, sequence, fixed(vocabulary)]);
    for (index, present) in presents.iter().enumerate() {
        let dims = cache_dims(&net, total.clone());
        net.output(&format!("present.{index}.key"), &present.key, &dims);
        net.output(&format!("present.{index}.value"), &present.value, &dims);
    }
    net.finish()
}

/// Keys and values of one layer: [batch, key-value heads, length, head].
struct Cache {
    key: String,
    value: String,
}

fn past_inputs(net: &mut Net<'_>) -> Vec<Cache> {
    let dims = cache_dims(net, named("past_sequence"));
    let layers = net.size().layers;
    let layer = |index| Cache {
        key: net.input(&format!("past_key_values.{index}.key"), F32, &dims),
        value: net.input(&format!("past_key_values.{index}.value"), F32, &dims),
    };
    (0..layers).map(layer).collect()
}

fn cache_dims(net: &Net<'_>, length: Dim) -> [Dim; 4] {
    let size = net.size();
    [named("batch"), fixed(size.key_value_heads), length, fixed(size.head())]
}

/// What a layer is given besides the values that pass through.
struct Layer<'a> {
    mask: &'a str,
    rotary: &'a Rotary,
    past: Option<&'a Cache>,
}

impl Layer<'_> {
    fn build(&self, net: &mut Net<'_>, x: &str) -> (String, Cache) {
        let (hidden, intermediate) = (net.size().hidden, net.size().intermediate);
        let normal = net.rms_norm("input_layernorm", x, EPSILON);
        let (attended, present) = net.within("self_attn", |net| self.attention(net, &normal));
        let x = net.op("Add", &[x, &attended]);
        let normal = net.rms_norm("post_attention_layernorm", &x, EPSILON);
        let outer = net.within("mlp", |net| {
            let gate = net.projection("gate_proj", &normal, hidden, intermediate);
            let gate = net.within("act_fn", |net| net.silu(&gate));
            let up = net.projection("up_proj", &normal, hidden, intermediate);
            let inner = net.op("Mul", &[&gate, &up]);
            net.projection("down_proj", &inner, intermediate, hidden)
        });
        (net.op("Add", &[&x, &outer]), present)
    }

    fn attention(&self, net: &mut Net<'_>, x: &str) -> (String, Cache) {
        let size = net.size();
        let (hidden, head) = (size.hidden, size.head());
        let narrow = size.key_value_heads * head;
        let query = net.projection("q_proj", x, hidden, hidden);
        let key = net.projection("k_proj", x, hidden, narrow);
        let value = net.projection("v_proj", x, hidden, narrow);
        let query = split_heads(net, &query, size.heads);
        let key = split_heads(net, &key, size.key_value_heads);
        let value = split_heads(net, &value, size.key_value_heads);
        let query = self.rotary.turn(net, &query);
        let key = self.rotary.turn(net, &key);
        let present = match self.past {
            Some(past) => Cache {
                key: net.concat(&[&past.key, &key], 2),
                value: net.concat(&[&past.value, &value], 2),
            },
            None => Cache { key, value },
        };
        let key = repeat_heads(net, &present.key);
        let value = repeat_heads(net, &present.value);
        let key = net.transpose(&key, &[0, 1, 3, 2]);
        let scores = net.op("MatMul", &[&query, &key]);
        let factor = net.scalar(1.0 / (head as f32).sqrt());
        let scores = net.op("Mul", &[&scores, &factor]);
        let scores = net.op("Add", &[&scores, self.mask]);
        let context = attend(net, &scores, &value);
        let rows = net.transpose(&context, &[0, 2, 1, 3]);
        let parts = [Part::Of(&rows, 0), Part::Of(&rows, 1), Part::Fixed(hidden as i64)];
        let merged = net.reshape(&rows, &parts);
        (net.projection("o_proj", &merged, hidden, hidden), present)
    }
}

fn split_heads(net: &mut Net<'_>, x: &str, heads: usize) -> String {
    let head = net.size().head();
    let parts =
        [Part::Of(x, 0), Part::Of(x, 1), Part::Fixed(heads as i64), Part::Fixed(head as i64)];
    let split = net.reshape(x, &parts);
    net.transpose(&split, &[0, 2, 1, 3])
}

/// Gives every query head its key or value head: Unsqueeze, Expand, Reshape.
fn repeat_heads(net: &mut Net<'_>, x: &str) -> String {
    let size = net.size();
    let (heads, narrow, head) =
        (size.heads as i64, size.key_value_heads as i64, size.head() as i64);
    if heads == narrow {
        return x.to_owned();
    }
    let groups = net.unsqueeze(x, 2);
    let shape = net.shape(&[
        Part::Of(x, 0),
        Part::Fixed(narrow),
        Part::Fixed(heads / narrow),
        Part::Of(x, 2),
        Part::Fixed(head),
    ]);
    let groups = net.op("Expand", &[&groups, &shape]);
    let parts = [Part::Of(x, 0), Part::Fixed(heads), Part::Of(x, 2), Part::Fixed(head)];
    net.reshape(&groups, &parts)
}
