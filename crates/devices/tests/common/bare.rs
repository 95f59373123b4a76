//! A plain session of the same library, to compare the engine with.

use holdfast_devices::cpu::CpuEngine;
use holdfast_graph::{DataType, Tensor};
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{Session, SessionInputValue};
use ort::value::TensorElementType;

use super::Named;

/// A session as anyone would make it from a model file, with one thread; `None` leaves the
/// optimiser at its default.
pub(crate) fn session(
    engine: &CpuEngine,
    file: &[u8],
    level: Option<GraphOptimizationLevel>,
) -> Session {
    let mut builder =
        Session::builder(engine.environment()).unwrap().with_intra_threads(1).unwrap();
    if let Some(level) = level {
        builder = builder.with_optimization_level(level).unwrap();
    }
    builder.commit_from_memory(file).unwrap()
}

/// All outputs of a session.
pub(crate) fn run(session: &mut Session, inputs: &Named) -> Named {
    let values: Vec<(&str, SessionInputValue<'_>)> =
        inputs.iter().map(|(name, tensor)| (name.as_str(), value(tensor))).collect();
    let outputs = session.run(values).unwrap();
    outputs.iter().map(|(name, value)| (name.to_owned(), tensor(&value))).collect()
}

fn value(tensor: &Tensor) -> SessionInputValue<'static> {
    let dims: Vec<i64> = tensor.dims().iter().map(|&dim| dim as i64).collect();
    macro_rules! of {
        ($element:ty) => {
            ort::value::Tensor::from_array((dims, tensor.to_vec::<$element>().unwrap()))
                .unwrap()
                .into()
        };
    }
    match tensor.dtype() {
        DataType::F32 => of!(f32),
        DataType::I32 => of!(i32),
        DataType::I64 => of!(i64),
        other => panic!("no bare value of {other}"),
    }
}

fn tensor(value: &ort::value::ValueRef<'_>) -> Tensor {
    let ort::value::ValueType::Tensor { ty, .. } = value.dtype() else { panic!("no tensor") };
    assert_eq!(*ty, TensorElementType::Float32);
    let (shape, elements) = value.try_extract_tensor::<f32>().unwrap();
    let dims: Vec<usize> = shape.iter().map(|&dim| dim as usize).collect();
    Tensor::from_slice(&dims, elements).unwrap()
}
