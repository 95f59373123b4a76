//! What a browser holds: memory of its pages' processes, or the GPU buffers of its engine.
//!
//! Garbage is collected before each look, so that what nobody holds any more does not count.

use std::time::Duration;

use anyhow::{Context, Result};
use holdfast_devtools::{DevTools, Target};
use serde::Deserialize;
use serde_json::json;

use super::cases::Column;
use super::rig::Rig;

/// Evaluated in the engine's worker.
const COUNTER: &str = include_str!("../../pages/gpu-buffers.js");

pub(super) struct Gauge<'a> {
    rig: &'a Rig,
    devtools: DevTools,
    engine: Target,
    io: Target,
}

/// GPU buffers since the gauge was attached.
#[derive(Clone, Copy, Deserialize)]
pub(super) struct Buffers {
    /// Bytes of all that were created.
    pub(super) created: u64,
    /// Bytes of those that are still there.
    pub(super) there: u64,
}

impl<'a> Gauge<'a> {
    /// Looks into a browser whose engine has started, and will not be replaced.
    pub(super) async fn attach(rig: &'a Rig) -> Result<Gauge<'a>> {
        let devtools = rig.devtools().await?;
        let engine = devtools.target("worker", "engine-worker").await?;
        let io = devtools.target("worker", "io-worker").await?;
        if rig.column == Column::WebGpu {
            devtools.evaluate(&engine, COUNTER).await?;
        }
        Ok(Gauge { rig, devtools, engine, io })
    }

    /// Bytes of GPU buffers.
    pub(super) async fn buffers(&self) -> Result<Buffers> {
        self.collect_garbage().await?;
        // What was collected is told in a turn of its own.
        let counts = "new Promise((tell) => setTimeout(() => tell(self.gpuBuffers), 200))";
        let counts = self.devtools.evaluate(&self.engine, counts).await?;
        Ok(serde_json::from_value(counts)?)
    }

    /// PSS of the processes that pages run in, once it has stopped falling: what was let go is
    /// given back a little later.
    pub(super) async fn renderers(&self) -> Result<u64> {
        const LOOK: Duration = Duration::from_millis(100);
        self.collect_garbage().await?;
        let mut least = self.pss()?;
        let mut unchanged = 0;
        while unchanged < 10 {
            tokio::time::sleep(LOOK).await;
            let now = self.pss()?;
            unchanged = if now + (1 << 20) < least { 0 } else { unchanged + 1 };
            least = least.min(now);
        }
        Ok(least)
    }

    fn pss(&self) -> Result<u64> {
        let processes = self.rig.browser()?.processes();
        let mut renderers = processes.iter().filter(|process| process.role == "renderer");
        renderers.try_fold(0, |sum, process| Ok(sum + proportional_bytes(process.pid)?))
    }

    async fn collect_garbage(&self) -> Result<()> {
        // Twice: what the first time leaves unreachable goes the second time.
        for target in [&self.engine, &self.io, &self.engine, &self.io] {
            self.devtools.call(Some(target), "HeapProfiler.collectGarbage", json!({})).await?;
        }
        Ok(())
    }
}

fn proportional_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kilobytes.with_context(|| format!("{path} tells no PSS"))? << 10)
}
