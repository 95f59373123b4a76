//! H1, H4, H5, H6: what models add to a warmed empty engine, with what they have in common held
//! once and without.
//!
//! On the processor these are private bytes, each way in a process of its own. In browsers it is
//! the memory of the renderer (WebAssembly) or the GPU buffers that are there (WebGPU), each way in
//! a browser of its own. Plans were tried before, as they are for every start but the first.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use holdfast_devices::process_memory;
use holdfast_pool::PoolOptions;
use serde::{Deserialize, Serialize};

use super::bare::Bare;
use super::cases::{Column, Family};
use super::gauge::Gauge;
use super::home::Homes;
use super::rig::Rig;
use crate::record::{Goal, Record};

const MB: f64 = 1e6;

/// How the models of a family are held.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// With what they have in common held once.
    Shared,
    /// In the pool, each on its own.
    Apart,
    /// In bare sessions of the library.
    Bare,
}

impl Way {
    const ALL: [Way; 3] = [Way::Shared, Way::Apart, Way::Bare];

    fn name(self) -> &'static str {
        match self {
            Way::Shared => "shared",
            Way::Apart => "apart",
            Way::Bare => "bare",
        }
    }
}

/// What a family added.
#[derive(Serialize, Deserialize)]
struct Added {
    bytes: u64,
    /// Of all GPU buffers that were created for it, those that are gone included.
    created_bytes: Option<u64>,
    /// What the pool itself counts as weights; zero without one.
    weight_bytes: u64,
}

/// A row of the table: its goals for the processor, WebAssembly and WebGPU.
pub(super) struct Row {
    pub(super) id: &'static str,
    family: Family,
    goals: [f64; 3],
}

#[rustfmt::skip]
pub(super) const ROWS: [Row; 4] = [
    Row { id: "H1", family: Family::Heads, goals: [0.38, 0.42, 0.45] },
    Row { id: "H4", family: Family::Adapters, goals: [0.32, 0.50, 0.40] },
    Row { id: "H5", family: Family::Twins, goals: [0.58, 0.70, 0.62] },
    Row { id: "H6", family: Family::Unrelated, goals: [1.03, 1.05, 1.05] },
];

impl Row {
    fn goal(&self, column: Column) -> Goal {
        let [cpu, wasm, webgpu] = self.goals;
        Goal::AtMost(match column {
            Column::Cpu => cpu,
            Column::Wasm => wasm,
            Column::WebGpu => webgpu,
        })
    }
}

pub(super) async fn run(
    record: &mut Record,
    homes: &mut Homes,
    row: &Row,
    column: Column,
) -> Result<()> {
    let home = homes.of(row.family).await?;
    // For models that have nothing in common, the question is what it costs to look for it.
    let plain = match (row.family, column) {
        (Family::Unrelated, _) | (_, Column::Wasm | Column::WebGpu) => Way::Apart,
        (_, Column::Cpu) => Way::Bare,
    };
    let shared = measure(home, column, Way::Shared).await?;
    let plain_added = measure(home, column, plain).await?;
    let (ours, theirs) = (shared.bytes as f64, plain_added.bytes as f64);
    let how = match plain {
        Way::Bare => "bare sessions of the lowered graphs, default settings",
        Way::Apart | Way::Shared => "one plain session for each in the pool",
    };
    let of = match column {
        Column::Cpu => "private bytes",
        Column::Wasm => "PSS of the renderer",
        Column::WebGpu => "GPU buffers that are there",
    };
    let peer = format!(
        "{how}: {:.1} MB, ours {:.1} MB of {of}; weights as the pool counts them: {:.1} MB",
        theirs / MB,
        ours / MB,
        shared.weight_bytes as f64 / MB,
    );
    let part = if row.family == Family::Unrelated { ".memory" } else { "" };
    let id = format!("{}{part}.{}", row.id, column.name());
    let what = format!("{}: memory ({})", row.family.name(), column.sizes());
    record.add(&id, &what, ours / theirs, "×", &peer, row.goal(column));
    if let (Some(ours), Some(theirs)) = (shared.created_bytes, plain_added.created_bytes) {
        let what = format!("{}: all GPU buffers that were created", row.family.name());
        let (ours, theirs) = (ours as f64, theirs as f64);
        let peer = format!("{how}: {:.1} MB, ours {:.1} MB", theirs / MB, ours / MB);
        record.add(&format!("{id}.created"), &what, ours / theirs, "×", &peer, Goal::Report);
    }
    // An engine may hold more than it has to. Nobody can hold less than the weights of each model.
    if column == Column::WebGpu {
        let least = plain_added.weight_bytes as f64;
        let what = format!("{}: GPU buffers beside bare weights", row.family.name());
        let peer = format!("the weights of each model, once: {:.1} MB", least / MB);
        record.add(&format!("{id}.weights"), &what, ours / least, "×", &peer, Goal::Report);
    }
    Ok(())
}

async fn measure(home: &Path, column: Column, way: Way) -> Result<Added> {
    match column {
        Column::Cpu => in_a_process(home, way),
        Column::Wasm | Column::WebGpu => in_a_browser(home, column, way == Way::Shared).await,
    }
}

fn in_a_process(home: &Path, way: Way) -> Result<Added> {
    let output = Command::new(std::env::current_exe()?)
        .args(["--child", "sharing", way.name()])
        .arg(home)
        .output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the measuring process failed: {stderr}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The part of a process: loads and runs, and prints what that took.
pub(super) async fn child(arguments: &[String]) -> Result<()> {
    let [way, home] = arguments else { bail!("expected a way and a store") };
    let way = Way::ALL.into_iter().find(|known| known.name() == way);
    let way = way.context("the way is `shared`, `apart` or `bare`")?;
    let rig = Rig::open(Path::new(home), Column::Cpu, PoolOptions::default()).await?;
    let warm = rig.warm_up().await?;
    let empty = private()?;
    let requests = rig.requests(1, way == Way::Shared)?;
    let mut bare = None;
    if way == Way::Bare {
        let bare = bare.insert(Bare::new(&rig).await?);
        for (model, request) in requests.iter().enumerate() {
            bare.run(model, &request.inputs)?;
        }
    } else {
        rig.run(&requests).await?;
    }
    // With a load, the engine has the allocator give back what is free. Bare sessions get that too.
    rig.device.unload(warm.id).await?;
    rig.warm_up().await?;
    let bytes = private()?.saturating_sub(empty);
    let added = Added { bytes, created_bytes: None, weight_bytes: weight_bytes(&rig) };
    println!("{}", serde_json::to_string(&added)?);
    drop(bare);
    Ok(())
}

async fn in_a_browser(home: &Path, column: Column, share: bool) -> Result<Added> {
    let rig = Rig::open(home, column, PoolOptions::default()).await?;
    rig.warm_up().await?;
    let gauge = Gauge::attach(&rig).await?;
    let requests = rig.requests(1, share)?;
    let added = if column == Column::WebGpu {
        rig.run(&requests).await?;
        let buffers = gauge.buffers().await?;
        let (bytes, created_bytes) = (buffers.there, Some(buffers.created));
        Added { bytes, created_bytes, weight_bytes: weight_bytes(&rig) }
    } else {
        let empty = gauge.renderers().await?;
        rig.run(&requests).await?;
        let bytes = gauge.renderers().await?.saturating_sub(empty);
        Added { bytes, created_bytes: None, weight_bytes: weight_bytes(&rig) }
    };
    drop(gauge);
    rig.close().await?;
    Ok(added)
}

fn weight_bytes(rig: &Rig) -> u64 {
    rig.pool.metrics().devices.iter().map(|device| device.weight_bytes).sum()
}

fn private() -> Result<u64> {
    Ok(process_memory().context("this system does not tell private memory")?.private_bytes)
}
