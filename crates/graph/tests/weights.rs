//! Weights in common without a common beginning, lifted to inputs.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::collections::{HashMap, HashSet};

use holdfast_graph::DataType::{F32, I64};
use holdfast_graph::{Model, Tensor, WeightId, WeightTable, WhyNot, hoist, lift, weights};
use holdfast_testkit::attribute::int;
use holdfast_testkit::random::{self, evaluate, sample_inputs};
use holdfast_testkit::{Architecture, Builder, Init, Recipe, families, fixed, named};

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
