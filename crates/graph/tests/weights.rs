//! Weights in common without a common beginning: lifted to inputs, or around branches.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod samples;

use std::collections::{BTreeMap, HashMap, HashSet};

use holdfast_graph::DataType::{F32, I64};
use holdfast_graph::{
    ComposeError, Composite, Dim, Fingerprints, Model, Part, Tensor, WeightId, WeightTable, WhyNot,
    compose, encode, hoist, lift, weights,
};
use holdfast_testkit::attribute::int;
use holdfast_testkit::random::{self, evaluate, sample_inputs, transform};
use holdfast_testkit::{Architecture, Builder, Init, Recipe, families, fixed, named};

fn prints(model: &Model) -> Fingerprints {
    Fingerprints::new(model, &WeightTable::new(model))
}

fn adapters() -> Vec<Model> {
    let members = families::adapters(Architecture::Bert, &Recipe::tiny(1), 3, 4).unwrap();
    members.into_iter().map(|member| member.model).collect()
}

mod lifting {
    use super::*;

    /// A product with a large weight; `change` may add more.
    fn model(change: impl FnOnce(&mut Builder, &str) -> String) -> Model {
        let mut builder = Builder::new("lifted", 1);
        builder.input("x", F32, &[named("batch"), fixed(32)]);
        let weight = builder.weight("large", &[32, 32], Init::bias());
        let y = builder.node("MatMul", &["x", &weight], &[]);
        let y = change(&mut builder, &y);
        builder.output("y", &y, F32, &[named("batch"), fixed(32)]);
        builder.finish().unwrap()
    }

    fn refusals(model: &Model) -> Vec<(String, WhyNot)> {
        let lifted = lift(model, &WeightTable::new(model), |_| true);
        lifted.refused.into_iter().map(|refused| (refused.name, refused.why)).collect()
    }

    #[test]
    fn a_chosen_weight_becomes_an_input_of_its_type_and_shape() {
        let model = model(|_, y| y.to_owned());
        let table = WeightTable::new(&model);
        let lifted = lift(&model, &table, |_| true);
        let inputs: Vec<String> =
            lifted.model.inputs().iter().map(|input| format!("{} {input}", input.name)).collect();
        assert_eq!(inputs, ["x f32[batch, 32]", "large f32[32, 32]"]);
        assert_eq!(lifted.weights.len(), 1);
        assert_eq!(lifted.weights[0].id, table.entries()[0].id);
        assert!(weights::weights(&lifted.model).is_empty());
        // And one that is not chosen stays.
        assert_eq!(lift(&model, &table, |_| false).model, model);
    }

    #[test]
    fn fed_with_its_weights_a_lifted_model_computes_the_same() {
        for seed in 0..50 {
            let model = random::graph(seed);
            let table = WeightTable::new(&model);
            let lifted = lift(&model, &table, |_| true);
            assert!(lifted.weights.is_empty(), "small weights stay");
            assert_eq!(lifted.model, model);
        }
        let model = model(|_, y| y.to_owned());
        let table = WeightTable::new(&model);
        let lifted = lift(&model, &table, |_| true);
        let mut inputs = sample_inputs(&model, 1);
        let x: Vec<f32> = (0..32).map(|number| number as f32 / 7.0).collect();
        inputs.insert("x".into(), Tensor::from_slice(&[1, 32], &x).unwrap());
        let expected = evaluate(&model, &inputs).unwrap();
        let by_id: HashMap<WeightId, &Tensor> =
            table.entries().iter().map(|weight| (weight.id, &weight.tensor)).collect();
        for weight in &lifted.weights {
            inputs.insert(weight.input.clone(), by_id[&weight.id].clone());
        }
        assert_eq!(evaluate(&lifted.model, &inputs).unwrap(), expected);
    }

    #[test]
    fn what_has_to_stay_is_refused_with_a_reason() {
        let small = model(|builder, y| {
            let bias = builder.weight("bias", &[32], Init::bias());
            builder.node("Add", &[y, &bias], &[])
        });
        assert_eq!(refusals(&small), [("bias".to_owned(), WhyNot::Small(128))]);

        let ids = model(|builder, y| {
            let ids: Vec<i64> = (0..256).map(|id| id % 32).collect();
            let ids = builder.initializer("ids", &Tensor::from_slice(&[256], &ids).unwrap());
            builder.node("Gather", &[y, &ids], &[int("axis", 1)])
        });
        assert_eq!(refusals(&ids), [("ids".to_owned(), WhyNot::NotFloat(I64))]);

        let inside = model(|builder, y| {
            let constant = builder.constant(&Tensor::zeros(F32, &[32, 32]).unwrap());
            builder.node("MatMul", &[y, &constant], &[])
        });
        let [(name, WhyNot::NotOutermost)] = &refusals(&inside)[..] else { panic!() };
        let hoisted = hoist(&inside, 1024);
        assert!(refusals(&hoisted).is_empty(), "{name} can be lifted from outside");

        let scale = model(|builder, y| {
            let scale = builder.weight("scale", &[32, 32], Init::bias());
            builder.node("QuantizeLinear", &[y, &scale], &[])
        });
        let operator = "QuantizeLinear".to_owned();
        assert_eq!(refusals(&scale), [("scale".to_owned(), WhyNot::Constant { operator })]);

        let mut returned = model(|_, y| y.to_owned()).into_proto();
        let graph = returned.graph.as_mut().unwrap();
        let mut output = graph.output[0].clone();
        output.name = "large".into();
        graph.output.push(output);
        let returned = Model::from_proto(returned).unwrap();
        assert_eq!(refusals(&returned), [("large".to_owned(), WhyNot::Returned)]);
    }

    #[test]
    fn a_weight_that_is_also_listed_as_an_input_is_listed_once() {
        let mut proto = model(|_, y| y.to_owned()).into_proto();
        let listed = lift(
            &Model::from_proto(proto.clone()).unwrap(),
            &WeightTable::new(&Model::from_proto(proto.clone()).unwrap()),
            |_| true,
        );
        let graph = proto.graph.as_mut().unwrap();
        graph.input.push(listed.model.graph().input[1].clone());
        let old = Model::from_proto(proto).unwrap();
        assert_eq!(lift(&old, &WeightTable::new(&old), |_| true).model, listed.model);
    }

    #[test]
    fn adapters_on_one_base_take_the_same_weights() {
        let ids: Vec<HashSet<WeightId>> = adapters()
            .iter()
            .map(|model| {
                let lifted = lift(model, &WeightTable::new(model), |_| true);
                lifted.weights.iter().map(|weight| weight.id).collect()
            })
            .collect();
        let common = ids[0].intersection(&ids[1]).count();
        assert!(common * 10 > ids[0].len() * 6, "{common} of {}", ids[0].len());
    }
}

mod composing {
    use super::*;

    fn composed(models: &[&Model]) -> Result<Composite, ComposeError> {
        let tables: Vec<WeightTable> = models.iter().map(|model| WeightTable::new(model)).collect();
        let names: Vec<String> =
            (0..models.len()).map(|number| format!("model-{number}")).collect();
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
        let node = graph.node.iter().find(|node| node.input == [part.chosen_by.clone()]).unwrap();
        let branch = node.attribute.iter().find(|found| found.name == "then_branch").unwrap();
        let body = branch.g.as_deref().unwrap().clone();
        let outputs = node.output.clone();
        let identity = |from: &str, to: &str| holdfast_graph::proto::NodeProto {
            input: vec![from.to_owned()],
            output: vec![to.to_owned()],
            op_type: "Identity".into(),
            ..Default::default()
        };
        graph.node = body.node;
        graph.initializer.extend(body.initializer);
        graph.sparse_initializer.extend(body.sparse_initializer);
        graph.input = original.graph().input.clone();
        let initializers: HashSet<String> =
            original.graph().initializer.iter().map(|tensor| tensor.name.clone()).collect();
        graph.input.retain(|input| !initializers.contains(&input.name));
        for (name, input) in &part.inputs {
            graph.node.push(identity(name, &input.name));
        }
        for (name, given) in &part.outputs {
            let position = outputs.iter().position(|output| output == given).unwrap();
            graph.node.push(identity(&body.output[position].name, name));
        }
        graph.output = original.graph().output.clone();
        Model::from_proto(proto).unwrap()
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
        assert!(
            bytes(&composite.model) * 100 < apart * 45,
            "{} of {apart}",
            bytes(&composite.model)
        );

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
}
