//! The encoder of Whisper: two convolutions over a spectrogram, then a pre-norm transformer.

use holdfast_graph::DataType::F32;
use holdfast_graph::Model;

use crate::Recipe;
use crate::attention::{Length, Mask, Projection, Scale, SelfAttention};
use crate::attribute::{int, ints};
use crate::builder::{fixed, named};
use crate::error::BuildError;
use crate::layers::Net;
use crate::weights::Init;

const EPSILON: f32 = 1e-5;
const MELS: usize = 80;

/// `input_features` (80 bands, two frames a position) → `last_hidden_state`.
pub fn whisper_encoder(recipe: &Recipe) -> Result<Model, BuildError> {
    let mut net = Net::new("whisper-encoder", recipe)?;
    let (hidden, positions) = (recipe.size.hidden, recipe.size.positions);
    let dims = [named("batch"), fixed(MELS), fixed(2 * positions)];
    let features = net.input("input_features", F32, &dims);
    let x = convolve(&mut net, "conv1", &features, MELS, 1);
    let x = net.gelu(&x);
    let x = convolve(&mut net, "conv2", &x, hidden, 2);
    let x = net.gelu(&x);
    let x = net.transpose(&x, &[0, 2, 1]);
    let table = net.weight("embed_positions.weight", &[positions, hidden], Init::embedding());
    let mut x = net.op("Add", &[&x, &table]);
    for index in 0..recipe.size.layers {
        x = net.within(&format!("layers.{index}"), |net| layer(net, &x));
    }
    let x = net.layer_norm("layer_norm", &x, EPSILON);
    net.output("last_hidden_state", &x, &[named("batch"), fixed(positions), fixed(hidden)]);
    net.finish()
}

fn convolve(net: &mut Net<'_>, part: &str, x: &str, from: usize, stride: i64) -> String {
    let hidden = net.size().hidden;
    net.within(part, |net| {
        let weight = net.weight("weight", &[hidden, from, 3], Init::fan_in(3 * from));
        let bias = net.weight("bias", &[hidden], Init::bias());
        let with = [
            ints("dilations", &[1]),
            int("group", 1),
            ints("kernel_shape", &[3]),
            ints("pads", &[1, 1]),
            ints("strides", &[stride]),
        ];
        net.op_with("Conv", &[x, &weight, &bias], &with)
    })
}

fn layer(net: &mut Net<'_>, x: &str) -> String {
    use Projection::{Biased, Plain};
    let (hidden, intermediate) = (net.size().hidden, net.size().intermediate);
    let normal = net.layer_norm("self_attn_layer_norm", x, EPSILON);
    let attention = SelfAttention {
        projections: [Biased("q_proj"), Plain("k_proj"), Biased("v_proj"), Biased("out_proj")],
        scale: Scale::MultiplyQuery,
        mask: Mask::None,
        length: Length::Inferred,
    };
    let attended = net.within("self_attn", |net| attention.build(net, &normal));
    let x = net.op("Add", &[x, &attended]);
    let normal = net.layer_norm("final_layer_norm", &x, EPSILON);
    let inner = net.linear("fc1", &normal, hidden, intermediate);
    let inner = net.within("activation_fn", |net| net.gelu(&inner));
    let outer = net.linear("fc2", &inner, intermediate, hidden);
    net.op("Add", &[&x, &outer])
}
