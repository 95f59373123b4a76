//! The models of this suite: the real ones, tiny ones built in code, and graphs of one node.

use anyhow::Result;
use holdfast_graph::{DataType, Model, Tensor, Value};
use holdfast_models::StoredGraph;
use holdfast_testkit::{Builder, Recipe, bert, fixed, named, vit};

use super::rig::Rig;
use crate::spine::cases::{Case, inputs};

/// A model in a rig's store, with inputs and the right answer.
pub(super) struct Sample {
    pub(super) graph: StoredGraph,
    pub(super) inputs: Vec<(String, Tensor)>,
    pub(super) expected: Vec<Tensor>,
}

impl Sample {
    /// A real model, with a batch of so many tokens where it takes text.
    pub(super) async fn real(
        rig: &Rig,
        case: &Case,
        batch: usize,
        tokens: usize,
    ) -> Result<Sample> {
        let graph = rig.import(&case.path(), case.id)?;
        let inputs = inputs(case, &rig.inputs(&graph)?, batch, tokens)?;
        Sample::new(rig, graph, inputs).await
    }

    /// BERT of two layers of 64.
    pub(super) async fn tiny_bert(rig: &Rig, tokens: usize) -> Result<Sample> {
        let graph = rig.add(&bert(&Recipe::tiny(1))?, "tiny-bert")?;
        let make = |value: Value| -> Result<(String, Tensor)> {
            let id = |position: usize| match value.name.as_str() {
                "input_ids" => 1 + (position as i64 * 37) % 250,
                "attention_mask" => 1,
                _ => 0,
            };
            let ids: Vec<i64> = (0..tokens).map(id).collect();
            Ok((value.name, Tensor::from_slice(&[1, tokens], &ids)?))
        };
        let inputs = rig.inputs(&graph)?.into_iter().map(make).collect::<Result<_>>()?;
        Sample::new(rig, graph, inputs).await
    }

    /// ViT of two layers of 64.
    pub(super) async fn tiny_vit(rig: &Rig) -> Result<Sample> {
        const VIT: Case =
            Case { id: "tiny-vit", file: "", dims: &[("pixel_values", &[1, 3, 32, 32])] };
        let graph = rig.add(&vit(&Recipe::tiny(2))?, VIT.id)?;
        let inputs = inputs(&VIT, &rig.inputs(&graph)?, 1, 1)?;
        Sample::new(rig, graph, inputs).await
    }

    async fn new(rig: &Rig, graph: StoredGraph, inputs: Vec<(String, Tensor)>) -> Result<Sample> {
        let expected = rig.expected(&graph, &inputs).await?;
        Ok(Sample { graph, inputs, expected })
    }
}

/// `y = x` for f32 of any length.
pub(super) fn identity() -> Result<Model> {
    let mut builder = Builder::new("identity", 1);
    let x = builder.input("x", DataType::F32, &[named("length")]);
    let y = builder.node("Identity", &[&x], &[]);
    builder.output("y", &y, DataType::F32, &[named("length")]);
    Ok(builder.finish()?)
}

/// The determinant of a square, which few backends know.
pub(super) fn determinant() -> Result<Model> {
    let mut builder = Builder::new("determinant", 1);
    let x = builder.input("x", DataType::F32, &[fixed(2), fixed(4), fixed(4)]);
    let y = builder.node("Det", &[&x], &[]);
    builder.output("y", &y, DataType::F32, &[fixed(2)]);
    Ok(builder.finish()?)
}
