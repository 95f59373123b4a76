//! Element types of values. Unlike shapes they need no sizes: cutting a graph at a value asks
//! for its type alone.

use std::collections::HashMap;

use super::operator;
use crate::dtype::DataType;
use crate::model::{Model, Value};
use crate::proto::{GraphProto, NodeProto};
use crate::topology::{bodies, order};
use crate::weights::constant;

/// The element type of every value of the outermost graph whose type is declared or follows.
///
/// What the file declares is believed; the rest comes from the operators. Values of unknown
/// operators, and of what is no tensor, are left out.
pub fn dtypes(model: &Model) -> HashMap<String, DataType> {
    let types = Types::of_graph(model, model.graph(), &[], None);
    types.known.into_iter().map(|(name, dtype)| (name.to_owned(), dtype)).collect()
}

/// The type of an output.
pub(crate) enum Type {
    /// That of this input.
    Same(usize),
    /// Always this one.
    Is(DataType),
    /// As this function finds it from the node and the types of its inputs.
    Rule(fn(&NodeProto, Inputs<'_>) -> Option<DataType>),
}

/// The types of a node's inputs, as far as they are known.
pub(crate) type Inputs<'a> = &'a dyn Fn(usize) -> Option<DataType>;

/// The common case: every output has the first input's type.
pub(crate) const SAME: &[Type] = &[Type::Same(0)];

/// The known types in a graph and those around it.
pub(crate) struct Types<'a> {
    known: HashMap<&'a str, DataType>,
    outer: Option<&'a Types<'a>>,
}

impl<'a> Types<'a> {
    /// The types in a graph; `formals` are those of its inputs where it declares none.
    pub(crate) fn of_graph(
        model: &'a Model,
        graph: &'a GraphProto,
        formals: &[Option<DataType>],
        outer: Option<&'a Types<'a>>,
    ) -> Types<'a> {
        let mut types = Types { known: HashMap::new(), outer };
        for (input, formal) in graph.input.iter().zip(formals) {
            types.insert(&input.name, *formal);
        }
        for value in graph.input.iter().chain(&graph.value_info).chain(&graph.output) {
            types.insert(&value.name, Value::from_proto(value).dtype);
        }
        let sparse = graph.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_ref());
        for tensor in graph.initializer.iter().chain(sparse) {
            types.insert(&tensor.name, DataType::from_onnx(tensor.data_type));
        }
        for index in order(graph).unwrap_or_default() {
            let node = &graph.node[index];
            // Bodies are walked once for all outputs, so that nesting costs no more than it holds.
            let found = types.of_outputs(model, node);
            for (name, dtype) in node.output.iter().zip(found) {
                if !name.is_empty() && !types.known.contains_key(name.as_str()) {
                    types.insert(name, dtype);
                }
            }
        }
        types
    }

    pub(crate) fn get(&self, name: &str) -> Option<DataType> {
        let here = self.known.get(name).copied();
        here.or_else(|| self.outer.and_then(|outer| outer.get(name)))
    }

    fn insert(&mut self, name: &'a str, dtype: Option<DataType>) {
        if let Some(dtype) = dtype {
            self.known.insert(name, dtype);
        }
    }

    fn of_outputs(&self, model: &Model, node: &NodeProto) -> Vec<Option<DataType>> {
        if bodies(node).next().is_some() {
            return self.of_body_outputs(model, node);
        }
        let row = operator::find(&node.domain, &node.op_type)
            .filter(|_| !super::is_function(model, node));
        let input = |index: usize| self.get(node.input.get(index)?);
        let output = |index: usize| {
            let types = row?.types;
            match types.get(index).or(types.last())? {
                Type::Same(index) => input(*index),
                Type::Is(dtype) => Some(*dtype),
                Type::Rule(rule) => rule(node, &input),
            }
        };
        (0..node.output.len()).map(output).collect()
    }

    /// An output of `If`, `Loop` or `Scan` has the type of what a body returns for it.
    fn of_body_outputs(&self, model: &Model, node: &NodeProto) -> Vec<Option<DataType>> {
        // A loop's body first returns whether to go on.
        let skipped = usize::from(node.op_type == "Loop");
        let formals = formals(node, |name| self.get(name));
        let mut found = vec![None; node.output.len()];
        for (_, body) in bodies(node) {
            let types = Types::of_graph(model, body, &formals, Some(self));
            for (dtype, value) in found.iter_mut().zip(body.output.iter().skip(skipped)) {
                *dtype = dtype.or_else(|| types.get(&value.name));
            }
        }
        found
    }
}

/// The types of a body's inputs as the node that runs it gives them.
pub(crate) fn formals(
    node: &NodeProto,
    get: impl Fn(&str) -> Option<DataType>,
) -> Vec<Option<DataType>> {
    let given = node.input.iter().map(|name| get(name));
    match node.op_type.as_str() {
        "Loop" => {
            [DataType::I64, DataType::Bool].map(Some).into_iter().chain(given.skip(2)).collect()
        }
        "Scan" => given.collect(),
        _ => Vec::new(),
    }
}

/// The type that an attribute names by its number.
pub(crate) fn named(node: &NodeProto, attribute: &str) -> Option<DataType> {
    let attribute = node.attribute.iter().find(|found| found.name == attribute)?;
    DataType::from_onnx(i32::try_from(attribute.i?).ok()?)
}

/// The type that `dtype` names, else that of the first input.
pub(crate) const NAMED_OR_SAME: &[Type] =
    &[Type::Rule(|node, input| named(node, "dtype").or_else(|| input(0)))];

/// The type that `dtype` names, else `f32`.
pub(crate) const NAMED_OR_F32: &[Type] =
    &[Type::Rule(|node, _| named(node, "dtype").or(Some(DataType::F32)))];

/// The type of a `Constant`, in whichever of its forms.
pub(crate) const OF_CONSTANT: &[Type] = &[Type::Rule(|node, _| {
    let text = |name: &str| name == "value_string" || name == "value_strings";
    let tensor = constant(node).map(|tensor| tensor.dtype());
    tensor.or_else(|| {
        let attribute = node.attribute.first()?;
        let held = || DataType::from_onnx(attribute.t.as_deref()?.data_type);
        if text(&attribute.name) { Some(DataType::String) } else { held() }
    })
})];
