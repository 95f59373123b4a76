//! A model that was read and checked.

use std::collections::HashSet;
use std::path::Path;

use bytes::Bytes;
use prost::Message;
use serde::{Deserialize, Serialize};

use crate::dtype::DataType;
use crate::error::{ExternalProblem, ReadError};
use crate::external::{Attacher, file_inside, map_file};
use crate::proto::{
    DimensionValue, GraphProto, ModelProto, NodeProto, TensorProto, TypeValue, ValueInfoProto,
};
use crate::topology::initializer_names;
use crate::validate::{is_onnx, validate};
use crate::{scan, weights};

/// The oldest version of the standard operators that Holdfast reads.
pub const OLDEST_OPSET: i64 = 11;

/// A well-formed ONNX model with all its weights at hand.
///
/// Values have one producer each, nothing is missing, there are no cycles, and every tensor
/// has its bytes: slices of the file's memory map, whether they were inside the file or beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    proto: ModelProto,
}

impl Model {
    /// Reads a model file. Weights stay in the file: the model borrows its memory map.
    pub fn open(path: impl AsRef<Path>) -> Result<Model, ReadError> {
        let path = path.as_ref();
        let io = |source| ReadError::Io { path: path.to_owned(), source };
        let bytes = map_file(path).map_err(io)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        Model::decode(bytes, &mut |location| file_inside(folder, location))
    }

    /// Reads a model from memory. It cannot have external data.
    pub fn from_bytes(bytes: Bytes) -> Result<Model, ReadError> {
        Model::decode(bytes, &mut |location| Err(ExternalProblem::NoFolder(location.to_owned())))
    }

    /// Reads a model from memory, asking `source` for each file that holds external data.
    pub fn from_bytes_with(
        bytes: Bytes,
        mut source: impl FnMut(&str) -> Result<Bytes, ExternalProblem>,
    ) -> Result<Model, ReadError> {
        Model::decode(bytes, &mut source)
    }

    fn decode(
        bytes: Bytes,
        source: &mut dyn FnMut(&str) -> Result<Bytes, ExternalProblem>,
    ) -> Result<Model, ReadError> {
        scan::scan(&bytes)?;
        let mut proto = ModelProto::decode(bytes)?;
        let mut attacher = Attacher::new(source);
        weights::for_each_tensor_mut(&mut proto, &mut |tensor: &mut TensorProto| {
            attacher.attach(tensor)
        })?;
        Model::from_proto(proto)
    }

    /// Checks a model that was built in memory.
    pub fn from_proto(proto: ModelProto) -> Result<Model, ReadError> {
        validate(&proto)?;
        Ok(Model { proto })
    }

    /// The model as the format has it.
    pub fn proto(&self) -> &ModelProto {
        &self.proto
    }

    /// Gives the message back, to be changed and checked again.
    pub fn into_proto(self) -> ModelProto {
        self.proto
    }

    /// The graph.
    pub fn graph(&self) -> &GraphProto {
        self.proto.graph.as_ref().expect("a checked model has a graph")
    }

    /// The version of an operator domain that the model was written for.
    pub fn opset(&self, domain: &str) -> Option<i64> {
        let same = |other: &str| other == domain || is_onnx(other) && is_onnx(domain);
        let opset = self.proto.opset_import.iter().find(|opset| same(&opset.domain));
        opset.map(|opset| opset.version)
    }

    /// What the caller has to feed. Initializers that older files also list as inputs are weights.
    pub fn inputs(&self) -> Vec<Value> {
        let initializers: HashSet<&str> = initializer_names(self.graph()).collect();
        let inputs = self.graph().input.iter();
        inputs
            .filter(|input| !initializers.contains(input.name.as_str()))
            .map(Value::from_proto)
            .collect()
    }

    /// What the model gives back.
    pub fn outputs(&self) -> Vec<Value> {
        self.graph().output.iter().map(Value::from_proto).collect()
    }

    /// Every node, those of bodies included, outer nodes first.
    pub fn nodes(&self) -> Vec<&NodeProto> {
        fn collect<'a>(graph: &'a GraphProto, nodes: &mut Vec<&'a NodeProto>) {
            for node in &graph.node {
                nodes.push(node);
                crate::topology::bodies(node).for_each(|(_, body)| collect(body, nodes));
            }
        }
        let mut nodes = Vec::new();
        collect(self.graph(), &mut nodes);
        nodes
    }
}

/// An input or output of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// Its name in the graph.
    pub name: String,
    /// Its element type; `None` where it is not a tensor or the file does not say.
    pub dtype: Option<DataType>,
    /// Its dimensions; `None` where the file does not say.
    pub dims: Option<Vec<Dim>>,
}

/// One dimension of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dim {
    /// Always this size.
    Fixed(usize),
    /// Any size, the same wherever the name appears.
    Named(String),
    /// Any size.
    Unknown,
}

impl Value {
    /// Reads what the format says of a value.
    pub fn from_proto(proto: &ValueInfoProto) -> Value {
        let tensor = match proto.r#type.as_ref().and_then(|r#type| r#type.value.as_ref()) {
            Some(TypeValue::Tensor(tensor)) => Some(tensor),
            _ => None,
        };
        let shape = tensor.and_then(|tensor| tensor.shape.as_ref());
        let dim = |value: Option<&DimensionValue>| match value {
            Some(DimensionValue::Value(size)) => {
                usize::try_from(*size).map_or(Dim::Unknown, Dim::Fixed)
            }
            Some(DimensionValue::Param(name)) if !name.is_empty() => Dim::Named(name.clone()),
            _ => Dim::Unknown,
        };
        Value {
            name: proto.name.clone(),
            dtype: tensor.and_then(|tensor| DataType::from_onnx(tensor.elem_type)),
            dims: shape.map(|shape| shape.dim.iter().map(|d| dim(d.value.as_ref())).collect()),
        }
    }
}

impl std::fmt::Display for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Dim::Fixed(size) => write!(f, "{size}"),
            Dim::Named(name) => f.write_str(name),
            Dim::Unknown => f.write_str("?"),
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.dtype.map_or("?", DataType::name))?;
        let Some(dims) = &self.dims else { return f.write_str("[…]") };
        let dims: Vec<String> = dims.iter().map(Dim::to_string).collect();
        write!(f, "[{}]", dims.join(", "))
    }
}
