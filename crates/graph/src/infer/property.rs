//! Whatever a model says, counting it must not panic, and what is said of it must hold together.
//!
//! Nodes of every known operator are thrown together at random: inputs of any shape and
//! content, attributes of any value, edges of any kind.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use proptest::prelude::*;

use super::fact::{MAX_ELEMENTS, MAX_FOLLOWED};
use super::{Bindings, Inference, infer, node, operator};
use crate::cost::cost;
use crate::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto};
use crate::proto::{TensorProto, ValueInfoProto};
use crate::{DataType, Model, Tensor};

const ATTRIBUTES: &[&str] = &[
    "axis",
    "axes",
    "perm",
    "keepdims",
    "group",
    "kernel_shape",
    "strides",
    "pads",
    "dilations",
    "output_padding",
    "output_shape",
    "ceil_mode",
    "split",
    "num_outputs",
    "blocksize",
    "to",
    "dtype",
    "hidden_size",
    "layout",
    "num_heads",
    "kv_num_heads",
    "q_num_heads",
    "K",
    "N",
    "bits",
    "channels",
    "channels_last",
    "scales",
    "shape",
    "start",
    "end",
    "batch_dims",
    "gather_axis",
    "onesided",
    "inverse",
    "transA",
    "transB",
    "transBatchA",
    "transBatchB",
    "allowzero",
    "noop_with_empty_axes",
    "qkv_hidden_sizes",
    "num_scan_inputs",
    "sample_size",
];

const TEXTS: &[(&str, &str)] = &[
    ("equation", "...ij,jk->...k"),
    ("equation", "ab,bc"),
    ("equation", "..a......,"),
    ("auto_pad", "SAME_UPPER"),
    ("auto_pad", "VALID"),
    ("mode", "cubic"),
    ("keep_aspect_ratio_policy", "not_larger"),
    ("direction", "bidirectional"),
];

/// Numbers that rules are likely to trip over.
const EDGES: &[i64] = &[
    i64::MIN,
    i64::MIN + 1,
    -(1 << 40),
    -3,
    -2,
    -1,
    0,
    1,
    2,
    3,
    4,
    8,
    1 << 40,
    i64::MAX - 1,
    i64::MAX,
];

const SIZES: &[usize] = &[0, 1, 1, 2, 3, 4, 8, 1 << 20];

/// Draws from the numbers that proptest gives, so that failures shrink.
struct Draw<'a> {
    numbers: std::slice::Iter<'a, u32>,
}

impl Draw<'_> {
    fn below(&mut self, limit: usize) -> usize {
        self.numbers.next().map_or(0, |&number| number as usize % limit.max(1))
    }

    fn pick<'b, T>(&mut self, items: &'b [T]) -> &'b T {
        &items[self.below(items.len())]
    }

    fn tensor(&mut self, name: &str) -> TensorProto {
        let elements = self.below(5);
        let dims: &[usize] = if elements == 1 && self.below(2) == 0 { &[] } else { &[elements] };
        let ints: Vec<i64> = (0..elements).map(|_| *self.pick(EDGES)).collect();
        let tensor = match self.below(4) {
            0 => Tensor::from_slice(
                dims,
                &ints.iter().map(|&int| int as f32 / 2.0).collect::<Vec<_>>(),
            ),
            1 => Tensor::from_slice(dims, &ints.iter().map(|&int| int > 0).collect::<Vec<_>>()),
            _ => Tensor::from_slice(dims, &ints),
        };
        tensor.unwrap().to_proto(name)
    }

    fn dims(&mut self) -> Vec<usize> {
        (0..self.below(6)).map(|_| *self.pick(SIZES)).collect()
    }

    fn attributes(&mut self) -> Vec<AttributeProto> {
        let attribute = |draw: &mut Draw<'_>| {
            let name = (*draw.pick(ATTRIBUTES)).to_owned();
            let ints = (0..draw.below(6)).map(|_| *draw.pick(EDGES)).collect();
            AttributeProto { name, i: Some(*draw.pick(EDGES)), ints, ..AttributeProto::default() }
        };
        let mut found: Vec<_> = (0..self.below(6)).map(|_| attribute(self)).collect();
        let (name, text) = *self.pick(TEXTS);
        let text = Some(bytes::Bytes::from_static(text.as_bytes()));
        found.push(AttributeProto { name: name.to_owned(), s: text, ..AttributeProto::default() });
        let mut names = std::collections::HashSet::new();
        found.retain(|attribute| names.insert(attribute.name.clone()));
        found
    }

    fn node(&mut self, index: usize, values: &[String], rows: &[(&str, &str)]) -> NodeProto {
        let (domain, name) = *self.pick(rows);
        let inputs = (0..self.below(7)).map(|_| match self.below(8) {
            0 => String::new(),
            _ => self.pick(values).clone(),
        });
        NodeProto {
            input: inputs.collect(),
            output: (0..1 + self.below(3)).map(|output| format!("n{index}_{output}")).collect(),
            op_type: name.to_owned(),
            domain: domain.to_owned(),
            attribute: self.attributes(),
            ..NodeProto::default()
        }
    }

    fn nodes(&mut self, count: usize, from: usize, values: &mut Vec<String>) -> Vec<NodeProto> {
        let rows: Vec<(&str, &str)> =
            operator::all().map(|(domain, row)| (domain, row.name)).collect();
        let mut nodes = Vec::new();
        for index in from..from + count {
            let mut node = self.node(index, values, &rows);
            if from == 0 && self.below(12) == 0 {
                self.add_body(&mut node, index, values);
            }
            values.extend(node.output.iter().cloned());
            nodes.push(node);
        }
        nodes
    }

    fn add_body(&mut self, node: &mut NodeProto, index: usize, values: &[String]) {
        let (operator, names): (&str, &[&str]) = match self.below(3) {
            0 => ("If", &["then_branch", "else_branch"]),
            1 => ("Loop", &["body"]),
            _ => ("Scan", &["body"]),
        };
        operator.clone_into(&mut node.op_type);
        node.domain.clear();
        for (number, name) in names.iter().enumerate() {
            let from = 1000 * (index + 1) + 100 * number;
            let mut seen = values.to_vec();
            let input = (0..self.below(4)).map(|input| format!("f{from}_{input}"));
            let input: Vec<String> = input.collect();
            seen.extend(input.iter().cloned());
            let nodes = self.nodes(3, from, &mut seen);
            let output = (0..self.below(4)).map(|_| self.pick(&seen).clone());
            let info = |name: String| ValueInfoProto { name, ..ValueInfoProto::default() };
            let body = GraphProto {
                output: output.map(info).collect(),
                input: input.into_iter().map(info).collect(),
                node: nodes,
                ..GraphProto::default()
            };
            let name = (*name).to_owned();
            let body = Some(Box::new(body));
            node.attribute.push(AttributeProto { name, g: body, ..AttributeProto::default() });
        }
    }

    /// A model, and the shapes of its inputs.
    fn model(&mut self) -> (Model, Bindings) {
        let mut graph = GraphProto::default();
        let mut values = Vec::new();
        let mut bindings = Bindings::new();
        for index in 0..4 {
            let tensor = self.tensor(&format!("w{index}"));
            values.push(tensor.name.clone());
            graph.initializer.push(tensor);
            let name = format!("x{index}");
            let dtype = *self.pick(&[DataType::F32, DataType::I64, DataType::Bool, DataType::U8]);
            let dims = self.dims();
            graph.input.push(crate::proto::ValueInfoProto {
                name: name.clone(),
                r#type: Some(tensor_type(dtype)),
                ..ValueInfoProto::default()
            });
            bindings = bindings.shape(name.clone(), &dims);
            values.push(name);
        }
        graph.node = self.nodes(12, 0, &mut values);
        graph.output = (0..2)
            .map(|_| ValueInfoProto {
                name: self.pick(&values).clone(),
                ..ValueInfoProto::default()
            })
            .collect();
        let version = *self.pick(&[11, 13, 17, 18, 21, 23]);
        let domains = [("", version), ("com.microsoft", 1), ("com.microsoft.nchwc", 1)];
        let opset = |(domain, version): (&str, i64)| OperatorSetIdProto {
            domain: domain.to_owned(),
            version,
        };
        let opset_import = domains.into_iter().map(opset).collect();
        let proto = ModelProto { graph: Some(graph), opset_import, ..ModelProto::default() };
        (Model::from_proto(proto).unwrap(), bindings)
    }
}

fn tensor_type(dtype: DataType) -> crate::proto::TypeProto {
    use crate::proto::{TensorTypeProto, TypeProto, TypeValue};
    let tensor = TensorTypeProto { elem_type: dtype.to_onnx(), shape: None };
    TypeProto { value: Some(TypeValue::Tensor(tensor)), ..TypeProto::default() }
}

fn assert_sound(graph: &GraphProto, found: &Inference) {
    for (name, fact) in &found.facts {
        assert!(node::product(&fact.dims).is_ok_and(|count| count <= MAX_ELEMENTS), "{name}");
        if let Some(data) = &fact.data {
            assert_eq!(data.len() as u64, fact.elements(), "{name}");
            assert!(data.len() <= MAX_FOLLOWED);
            assert!(data.iter().all(|number| number.fit(fact.dtype).is_some()), "{name}");
        }
    }
    for node in &graph.node {
        let known = node.output.iter().all(|name| found.facts.contains_key(name));
        let label = crate::node_label(node);
        let reported = found.unknowns.iter().any(|unknown| unknown.node == label);
        assert!(known || reported, "{label} is neither known nor reported");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_model_makes_inference_or_cost_panic(numbers in prop::collection::vec(any::<u32>(), 50..900)) {
        let (model, bindings) = Draw { numbers: numbers.iter() }.model();
        let Ok(found) = infer(&model, &bindings) else {
            prop_assert!(cost(&model, &bindings).is_err());
            return Ok(());
        };
        assert_sound(model.graph(), &found);
        let cost = cost(&model, &bindings).unwrap();
        prop_assert_eq!(cost.unknowns, found.unknowns);
    }
}
