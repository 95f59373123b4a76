//! S6: an import that is killed at any moment, and a reader that is fed anything.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_graph::encode;
use holdfast_models::Store;
use holdfast_testkit::Size;
use holdfast_testkit::crash::kill_during;
use holdfast_testkit::synth::{Options, synth};

use crate::machine::workspace;
use crate::record::{Goal, Record};

const KILLS: usize = 200;
const FUZZ_SECONDS: u64 = 30 * 60;

/// Kills real imports, at moments spread over the time that one takes, and looks at the store.
pub(super) fn kills(record: &mut Record) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let home = scratch.path().join("home");
    let program = std::env::current_exe()?.with_file_name("holdfast");
    ensure!(program.is_file(), "{} is missing: use `cargo xtask bench`", program.display());
    let mut files = Vec::new();
    // Two versions of one model that have most weights in common: the name is replaced each time.
    for seed in [0, 1] {
        let options = Options { size: Size::new(3, 192), count: 2, seed: 7, ..Options::default() };
        let member = synth("heads".parse()?, &options)?.swap_remove(seed);
        let path = scratch.path().join(format!("{seed}.onnx"));
        std::fs::write(&path, encode(&member.model))?;
        files.push(path);
    }
    let import = |round: usize| {
        let mut command = Command::new(&program);
        command.arg("import").arg(&files[round % 2]).args(["--name", "model"]);
        command.env("HOLDFAST_HOME", &home);
        command
    };
    ensure!(import(1).output()?.status.success(), "the first import failed");
    let mut broken = 0;
    let look = |_, _| -> Result<()> {
        let store = Store::open(&home)?;
        let report = store.verify(None)?;
        broken += u32::from(!report.problems.is_empty() || report.models != 1);
        // The next import has new blobs to write: those of the other version are collected.
        store.gc(false)?;
        Ok(())
    };
    kill_during(KILLS, 6, import, look)?;
    record.add(
        "S6.kills",
        &format!("{KILLS} imports killed, each at another moment: broken stores"),
        f64::from(broken),
        "stores",
        "",
        Goal::AtMost(0.0),
    );
    Ok(())
}

/// Fuzzes the reader. The target itself fails on a panic and on memory beyond its limit.
pub(super) fn fuzz(record: &mut Record) -> Result<()> {
    let folder = workspace().join("crates/graph");
    let limit = format!("-max_total_time={FUZZ_SECONDS}");
    let corpus = tempfile::tempdir()?;
    let seeded = Command::new("cargo")
        .args(["run", "--quiet", "--release", "--example", "seeds", "--"])
        .arg(corpus.path())
        .current_dir(&folder)
        .status()?;
    ensure!(seeded.success(), "cannot make seeds for the fuzzer");
    let started = Instant::now();
    let status = Command::new("cargo")
        .args(["+nightly", "fuzz", "run", "read"])
        .arg(corpus.path())
        .args(["tests/corpus", "--", "-max_len=8192", "-rss_limit_mb=4096", &limit])
        .current_dir(&folder)
        .status()
        .context(
            "cannot start the fuzzer: it needs a nightly toolchain and `cargo install cargo-fuzz`",
        )?;
    let whole = started.elapsed() >= Duration::from_secs(FUZZ_SECONDS);
    ensure!(whole || !status.success(), "the fuzzer stopped early without finding anything");
    record.add(
        "S6.fuzz",
        "30 minutes of fuzzing the reader: panics or memory beyond the limit",
        f64::from(u8::from(!status.success())),
        "findings",
        "2 × the file + 64 MiB",
        Goal::AtMost(0.0),
    );
    Ok(())
}
