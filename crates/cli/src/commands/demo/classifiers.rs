//! Three real classifiers on the real MiniLM, trained on the demo's texts.
//!
//! Each becomes a whole model of its own, as anybody would publish it: the unchanged graph of
//! MiniLM with a head behind it, its tokenizer, and the names of its classes. That they have a
//! trunk in common is written nowhere; Holdfast has to find it.

use std::path::Path;
use std::thread;

use anyhow::Context;
use bytes::Bytes;
use holdfast_devices::ModelKind;
use holdfast_graph::encode;
use holdfast_models::input::{Pooling, PoolingMode, Sidecars, TextInput, pool};
use holdfast_models::{Manifest, Store};
use holdfast_pool::{Choice, Choices, Pool, Priority, Request};
use serde_json::{Value, json};

use super::head::Head;
use super::minilm;
use super::texts::{Labelled, Task};
use super::train::{Example, right, train};
use super::workshop::{Workshop, write};

/// A classifier that was trained, and how good it is on texts that it has not seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trained {
    pub(crate) name: String,
    pub(crate) labels: Vec<String>,
    pub(crate) trained_on: usize,
    pub(crate) held_out: usize,
    pub(crate) right: usize,
}

/// Texts that go through the model at once.
const ROWS: usize = 16;

/// Trains a classifier for each task and imports it under the task's name. Their folders are left
/// in `keep`, if given.
pub(crate) async fn make(
    workshop: &Workshop,
    base: &Manifest,
    tasks: &[Task],
    keep: Option<&Path>,
) -> anyhow::Result<Vec<Trained>> {
    let embedder = Embedder::new(&workshop.store, &workshop.pool, base)?;
    let mut lessons = Vec::new();
    for task in tasks {
        workshop.spinner.say(format!("embedding the texts of {}", task.name));
        let examples = embedder.examples(&task.texts).await?;
        let held_out = task.texts.iter().map(|text| text.held_out);
        let (to_test, to_learn): (Vec<_>, Vec<_>) =
            examples.into_iter().zip(held_out).partition(|(_, held_out)| *held_out);
        let examples = |some: Vec<(Example, bool)>| some.into_iter().map(|(e, _)| e).collect();
        lessons.push(Lesson { task, to_learn: examples(to_learn), to_test: examples(to_test) });
    }
    workshop.spinner.say("training the classifiers");
    let heads = train_all(&lessons)?;
    let mut made = Vec::new();
    for (Lesson { task, to_learn, to_test }, head) in lessons.iter().zip(heads) {
        let kept = keep.map(|folder| folder.join(task.name));
        let folder = kept.clone().unwrap_or_else(|| workshop.path(task.name));
        workshop.spinner.say(format!("writing the classifier for {}", task.name));
        write_folder(&workshop.store, base, task, &head, &folder)?;
        workshop.import(task.name, &folder)?;
        if kept.is_none() {
            std::fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        made.push(Trained {
            name: task.name.to_owned(),
            labels: task.labels.iter().map(|label| (*label).to_owned()).collect(),
            trained_on: to_learn.len(),
            held_out: to_test.len(),
            right: right(&head, to_test),
        });
    }
    Ok(made)
}

/// A task, what to learn it from, and what to test it on.
struct Lesson<'a> {
    task: &'a Task,
    to_learn: Vec<Example>,
    to_test: Vec<Example>,
}

/// Trains the heads at the same time.
fn train_all(lessons: &[Lesson<'_>]) -> anyhow::Result<Vec<Head>> {
    thread::scope(|scope| {
        let mut learning = Vec::new();
        for Lesson { task, to_learn, .. } in lessons {
            learning.push(scope.spawn(|| train(to_learn, task.labels.len())));
        }
        let done = |thread: thread::ScopedJoinHandle<'_, anyhow::Result<Head>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("training has panicked")))
        };
        learning.into_iter().map(done).collect()
    })
}

/// Turns texts into vectors, as `holdfast run --pool mean` does.
struct Embedder<'a> {
    pool: &'a Pool,
    text: TextInput,
    request: Request,
}

impl<'a> Embedder<'a> {
    fn new(store: &Store, pool: &'a Pool, base: &Manifest) -> anyhow::Result<Embedder<'a>> {
        let component = minilm::component(base)?;
        let inputs = store.open_graph(&component.graph)?.inputs();
        let request = Request {
            model: base.name.clone(),
            graph: component.graph.clone(),
            kind: ModelKind::Text,
            inputs: Vec::new(),
            choices: Choices::Ordered(vec![Choice::Cpu]),
            priority: Priority::Normal,
            deadline: None,
            share: false,
            namespace: String::new(),
        };
        let sidecars: Sidecars = store.files(base)?.into_iter().collect();
        Ok(Embedder { pool, text: TextInput::new(&sidecars, &inputs)?, request })
    }

    async fn examples(&self, texts: &[Labelled]) -> anyhow::Result<Vec<Example>> {
        let mut examples = Vec::new();
        for texts in texts.chunks(ROWS) {
            let batch: Vec<&str> = texts.iter().map(|text| text.text).collect();
            let prepared = self.text.prepare(&batch)?;
            let request = Request { inputs: prepared.tensors, ..self.request.clone() };
            let answer = self.pool.run(&request).await?;
            let vectors = answer.outcome.outputs.iter().find(|o| o.tensor.dims().len() == 3);
            let vectors = vectors.context("the model gives no token vectors")?;
            let mask = prepared.mask.context("the tokenizer gives no mask")?;
            let mean = Pooling { mode: PoolingMode::Mean, normalize: false };
            let embeddings = pool(&vectors.tensor, &mask, mean)?;
            let width = embeddings.dims().last().copied().unwrap_or(1).max(1);
            let rows = embeddings.to_vec::<f32>()?;
            let rows = rows.chunks(width).map(<[f32]>::to_vec).zip(texts);
            examples.extend(rows.map(|(embedding, text)| Example { embedding, label: text.label }));
        }
        Ok(examples)
    }
}

/// Writes a classifier in the way that `holdfast import` and others expect.
fn write_folder(
    store: &Store,
    base: &Manifest,
    task: &Task,
    head: &Head,
    folder: &Path,
) -> anyhow::Result<()> {
    let model = head.on(store.open_graph(&minilm::component(base)?.graph)?)?;
    write(&folder.join("onnx/model.onnx"), &encode(&model))?;
    for (name, bytes) in store.files(base)? {
        let bytes = match name.as_str() {
            "config.json" => config(&bytes, task)?,
            // How a sentence embedder pools says nothing about a classifier.
            "modules.json" | "1_Pooling/config.json" => continue,
            _ => bytes,
        };
        write(&folder.join(name), &bytes)?;
    }
    Ok(())
}

/// The model's configuration with the classes.
fn config(original: &[u8], task: &Task) -> anyhow::Result<Bytes> {
    let mut config: Value = serde_json::from_slice(original)
        .with_context(|| format!("cannot read config.json of {}", minilm::NAME))?;
    let labels = task.labels.iter().enumerate();
    config["architectures"] = json!(["BertForSequenceClassification"]);
    config["id2label"] = labels.clone().map(|(id, label)| (id.to_string(), json!(label))).collect();
    config["label2id"] = labels.map(|(id, label)| ((*label).to_owned(), json!(id))).collect();
    config["problem_type"] = json!("single_label_classification");
    Ok(serde_json::to_vec_pretty(&config)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::demo::texts::tasks;

    #[test]
    fn a_configuration_gets_the_classes_and_keeps_the_rest() {
        let task = &tasks().unwrap()[1];
        let written = config(br#"{"hidden_size": 384}"#, task).unwrap();
        let config: Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(config["hidden_size"], 384);
        assert_eq!(config["id2label"], json!({ "0": "positive", "1": "negative" }));
        assert_eq!(config["label2id"], json!({ "positive": 0, "negative": 1 }));
    }

    #[test]
    fn what_is_no_configuration_is_refused() {
        let task = &tasks().unwrap()[1];
        let error = config(b"not json", task).unwrap_err().to_string();
        assert!(error.contains("cannot read config.json"), "{error}");
    }
}
