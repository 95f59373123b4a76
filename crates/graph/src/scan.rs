//! A walk over a model's undecoded bytes, before anything is allocated for them.
//!
//! Protobuf can describe a large structure in few bytes: two bytes make an empty node, which
//! takes hundreds once decoded. This walk adds up what decoding would allocate and refuses
//! files that would grow out of proportion, are cut off, or nest without end.

use crate::error::{ReadError, WireProblem};
use crate::proto;

/// Messages nest at most this deep (a sub-graph takes three levels). Stays below prost's own limit of 100.
const MAX_DEPTH: usize = 64;

/// What a small file may decode to; beyond it, twice the file's size is the limit.
pub const FREE_BYTES: u64 = 64 << 20;

/// Checks that the bytes are a well-formed message whose decoded size is in proportion.
pub(crate) fn scan(bytes: &[u8]) -> Result<(), ReadError> {
    let file_bytes = bytes.len() as u64;
    let limit = file_bytes.saturating_mul(2).saturating_add(FREE_BYTES);
    let mut walk = Walk { bytes, spent: 0, limit, path: Vec::new() };
    walk.message(Kind::Model, 0, bytes.len())
        .map_err(|problem| ReadError::Wire { place: walk.place(), problem })
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Model,
    Opset,
    Entry,
    Graph,
    Node,
    Attribute,
    Tensor,
    Sparse,
    ValueInfo,
    Type,
    TensorType,
    ElementType,
    MapType,
    Shape,
    Dimension,
    Function,
}

/// What a length-delimited field holds.
enum Field {
    Message(&'static str, Kind),
    /// Copied text.
    Text,
    /// Borrowed bytes.
    Bytes,
    /// Packed numbers: variable length, or fixed at this many bytes.
    Varints,
    Fixed,
    /// Skipped by the decoder.
    Unknown,
}

impl Kind {
    fn field(self, tag: u64) -> Field {
        use Field::*;
        match (self, tag) {
            (Kind::Model, 7) => Message("graph", Kind::Graph),
            (Kind::Model, 8) => Message("opset_import", Kind::Opset),
            (Kind::Model, 14) => Message("metadata_props", Kind::Entry),
            (Kind::Model, 20 | 26) => Bytes,
            (Kind::Model, 25) => Message("functions", Kind::Function),
            (Kind::Model, 2..=4 | 6) => Text,
            (Kind::Opset, 1) | (Kind::Entry, 1 | 2) => Text,
            (Kind::Graph, 1) => Message("node", Kind::Node),
            (Kind::Graph, 5) => Message("initializer", Kind::Tensor),
            (Kind::Graph, 11) => Message("input", Kind::ValueInfo),
            (Kind::Graph, 12) => Message("output", Kind::ValueInfo),
            (Kind::Graph, 13) => Message("value_info", Kind::ValueInfo),
            (Kind::Graph, 14) => Bytes,
            (Kind::Graph, 15) => Message("sparse_initializer", Kind::Sparse),
            (Kind::Graph, 16) => Message("metadata_props", Kind::Entry),
            (Kind::Graph, 2 | 10) => Text,
            (Kind::Node, 5) => Message("attribute", Kind::Attribute),
            (Kind::Node, 9) => Message("metadata_props", Kind::Entry),
            (Kind::Node, 10) => Bytes,
            (Kind::Node, 1..=4 | 6..=8) => Text,
            (Kind::Attribute, 5) => Message("t", Kind::Tensor),
            (Kind::Attribute, 6) => Message("g", Kind::Graph),
            (Kind::Attribute, 7) => Fixed,
            (Kind::Attribute, 8) => Varints,
            (Kind::Attribute, 4 | 9) => Bytes,
            (Kind::Attribute, 10) => Message("tensors", Kind::Tensor),
            (Kind::Attribute, 11) => Message("graphs", Kind::Graph),
            (Kind::Attribute, 14) => Message("tp", Kind::Type),
            (Kind::Attribute, 15) => Message("type_protos", Kind::Type),
            (Kind::Attribute, 22) => Message("sparse_tensor", Kind::Sparse),
            (Kind::Attribute, 23) => Message("sparse_tensors", Kind::Sparse),
            (Kind::Attribute, 1 | 13 | 21) => Text,
            (Kind::Tensor, 1 | 5 | 7 | 11) => Varints,
            (Kind::Tensor, 4 | 10) => Fixed,
            (Kind::Tensor, 3 | 6 | 9) => Bytes,
            (Kind::Tensor, 13) => Message("external_data", Kind::Entry),
            (Kind::Tensor, 16) => Message("metadata_props", Kind::Entry),
            (Kind::Tensor, 8 | 12) => Text,
            (Kind::Sparse, 1) => Message("values", Kind::Tensor),
            (Kind::Sparse, 2) => Message("indices", Kind::Tensor),
            (Kind::Sparse, 3) => Varints,
            (Kind::ValueInfo, 2) => Message("type", Kind::Type),
            (Kind::ValueInfo, 4) => Message("metadata_props", Kind::Entry),
            (Kind::ValueInfo, 1 | 3) => Text,
            (Kind::Type, 1) => Message("tensor_type", Kind::TensorType),
            (Kind::Type, 4) => Message("sequence_type", Kind::ElementType),
            (Kind::Type, 5) => Message("map_type", Kind::MapType),
            (Kind::Type, 7) => Bytes,
            (Kind::Type, 8) => Message("sparse_tensor_type", Kind::TensorType),
            (Kind::Type, 9) => Message("optional_type", Kind::ElementType),
            (Kind::Type, 6) => Text,
            (Kind::TensorType, 2) => Message("shape", Kind::Shape),
            (Kind::ElementType, 1) | (Kind::MapType, 2) => Message("elem_type", Kind::Type),
            (Kind::Shape, 1) => Message("dim", Kind::Dimension),
            (Kind::Dimension, 2 | 3) => Text,
            (Kind::Function, 7) => Message("node", Kind::Node),
            (Kind::Function, 9) => Message("opset_import", Kind::Opset),
            (Kind::Function, 11) => Message("attribute_proto", Kind::Attribute),
            (Kind::Function, 12) => Message("value_info", Kind::ValueInfo),
            (Kind::Function, 14) => Message("metadata_props", Kind::Entry),
            (Kind::Function, 1 | 4..=6 | 8 | 10 | 13) => Text,
            _ => Unknown,
        }
    }

    fn decoded_bytes(self) -> u64 {
        (match self {
            Kind::Model => size_of::<proto::ModelProto>(),
            Kind::Opset => size_of::<proto::OperatorSetIdProto>(),
            Kind::Entry => size_of::<proto::StringStringEntryProto>(),
            Kind::Graph => size_of::<proto::GraphProto>(),
            Kind::Node => size_of::<proto::NodeProto>(),
            Kind::Attribute => size_of::<proto::AttributeProto>(),
            Kind::Tensor => size_of::<proto::TensorProto>(),
            Kind::Sparse => size_of::<proto::SparseTensorProto>(),
            Kind::ValueInfo => size_of::<proto::ValueInfoProto>(),
            Kind::Type => size_of::<proto::TypeProto>(),
            Kind::TensorType => size_of::<proto::TensorTypeProto>(),
            Kind::ElementType => size_of::<proto::ElementTypeProto>(),
            Kind::MapType => size_of::<proto::MapTypeProto>(),
            Kind::Shape => size_of::<proto::TensorShapeProto>(),
            Kind::Dimension => size_of::<proto::DimensionProto>(),
            Kind::Function => size_of::<proto::FunctionProto>(),
        }) as u64
    }
}

/// Elements of a growing `Vec` are moved when it doubles, so at the worst moment the old and
/// the new, half empty one are both there.
const GROWTH: u64 = 3;

struct Walk<'a> {
    bytes: &'a [u8],
    spent: u64,
    limit: u64,
    path: Vec<&'static str>,
}

impl Walk<'_> {
    /// Walks the message in `start..end`. On an error, `path` names where it happened.
    fn message(&mut self, kind: Kind, start: usize, end: usize) -> Result<(), WireProblem> {
        if self.path.len() >= MAX_DEPTH {
            return Err(WireProblem::TooDeep(MAX_DEPTH));
        }
        self.spend(GROWTH * kind.decoded_bytes())?;
        let mut at = start;
        while at < end {
            let key_at = at;
            let key = self.varint(&mut at, end)?;
            let (tag, wire) = (key >> 3, key & 7);
            if tag == 0 {
                return Err(WireProblem::BadKey(key_at));
            }
            match wire {
                0 => {
                    self.varint(&mut at, end)?;
                    self.spend(GROWTH * 8)?;
                }
                1 => at = advance(at, 8, end)?,
                2 => {
                    let field = kind.field(tag);
                    let len = self.varint(&mut at, end)?;
                    let field_end = advance(at, len, end).inspect_err(|_| {
                        if let Field::Message(name, _) = field {
                            self.path.push(name);
                        }
                    })?;
                    self.field(field, at, field_end)?;
                    at = field_end;
                }
                5 => at = advance(at, 4, end)?,
                _ => return Err(WireProblem::BadKey(key_at)),
            }
            if matches!(wire, 1 | 5) {
                self.spend(GROWTH * 8)?;
            }
        }
        Ok(())
    }

    fn field(&mut self, field: Field, start: usize, end: usize) -> Result<(), WireProblem> {
        let len = (end - start) as u64;
        match field {
            Field::Message(name, kind) => {
                self.path.push(name);
                self.message(kind, start, end)?;
                self.path.pop();
                Ok(())
            }
            Field::Text => self.spend(GROWTH * size_of::<String>() as u64 + len),
            Field::Bytes => self.spend(GROWTH * size_of::<bytes::Bytes>() as u64),
            Field::Fixed => self.spend(GROWTH * len),
            Field::Varints => {
                let values = self.bytes[start..end].iter().filter(|&&byte| byte < 0x80).count();
                self.spend(GROWTH * 8 * values as u64)
            }
            Field::Unknown => Ok(()),
        }
    }

    fn varint(&self, at: &mut usize, end: usize) -> Result<u64, WireProblem> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            if *at >= end {
                return Err(WireProblem::Truncated);
            }
            let byte = self.bytes[*at];
            *at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireProblem::BadKey(*at))
    }

    fn spend(&mut self, bytes: u64) -> Result<(), WireProblem> {
        self.spent = self.spent.saturating_add(bytes);
        if self.spent > self.limit {
            return Err(WireProblem::Bloated {
                file_bytes: self.bytes.len() as u64,
                limit: self.limit,
            });
        }
        Ok(())
    }

    fn place(&self) -> String {
        if self.path.is_empty() { "the outermost level".to_owned() } else { self.path.join(".") }
    }
}

fn advance(at: usize, len: u64, end: usize) -> Result<usize, WireProblem> {
    usize::try_from(len)
        .ok()
        .and_then(|len| at.checked_add(len))
        .filter(|&next| next <= end)
        .ok_or(WireProblem::Truncated)
}
