//! The encoder of T5: relative positions in buckets, root-mean-square normalisation, no biases.

use holdfast_graph::DataType::{F32, I64};
use holdfast_graph::Model;

use crate::attention::{Length, Mask, Projection, Scale, SelfAttention};
use crate::builder::{fixed, named};
use crate::error::BuildError;
use crate::layers::Net;
use crate::weights::Init;
use crate::{Recipe, mask};

const EPSILON: f32 = 1e-6;

/// Distances are told apart by buckets: half of them for each direction, and half of those
/// for one distance each, the rest growing by powers up to the furthest distance.
const BUCKETS: usize = 32;
const EXACT: i64 = 8;
/// The logarithm of 16: the furthest distance (128) over the exact ones.
const LOG_SPAN: f32 = 4.0 * std::f32::consts::LN_2;

/// `input_ids`, `attention_mask` → `last_hidden_state`.
pub fn t5_encoder(recipe: &Recipe) -> Result<Model, BuildError> {
    let mut net = Net::new("t5-encoder", recipe)?;
    let dims = [named("batch"), named("sequence")];
    let ids = net.input("input_ids", I64, &dims);
    let attention_mask = net.input("attention_mask", I64, &dims);
    let mut hidden = net.embedding("shared", &ids, recipe.size.vocabulary);
    let mask = mask::padding(&mut net, &attention_mask);
    // Only the first block has a table of distances; the others use what it gave.
    let part = "encoder/block.0/layer.0/SelfAttention";
    let bias = net.within(part, |net| position_bias(net, &ids));
    let mask = net.op("Add", &[&bias, &mask]);
    for index in 0..recipe.size.layers {
        let part = format!("encoder/block.{index}");
        hidden = net.within(&part, |net| block(net, &hidden, &mask));
    }
    let hidden = net.rms_norm("encoder/final_layer_norm", &hidden, EPSILON);
    let [batch, sequence] = dims;
    net.output("last_hidden_state", &hidden, &[batch, sequence, fixed(recipe.size.hidden)]);
    net.finish()
}

fn block(net: &mut Net<'_>, x: &str, mask: &str) -> String {
    use Projection::{Plain, Small};
    let (hidden, intermediate) = (net.size().hidden, net.size().intermediate);
    let x = net.within("layer.0", |net| {
        let normal = net.rms_norm("layer_norm", x, EPSILON);
        let attention = SelfAttention {
            projections: [Small("q"), Plain("k"), Plain("v"), Plain("o")],
            scale: Scale::None,
            mask: Mask::Add(mask),
            length: Length::Inferred,
        };
        let attended = net.within("SelfAttention", |net| attention.build(net, &normal));
        net.op("Add", &[x, &attended])
    });
    net.within("layer.1", |net| {
        let normal = net.rms_norm("layer_norm", &x, EPSILON);
        let outer = net.within("DenseReluDense", |net| {
            let inner = net.projection("wi", &normal, hidden, intermediate);
            let inner = net.op("Relu", &[&inner]);
            net.projection("wo", &inner, intermediate, hidden)
        });
        net.op("Add", &[&x, &outer])
    })
}

/// What is added to the scores for the distance of two positions: [1, heads, length, length].
fn position_bias(net: &mut Net<'_>, ids: &str) -> String {
    let length = net.dimension(ids, 1);
    let zero = net.scalar(0i64);
    let positions = net.range(&zero, &length);
    let queries = net.unsqueeze(&positions, 1);
    let keys = net.unsqueeze(&positions, 0);
    let distance = net.op("Sub", &[&keys, &queries]);
    let bucket = bucket(net, &distance);
    let heads = net.size().heads;
    let bias = net.within("relative_attention_bias", |net| {
        let table = net.weight("weight", &[BUCKETS, heads], Init::embedding());
        net.op("Gather", &[&table, &bucket])
    });
    let bias = net.transpose(&bias, &[2, 0, 1]);
    net.unsqueeze(&bias, 0)
}

fn bucket(net: &mut Net<'_>, distance: &str) -> String {
    let zero = net.scalar(0i64);
    let forward = net.op("Greater", &[distance, &zero]);
    let forward = net.cast(&forward, I64);
    let half = net.scalar(BUCKETS as i64 / 2);
    let forward = net.op("Mul", &[&forward, &half]);
    let distance = net.op("Abs", &[distance]);
    let exact = net.scalar(EXACT);
    let near = net.op("Less", &[&distance, &exact]);

    let far = net.cast(&distance, F32);
    let divisor = net.scalar(EXACT as f32);
    let far = net.op("Div", &[&far, &divisor]);
    let far = net.op("Log", &[&far]);
    let span = net.scalar(LOG_SPAN);
    let far = net.op("Div", &[&far, &span]);
    let steps = net.scalar(EXACT as f32);
    let far = net.op("Mul", &[&far, &steps]);
    let far = net.cast(&far, I64);
    let far = net.op("Add", &[&far, &exact]);
    let last = net.scalar(BUCKETS as i64 / 2 - 1);
    let far = net.op("Min", &[&far, &last]);

    let bucket = net.op("Where", &[&near, &distance, &far]);
    net.op("Add", &[&forward, &bucket])
}
