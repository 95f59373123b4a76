//! Workloads: predicted, run by every strategy, compared, learned from.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use holdfast_graph::Model;
use holdfast_graph::{DataType, Tensor};
use holdfast_pool::{Known, PoolOptions, Request, Workload, WorkloadError};
use holdfast_predict::{
    Goal, Kept, Record, Recorder, Strategy, TermSource, ValidationRecord, ValidatorOptions,
};
use holdfast_testkit::{Architecture, Builder, Recipe, Size, named};

use crate::support::{Scene, heads, request, same, text};

/// Keeps records in memory.
#[derive(Default)]
struct Notebook(Mutex<Vec<Record>>);

impl Recorder for Notebook {
    fn record(&self, record: Record) {
        self.0.lock().unwrap().push(record);
    }

    fn kept(&self) -> Kept {
        Kept { written: self.0.lock().unwrap().len() as u64, ..Kept::default() }
    }
}

impl Notebook {
    fn count(&self, is: impl Fn(&Record) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|record| is(record)).count()
    }
}

/// A pool that keeps everything, over heads on one trunk and a model that has nothing to do with
/// them.
fn scene(options: PoolOptions) -> (Scene, Vec<Request>, Arc<Notebook>) {
    let notebook = Arc::new(Notebook::default());
    let recorder: Option<Arc<dyn Recorder>> = Some(notebook.clone());
    let scene = Scene::with(PoolOptions { recorder, ..options });
    let mut models: Vec<Model> = heads(2);
    let other = Architecture::Bert.build(&Recipe::new(Size::tiny(), 77)).unwrap().remove(0);
    models.push(other.model);
    let graphs = scene.import(&models);
    let requests = graphs.iter().map(|graph| request(graph, text(1, 24))).collect();
    (scene, requests, notebook)
}

fn workload(requests: &[Request]) -> Workload {
    Workload { requests: requests.to_vec(), goal: Goal::Latency }
}

#[tokio::test]
async fn every_strategy_gives_the_answers_of_a_run_alone() {
    let (scene, requests, _) = scene(PoolOptions::default());
    for strategy in Strategy::ALL {
        let done = scene.pool.execute(&workload(&requests), Some(strategy)).await.unwrap();
        assert_eq!((done.strategy, done.answers.len()), (strategy, requests.len()));
        for (request, answer) in requests.iter().zip(&done.answers) {
            let alone = Request { share: false, ..request.clone() };
            assert!(same(answer, &scene.pool.run(&alone).await.unwrap()), "{strategy}");
        }
        let measured = done.measured;
        assert!(measured.latency_seconds > 0.0);
        let expected = requests.len() as f64 / measured.latency_seconds;
        assert_eq!(measured.throughput_per_second, expected);
    }
}

#[tokio::test]
async fn a_trunk_counts_once_in_a_forecast_and_twice_without_sharing() {
    let (scene, requests, _) = scene(PoolOptions::default());
    let pieces = |requests: &[Request]| {
        let (pool, workload) = (&scene.pool, workload(requests));
        async move {
            let forecast = pool.forecast(&workload).await.unwrap();
            let count = |strategy| {
                let (mix, _) = forecast.of(strategy).unwrap();
                let jobs = mix.stages.iter().flatten();
                (mix.stages.len(), jobs.clone().count(), jobs.map(|job| job.pieces.len()).sum())
            };
            Strategy::ALL.map(count)
        }
    };
    // Stages, programs, and segments that run: trunk, two heads, and the model on its own.
    assert_eq!(pieces(&requests).await, [(1, 2, 4), (3, 3, 4), (1, 2, 4)]);
    let alone: Vec<Request> =
        requests.iter().map(|request| Request { share: false, ..request.clone() }).collect();
    assert_eq!(pieces(&alone).await, [(1, 3, 3), (3, 3, 3), (1, 3, 3)]);
}

#[tokio::test]
async fn what_a_device_has_kept_is_not_computed_again_and_not_forecast() {
    let (scene, requests, _) = scene(PoolOptions::default());
    let (pool, first) = (&scene.pool, workload(&requests));
    pool.execute(&first, Some(Strategy::Sequential)).await.unwrap();
    let pieces = |workload: Workload| async move {
        let forecast = pool.forecast(&workload).await.unwrap();
        let (mix, _) = forecast.of(Strategy::Sequential).unwrap();
        mix.stages.iter().flatten().map(|job| job.pieces.len()).sum::<usize>()
    };
    assert_eq!(pieces(first.clone()).await, 3, "two heads, and the model on its own");
    // What was computed for one namespace, or on another input, is of no use.
    let elsewhere = |request: &Request| Request { namespace: "b".to_owned(), ..request.clone() };
    assert_eq!(pieces(workload(&requests.iter().map(elsewhere).collect::<Vec<_>>())).await, 4);
    let other = |request: &Request| Request { inputs: text(1, 23), ..request.clone() };
    assert_eq!(pieces(workload(&requests.iter().map(other).collect::<Vec<_>>())).await, 4);
}

#[tokio::test]
async fn what_stays_on_the_device_does_not_count_as_moved() {
    let (scene, requests, notebook) = scene(PoolOptions::default());
    let forecast = scene.pool.forecast(&workload(&requests)).await.unwrap();
    let (mix, _) = forecast.of(Strategy::Sequential).unwrap();
    let [trunk, head] = &mix.stages[0][0].pieces[..] else { panic!("a trunk and a head") };
    assert_eq!(trunk.features.output_bytes, 0, "nobody asked for it");
    let given_to = |job: usize| {
        let last = mix.stages[job][0].pieces.last().unwrap();
        last.features.input_bytes
    };
    assert!(head.features.input_bytes < trunk.features.input_bytes);
    let again = [given_to(0), given_to(1), given_to(2)];
    let first = [trunk.features.input_bytes + again[0], again[1], again[2]];

    let moved = || {
        let all = notebook.0.lock().unwrap();
        let rows = all.iter().filter_map(|record| match record {
            Record::Inference(row) => Some(row.bytes_moved),
            _ => None,
        });
        rows.collect::<Vec<u64>>()
    };
    // The second time, the trunk is there.
    for expected in [first, again] {
        let before = moved().len();
        let done = scene.pool.execute(&workload(&requests), Some(Strategy::Sequential)).await;
        scene.pool.ledger().settled().await;
        let returned = done.unwrap().answers.into_iter().map(|answer| {
            let outputs = answer.outcome.outputs.iter();
            outputs.map(|output| output.tensor.bytes().len() as u64).sum::<u64>()
        });
        let given: Vec<u64> =
            moved()[before..].iter().zip(returned).map(|(moved, back)| moved - back).collect();
        assert_eq!(given, expected);
    }
}

#[tokio::test]
async fn rows_are_forecast_to_run_together_only_where_they_will() {
    let notebook = Arc::new(Notebook::default());
    let recorder: Option<Arc<dyn Recorder>> = Some(notebook.clone());
    let scene = Scene::with(PoolOptions { recorder, ..PoolOptions::default() });
    let mut builder = Builder::new("doubling", 0);
    builder.input("x", DataType::F32, &[named("n")]);
    let sum = builder.node("Add", &["x", "x"], &[]);
    builder.output("y", &sum, DataType::F32, &[named("n")]);
    let graphs = scene.import(&[builder.finish().unwrap()]);
    let of = |value: f32| {
        let tensor = Tensor::from_slice(&[1], &[value]).unwrap();
        request(&graphs[0], vec![("x".to_owned(), tensor)])
    };
    let pool = &scene.pool;
    // The rows of each program, piece by piece.
    let rows = |requests: Vec<Request>| async move {
        let forecast = pool.forecast(&workload(&requests)).await.unwrap();
        let (mix, _) = forecast.of(Strategy::Parallel).unwrap();
        let jobs = mix.stages.iter().flatten();
        let rows = jobs.map(|job| job.pieces.iter().map(|piece| piece.features.batch).collect());
        rows.collect::<Vec<Vec<usize>>>()
    };
    let three = || vec![of(1.0), of(2.0), of(3.0)];
    // The first two are tried one by one; three are no power of two.
    assert_eq!(rows(three()).await, [vec![1, 1], vec![1]]);
    pool.execute(&workload(&three()), Some(Strategy::Parallel)).await.unwrap();
    let proven = async {
        while pool.metrics().batches.proven == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), proven).await.expect("a proof");
    assert_eq!(rows(three()).await, [vec![2], vec![1]]);
    pool.execute(&workload(&three()), Some(Strategy::Parallel)).await.unwrap();
    pool.ledger().settled().await;
    // Each has its own row there and back, whatever ran with it.
    let is_row = |record: &Record| match record {
        Record::Inference(row) => row.bytes_moved == 8,
        _ => false,
    };
    assert_eq!(notebook.count(is_row), 6);
    // What is all the same proves nothing, so that four of it go two by two.
    assert_eq!(rows(vec![of(1.0), of(1.0), of(1.0), of(1.0)]).await, [vec![2], vec![2]]);
}

#[tokio::test]
async fn a_forecast_runs_nothing_and_says_how_unsure_it_is() {
    let (scene, requests, notebook) = scene(PoolOptions::default());
    let forecast = scene.pool.forecast(&workload(&requests)).await.unwrap();
    let (_, estimate) = forecast.of(Strategy::Sequential).unwrap();
    let latency = estimate.latency_seconds;
    assert!(0.0 < latency.low && latency.low < latency.value && latency.value < latency.high);
    assert!(estimate.terms.iter().any(|term| term.source == TermSource::Prior));
    scene.pool.ledger().settled().await;
    assert_eq!(notebook.count(|_| true), 0, "nothing ran");
    assert_eq!(scene.pool.metrics().throughput.answered, 0);
}

#[tokio::test]
async fn what_ran_alone_is_known_afterwards() {
    let (scene, requests, notebook) = scene(PoolOptions::default());
    let alone = Request { share: false, ..requests[2].clone() };
    for _ in 0..4 {
        scene.pool.run(&alone).await.unwrap();
    }
    scene.pool.ledger().settled().await;
    assert_eq!(notebook.count(|record| matches!(record, Record::Inference(_))), 4);
    assert_eq!(notebook.count(|record| matches!(record, Record::Run(_))), 4);
    let forecast = scene.pool.forecast(&workload(&[alone])).await.unwrap();
    let (_, estimate) = forecast.of(Strategy::Sequential).unwrap();
    assert!(estimate.terms.iter().any(|term| term.source == TermSource::Measured));

    // Another pool goes on from it.
    let learned = Some(scene.pool.ledger().snapshot());
    let known = Known { learned, ..Known::default() };
    let (other, requests, _) = self::scene(PoolOptions { known, ..PoolOptions::default() });
    let alone = Request { share: false, ..requests[2].clone() };
    let forecast = other.pool.forecast(&workload(&[alone])).await.unwrap();
    let (_, again) = forecast.of(Strategy::Sequential).unwrap();
    assert!(again.terms.iter().any(|term| term.source == TermSource::Measured));
}

#[tokio::test]
async fn a_comparison_runs_every_way_and_keeps_what_it_found() {
    let validation = ValidatorOptions { interval: 1, ..ValidatorOptions::default() };
    let (scene, requests, notebook) = scene(PoolOptions { validation, ..PoolOptions::default() });
    let compared = scene.pool.compare(&workload(&requests), 3).await.unwrap();
    assert_eq!(compared.ways.len(), 3);
    assert!(compared.ways.iter().all(|way| way.runs.len() == 3));
    assert!(compared.unshared.is_some(), "two of the models share a trunk");
    assert!(compared.regret >= 0.0 && (0.0..=1.0).contains(&compared.confidence));
    let best = compared.ways.iter().find(|way| way.strategy == compared.best).unwrap();
    for way in &compared.ways {
        assert!(best.measured().latency_seconds <= way.measured().latency_seconds);
        assert_eq!(way.measured().memory_bytes, None, "what all of them took together");
    }
    scene.pool.ledger().settled().await;
    // Groups of 4 and all at once are the same for 3 models; the third is the way without sharing.
    assert_eq!(notebook.count(|record| matches!(record, Record::Validation(_))), 3);
    assert!(notebook.count(|record| matches!(record, Record::Impact(_))) >= 1);
    let of_memory = |record: &Record| match record {
        Record::Impact(impact) => impact.optimized_memory.is_some(),
        Record::Validation(validation) => validation.actual_memory.is_some(),
        _ => false,
    };
    assert_eq!(notebook.count(of_memory), 0);
    // What was measured a moment ago is predicted better than by what ships: it is measured now.
    let forecast = scene.pool.forecast(&workload(&requests)).await.unwrap();
    let (_, estimate) = forecast.of(Strategy::Sequential).unwrap();
    assert!(estimate.observations > 0);
}

#[tokio::test]
async fn ways_are_not_compared_by_memory() {
    let (scene, requests, notebook) = scene(PoolOptions::default());
    let workload = Workload { goal: Goal::Memory, ..workload(&requests) };
    let refused = scene.pool.compare(&workload, 1).await;
    assert!(matches!(refused, Err(WorkloadError::ComparedByMemory)), "{refused:?}");
    scene.pool.ledger().settled().await;
    assert_eq!(notebook.count(|_| true), 0, "nothing ran");
    // What one way takes can be told.
    let done = scene.pool.execute(&workload, Some(Strategy::Sequential)).await.unwrap();
    assert!(done.measured.memory_bytes.is_none_or(|bytes| bytes > 1e6));
}

#[tokio::test]
async fn a_comparison_finds_nothing_that_the_one_before_has_computed() {
    let (scene, requests, notebook) = scene(PoolOptions::default());
    let mut runs = Vec::new();
    for _ in 0..2 {
        let before = notebook.count(|record| matches!(record, Record::Run(_)));
        scene.pool.compare(&workload(&requests), 1).await.unwrap();
        scene.pool.ledger().settled().await;
        runs.push(notebook.count(|record| matches!(record, Record::Run(_))) - before);
    }
    assert_eq!(runs[0], runs[1]);
}

#[tokio::test]
async fn what_cannot_be_predicted_is_run_as_the_settings_say() {
    let scene = Scene::new();
    // It says that both are of one length, and takes others.
    let mut builder = Builder::new("sum", 0);
    for input in ["x", "z"] {
        builder.input(input, DataType::F32, &[named("n")]);
    }
    let sum = builder.node("Add", &["x", "z"], &[]);
    builder.output("y", &sum, DataType::F32, &[named("n")]);
    let graphs = scene.import(&[builder.finish().unwrap()]);
    let input = |name: &str, values: &[f32]| {
        (name.to_owned(), Tensor::from_slice(&[values.len()], values).unwrap())
    };
    let odd = request(&graphs[0], vec![input("x", &[1.0]), input("z", &[1.0, 2.0, 3.0])]);
    let workload = workload(&[odd]);
    let forecast = scene.pool.forecast(&workload).await;
    assert!(matches!(forecast, Err(WorkloadError::Unknown { .. })), "{forecast:?}");
    let done = scene.pool.execute(&workload, None).await.unwrap();
    assert_eq!((done.strategy, done.estimate), (Strategy::Parallel, None));
    let sum = done.answers[0].outcome.output("y").unwrap();
    assert_eq!(sum.to_vec::<f32>().unwrap(), [2.0, 3.0, 4.0]);
}

#[tokio::test]
async fn a_request_that_fails_is_kept_with_its_class_and_ends_the_workload() {
    let (scene, mut requests, notebook) = scene(PoolOptions::default());
    requests[1].inputs.clear();
    let workload = workload(&requests);
    let error = scene.pool.execute(&workload, Some(Strategy::Sequential)).await.unwrap_err();
    assert!(matches!(&error, WorkloadError::Request { model, .. } if model == "test"), "{error}");
    scene.pool.ledger().settled().await;
    let failed = |record: &Record| match record {
        Record::Inference(row) => row.error_class.as_deref() == Some("caller"),
        _ => false,
    };
    assert_eq!(notebook.count(failed), 1);
    let nothing = Workload { requests: Vec::new(), goal: Goal::Latency };
    assert!(matches!(scene.pool.forecast(&nothing).await, Err(WorkloadError::Empty)));
}

#[tokio::test]
async fn what_is_learned_is_kept_while_the_pool_works_and_not_only_at_its_end() {
    let save_every = Duration::from_millis(5);
    let (scene, requests, notebook) = scene(PoolOptions { save_every, ..PoolOptions::default() });
    scene.pool.run(&requests[2]).await.unwrap();
    let is_snapshot = |record: &Record| matches!(record, Record::Predictor(_));
    let kept = async {
        while notebook.count(is_snapshot) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), kept).await.expect("a snapshot");
    assert_eq!(scene.pool.metrics().recorded, Some(notebook.kept()));
}

#[tokio::test]
async fn what_could_not_be_read_is_not_replaced() {
    let known = Known { incomplete: true, ..Known::default() };
    let (scene, requests, notebook) = scene(PoolOptions { known, ..PoolOptions::default() });
    scene.pool.run(&requests[2]).await.unwrap();
    scene.pool.ledger().settled().await;
    scene.pool.ledger().save();
    assert_eq!(notebook.count(|record| matches!(record, Record::Inference(_))), 1);
    assert_eq!(notebook.count(|record| matches!(record, Record::Predictor(_))), 0);
}

#[tokio::test]
async fn what_was_refined_before_a_restart_is_not_advised_again() {
    // Predicted too low, again and again.
    let validation = |minute: u64| ValidationRecord {
        timestamp: SystemTime::UNIX_EPOCH + Duration::from_secs(60 * minute),
        model_count: 2,
        hardware_platform: "cpu".to_owned(),
        execution_strategy: Strategy::Parallel,
        optimization_goal: Goal::Latency,
        predicted_throughput: 10.0,
        actual_throughput: 5.0,
        predicted_latency: 100.0,
        predicted_latency_low: 90.0,
        predicted_latency_high: 110.0,
        actual_latency: 200.0,
        predicted_memory: 100.0,
        actual_memory: None,
        model_configs: String::new(),
    };
    let advised = |refined: Option<u64>| {
        let refined = refined.map(|minute| validation(minute).timestamp);
        let validations = (0..20).map(validation).collect();
        let known = Known { validations, refined, ..Known::default() };
        let (scene, ..) = scene(PoolOptions { known, ..PoolOptions::default() });
        scene.pool.ledger().refine().len()
    };
    assert_eq!(advised(None), 1);
    assert_eq!(advised(Some(19)), 0, "nothing was validated since");
    assert_eq!(advised(Some(5)), 1, "what was validated since is off as well");
}
