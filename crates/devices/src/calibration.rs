//! A short calibration: what a device really does, measured through the same door as all work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_graph::proto::{
    DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorShapeProto, TensorTypeProto, TypeProto, TypeValue, ValueInfoProto,
};
use holdfast_graph::{DataType, Digest, Model, Tensor};
use holdfast_models::{Store, StoredGraph, hashed_weights};
use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::error::{DeviceError, ErrorKind};
use crate::program::{Input, Output, Program, RequestId, Step, TensorId};
use crate::segment::{Segment, SegmentId};

/// What a calibration measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Floating point operations a second of a square matrix product in f32.
    pub matmul_flops: f64,
    /// Bytes a second that element-wise work reads and writes.
    pub memory_bytes_per_second: f64,
    /// The time of the smallest possible step.
    pub launch: Duration,
    /// Bytes a second from this process to the device.
    pub upload_bytes_per_second: f64,
    /// Bytes a second back.
    pub download_bytes_per_second: f64,
}

/// A product that takes at least this long says more about the arithmetic than about the launch.
const LONG_ENOUGH: Duration = Duration::from_millis(20);
const SIZES: [usize; 5] = [128, 256, 512, 1024, 2048];
const TRANSFER_BYTES: usize = 4 << 20;
const LAUNCHES: usize = 9;
/// The side of the squares that are added to see how fast memory is.
const SUM_SIDE: usize = 1024;
const SUMS: usize = 4;

/// Calibrates a device. Takes a second or so, and leaves nothing behind.
pub async fn calibrate(device: &dyn Device, store: &Store) -> Result<Calibration, DeviceError> {
    let product = square_graph(store, "MatMul")?;
    let sum = square_graph(store, "Add")?;
    let measured = measure(device, &product, &sum).await;
    for name in ["a", "b", "product"] {
        // What a failed measurement did not get to keep cannot be dropped.
        let _ = device.drop_tensor(&tensor_id(name)).await;
    }
    measured
}

async fn measure(
    device: &dyn Device,
    graph: &StoredGraph,
    sum: &StoredGraph,
) -> Result<Calibration, DeviceError> {
    let mut launches = products(device, graph, 1, LAUNCHES).await?;
    launches.sort();
    let launch = launches[LAUNCHES / 2];
    let mut matmul_flops = 0.0;
    for size in SIZES {
        let took = products(device, graph, size, 2).await?[1];
        let computing = took.saturating_sub(launch).as_secs_f64();
        if computing > 0.0 {
            matmul_flops = 2.0 * (size as f64).powi(3) / computing;
        }
        if took >= LONG_ENOUGH {
            break;
        }
    }
    if matmul_flops == 0.0 {
        let message = "its clock did not move while it multiplied large matrices";
        return Err(DeviceError::new(ErrorKind::Device, message));
    }
    let sums = products(device, sum, SUM_SIDE, SUMS).await?;
    let fastest = sums.into_iter().min().unwrap_or_default().saturating_sub(launch);
    // Two squares are read and one is written.
    let memory_bytes_per_second =
        (3 * 4 * SUM_SIDE * SUM_SIDE) as f64 / fastest.as_secs_f64().max(1e-6);
    let values = tensor(DataType::F32, vec![TRANSFER_BYTES / 4], vec![0; TRANSFER_BYTES])?;
    let started = Instant::now();
    device.put(tensor_id("a"), values).await?;
    let upload = started.elapsed();
    let started = Instant::now();
    device.get(&tensor_id("a")).await?;
    let download = started.elapsed();
    let rate = |took: Duration| TRANSFER_BYTES as f64 / took.as_secs_f64().max(1e-9);
    Ok(Calibration {
        matmul_flops,
        memory_bytes_per_second,
        launch,
        upload_bytes_per_second: rate(upload),
        download_bytes_per_second: rate(download),
    })
}

/// How long the engine took for each of several products, or sums, of two squares.
async fn products(
    device: &dyn Device,
    graph: &StoredGraph,
    size: usize,
    times: usize,
) -> Result<Vec<Duration>, DeviceError> {
    // The size is bound, because WebNN computes nothing else.
    let dims = [("size".to_owned(), size)].into();
    let loaded = device.load(Segment { dims, ..Segment::new(graph.clone()) }).await?;
    let measured = async {
        put_square(device, size).await?;
        let mut took = Vec::new();
        for _ in 0..times {
            took.push(product(device, loaded.id).await?);
        }
        Ok(took)
    };
    let measured = measured.await;
    device.unload(loaded.id).await?;
    measured
}

async fn put_square(device: &dyn Device, size: usize) -> Result<(), DeviceError> {
    for name in ["a", "b"] {
        let values: Vec<u8> =
            std::iter::repeat_n(0.5f32.to_le_bytes(), size * size).flatten().collect();
        device.put(tensor_id(name), tensor(DataType::F32, vec![size, size], values)?).await?;
    }
    Ok(())
}

/// Computes with what was put, and says how long the engine took.
async fn product(device: &dyn Device, segment: SegmentId) -> Result<Duration, DeviceError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let kept = |name: &str| (name.to_owned(), Input::Kept(tensor_id(name)));
    let step = Step {
        segment,
        inputs: vec![kept("a"), kept("b")],
        outputs: vec![("product".to_owned(), Output::Keep(tensor_id("product")))],
    };
    let request = RequestId(format!("calibration-{number}"));
    let outcome = device.run(Program { request, deadline: None, steps: vec![step] }).await?;
    Ok(outcome.steps[0].run)
}

fn tensor_id(name: &str) -> TensorId {
    TensorId(format!("holdfast/calibration/{name}"))
}

fn tensor(dtype: DataType, dims: Vec<usize>, bytes: Vec<u8>) -> Result<Tensor, DeviceError> {
    Tensor::new(dtype, dims, bytes.into()).map_err(|e| {
        DeviceError::caused(ErrorKind::Caller, "cannot make a tensor to calibrate with", e)
    })
}

/// The graph of one operator on two squares of any size, kept in the store like any other.
fn square_graph(store: &Store, operator: &str) -> Result<StoredGraph, DeviceError> {
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
        DeviceError::caused(ErrorKind::Device, "cannot make the graph to calibrate with", error)
    };
    let square = |name: &str| {
        let dim = || DimensionProto {
            value: Some(DimensionValue::Param("size".to_owned())),
            ..DimensionProto::default()
        };
        let tensor = TensorTypeProto {
            elem_type: DataType::F32.to_onnx(),
            shape: Some(TensorShapeProto { dim: vec![dim(), dim()] }),
        };
        let r#type = TypeProto { value: Some(TypeValue::Tensor(tensor)), ..TypeProto::default() };
        ValueInfoProto { name: name.to_owned(), r#type: Some(r#type), ..Default::default() }
    };
    let node = NodeProto {
        input: vec!["a".to_owned(), "b".to_owned()],
        output: vec!["product".to_owned()],
        op_type: operator.to_owned(),
        ..NodeProto::default()
    };
    let graph = GraphProto {
        name: "calibration".to_owned(),
        node: vec![node],
        input: vec![square("a"), square("b")],
        output: vec![square("product")],
        ..GraphProto::default()
    };
    let opset = OperatorSetIdProto { version: 17, ..OperatorSetIdProto::default() };
    let proto = ModelProto {
        ir_version: 8,
        opset_import: vec![opset],
        graph: Some(graph),
        ..ModelProto::default()
    };
    let model = Model::from_proto(proto).map_err(|e| failed(e.into()))?;
    let origin = Digest::of(b"holdfast calibration");
    store
        .put_derived(&origin, operator, &model, &hashed_weights(&model))
        .map_err(|e| failed(e.into()))
}
