//! Several models in one graph, each in a branch of its own over common weights.
//!
//! An engine that cannot share weights between sessions (wasm) can hold them once in one session.
//! Each model sits in an `If` that a boolean input chooses; only what is chosen runs.
//!
//! ```text
//! weights, inputs of A ──► If(choose A) { A } else { nothing } ──► outputs of A
//!        └ inputs of B ──► If(choose B) { B } else { nothing } ──► outputs of B
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::dtype::DataType;
use crate::hoist::rename;
use crate::infer::dtypes;
use crate::model::{Dim, Model};
use crate::proto::{
    AttributeProto, AttributeType, DimensionProto, FunctionProto, GraphProto, ModelProto,
    NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto,
    TypeValue, ValueInfoProto,
};
use crate::validate::is_onnx;
use crate::weights::{Slot, WeightId, WeightTable};

/// Weights of less than this stay in their model's branch: engines look at them while loading.
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
    /// The graph. All its inputs have to be fed in every run.
    pub model: Model,
    /// Where each model is found in it, in the order in which they were given.
    pub parts: Vec<ComposedPart>,
}

/// One model of a composite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComposedPart {
    /// The boolean scalar that chooses it.
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

/// Puts models into one graph. A weight that several have is there once.
pub fn compose(parts: &[Part<'_>]) -> Result<Composite, ComposeError> {
    let first = parts.first().ok_or(ComposeError::Nothing)?;
    let opsets = opsets(parts)?;
    let functions = functions(parts)?;
    let mut graph = GraphProto { name: "composite".to_owned(), ..GraphProto::default() };
    let mut common: HashMap<WeightId, String> = HashMap::new();
    let mut composed = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        composed.push(add(&mut graph, &mut common, number, part)?);
    }
    let newest = parts.iter().map(|part| part.model.proto().ir_version).max();
    let proto = ModelProto {
        ir_version: newest.unwrap_or(first.model.proto().ir_version),
        producer_name: "holdfast".to_owned(),
        graph: Some(graph),
        opset_import: opsets,
        functions,
        ..ModelProto::default()
    };
    let model = Model::from_proto(proto).expect("valid models under separate names are valid");
    Ok(Composite { model, parts: composed })
}

/// The versions of all domains, if they agree.
fn opsets(parts: &[Part<'_>]) -> Result<Vec<OperatorSetIdProto>, ComposeError> {
    let mut known: BTreeMap<String, (i64, &str)> = BTreeMap::new();
    for part in parts {
        for OperatorSetIdProto { domain, version } in &part.model.proto().opset_import {
            let domain = if is_onnx(domain) { String::new() } else { domain.clone() };
            let (first_version, first) =
                *known.entry(domain.clone()).or_insert((*version, part.name));
            if first_version != *version {
                let domain = if domain.is_empty() { "ai.onnx".to_owned() } else { domain };
                let (first, second) = (first.to_owned(), part.name.to_owned());
                let second_version = *version;
                return Err(ComposeError::Opset {
                    domain,
                    first,
                    first_version,
                    second,
                    second_version,
                });
            }
        }
    }
    let opset = |(domain, (version, _))| OperatorSetIdProto { domain, version };
    Ok(known.into_iter().map(opset).collect())
}

/// The functions of all models, if they agree.
fn functions(parts: &[Part<'_>]) -> Result<Vec<FunctionProto>, ComposeError> {
    let mut known: Vec<(&FunctionProto, &str)> = Vec::new();
    for part in parts {
        for function in &part.model.proto().functions {
            let same = |(other, _): &&(&FunctionProto, &str)| {
                (&other.name, &other.domain, &other.overload)
                    == (&function.name, &function.domain, &function.overload)
            };
            match known.iter().find(same) {
                Some((other, _)) if *other == function => {}
                Some((_, first)) => {
                    let (first, second) = ((*first).to_owned(), part.name.to_owned());
                    let function = format!("{}::{}", function.domain, function.name);
                    return Err(ComposeError::Function { function, first, second });
                }
                None => known.push((function, part.name)),
            }
        }
    }
    Ok(known.into_iter().map(|(function, _)| function.clone()).collect())
}

/// Adds a model in a branch of its own.
fn add(
    graph: &mut GraphProto,
    common: &mut HashMap<WeightId, String>,
    number: usize,
    part: &Part<'_>,
) -> Result<ComposedPart, ComposeError> {
    let inside = |name: &str| format!("{number}/{name}");
    let chosen_by = format!("{number}:chosen");
    graph.input.push(value(&chosen_by, DataType::Bool, Some(&[])));
    let mut inputs = BTreeMap::new();
    for input in part.model.inputs() {
        let typeless =
            || ComposeError::InputType { model: part.name.to_owned(), input: input.name.clone() };
        let dtype = input.dtype.ok_or_else(typeless)?;
        let name = inside(&input.name);
        let dims = input.dims.as_ref().map(|dims| free(dims, number));
        graph.input.push(value(&name, dtype, dims.as_deref()));
        // What declares no shape takes any.
        let idle_shape = vec![0; dims.map_or(1, |dims| dims.len())];
        inputs.insert(input.name.clone(), ComposedInput { name, idle_shape });
    }

    let mut body = part.model.graph().clone();
    prefix(&mut body, &inside);
    body.input.clear();
    body.quantization_annotation.clear();
    take_weights(graph, common, number, part, &mut body);
    let types = dtypes(part.model);
    let mut outputs = BTreeMap::new();
    let mut nothing = GraphProto { name: inside("nothing"), ..GraphProto::default() };
    let mut given = Vec::new();
    let declared: Vec<String> =
        part.model.graph().output.iter().map(|output| output.name.clone()).collect();
    let computed: HashSet<String> =
        body.node.iter().flat_map(|node| &node.output).cloned().collect();
    for (output, name) in body.output.iter_mut().zip(&declared) {
        let unknown =
            || ComposeError::OutputType { model: part.name.to_owned(), output: name.clone() };
        let dtype = types.get(name).copied().ok_or_else(unknown)?;
        // A branch computes what it returns.
        if !computed.contains(&output.name) {
            let returned = format!("{number}:returned/{name}");
            let taken = std::mem::replace(&mut output.name, returned.clone());
            body.node.push(node("Identity", vec![taken], vec![returned]));
        }
        let empty = format!("{number}:empty/{name}");
        nothing.node.push(constant(&empty, dtype));
        nothing.output.push(value(&empty, dtype, None));
        let given_as = format!("{number}:output/{name}");
        if outputs.insert(name.clone(), given_as.clone()).is_none() {
            graph.output.push(value(&given_as, dtype, None));
            given.push(given_as);
        } else {
            nothing.node.pop();
            nothing.output.pop();
        }
    }
    dedup_outputs(&mut body);
    let mut chosen = node("If", vec![chosen_by.clone()], given);
    chosen.name = format!("{number}:{}", part.name);
    chosen.attribute = vec![branch("then_branch", body), branch("else_branch", nothing)];
    graph.node.push(chosen);
    Ok(ComposedPart { chosen_by, inputs, outputs })
}

/// Moves the large initializers of a branch to the graph around it, unless they are there.
fn take_weights(
    graph: &mut GraphProto,
    common: &mut HashMap<WeightId, String>,
    number: usize,
    part: &Part<'_>,
    body: &mut GraphProto,
) {
    let mut names = HashMap::new();
    let outermost = part.weights.entries().iter().filter(|weight| weight.place.bodies.is_empty());
    for weight in outermost.filter(|weight| weight.tensor.bytes().len() >= LEAST_COMMON_BYTES) {
        let Slot::Initializer(index) = weight.place.slot else { continue };
        let Some(tensor) = body.initializer.get(index) else { continue };
        let own = tensor.name.clone();
        let shared = common.entry(weight.id).or_insert_with(|| {
            let name = format!("{number}:weight/{}", weight.name);
            graph.initializer.push(TensorProto { name: name.clone(), ..tensor.clone() });
            name
        });
        names.insert(own, shared.clone());
    }
    body.initializer.retain(|tensor| !names.contains_key(&tensor.name));
    rename(body, &names);
}

/// Gives every name in a graph and its bodies a prefix.
fn prefix(graph: &mut GraphProto, inside: &dyn Fn(&str) -> String) {
    let add = |name: &mut String| {
        if !name.is_empty() {
            *name = inside(name);
        }
    };
    add(&mut graph.name);
    let values = graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info);
    values.for_each(|value| add(&mut value.name));
    graph.initializer.iter_mut().for_each(|tensor| add(&mut tensor.name));
    let sparse = graph.sparse_initializer.iter_mut().filter_map(|sparse| sparse.values.as_mut());
    sparse.for_each(|tensor| add(&mut tensor.name));
    for node in &mut graph.node {
        add(&mut node.name);
        node.input.iter_mut().chain(&mut node.output).for_each(add);
        for attribute in &mut node.attribute {
            let bodies = attribute.g.as_deref_mut().into_iter().chain(&mut attribute.graphs);
            bodies.for_each(|body| prefix(body, inside));
        }
    }
}

/// An output that a model lists twice is given once.
fn dedup_outputs(body: &mut GraphProto) {
    let mut seen = HashSet::new();
    body.output.retain(|output| seen.insert(output.name.clone()));
}

/// Dimensions of any size, so that a model that is not chosen can be fed nothing.
fn free(dims: &[Dim], number: usize) -> Vec<Dim> {
    let free = |dim: &Dim| match dim {
        Dim::Named(name) => Dim::Named(format!("{number}/{name}")),
        _ => Dim::Unknown,
    };
    dims.iter().map(free).collect()
}

fn value(name: &str, dtype: DataType, dims: Option<&[Dim]>) -> ValueInfoProto {
    use crate::proto::DimensionValue::{Param, Value};
    let dim = |dim: &Dim| DimensionProto {
        value: match dim {
            Dim::Fixed(size) => Some(Value(*size as i64)),
            Dim::Named(name) => Some(Param(name.clone())),
            Dim::Unknown => None,
        },
        ..DimensionProto::default()
    };
    let shape = dims.map(|dims| TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let tensor = TensorTypeProto { elem_type: dtype.to_onnx(), shape };
    let r#type = TypeProto { value: Some(TypeValue::Tensor(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: name.to_owned(), r#type: Some(r#type), ..ValueInfoProto::default() }
}

fn node(operator: &str, input: Vec<String>, output: Vec<String>) -> NodeProto {
    NodeProto { input, output, op_type: operator.to_owned(), ..NodeProto::default() }
}

/// A `Constant` without elements.
fn constant(name: &str, dtype: DataType) -> NodeProto {
    let tensor =
        TensorProto { dims: vec![0], data_type: dtype.to_onnx(), ..TensorProto::default() };
    let value = AttributeProto {
        name: "value".to_owned(),
        r#type: AttributeType::Tensor as i32,
        t: Some(Box::new(tensor)),
        ..AttributeProto::default()
    };
    NodeProto { attribute: vec![value], ..node("Constant", Vec::new(), vec![name.to_owned()]) }
}

fn branch(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        r#type: AttributeType::Graph as i32,
        g: Some(Box::new(graph)),
        ..AttributeProto::default()
    }
}
