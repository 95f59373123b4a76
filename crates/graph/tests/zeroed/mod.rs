//! The seven real exports, without their weights: graphs are what these
//! tests are about, so the external tensors become zeros of the right size.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::path::Path;

use holdfast_graph::proto::{DataLocation, ModelProto};
use holdfast_graph::{DataType, Message, Model, Tensor};

/// The name of each export and its graph.
pub(crate) fn exports() -> Vec<(String, Model)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/minilm-exports");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut exports: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "onnx"))
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), read(&path)))
        .collect();
    exports.sort_by(|left, right| left.0.cmp(&right.0));
    assert_eq!(exports.len(), 7);
    exports
}

fn read(path: &Path) -> Model {
    let mut proto = ModelProto::decode(std::fs::read(path).unwrap().as_slice()).unwrap();
    for tensor in &mut proto.graph.as_mut().unwrap().initializer {
        if tensor.data_location == DataLocation::External as i32 {
            let dtype = DataType::from_onnx(tensor.data_type).unwrap();
            let dims: Vec<usize> = tensor.dims.iter().map(|&dim| dim as usize).collect();
            *tensor = Tensor::zeros(dtype, &dims).unwrap().to_proto(&tensor.name);
        }
    }
    Model::from_proto(proto).unwrap()
}
