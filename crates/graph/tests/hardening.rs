//! Broken and hostile files: each gives a typed error that says where, and none takes memory out
//! of proportion.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

#[path = "exercise/counting.rs"]
mod counting;
mod samples;

use bytes::Bytes;
use counting::{Counting, peak_of};
use holdfast_graph::proto::{
    AttributeProto, DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, TypeValue,
    ValueInfoProto,
};
use holdfast_graph::{
    DataType, FREE_BYTES, Fingerprints, Message, Model, ReadError, WeightTable, WireProblem, encode,
};
use holdfast_testkit::attribute;
use samples::{matrix, model};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads bytes, and checks that this took no more than they may.
fn read(bytes: Bytes) -> Result<Model, ReadError> {
    let limit = 2 * bytes.len() as u64 + FREE_BYTES;
    let (result, peak) = peak_of(|| Model::from_bytes(bytes));
    assert!(peak as u64 <= limit, "{peak} bytes");
    result
}

/// Two nodes and a weight.
fn small() -> Model {
    model(&["a"], |builder| {
        let weight = builder.initializer("w", &matrix([1.0, 2.0, 3.0, 4.0]));
        let sum = builder.node("Add", &["a", &weight], &[]);
        builder.node("LeakyRelu", &[&sum], &[attribute::float("alpha", 0.1)])
    })
}

/// The message for the small model after a change.
fn refusal(change: impl FnOnce(&mut ModelProto, &dyn Fn() -> NodeProto)) -> String {
    let mut proto = small().into_proto();
    let node = || NodeProto {
        name: "extra".to_owned(),
        input: vec!["a".to_owned()],
        output: vec!["b".to_owned()],
        op_type: "Relu".to_owned(),
        ..NodeProto::default()
    };
    change(&mut proto, &node);
    let error = read(proto.encode_to_vec().into()).expect_err("it must be refused").to_string();
    // What is built in memory is checked like what is read.
    assert_eq!(Model::from_proto(proto).unwrap_err().to_string(), error);
    error
}

fn graph(proto: &mut ModelProto) -> &mut GraphProto {
    proto.graph.as_mut().unwrap()
}

mod bytes_of_a_file {
    use super::*;

    #[test]
    fn a_file_cut_off_anywhere_is_refused_or_lacks_only_what_follows_the_graph() {
        for model in [small(), samples::with_everything()] {
            let bytes: Bytes = encode(&model).into();
            let mut complete = 0;
            for len in 0..bytes.len() {
                // Between two fields nothing tells that there were more.
                if let Ok(cut) = read(bytes.slice(..len)) {
                    assert_eq!(cut.graph(), model.graph());
                    complete += 1;
                }
            }
            assert!(complete <= 4, "{complete} of {}", bytes.len());
        }
    }

    #[test]
    fn a_file_with_one_wrong_byte_is_read_or_refused() {
        for model in [small(), samples::with_everything()] {
            let bytes = encode(&model);
            let mut refused = 0;
            for at in 0..bytes.len() {
                for wrong in [bytes[at] ^ 1, bytes[at] ^ 0x80, 0, 0x7f, 0xff] {
                    let mut copy = bytes.clone();
                    copy[at] = wrong;
                    refused += usize::from(read(copy.into()).is_err());
                }
            }
            assert!(refused > bytes.len(), "{refused} refused of {} bytes", bytes.len());
        }
    }

    #[test]
    fn errors_name_the_field() {
        let bytes: Bytes = encode(&small()).into();
        let check = |bytes: Bytes, expected: &str| {
            assert_eq!(read(bytes).unwrap_err().to_string(), expected);
        };
        check(Bytes::new(), "in the model: there is no graph");
        check(
            bytes.slice(..bytes.len() - 1),
            "not an ONNX model: at opset_import: the file ends in the middle of a field",
        );
        check(
            Bytes::from_static(b"\x07"),
            "not an ONNX model: at the outermost level: byte 0 is not a valid field key",
        );
        // Field 7 of a model is the graph, 1 of that a node, 4 of that its operator, as text.
        let latin1 = b"\x3a\x05\x0a\x03\x22\x01\xe9";
        let error = read(Bytes::from_static(latin1)).unwrap_err().to_string();
        assert!(error.contains("NodeProto.op_type") && error.contains("UTF-8"), "{error}");
    }

    #[test]
    fn endless_nesting_is_refused() {
        let mut proto = small().into_proto();
        for _ in 0..30 {
            let inner = proto.graph.take().unwrap();
            let node = NodeProto {
                op_type: "If".to_owned(),
                attribute: vec![attribute::graph("then_branch", inner)],
                ..NodeProto::default()
            };
            proto.graph = Some(GraphProto { node: vec![node], ..GraphProto::default() });
        }
        let error = read(proto.encode_to_vec().into()).unwrap_err();
        assert!(
            matches!(&error, ReadError::Wire { place, problem: WireProblem::TooDeep(_) } if place.starts_with("graph.node.attribute.g.")),
            "{error}"
        );

        // The same by hand, deeper than any stack: a sequence of sequences of … as a type.
        let mut bytes = Vec::new();
        for _ in 0..5_000 {
            bytes = field(0x22, &field(0x0a, &bytes));
        }
        for key in [0x72, 0x2a, 0x0a, 0x3a] {
            bytes = field(key, &bytes);
        }
        let error = read(bytes.into()).unwrap_err();
        assert!(
            matches!(error, ReadError::Wire { problem: WireProblem::TooDeep(_), .. }),
            "{error}"
        );
    }

    /// A field that holds these bytes.
    fn field(key: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![key];
        let mut len = content.len();
        while len >= 0x80 {
            bytes.push(len as u8 | 0x80);
            len >>= 7;
        }
        bytes.push(len as u8);
        bytes.extend_from_slice(content);
        bytes
    }

    #[test]
    fn a_file_of_empty_nodes_is_refused_before_anything_is_allocated_for_them() {
        const NODES: usize = 20_000_000;
        let bytes = field(0x3a, &[0x0a, 0x00].repeat(NODES));
        let (error, peak) = peak_of(|| Model::from_bytes(bytes.into()));
        let error = error.unwrap_err();
        assert!(
            matches!(&error, ReadError::Wire { place, problem: WireProblem::Bloated { .. } } if place == "graph.node"),
            "{error}"
        );
        assert!(peak < 100_000, "{peak} bytes");
    }

    #[test]
    fn every_way_of_saying_much_in_few_bytes_stays_in_proportion() {
        // Each is repeated up to what the limit allows, and a little further.
        let parts: [(&str, &[u8]); 9] = [
            ("model.opset_import", b"\x42\x00"),
            ("model.training_info", b"\xa2\x01\x00"),
            ("model.functions", b"\xca\x01\x00"),
            ("graph.node", b"\x3a\x02\x0a\x00"),
            ("graph.initializer", b"\x3a\x02\x2a\x00"),
            ("graph.node.input", b"\x3a\x04\x0a\x02\x0a\x00"),
            ("graph.node.attribute", b"\x3a\x04\x0a\x02\x2a\x00"),
            ("graph.node.attribute.ints", b"\x3a\x0a\x0a\x08\x2a\x06\x40\x01\x40\x01\x40\x01"),
            ("graph.initializer.dims", b"\x3a\x08\x2a\x06\x0a\x04\x01\x01\x01\x01"),
        ];
        for (what, part) in parts {
            for count in [10_000, 100_000, 1_000_000] {
                assert!(read(part.repeat(count).into()).is_err(), "{what} {count} times");
            }
        }
    }
}

mod graphs {
    use super::*;

    #[test]
    fn errors_name_the_node() {
        let cycle = refusal(|proto, node| {
            let there = NodeProto { input: vec!["c".to_owned()], ..node() };
            let back =
                NodeProto { input: vec!["b".to_owned()], output: vec!["c".to_owned()], ..node() };
            graph(proto).node.extend([there, back]);
        });
        assert_eq!(cycle, "in node `extra` (Relu): the node depends on its own output");

        let itself = refusal(|proto, node| {
            graph(proto).node.push(NodeProto { input: vec!["b".to_owned()], ..node() });
        });
        assert_eq!(itself, "in node `extra` (Relu): the node depends on its own output");

        let missing = refusal(|proto, node| {
            graph(proto).node.push(NodeProto { input: vec!["z".to_owned()], ..node() });
        });
        assert_eq!(missing, "in node `extra` (Relu): input `z` is produced by nothing");

        let twice = refusal(|proto, node| {
            graph(proto).node.push(NodeProto { output: vec!["result".to_owned()], ..node() });
        });
        assert_eq!(twice, "in node `extra` (Relu): value `result` is produced twice");

        let input = refusal(|proto, node| {
            graph(proto).node.push(NodeProto { output: vec!["a".to_owned()], ..node() });
        });
        assert_eq!(input, "in node `extra` (Relu): value `a` is produced twice");

        let nothing = refusal(|proto, node| {
            graph(proto).node.push(NodeProto { op_type: String::new(), ..node() });
        });
        assert_eq!(nothing, "in node `extra` (): the node has no operator");

        let domain = refusal(|proto, node| {
            graph(proto).node.push(NodeProto { domain: "elsewhere".to_owned(), ..node() });
        });
        assert_eq!(
            domain,
            "in node `extra` (Relu): no version is declared for the operator domain `elsewhere`"
        );

        let attribute = refusal(|proto, node| {
            let attribute = vec![attribute::int("axis", 0), attribute::int("axis", 1)];
            graph(proto).node.push(NodeProto { attribute, ..node() });
        });
        assert_eq!(attribute, "in node `extra` (Relu): attribute `axis` is given twice");
    }

    #[test]
    fn errors_name_the_value() {
        let output = refusal(|proto, _| {
            graph(proto).output[0].name = "z".to_owned();
        });
        assert_eq!(output, "in the graph: output `z` is produced by nothing");

        let initializer = refusal(|proto, _| {
            let again = graph(proto).initializer[0].clone();
            graph(proto).initializer.push(again);
        });
        assert_eq!(initializer, "in the graph: value `w` is produced twice");

        let input = refusal(|proto, _| {
            let again = graph(proto).input[0].clone();
            graph(proto).input.push(again);
        });
        assert_eq!(input, "in the graph: value `a` is produced twice");
    }

    #[test]
    fn an_initializer_may_be_listed_as_an_input_but_not_in_a_body() {
        let mut proto = small().into_proto();
        let listed = ValueInfoProto { name: "w".to_owned(), ..graph(&mut proto).input[0].clone() };
        graph(&mut proto).input.push(listed);
        let model = read(proto.encode_to_vec().into()).unwrap();
        assert_eq!(model.inputs().len(), 1);

        let error = refusal(|outer, node| {
            let attribute = vec![attribute::graph("body", proto.graph.take().unwrap())];
            graph(outer).node.push(NodeProto { attribute, ..node() });
        });
        assert_eq!(error, "in body of node `extra` (Relu): value `w` is produced twice");
    }

    #[test]
    fn a_body_is_checked_like_the_graph_and_sees_what_is_around_it() {
        let with_body = |input: &str, node: NodeProto| {
            let inner = NodeProto {
                name: "inner".to_owned(),
                input: vec![input.to_owned()],
                output: vec!["c".to_owned()],
                ..node.clone()
            };
            let body = GraphProto { node: vec![inner], ..GraphProto::default() };
            NodeProto { attribute: vec![attribute::graph("body", body)], ..node }
        };
        let error = refusal(|proto, node| graph(proto).node.push(with_body("z", node())));
        assert_eq!(error, "in node `inner` (Relu): input `z` is produced by nothing");
        // Its own node's output is only there when the body is done.
        let error = refusal(|proto, node| graph(proto).node.push(with_body("b", node())));
        assert_eq!(error, "in node `extra` (Relu): the node depends on its own output");

        let mut proto = small().into_proto();
        let node = NodeProto {
            output: vec!["b".to_owned()],
            op_type: "Relu".to_owned(),
            ..NodeProto::default()
        };
        graph(&mut proto).node.push(with_body("a", node));
        assert!(Model::from_proto(proto).is_ok());
    }

    #[test]
    fn versions_are_checked() {
        let old = refusal(|proto, _| proto.opset_import[0].version = 10);
        assert_eq!(
            old,
            "in the model: opset 10 of ai.onnx is not supported; 11 is the oldest that is"
        );
        let two = refusal(|proto, _| {
            let other = OperatorSetIdProto { domain: "ai.onnx".to_owned(), version: 18 };
            proto.opset_import.push(other);
        });
        assert_eq!(two, "in the model: two versions are declared for the operator domain ``");
        let none = refusal(|proto, _| proto.opset_import.clear());
        assert!(none.ends_with("no version is declared for the operator domain ``"), "{none}");
    }

    #[test]
    fn a_long_chain_and_a_wide_node_are_no_problem() {
        let mut proto = small().into_proto();
        let chain = (0..50_000).map(|index: usize| NodeProto {
            input: vec![if index == 0 { "a".to_owned() } else { format!("v{}", index - 1) }],
            output: vec![format!("v{index}")],
            op_type: "Relu".to_owned(),
            ..NodeProto::default()
        });
        graph(&mut proto).node.extend(chain);
        let wide = (0..50_000).map(|index| format!("v{index}")).collect();
        graph(&mut proto).node.push(NodeProto {
            input: wide,
            output: vec!["wide".to_owned()],
            op_type: "Sum".to_owned(),
            ..NodeProto::default()
        });
        graph(&mut proto).node.reverse();
        let model = Model::from_proto(proto.clone()).unwrap();
        let prints = Fingerprints::new(&model, &WeightTable::new(&model));
        assert!(prints.get("wide").is_some());
        // Closing the circle over all of it is found as well.
        graph(&mut proto).node.last_mut().unwrap().input.push("v49999".to_owned());
        graph(&mut proto).node[50_000].input[0] = "wide".to_owned();
        assert!(Model::from_proto(proto).unwrap_err().to_string().contains("its own output"));
    }

    #[test]
    fn values_of_thousands_of_inputs_are_fingerprinted_in_good_time() {
        const INPUTS: usize = 2_000;
        let mut proto = small().into_proto();
        let input = graph(&mut proto).input[0].clone();
        for index in 0..INPUTS {
            let name = format!("x{index}");
            graph(&mut proto).input.push(ValueInfoProto { name, ..input.clone() });
            graph(&mut proto).node.push(NodeProto {
                input: vec![format!("x{index}"), format!("v{index}")],
                output: vec![format!("v{}", index + 1)],
                op_type: "Sub".to_owned(),
                ..NodeProto::default()
            });
        }
        graph(&mut proto).node[2].input[1] = "a".to_owned();
        let model = Model::from_proto(proto).unwrap();
        let prints = Fingerprints::new(&model, &WeightTable::new(&model));
        let last = prints.get(&format!("v{INPUTS}")).unwrap();
        assert_eq!(last.leaves.len(), INPUTS + 1);
        assert_eq!(last.leaves[0].input, INPUTS);
    }
}

mod sizes {
    use super::*;

    fn tensor(dims: &[i64], data_type: i32, bytes: usize) -> TensorProto {
        TensorProto {
            name: "extra".to_owned(),
            dims: dims.to_vec(),
            data_type,
            raw_data: Some(vec![0; bytes].into()),
            ..TensorProto::default()
        }
    }

    fn refused(tensor: TensorProto) -> String {
        let inside = refusal(|proto, node| {
            let value = AttributeProto {
                name: "value".to_owned(),
                t: Some(Box::new(tensor.clone())),
                ..AttributeProto::default()
            };
            graph(proto).node.push(NodeProto { attribute: vec![value], ..node() });
        });
        let error = refusal(|proto, _| graph(proto).initializer.push(tensor));
        let problem = error.strip_prefix("in initializer `extra`: ").unwrap();
        assert_eq!(inside, format!("in node `extra` (Relu): {problem}"));
        problem.to_owned()
    }

    #[test]
    fn a_tensor_must_have_the_bytes_that_its_dimensions_take() {
        let float = DataType::F32.to_onnx();
        assert_eq!(
            refused(tensor(&[2, 2], float, 15)),
            "f32[2, 2] takes 16 bytes, but 15 are there"
        );
        assert_eq!(refused(tensor(&[], float, 0)), "f32[] takes 4 bytes, but 0 are there");
        assert_eq!(refused(tensor(&[0], float, 4)), "f32[0] takes 0 bytes, but 4 are there");
        let typed =
            TensorProto { raw_data: None, float_data: vec![1.0; 3], ..tensor(&[4], float, 0) };
        assert_eq!(refused(typed), "the data field for f32 has 3 values for 4 elements");
        let strings =
            TensorProto { raw_data: None, ..tensor(&[1 << 40], DataType::String.to_onnx(), 0) };
        assert_eq!(
            refused(strings),
            "the data field for string has 0 values for 1099511627776 elements"
        );
    }

    #[test]
    fn absurd_and_negative_dimensions_of_a_tensor_are_refused() {
        let float = DataType::F32.to_onnx();
        assert_eq!(refused(tensor(&[-1, 2], float, 8)), "dimension -1 is negative");
        assert_eq!(
            refused(tensor(&[i64::MAX, 2], float, 8)),
            "dimensions [9223372036854775807, 2] have more elements than memory can hold"
        );
        assert_eq!(
            refused(tensor(&[1 << 40, 1 << 40, 0], float, 0)),
            "dimensions [1099511627776, 1099511627776, 0] have more elements than memory can hold"
        );
        assert_eq!(
            refused(tensor(&[2], 99, 8)),
            "element type number 99 is not one of the ONNX format"
        );
    }

    #[test]
    fn absurd_and_negative_dimensions_of_a_value_are_refused_but_minus_one_means_unknown() {
        let sized = |size| {
            let dim = vec![DimensionProto {
                value: Some(DimensionValue::Value(size)),
                ..DimensionProto::default()
            }];
            let shape = Some(TensorShapeProto { dim });
            let value = TypeValue::Tensor(TensorTypeProto { elem_type: 1, shape });
            let r#type = Some(TypeProto { value: Some(value), ..TypeProto::default() });
            ValueInfoProto { name: "extra".to_owned(), r#type, ..ValueInfoProto::default() }
        };
        for size in [-2, i64::MIN, i64::MAX, 1 << 41] {
            let error = refusal(|proto, _| graph(proto).value_info.push(sized(size)));
            assert_eq!(error, format!("in the graph: dimension {size} of `extra` is absurd"));
        }
        let mut proto = small().into_proto();
        graph(&mut proto).input.push(sized(-1));
        let model = Model::from_proto(proto).unwrap();
        assert_eq!(model.inputs()[1].dims, Some(vec![holdfast_graph::Dim::Unknown]));
    }
}
