//! A load: one for all who wait for the model.

use std::sync::Arc;
use std::time::Duration;

use holdfast_devices::{DeviceError, Loaded, SegmentId, TensorId};
use tokio::time::Instant;

use super::Scheduler;
use super::member::{Host, MemberId};
use crate::choice::Choice;
use crate::route::Prepared;

/// What has to go from a device.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LetGo {
    pub(crate) tensors: Vec<TensorId>,
    pub(crate) segments: Vec<SegmentId>,
}

/// Lets go of what has to go, loads, and tells the scheduler.
pub(super) async fn run(
    scheduler: Scheduler,
    (member, choice): (MemberId, Choice),
    device: Arc<dyn Host>,
    model: Option<Arc<Prepared>>,
    let_go: LetGo,
) {
    make_room(device.as_ref(), let_go).await;
    let Some(model) = model else {
        return scheduler.change(|state| ((), state.tidied(member)));
    };
    scheduler.progress(&format!("loading on {}", device.info().name));
    let result = load(device.as_ref(), &model).await;
    scheduler.change(|state| ((), state.loaded(member, choice, &model, result, Instant::now())));
}

/// Lets go of tensors first: an engine that holds nothing more gives its memory back.
pub(super) async fn make_room(device: &dyn Host, LetGo { tensors, segments }: LetGo) {
    // If it is not there any more, so much the better; if there is no room, the load says so.
    for tensor in tensors {
        let _ = device.drop_tensor(&tensor).await;
    }
    for segment in segments {
        let _ = device.unload(segment).await;
    }
}

/// Loads all segments of a route, or none.
async fn load(device: &dyn Host, model: &Prepared) -> Result<Loaded, DeviceError> {
    let mut all: Option<Loaded> = None;
    let mut new = Vec::new();
    for (id, segment) in &model.segments {
        match device.load(segment.clone()).await {
            Ok(loaded) => {
                // What was there before stays, whatever becomes of the others.
                if !loaded.took.is_zero() {
                    new.push(*id);
                }
                all = Some(match all {
                    None => loaded,
                    Some(all) => together(all, loaded),
                });
            }
            Err(error) => {
                let let_go = LetGo { segments: new, ..LetGo::default() };
                make_room(device, let_go).await;
                return Err(error);
            }
        }
    }
    let nothing = || DeviceError::caller("the model has no segments");
    Ok(Loaded { id: model.id, ..all.ok_or_else(nothing)? })
}

/// What loading two segments took.
fn together(one: Loaded, other: Loaded) -> Loaded {
    let sum = |a: Option<Duration>, b: Option<Duration>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or_default() + b.unwrap_or_default()),
    };
    Loaded {
        id: one.id,
        inputs: one.inputs,
        // The last segment gives what the model gives.
        outputs: other.outputs,
        weight_bytes: one.weight_bytes + other.weight_bytes,
        new_weight_bytes: one.new_weight_bytes + other.new_weight_bytes,
        downloaded_bytes: one.downloaded_bytes + other.downloaded_bytes,
        took: one.took + other.took,
        first_run: sum(one.first_run, other.first_run),
        first_run_error: one.first_run_error.or(other.first_run_error),
        placement: one.placement.or(other.placement),
    }
}
