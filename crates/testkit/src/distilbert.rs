//! DistilBERT: BERT without types, its mask written with `Where`.

use holdfast_graph::DataType::I64;
use holdfast_graph::Model;

use crate::Recipe;
use crate::attention::{Length, Mask, Projection, Scale, SelfAttention};
use crate::builder::{fixed, named};
use crate::error::BuildError;
use crate::layers::Net;

const EPSILON: f32 = 1e-12;

/// `input_ids`, `attention_mask` → `last_hidden_state`.
pub fn distilbert(recipe: &Recipe) -> Result<Model, BuildError> {
    let mut net = Net::new("distilbert", recipe)?;
    let dims = [named("batch"), named("sequence")];
    let ids = net.input("input_ids", I64, &dims);
    let attention_mask = net.input("attention_mask", I64, &dims);
    let mut hidden = net.within("embeddings", |net| embed(net, &ids));
    for index in 0..recipe.size.layers {
        let part = format!("transformer/layer.{index}");
        hidden = net.within(&part, |net| layer(net, &hidden, &attention_mask));
    }
    let [batch, sequence] = dims;
    net.output("last_hidden_state", &hidden, &[batch, sequence, fixed(recipe.size.hidden)]);
    net.finish()
}

fn embed(net: &mut Net<'_>, ids: &str) -> String {
    let words = net.embedding("word_embeddings", ids, net.size().vocabulary);
    let positions = net.positions(ids);
    let positions = net.embedding("position_embeddings", &positions, net.size().positions);
    let sum = net.op("Add", &[&words, &positions]);
    net.layer_norm("LayerNorm", &sum, EPSILON)
}

fn layer(net: &mut Net<'_>, x: &str, attention_mask: &str) -> String {
    use Projection::Biased;
    let (hidden, intermediate) = (net.size().hidden, net.size().intermediate);
    let attention = SelfAttention {
        projections: ["q_lin", "k_lin", "v_lin", "out_lin"].map(Biased),
        scale: Scale::DivideQuery,
        mask: Mask::Fill(attention_mask),
        length: Length::Inferred,
    };
    let attended = net.within("attention", |net| attention.build(net, x));
    let sum = net.op("Add", &[&attended, x]);
    let x = net.layer_norm("sa_layer_norm", &sum, EPSILON);
    let outer = net.within("ffn", |net| {
        let inner = net.linear("lin1", &x, hidden, intermediate);
        let inner = net.within("activation", |net| net.gelu(&inner));
        net.linear("lin2", &inner, intermediate, hidden)
    });
    let sum = net.op("Add", &[&outer, &x]);
    net.layer_norm("output_layer_norm", &sum, EPSILON)
}
