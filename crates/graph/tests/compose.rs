//! Models in one graph: around common products, and in branches over common weights.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod samples;

use std::collections::{BTreeMap, HashSet};

use holdfast_graph::DataType::F32;
use holdfast_graph::proto::{GraphProto, NodeProto};
use holdfast_graph::{
    ComposeError, Composite, Dim, Fingerprints, Model, Part, Tensor, WeightTable, compose, cut,
    encode, hoist, topology, weights,
};
use holdfast_testkit::attribute::{float, int};
use holdfast_testkit::random::{self, evaluate, mutate, sample_inputs, transform};
use holdfast_testkit::{Architecture, Builder, Init, Recipe, families, fixed};

fn prints(model: &Model) -> Fingerprints {
    Fingerprints::new(model, &WeightTable::new(model))
}

fn adapters() -> Vec<Model> {
    let members = families::adapters(Architecture::Bert, &Recipe::tiny(1), 3, 4).unwrap();
    members.into_iter().map(|member| member.model).collect()
}

fn composed(models: &[&Model]) -> Result<Composite, ComposeError> {
    let tables: Vec<WeightTable> = models.iter().map(|model| WeightTable::new(model)).collect();
    let names: Vec<String> = (0..models.len()).map(|number| format!("model-{number}")).collect();
    let parts: Vec<Part<'_>> = (0..models.len())
        .map(|n| Part { name: &names[n], model: models[n], weights: &tables[n] })
        .collect();
    compose(&parts)
}

/// What a composite does when this part is chosen, as a model under the part's own names.
fn chosen(composite: &Composite, number: usize, original: &Model) -> Model {
    let part = &composite.parts[number];
    let mut proto = composite.model.proto().clone();
    let graph = proto.graph.as_mut().unwrap();
    let outer = std::mem::take(&mut graph.node);
    for node in outer {
        take_choices(node, &part.chosen_by, graph);
    }
    graph.input = original.graph().input.clone();
    let initializers: HashSet<String> =
        original.graph().initializer.iter().map(|tensor| tensor.name.clone()).collect();
    graph.input.retain(|input| !initializers.contains(&input.name));
    for (name, input) in &part.inputs {
        graph.node.push(identity(name, &input.name));
    }
    for (name, given) in &part.outputs {
        graph.node.push(identity(given, name));
    }
    graph.output = original.graph().output.clone();
    // Without what stands for the outputs of the others.
    let outputs: Vec<&str> = part.outputs.keys().map(String::as_str).collect();
    let inputs = proto.graph.as_ref().unwrap().input.clone();
    let mut proto = cut(&Model::from_proto(proto).unwrap(), &[], &outputs).unwrap().into_proto();
    proto.graph.as_mut().unwrap().input = inputs;
    Model::from_proto(proto).unwrap()
}

/// Adds a node to a graph, or, if it is an `If` of the composite, the branch that it takes.
fn take_choices(node: NodeProto, chosen_by: &str, graph: &mut GraphProto) {
    let Some(by) = node.input.first().filter(|by| by.ends_with(":chosen")) else {
        return graph.node.push(node);
    };
    // The last model runs where no other one is chosen.
    let taken = if by == chosen_by { "then_branch" } else { "else_branch" };
    let branch = node.attribute.iter().find(|found| found.name == taken).unwrap();
    let body = branch.g.as_deref().unwrap().clone();
    for inner in body.node {
        take_choices(inner, chosen_by, graph);
    }
    for tensor in body.initializer {
        // Two stages of a model may have the same one.
        if graph.initializer.iter().all(|other| other.name != tensor.name) {
            graph.initializer.push(tensor);
        }
    }
    graph.sparse_initializer.extend(body.sparse_initializer);
    for (from, to) in body.output.iter().zip(&node.output) {
        graph.node.push(identity(&from.name, to));
    }
}

fn identity(from: &str, to: &str) -> NodeProto {
    NodeProto {
        input: vec![from.to_owned()],
        output: vec![to.to_owned()],
        op_type: "Identity".into(),
        ..NodeProto::default()
    }
}

fn check(models: &[&Model]) -> Composite {
    let composite = composed(models).unwrap();
    let again = Model::from_bytes(encode(&composite.model).into()).unwrap();
    assert_eq!(again, composite.model);
    for (number, model) in models.iter().enumerate() {
        let chosen = chosen(&composite, number, model);
        let (own, found) = (prints(model), prints(&chosen));
        for output in model.outputs() {
            assert_eq!(found.get(&output.name), own.get(&output.name), "{number}");
        }
        let inputs = sample_inputs(model, 3);
        if let Ok(expected) = evaluate(model, &inputs) {
            assert_eq!(evaluate(&chosen, &inputs).unwrap(), expected, "{number}");
        }
    }
    composite
}

#[test]
fn random_models_are_what_they_were() {
    for seed in 0..100 {
        let models = random::family(seed);
        check(&models.iter().collect::<Vec<_>>());
        let models = random::relatives(seed);
        check(&models.iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_weight_that_several_models_have_is_there_once() {
    let models = adapters();
    let composite = check(&models.iter().collect::<Vec<_>>());
    let bytes = |model: &Model| -> usize {
        weights::weights(model).iter().map(|weight| weight.tensor.bytes().len()).sum()
    };
    let apart: usize = models.iter().map(bytes).sum();
    assert!(bytes(&composite.model) * 100 < apart * 45, "{} of {apart}", bytes(&composite.model));

    // The twin: other weights are not in common.
    let others: Vec<Model> = [1, 2]
        .map(|seed| holdfast_testkit::bert(&Recipe::tiny(seed)).unwrap())
        .into_iter()
        .collect();
    let composite = check(&[&others[0], &others[1]]);
    let apart: usize = others.iter().map(bytes).sum();
    assert!(bytes(&composite.model) * 100 > apart * 95);
}

#[test]
fn disguised_decoder_twins_and_bodies_survive() {
    let twins = families::decoder_twins(&Recipe::tiny(1)).unwrap();
    let (disguised, _) = transform::disguise(&twins[1].model, 3);
    check(&[&twins[0].model, &hoist(&disguised, 1024)]);
    check(&[&samples::with_everything()]);
}

#[test]
fn inputs_have_no_fixed_sizes_and_outputs_no_shapes() {
    let composite = check(&[&random::graph(1), &random::graph(2)]);
    for part in &composite.parts {
        for input in part.inputs.values() {
            assert_eq!(input.idle_shape, [0, 0]);
        }
    }
    let fixed = |dim: &Dim| matches!(dim, Dim::Fixed(_));
    let inputs = composite.model.inputs();
    assert!(inputs.iter().flat_map(|input| input.dims.iter().flatten()).all(|dim| !fixed(dim)));
    assert!(composite.model.outputs().iter().all(|output| output.dims.is_none()));
    let names: HashSet<&String> = composite.parts.iter().map(|part| &part.chosen_by).collect();
    assert_eq!(names.len(), 2);
}

#[test]
fn an_input_or_weight_that_is_returned_as_it_is_still_is() {
    let mut builder = Builder::new("echo", 1);
    builder.input("x", F32, &[fixed(3), fixed(3)]);
    let weight = builder.weight("w", &[32, 32], Init::bias());
    let y = builder.node("Neg", &["x"], &[]);
    builder.output("y", &y, F32, &[fixed(3), fixed(3)]);
    let mut proto = builder.finish().unwrap().into_proto();
    let graph = proto.graph.as_mut().unwrap();
    for name in ["x".to_owned(), weight] {
        let mut output = graph.output[0].clone();
        output.name = name;
        graph.output.push(output);
    }
    let echo = Model::from_proto(proto).unwrap();
    let composite = composed(&[&echo]).unwrap();
    let outputs: BTreeMap<String, String> = composite.parts[0].outputs.clone();
    assert_eq!(outputs.len(), 3);
}

#[test]
fn models_that_cannot_be_one_graph_are_refused() {
    assert_eq!(composed(&[]).unwrap_err(), ComposeError::Nothing);
    let at = |opset| samples::model_at(opset, &["a"], |b| b.node("Neg", &["a"], &[]));
    let error = composed(&[&at(17), &at(18)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "models `model-0` and `model-1` are written for versions 17 and 18 of the operators in `ai.onnx`; a graph can have only one"
    );
    let everything = samples::with_everything();
    let mut proto = everything.proto().clone();
    proto.functions[0].node[0].op_type = "Mul".into();
    let other = Model::from_proto(proto).unwrap();
    assert!(matches!(
        composed(&[&everything, &other]).unwrap_err(),
        ComposeError::Function { function, .. } if function == "local::Double"
    ));
    let mut proto = at(17).into_proto();
    proto.graph.as_mut().unwrap().input[0].r#type = None;
    let shapeless = Model::from_proto(proto).unwrap();
    assert!(matches!(composed(&[&shapeless]), Err(ComposeError::InputType { .. })));
}

mod products {
    use super::*;

    const WIDTH: usize = 16;
    const INIT: Init = Init { mean: 0.0, deviation: 0.25 };

    /// A chain of products with operators in between that only models of this kind have.
    struct Chain<'a> {
        between: &'a str,
        products: &'a [&'a str],
        seed: u64,
        alpha: f32,
        /// Whether the first weight is also added to the end.
        again: bool,
    }

    impl Default for Chain<'_> {
        fn default() -> Self {
            Chain { between: "Tanh", products: &["a", "b"], seed: 1, alpha: 2.0, again: false }
        }
    }

    impl Chain<'_> {
        fn model(&self) -> Model {
            let mut builder = Builder::new("chain", self.seed);
            let dims = [fixed(WIDTH), fixed(WIDTH)];
            let mut x = builder.input("x", F32, &dims);
            for product in self.products {
                x = builder.node(self.between, &[&x], &[]);
                let weight = builder.weight(product, &[WIDTH, WIDTH], INIT);
                let bias =
                    builder.initializer("bias", &Tensor::from_slice(&[1], &[0.5f32]).unwrap());
                let with = [float("alpha", self.alpha), int("transB", 1)];
                x = builder.node("Gemm", &[&x, &weight, &bias], &with);
            }
            if self.again {
                let weight = builder.weight(self.products[0], &[WIDTH, WIDTH], INIT);
                x = builder.node("Add", &[&x, &weight], &[]);
            }
            let y = builder.node(self.between, &[&x], &[]);
            builder.output("y", &y, F32, &dims);
            builder.finish().unwrap()
        }
    }

    /// The names of the large weights of the products outside, and of those that bodies capture.
    fn outside(composite: &Composite) -> (Vec<String>, HashSet<String>) {
        let graph = composite.model.graph();
        let is_choice = |node: &&NodeProto| node.op_type == "If";
        let products = graph.node.iter().filter(|node| !is_choice(node));
        let products: Vec<String> = products.map(|node| node.input[1].clone()).collect();
        let large: HashSet<&str> =
            graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
        let captured = graph.node.iter().filter(is_choice).flat_map(topology::needs);
        (products, captured.filter(|name| large.contains(name)).map(str::to_owned).collect())
    }

    /// How many products of these models are outside. None of their weights may be captured.
    fn common(models: &[&Model]) -> usize {
        let composite = check(models);
        let (products, captured) = outside(&composite);
        assert!(products.iter().all(|weight| !captured.contains(weight)));
        assert_eq!(
            products.iter().collect::<HashSet<_>>().len(),
            products.len(),
            "each is there once"
        );
        products.len()
    }

    #[test]
    fn what_all_models_have_is_outside_once_and_no_branch_captures_its_weight() {
        let (one, other) =
            (Chain::default().model(), Chain { between: "Neg", ..Chain::default() }.model());
        let composite = check(&[&one, &other]);
        let operators: Vec<&str> =
            composite.model.graph().node.iter().map(|node| node.op_type.as_str()).collect();
        // What each does, and the operand of the one that is chosen; at the end there are only outputs.
        assert_eq!(operators, ["If", "If", "If", "Gemm", "If", "If", "If", "Gemm", "If", "If"]);
        assert_eq!(outside(&composite).1.len(), 0);
        assert_eq!(common(&[&one, &other, &one, &other]), 2, "four models");
        assert_eq!(common(&[&one]), 0, "a model alone stays whole");
    }

    #[test]
    fn no_branch_of_a_branch_captures_a_weight() {
        let own = ["one", "two", "three"];
        let models =
            own.map(|own| Chain { products: &["a", own, "b"], ..Chain::default() }.model());
        let composite = check(&models.iter().collect::<Vec<_>>());
        let graph = composite.model.graph();
        let large: HashSet<&str> =
            graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
        let bodies = |node: &NodeProto| -> Vec<GraphProto> {
            node.attribute.iter().filter_map(|found| found.g.as_deref().cloned()).collect()
        };
        let inner: Vec<NodeProto> =
            graph.node.iter().flat_map(bodies).flat_map(|body| body.node).collect();
        let deeper = inner.iter().filter(|node| !bodies(node).is_empty());
        let captured: Vec<&str> = deeper.flat_map(topology::needs).collect();
        assert!(captured.iter().any(|name| name.ends_with(":chosen")), "three are chosen from");
        assert!(!captured.iter().any(|name| large.contains(name)), "{captured:?}");
        let own = inner.iter().flat_map(|node| &node.input);
        assert!(
            own.clone().any(|name| large.contains(name.as_str())),
            "each has weights of its own"
        );
    }

    #[test]
    fn products_that_follow_each_other_need_no_stage_in_between() {
        let plain = |after: &str| {
            let mut builder = Builder::new("plain", 1);
            let dims = [fixed(WIDTH), fixed(WIDTH)];
            let mut x = builder.input("x", F32, &dims);
            for product in ["a", "b"] {
                let weight = builder.weight(product, &[WIDTH, WIDTH], INIT);
                x = builder.node("MatMul", &[&x, &weight], &[]);
            }
            let y = builder.node(after, &[&x], &[]);
            builder.output("y", &y, F32, &dims);
            builder.output("product", &x, F32, &dims);
            builder.finish().unwrap()
        };
        let composite = check(&[&plain("Neg"), &plain("Abs")]);
        let operators: Vec<&str> =
            composite.model.graph().node.iter().map(|node| node.op_type.as_str()).collect();
        assert_eq!(operators, ["If", "MatMul", "MatMul", "If", "If"]);
    }

    #[test]
    fn a_product_that_differs_in_anything_stays_inside() {
        let one = Chain::default().model();
        let other = Chain { between: "Neg", ..Chain::default() };
        let flipped = mutate::flip_weight_bit(&Chain { products: &["a"], ..other }.model(), 1);
        let single = Chain { products: &["a"], ..Chain::default() }.model();
        assert_eq!(common(&[&single, &flipped.unwrap().model]), 0, "another bit in a weight");
        let third = Chain { seed: 2, ..Chain::default() }.model();
        assert_eq!(common(&[&one, &other.model(), &third]), 0, "one of three has other weights");
        assert_eq!(common(&[&one, &Chain { alpha: 1.0, ..other }.model()]), 0, "an attribute");
        let zeros = [0.0, -0.0].map(|alpha| Chain { alpha, ..Chain::default() }.model());
        assert_eq!(common(&[&zeros[0], &zeros[1]]), 0, "the sign of a zero");
        assert_eq!(
            common(&[&one, &Chain { again: true, ..other }.model()]),
            1,
            "a weight used twice"
        );
        let twice = Chain { products: &["a", "b", "a"], ..other };
        assert_eq!(common(&[&one, &twice.model()]), 1, "a product done twice");
    }

    #[test]
    fn of_products_in_another_order_those_stay_outside_that_agree() {
        let one = Chain { products: &["a", "b", "c", "d"], ..Chain::default() }.model();
        let other = |products| Chain { between: "Neg", products, ..Chain::default() }.model();
        assert_eq!(common(&[&one, &other(&["b", "a"])]), 1);
        assert_eq!(common(&[&one, &other(&["b", "c", "d", "a"])]), 3);
        assert_eq!(common(&[&one, &other(&["d", "c", "b", "a"])]), 1);
    }

    #[test]
    fn decoder_twins_and_adapters_have_their_projections_outside() {
        let twins = families::decoder_twins(&Recipe::tiny(1)).unwrap();
        let twins: Vec<Model> = twins.iter().map(|twin| hoist(&twin.model, 1024)).collect();
        // Per layer: query, key, value, output, gate, up, down. And the head.
        assert_eq!(common(&[&twins[0], &twins[1]]), 2 * 7 + 1);
        let disguised = hoist(&transform::disguise(&twins[1], 3).0, 1024);
        assert_eq!(common(&[&twins[0], &disguised]), 2 * 7 + 1);
        let adapters = adapters();
        assert_eq!(common(&adapters.iter().collect::<Vec<_>>()), 2 * 6);
    }
}
