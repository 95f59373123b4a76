//! Models that have something in common, run by the pool on the real engine: what they share is
//! computed once, and every answer has the bits of a run alone.

use std::sync::Arc;

use holdfast_graph::share::Prices;
use holdfast_graph::{Model, Tensor};
use holdfast_models::StoredGraph;
use holdfast_pool::{Answer, Pool, PoolOptions, Request, Reused};
use holdfast_testkit::random::{self, mutate, transform};
use holdfast_testkit::{Architecture, Recipe, Size, families};

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
