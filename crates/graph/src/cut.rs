//! Cuts a piece out of a graph as a model of its own.

use std::collections::{HashMap, HashSet};

use crate::dtype::DataType;
use crate::infer::dtypes;
use crate::model::Model;
use crate::proto::{
    GraphProto, ModelProto, NodeProto, TensorTypeProto, TypeProto, TypeValue, ValueInfoProto,
};
use crate::topology::{initializer_names, needs};

/// Why a piece cannot be cut out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CutError {
    /// The graph has no such value.
    #[error(
        "there is no value `{0}` in the graph; values inside an If, Loop or Scan cannot be cut at"
    )]
    NoSuchValue(String),
    /// The output would need no node.
    #[error(
        "`{0}` cannot be an output of a piece: nothing between the chosen inputs and it computes it"
    )]
    NotComputed(String),
    /// An input of a model must have an element type, and this one's is not known.
    #[error("the element type of `{0}` is not known, so it cannot be an input of a piece")]
    UnknownType(String),
    /// No output was named.
    #[error("a piece needs at least one output")]
    NoOutputs,
}

/// The part of the graph that computes `outputs` from `inputs`, as a model.
///
/// Nodes before `inputs` are left out. Inputs of the graph that the piece still needs follow
/// the chosen ones. Weights come along; opsets, functions and metadata are kept.
pub fn cut(model: &Model, inputs: &[&str], outputs: &[&str]) -> Result<Model, CutError> {
    let graph = model.graph();
    let producers: HashMap<&str, usize> = graph
        .node
        .iter()
        .enumerate()
        .flat_map(|(index, node)| node.output.iter().map(move |name| (name.as_str(), index)))
        .filter(|(name, _)| !name.is_empty())
        .collect();
    let initializers: HashSet<&str> = initializer_names(graph).collect();
    let graph_inputs: HashSet<&str> = graph.input.iter().map(|input| input.name.as_str()).collect();
    let known = |name: &str| {
        producers.contains_key(name) || initializers.contains(name) || graph_inputs.contains(name)
    };
    if outputs.is_empty() {
        return Err(CutError::NoOutputs);
    }
    if let Some(name) = inputs.iter().chain(outputs).find(|name| !known(name)) {
        return Err(CutError::NoSuchValue((*name).to_owned()));
    }

    let given: HashSet<&str> = inputs.iter().copied().collect();
    let not_computed = |name: &&&str| given.contains(**name) || !producers.contains_key(**name);
    if let Some(name) = outputs.iter().find(not_computed) {
        return Err(CutError::NotComputed((*name).to_owned()));
    }

    // Backwards from the outputs, stopping at what is given.
    let mut wanted: Vec<&str> = outputs.to_vec();
    let mut kept = vec![false; graph.node.len()];
    let mut used: HashSet<&str> = HashSet::new();
    while let Some(name) = wanted.pop() {
        if given.contains(name) || !used.insert(name) {
            continue;
        }
        if let Some(&index) = producers.get(name)
            && !std::mem::replace(&mut kept[index], true)
        {
            wanted.extend(needs(&graph.node[index]));
        }
    }

    let types = dtypes(model);
    let mut piece_inputs = Vec::new();
    for name in unique(inputs) {
        piece_inputs.push(describe(graph, name, &types)?);
    }
    let still_needed = |name: &str| used.contains(name) && !initializers.contains(name);
    piece_inputs.extend(graph.input.iter().filter(|input| still_needed(&input.name)).cloned());
    let piece_outputs = unique(outputs).into_iter().map(|name| {
        describe(graph, name, &types).unwrap_or_else(|_| ValueInfoProto {
            name: name.to_owned(),
            ..ValueInfoProto::default()
        })
    });

    let piece = GraphProto {
        node: (graph.node.iter().zip(&kept))
            .filter(|(_, kept)| **kept)
            .map(|(node, _)| without_outputs(node, &given, &known))
            .collect(),
        name: graph.name.clone(),
        initializer: (graph.initializer.iter())
            .filter(|tensor| used.contains(tensor.name.as_str()))
            .cloned()
            .collect(),
        sparse_initializer: (graph.sparse_initializer.iter())
            .filter(|sparse| sparse.values.as_ref().is_some_and(|v| used.contains(v.name.as_str())))
            .cloned()
            .collect(),
        doc_string: graph.doc_string.clone(),
        output: piece_outputs.collect(),
        value_info: (graph.value_info.iter())
            .filter(|value| {
                used.contains(value.name.as_str()) && !outputs.contains(&value.name.as_str())
            })
            .cloned()
            .collect(),
        input: piece_inputs,
        quantization_annotation: Vec::new(),
        metadata_props: graph.metadata_props.clone(),
    };
    let proto = ModelProto { graph: Some(piece), ..without_graph(model.proto()) };
    Ok(Model::from_proto(proto).expect("a piece of a valid model is valid"))
}

/// Everything of a model but its graph.
pub(crate) fn without_graph(model: &ModelProto) -> ModelProto {
    ModelProto {
        ir_version: model.ir_version,
        producer_name: model.producer_name.clone(),
        producer_version: model.producer_version.clone(),
        domain: model.domain.clone(),
        model_version: model.model_version,
        doc_string: model.doc_string.clone(),
        graph: None,
        opset_import: model.opset_import.clone(),
        metadata_props: model.metadata_props.clone(),
        training_info: Vec::new(),
        functions: model.functions.clone(),
        configuration: model.configuration.clone(),
    }
}

/// The node with other names for what the piece is given: a node with several outputs may be
/// needed for one of them while another one is an input of the piece.
fn without_outputs(
    node: &NodeProto,
    given: &HashSet<&str>,
    taken: &impl Fn(&str) -> bool,
) -> NodeProto {
    let mut node = node.clone();
    for output in node.output.iter_mut().filter(|output| given.contains(output.as_str())) {
        while taken(output) {
            output.push_str("_unused");
        }
    }
    node
}

/// What the file says of a value, or at least its element type.
pub(crate) fn describe(
    graph: &GraphProto,
    name: &str,
    types: &HashMap<String, DataType>,
) -> Result<ValueInfoProto, CutError> {
    let mut described = graph.input.iter().chain(&graph.output).chain(&graph.value_info);
    if let Some(value) = described.find(|value| value.name == name && value.r#type.is_some()) {
        return Ok(value.clone());
    }
    let dtype = types.get(name).ok_or_else(|| CutError::UnknownType(name.to_owned()))?;
    let tensor = TensorTypeProto { elem_type: dtype.to_onnx(), shape: None };
    let r#type = TypeProto { value: Some(TypeValue::Tensor(tensor)), ..TypeProto::default() };
    Ok(ValueInfoProto { name: name.to_owned(), r#type: Some(r#type), ..ValueInfoProto::default() })
}

fn unique<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    names.iter().copied().filter(|name| seen.insert(*name)).collect()
}
