//! Lanes that take part: each is measured before it takes work.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use holdfast_devices::Device;
use holdfast_devices::lane::{Lane, Lanes};
use holdfast_wire::Backend;

use crate::choice::Choice;
use crate::measurements::Measurements;
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
    pub(crate) measurements: Arc<Measurements>,
}

/// How long a measurement may take, which the other lanes that joined wait for. It is over within
/// seconds, but for a slow line.
const MEASUREMENT_LIMIT: Duration = Duration::from_secs(60);

/// How long one that failed is left alone, unless somebody needs it.
const AGAIN: Duration = Duration::from_secs(1);

impl Joining {
    pub(crate) fn new(
        lanes: Arc<Lanes>,
        scheduler: Scheduler,
        measurements: Arc<Measurements>,
        options: PoolOptions,
    ) -> Joining {
        let (calibrating, wanted) = Default::default();
        Joining { lanes, scheduler, options, calibrating, wanted, measurements }
    }

    /// Measures a lane, if that was not done yet, and lets it take work.
    pub(crate) async fn take_in(&self, lane: &Lane) -> Result<(), String> {
        // Nobody waits for the measurement of another lane who needs none.
        if !is_measured(lane) {
            let _one_at_a_time = self.calibrating.lock().await;
            if !is_measured(lane) {
                self.measure(lane).await?;
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

    /// Measures a lane, unless it has failed at that too often.
    async fn measure(&self, lane: &Lane) -> Result<(), String> {
        if let Some(reasons) = self.measurements.given_up(lane) {
            return Err(reasons);
        }
        let name = lane.info().name.clone();
        (self.options.progress)(&format!("measuring {name}"));
        let why = match tokio::time::timeout(MEASUREMENT_LIMIT, lane.calibrate()).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => explain(&error),
            Err(_) => format!("it took more than {} s", MEASUREMENT_LIMIT.as_secs()),
        };
        let reason = format!("{name} failed its first measurement: {why}");
        self.measurements.failed(lane, &reason, &self.lanes);
        Err(reason)
    }

    /// Whether a lane that was not taken in may be another time.
    fn may_come(&self, lane: &Lane) -> bool {
        self.measurements.given_up(lane).is_none()
    }

    /// From now on takes in every lane on a backend as it joins.
    pub(crate) fn want(self: &Arc<Joining>, backend: Backend) {
        if lock(&self.wanted).insert(backend) {
            tokio::spawn(take_in_all(Arc::downgrade(self), backend));
        }
    }
}

fn is_measured(lane: &Lane) -> bool {
    lane.info().calibration.is_some()
}

/// Takes in what joins, for as long as the pool is there.
async fn take_in_all(joining: Weak<Joining>, backend: Backend) {
    let Some(mut changes) = joining.upgrade().map(|joining| joining.lanes.changes()) else {
        return;
    };
    loop {
        changes.mark_unchanged();
        let again = {
            let Some(joining) = joining.upgrade() else { return };
            let mut again = false;
            for lane in joining.lanes.all() {
                if lane.backend() == backend && lane.is_connected() && joining.may_come(&lane) {
                    // Whoever needs this very lane asks for it and hears why.
                    again |= joining.take_in(&lane).await.is_err();
                }
            }
            again
        };
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(AGAIN), if again => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use holdfast_devices::lane::{LaneOptions, Link, Timeouts};
    use holdfast_models::Store;
    use holdfast_wire::{
        Assembler, BrowserInfo, ErrorKind, FromLane, Hello, MachineInfo, PROTOCOL_VERSION,
        PowerInfo, StorageInfo, StorageKind, ToLane, WasmInfo, WebGpuInfo, WebNnInfo, split,
    };
    use tokio::sync::mpsc;

    use super::*;
    use crate::fleet::there;
    use crate::measurements::MEASUREMENTS;

    fn hello() -> Hello {
        let nothing = || "scripted".to_owned();
        Hello {
            protocol: PROTOCOL_VERSION,
            version: "1".to_owned(),
            page: "page".to_owned(),
            lane: 0,
            backend: Backend::Wasm,
            browser: BrowserInfo {
                name: "Scripted".to_owned(),
                version: "1".to_owned(),
                platform: "Linux".to_owned(),
                mobile: false,
            },
            machine: MachineInfo { cores: 2, memory_gib: None, cross_origin_isolated: true },
            webgpu: WebGpuInfo::Missing { reason: nothing() },
            webnn: WebNnInfo::Missing { reason: nothing() },
            wasm: WasmInfo { simd: true, threads: 2, jspi: true },
            storage: StorageInfo { kind: StorageKind::None, quota_bytes: None, used_bytes: 0 },
            power: PowerInfo::FULL,
            resume: None,
        }
    }

    /// Joins with a lane that fails at all that it is asked, and counts what it is to load.
    fn join_broken(lanes: &Arc<Lanes>) -> tokio::sync::watch::Receiver<usize> {
        join(lanes, true)
    }

    /// Joins with a lane that fails at all that it is asked, or answers nothing.
    fn join(lanes: &Arc<Lanes>, fails: bool) -> tokio::sync::watch::Receiver<usize> {
        let (to_lane, mut heard) = mpsc::channel::<Bytes>(64);
        let (said, from_lane) = mpsc::channel(64);
        let link = Link { frame_bytes: 1 << 20, outgoing: to_lane, incoming: from_lane };
        let lanes = lanes.clone();
        tokio::spawn(async move { lanes.serve(link).await });
        let (loads, count) = tokio::sync::watch::channel(0);
        tokio::spawn(async move {
            let mut number = 0;
            let mut say = async |message: FromLane| {
                number += 1;
                for bytes in split(number, &message, &[]).unwrap().flatten() {
                    let _ = said.send(Ok(bytes)).await;
                }
            };
            say(FromLane::Hello(Box::new(hello()))).await;
            let mut assembler = Assembler::<ToLane>::default();
            while let Some(bytes) = heard.recv().await {
                let request = match assembler.push(bytes).unwrap() {
                    Some((ToLane::Load { request, .. }, _)) => {
                        loads.send_modify(|count| *count += 1);
                        request
                    }
                    Some((ToLane::Drop { request, .. } | ToLane::Unload { request, .. }, _)) => {
                        request
                    }
                    _ => continue,
                };
                if !fails {
                    continue;
                }
                let (kind, message) = (ErrorKind::Device, "it was told to fail".to_owned());
                say(FromLane::Error { request: Some(request), kind, message }).await;
            }
        });
        count
    }

    fn joining(folder: &std::path::Path) -> (Arc<Lanes>, Arc<Joining>) {
        let store = Arc::new(Store::open(folder).unwrap());
        // By its own measure, a lane may take for ever.
        let timeouts = Timeouts { load: Duration::from_secs(3600), ..Timeouts::default() };
        let options = LaneOptions { timeouts, ..LaneOptions::default() };
        let lanes = Arc::new(Lanes::new(store, options));
        let scheduler = Scheduler::new(1, Arc::new(|_| ()));
        let (measurements, options) = (Arc::default(), PoolOptions::default());
        (lanes.clone(), Arc::new(Joining::new(lanes, scheduler, measurements, options)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_that_fails_its_measurement_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let (lanes, joining) = joining(folder.path());
        let there = |backend| {
            let lane = there(&lanes, &joining.scheduler, &joining.measurements, backend);
            lane.map(|lane| lane.info().name.clone())
        };
        let useless = || joining.measurements.useless(&lanes.all(), Backend::Wasm);
        let mut names = Vec::new();
        for count in 1..=2 {
            join_broken(&lanes);
            lanes.wait_for(|lane| lane.is_connected() && lanes.all().len() == count).await;
            names = lanes.all().iter().map(|lane| lane.info().name.clone()).collect();
        }
        assert_eq!((there(Backend::Webgpu), there(Backend::Wasm)), (None, names.first().cloned()));
        // The one that failed less often comes first, and in the end none is left.
        for expected in [1, 0, 1, 0, 1] {
            joining.take_in(&lanes.all()[1 - expected]).await.unwrap_err();
            assert_eq!((there(Backend::Wasm).as_ref(), useless()), (Some(&names[expected]), None));
        }
        joining.take_in(&lanes.all()[1]).await.unwrap_err();
        assert_eq!(there(Backend::Wasm), None);
        assert!(useless().unwrap().contains("it was told to fail"));
        assert_eq!(joining.measurements.useless(&lanes.all(), Backend::Webgpu), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_measurement_has_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let (lanes, joining) = joining(folder.path());
        join(&lanes, false);
        let lane = lanes.wait_for(|lane| lane.is_connected()).await;
        let since = tokio::time::Instant::now();
        let error = joining.take_in(&lane).await.unwrap_err();
        assert!(error.contains("it took more than 60 s"), "{error}");
        assert_eq!(since.elapsed(), MEASUREMENT_LIMIT);
        assert_eq!(joining.measurements.failures(&lane), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_that_fails_its_measurement_has_three_tries() {
        let folder = tempfile::tempdir().unwrap();
        let (lanes, joining) = joining(folder.path());
        let mut loads = join_broken(&lanes);
        let lane = lanes.wait_for(|lane| lane.is_connected()).await;
        let error = joining.take_in(&lane).await.unwrap_err();
        assert!(error.contains("it was told to fail"), "{error}");
        assert_eq!(*loads.borrow(), 1);
        // Nobody asks for it again, but it is wanted.
        joining.want(Backend::Wasm);
        loads.wait_for(|loads| *loads == MEASUREMENTS).await.unwrap();
        while joining.may_come(&lane) {
            tokio::time::sleep(AGAIN).await;
        }
        let error = joining.take_in(&lane).await.unwrap_err();
        assert_eq!(error.matches("it was told to fail").count(), MEASUREMENTS, "{error}");
        assert_eq!(*loads.borrow(), MEASUREMENTS, "it is not measured a fourth time");
    }
}
