//! BERT: token, position and type embeddings, normalisation after every addition.

use holdfast_graph::DataType::I64;
use holdfast_graph::Model;

use crate::attention::{Length, Mask, Projection, Scale, SelfAttention};
use crate::builder::{fixed, named};
use crate::error::BuildError;
use crate::layers::Net;
use crate::{Recipe, mask};

const EPSILON: f32 = 1e-12;

/// `input_ids`, `attention_mask`, `token_type_ids` → `last_hidden_state`.
pub fn bert(recipe: &Recipe) -> Result<Model, BuildError> {
    let mut net = Net::new("bert", recipe)?;
    let trunk = trunk(&mut net);
    let hidden = fixed(recipe.size.hidden);
    net.output("last_hidden_state", &trunk.hidden, &[named("batch"), named("sequence"), hidden]);
    net.finish()
}

/// What heads build on.
pub(crate) struct Trunk {
    pub(crate) hidden: String,
    pub(crate) attention_mask: String,
}

pub(crate) fn trunk(net: &mut Net<'_>) -> Trunk {
    let dims = [named("batch"), named("sequence")];
    let ids = net.input("input_ids", I64, &dims);
    let attention_mask = net.input("attention_mask", I64, &dims);
    let types = net.input("token_type_ids", I64, &dims);
    let mask = mask::padding(net, &attention_mask);
    let mut hidden = net.within("embeddings", |net| embed(net, &ids, &types));
    for index in 0..net.size().layers {
        hidden = net.within(&format!("encoder/layer.{index}"), |net| layer(net, &hidden, &mask));
    }
    Trunk { hidden, attention_mask }
}

fn embed(net: &mut Net<'_>, ids: &str, types: &str) -> String {
    let positions = net.positions(ids);
    let words = net.embedding("word_embeddings", ids, net.size().vocabulary);
    let types = net.embedding("token_type_embeddings", types, 2);
    let sum = net.op("Add", &[&words, &types]);
    let positions = net.embedding("position_embeddings", &positions, net.size().positions);
    let sum = net.op("Add", &[&sum, &positions]);
    net.layer_norm("LayerNorm", &sum, EPSILON)
}

fn layer(net: &mut Net<'_>, x: &str, mask: &str) -> String {
    use Projection::Biased;
    let (hidden, intermediate) = (net.size().hidden, net.size().intermediate);
    let x = net.within("attention", |net| {
        let attention = SelfAttention {
            projections: ["self/query", "self/key", "self/value", "output/dense"].map(Biased),
            scale: Scale::DivideScores,
            mask: Mask::Add(mask),
            length: Length::Read,
        };
        let attended = attention.build(net, x);
        let sum = net.op("Add", &[&attended, x]);
        net.layer_norm("output/LayerNorm", &sum, EPSILON)
    });
    let inner = net.within("intermediate", |net| {
        let inner = net.linear("dense", &x, hidden, intermediate);
        net.within("intermediate_act_fn", |net| net.gelu(&inner))
    });
    net.within("output", |net| {
        let outer = net.linear("dense", &inner, intermediate, hidden);
        let sum = net.op("Add", &[&outer, &x]);
        net.layer_norm("LayerNorm", &sum, EPSILON)
    })
}
