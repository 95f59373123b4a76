//! A graph, node by node.
//!
//! Nodes and values are named as torch names them (`/encoder/layer.0/MatMul_output_0`), and
//! weights by the dotted path of the part that they belong to.

use std::collections::HashMap;

use holdfast_graph::proto::{
    AttributeProto, DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, TensorShapeProto, TensorTypeProto, TypeProto, TypeValue, ValueInfoProto,
};
use holdfast_graph::{DataType, Dim, Model, Tensor};

use crate::attribute;
use crate::error::BuildError;
use crate::weights::{Init, Weights};

/// The version of the standard operators that models are built for unless told otherwise.
pub const DEFAULT_OPSET: i64 = 17;

/// The version of the file format that opset 17 came with; newer opsets are read with it too.
const IR_VERSION: i64 = 8;

/// Builds a model. Values are referred to by name.
///
/// ```
/// use holdfast_graph::DataType::F32;
/// use holdfast_testkit::{Builder, Init, fixed, named};
///
/// let mut builder = Builder::new("tiny", 7);
/// let x = builder.input("x", F32, &[named("batch"), fixed(4)]);
/// let w = builder.weight("dense.weight", &[4, 2], Init::fan_in(4));
/// let y = builder.node("MatMul", &[&x, &w], &[]);
/// let y = builder.node("Relu", &[&y], &[]);
/// builder.output("y", &y, F32, &[named("batch"), fixed(2)]);
/// let model = builder.finish()?;
/// assert_eq!(model.graph().node[1].output, ["y"]);
/// # Ok::<(), holdfast_testkit::BuildError>(())
/// ```
#[derive(Debug)]
pub struct Builder {
    graph: GraphProto,
    opset: i64,
    domains: Vec<OperatorSetIdProto>,
    weights: Weights,
    scope: Vec<String>,
    counts: HashMap<String, usize>,
    error: Option<BuildError>,
}

/// A dimension of this size.
pub fn fixed(size: usize) -> Dim {
    Dim::Fixed(size)
}

/// A dimension of any size, the same wherever the name appears.
pub fn named(name: &str) -> Dim {
    Dim::Named(name.to_owned())
}

impl Builder {
    /// An empty graph whose weights belong to a seed.
    pub fn new(name: &str, seed: u64) -> Builder {
        Builder::with_weights(name, Weights::new(seed))
    }

    /// An empty graph that draws its weights from a source.
    pub fn with_weights(name: &str, weights: Weights) -> Builder {
        Builder {
            graph: GraphProto { name: name.to_owned(), ..GraphProto::default() },
            opset: DEFAULT_OPSET,
            domains: Vec::new(),
            weights,
            scope: Vec::new(),
            counts: HashMap::new(),
            error: None,
        }
    }

    /// Builds for this version of the standard operators.
    pub fn opset(mut self, version: i64) -> Builder {
        self.opset = version;
        self
    }

    /// Declares a further operator domain, such as `com.microsoft`.
    pub fn domain(mut self, domain: &str, version: i64) -> Builder {
        self.domains.push(OperatorSetIdProto { domain: domain.to_owned(), version });
        self
    }

    /// What the caller has to feed.
    pub fn input(&mut self, name: &str, dtype: DataType, dims: &[Dim]) -> String {
        self.graph.input.push(value_info(name, dtype, dims));
        name.to_owned()
    }

    /// A seeded weight of the current part. Asked for twice by one name and shape, it is one.
    pub fn weight(&mut self, name: &str, dims: &[usize], init: Init) -> String {
        self.weight_from(&self.weights.clone(), name, dims, init)
    }

    /// A weight from another source than the builder's own.
    pub fn weight_from(
        &mut self,
        weights: &Weights,
        name: &str,
        dims: &[usize],
        init: Init,
    ) -> String {
        let name = self.dotted(name);
        match weights.draw(&name, dims, init) {
            Ok(tensor) => self.put(name, &tensor),
            Err(source) => {
                // Reported by `finish`, so that building reads as a sequence of values.
                self.error.get_or_insert(BuildError::Weight { name: name.clone(), source });
                name
            }
        }
    }

    /// Draws further weights from another source.
    pub fn draw_from(&mut self, weights: Weights) {
        self.weights = weights;
    }

    /// An initializer of the current part.
    pub fn initializer(&mut self, name: &str, tensor: &Tensor) -> String {
        self.put(self.dotted(name), tensor)
    }

    fn put(&mut self, name: String, tensor: &Tensor) -> String {
        let proto = tensor.to_proto(&name);
        // An equal one is shared; a different one is added, for the final check to find.
        if !self.graph.initializer.contains(&proto) {
            self.graph.initializer.push(proto);
        }
        name
    }

    /// A tensor in a `Constant` node.
    pub fn constant(&mut self, tensor: &Tensor) -> String {
        self.node("Constant", &[], &[attribute::tensor("value", tensor)])
    }

    /// A node with one output. An empty input name is an input left out.
    pub fn node(&mut self, operator: &str, inputs: &[&str], with: &[AttributeProto]) -> String {
        self.node_with_outputs(operator, inputs, with, 1).swap_remove(0)
    }

    /// A node with several outputs. `com.microsoft::Gelu` names an operator of another domain.
    pub fn node_with_outputs(
        &mut self,
        operator: &str,
        inputs: &[&str],
        with: &[AttributeProto],
        outputs: usize,
    ) -> Vec<String> {
        let (domain, operator) = operator.split_once("::").unwrap_or(("", operator));
        let name = self.unused_name(operator);
        let outputs: Vec<String> =
            (0..outputs).map(|index| format!("{name}_output_{index}")).collect();
        self.graph.node.push(NodeProto {
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output: outputs.clone(),
            name,
            op_type: operator.to_owned(),
            attribute: with.to_vec(),
            domain: domain.to_owned(),
            ..NodeProto::default()
        });
        outputs
    }

    /// Builds a part: names of nodes and weights in it start with `part`, whose own parts may
    /// be separated by `/`.
    pub fn within<T>(&mut self, part: &str, build: impl FnOnce(&mut Builder) -> T) -> T {
        self.enter(part);
        let built = build(self);
        self.leave();
        built
    }

    pub(crate) fn enter(&mut self, part: &str) {
        self.scope.push(part.to_owned());
    }

    pub(crate) fn leave(&mut self) {
        self.scope.pop();
    }

    /// Returns a value under this name. As in real exports the value takes the name, so use
    /// the one that this gives back from here on; an input or weight goes through `Identity`.
    pub fn output(&mut self, name: &str, value: &str, dtype: DataType, dims: &[Dim]) -> String {
        if name != value {
            self.name_value(name, value);
        }
        self.graph.output.push(value_info(name, dtype, dims));
        name.to_owned()
    }

    fn name_value(&mut self, name: &str, value: &str) {
        let returned = self.graph.output.iter().any(|output| output.name == value);
        let nodes = self.graph.node.iter_mut();
        let produced = nodes.flat_map(|node| &mut node.output).find(|output| *output == value);
        match produced {
            Some(output) if !returned => {
                name.clone_into(output);
                let inputs = self.graph.node.iter_mut().flat_map(|node| &mut node.input);
                inputs.filter(|input| *input == value).for_each(|input| name.clone_into(input));
            }
            _ => {
                let alias = self.node("Identity", &[value], &[]);
                self.name_value(name, &alias);
            }
        }
    }

    /// The model, checked.
    pub fn finish(self) -> Result<Model, BuildError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let standard = OperatorSetIdProto { domain: String::new(), version: self.opset };
        let proto = ModelProto {
            ir_version: IR_VERSION,
            producer_name: "holdfast-testkit".to_owned(),
            graph: Some(self.graph),
            opset_import: std::iter::once(standard).chain(self.domains).collect(),
            ..ModelProto::default()
        };
        Ok(Model::from_proto(proto)?)
    }

    /// The graph alone, unchecked: a body for `If`, `Loop` or `Scan`.
    pub fn finish_body(self) -> GraphProto {
        self.graph
    }

    fn dotted(&self, name: &str) -> String {
        let parts = self.scope.iter().map(|part| part.replace('/', "."));
        parts.chain([name.to_owned()]).collect::<Vec<_>>().join(".")
    }

    fn unused_name(&mut self, operator: &str) -> String {
        let parts = self.scope.iter().map(String::as_str).chain([operator]);
        let name: String = parts.flat_map(|part| ["/", part]).collect();
        let count = self.counts.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name}_{}", *count - 1) }
    }
}

fn value_info(name: &str, dtype: DataType, dims: &[Dim]) -> ValueInfoProto {
    let dim = |dim: &Dim| DimensionProto {
        value: match dim {
            Dim::Fixed(size) => Some(DimensionValue::Value(*size as i64)),
            Dim::Named(name) => Some(DimensionValue::Param(name.clone())),
            Dim::Unknown => None,
        },
        ..DimensionProto::default()
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = TensorTypeProto { elem_type: dtype.to_onnx(), shape: Some(shape) };
    let value = Some(TypeValue::Tensor(tensor));
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto { value, ..TypeProto::default() }),
        ..ValueInfoProto::default()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_graph::DataType::F32;

    use super::*;

    #[test]
    fn names_nodes_and_weights_by_their_part() {
        let mut builder = Builder::new("names", 1);
        let x = builder.input("x", F32, &[fixed(2)]);
        let y = builder.within("layer.0/dense", |builder| {
            let bias = builder.weight("bias", &[2], Init::bias());
            assert_eq!(bias, "layer.0.dense.bias");
            let y = builder.node("Add", &[&x, &bias], &[]);
            builder.node("Add", &[&y, &bias], &[])
        });
        assert_eq!(y, "/layer.0/dense/Add_1_output_0");
        builder.output("y", &y, F32, &[fixed(2)]);
        let model = builder.finish().unwrap();
        assert_eq!(model.graph().node[0].output, ["/layer.0/dense/Add_output_0"]);
        assert_eq!(model.graph().node[1].output, ["y"]);
    }

    #[test]
    fn an_output_that_is_used_later_keeps_its_consumers() {
        let mut builder = Builder::new("taps", 1);
        let x = builder.input("x", F32, &[fixed(2)]);
        let y = builder.node("Relu", &[&x], &[]);
        let z = builder.node("Neg", &[&y], &[]);
        builder.output("y", &y, F32, &[fixed(2)]);
        builder.output("z", &z, F32, &[fixed(2)]);
        assert_eq!(builder.finish().unwrap().graph().node[1].input, ["y"]);
    }

    #[test]
    fn returns_an_input_through_an_identity() {
        let mut builder = Builder::new("echo", 1);
        let x = builder.input("x", F32, &[fixed(2)]);
        builder.output("y", &x, F32, &[fixed(2)]);
        let model = builder.finish().unwrap();
        assert_eq!(model.graph().node[0].op_type, "Identity");
        assert_eq!(model.graph().node[0].output, ["y"]);
    }

    #[test]
    fn a_weight_asked_for_twice_is_one_initializer() {
        let mut builder = Builder::new("tied", 1);
        let one = builder.weight("w", &[2], Init::bias());
        let two = builder.weight("w", &[2], Init::bias());
        let sum = builder.node("Add", &[&one, &two], &[]);
        builder.output("sum", &sum, F32, &[fixed(2)]);
        assert_eq!(builder.finish().unwrap().graph().initializer.len(), 1);
    }

    #[test]
    fn two_weights_of_one_name_are_refused() {
        let mut builder = Builder::new("clash", 1);
        builder.weight("w", &[2], Init::bias());
        builder.weight("w", &[3], Init::bias());
        assert!(matches!(builder.finish(), Err(BuildError::Invalid(_))));
    }

    #[test]
    fn a_missing_value_is_refused() {
        let mut builder = Builder::new("hole", 1);
        let y = builder.node("Relu", &["nothing"], &[]);
        builder.output("y", &y, F32, &[fixed(2)]);
        assert!(matches!(builder.finish(), Err(BuildError::Invalid(_))));
    }
}
