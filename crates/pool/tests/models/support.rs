//! A pool over the real engine, and models to run in it.

use std::sync::Arc;

use holdfast_devices::ModelKind;
use holdfast_graph::{Model, Tensor, encode};
use holdfast_models::{ImportOptions, Store, StoredGraph};
use holdfast_pool::{Answer, Pool, PoolOptions, Priority, Request, Reused};
use holdfast_testkit::synth::{Options, synth};
use tempfile::TempDir;

/// A pool over a store of its own.
pub(crate) struct Scene {
    pub(crate) pool: Pool,
    pub(crate) store: Arc<Store>,
    pub(crate) folder: TempDir,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene::with(PoolOptions::default())
    }

    pub(crate) fn with(options: PoolOptions) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path().join("home")).unwrap());
        let pool = Pool::new(store.clone(), options).unwrap();
        Scene { pool, store, folder }
    }

    pub(crate) fn import(&self, models: &[Model]) -> Vec<StoredGraph> {
        let import = |(number, model): (usize, &Model)| {
            let path = self.folder.path().join(format!("model-{number}.onnx"));
            std::fs::write(&path, encode(model)).unwrap();
            let imported = self.store.import(&path, &ImportOptions::default(), &mut |_| ());
            imported.unwrap().manifest.components[0].graph.clone()
        };
        models.iter().enumerate().map(import).collect()
    }

    /// Runs them together, and each alone. The answers of the former, which have the bits of the
    /// latter.
    pub(crate) async fn check(&self, requests: &[Request]) -> Vec<Answer> {
        let together = self.pool.run_concurrent(requests).await;
        let mut answers = Vec::new();
        for (request, answer) in requests.iter().zip(together) {
            let alone = Request { share: false, ..request.clone() };
            let alone = self.pool.run(&alone).await.unwrap();
            let answer = answer.unwrap();
            assert!(same(&answer, &alone), "a shared run differs from one alone");
            assert_eq!(alone.reused, Reused::default());
            answers.push(answer);
        }
        answers
    }

    pub(crate) fn verdicts(&self) -> Vec<std::path::PathBuf> {
        let folder = std::fs::read_dir(self.store.home().join("verdicts")).unwrap();
        folder.map(|entry| entry.unwrap().path()).collect()
    }
}

pub(crate) fn same(one: &Answer, other: &Answer) -> bool {
    let outputs = |answer: &Answer| -> Vec<(String, Tensor)> {
        let outputs = answer.outcome.outputs.iter();
        outputs.map(|output| (output.name.clone(), output.tensor.clone())).collect()
    };
    outputs(one) == outputs(other)
}

pub(crate) fn request(graph: &StoredGraph, inputs: Vec<(String, Tensor)>) -> Request {
    Request {
        model: "test".to_owned(),
        graph: graph.clone(),
        kind: ModelKind::Text,
        inputs,
        choices: "cpu".parse().unwrap(),
        priority: Priority::Normal,
        share: true,
        namespace: String::new(),
        deadline: None,
    }
}

/// Heads on one trunk.
pub(crate) fn heads(count: usize) -> Vec<Model> {
    let options = Options { count, ..Options::default() };
    let members = synth("heads".parse().unwrap(), &options).unwrap();
    members.into_iter().map(|member| member.model).collect()
}

/// A text of so many tokens, for every model on a BERT.
pub(crate) fn text(first: i64, tokens: usize) -> Vec<(String, Tensor)> {
    let of = |value: &dyn Fn(usize) -> i64| {
        let values: Vec<i64> = (0..tokens).map(value).collect();
        Tensor::from_slice(&[1, tokens], &values).unwrap()
    };
    vec![
        ("input_ids".to_owned(), of(&|index| (first + index as i64 * 7) % 250)),
        ("attention_mask".to_owned(), of(&|_| 1)),
        ("token_type_ids".to_owned(), of(&|_| 0)),
    ]
}
