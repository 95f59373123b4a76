//! Checks on a decoded model: every value has one producer, nothing is missing, no cycles,
//! tensors have the bytes that they claim.

use std::collections::{HashMap, HashSet};

use crate::dtype::DataType;
use crate::error::{Problem, ReadError};
use crate::model::OLDEST_OPSET;
use crate::proto::{
    DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, SparseTensorProto,
    TensorProto, TypeValue, ValueInfoProto,
};
use crate::tensor::{Tensor, TensorError, checked_dims};
use crate::topology::{bodies, initializer_names, order};

/// No real dimension is larger; a file that says so is damaged.
const MAX_DIMENSION: i64 = 1 << 40;

pub(crate) fn validate(model: &ModelProto) -> Result<(), ReadError> {
    let at_model = |problem| ReadError::Invalid { place: "the model".to_owned(), problem };
    let graph = model.graph.as_ref().ok_or(at_model(Problem::NoGraph))?;
    let mut versions: HashMap<&str, i64> = HashMap::new();
    for OperatorSetIdProto { domain, version } in &model.opset_import {
        let domain = if is_onnx(domain) { "" } else { domain };
        if domain.is_empty() && *version < OLDEST_OPSET {
            let version = *version;
            return Err(at_model(Problem::OldOpset { version, oldest: OLDEST_OPSET }));
        }
        if versions.insert(domain, *version).is_some_and(|other| other != *version) {
            return Err(at_model(Problem::TwoOpsets(domain.to_owned())));
        }
    }
    check_graph(graph, None, &versions.into_keys().collect(), "the graph")
}

/// Whether a domain is the standard one, which has two spellings.
pub(crate) fn is_onnx(domain: &str) -> bool {
    domain.is_empty() || domain == "ai.onnx"
}

/// What messages call a node: its name, or its first output where it has none.
pub fn node_label(node: &NodeProto) -> String {
    let name = if node.name.is_empty() {
        node.output.first().map_or("", String::as_str)
    } else {
        &node.name
    };
    format!("node `{name}` ({})", node.op_type)
}

struct Scope<'a> {
    names: HashSet<&'a str>,
    outer: Option<&'a Scope<'a>>,
}

impl Scope<'_> {
    fn has(&self, name: &str) -> bool {
        self.names.contains(name) || self.outer.is_some_and(|outer| outer.has(name))
    }
}

fn check_graph(
    graph: &GraphProto,
    outer: Option<&Scope<'_>>,
    domains: &HashSet<&str>,
    place: &str,
) -> Result<(), ReadError> {
    let invalid = |place: &str, problem| ReadError::Invalid { place: place.to_owned(), problem };
    for value in graph.input.iter().chain(&graph.output).chain(&graph.value_info) {
        check_value(value).map_err(|problem| invalid(place, problem))?;
    }
    for tensor in &graph.initializer {
        let at = || format!("initializer `{}`", tensor.name);
        check_tensor(tensor).map_err(|problem| invalid(&at(), problem.into()))?;
    }

    for sparse in &graph.sparse_initializer {
        check_sparse(sparse).map_err(|problem| invalid(place, problem.into()))?;
    }

    let mut names: HashSet<&str> = HashSet::new();
    let twice = |name: &str| Err(invalid(place, Problem::ProducedTwice(name.to_owned())));
    for input in &graph.input {
        if !names.insert(&input.name) {
            return twice(&input.name);
        }
    }
    let mut initializers = HashSet::new();
    for name in initializer_names(graph) {
        // An initializer may also be listed as an input: older files list all of them. The
        // inputs of a body are fed by the node that runs it.
        if !initializers.insert(name) || outer.is_some() && names.contains(name) {
            return twice(name);
        }
    }
    names.extend(&initializers);
    for node in &graph.node {
        for output in node.output.iter().filter(|name| !name.is_empty()) {
            if !names.insert(output) {
                let problem = Problem::ProducedTwice(output.clone());
                return Err(invalid(&node_label(node), problem));
            }
        }
    }
    let scope = Scope { names, outer };

    for node in &graph.node {
        check_node(node, &scope, domains)?;
    }
    for output in &graph.output {
        if !scope.has(&output.name) {
            return Err(invalid(place, Problem::MissingOutput(output.name.clone())));
        }
    }
    order(graph).map_err(|index| invalid(&node_label(&graph.node[index]), Problem::Cycle))?;
    Ok(())
}

fn check_node(
    node: &NodeProto,
    scope: &Scope<'_>,
    domains: &HashSet<&str>,
) -> Result<(), ReadError> {
    let invalid = |problem| ReadError::Invalid { place: node_label(node), problem };
    if node.op_type.is_empty() {
        return Err(invalid(Problem::NoOperator));
    }
    let domain = if is_onnx(&node.domain) { "" } else { &node.domain };
    if !domains.contains(domain) {
        return Err(invalid(Problem::NoOpset(node.domain.clone())));
    }
    for input in node.input.iter().filter(|name| !name.is_empty()) {
        if !scope.has(input) {
            return Err(invalid(Problem::MissingInput(input.clone())));
        }
    }
    let mut attributes = HashSet::new();
    for attribute in &node.attribute {
        if !attributes.insert(attribute.name.as_str()) {
            return Err(invalid(Problem::AttributeTwice(attribute.name.clone())));
        }
        for tensor in attribute.t.as_deref().into_iter().chain(&attribute.tensors) {
            check_tensor(tensor).map_err(|problem| invalid(problem.into()))?;
        }
        for sparse in
            attribute.sparse_tensor.as_deref().into_iter().chain(&attribute.sparse_tensors)
        {
            check_sparse(sparse).map_err(|problem| invalid(problem.into()))?;
        }
    }
    for (attribute, body) in bodies(node) {
        let place = format!("{} of {}", attribute.name, node_label(node));
        check_graph(body, Some(scope), domains, &place)?;
    }
    Ok(())
}

fn check_tensor(tensor: &TensorProto) -> Result<(), TensorError> {
    if DataType::from_onnx(tensor.data_type) == Some(DataType::String) {
        let dims = checked_dims(&tensor.dims)?;
        let expected = dims.iter().map(|&dim| dim as u64).product();
        let found = tensor.string_data.len() as u64;
        if found != expected {
            let dtype = DataType::String;
            return Err(TensorError::WrongValueCount { dtype, expected, found });
        }
        return Ok(());
    }
    Tensor::from_proto(tensor).map(drop)
}

fn check_sparse(sparse: &SparseTensorProto) -> Result<(), TensorError> {
    checked_dims(&sparse.dims)?;
    sparse.values.iter().chain(&sparse.indices).try_for_each(check_tensor)
}

fn check_value(value: &ValueInfoProto) -> Result<(), Problem> {
    let Some(TypeValue::Tensor(tensor)) =
        value.r#type.as_ref().and_then(|r#type| r#type.value.as_ref())
    else {
        return Ok(());
    };
    let dims = tensor.shape.iter().flat_map(|shape| &shape.dim);
    for dimension in dims.filter_map(|dim| dim.value.as_ref()) {
        // Some exporters write -1 for a dimension that they do not know.
        if let &DimensionValue::Value(dimension) = dimension
            && !(-1..=MAX_DIMENSION).contains(&dimension)
        {
            return Err(Problem::AbsurdDimension { value: value.name.clone(), dimension });
        }
    }
    Ok(())
}
