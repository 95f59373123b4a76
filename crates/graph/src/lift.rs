//! Turns weights into inputs, so that one uploaded copy can serve several sessions.
//!
//! On a GPU, a session uploads its own copy of every initializer, but it takes inputs from buffers
//! that are already there. Models that have weights in common without a common beginning (adapters
//! on one base, a decoder and its twin with a past) then hold them once.

use std::collections::{HashMap, HashSet};

use crate::digest::Digest;
use crate::dtype::DataType;
use crate::model::Model;
use crate::proto::{
    DimensionProto, DimensionValue, GraphProto, NodeProto, TensorShapeProto, TensorTypeProto,
    TypeProto, TypeValue, ValueInfoProto,
};
use crate::topology::bodies;
use crate::weights::{HashedWeight, Slot, WeightId, WeightTable};

/// Smaller weights cost more as inputs than as copies, and engines look at them while loading.
pub const LEAST_LIFTED_BYTES: usize = 1024;

/// A model that takes some of its weights as inputs.
#[derive(Clone, Debug)]
pub struct Lifted {
    /// The model. Its own inputs come first.
    pub model: Model,
    /// The weights that became inputs, in the order of these inputs.
    pub weights: Vec<LiftedWeight>,
    /// Those that were chosen and stayed.
    pub refused: Vec<Refused>,
}

/// A weight that became an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiftedWeight {
    /// The input's name, which is the weight's.
    pub input: String,
    /// Which weight to feed. Several inputs may take one.
    pub id: WeightId,
    /// The digest of its bytes.
    pub content: Digest,
}

/// A weight that cannot become an input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("weight `{name}` stays in the graph: {why}")]
pub struct Refused {
    /// The weight's name.
    pub name: String,
    /// Why not.
    pub why: WhyNot,
}

/// Why a weight cannot become an input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum WhyNot {
    #[error("it is inside a body or a `Constant` node; hoist it first")]
    NotOutermost,
    #[error("it holds {0}, and only floating-point weights are lifted")]
    NotFloat(DataType),
    #[error("it has {0} bytes, which is too little to be worth it")]
    Small(usize),
    #[error("operator {operator} needs it while the model is loaded")]
    Constant { operator: String },
    #[error("the model returns it")]
    Returned,
}

/// Turns the chosen weights into inputs, except those that have to stay.
///
/// ```no_run
/// use holdfast_graph::{Model, WeightTable, lift};
/// let model = Model::open("decoder.onnx")?;
/// let lifted = lift(&model, &WeightTable::new(&model), |weight| weight.tensor.elements() > 1 << 16);
/// println!("{} inputs carry weights", lifted.weights.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn lift(
    model: &Model,
    weights: &WeightTable,
    choose: impl Fn(&HashedWeight) -> bool,
) -> Lifted {
    let graph = model.graph();
    let returned: HashSet<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
    let constants = constants(&graph.node);
    let mut lifted = Vec::new();
    let mut values = Vec::new();
    let mut refused = Vec::new();
    for weight in weights.entries().iter().filter(|weight| choose(weight)) {
        match why_not(weight, &returned, &constants) {
            Some(why) => refused.push(Refused { name: weight.name.clone(), why }),
            None => {
                values.push(value(weight));
                let HashedWeight { name, id, content, .. } = weight;
                lifted.push(LiftedWeight { input: name.clone(), id: *id, content: *content });
            }
        }
    }
    let mut proto = model.proto().clone();
    let graph: &mut GraphProto = proto.graph.get_or_insert_default();
    let names: HashSet<&str> = lifted.iter().map(|weight| weight.input.as_str()).collect();
    graph.initializer.retain(|tensor| !names.contains(tensor.name.as_str()));
    // Older files list their weights among the inputs already.
    graph.input.retain(|input| !names.contains(input.name.as_str()));
    graph.input.extend(values);
    let model = Model::from_proto(proto).expect("an input may take an initializer's place");
    Lifted { model, weights: lifted, refused }
}

fn why_not(
    weight: &HashedWeight,
    returned: &HashSet<&str>,
    constants: &HashMap<&str, &str>,
) -> Option<WhyNot> {
    use DataType::{Bf16, F16, F32, F64};
    let (tensor, name) = (&weight.tensor, weight.name.as_str());
    if !weight.place.bodies.is_empty() || !matches!(weight.place.slot, Slot::Initializer(_)) {
        return Some(WhyNot::NotOutermost);
    }
    if !matches!(tensor.dtype(), F16 | Bf16 | F32 | F64) {
        return Some(WhyNot::NotFloat(tensor.dtype()));
    }
    if tensor.bytes().len() < LEAST_LIFTED_BYTES {
        return Some(WhyNot::Small(tensor.bytes().len()));
    }
    if returned.contains(name) {
        return Some(WhyNot::Returned);
    }
    constants.get(name).map(|operator| WhyNot::Constant { operator: (*operator).to_owned() })
}

/// The names that operators need while a model is loaded, with the operator; bodies included.
fn constants(nodes: &[NodeProto]) -> HashMap<&str, &str> {
    let mut found = HashMap::new();
    for node in nodes {
        for (position, name) in node.input.iter().enumerate() {
            if needs_constant(&node.op_type, position) {
                found.insert(name.as_str(), node.op_type.as_str());
            }
        }
        for (_, body) in bodies(node) {
            found.extend(constants(&body.node));
        }
    }
    found
}

/// Operands that some engine takes only as constants. Shapes and axes are integers and stay in
/// any case; these are the floating-point ones.
fn needs_constant(operator: &str, position: usize) -> bool {
    match operator {
        "Resize" | "Upsample" | "Clip" | "Pad" => position > 0,
        "QuantizeLinear" | "DequantizeLinear" => position > 0,
        // Scales and zero points of integer arithmetic, and everything that comes in blocks.
        "QLinearMatMul" | "QLinearConv" | "MatMulNBits" | "GatherBlockQuantized" => position > 0,
        _ => false,
    }
}

fn value(weight: &HashedWeight) -> ValueInfoProto {
    let dim = |&size: &usize| DimensionProto {
        value: Some(DimensionValue::Value(size as i64)),
        ..DimensionProto::default()
    };
    let shape = TensorShapeProto { dim: weight.tensor.dims().iter().map(dim).collect() };
    let elem_type = weight.tensor.dtype().to_onnx();
    let tensor = TensorTypeProto { elem_type, shape: Some(shape) };
    let r#type = TypeProto { value: Some(TypeValue::Tensor(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: weight.name.clone(), r#type: Some(r#type), ..ValueInfoProto::default() }
}
