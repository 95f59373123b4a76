//! Models that have something in common, run by the pool on the real engine: what they share is
//! computed once, and every answer has the bits of a run alone.

use std::sync::Arc;

use holdfast_devices::Device;
use holdfast_graph::share::Prices;
use holdfast_graph::{DataType, Model, Tensor};
use holdfast_models::StoredGraph;
use holdfast_pool::{Answer, Pool, PoolOptions, Request, Reused};
use holdfast_testkit::feed::{Sizes, feed};
use holdfast_testkit::random::{self, mutate, transform};
use holdfast_testkit::synth::{Options, synth};
use holdfast_testkit::{Architecture, Builder, Init, Recipe, Size, families, fixed};

use crate::support::{Scene, heads, request, same, text};

fn requests(graphs: &[StoredGraph], first: i64) -> Vec<Request> {
    graphs.iter().map(|graph| request(graph, text(first, 24))).collect()
}

#[tokio::test]
async fn a_trunk_is_computed_once_for_all_that_run_on_one_input() {
    let scene = Scene::new();
    let graphs = scene.import(&heads(3));
    let answers = scene.check(&requests(&graphs, 1)).await;
    let reused: Vec<usize> = answers.iter().map(|answer| answer.reused.tensors).collect();
    let computed = reused.iter().filter(|tensors| **tensors == 0).count();
    assert_eq!(computed, 1, "one computes it, two do not: {reused:?}");
    for Answer { reused, .. } in answers.iter().filter(|answer| answer.reused.tensors > 0) {
        assert!(reused.bytes > 0 && !reused.saved.is_zero(), "{reused:?}");
    }
    assert_eq!(scene.verdicts().len(), 1);
}

#[tokio::test]
async fn a_second_model_starts_where_the_first_one_left_off() {
    let scene = Scene::new();
    let graphs = scene.import(&heads(2));
    scene.check(&requests(&graphs, 1)).await;
    let [first, second] = &requests(&graphs, 50)[..] else { panic!() };
    let before = scene.pool.run(first).await.unwrap();
    assert_eq!(before.reused, Reused::default());
    let after = scene.pool.run(second).await.unwrap();
    assert!(after.reused.tensors > 0);
    assert_eq!(after.outcome.steps.len(), 1, "only the head is run");
    let kept = scene.pool.metrics().devices[0].kept;
    assert!(kept.hits >= 1 && kept.bytes > 0, "{kept:?}");
}

#[tokio::test]
async fn nothing_is_reused_for_another_input_another_caller_or_one_who_does_not_want_it() {
    let scene = Scene::new();
    let graphs = scene.import(&heads(2));
    scene.check(&requests(&graphs, 1)).await;
    let [first, second] = &requests(&graphs, 50)[..] else { panic!() };
    scene.pool.run(first).await.unwrap();
    let others = [
        Request { inputs: text(51, 24), ..second.clone() },
        Request { inputs: text(50, 23), ..second.clone() },
        Request { namespace: "somebody else".to_owned(), ..second.clone() },
        Request { share: false, ..second.clone() },
    ];
    for other in &others {
        let answer = scene.pool.run(other).await.unwrap();
        assert_eq!(answer.reused, Reused::default());
    }
    assert!(scene.pool.run(second).await.unwrap().reused.tensors > 0);
}

#[tokio::test]
async fn what_does_not_fit_the_budget_is_computed_again() {
    let scene = Scene::with(PoolOptions { cache_bytes: 1000, ..PoolOptions::default() });
    let graphs = scene.import(&heads(2));
    scene.check(&requests(&graphs, 1)).await;
    for request in &requests(&graphs, 50) {
        assert_eq!(scene.pool.run(request).await.unwrap().reused, Reused::default());
    }
    let kept = scene.pool.metrics().devices[0].kept;
    assert!(kept.bytes <= 1000, "{kept:?}");
}

#[tokio::test]
async fn a_weight_that_differs_by_one_bit_is_not_shared() {
    let scene = Scene::new();
    let model = heads(1).remove(0);
    // One at the beginning, so that nothing behind it is the same.
    let mutated = (0..1000).find_map(|seed| {
        let mutation = mutate::flip_weight_bit(&model, seed)?;
        mutation.what.contains("embeddings").then_some(mutation.model)
    });
    let graphs = scene.import(&[model, mutated.expect("some seed picks an embedding")]);
    let answers = scene.check(&requests(&graphs, 1)).await;
    assert!(answers.iter().all(|answer| answer.reused == Reused::default()));
    assert!(scene.verdicts().is_empty(), "there was nothing to prove");
}

#[tokio::test]
async fn a_plan_is_proven_once_and_one_that_differs_is_not_used() {
    let scene = Scene::new();
    let graphs = scene.import(&heads(2));
    scene.check(&requests(&graphs, 1)).await;
    let [verdict] = &scene.verdicts()[..] else { panic!("one plan, one kind of device") };

    let again = Pool::new(scene.store.clone(), PoolOptions::default()).unwrap();
    again.bring_together(&requests(&graphs, 1)).await;
    assert_eq!(again.metrics().models.loads, 0, "nothing had to be tried");
    let answers = again.run_concurrent(&requests(&graphs, 2)).await;
    assert!(answers.iter().flatten().any(|answer| answer.reused.tensors > 0));

    let text = std::fs::read_to_string(verdict).unwrap();
    let refused = text.replace("\"holds\"", "\"differs\",\n  \"what\": \"a test says so\"");
    assert_ne!(refused, text);
    std::fs::write(verdict, refused).unwrap();
    let refusing = Pool::new(scene.store.clone(), PoolOptions::default()).unwrap();
    let answers = refusing.run_concurrent(&requests(&graphs, 2)).await;
    assert!(answers.iter().flatten().all(|answer| answer.reused == Reused::default()));
    assert_eq!(refusing.metrics().refused_plans.len(), 1);
}

#[tokio::test]
async fn models_come_and_go_while_requests_are_answered() {
    let scene = Arc::new(Scene::new());
    let graphs = scene.import(&heads(4));
    let mut alone = Vec::new();
    for request in requests(&graphs, 1) {
        let request = Request { share: false, ..request };
        alone.push(scene.pool.run(&request).await.unwrap());
    }
    // Ever more models are asked for; none of them waits for the plans that follow.
    let mut asking = tokio::task::JoinSet::new();
    for round in 0..60 {
        for (number, request) in requests(&graphs, 1).into_iter().enumerate() {
            if number > round / 10 {
                continue;
            }
            let scene = scene.clone();
            asking.spawn(async move { (number, scene.pool.run(&request).await.unwrap()) });
        }
        while asking.len() > 6 {
            let (number, answer) = asking.join_next().await.unwrap().unwrap();
            assert!(same(&answer, &alone[number]));
        }
    }
    let rest = asking.join_all().await;
    assert!(rest.iter().all(|(number, answer)| same(answer, &alone[*number])));
    scene.check(&requests(&graphs, 9)).await;
}

#[tokio::test]
async fn a_wrong_request_is_told_what_is_wrong_in_the_models_own_words() {
    let scene = Scene::new();
    let graphs = scene.import(&heads(2));
    scene.check(&requests(&graphs, 1)).await;
    let [request, _] = &requests(&graphs, 2)[..] else { panic!() };
    let mut missing = request.clone();
    missing.inputs.remove(1);
    let error = scene.pool.run(&missing).await.unwrap_err().to_string();
    assert!(error.contains("attention_mask"), "{error}");
    let mut wrong = request.clone();
    wrong.inputs[0].1 = Tensor::from_slice(&[1, 24], &[0f32; 24]).unwrap();
    let error = scene.pool.run(&wrong).await.unwrap_err().to_string();
    assert!(error.contains("input_ids"), "{error}");
    // And nobody else is worse off.
    scene.check(&requests(&graphs, 3)).await;
}

#[tokio::test]
async fn prefixes_disguises_and_strangers_get_along() {
    let scene = Scene::new();
    let recipe = Recipe::new(Size::tiny(), 0);
    let build = |recipe: &Recipe| Architecture::Bert.build(recipe).unwrap().remove(0).model;
    let head = families::heads(&recipe, 1).unwrap().remove(0).model;
    let (disguised, names) = transform::disguise(&head, 3);
    let stranger = build(&Recipe::new(Size::tiny(), 99));
    let graphs = scene.import(&[build(&recipe), head, disguised, stranger]);
    let mut all = requests(&graphs, 1);
    for (name, _) in &mut all[2].inputs {
        *name = names[name.as_str()].clone();
    }
    let answers = scene.check(&all).await;
    assert!(answers.iter().any(|answer| answer.reused.tensors > 0));
    assert_eq!(answers[3].reused, Reused::default(), "it has nothing in common with the others");
    // What is the whole of one model and the trunk of another is read off the device.
    let text = text(70, 24);
    scene.pool.run(&Request { inputs: text.clone(), ..all[1].clone() }).await.unwrap();
    let prefix = Request { inputs: text, ..all[0].clone() };
    let answer = scene.pool.run(&prefix).await.unwrap();
    let alone = scene.pool.run(&Request { share: false, ..prefix }).await.unwrap();
    assert!(same(&answer, &alone));
}

/// `x → layers → y` over square matrices, with a weight for each name.
fn chain(names: &[&str]) -> Model {
    let mut builder = Builder::new("chain", 1);
    let side = [fixed(3), fixed(3)];
    builder.input("x", DataType::F32, &side);
    let y = names.iter().fold("x".to_owned(), |x, name| {
        let weight = builder.weight(name, &[3, 3], Init { mean: 0.0, deviation: 1.0 });
        let product = builder.node("MatMul", &[&x, &weight], &[]);
        builder.node("Tanh", &[&product], &[])
    });
    builder.output("y", &y, DataType::F32, &side);
    builder.finish().unwrap()
}

#[tokio::test]
async fn a_trunk_that_grows_from_another_starts_where_that_one_left_off() {
    let prices = Prices::free();
    let scene = Scene::with(PoolOptions { prices, ..PoolOptions::default() });
    let models = [chain(&["a", "b", "c"]), chain(&["a", "b", "d"]), chain(&["a", "e", "f"])];
    let graphs = scene.import(&models);
    let on = |value: f32| -> Vec<Request> {
        let x = Tensor::from_slice(&[3, 3], &[value; 9]).unwrap();
        graphs.iter().map(|graph| request(graph, vec![("x".to_owned(), x.clone())])).collect()
    };
    scene.check(&on(0.5)).await;
    let requests = on(0.25);
    let ran = async |model: usize| {
        let answer = scene.pool.run(&requests[model]).await.unwrap();
        let alone = Request { share: false, ..requests[model].clone() };
        assert!(same(&answer, &scene.pool.run(&alone).await.unwrap()));
        (answer.reused.tensors, answer.outcome.steps.len())
    };
    assert_eq!(ran(2).await, (0, 2), "what all have, and its own head");
    assert_eq!(ran(0).await, (1, 2), "what all have is there; what two have is computed");
    assert_eq!(ran(1).await, (1, 1), "what two have is there");

    // The twin: with another weight in between, there is no trunk to grow.
    scene.pool.forget_models().await;
    let other = scene.import(&[chain(&["a", "g", "d"])]).remove(0);
    let with_twin = |value: f32| {
        let mut requests = on(value);
        requests[1].graph = other.clone();
        requests
    };
    scene.check(&with_twin(0.75)).await;
    let answer = scene.pool.run(&with_twin(0.125)[0]).await.unwrap();
    assert_eq!((answer.reused.tensors, answer.outcome.steps.len()), (0, 2), "one trunk, one head");
}

/// The same with an output that is another one each time.
fn noisy(names: &[&str]) -> Model {
    let mut builder = Builder::new("noisy", 1);
    let side = [fixed(3), fixed(3)];
    builder.input("x", DataType::F32, &side);
    let y = names.iter().fold("x".to_owned(), |x, name| {
        let weight = builder.weight(name, &[3, 3], Init { mean: 0.0, deviation: 1.0 });
        let product = builder.node("MatMul", &[&x, &weight], &[]);
        builder.node("Tanh", &[&product], &[])
    });
    let noise = builder.node("RandomNormalLike", &[&y], &[]);
    let noisy = builder.node("Add", &[&y, &noise], &[]);
    builder.output("y", &y, DataType::F32, &side);
    builder.output("noisy", &noisy, DataType::F32, &side);
    builder.finish().unwrap()
}

#[tokio::test]
async fn chance_in_one_head_keeps_nobody_from_sharing() {
    let prices = Prices::free();
    let scene = Scene::with(PoolOptions { prices, ..PoolOptions::default() });
    let graphs = scene.import(&[chain(&["a", "b"]), chain(&["a", "c"]), noisy(&["a", "d"])]);
    let x = Tensor::from_slice(&[3, 3], &[0.5f32; 9]).unwrap();
    let of = |graph| request(graph, vec![("x".to_owned(), x.clone())]);
    let requests: Vec<Request> = graphs.iter().map(of).collect();
    let answers = scene.pool.run_concurrent(&requests).await;
    assert_eq!(scene.pool.metrics().refused_plans, [""; 0]);
    let answers: Vec<Answer> = answers.into_iter().map(|answer| answer.unwrap()).collect();
    assert_eq!(answers.iter().filter(|answer| answer.reused.tensors > 0).count(), 2);
    for (answer, request) in answers.iter().zip(&requests) {
        let alone = Request { share: false, ..request.clone() };
        let alone = scene.pool.run(&alone).await.unwrap();
        let certain = |answer: &Answer| answer.outcome.outputs[0].tensor.clone();
        assert_eq!(certain(answer), certain(&alone));
    }
}

/// Bytes of weights that the engine holds for models together, and for each on its own.
async fn weights_held(models: &[Model]) -> (u64, u64) {
    let sizes = Sizes { batch: 1, tokens: 8, dims: &[] };
    let scene = Scene::new();
    let graphs = scene.import(models);
    let of = |(graph, model): (&StoredGraph, &Model)| {
        let given = feed(model, &sizes, 0).unwrap();
        request(graph, given.into_iter().map(|fed| (fed.name, fed.tensor)).collect())
    };
    let requests: Vec<Request> = graphs.iter().zip(models).map(of).collect();
    for answer in scene.pool.run_concurrent(&requests).await {
        answer.unwrap();
    }
    let together = scene.pool.engine().stats().await.unwrap().weight_bytes;
    let mut apart = 0;
    for request in &requests {
        let alone = Request { share: false, ..request.clone() };
        apart += scene.pool.run(&alone).await.unwrap().loaded.weight_bytes;
    }
    scene.check(&requests).await;
    assert_eq!(scene.pool.metrics().refused_plans, [""; 0]);
    (together, apart)
}

fn family(kind: &str, count: usize) -> Vec<Model> {
    let members = synth(kind.parse().unwrap(), &Options { count, ..Options::default() }).unwrap();
    members.into_iter().map(|member| member.model).collect()
}

#[tokio::test]
async fn adapters_hold_their_base_once_and_models_without_one_do_not() {
    let (together, apart) = weights_held(&family("adapters", 3)).await;
    assert!(together * 2 < apart, "{together} bytes instead of {apart}");
    let strangers = [1, 2, 3].map(|seed| {
        let recipe = Recipe::new(Size::tiny(), seed);
        Architecture::Bert.build(&recipe).unwrap().remove(0).model
    });
    let (together, apart) = weights_held(&strangers).await;
    assert!(together * 10 > apart * 9, "{together} bytes instead of {apart}");
}

#[tokio::test]
async fn a_decoder_and_its_twin_with_a_past_hold_their_weights_once() {
    let (together, apart) = weights_held(&family("decoder-twins", 2)).await;
    assert!(together * 3 < apart * 2, "{together} bytes instead of {apart}");
}

#[tokio::test]
async fn a_decoder_and_a_twin_of_other_weights_hold_each_their_own() {
    let [model, twin]: [Model; 2] = family("decoder-twins", 2).try_into().unwrap();
    let (before, apart) = weights_held(&[model.clone(), twin.clone()]).await;
    let changed = (0..5000).find_map(|seed| {
        let mutation = mutate::flip_weight_bit(&twin, seed)?;
        mutation.what.contains("embed_tokens").then_some(mutation.model)
    });
    let (after, _) = weights_held(&[model, changed.expect("some seed picks it")]).await;
    assert!(before < after && after <= apart, "{before}, then {after} bytes of {apart}");
}

#[tokio::test]
async fn a_weight_that_one_model_has_under_two_names_is_held_once() {
    let embedding = |scale: f32| {
        let values: Vec<f32> = (0..64 * 64).map(|value| value as f32 * scale).collect();
        Tensor::from_slice(&[64, 64], &values).unwrap()
    };
    let tied = |other: f32| {
        let mut builder = Builder::new("tied", 1);
        builder.input("x", DataType::F32, &[fixed(1), fixed(64)]);
        let first = builder.initializer("embedding.weight", &embedding(0.001));
        let second = builder.initializer("lm_head.weight", &embedding(other));
        let hidden = builder.node("MatMul", &["x", &first], &[]);
        let y = builder.node("MatMul", &[&hidden, &second], &[]);
        builder.output("y", &y, DataType::F32, &[fixed(1), fixed(64)]);
        builder.finish().unwrap()
    };
    for (other, copies) in [(0.001, 1), (0.002, 2)] {
        let scene = Scene::new();
        let graph = scene.import(&[tied(other)]).remove(0);
        let x = Tensor::from_slice(&[1, 64], &[1f32; 64]).unwrap();
        let answer = scene.pool.run(&request(&graph, vec![("x".to_owned(), x)])).await.unwrap();
        assert_eq!(answer.loaded.weight_bytes, copies * 64 * 64 * 4);
    }
}

#[tokio::test]
async fn models_that_are_forgotten_share_nothing_with_those_that_come() {
    let scene = Scene::new();
    let graphs = scene.import(&heads(2));
    scene.check(&requests(&graphs, 1)).await;
    scene.pool.forget_models().await;
    scene.pool.run(&requests(&graphs, 50)[0]).await.unwrap();
    scene.pool.forget_models().await;
    let answer = scene.pool.run(&requests(&graphs, 50)[1]).await.unwrap();
    assert_eq!(answer.reused, Reused::default());
    scene.check(&requests(&graphs, 9)).await;
}

#[tokio::test]
async fn random_families_give_the_bits_of_every_model_alone() {
    let mut shared = 0;
    for seed in 0..16 {
        let prices = Prices::free();
        let scene = Scene::with(PoolOptions { prices, ..PoolOptions::default() });
        let models = random::family(seed);
        let graphs = scene.import(&models);
        let of = |(graph, model): (&StoredGraph, &Model)| {
            request(graph, random::sample_inputs(model, seed).into_iter().collect())
        };
        let all: Vec<Request> = graphs.iter().zip(&models).map(of).collect();
        let answers = scene.check(&all).await;
        shared += answers.iter().filter(|answer| answer.reused.tensors > 0).count();
    }
    assert!(shared > 0, "none of them shared anything");
}
