//! The same MiniLM exported seven ways, as the exporters wrote it. What these graphs have in
//! common once an engine lowered them is tested where the engine is (`crates/devices`).

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::collections::HashMap;
use std::path::Path;

use bytes::Bytes;
use holdfast_graph::proto::ModelProto;
use holdfast_graph::{
    Digest, Fingerprints, Message, Model, WeightTable, blob_digest, common, encode,
};

/// File, nodes, weights that it names, and the structure of all its outputs. Two of them differ
/// only in the order and type of their inputs, which is for the binding to say.
const EXPORTS: [(&str, usize, usize, &str); 7] = [
    ("torch1-opset11", 638, 101, "ef20cbb023"),
    ("torch1-opset14-inputs-reordered", 689, 101, "5ba0717d6f"),
    ("torch1-opset14-int32-ids", 692, 101, "5ba0717d6f"),
    ("torch1-opset14-static-shape", 398, 101, "22254d4c04"),
    ("torch1-opset17-mean-pooled", 600, 101, "cf9aef3383"),
    ("torch2-opset17", 559, 101, "e5d9b82f47"),
    ("torch2-opset17-sdpa", 650, 101, "62d3e5e296"),
];

/// A graph and its fingerprints. The weights are not at hand, but their digests are their names.
struct Export {
    model: Model,
    prints: Fingerprints,
    named: usize,
}

impl Export {
    fn read(name: &str) -> Export {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/minilm-exports");
        let bytes = Bytes::from(std::fs::read(folder.join(format!("{name}.onnx"))).unwrap());
        let proto = ModelProto::decode(bytes.clone()).unwrap();
        let mut digests: HashMap<String, Digest> = HashMap::new();
        for tensor in proto.graph.unwrap().initializer {
            let location = tensor.external_data.iter().find(|entry| entry.key == "location");
            let location = location.map(|entry| blob_digest(&entry.value).unwrap());
            digests.extend(location.map(|digest| (tensor.name, digest)));
        }
        let zeros = Bytes::from(vec![0; 64 << 20]);
        let model = Model::from_bytes_with(bytes, |_| Ok(zeros.clone())).unwrap();
        let weights = WeightTable::hashed_by(&model, |weights| {
            let digest = |name: &String| digests.get(name).copied();
            let hashed = weights.iter().map(|weight| {
                digest(&weight.name).unwrap_or_else(|| Digest::of(weight.tensor.bytes()))
            });
            hashed.collect()
        });
        Export { prints: Fingerprints::new(&model, &weights), model, named: digests.len() }
    }
}

#[test]
fn every_export_reads_and_its_structure_is_stable() {
    let found = EXPORTS.map(|(name, ..)| {
        let export = Export::read(name);
        let structure = export.prints.model().unwrap().0.short();
        (name, export.model.graph().node.len(), export.named, structure)
    });
    assert_eq!(found, EXPORTS.map(|(name, nodes, named, s)| (name, nodes, named, s.to_owned())));
}

#[test]
fn every_value_of_an_export_is_in_common_with_itself() {
    for (name, ..) in EXPORTS {
        let export = Export::read(name);
        let again = common((&export.model, &export.prints), (&export.model, &export.prints));
        assert!(again.binding.iter().all(|(left, right)| left == right));
        let computed = export.model.graph().node.iter().flat_map(|node| &node.output);
        let depends =
            |name: &&String| export.prints.get(name).is_some_and(|print| !print.leaves.is_empty());
        assert_eq!(again.values.len(), computed.filter(depends).count(), "{name}");
    }
}

#[test]
fn every_export_survives_being_written() {
    for (name, ..) in EXPORTS {
        let model = Export::read(name).model;
        assert_eq!(Model::from_bytes(encode(&model).into()).unwrap(), model, "{name}");
    }
}
