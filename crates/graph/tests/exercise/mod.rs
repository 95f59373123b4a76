//! What must hold for any bytes at all, shared by the fuzz target and the corpus test: reading
//! gives a model or an error, never a panic; what can be read can be used; and none of it takes
//! memory out of proportion.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

pub(crate) mod counting;

use std::collections::HashMap;

use bytes::Bytes;
use holdfast_graph::infer::{Bindings, dtypes};
use holdfast_graph::{
    Dim, FREE_BYTES, Fingerprints, Message, Model, Structure, WeightTable, blob_name, common, cost,
    cut, encode, graph_only, hoist, hoist_constants, transpose_invariant,
};

/// Values to cut at; more would only be slower.
const CUTS: usize = 8;

/// Reads the bytes and, where they are a model, does everything with it. Gives whether they are.
pub(crate) fn exercise(bytes: Bytes) -> bool {
    let limit = 2 * bytes.len() as u64 + FREE_BYTES;
    let (model, peak) = counting::peak_of(|| Model::from_bytes(bytes.clone()));
    assert!(peak as u64 <= limit, "reading {} bytes took {peak}", bytes.len());
    let Ok(model) = model else { return false };
    let ((), peak) = counting::peak_of(|| everything(&model));
    assert!(peak as u64 <= limit, "using a model of {} bytes took {peak}", bytes.len());
    true
}

fn everything(model: &Model) {
    let weights = WeightTable::new(model);
    weights.entries().iter().for_each(|weight| {
        transpose_invariant(&weight.tensor);
    });
    let prints = Fingerprints::new(model, &weights);
    let structure = prints.model();

    // Bytes are compared instead of messages, because a NaN does not equal itself.
    let written = encode(model);
    let again = Model::from_bytes(written.clone().into()).unwrap();
    assert_eq!(encode(&again), written, "reading what was written gives something else");

    assert_eq!(structure_of(&hoist(model, 1)), structure, "hoisting changed the structure");
    assert_eq!(structure_of(&hoist_constants(model, 1)), structure, "constants");

    let graph = graph_only(model, &weights, |_| true);
    let blobs: HashMap<String, Bytes> = (graph.taken.iter())
        .map(|weight| (blob_name(&weight.content), weight.tensor.bytes().clone()))
        .collect();
    let bytes = graph.proto.encode_to_vec();
    let whole = Model::from_bytes_with(bytes.into(), |name| Ok(blobs[name].clone())).unwrap();
    assert_eq!(structure_of(&whole), structure, "weights elsewhere changed the structure");

    let found = common((model, &prints), (model, &prints));
    assert!(found.binding.iter().all(|(left, right)| left == right), "an input is itself");

    dtypes(model);
    let named = model.inputs().into_iter().flat_map(|input| input.dims.unwrap_or_default());
    let sizes = named.filter_map(|dim| match dim {
        Dim::Named(name) => Some(name),
        _ => None,
    });
    let sizes = sizes.fold(Bindings::new(), |sizes, name| sizes.size(&name, 2));
    // A model may be impossible to count, but not to ask.
    let _ = cost::cost(model, &sizes);

    cuts(model, &prints);
}

fn structure_of(model: &Model) -> Option<Structure> {
    Fingerprints::new(model, &WeightTable::new(model)).model()
}

fn cuts(model: &Model, prints: &Fingerprints) {
    let outputs = model.graph().node.iter().flat_map(|node| &node.output);
    let names: Vec<&str> =
        outputs.map(String::as_str).filter(|name| !name.is_empty()).take(CUTS).collect();
    for (index, name) in names.iter().enumerate() {
        let piece = cut(model, &[], &[name]).unwrap();
        let found = Fingerprints::new(&piece, &WeightTable::new(&piece));
        let structure = |prints: &Fingerprints| prints.get(name).map(|print| print.structure);
        assert_eq!(structure(&found), structure(prints), "cutting changed `{name}`");
        for given in &names[..index] {
            // A value without a known type cannot be an input; that is an error like any other.
            let _ = cut(model, &[given], &[name]);
        }
    }
}
