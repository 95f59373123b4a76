//! CLIP: a text tower and a vision tower that meet in one space.
//!
//! Three graphs over one set of weights, as real repositories have them: each tower alone,
//! and both with the comparison.

use holdfast_graph::DataType::{I32, I64};
use holdfast_graph::Model;

use crate::attention::{Length, Mask, Projection, Scale, SelfAttention};
use crate::attribute::int;
use crate::builder::{fixed, named};
use crate::error::BuildError;
use crate::layers::Net;
use crate::weights::Init;
use crate::{Recipe, mask, vit};

const EPSILON: f32 = 1e-5;

/// `input_ids`, `attention_mask` → `text_embeds`, `last_hidden_state`.
pub fn clip_text(recipe: &Recipe) -> Result<Model, BuildError> {
    let mut net = Net::new("clip-text", recipe)?;
    let tower = text(&mut net, "batch");
    let hidden = fixed(recipe.size.hidden);
    net.output("text_embeds", &tower.embeds, &[named("batch"), hidden.clone()]);
    let dims = [named("batch"), named("sequence"), hidden];
    net.output("last_hidden_state", &tower.hidden, &dims);
    net.finish()
}

/// `pixel_values` → `image_embeds`, `last_hidden_state`.
pub fn clip_vision(recipe: &Recipe) -> Result<Model, BuildError> {
    let mut net = Net::new("clip-vision", recipe)?;
    let tower = vision(&mut net, "batch");
    let (tokens, hidden) = (fixed(recipe.size.patches() + 1), fixed(recipe.size.hidden));
    net.output("image_embeds", &tower.embeds, &[named("batch"), hidden.clone()]);
    net.output("last_hidden_state", &tower.hidden, &[named("batch"), tokens, hidden]);
    net.finish()
}

/// `input_ids`, `attention_mask`, `pixel_values` → `logits_per_image`, `logits_per_text`,
/// `text_embeds`, `image_embeds`.
pub fn clip(recipe: &Recipe) -> Result<Model, BuildError> {
    let mut net = Net::new("clip", recipe)?;
    let text = text(&mut net, "text_batch").embeds;
    let image = vision(&mut net, "image_batch").embeds;
    let text = normalise(&mut net, &text);
    let image = normalise(&mut net, &image);
    // Real models start it at log(1/0.07) and train it towards log(100).
    let scale = Init { mean: 4.0, deviation: 0.1 };
    let scale = net.weight("logit_scale", &[], scale);
    let scale = net.op("Exp", &[&scale]);
    let images = net.transpose(&image, &[1, 0]);
    let per_text = net.op("MatMul", &[&text, &images]);
    let per_text = net.op("Mul", &[&per_text, &scale]);
    let per_image = net.transpose(&per_text, &[1, 0]);

    let (texts, images) = (named("text_batch"), named("image_batch"));
    let hidden = fixed(recipe.size.hidden);
    net.output("logits_per_image", &per_image, &[images.clone(), texts.clone()]);
    net.output("logits_per_text", &per_text, &[texts.clone(), images.clone()]);
    net.output("text_embeds", &text, &[texts, hidden.clone()]);
    net.output("image_embeds", &image, &[images, hidden]);
    net.finish()
}

struct Tower {
    hidden: String,
    embeds: String,
}

fn text(net: &mut Net<'_>, batch: &str) -> Tower {
    let dims = [named(batch), named("sequence")];
    let ids = net.input("input_ids", I64, &dims);
    let attention_mask = net.input("attention_mask", I64, &dims);
    let (hidden, pooled) = net.within("text_model", |net| {
        let x = net.within("embeddings", |net| {
            let positions = net.positions(&ids);
            let tokens = net.embedding("token_embedding", &ids, net.size().vocabulary);
            let count = net.size().positions;
            let positions = net.embedding("position_embedding", &positions, count);
            net.op("Add", &[&tokens, &positions])
        });
        let mask = mask::causal(net, &ids, &attention_mask, None);
        let x = layers(net, x, Mask::Add(&mask));
        let hidden = net.layer_norm("final_layer_norm", &x, EPSILON);
        let pooled = at_highest_id(net, &hidden, &ids);
        (hidden, pooled)
    });
    let width = net.size().hidden;
    Tower { hidden, embeds: net.projection("text_projection", &pooled, width, width) }
}

fn vision(net: &mut Net<'_>, batch: &str) -> Tower {
    let pixels = vit::pixels(net, batch);
    let (width, tokens) = (net.size().hidden, net.size().patches() + 1);
    let (hidden, pooled) = net.within("vision_model", |net| {
        let x = net.within("embeddings", |net| {
            let patches = net.within("patch_embedding", |net| vit::patches(net, &pixels, false));
            let class = net.weight("class_embedding", &[1, 1, width], Init::embedding());
            let class = net.for_each_item(&class, &pixels);
            let sequence = net.concat(&[&class, &patches], 1);
            let table = [1, tokens, width];
            let positions = net.weight("position_embedding.weight", &table, Init::embedding());
            net.op("Add", &[&sequence, &positions])
        });
        // The misspelling is in every real file.
        let x = net.layer_norm("pre_layrnorm", &x, EPSILON);
        let hidden = layers(net, x, Mask::None);
        let first = net.scalar(0i64);
        let pooled = net.op_with("Gather", &[&hidden, &first], &[int("axis", 1)]);
        let pooled = net.layer_norm("post_layernorm", &pooled, EPSILON);
        (hidden, pooled)
    });
    Tower { hidden, embeds: net.projection("visual_projection", &pooled, width, width) }
}

fn layers(net: &mut Net<'_>, mut x: String, mask: Mask<'_>) -> String {
    for index in 0..net.size().layers {
        x = net.within(&format!("encoder/layers.{index}"), |net| layer(net, &x, mask));
    }
    x
}

fn layer(net: &mut Net<'_>, x: &str, mask: Mask<'_>) -> String {
    use Projection::Biased;
    let (hidden, intermediate) = (net.size().hidden, net.size().intermediate);
    let normal = net.layer_norm("layer_norm1", x, EPSILON);
    let attention = SelfAttention {
        projections: ["q_proj", "k_proj", "v_proj", "out_proj"].map(Biased),
        scale: Scale::MultiplyQuery,
        mask,
        length: Length::Read,
    };
    let attended = net.within("self_attn", |net| attention.build(net, &normal));
    let x = net.op("Add", &[x, &attended]);
    let normal = net.layer_norm("layer_norm2", &x, EPSILON);
    let outer = net.within("mlp", |net| {
        let inner = net.linear("fc1", &normal, hidden, intermediate);
        let inner = net.within("activation_fn", |net| net.quick_gelu(&inner));
        net.linear("fc2", &inner, intermediate, hidden)
    });
    net.op("Add", &[&x, &outer])
}

/// The row of the end-of-text token, which has the highest id.
fn at_highest_id(net: &mut Net<'_>, hidden: &str, ids: &str) -> String {
    let batch = net.dimension(hidden, 0);
    let zero = net.scalar(0i64);
    let items = net.range(&zero, &batch);
    let ids = net.cast(ids, I32);
    let ends = net.op_with("ArgMax", &[&ids], &[int("axis", -1), int("keepdims", 0)]);
    let items = net.unsqueeze(&items, -1);
    let ends = net.unsqueeze(&ends, -1);
    let places = net.concat(&[&items, &ends], -1);
    net.op("GatherND", &[hidden, &places])
}

fn normalise(net: &mut Net<'_>, x: &str) -> String {
    let length = net.length(x, -1);
    net.op("Div", &[x, &length])
}
