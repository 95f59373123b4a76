//! Products that all models of a composite have.
//!
//! Only operators whose weights engines bring into another order while loading: with others, there
//! is nothing to gain from being outside.

use std::collections::{HashMap, HashSet};

use prost::Message;

use super::LEAST_COMMON_BYTES;
use super::named::Named;
use crate::proto::NodeProto;
use crate::topology::{initializer_names, needs};
use crate::validate::is_onnx;
use crate::weights::WeightId;

/// A node that every model has: of each, its number.
pub(super) type Anchor = Vec<usize>;

/// What makes two products the same function of their first operand.
#[derive(PartialEq, Eq, Hash)]
struct Product {
    operator: String,
    /// As bytes, because floats may be equal in value only.
    attributes: Vec<Vec<u8>>,
    /// All but the first; `None` is left out.
    weights: Vec<Option<WeightId>>,
}

/// The products that all of several models have, in the order of the first.
pub(super) fn anchors(parts: &[Named<'_>]) -> Vec<Anchor> {
    // A value of unknown type cannot be handed from stage to stage.
    if parts.len() < 2 || !parts.iter().all(knows_its_types) {
        return Vec::new();
    }
    let products: Vec<HashMap<Product, usize>> = parts.iter().map(products).collect();
    let everywhere = |product| products.iter().map(|of| of.get(product).copied()).collect();
    let mut anchors: Vec<Anchor> = products[0].keys().filter_map(everywhere).collect();
    anchors.sort_unstable();
    anchors
}

fn knows_its_types(part: &Named<'_>) -> bool {
    part.producers.keys().all(|name| part.types.contains_key(name))
}

/// The products with a large weight that nothing else takes, so each is there once.
fn products(part: &Named<'_>) -> HashMap<Product, usize> {
    let id = |name: &str| part.weights.get(name).map(|weight| weight.id);
    let mut uses: HashMap<WeightId, usize> = HashMap::new();
    let used = part.graph.node.iter().flat_map(needs);
    let returned = part.graph.output.iter().map(|output| output.name.as_str());
    for id in used.chain(returned).filter_map(id) {
        *uses.entry(id).or_default() += 1;
    }
    let is_for_one = |name: &String| {
        part.weights.get(name).is_some_and(|weight| {
            weight.tensor.bytes().len() >= LEAST_COMMON_BYTES && uses.get(&weight.id) == Some(&1)
        })
    };
    let initializers: HashSet<&str> = initializer_names(&part.graph).collect();
    let product = |node: &NodeProto| {
        let ([first, second, ..], [result]) = (&node.input[..], &node.output[..]) else {
            return None;
        };
        if !is_product(node)
            || result.is_empty()
            || initializers.contains(first.as_str())
            || !is_for_one(second)
        {
            return None;
        }
        let weight = |name: &String| match name.as_str() {
            "" => Some(None),
            name => id(name).map(Some),
        };
        let weights = node.input[1..].iter().map(weight).collect::<Option<_>>()?;
        let mut attributes: Vec<Vec<u8>> =
            node.attribute.iter().map(Message::encode_to_vec).collect();
        attributes.sort_unstable();
        Some(Product { operator: node.op_type.clone(), attributes, weights })
    };
    let nodes = part.graph.node.iter().enumerate();
    nodes.filter_map(|(index, node)| Some((product(node)?, index))).collect()
}

fn is_product(node: &NodeProto) -> bool {
    match node.op_type.as_str() {
        "MatMul" | "Gemm" => is_onnx(&node.domain),
        "FusedMatMul" | "FusedGemm" => node.domain == "com.microsoft",
        _ => false,
    }
}
