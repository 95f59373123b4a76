//! S4 and S5: reading a large model, and importing what is there already.

use std::ffi::OsStr;
use std::time::Instant;

use anyhow::{Context, Result};
use holdfast_graph::{Fingerprints, Model, encode};
use holdfast_models::{ImportOptions, Store, hashed_weights};
use holdfast_testkit::Size;
use holdfast_testkit::synth::{Options, synth};

use super::cases::MINILM;
use crate::python;
use crate::record::{Goal, Record};

const ROUNDS: usize = 20;

pub(super) fn run(record: &mut Record) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let path = scratch.path().join("large.onnx");
    let options = Options { size: Size::new(11, 768), ..Options::default() };
    let member = synth("bert".parse()?, &options)?.swap_remove(0);
    std::fs::write(&path, encode(&member.model))?;
    drop(member);

    let mut fastest = f64::MAX;
    let mut weight_bytes = 0;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let model = Model::open(&path)?;
        let weights = hashed_weights(&model);
        let structure = Fingerprints::new(&model, &weights).model();
        fastest = fastest.min(started.elapsed().as_secs_f64());
        structure.context("the model depends on no chance")?;
        weight_bytes = weights.entries().iter().map(|weight| weight.tensor.bytes().len()).sum();
    }
    let rounds = ROUNDS.to_string();
    let theirs: f64 =
        python::run("load_time.py", &[path.as_os_str(), OsStr::new(&rounds)])?.trim().parse()?;
    let megabytes = weight_bytes / 1_000_000;
    record.add(
        "S4.python",
        &format!("open and fingerprint {megabytes} MB: time of Python onnx.load"),
        fastest / theirs,
        "×",
        "onnx.load of the same file",
        Goal::AtMost(1.0),
    );
    record.add(
        "S4.rate",
        &format!("open and fingerprint {megabytes} MB: weights per second"),
        weight_bytes as f64 / fastest / 1e9,
        "GB/s",
        "",
        Goal::AtLeast(1.0),
    );
    Ok(())
}

pub(super) fn import(record: &mut Record) -> Result<()> {
    let home = tempfile::tempdir()?;
    let store = Store::open(home.path())?;
    let import = |name: &str| {
        let options = ImportOptions { name: Some(name.to_owned()), ..ImportOptions::default() };
        store.import(&MINILM.path(), &options, &mut |_| ())
    };
    import("first")?;
    let again = import("second")?;
    record.add(
        "S5",
        "MiniLM under a second name: weight bytes written",
        again.written.bytes as f64,
        "B",
        &format!("{} bytes of weights", again.weight_bytes),
        Goal::AtMost(0.0),
    );
    Ok(())
}
