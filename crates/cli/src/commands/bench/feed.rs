//! Inputs made from what a model declares, and what kind of model that is.

use holdfast_devices::ModelKind;
use holdfast_graph::{DataType, Model, Tensor, Value};
use holdfast_testkit::feed::{self, FeedError};

pub(crate) use holdfast_testkit::feed::Sizes;

/// What one request is fed.
pub(crate) struct Feed {
    pub(crate) tensors: Vec<(String, Tensor)>,
    /// What that is, for people.
    pub(crate) fed: Vec<String>,
    pub(crate) kind: ModelKind,
}

/// Makes an input for each that the model declares.
pub(super) fn feed(model: &Model, role: &str, sizes: &Sizes<'_>) -> Result<Feed, FeedError> {
    feed_round(model, role, sizes, 0)
}

/// The same with other ids and other noise for every round.
pub(crate) fn feed_round(
    model: &Model,
    role: &str,
    sizes: &Sizes<'_>,
    round: u64,
) -> Result<Feed, FeedError> {
    let mut made = Feed { tensors: Vec::new(), fed: Vec::new(), kind: kind(&model.inputs(), role) };
    for feed::Fed { name, tensor, what } in feed::feed(model, sizes, round)? {
        made.fed.push(format!("{name} {}{:?} {what}", tensor.dtype(), tensor.dims()));
        made.tensors.push((name, tensor));
    }
    Ok(made)
}

fn kind(declared: &[Value], role: &str) -> ModelKind {
    let has = |name: &str| declared.iter().any(|value| value.name == name);
    let pictures = declared.iter().any(|value| {
        value.dtype == Some(DataType::F32) && value.dims.as_ref().is_some_and(|d| d.len() == 4)
    });
    match () {
        () if role.starts_with("decoder") => ModelKind::Generation,
        () if has("input_ids") && has("pixel_values") => ModelKind::Multimodal,
        () if has("input_ids") => ModelKind::Text,
        () if has("input_features") || has("input_values") => ModelKind::Audio,
        () if pictures => ModelKind::Vision,
        () => ModelKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::synth::{Options, synth};

    use super::*;

    #[test]
    fn the_kind_is_told_by_the_inputs_and_the_role() {
        let check = |family: &str, role: &str, expected| {
            let model =
                synth(family.parse().unwrap(), &Options::default()).unwrap().remove(0).model;
            let sizes = Sizes { batch: 1, tokens: 8, dims: &[] };
            assert_eq!(feed(&model, role, &sizes).unwrap().kind, expected, "{family}");
        };
        check("bert", "model", ModelKind::Text);
        check("bert", "decoder", ModelKind::Generation);
        check("vit", "model", ModelKind::Vision);
    }
}
