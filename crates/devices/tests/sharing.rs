//! A share plan, run by the real engine, gives the bits of every model on its own; so does a
//! composite.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use common::inputs::sample;
use common::{Named, Scratch, block_on, outputs};
use holdfast_devices::cpu::Target;
use holdfast_devices::{
    Device, Input, Loaded, Output, Program, RequestId, Returned, Segment, Step,
};
use holdfast_graph::infer::Bindings;
use holdfast_graph::share::{Member, Prices, SharePlan, Source, StepOutput, share};
use holdfast_graph::{Fingerprints, Model, Part, Tensor, compose};
use holdfast_models::{StoredGraph, hashed_weights};
use holdfast_testkit::random::{self, transform};
use holdfast_testkit::{Architecture, LayerNorm, Recipe, Style, families};
use proptest::prelude::*;

static SCRATCH: LazyLock<Scratch> = LazyLock::new(Scratch::new);

const SIZES: [(&str, usize); 6] = [
    ("batch", 2),
    ("text_batch", 2),
    ("image_batch", 2),
    ("sequence", 7),
    ("past_sequence", 4),
    ("total_sequence", 11),
];

/// A model after the engine's optimiser.
struct Lowered {
    stored: StoredGraph,
    model: Model,
    prints: Fingerprints,
}

impl Lowered {
    fn new(model: &Model) -> Lowered {
        let stored = block_on(SCRATCH.lower(&SCRATCH.import("member", model)));
        let model = SCRATCH.store.open_graph(&stored).unwrap();
        let prints = Fingerprints::new(&model, &hashed_weights(&model));
        Lowered { stored, model, prints }
    }

    fn store(&self, piece: &Model, by: &str) -> StoredGraph {
        let weights = hashed_weights(piece);
        SCRATCH.store.put_derived(&self.stored.graph, by, piece, &weights).unwrap()
    }
}

/// Plans, runs every model with and without the plan, and compares bits.
fn check(models: &[Model], prices: &Prices, seed: u64) -> SharePlan {
    let with_inputs = models.iter().map(|model| (model.clone(), inputs(model, seed)));
    check_with(&with_inputs.collect::<Vec<_>>(), prices)
}

fn inputs(model: &Model, seed: u64) -> Named {
    sample(&model.inputs(), &SIZES, seed)
}

/// A model in disguise, and the inputs of the original under their new names.
fn disguised(model: &Model, seed: u64) -> (Model, Named) {
    let (other, names) = transform::disguise(model, seed);
    let inputs = inputs(model, seed).into_iter();
    (other, inputs.map(|(name, tensor)| (names[&name].clone(), tensor)).collect())
}

fn check_with(models: &[(Model, Named)], prices: &Prices) -> SharePlan {
    let lowered: Vec<Lowered> = models.iter().map(|(model, _)| Lowered::new(model)).collect();
    let sizes: Bindings = SIZES.into_iter().collect();
    let names: Vec<String> = (0..models.len()).map(|number| number.to_string()).collect();
    let members: Vec<Member<'_>> = lowered
        .iter()
        .zip(&names)
        .map(|(lowered, name)| Member {
            name,
            model: &lowered.model,
            prints: &lowered.prints,
            sizes: &sizes,
        })
        .collect();
    let plan = share(&members, prices).unwrap();
    let engine = &SCRATCH.engine;
    block_on(async {
        let mut segments = Vec::new();
        for segment in &plan.segments {
            let by = format!("segment {} of a plan of a test", segment.id);
            let stored = lowered[segment.users[0]].store(&segment.model, &by);
            segments.push(engine.load(Segment::new(stored)).await.unwrap());
        }
        for (number, lowered) in lowered.iter().enumerate() {
            let whole = engine.load(Segment::new(lowered.stored.clone())).await.unwrap();
            let inputs = &models[number].1;
            let expected = engine.run(SCRATCH.program(&whole, inputs)).await.unwrap();
            let program = steps(&plan, number, &segments, inputs);
            let found = engine.run(program).await.unwrap();
            let found = results(&plan, number, &found.outputs);
            for (name, expected) in outputs(expected) {
                assert!(found[&name] == expected, "`{name}` of model {number} differs");
            }
        }
    });
    plan
}

/// The outputs of a model, each from the step that gives it: steps may call theirs alike.
fn results(plan: &SharePlan, number: usize, found: &[Returned]) -> Named {
    let outputs = plan.models[number].outputs.iter();
    let find = |from: &StepOutput| {
        let found = found.iter().find(|found| found.step == from.step && found.name == from.output);
        found.unwrap().tensor.clone()
    };
    outputs.map(|(name, from)| (name.clone(), find(from))).collect()
}

fn steps(plan: &SharePlan, number: usize, segments: &[Loaded], inputs: &Named) -> Program {
    let route = &plan.models[number];
    let step = |(index, step): (usize, &holdfast_graph::share::Step)| {
        let take = |(name, source): (&String, &Source)| {
            let input = match source {
                Source::Input { name, casts } if casts.is_empty() => {
                    Input::Inline(inputs[name].clone())
                }
                Source::Input { .. } => panic!("these models all have ids of one type"),
                Source::Step(from) => Input::Step { step: from.step, output: from.output.clone() },
            };
            (name.clone(), input)
        };
        let give = |output: &holdfast_graph::Value| {
            let returned =
                route.outputs.values().any(|from| from.step == index && from.output == output.name);
            (output.name.clone(), if returned { Output::Return } else { Output::Pass })
        };
        Step {
            segment: segments[step.segment].id,
            inputs: step.inputs.iter().map(take).collect(),
            outputs: segments[step.segment].outputs.iter().map(give).collect(),
        }
    };
    let steps = route.steps.iter().enumerate().map(step).collect();
    Program { request: RequestId(SCRATCH.request()), deadline: None, steps }
}

fn family(members: Vec<families::Member>) -> Vec<Model> {
    members.into_iter().map(|member| member.model).collect()
}

fn recipe(layer_norm: LayerNorm) -> Recipe {
    Recipe { style: Style { layer_norm, ..Style::default() }, ..Recipe::tiny(1) }
}

#[test]
fn heads_on_one_trunk_have_the_bits_of_the_whole() {
    for layer_norm in [LayerNorm::Operator, LayerNorm::Decomposed] {
        let models = family(families::heads(&recipe(layer_norm), 4).unwrap());
        for prices in [Prices::default(), Prices::free()] {
            let plan = check(&models, &prices, 1);
            let trunk = plan.trunks().find(|trunk| trunk.users.len() == 4).unwrap();
            let (shared, apart) = plan.flops();
            assert!(trunk.cost.flops * 2 > shared && shared * 10 < apart * 4, "{shared} {apart}");
        }
    }
}

#[test]
fn heads_in_disguise_have_the_bits_of_the_whole() {
    let models = family(families::heads(&recipe(LayerNorm::Operator), 3).unwrap());
    for seed in 0..3 {
        let disguised: Vec<_> = models.iter().map(|model| disguised(model, seed)).collect();
        assert!(check_with(&disguised, &Prices::default()).shares());
    }
}

#[test]
fn families_of_every_kind_have_the_bits_of_the_whole() {
    let recipe = Recipe::tiny(1);
    check(
        &family(families::adapters(Architecture::Bert, &recipe, 3, 4).unwrap()),
        &Prices::free(),
        1,
    );
    check(&family(families::decoder_twins(&recipe).unwrap()), &Prices::free(), 1);
    for architecture in Architecture::ALL {
        for model in family(architecture.build(&recipe).unwrap()) {
            let models = [(model.clone(), inputs(&model, 2)), disguised(&model, 2)];
            assert!(check_with(&models, &Prices::free()).shares());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_families_have_the_bits_of_the_whole(seed: u64) {
        check(&lowerable(random::family(seed)), &Prices::free(), seed);
    }
}

/// Random models without those that the engine's optimiser trips over: it loses an output that
/// is an `Identity` of something constant which others use too.
fn lowerable(mut models: Vec<Model>) -> Vec<Model> {
    models.retain(|model| {
        let graph = SCRATCH.import("tried", model);
        block_on(SCRATCH.engine.lower(&graph, Target::Cpu, &BTreeMap::new())).is_ok()
    });
    models
}

/// Puts models into one graph, chooses one after the other, and compares bits. Gives the number of
/// products that all have.
fn check_composite(models: &[Model], target: Target, seed: u64) -> usize {
    let lower = |model| {
        let graph = SCRATCH.import("member", model);
        block_on(SCRATCH.engine.lower(&graph, target, &BTreeMap::new())).unwrap()
    };
    let lowered: Vec<StoredGraph> = models.iter().map(lower).collect();
    let open = |stored| SCRATCH.store.open_graph(stored).unwrap();
    let models: Vec<Model> = lowered.iter().map(open).collect();
    let tables: Vec<_> = models.iter().map(hashed_weights).collect();
    let parts = models.iter().zip(&tables);
    let parts: Vec<Part<'_>> =
        parts.map(|(model, weights)| Part { name: "part", model, weights }).collect();
    let composite = compose(&parts).unwrap();
    let by = format!("composite of a test with seed {seed} for {target:?}");
    let weights = hashed_weights(&composite.model);
    let first = &lowered[0].graph;
    let stored = SCRATCH.store.put_derived(first, &by, &composite.model, &weights).unwrap();
    let engine = &SCRATCH.engine;
    block_on(async {
        let loaded = engine.load(Segment::new(stored)).await.unwrap();
        for (number, model) in models.iter().enumerate() {
            let whole = engine.load(Segment::new(lowered[number].clone())).await.unwrap();
            let own = sample(&model.inputs(), &SIZES, seed);
            let expected = SCRATCH.run(&whole, &own).await;
            let mut inputs = Named::new();
            for (other, part) in composite.parts.iter().enumerate() {
                let chosen = Tensor::from_slice(&[], &[other == number]).unwrap();
                inputs.insert(part.chosen_by.clone(), chosen);
                for (name, input) in &part.inputs {
                    let declared = models[other].inputs();
                    let dtype = declared.iter().find(|value| value.name == *name).unwrap().dtype;
                    let idle = || Tensor::zeros(dtype.unwrap(), &input.idle_shape).unwrap();
                    let tensor = if other == number { own[name].clone() } else { idle() };
                    inputs.insert(input.name.clone(), tensor);
                }
            }
            let found = SCRATCH.run(&loaded, &inputs).await;
            for (other, part) in composite.parts.iter().enumerate() {
                for (name, given) in &part.outputs {
                    if other == number {
                        assert!(found[given] == expected[name], "`{name}` of model {number}");
                    } else {
                        assert_eq!(found[given].elements(), 0, "model {other} was not chosen");
                    }
                }
            }
        }
    });
    composite.model.graph().node.iter().filter(|node| node.op_type != "If").count()
}

#[test]
fn a_composite_gives_the_bits_of_whichever_model_is_chosen() {
    let recipe = Recipe::tiny(1);
    for target in [Target::Cpu, Target::Wasm] {
        let adapters = families::adapters(Architecture::Bert, &recipe, 4, 8).unwrap();
        assert!(check_composite(&family(adapters), target, 1) >= 12, "six in each layer");
        let twins = families::decoder_twins(&recipe).unwrap();
        assert!(check_composite(&family(twins), target, 2) >= 14, "seven in each layer");
    }
    for seed in 0..20 {
        check_composite(&lowerable(random::family(seed)), Target::Cpu, seed);
    }
}

#[test]
fn a_composite_of_random_relatives_gives_the_bits_of_whichever_is_chosen() {
    let outside = |seed| check_composite(&lowerable(random::relatives(seed)), Target::Wasm, seed);
    let outside: usize = (0..60).map(outside).sum();
    assert!(outside > 60, "{outside} products are outside");
}
