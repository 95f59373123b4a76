//! A load: one for all who wait for the model.

use std::sync::Arc;

use holdfast_devices::SegmentId;
use tokio::time::Instant;

use super::Scheduler;
use super::member::{Host, MemberId};
use crate::prepare::Prepared;

/// Unloads what has to go, loads, and tells the scheduler.
pub(super) async fn run(
    scheduler: Scheduler,
    member: MemberId,
    device: Arc<dyn Host>,
    model: Arc<Prepared>,
    unload: Vec<SegmentId>,
) {
    for segment in unload {
        // If it is not there any more, so much the better; if there is no room, the load says so.
        let _ = device.unload(segment).await;
    }
    scheduler.progress(&format!("loading on {}", device.info().name));
    let result = device.load(model.segment.clone()).await;
    scheduler.change(|state| ((), state.loaded(member, &model, result, Instant::now())));
}
