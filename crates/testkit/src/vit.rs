//! ViT: a picture as a sequence of patches behind a class token.

use holdfast_graph::DataType::F32;
use holdfast_graph::Model;

use crate::Recipe;
use crate::attention::{Length, Mask, Projection, Scale, SelfAttention};
use crate::attribute::{int, ints};
use crate::builder::{fixed, named};
use crate::error::BuildError;
use crate::layers::{Net, Part};
use crate::weights::Init;

const EPSILON: f32 = 1e-12;
const CHANNELS: usize = 3;

/// `pixel_values` → `last_hidden_state`.
pub fn vit(recipe: &Recipe) -> Result<Model, BuildError> {
    let mut net = Net::new("vit", recipe)?;
    let pixels = pixels(&mut net, "batch");
    let mut hidden = net.within("embeddings", |net| embed(net, &pixels));
    for index in 0..recipe.size.layers {
        hidden = net.within(&format!("encoder/layer.{index}"), |net| layer(net, &hidden));
    }
    let hidden = net.layer_norm("layernorm", &hidden, EPSILON);
    let tokens = fixed(recipe.size.patches() + 1);
    net.output("last_hidden_state", &hidden, &[named("batch"), tokens, fixed(recipe.size.hidden)]);
    net.finish()
}

pub(crate) fn pixels(net: &mut Net<'_>, batch: &str) -> String {
    let image = net.size().image;
    net.input("pixel_values", F32, &[named(batch), fixed(CHANNELS), fixed(image), fixed(image)])
}

/// Cuts a picture into patches and projects each: [batch, patches, hidden].
pub(crate) fn patches(net: &mut Net<'_>, pixels: &str, bias: bool) -> String {
    let (hidden, patch) = (net.size().hidden, net.size().patch);
    let init = Init::fan_in(CHANNELS * patch * patch);
    let weight = net.weight("weight", &[hidden, CHANNELS, patch, patch], init);
    let bias = bias.then(|| net.weight("bias", &[hidden], Init::bias()));
    let side = patch as i64;
    let with = [
        ints("dilations", &[1, 1]),
        int("group", 1),
        ints("kernel_shape", &[side, side]),
        ints("pads", &[0, 0, 0, 0]),
        ints("strides", &[side, side]),
    ];
    let inputs: Vec<&str> = [pixels, &weight].into_iter().chain(bias.as_deref()).collect();
    let patches = net.op_with("Conv", &inputs, &with);
    let parts = [Part::Of(&patches, 0), Part::Of(&patches, 1), Part::Fixed(-1)];
    let flat = net.reshape(&patches, &parts);
    net.transpose(&flat, &[0, 2, 1])
}

fn embed(net: &mut Net<'_>, pixels: &str) -> String {
    let (hidden, tokens) = (net.size().hidden, net.size().patches() + 1);
    let part = "patch_embeddings/projection";
    let patches = net.within(part, |net| patches(net, pixels, true));
    let class = net.weight("cls_token", &[1, 1, hidden], Init::embedding());
    let class = net.for_each_item(&class, pixels);
    let sequence = net.concat(&[&class, &patches], 1);
    let positions = net.weight("position_embeddings", &[1, tokens, hidden], Init::embedding());
    net.op("Add", &[&sequence, &positions])
}

fn layer(net: &mut Net<'_>, x: &str) -> String {
    use Projection::Biased;
    let (hidden, intermediate) = (net.size().hidden, net.size().intermediate);
    let normal = net.layer_norm("layernorm_before", x, EPSILON);
    let parts = ["attention/query", "attention/key", "attention/value", "output/dense"];
    let attention = SelfAttention {
        projections: parts.map(Biased),
        scale: Scale::DivideScores,
        mask: Mask::None,
        length: Length::Read,
    };
    let attended = net.within("attention", |net| attention.build(net, &normal));
    let x = net.op("Add", &[&attended, x]);
    let normal = net.layer_norm("layernorm_after", &x, EPSILON);
    let inner = net.within("intermediate", |net| {
        let inner = net.linear("dense", &normal, hidden, intermediate);
        net.within("intermediate_act_fn", |net| net.gelu(&inner))
    });
    net.within("output", |net| {
        let outer = net.linear("dense", &inner, intermediate, hidden);
        net.op("Add", &[&outer, &x])
    })
}
