//! S3: sessions that share their weights.
//!
//! Memory is private bytes of a process of its own, above the same process with an empty engine.

use std::process::Command;

use anyhow::{Context, Result, bail};
use holdfast_devices::{Loaded, process_memory};
use holdfast_graph::{Tensor, encode};
use holdfast_testkit::Size;
use holdfast_testkit::synth::{Options, synth};
use serde::{Deserialize, Serialize};

use super::cases::{Bench, MINILM, Plain, inputs};
use crate::record::{Goal, Record};
use crate::timing::alternate;

/// What a child measured, in bytes above its empty engine.
#[derive(Serialize, Deserialize)]
struct Measured {
    after_first: u64,
    after_all: u64,
}

const MB: f64 = 1e6;
const ADAPTERS: usize = 4;
const RANK: usize = 8;

pub(super) fn run(record: &mut Record) -> Result<()> {
    let minilm = measure("minilm", &[])?;
    record.add(
        "S3.first",
        "MiniLM, first session",
        minilm.after_first as f64 / MB,
        "MB",
        "90.3 MB of weights",
        Goal::Report,
    );
    let more = minilm.after_all.saturating_sub(minilm.after_first) as f64 / MB;
    record.add(
        "S3.second",
        "MiniLM, second session: more",
        more,
        "MB",
        "the first session",
        Goal::AtMost(3.0),
    );

    let scratch = tempfile::tempdir()?;
    let options =
        Options { size: Size::new(12, 512), count: ADAPTERS, rank: RANK, ..Options::default() };
    let base = synth("bert".parse()?, &options)?.swap_remove(0);
    let members = synth("adapters".parse()?, &options)?;
    let base_path = scratch.path().join("base.onnx");
    std::fs::write(&base_path, encode(&base.model))?;
    let mut paths = Vec::new();
    for member in &members {
        let path = scratch.path().join(format!("{}.onnx", member.stem));
        std::fs::write(&path, encode(&member.model))?;
        paths.push(path);
    }
    let weight_bytes = |model: &holdfast_graph::Model| -> u64 {
        holdfast_graph::weights::weights(model).iter().map(|w| w.tensor.bytes().len() as u64).sum()
    };
    let base_bytes = weight_bytes(&base.model);
    let adapter_bytes: u64 = members.iter().map(|m| weight_bytes(&m.model) - base_bytes).sum();
    drop((base, members));

    let base_path_text = base_path.to_string_lossy().into_owned();
    let alone = measure("files", &[base_path_text])?;
    let names: Vec<String> = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let together = measure("files", &names)?;
    record.add(
        "S3.adapters",
        "4 rank-8 adapters on 12×512: total of (base session + adapters)",
        together.after_all as f64 / (alone.after_first + adapter_bytes) as f64,
        "×",
        "one base session + bytes of the adapters",
        Goal::AtMost(1.10),
    );
    speed(record, &paths)
}

/// The sharing sessions against plain ones.
fn speed(record: &mut Record, paths: &[std::path::PathBuf]) -> Result<()> {
    let bench = Bench::new()?;
    let mut first = bench.segment(&MINILM.path(), "minilm")?;
    bench.load(first.clone())?;
    first.dims.insert("batch_size".to_owned(), 1);
    let second = bench.load(first)?;
    let feed = inputs(&MINILM, &second.inputs, 1, 128)?;
    let mut plain = Plain::new(&bench, &MINILM.path())?;
    let [ours, theirs] = alternate(
        60,
        [&mut || bench.run(&second, &feed).map(drop), &mut || plain.run(&feed).map(drop)],
    )?;
    let peer = "plain session, default settings";
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    record.add(
        "S3.speed.minilm",
        "MiniLM, second session: time of a plain one",
        ratio,
        "×",
        peer,
        Goal::AtMost(1.03),
    );

    let mut loaded = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        loaded.push(bench.load(bench.segment(path, &format!("adapter-{index}"))?)?);
    }
    let last = loaded.last().context("there are adapters")?;
    let feed = inputs(&MINILM, &last.inputs, 1, 128)?;
    let path = paths.last().context("there are adapters")?;
    let mut plain = Plain::new(&bench, path)?;
    let [ours, theirs] = alternate(
        30,
        [&mut || bench.run(last, &feed).map(drop), &mut || plain.run(&feed).map(drop)],
    )?;
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    record.add(
        "S3.speed.adapter",
        "an adapter beside three others: time of a plain one",
        ratio,
        "×",
        peer,
        Goal::AtMost(1.03),
    );
    Ok(())
}

fn measure(what: &str, arguments: &[String]) -> Result<Measured> {
    let program = std::env::current_exe()?;
    let output =
        Command::new(program).args(["--child", "memory", what]).args(arguments).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "the measuring process failed: {stderr}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Loads and runs, and prints what that took.
pub(super) fn child(arguments: &[String]) -> Result<()> {
    let bench = Bench::new()?;
    let segments = match arguments {
        [what] if what == "minilm" => {
            let first = bench.segment(&MINILM.path(), "minilm")?;
            // The same graph for fixed batches is a session of its own.
            let mut second = first.clone();
            second.dims.insert("batch_size".to_owned(), 1);
            vec![first, second]
        }
        [what, files @ ..] if what == "files" => files
            .iter()
            .enumerate()
            .map(|(index, file)| bench.segment(std::path::Path::new(file), &format!("m{index}")))
            .collect::<Result<_>>()?,
        _ => bail!("expected `minilm` or `files FILE…`"),
    };
    // Lowering has touched the weights; what is measured is a process that only serves.
    let empty = private()?;
    let mut after = Vec::new();
    for segment in segments {
        let loaded: Loaded = bench.load(segment)?;
        let feed: Vec<(String, Tensor)> = inputs(&MINILM, &loaded.inputs, 1, 128)?;
        bench.run(&loaded, &feed)?;
        after.push(private()?.saturating_sub(empty));
    }
    let measured =
        Measured { after_first: after[0], after_all: *after.last().context("nothing was loaded")? };
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

fn private() -> Result<u64> {
    Ok(process_memory().context("this system does not tell private memory")?.private_bytes)
}
