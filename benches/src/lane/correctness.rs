//! W1: the same answers as the in-process engine, on every backend.

use anyhow::{Result, ensure};
use holdfast_devices::{Device, Segment};
use holdfast_wire::Backend;

use super::models::{Sample, determinant};
use super::rig::{self, Rig};
use crate::compare::difference;
use crate::record::{Goal, Record};
use crate::spine::cases::{MINILM, REAL};

pub(super) async fn run(record: &mut Record) -> Result<()> {
    wasm(record).await?;
    webnn(record).await?;
    webgpu(record).await
}

async fn wasm(record: &mut Record) -> Result<()> {
    let rig = Rig::new().await?;
    let (browser, lane) = rig.browser(Backend::Wasm).await?;
    record.version("browser", &browser.name());
    record.version("engine", &lane.info().engine);
    for case in &REAL {
        let sample = Sample::real(&rig, case, 2, 32).await?;
        compare(record, &rig, &lane, case.id, &sample, 1e-4).await?;
    }
    rig.close(browser).await
}

async fn webnn(record: &mut Record) -> Result<()> {
    let rig = Rig::new().await?;
    let (browser, lane) = rig.browser(Backend::Webnn).await?;
    for case in REAL.iter().filter(|case| ["minilm", "magika"].contains(&case.id)) {
        let sample = Sample::real(&rig, case, 2, 32).await?;
        compare(record, &rig, &lane, case.id, &sample, 1e-3).await?;
    }
    refusal(record, &rig, &lane).await?;
    rig.close(browser).await
}

async fn webgpu(record: &mut Record) -> Result<()> {
    let rig = Rig::new().await?;
    let (browser, lane) = rig.browser(Backend::Webgpu).await?;
    let samples = [
        ("tiny-bert", Sample::tiny_bert(&rig, 16).await?),
        ("tiny-vit", Sample::tiny_vit(&rig).await?),
        (MINILM.id, Sample::real(&rig, &MINILM, 1, 16).await?),
    ];
    for (id, sample) in &samples {
        compare(record, &rig, &lane, id, sample, 1e-3).await?;
    }
    refusal(record, &rig, &lane).await?;
    rig.close(browser).await
}

async fn compare(
    record: &mut Record,
    rig: &Rig,
    lane: &holdfast_devices::lane::Lane,
    id: &str,
    sample: &Sample,
    tolerance: f64,
) -> Result<()> {
    let backend = lane.backend().name();
    let measure = async {
        let segment = rig.segment(&sample.graph, lane.target(), &sample.inputs).await?;
        let loaded = lane.load(segment).await?;
        // The second answer has to be right too: what the first left behind must not show.
        let mut worst = 0f64;
        for _ in 0..2 {
            let answer = rig::run(lane, &loaded, &sample.inputs).await?;
            ensure!(answer.len() == sample.expected.len(), "outputs are missing");
            for (ours, theirs) in answer.iter().zip(&sample.expected) {
                worst = worst.max(difference(ours, theirs)?);
            }
        }
        lane.unload(loaded.id).await?;
        anyhow::Ok((worst, loaded.placement))
    };
    let (worst, peer) = match measure.await {
        Ok((worst, None)) => (worst, "CPU engine".to_owned()),
        Ok((worst, Some(placement))) => (worst, format!("CPU engine ({placement})")),
        // No answer is as far off as can be; the other models are still measured.
        Err(error) => (f64::INFINITY, format!("CPU engine (it failed: {error:#})")),
    };
    let what = format!("{id} on {backend}: largest difference from the CPU engine");
    record.add(&format!("W1.{backend}.{id}"), &what, worst, "abs", &peer, Goal::AtMost(tolerance));
    Ok(())
}

/// A model that the backend cannot run is refused by the name of its operator.
async fn refusal(
    record: &mut Record,
    rig: &Rig,
    lane: &holdfast_devices::lane::Lane,
) -> Result<()> {
    let backend = lane.backend().name();
    let graph = rig.add(&determinant()?, "determinant")?;
    let graph = rig.engine.lower(&graph, lane.target(), &Default::default()).await?;
    let named = match lane.load(Segment::new(graph)).await {
        Ok(_) => false,
        Err(error) => error.to_string().contains("Det"),
    };
    record.add(
        &format!("W1.{backend}.refusal"),
        &format!("an operator that {backend} lacks is named in the error"),
        f64::from(u8::from(named)),
        "of 1",
        "the operator",
        Goal::AtLeast(1.0),
    );
    Ok(())
}
