//! Lanes that take part: each is measured before it takes work.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, Weak};

use holdfast_devices::Device;
use holdfast_devices::lane::{Lane, Lanes};
use holdfast_wire::Backend;

use crate::choice::Choice;
use crate::pool::{PoolOptions, explain, lock};
use crate::scheduler::Scheduler;
use crate::scheduler::member::MemberOptions;

/// A lane has one program running and one on its way, so that the way costs nothing.
const LANE_SLOTS: usize = 2;

pub(crate) struct Joining {
    pub(crate) lanes: Arc<Lanes>,
    scheduler: Scheduler,
    options: PoolOptions,
    /// Lanes are calibrated one at a time, so that they do not measure each other.
    calibrating: tokio::sync::Mutex<()>,
    /// Backends that somebody wants; lanes on others are left alone until somebody does.
    wanted: Mutex<HashSet<Backend>>,
}

impl Joining {
    pub(crate) fn new(lanes: Arc<Lanes>, scheduler: Scheduler, options: PoolOptions) -> Joining {
        let (calibrating, wanted) = Default::default();
        Joining { lanes, scheduler, options, calibrating, wanted }
    }

    /// Measures a lane, if that was not done yet, and lets it take work.
    pub(crate) async fn take_in(&self, lane: &Lane) -> Result<(), String> {
        {
            let _one_at_a_time = self.calibrating.lock().await;
            if lane.info().calibration.is_none() {
                (self.options.progress)(&format!("measuring {}", lane.info().name));
                lane.calibrate().await.map_err(|error| {
                    format!("it failed its first measurement: {}", explain(&error))
                })?;
            }
        }
        let member = MemberOptions {
            choice: Choice::Lane(lane.backend()),
            slots: LANE_SLOTS,
            parallel: 1,
            memory_bytes: self.options.lane_model_bytes,
            cache_bytes: self.options.cache_bytes,
            shares_weights: false,
            steady: false,
            browser: Some(lane.hello().browser.name.clone()),
            page: Some(lane.hello().page.clone()),
        };
        self.scheduler.attach(Arc::new(lane.clone()), member);
        Ok(())
    }

    /// From now on takes in every lane on a backend as it joins.
    pub(crate) fn want(self: &Arc<Joining>, backend: Backend) {
        if lock(&self.wanted).insert(backend) {
            tokio::spawn(take_in_all(Arc::downgrade(self), backend));
        }
    }
}

/// Takes in what joins, for as long as the pool is there.
async fn take_in_all(joining: Weak<Joining>, backend: Backend) {
    let Some(mut changes) = joining.upgrade().map(|joining| joining.lanes.changes()) else {
        return;
    };
    // Those that failed their measurement are not tried again.
    let mut seen = HashSet::new();
    loop {
        changes.mark_unchanged();
        {
            let Some(joining) = joining.upgrade() else { return };
            let all = joining.lanes.all();
            seen.retain(|name| all.iter().any(|lane| lane.info().name == *name));
            for lane in all.iter().filter(|lane| lane.backend() == backend && lane.is_connected()) {
                if seen.insert(lane.info().name.clone()) {
                    // Whoever needs this very lane asks for it and hears why.
                    let _ = joining.take_in(lane).await;
                }
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}
