//! Several models in one graph, with the weights that they have in common.
//!
//! An engine that cannot share weights between sessions (wasm) can hold them once in one session.
//! A boolean input chooses a model; of the others nothing runs. Products that all models have are
//! there once, outside; what each model does between them sits in the branch of an `If`.
//!
//! ```text
//! inputs of A ─► If(A) { A } ─┐                      ┌─► If(A) { A } ─┐
//!                             ├─► common product ─► … ┤                ├─► outputs
//! inputs of B ─► If(B) { B } ─┘                      └─► If(B) { B } ─┘
//! ```
//!
//! Products are outside for the engine's sake: it brings a weight of the outer graph into the order
//! that it computes with and frees the original, but it keeps both where a branch captures it.

mod anchors;
mod build;
mod choose;
mod flow;
mod levels;
mod merge;
mod named;
mod piece;

use std::collections::BTreeMap;

use anchors::anchors;
use build::build;
use flow::Flow;
use levels::Levels;
use named::Named;

use crate::model::Model;
use crate::proto::ModelProto;
use crate::weights::WeightTable;

/// Weights of less than this stay in their model's branches: engines look at them while loading.
const LEAST_COMMON_BYTES: usize = 1024;

/// A model to put into a composite. Weights in bodies and `Constant` nodes are not shared:
/// [`hoist`](crate::hoist()) them first.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// What messages call it.
    pub name: &'a str,
    /// The model.
    pub model: &'a Model,
    /// Its weights.
    pub weights: &'a WeightTable,
}

/// Several models in one graph.
#[derive(Clone, Debug)]
pub struct Composite {
    /// The graph. All its inputs have to be fed in every run, of which each chooses one model.
    pub model: Model,
    /// Where each model is found in it, in the order in which they were given.
    pub parts: Vec<ComposedPart>,
}

/// One model of a composite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComposedPart {
    /// The boolean scalar that chooses it. The others have to be false.
    pub chosen_by: String,
    /// What its inputs are called.
    pub inputs: BTreeMap<String, ComposedInput>,
    /// What its outputs are called. They have no elements where it was not chosen.
    pub outputs: BTreeMap<String, String>,
}

/// An input of one model of a composite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComposedInput {
    /// Its name in the composite.
    pub name: String,
    /// The shape to feed when the model is not chosen: no elements, or one for a scalar.
    pub idle_shape: Vec<usize>,
}

/// Why models cannot be put into one graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum ComposeError {
    #[error("there are no models to put together")]
    Nothing,
    #[error(
        "models `{first}` and `{second}` are written for versions {first_version} and {second_version} of the operators in `{domain}`; a graph can have only one"
    )]
    Opset { domain: String, first: String, first_version: i64, second: String, second_version: i64 },
    #[error(
        "models `{first}` and `{second}` define the function `{function}` in different ways; a graph can have only one"
    )]
    Function { function: String, first: String, second: String },
    #[error(
        "the element type of output `{output}` of model `{model}` is not known, so there is nothing to give in its place when the model is not chosen"
    )]
    OutputType { model: String, output: String },
    #[error(
        "input `{input}` of model `{model}` has no known element type, so there is nothing to feed it when the model is not chosen"
    )]
    InputType { model: String, input: String },
}

/// Puts models into one graph. A weight that several have is there once, and so is a product with
/// a large weight that all have.
pub fn compose(parts: &[Part<'_>]) -> Result<Composite, ComposeError> {
    let newest = parts.iter().map(|part| part.model.proto().ir_version).max();
    let ir_version = newest.ok_or(ComposeError::Nothing)?;
    let opset_import = merge::opsets(parts)?;
    let functions = merge::functions(parts)?;
    let named = parts.iter().enumerate().map(|(number, part)| Named::new(number, part));
    let named = named.collect::<Result<Vec<_>, _>>()?;
    let levels = Levels::new(&named, anchors(&named));
    let flow = Flow::new(&named, &levels);
    let graph = build(&named, &levels, &flow);
    let proto = ModelProto {
        ir_version,
        producer_name: "holdfast".to_owned(),
        graph: Some(graph),
        opset_import,
        functions,
        ..ModelProto::default()
    };
    let model = Model::from_proto(proto).expect("valid models under separate names are valid");
    Ok(Composite { model, parts: named.into_iter().map(|named| named.composed).collect() })
}
