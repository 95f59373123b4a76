//! Structures: what identifies a value by how it is computed.
//!
//! A value's structure is a digest of the operator, its attributes, the structures of its
//! operands and the ids of its weights. Graph inputs are leaves, numbered in the order in
//! which the operands first name them, so neither their names nor their order matter; the
//! leaves are kept beside the digest, and pairing those of two equal structures gives the
//! *binding* of one model's inputs to the other's.
//!
//! ```text
//! leaf i     h = H("leaf", dtype)                         L = (i)
//! weight     h = H(dtype, dims, bytes)                    L = ()
//! node       h = H(operator, attributes, [(h_k, numbers of L_k)])
//!            L = the operands' leaves in the order they are first named
//! output k   H(h, k), same L
//! ```
//!
//! What exporters may write differently is in [`crate::canonical`].

use std::collections::HashMap;
use std::sync::Arc;

use prost::Message;

use crate::canonical::{Rule, is_last_axis_softmax, is_random, repeats_kernel, rule};
use crate::content::{hash_attribute, sparse_digest, tensor_digest};
use crate::digest::{Digest, Record};
use crate::dtype::DataType;
use crate::infer::is_function;
use crate::model::{Model, Value};
use crate::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TypeValue, ValueInfoProto};
use crate::tensor::Tensor;
use crate::topology::{bodies, initializer_names, order};
use crate::validate::is_onnx;
use crate::weights::{Place, Slot, WeightTable};

/// Identifies a value by how it is computed. Equal structures are the same function of their leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Structure(pub Digest);

/// An input that a value depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leaf {
    /// Its position among [`Model::inputs`].
    pub input: usize,
    /// Integer casts that come first: exports differ in whether ids are `i32` or `i64`, so the
    /// cast belongs to the binding.
    pub casts: Vec<DataType>,
}

/// A value's structure and the inputs it is a function of, in canonical order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The structure.
    pub structure: Structure,
    /// What it depends on.
    pub leaves: Arc<[Leaf]>,
}

/// The fingerprints of a model's values.
#[derive(Clone, Debug)]
pub struct Fingerprints {
    values: HashMap<String, Fingerprint>,
    model: Option<Structure>,
}

impl Fingerprints {
    /// Fingerprints every value of the outermost graph.
    pub fn new(model: &Model, weights: &WeightTable) -> Fingerprints {
        let walk = Walk { model, weights, functions: Functions::new(model.proto()) };
        let scope = walk.outer_scope();
        let values = walk.graph(model.graph(), &mut Vec::new(), scope);
        let model = whole(model, &values);
        let values = values
            .into_iter()
            .filter_map(|(name, term)| Some((name.to_owned(), term?.fingerprint())))
            .collect();
        Fingerprints { values, model }
    }

    /// A value's fingerprint. `None` if there is no such value, or if it depends on chance and
    /// is therefore equal to nothing.
    pub fn get(&self, value: &str) -> Option<&Fingerprint> {
        self.values.get(value)
    }

    /// The structure of all outputs together, in their order. `None` if chance is involved.
    pub fn model(&self) -> Option<Structure> {
        self.model
    }
}

/// What is known of a value during the walk. `None` stands for a value that depends on chance.
type Term = Option<Known>;

#[derive(Clone)]
struct Known {
    hash: Digest,
    leaves: Arc<[Leaf]>,
    /// The type, if the value is an input as it is or after integer casts.
    leaf: Option<DataType>,
    /// The dimensions, if the value is a weight.
    weight: Option<Arc<[usize]>>,
    rank: Option<usize>,
    /// The elements of a one-dimensional weight: `Reshape` tells the rank of its output.
    length: Option<usize>,
}

impl Known {
    fn fingerprint(self) -> Fingerprint {
        Fingerprint { structure: Structure(self.hash), leaves: self.leaves }
    }
}

struct Walk<'a> {
    model: &'a Model,
    weights: &'a WeightTable,
    functions: Functions,
}

/// What is known of the functions that a model defines itself. They are taken as written and
/// all together, because they may call each other.
struct Functions {
    digest: Digest,
    /// Whether one of them depends on chance.
    random: bool,
}

impl Functions {
    fn new(model: &ModelProto) -> Functions {
        fn any_random(nodes: &[NodeProto]) -> bool {
            let inside = |node| bodies(node).any(|(_, body)| any_random(&body.node));
            nodes.iter().any(|node| is_random(node) || inside(node))
        }
        let mut record = Record::new("functions");
        for function in &model.functions {
            record.bytes(&function.encode_to_vec());
        }
        let random = model.functions.iter().any(|function| any_random(&function.node));
        Functions { digest: record.finish(), random }
    }
}

type Terms<'a> = HashMap<&'a str, Term>;

impl<'a> Walk<'a> {
    fn outer_scope(&self) -> Terms<'a> {
        let initializers: std::collections::HashSet<&str> =
            initializer_names(self.model.graph()).collect();
        let inputs = self.model.graph().input.iter();
        let inputs = inputs.filter(|input| !initializers.contains(input.name.as_str()));
        inputs
            .enumerate()
            .map(|(index, input)| {
                let leaf = Leaf { input: index, casts: Vec::new() };
                let Value { dtype, dims, .. } = Value::from_proto(input);
                let known = leaf_term(dtype, leaf, dims.map(|dims| dims.len()));
                (input.name.as_str(), Some(of_type(input, known)))
            })
            .collect()
    }

    /// Adds the graph's own values to those it can see.
    fn graph(
        &self,
        graph: &'a GraphProto,
        path: &mut Vec<(usize, usize)>,
        mut terms: Terms<'a>,
    ) -> Terms<'a> {
        for (index, tensor) in graph.initializer.iter().enumerate() {
            let place = Place { bodies: path.clone(), slot: Slot::Initializer(index) };
            let term = self.weight(&place).unwrap_or_else(|| constant_term(tensor_digest(tensor)));
            terms.insert(&tensor.name, Some(term));
        }
        for sparse in &graph.sparse_initializer {
            let name = sparse.values.as_ref().map_or("", |values| values.name.as_str());
            terms.insert(name, Some(constant_term(sparse_digest(sparse))));
        }
        let order = order(graph).expect("a checked model has no cycles");
        for index in order {
            self.node(&graph.node[index], index, path, &mut terms);
        }
        terms
    }

    fn weight(&self, place: &Place) -> Option<Known> {
        let weight = self.weights.at(place)?;
        let length = (weight.tensor.dims().len() == 1).then(|| weight.tensor.elements());
        Some(Known {
            hash: weight.id.0,
            leaves: Arc::new([]),
            leaf: None,
            weight: Some(weight.tensor.dims().into()),
            rank: Some(weight.tensor.dims().len()),
            length,
        })
    }

    fn node(
        &self,
        node: &'a NodeProto,
        index: usize,
        path: &mut Vec<(usize, usize)>,
        terms: &mut Terms<'a>,
    ) {
        let builtin = is_onnx(&node.domain) && !is_function(self.model, node);
        if let (true, [output]) = (builtin, &node.output[..])
            && let Some(term) = self.plain(node, index, path, terms)
        {
            terms.insert(output, term);
            return;
        }
        let term = self.operands(node, index, path, terms).and_then(|operands| {
            let cast = if builtin { leaf_cast(node, &operands) } else { None };
            cast.or_else(|| self.apply(node, &operands))
        });
        for (number, output) in node.output.iter().enumerate().filter(|(_, o)| !o.is_empty()) {
            let output_term = term.clone().map(|mut known| {
                if known.leaf.is_none() {
                    let mut record = Record::new("output");
                    record.digest(&known.hash).number(number as u64);
                    known.hash = record.finish();
                }
                known
            });
            terms.insert(output, output_term);
        }
    }

    /// What the output of a `Constant` or `Identity` stands for; `None` for other nodes.
    fn plain(
        &self,
        node: &NodeProto,
        index: usize,
        path: &[(usize, usize)],
        terms: &Terms<'a>,
    ) -> Option<Term> {
        match (node.op_type.as_str(), &node.input[..], &node.attribute[..]) {
            ("Identity", [input], _) if !input.is_empty() => terms.get(input.as_str()).cloned(),
            ("Constant", [], [value]) => {
                let place = Place { bodies: path.to_vec(), slot: Slot::Constant(index) };
                let strings = || Some(constant_term(tensor_digest(value.t.as_deref()?)));
                self.weight(&place).or_else(strings).map(Some)
            }
            _ => None,
        }
    }

    /// The node's inputs, then the outputs of its bodies. `None` if one depends on chance.
    fn operands(
        &self,
        node: &'a NodeProto,
        index: usize,
        path: &mut Vec<(usize, usize)>,
        terms: &Terms<'a>,
    ) -> Option<Operands> {
        if is_random(node) || self.functions.random && is_function(self.model, node) {
            return None;
        }
        let given = node.input.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
        let inputs = node.input[..given].iter().map(|name| match name.as_str() {
            "" => Some(Some(nothing())),
            name => terms.get(name).cloned().flatten().map(Some),
        });
        let inputs: Vec<Known> = inputs.map(Option::flatten).collect::<Option<_>>()?;

        let mut body_outputs = Vec::new();
        for (number, (attribute, body)) in bodies(node).enumerate() {
            path.push((index, number));
            let mut scope = terms.clone();
            for (formal, input) in body.input.iter().enumerate() {
                scope.insert(&input.name, Some(of_type(input, bound(path.len(), formal, input))));
            }
            let inner = self.graph(body, path, scope);
            path.pop();
            let outputs = body.output.iter().map(|output| inner.get(output.name.as_str()).cloned());
            let outputs = outputs.map(Option::flatten).collect::<Option<Vec<Known>>>()?;
            body_outputs.push((attribute.name.clone(), outputs));
        }
        // Stable, so that several bodies under one attribute keep their order.
        body_outputs.sort_by(|(left, _), (right, _)| left.cmp(right));
        Some(Operands { inputs, bodies: body_outputs })
    }

    fn apply(&self, node: &NodeProto, operands: &Operands) -> Term {
        let version = self.model.opset(&node.domain).unwrap_or(0);
        let function = is_function(self.model, node);
        let rule = if function { None } else { rule(&node.domain, &node.op_type) };
        let mut inputs = operands.inputs.clone();
        let mut record = Record::new("node");
        let domain = if is_onnx(&node.domain) { "" } else { &node.domain };
        record.text(domain).text(&node.op_type).text(&node.overload);

        let rank = inputs.first().and_then(|input| input.rank);
        let last_axis = rule.is_some() && is_last_axis_softmax(node, version, rank);
        match &rule {
            _ if function => {
                record.text("function").digest(&self.functions.digest);
            }
            Some(_) if last_axis => {
                record.text("last axis");
            }
            Some(rule) => {
                record.text("meaning").number(rule.meaning(version));
            }
            None => {
                record.text("version").number(version as u64);
            }
        }
        if rule.as_ref().is_none_or(|rule| rule.counts_outputs) {
            record.number(node.output.len() as u64);
        }

        let mut attributes: Vec<&AttributeProto> = node.attribute.iter().collect();
        attributes.sort_by(|left, right| left.name.cmp(&right.name));
        for attribute in attributes {
            let implied = rule.as_ref().is_some_and(|rule| rule.is_default(attribute))
                || repeats_kernel(node, attribute, inputs.get(1).and_then(|w| w.weight.as_deref()))
                || last_axis && attribute.name == "axis"
                // How many outputs there are is counted above.
                || node.op_type == "Split" && is_onnx(&node.domain) && attribute.name == "num_outputs";
            if implied || attribute.g.is_some() || !attribute.graphs.is_empty() {
                continue;
            }
            match rule.as_ref().and_then(|rule| operand_from(rule, attribute)) {
                Some(operand) if inputs.len() == 1 => inputs.push(operand),
                _ => hash_attribute(&mut record, attribute),
            }
        }

        if rule.as_ref().is_some_and(|rule| rule.commutes) {
            inputs.sort_by_key(|input| input.hash);
        }
        let mut leaves = Leaves::default();
        record.number(inputs.len() as u64);
        inputs.iter().for_each(|input| leaves.hash_operand(&mut record, input));
        for (name, outputs) in &operands.bodies {
            record.text(name).number(outputs.len() as u64);
            outputs.iter().for_each(|output| leaves.hash_operand(&mut record, output));
        }
        // Most nodes depend on what their operands do: one list serves them all.
        let same = inputs.iter().find(|input| input.leaves[..] == leaves.named[..]);
        Some(Known {
            hash: record.finish(),
            leaves: same.map_or_else(|| leaves.named.into(), |input| input.leaves.clone()),
            leaf: None,
            weight: None,
            rank: rule.and_then(|_| output_rank(node, &inputs)),
            length: None,
        })
    }
}

struct Operands {
    inputs: Vec<Known>,
    bodies: Vec<(String, Vec<Known>)>,
}

/// The structure of all outputs, which share one numbering of leaves.
fn whole(model: &Model, values: &Terms<'_>) -> Option<Structure> {
    let mut record = Record::new("model");
    let mut leaves = Leaves::default();
    for output in &model.graph().output {
        let known = values.get(output.name.as_str())?.as_ref()?;
        leaves.hash_operand(&mut record, known);
    }
    Some(Structure(record.finish()))
}

/// Leaves in the order in which operands first name them.
#[derive(Default)]
struct Leaves<'a> {
    named: Vec<Leaf>,
    numbers: HashMap<&'a Leaf, u64>,
}

impl<'a> Leaves<'a> {
    fn hash_operand(&mut self, record: &mut Record, operand: &'a Known) {
        record.digest(&operand.hash).number(operand.leaves.len() as u64);
        for leaf in operand.leaves.iter() {
            let number = *self.numbers.entry(leaf).or_insert_with(|| {
                self.named.push(leaf.clone());
                self.named.len() as u64 - 1
            });
            record.number(number);
        }
    }
}

/// The structure of an input of this type, or of one that was cast to it.
pub(crate) fn leaf_structure(dtype: Option<DataType>) -> Structure {
    let mut record = Record::new("leaf");
    record.number(dtype.map_or(0, DataType::to_onnx) as u64);
    Structure(record.finish())
}

fn leaf_term(dtype: Option<DataType>, leaf: Leaf, rank: Option<usize>) -> Known {
    Known {
        hash: leaf_structure(dtype).0,
        leaves: Arc::new([leaf]),
        leaf: dtype,
        weight: None,
        rank,
        length: None,
    }
}

fn constant_term(hash: Digest) -> Known {
    Known { hash, leaves: Arc::new([]), leaf: None, weight: None, rank: None, length: None }
}

/// A formal input of a body.
fn bound(depth: usize, formal: usize, input: &ValueInfoProto) -> Known {
    let Value { dtype, dims, .. } = Value::from_proto(input);
    let mut record = Record::new("bound");
    record.number(depth as u64).number(formal as u64);
    record.number(dtype.map_or(0, DataType::to_onnx) as u64);
    Known { rank: dims.map(|dims| dims.len()), ..constant_term(record.finish()) }
}

/// Sequences, maps and optionals have no element type to tell them apart by.
fn of_type(input: &ValueInfoProto, mut known: Known) -> Known {
    let value = input.r#type.as_ref().and_then(|r#type| r#type.value.as_ref());
    if let (Some(r#type), Some(value)) = (&input.r#type, value)
        && !matches!(value, TypeValue::Tensor(_))
    {
        let mut record = Record::new("typed");
        record.digest(&known.hash).bytes(&r#type.encode_to_vec());
        known.hash = record.finish();
    }
    known
}

/// An operand that was left out.
fn nothing() -> Known {
    constant_term(Record::new("nothing").finish())
}

/// A cast between integers that is applied to an input belongs to the binding of that input.
fn leaf_cast(node: &NodeProto, operands: &Operands) -> Option<Known> {
    let [input] = operands.inputs.as_slice() else { return None };
    if node.op_type != "Cast" {
        return None;
    }
    let from = input.leaf?;
    let to = node.attribute.iter().find(|attribute| attribute.name == "to")?;
    let to = DataType::from_onnx(i32::try_from(to.i?).ok()?)?;
    let id = |dtype| matches!(dtype, DataType::I32 | DataType::I64);
    if !id(from) || !id(to) {
        return None;
    }
    let mut leaf = input.leaves.first()?.clone();
    leaf.casts.push(to);
    // Widening and narrowing again gives the number back.
    if from == DataType::I64 && to == DataType::I32 && leaf.casts.len() >= 2 {
        leaf.casts.truncate(leaf.casts.len() - 2);
    } else if from == to {
        leaf.casts.pop();
    }
    Some(leaf_term(Some(to), leaf, input.rank))
}

/// An attribute that later versions take as an operand, as that operand.
fn operand_from(rule: &Rule, attribute: &AttributeProto) -> Option<Known> {
    if rule.operand_attribute != Some(attribute.name.as_str()) {
        return None;
    }
    let tensor = Tensor::from_slice(&[attribute.ints.len()], &attribute.ints).ok()?;
    let length = Some(attribute.ints.len());
    Some(Known { length, ..constant_term(WeightTable::id_of(&tensor).0) })
}

/// How many dimensions the result has, where that is plain to see.
fn output_rank(node: &NodeProto, inputs: &[Known]) -> Option<usize> {
    let first = inputs.first().and_then(|input| input.rank);
    let widest = || inputs.iter().map(|input| input.rank).try_fold(0, |a, b| Some(a.max(b?)));
    match node.op_type.as_str() {
        "Add" | "Sub" | "Mul" | "Div" | "Where" | "Pow" | "Max" | "Min" => widest(),
        "MatMul" | "FusedMatMul" => widest().filter(|&rank| rank >= 2),
        "Transpose" | "Cast" | "Softmax" | "LayerNormalization" | "Relu" | "Tanh" | "Erf"
        | "Sqrt" | "BiasGelu" | "Gelu" | "FastGelu" | "Conv" | "FusedConv" | "Clip" => first,
        "Reshape" => inputs.get(1)?.length,
        "Unsqueeze" => Some(first? + inputs.get(1)?.length?),
        "Squeeze" => first?.checked_sub(inputs.get(1)?.length?),
        "Gather" => (first? + inputs.get(1)?.rank?).checked_sub(1),
        _ => None,
    }
}
