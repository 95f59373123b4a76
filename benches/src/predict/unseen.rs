//! P2: mixes of models that never ran on the device.
//!
//! The predictor is pure, so the mixes that were measured for P1 are predicted once more, each by
//! one that has seen nothing but runs of other families, alone. Of the mix itself it knows the
//! graphs.

use std::collections::{HashMap, HashSet};

use holdfast_graph::Digest;
use holdfast_predict::RunTime;

use super::mixes::{Way, taught};
use super::models::{Column, Models};
use super::{error, mean, median};
use crate::record::{Goal, Record};

pub(super) fn rows(
    record: &mut Record,
    column: Column,
    models: &Models,
    ways: &[Way],
    runs: &[RunTime],
) {
    // Models ran alone one after the other, each at its own segment.
    let mut order: Vec<Digest> = Vec::new();
    for run in runs {
        if !order.contains(&run.segment) {
            order.push(run.segment);
        }
    }
    let families: HashMap<Digest, usize> = order
        .iter()
        .zip(&models.members)
        .map(|(segment, member)| (*segment, member.family))
        .collect();
    let mut errors = Vec::new();
    for way in ways {
        let own: HashSet<usize> =
            way.drawn.iter().map(|(model, _)| models.members[*model].family).collect();
        let others = runs
            .iter()
            .filter(|run| families.get(&run.segment).is_some_and(|family| !own.contains(family)));
        let estimate = taught(&way.mix, others).estimate(&way.mix);
        errors.push(error(estimate.latency_seconds.value, way.measured));
    }
    let name = column.name();
    let peer = format!("mean {:.1} %; runs of other families only", mean(&errors) * 1e2);
    record.add(
        &format!("P2.{name}"),
        "latency of the same mixes, models never run here: median error",
        median(errors),
        "of measured",
        &peer,
        Goal::AtMost(0.20),
    );
}
