//! The plain way on the processor: one session of the bare library for each lowered model, with
//! its default settings, weights from the store's blob files.

use std::ops::Range;

use anyhow::{Context, Result, bail};
use holdfast_devices::cpu::{CpuEngine, Target};
use holdfast_graph::{DataType, Tensor};
use holdfast_models::Store;
use ort::session::Session;
use ort::value::DynValue;

use super::rig::Rig;

pub(super) struct Bare(Vec<Session>);

/// What a model gives, in order.
pub(super) type Outputs = Vec<Vec<u8>>;

impl Bare {
    /// A session for each model of a rig.
    pub(super) async fn new(rig: &Rig) -> Result<Bare> {
        let engine = rig.pool.engine();
        let mut sessions = Vec::new();
        for (graph, _) in &rig.models {
            let lowered = engine.lower(graph, Target::Cpu, &Default::default()).await?;
            sessions.push(session(engine, &rig.store, &rig.store.blob(&lowered.graph)?)?);
        }
        Ok(Bare(sessions))
    }

    /// Runs one model and copies what it gives, as a caller has to.
    pub(super) fn run(&mut self, model: usize, inputs: &[(String, Tensor)]) -> Result<Outputs> {
        run(&mut self.0[model], inputs)
    }

    /// Some of the models, one after the other. There are inputs for all.
    pub(super) fn run_in_turn(
        &mut self,
        models: Range<usize>,
        inputs: &[Vec<(String, Tensor)>],
    ) -> Result<()> {
        models.into_iter().try_for_each(|model| self.run(model, &inputs[model]).map(drop))
    }

    /// Some of the models at once.
    pub(super) fn run_at_once(
        &mut self,
        models: Range<usize>,
        inputs: &[Vec<(String, Tensor)>],
    ) -> Result<()> {
        std::thread::scope(|scope| {
            let sessions = self.0[models.clone()].iter_mut().zip(&inputs[models]);
            let runs: Vec<_> = sessions
                .map(|(session, inputs)| scope.spawn(move || run(session, inputs).map(drop)))
                .collect();
            runs.into_iter().try_for_each(|run| run.join().expect("a run does not panic"))
        })
    }
}

fn session(engine: &CpuEngine, store: &Store, graph: &[u8]) -> Result<Session> {
    let blobs = store.blobs_folder().to_string_lossy().into_owned();
    let build = || -> ort::Result<Session> {
        Session::builder(engine.environment())?
            .with_config_entry("session.model_external_initializers_file_folder_path", blobs)?
            .commit_from_memory(graph)
    };
    build().context("a bare session")
}

fn run(session: &mut Session, inputs: &[(String, Tensor)]) -> Result<Outputs> {
    let given = inputs.iter().map(|(name, tensor)| Ok((name.clone(), value(tensor)?)));
    let given = given.collect::<Result<Vec<_>>>()?;
    let outputs = session.run(given)?;
    let copy = |output: &DynValue| -> Result<Vec<u8>> {
        let (_, numbers) = output.try_extract_tensor::<f32>()?;
        Ok(numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    };
    outputs.values().map(|output| copy(&output)).collect()
}

fn value(tensor: &Tensor) -> Result<DynValue> {
    let dims: Vec<i64> = tensor.dims().iter().map(|&dim| dim as i64).collect();
    Ok(match tensor.dtype() {
        DataType::F32 => {
            ort::value::Tensor::from_array((dims, tensor.to_vec::<f32>()?))?.into_dyn()
        }
        DataType::I64 => {
            ort::value::Tensor::from_array((dims, tensor.to_vec::<i64>()?))?.into_dyn()
        }
        other => bail!("no bare tensors of {other}"),
    })
}
