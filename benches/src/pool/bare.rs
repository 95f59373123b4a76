//! A model over bare onnxruntime, as somebody would write it.

use std::sync::Arc;

use anyhow::Result;
use holdfast_devices::cpu::{CpuEngine, CpuOptions};
use holdfast_graph::{DataType, Model, Tensor};
use holdfast_models::Store;
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;

use crate::spine::cases::{Case, inputs};

pub(super) struct Bare {
    session: Session,
    inputs: Vec<(String, Tensor)>,
    /// Only for its environment: a process has one.
    _engine: CpuEngine,
    _home: tempfile::TempDir,
}

impl Bare {
    pub(super) fn new(case: &Case, tokens: usize, threads: usize) -> Result<Bare> {
        let home = tempfile::tempdir()?;
        let store = Arc::new(Store::open(home.path())?);
        let engine = CpuEngine::new(store, CpuOptions::default())?;
        let build = || -> ort::Result<Session> {
            Session::builder(engine.environment())?
                .with_optimization_level(GraphOptimizationLevel::All)?
                .with_intra_threads(threads)?
                .commit_from_file(case.path())
        };
        let session = build()?;
        let inputs = inputs(case, &Model::open(case.path())?.inputs(), 1, tokens)?;
        Ok(Bare { session, inputs, _engine: engine, _home: home })
    }

    /// Runs it once and copies what it gives, as a caller has to.
    pub(super) fn run(&mut self) -> Result<()> {
        let mut values = Vec::new();
        for (name, tensor) in &self.inputs {
            values.push((name.clone(), value(tensor)?));
        }
        let outputs = self.session.run(values)?;
        for output in outputs.values() {
            let (_, copied) = output.try_extract_tensor::<f32>()?;
            std::hint::black_box(copied.to_vec());
        }
        Ok(())
    }
}

fn value(tensor: &Tensor) -> Result<ort::value::DynValue> {
    let dims: Vec<i64> = tensor.dims().iter().map(|&dim| dim as i64).collect();
    Ok(match tensor.dtype() {
        DataType::F32 => {
            ort::value::Tensor::from_array((dims, tensor.to_vec::<f32>()?))?.into_dyn()
        }
        DataType::I64 => {
            ort::value::Tensor::from_array((dims, tensor.to_vec::<i64>()?))?.into_dyn()
        }
        DataType::I32 => {
            ort::value::Tensor::from_array((dims, tensor.to_vec::<i32>()?))?.into_dyn()
        }
        other => anyhow::bail!("no bare tensors of {other}"),
    })
}
